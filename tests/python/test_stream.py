"""What a step can hold, written and read in one process, over each data plane."""

import numpy as np
import penstock
import pytest

NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS += ["float16", "float32", "float64", "complex64", "complex128"]
RNG = np.random.default_rng(20)


# ------------------------------------------------------------------------------------------------------------- types


def test_arrays_of_every_type(hand_over):
    arrays = {name: RNG.integers(0, 2, (3, 4)).astype(name) * 3 for name in NUMBERS}
    arrays["bool"] = RNG.integers(0, 2, (3, 4)).astype(bool)
    step = hand_over(lambda step: [step.__setitem__(name, array) for name, array in arrays.items()])
    assert list(step) == NUMBERS and len(step) == len(NUMBERS)
    for name, array in arrays.items():
        got = step[name][...]
        assert got.dtype == array.dtype == step[name].dtype
        assert step[name].shape == (3, 4) and step[name].kind == "global_array" and step[name].order == "row"
        np.testing.assert_array_equal(got, array)


def test_bfloat16(hand_over):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([1.5, -2, 0.25], ml_dtypes.bfloat16)

    def fill(step):
        step["b"] = array
        step["v"] = array[0]
        step.span("s", count=(3,), dtype=ml_dtypes.bfloat16)[:] = array
        step.attributes["a"] = array

    step = hand_over(fill)
    assert step["b"].dtype == ml_dtypes.bfloat16
    for name in ("b", "s"):
        np.testing.assert_array_equal(step[name][::-1], array[::-1])
        np.testing.assert_array_equal(step[name].view(), array)
    assert step["v"].value == 1.5
    np.testing.assert_array_equal(step.attributes["a"], array)


def test_bfloat16_defined_without_ml_dtypes(pair):
    writer, reader = pair()
    writer.define("b", "bfloat16", (2,))
    with writer.step():
        pass
    with reader.step() as step:
        assert "b" not in step or step["b"].dtype.itemsize == 2


def test_scalars_and_strings(hand_over):
    values = {
        "int": 7, "float": 2.5, "bool": True, "complex": 1 + 2j, "text": "grüße", "empty": "",
        "half": np.float16(0.5), "byte": np.uint8(255), "zero_d": np.array(3, np.int16),
    }  # fmt: skip
    step = hand_over(lambda step: [step.__setitem__(name, value) for name, value in values.items()])
    for name, value in values.items():
        assert step[name].kind == "global_value" and step[name].shape == ()
        assert step[name].value == value and step[name].item() == value
        assert type(step[name].value) is type(value if isinstance(value, (int, float, complex, str)) else value.item())
    assert step["byte"].dtype == np.uint8 and step["byte"][()] == np.uint8(255)
    assert float(step["float"]) == 2.5 and int(step["int"]) == 7 and bool(step["bool"])
    assert step["text"][...] == "grüße"
    with pytest.raises(penstock.InvalidArgument):
        step["text"].read()


def test_python_numbers_take_the_variables_type(hand_over):
    def first(step):
        step["x"] = np.float32(1)
        step["n"] = np.uint8(1)

    def second(step):
        step["x"] = 2
        step["n"] = 200
        with pytest.raises(penstock.InvalidArgument):
            step["n"] = 256
        with pytest.raises(penstock.InvalidArgument):
            step["n"] = 1.5

    hand_over(first)
    step = hand_over(second)
    assert step["x"].value == 2 and step["x"].dtype == np.float32
    assert step["n"].value == 200 and step["n"].dtype == np.uint8


@pytest.mark.parametrize(
    "value",
    [["a", "b"], np.array(["a"]), np.array([None]), np.array([1], "M8[s]"), [[1], [2, 3]], None,
     np.zeros(2, [("a", "i4")]), np.zeros((1,) * 9)],
    ids=str,
)  # fmt: skip
def test_what_no_variable_can_hold(hand_over, value):
    def fill(step):
        with pytest.raises(penstock.InvalidArgument):
            step["bad"] = value
        step["good"] = 1

    assert list(hand_over(fill)) == ["good"]


def test_long_double_is_refused_or_double(hand_over):
    def fill(step):
        if np.dtype(np.longdouble).itemsize > 8:
            with pytest.raises(penstock.InvalidArgument):
                step["x"] = np.zeros(2, np.longdouble)

    hand_over(fill)


