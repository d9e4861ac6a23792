"""Arrays on a CUDA device are put from there, and read into there, without a copy by their own library."""

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import penstock
import pytest
from cuda_arrays import FILE, Cuda, WithBoth, WithDlpack, WithInterface
from penstock import dtypes

BASE = np.arange(12000.0).reshape(3, 40, 100)
PARTS = {
    "whole": lambda array: array,
    "row": lambda array: array[1],
    "strided": lambda array: array[:, ::2, 1:],
    "transposed": lambda array: array.T,
    "one element": lambda array: array[1, 2, 3, ...],
}


@pytest.fixture(scope="module")
def cuda():
    try:
        return Cuda()
    except OSError as error:
        pytest.skip(f"no CUDA driver, and no double of it ({FILE}): {error}")


@pytest.fixture(params=["shm", "tcp", "insitu"])
def pair(request, context):
    plane = {"engine": "insitu"} if request.param == "insitu" else {"data_plane": request.param}
    with context.create("s", **plane) as writer, context.open("s", **plane) as reader:
        yield writer, reader


@pytest.mark.parametrize("protocol", [WithDlpack, WithInterface])
@pytest.mark.parametrize("lend", [False, True])
def test_parts_are_put(cuda, pair, protocol, lend):
    writer, reader = pair
    arrays = {name: protocol(cuda, BASE, part) for name, part in PARTS.items()}
    with writer.step() as step:
        for name, array in arrays.items():
            if array.view.ndim and lend:
                step.put(name, array, lend=True)
            else:
                step[name] = array
    with reader.step() as step:
        for name, array in arrays.items():
            np.testing.assert_array_equal(step[name][...], array.view, err_msg=name)


@pytest.mark.parametrize("name", [name for name in dtypes._TO_NUMPY if name != "string"])
def test_every_type_is_put_and_read(cuda, context, name):
    dtype = dtypes.to_numpy(name)
    values = (np.arange(3000) % 100).astype(dtype)
    array = WithDlpack(cuda, dtypes.as_bits(values))
    array.bfloat16 = name == "bfloat16"
    into = WithBoth(cuda, np.zeros_like(dtypes.as_bits(values)))
    into.bfloat16 = array.bfloat16
    with context.create("s") as writer, context.open("s") as reader:
        with writer.step() as step:
            step["T"] = array
        with reader.step() as step:
            assert step["T"].dtype == dtype
            np.testing.assert_array_equal(dtypes.as_bits(step["T"][...]), dtypes.as_bits(values))
            assert step["T"].read(out=into) is into
    np.testing.assert_array_equal(into.to_host(), dtypes.as_bits(values))


@pytest.mark.parametrize("protocol", [WithBoth, WithInterface])
def test_reads_end_on_the_device(cuda, pair, protocol):
    writer, reader = pair
    holes = protocol(cuda, np.full((3, 80, 100), -1.0), lambda array: array[:, ::2])
    whole, part, block = (protocol(cuda, np.zeros(shape)) for shape in (BASE.shape, (2, 10, 100), BASE.shape))
    points = protocol(cuda, np.zeros(2))
    with writer.step() as step:
        step["T"] = BASE
    with reader.step() as step:
        T = step["T"]
        assert T.get(out=whole) is whole and T.get(np.s_[1:, 5:15], out=part) is part
        assert T.get(out=holes) is holes
        step.wait()
        assert T.block(0, out=block) is block
        T.points([(0, 0, 1), (2, 39, 99)], out=points)
        with pytest.raises(penstock.InvalidArgument, match="out must be an array float64"):
            T.read(np.s_[0], out=whole)
    np.testing.assert_array_equal(whole.to_host(), BASE)
    np.testing.assert_array_equal(block.to_host(), BASE)
    np.testing.assert_array_equal(part.to_host(), BASE[1:, 5:15])
    np.testing.assert_array_equal(holes.to_host()[:, ::2], BASE)
    assert (holes.to_host()[:, 1::2] == -1).all()
    assert points.to_host().tolist() == [1.0, 11999.0]


def test_what_its_library_calls_read_only_is_not_read_into(cuda, context):
    read_only = WithBoth(cuda, np.zeros(5))
    read_only.read_only = True
    with context.create("s") as writer, context.open("s") as reader:
        with writer.step() as step:
            step["T"] = np.arange(5.0)
        with reader.step() as step:
            for into in (read_only, WithDlpack(cuda, np.zeros(5))):  # DLPack alone does not say
                with pytest.raises(penstock.InvalidArgument, match="not With"):
                    step["T"].read(out=into)
                assert not into.to_host().any()


@pytest.mark.parametrize("protocol", [WithBoth, WithInterface])
def test_empty_arrays(cuda, context, protocol):
    array = protocol(cuda, np.zeros((0, 4)))
    with context.create("s") as writer, context.open("s") as reader:
        with writer.step() as step:
            step["T"] = array
        with reader.step() as step:
            assert step["T"].shape == (0, 4)
            assert step["T"].read(out=array) is array


def test_an_array_is_given_back_when_it_was_put_and_when_what_was_lent_is_over(cuda, context):
    array, lent = WithDlpack(cuda, BASE), WithDlpack(cuda, BASE)
    with context.create("s") as writer, context.open("s") as reader:
        with writer.step() as step:
            step["T"] = array
            step.put("lent", lent, lend=True)
            gc.collect()
            assert array.handed_out == 0 and lent.handed_out == 1
        with reader.step() as step:
            np.testing.assert_array_equal(step["lent"][...], BASE)
    gc.collect()
    assert lent.handed_out == 0


def test_a_stream_of_the_device_is_waited_for(cuda, context):
    array = WithInterface(cuda, BASE)
    array.stream = 2  # the thread's default stream
    with context.create("s") as writer, context.open("s") as reader:
        with writer.step() as step:
            step["T"] = array
        with reader.step() as step:
            np.testing.assert_array_equal(step["T"][...], BASE)


def test_cuda_may_be_loaded_within_a_step(tmp_path):
    """Also for small arrays after many others, whose place is not looked at in a program without CUDA."""
    program = f"""
        import numpy as np, penstock
        context = penstock.Context(directory={str(tmp_path)!r}, listen="127.0.0.1")
        with context.create("s") as writer, context.open("s") as reader:
            with writer.step() as step:
                for n in range(50):
                    step[f"v{{n}}"] = np.arange(3.0)
                from cuda_arrays import Cuda, WithDlpack, WithInterface
                cuda = Cuda()
                step["d"] = WithDlpack(cuda, np.arange(4.0))
                step["i"] = WithInterface(cuda, np.arange(5.0))
            with reader.step() as step:
                assert step["d"][...].tolist() == [0, 1, 2, 3] and step["i"][...].tolist() == [0, 1, 2, 3, 4]
        """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)])}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=60, env=environment)


@pytest.mark.parametrize(
    "change",
    [
        {"typestr": ">f8"},
        {"mask": 1},
        {"data": (0, False)},
        {"data": (8, False)},
        {"typestr": "?!"},
        {"shape": "three"},
        {"strides": (8,)},
    ],
)
def test_what_is_said_of_an_array_is_not_believed(cuda, context, change):
    class Liar(WithInterface):
        @property
        def __cuda_array_interface__(self):
            return {**super().__cuda_array_interface__, **change}

    with context.create("s", rendezvous_readers=0) as writer:
        with pytest.raises(penstock.Error):
            with writer.step() as step:
                step["T"] = Liar(cuda, BASE)
