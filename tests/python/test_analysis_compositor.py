"""Compositing against a reference that goes over pixels one by one, and over ranks of every kind."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from penstock.analysis.agreement import together
from penstock.analysis.compositor import Compositor, nearest, over
from ranks import on_ranks


def images_of(seed, size, width, height):
    """Premultiplied images and depths, of few values so that depths are often equal."""
    rng = np.random.default_rng(seed)
    alpha = rng.choice([0, 1, 90, 128, 254, 255], (size, height, width, 1))
    colors = np.concatenate([rng.integers(0, 256, (size, height, width, 3)) * alpha // 255, alpha], axis=-1)
    return colors.astype(np.uint8), rng.choice([0, 0.25, 0.5, 1], (size, height, width)).astype(np.float32)


def reference_nearest(colors, depths):
    color, depth = np.zeros(colors.shape[1:], np.uint8), np.zeros(depths.shape[1:], np.float32)
    for y in range(depth.shape[0]):
        for x in range(depth.shape[1]):
            best = min(range(len(colors)), key=lambda n, y=y, x=x: (depths[n, y, x], n))
            color[y, x], depth[y, x] = colors[best, y, x], depths[best, y, x]
    return color, depth


def reference_over(images):
    """From the front to the back, until nothing shines through: another way than the one tested."""
    out = np.zeros(images[0].shape)
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            through = 1.0
            for image in reversed(images):
                out[y, x] += through * image[y, x]
                through *= 1 - image[y, x, 3] / 255
    return out


sizes = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 6), st.integers(1, 6))


@settings(max_examples=60, deadline=None)
@given(sizes)
def test_nearest_and_over(drawn):
    colors, depths = images_of(*drawn)
    color, depth = nearest(colors, depths)
    expected, expected_depth = reference_nearest(colors, depths)
    assert (color == expected).all() and (depth == expected_depth).all()
    assert np.abs(over(list(colors)) - reference_over(list(colors))).max() <= 0.502


def test_over_is_exact_where_it_can_be():
    red = np.full((1, 1, 4), (255, 0, 0, 255), np.uint8)
    nothing = np.zeros((1, 1, 4), np.uint8)
    half_blue = np.full((1, 1, 4), (0, 0, 128, 128), np.uint8)
    assert (over([red, nothing]) == red).all()
    assert (over([nothing, red]) == red).all()
    assert (over([half_blue, red]) == red).all()
    assert over([red, half_blue])[0, 0].tolist() == [127, 0, 128, 255]


@pytest.fixture
def composed(context):
    """composed(colors, depths, order): what opaque() and layers() give on each of as many threads as there are."""

    def run(colors, depths, order):
        size, height, width = depths.shape

        def one(cohort):
            rank = cohort.rank if cohort is not None else 0
            compositor = Compositor((width, height), cohort, context)
            results = [compositor.opaque(colors[rank], depths[rank])]
            picture, nothing = compositor.opaque(colors[rank], depths[rank], share_depth=False)
            assert (picture == results[0][0]).all() and (nothing is None or size == 1)
            results += [compositor.layers(colors[rank], order), compositor.layers(colors[rank], order[::-1])]
            compositor.close()
            compositor.close()
            return results

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(one, penstock.thread_cohort(size) if size > 1 else [None]))

    return run


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes, st.permutations(range(4)))
def test_ranks(composed, drawn, order):
    colors, depths = images_of(*drawn)
    order = [rank for rank in order if rank < len(colors)]
    results = composed(colors, depths, order)
    expected, expected_depth = reference_nearest(colors, depths)
    assert (results[0][0][0] == expected).all()
    for (_, depth), _, _ in results:
        assert (depth == expected_depth).all()
    assert np.abs(results[0][1] - reference_over([colors[rank] for rank in order])).max() <= 0.502
    assert np.abs(results[0][2] - reference_over([colors[rank] for rank in order[::-1]])).max() <= 0.502
    for (picture, _), layer, _ in results[1:]:
        assert picture.shape[0] == 0 and layer.shape[0] == 0


def test_one_rank_needs_no_stream():
    compositor = Compositor((4, 3))
    color, depth = np.zeros((3, 4, 4), np.uint8), np.ones((3, 4), np.float32)
    assert compositor.opaque(color, depth)[0] is color and compositor.layers(color, [0]) is color
    compositor.close()


# A rank that dies while others compose; and MPI.
PROGRAM = """
import sys
import numpy as np
import penstock
from penstock.analysis.compositor import Compositor
from penstock.cohort import StreamCohort, as_cohort

context = penstock.Context(directory=sys.argv[1], listen="127.0.0.1")
if sys.argv[2] == "mpi":
    from mpi4py import MPI
    cohort = as_cohort(MPI.COMM_WORLD)
else:
    cohort = StreamCohort("c", int(sys.argv[2]), 3, context, timeout=20)
rank = cohort.rank
compositor = Compositor((50, 40), cohort, context)
color = np.full((40, 50, 4), 100 + rank, np.uint8)
for n in range(20):
    depth = np.full((40, 50), 0.9, np.float32)
    depth[:, 10 * rank : 10 * rank + 5] = 0.1 * (n % 3)
    picture, depth = compositor.opaque(color, depth)
    if rank == 0:
        assert picture[3, 21].tolist() == [102] * 4 and picture[3, 45].tolist() == [100] * 4
    assert np.allclose(depth[:, 10:15], 0.1 * (n % 3)) and np.allclose(depth[:, 5:10], 0.9)
print("ready", flush=True)
if sys.argv[3] == "die":
    sys.stdin.readline()
    try:
        for _ in range(3):
            compositor.opaque(color, depth.copy())
    except penstock.errors.Error as error:
        print(type(error).__name__, flush=True)
        sys.exit(3)
compositor.close()
cohort.free() if sys.argv[2] == "mpi" else cohort.close()
"""


def test_a_rank_dies(tmp_path):
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path), str(rank), "die"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(3)
    ]  # fmt: skip
    try:
        assert [process.stdout.readline() for process in started] == ["ready\n"] * 3
        started[1].kill()
        started[1].wait()
        for process in (started[0], started[2]):
            process.stdin.write("\n")
            process.stdin.flush()
        for process in (started[0], started[2]):
            assert process.wait(60) == 3
            assert process.stdout.read() in ("PeerLost\n", "WriterLost\n")
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def test_mpi(tmp_path):
    pytest.importorskip("mpi4py")
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores
    }
    command = ["mpiexec", "-n", "3", sys.executable, "-c", PROGRAM, str(tmp_path), "mpi", "end"]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    except FileNotFoundError:
        pytest.skip("mpiexec is not installed")
    assert done.returncode == 0, done.stderr


def test_an_error_of_one_rank_is_no_image(context):
    """The other ranks gather their bands at the time, and do so by two calls of the cohort."""

    def one(cohort):
        compositor = Compositor((5, 4), cohort, context)
        bands, calls = compositor._bands, cohort._shared.calls
        image = np.zeros((4, 5, 4), np.uint8), np.zeros((4, 5), np.float32)
        before = calls[cohort.rank]
        compositor.opaque(*image)
        assert calls[cohort.rank] == before + 2

        def failing(**images):
            bands(**images)
            raise ValueError("no band")

        if cohort.rank == 1:
            compositor._bands = failing
        for compose in (lambda: compositor.opaque(*image), lambda: compositor.layers(image[0], range(3))):
            with pytest.raises(ValueError, match="rank 1: no band"):
                together(cohort, compose)
        compositor.close()

    on_ranks(3, one)