# -------------------------------------------------------------------------------------------------------- attributes


def test_attributes(hand_over):
    values = {
        "text": "é", "empty": "", "int": -3, "float": 0.1, "flag": False, "complex": 1j, "words": ["a", "", "b c"],
        "numbers": [1.5, 2.5], "one": [7], "bytes": np.arange(4, dtype=np.uint8), "none": np.zeros(0, np.int32),
        "T/units": "K", "T/dims": ["x", "y"],
    }  # fmt: skip

    def fill(step):
        step["T"] = np.zeros((2, 3))
        step.attributes.update(values)
        assert step.attributes["words"] == ["a", "", "b c"]

    attributes = hand_over(fill).attributes
    assert set(attributes) == set(values) and len(attributes) == len(values)
    for name, value in values.items():
        got = attributes[name]
        if isinstance(got, np.ndarray):
            np.testing.assert_array_equal(got, value)
            assert got.dtype == np.asarray(value).dtype
        else:
            assert got == value and type(got) is type(value)
    with pytest.raises(KeyError):
        attributes["nothing"]
    assert "nothing" not in attributes and attributes.get("nothing", 5) == 5


def test_attributes_of_a_variable(hand_over):
    def fill(step):
        step["T"] = np.zeros(2)
        step.attributes["T/units"] = "K"
        step.attributes["title"] = "t"

    step = hand_over(fill)
    assert dict(step["T"].attributes) == {"units": "K"} and step["T"].attributes["units"] == "K"


def test_attributes_change_over_time_and_stay(pair):
    writer, reader = pair()
    writer.attributes["title"] = "run"
    for t in range(3):
        with writer.step() as step:
            step.attributes["time"] = 0.5 * t
            if t == 1:
                step.attributes["note"] = ["late"]
    for t, step in zip(range(3), reader, strict=False):
        assert step.attributes["time"] == 0.5 * t and step.attributes["title"] == "run"
        assert step.attributes.get("note") == (["late"] if t >= 1 else None)
    assert writer.attributes["time"] == 1.0
    with pytest.raises(penstock.InvalidArgument):
        del writer.attributes["time"]


@pytest.mark.parametrize("value", [None, {}, b"raw", [[1, 2]], [1, "x"], object], ids=str)
def test_what_no_attribute_can_hold(hand_over, value):
    def fill(step):
        with pytest.raises(penstock.InvalidArgument):
            step.attributes["bad"] = value

    assert "bad" not in hand_over(fill).attributes


# ------------------------------------------------------------------------------------------------------ blocks, boxes


def test_blocks_empty_blocks_and_blocks_info(hand_over):
    whole = np.arange(60).reshape(6, 10)

    def fill(step):
        step.put("T", whole[:2], start=(0, 0), shape=(6, 10))
        step.put("T", whole[2:, :5], start=(2, 0))
        step.put("T", whole[2:, 5:], start=(2, 5))
        step.put("T", whole[:0], start=(0, 0))

    variable = hand_over(fill)["T"]
    np.testing.assert_array_equal(variable[...], whole)
    np.testing.assert_array_equal(variable[1:4, 3:7], whole[1:4, 3:7])
    np.testing.assert_array_equal(variable.block(1), whole[2:, :5])
    boxes = [(b.start, b.count, b.writer_rank) for b in variable.blocks if 0 not in b.count]
    assert boxes == [((0, 0), (2, 10), 0), ((2, 0), (4, 5), 0), ((2, 5), (4, 5), 0)]


def test_only_empty_blocks(hand_over):
    step = hand_over(lambda step: step.put("T", np.zeros((0, 4)), start=(0, 0), shape=(0, 4)))
    assert step["T"].shape == (0, 4) and step["T"][...].shape == (0, 4) and step["T"][..., 1].shape == (0,)


def test_holes_are_zero_or_untouched_and_overlaps_go_to_the_last(hand_over):
    def fill(step):
        step.put("T", np.full(3, 1.0), start=(0,), shape=(10,))
        step.put("T", np.full(3, 2.0), start=(2,))

    variable = hand_over(fill)["T"]
    assert variable[...].tolist() == [1, 1, 2, 2, 2, 0, 0, 0, 0, 0]
    out = np.full(10, -1.0)
    assert variable.read(out=out) is out and out.tolist() == [1, 1, 2, 2, 2, -1, -1, -1, -1, -1]
    assert variable[3:7].tolist() == [2, 2, 0, 0] and variable.points([[9], [0], [2]]).tolist() == [0, 1, 2]


def test_large_arrays_with_and_without_holes(hand_over):
    whole = RNG.random((300, 200))

    def fill(step):
        step.put("full", whole[:150], start=(0, 0), shape=whole.shape)
        step.put("full", whole[150:], start=(150, 0))
        step.put("hole", whole[:150], start=(0, 0), shape=whole.shape)

    step = hand_over(fill)
    np.testing.assert_array_equal(step["full"][...], whole)
    np.testing.assert_array_equal(step["hole"][...], np.where(np.arange(300)[:, None] < 150, whole, 0))


def test_changing_shape(hand_over):
    for size in (3, 5, 2, 0, 4):
        step = hand_over(lambda step, size=size: step.__setitem__("T", np.arange(2 * size).reshape(2, size)))
        assert step["T"].shape == (2, size)
        np.testing.assert_array_equal(step["T"][...], np.arange(2 * size).reshape(2, size))
    with pytest.raises(penstock.InvalidArgument):
        hand_over(lambda step: step.__setitem__("T", np.arange(4)))


def test_a_shape_changed_in_a_step_given_up(pair):
    writer, reader = pair()
    with writer.step() as step:
        step["T"] = np.arange(3)
    with pytest.raises(ZeroDivisionError):
        with writer.step() as step:
            step["T"] = np.arange(5)
            raise ZeroDivisionError
    with writer.step() as step:
        step["T"] = np.arange(3)
    writer_numbers = []
    for _ in range(2):
        with reader.step() as got:
            writer_numbers.append(got.number)
            assert got["T"][...].tolist() == [0, 1, 2]
    assert writer_numbers == [0, 2]


def test_local_arrays(hand_over):
    blocks = [np.arange(n, dtype=np.int32).reshape(1, n) for n in (3, 1, 4)]

    def fill(step):
        for block in blocks:
            step.put_local("particles", block)
        step.put_local("one", np.asfortranarray(np.arange(6.0).reshape(2, 3)))

    step = hand_over(fill)
    variable = step["particles"]
    assert variable.kind == "local_array" and variable.shape == () and len(variable.blocks) == 3
    for number, block in enumerate(blocks):
        np.testing.assert_array_equal(variable.block(number), block)
    with pytest.raises(penstock.InvalidArgument):
        variable[...]
    with pytest.raises(penstock.InvalidArgument):
        variable.block(3)
    assert step["one"].shape == (2, 3) and step["one"].order == "column"
    np.testing.assert_array_equal(step["one"][...], np.arange(6.0).reshape(2, 3))
    np.testing.assert_array_equal(step["one"].view(), np.arange(6.0).reshape(2, 3))


# ------------------------------------------------------------------------------------------------------------ layouts


def test_column_major(hand_over):
    array = np.asfortranarray(RNG.random((3, 4, 5)))

    def fill(step):
        step["F"] = array
        step["then_C"] = array
        step["C"] = np.ascontiguousarray(array)

    def again(step):
        step["F"] = np.ascontiguousarray(array)  # the order stays; the layout is converted
        step["then_C"] = array
        step["C"] = array

    for each in (fill, again):
        step = hand_over(each)
        assert step["F"].order == "column" and step["C"].order == "row"
        for name in step:
            np.testing.assert_array_equal(step[name][...], array)
            np.testing.assert_array_equal(step[name][1:, ::2, -1], array[1:, ::2, -1])
            assert step[name][...].flags.c_contiguous and step[name].read(order="column").flags.f_contiguous
            np.testing.assert_array_equal(step[name].read(order="column"), array)
            np.testing.assert_array_equal(step[name].view(), array)
        assert step["F"].view().flags.f_contiguous


def test_puts_of_any_layout(hand_over):
    base = RNG.random((6, 8, 4))
    arrays = {
        "strided": base[::2, 1::3, ::-1],
        "transposed": base.transpose(2, 0, 1),
        "reversed": base[::-1, ::-1, ::-1],
        "big_endian": base.astype(">f8"),
        "broadcast": np.broadcast_to(np.arange(4.0), (3, 4)),
        "list": [[1, 2], [3, 4]],
    }
    step = hand_over(lambda step: [step.__setitem__(name, array) for name, array in arrays.items()])
    for name, array in arrays.items():
        np.testing.assert_array_equal(step[name][...], np.asarray(array))


def test_reading_into_arrays_of_any_layout(hand_over):
    array = np.arange(24).reshape(4, 6)
    variable = hand_over(lambda step: step.__setitem__("T", array))["T"]
    for out in (np.zeros((4, 6), int, "F"), np.zeros((6, 4), int).T, np.zeros((8, 12), int)[::2, ::2],
                np.zeros((4, 6), int)[::-1, ::-1]):  # fmt: skip
        assert variable.read(out=out) is out
        np.testing.assert_array_equal(out, array)
    out = np.zeros((2, 1, 3), int)
    variable.read(np.s_[1:3, None, ::-2], out=out)
    np.testing.assert_array_equal(out, array[1:3, None, ::-2])
    read_only = np.zeros((4, 6), int)
    read_only.flags.writeable = False
    for bad in (np.zeros((4, 6)), np.zeros((6, 4), int), read_only, [1]):
        with pytest.raises(penstock.InvalidArgument):
            variable.read(out=bad)


# ---------------------------------------------------------------------------------------------------------- selections


def random_index(ndim):
    def entry():
        kind = RNG.integers(5)
        if kind == 0:
            return int(RNG.integers(-6, 6))
        if kind == 1:
            return None
        ends = [None if RNG.integers(2) else int(RNG.integers(-8, 8)) for _ in range(2)]
        return slice(*ends, int(RNG.integers(1, 4)) * (1 if RNG.integers(2) else -1))

    entries = [entry() for _ in range(RNG.integers(0, ndim + 1))]
    if RNG.integers(2):
        entries.insert(int(RNG.integers(len(entries) + 1)), ...)
    return tuple(entries)


def test_indexing_is_that_of_numpy(hand_over):
    array = np.arange(5 * 6 * 7).reshape(5, 6, 7)

    def fill(step):
        step.put("T", array[:, :2], start=(0, 0, 0), shape=array.shape)
        step.put("T", array[:, 2:], start=(0, 2, 0))

    variable = hand_over(fill)["T"]
    for _ in range(300):
        index = random_index(3)
        try:
            want = array[index]
        except IndexError:
            with pytest.raises(IndexError):
                variable[index]
            continue
        got = variable[index]
        assert type(got) is type(want) and got.shape == want.shape, index
        np.testing.assert_array_equal(got, want, err_msg=str(index))
    assert variable[1, 2, 3] == array[1, 2, 3] and isinstance(variable[1, 2, 3], np.int64)
    for bad in ([0, 1], np.array([True] * 5), 1.5, "x", True):
        with pytest.raises(penstock.InvalidArgument):
            variable[bad]


def test_points(hand_over):
    array = np.arange(24).reshape(4, 6)
    variable = hand_over(lambda step: step.__setitem__("T", array))["T"]
    points = [(3, 5), (0, 0), (-1, 1), (0, 0)]
    assert variable.points(points).tolist() == [23, 0, 19, 0]
    assert variable.points(np.empty((0, 2), int)).shape == (0,)
    for bad, error in ([(4, 0)], IndexError), ([(1, 2, 3)], ValueError), ([(0.5, 1)], ValueError):
        with pytest.raises(error):
            variable.points(bad)


def test_deferred_gets(hand_over):
    array = np.arange(24).reshape(4, 6)
    step = hand_over(lambda step: [step.__setitem__(name, array) for name in "ab"])
    parts = [step["a"].get(), step["b"].get(np.s_[1, ::-1]), step["a"].get(np.s_[2, 3]), step["b"].get_block(0)]
    step.wait()
    for part, want in zip(parts, (array, array[1, ::-1], array[2, 3], array), strict=True):
        np.testing.assert_array_equal(part, want)
    last = step["a"].get()
    step.end()  # performs it
    np.testing.assert_array_equal(last, array)


def test_min_max(pair):
    writer, reader = pair()
    writer.define("T", "float32", (4,), min_max=True)
    with writer.step() as step:
        step.put("T", np.float32([3, -1]), start=(0,))
        step.put("T", np.float32([7, 2]), start=(2,))
        step["plain"] = np.arange(3)
    with reader.step() as step:
        assert step["T"].min_max == (-1, 7) and isinstance(step["T"].min_max[0], np.float32)
        assert step["T"].block_min_max(1) == (2, 7)
        assert step["plain"].min_max is None


# ------------------------------------------------------------------------------------------------------- stream memory


def test_spans(hand_over):
    def fill(step):
        span = step.span("T", start=(0, 0), count=(2, 4), shape=(4, 4), dtype="f4")
        assert span.flags.writeable and span.ctypes.data % 64 == 0 and span.shape == (2, 4)
        span[:] = 1
        step.put("T", np.full((2, 4), 2, np.float32), start=(2, 0))
        column = step.span("F", shape=(2, 3), dtype=np.int64, order="column")
        assert column.flags.f_contiguous
        column[:] = np.arange(6).reshape(2, 3)
        step.span("local", count=(3,), dtype=bool, local=True)[:] = True
        step.span("none", shape=(0, 3), dtype="f8")
        spans.append(span)

    spans = []
    step = hand_over(fill)
    assert step["T"][:, 0].tolist() == [1, 1, 2, 2]
    np.testing.assert_array_equal(step["F"][...], np.arange(6).reshape(2, 3))
    assert step["local"].block(0).all() and step["none"].shape == (0, 3)
    with pytest.raises(ValueError):
        spans[0][:] = 5  # the step is over


def test_lent_arrays(hand_over):
    array = np.arange(6.0).reshape(2, 3)
    halos = np.arange(48.0).reshape(6, 8)

    def fill(step):
        step.put("T", array, lend=True)
        step.put("inside", halos[1:-1, 2:-2], lend=True)
        step.put("backwards", halos[::-2, ::3], lend=True)
        step.put("turned", halos.T, lend=True)
        step.put("empty", halos[:0], lend=True)
        halos[2, 3] = -1  # against the promise: shows when the copy is made

    received = hand_over(fill)
    assert received["T"][0, 1] == 1 and received["inside"][1, 1] == -1 and received["empty"].shape == (0, 8)
    np.testing.assert_array_equal(received["inside"][:], halos[1:-1, 2:-2])
    np.testing.assert_array_equal(received["backwards"][:], halos[::-2, ::3])
    np.testing.assert_array_equal(received["turned"][:], halos.T)


def test_views_outlive_step_reader_and_writer(pair, plane):
    writer, reader = pair()
    array = np.arange(24).reshape(4, 6)
    with writer.step() as step:
        step["T"] = array
        step.put("two", array[:2], start=(0, 0), shape=(4, 6))
        step.put("two", array[2:], start=(2, 0))
    with reader.step() as step:
        view = step["T"].view()
        part = step["T"].view(np.s_[1:3, 2])
        pieces = step["two"].view()
        placed = step["two"].views(np.s_[1:3])
        assert [block.start for block, _ in placed] == [(1, 0), (2, 0)]
        with pytest.raises(penstock.InvalidArgument):
            step["T"].view(np.s_[::2])
    assert isinstance(view, np.ndarray) and not view.flags.writeable and not view.flags.owndata
    assert isinstance(pieces, list) and len(pieces) == 2
    with pytest.raises(ValueError):
        view.flags.writeable = True
    reader.close()
    del reader, step
    writer.close()  # does not wait for views
    del writer
    np.testing.assert_array_equal(view, array)
    np.testing.assert_array_equal(part, array[1:3, 2])
    np.testing.assert_array_equal(np.concatenate(pieces), array)
    np.testing.assert_array_equal(np.concatenate([piece for _, piece in placed]), array[1:3])


def test_a_view_keeps_its_step_leased(pair, plane):
    writer, reader = pair(queue_steps=1)
    with writer.step() as step:
        step["T"] = np.arange(3)
    with reader.step() as step:
        view = step["T"].view()
    if plane == "shm":  # over tcp the view owns what was fetched
        assert writer.try_step() is None
    assert view.tolist() == [0, 1, 2]
    del view
    with writer.step(timeout=20) as step:
        step["T"] = np.arange(3)
