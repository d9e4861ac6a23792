"""Elements of array spaces in the caller's memory, beside NumPy: checks, structures, layouts of plug-ins."""

import itertools
import math
import os
import re
import shutil
import subprocess

import numpy as np
import penstock
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
EDGES = [0, 1, -1, 0.5, -0.5, 127, 127.5, 128, -128, -128.5, -129, 255, 256, 2049, 65504, 65520, 2**31 - 1, 2**31]
EDGES += [2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 1e39, -1e39, 1e308, 0.1, math.nan, math.inf, -math.inf]
ONE_SERVER = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_names = itertools.count()


@pytest.fixture
def space(pool_servers, open_space):
    return open_space(pool_servers(2))


def new_array(space, dtype, shape, **options):
    return space.define(f"array {next(_names)}", dtype, shape, **options)


def held_by(dtype):
    """The edges that the type has."""
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            return [float(np.dtype(dtype).type(edge)) for edge in EDGES]
    info = np.iinfo(dtype)
    return [edge for edge in EDGES if isinstance(edge, int) and info.min <= edge <= info.max]


def refuses(element, dtype, exact):
    """Whether a check refuses the element, a Python number."""
    if dtype in FLOATS:
        with np.errstate(over="ignore"):
            became = float(np.dtype(dtype).type(element))
        if exact:
            return not (math.isnan(element) or (became == element and math.isinf(became) == math.isinf(element)))
        return math.isinf(became) and not (isinstance(element, float) and math.isinf(element))
    if not math.isfinite(element):
        return True
    info = np.iinfo(dtype)
    return not info.min <= math.trunc(element) <= info.max or (exact and math.trunc(element) != element)


@st.composite
def checked_arrays(draw):
    kept, other = draw(st.sampled_from(INTEGERS + FLOATS)), draw(st.sampled_from(INTEGERS + FLOATS))
    shape = draw(st.tuples(st.integers(1, 5), st.integers(1, 4)))
    size = math.prod(shape)
    elements = draw(st.lists(st.sampled_from(held_by(kept)), min_size=size, max_size=size))
    return kept, other, np.array(elements, kept).reshape(shape), draw(st.booleans()), draw(st.sampled_from("CF"))


def first_refused(values, dtype, exact):
    return next((i for i in np.ndindex(values.shape) if refuses(values[i].item(), dtype, exact)), None)


def expect_refusal(error, index, values):
    said = re.search(r"element \(([0-9, ]*)\) is ([^ ,]*), ", str(error.value))
    assert tuple(map(int, said[1].split(", "))) == index
    assert np.array_equal(np.array(said[2]).astype(values.dtype), values[index], equal_nan=values.dtype.kind == "f")


@ONE_SERVER
@given(case=checked_arrays())
def test_checks_refuse_what_does_not_fit(space, case):
    kept, other, values, exact, order = case
    checked = "exact" if exact else True
    T = new_array(space, kept, values.shape, convert="on_request")
    for row in reversed(range(len(values))):  # a block each
        T[0][row] = values[row]
    index = first_refused(values, other, exact) if other != kept else None
    if index is None:
        found = T[0].get(dtype=other, order=order, checked=checked)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found, values.astype(other))
    else:
        with pytest.raises(penstock.InvalidArgument, match=T.name) as error:
            T[0].get(dtype=other, order=order, checked=checked)
        expect_refusal(error, index, values)

    U = new_array(space, other, values.shape)
    if index is None:
        U[0].put(np.asarray(values, order=order), checked=checked)
        np.testing.assert_array_equal(U[0][...], found)
    else:
        with pytest.raises(penstock.InvalidArgument, match=U.name) as error:
            U[0].put(np.asarray(values, order=order), checked=checked)
        expect_refusal(error, index, values)
        assert U.versions == []


def test_a_check_does_not_take_what_a_server_converted_unchecked(space):
    T = new_array(space, "float64", (64, 8), convert="in_advance", layouts=[("int8", "C"), ("float64", "F")])
    T[1][...] = np.arange(512.0).reshape(64, 8)
    assert T[1].get(dtype="int8")[16, 0] == 127  # within the range
    with pytest.raises(penstock.InvalidArgument, match=r"\(16, 0\) is 128, outside the range of int8"):
        T[1].get(dtype="int8", checked=True)
    requests = sum(server["requests"] for server in space.status)
    np.testing.assert_array_equal(T[1].get((slice(3, 10), ...), dtype="int8", checked=True).ravel(), np.arange(24, 80))
    assert sum(server["requests"] for server in space.status) == requests
    T[1].get(order="F", checked=True)  # nothing to check: the servers' is taken
    assert sum(server["requests"] for server in space.status) > requests


def test_wrong_checks_are_said(space):
    T = new_array(space, "float64", (8,))
    T[1][...] = 0
    with pytest.raises(penstock.InvalidArgument, match="'ranges'"):
        T[1].get(dtype="int8", checked="ranges")
    with pytest.raises(penstock.InvalidArgument, match="steps"):
        T[1].get(slice(None, None, 2), dtype="int8", checked=True)


@st.composite
def structured_arrays(draw):
    types = st.sampled_from(INTEGERS + FLOATS)
    names = draw(st.lists(st.sampled_from(("x", "y", "id", "mass", "Größe")), min_size=1, unique=True))
    kept = [(name, draw(types)) for name in names]
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    cuts = sorted({0, shape[0], *draw(st.lists(st.integers(0, shape[0]), max_size=2))})
    others = [
        np.dtype([(name, draw(types)) for name in draw(st.permutations(names))], align=draw(st.booleans()))
        for _ in range(len(cuts))
    ]
    box = tuple(slice(*sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))) for n in shape)
    return kept, shape, cuts, others, box, draw(st.randoms(use_true_random=False))


def expect_fields(found, values, names):
    for name in names:
        np.testing.assert_array_equal(found[name], values[name].astype(found[name].dtype))


@ONE_SERVER
@given(case=structured_arrays())
def test_structures_are_what_numpy_gives(space, case):
    kept, shape, cuts, others, box, draw = case
    values = np.zeros(shape, kept)
    for name, _ in kept:
        values[name] = np.reshape([draw.randrange(100) for _ in range(values.size)], shape)
    P = new_array(space, kept, shape)
    assert P.dtype == np.dtype(kept) == space[P.name].dtype
    for (first, last), other in zip(itertools.pairwise(cuts), others, strict=False):
        part = values[first:last]
        if draw.random() < 0.5:
            own = np.zeros(part.shape, other, order=draw.choice("CF"))
            for name, _ in kept:
                own[name] = part[name]
            P[3][first:last] = own
        else:
            P[3][first:last] = {name: np.asfortranarray(part[name].astype(other[name])) for name, _ in kept}
    np.testing.assert_array_equal(P[3][...], values)

    names = draw.sample([name for name, _ in kept], draw.randint(1, len(kept)))
    structures = P[3].get(box, dtype=others[-1][names], order=draw.choice("CF"))
    assert structures.dtype == others[-1][names]
    expect_fields(structures, values[box], names)
    arrays = P[3].get(box, fields=names)
    assert list(arrays) == names and all(arrays[name].dtype == values[name].dtype for name in names)
    expect_fields(arrays, values[box], names)
    every_second = tuple(slice(s.start, s.stop, 2) for s in box)
    expect_fields(P[3].get(every_second, fields=names, dtype="float32"), values[every_second], names)
    one = P[3].get(box, fields=names[0], dtype="float64", order="F")
    np.testing.assert_array_equal(one, values[box][names[0]].astype("float64"))
    out = np.full(shape, 77, others[0])
    assert P[3].get(box, out=out[box]).base is not None
    for name, _ in kept:
        expected = np.full(shape, 77)
        expected[box] = values[box][name]
        np.testing.assert_array_equal(out[name], expected)
    line = np.empty(values[box].shape, "int64")
    P[3].get(box, fields=names[0], out=line)
    np.testing.assert_array_equal(line, values[box][names[0]])


def test_structures_in_python(space):
    P = new_array(space, [("x", "f8"), ("id", "i1")], (3,))
    P[0][...] = [(0.5, 1), (1.5, 2), (2.5, 3)]
    assert P[0][1].tolist() == (1.5, 2) and "x: float64, id: int8" in repr(P)
    assert P[0].get(slice(None, None, -2))["id"].tolist() == [3, 1]
    P[1][...] = {"x": 0.0, "id": [4, 5, 300]}  # wraps
    assert P[1].get(fields="id").tolist() == [4, 5, 44]
    assert P[0].explain() == ["the reader converts: servers do not convert structures"]
    with pytest.raises(penstock.InvalidArgument, match=r"\(2\) of field 'id' is 300, outside the range of int8"):
        P[2].put({"x": np.zeros(3), "id": np.array([4, 5, 300])}, checked=True)
    assert P.versions == [0, 1]
    with pytest.raises(penstock.InvalidArgument, match="'id' is missing"):
        P[2][...] = {"x": np.zeros(3)}
    with pytest.raises(penstock.AlreadyExists, match="other values"):
        P[0][...] = {"x": [0.5, 1.5, 2.5], "id": [1, 2, 4]}
    with pytest.raises(penstock.InvalidArgument, match="no field 'z'"):
        P[0].get(fields=["x", "z"])
    with pytest.raises(penstock.InvalidArgument, match="structures"):
        P[0].get(dtype="float64")
    with pytest.raises(penstock.InvalidArgument, match="an array each"):
        P[0].get(fields=["x", "id"], out=np.zeros(3))
    with pytest.raises(penstock.Unsupported, match="do not convert structures"):
        new_array(space, [("x", "f8")], (3,), convert="on_request")
    with pytest.raises(penstock.InvalidArgument, match="element type"):
        new_array(space, [("x", "f8", (3,))], (3,))
    with pytest.raises(penstock.AlreadyExists, match="x: float64, id: int8"):
        space.define(P.name, [("x", "f8")], (3,))
    with pytest.raises(penstock.InvalidArgument, match="no fields"):
        new_array(space, "float64", (3,))[0].get(dtype=[("x", "f8")])


@pytest.fixture
def tiled_layouts(tiled_library):
    assert penstock.layouts.load(tiled_library) == ["tiled16", "tiled4"] == penstock.layouts.load(str(tiled_library))
    return tiled_library


def tiled(values, edge):
    """The elements tile by tile, each in rows."""
    starts = itertools.product(*(range(0, size, edge) for size in values.shape))
    return np.concatenate([values[tuple(slice(a, a + edge) for a in start)].ravel() for start in starts])


@settings(parent=ONE_SERVER, max_examples=30)
@given(
    shape=st.lists(st.integers(1, 19), min_size=1, max_size=3),
    layout=st.sampled_from(("tiled4", "tiled16")),
    types=st.tuples(*[st.sampled_from(INTEGERS + FLOATS)] * 3),
    draw=st.randoms(use_true_random=False),
)
def test_tiles_are_what_numpy_gives(space, tiled_layouts, shape, layout, types, draw):
    edge, (kept, given_type, asked) = int(layout[5:]), types
    values = np.reshape([draw.randrange(100) for _ in range(math.prod(shape))], shape).astype(kept)
    T = new_array(space, kept, shape)
    middle = draw.randrange(shape[0])
    T[1].put(tiled(values[:middle].astype(given_type), edge) if middle else [], slice(middle), layout=layout)
    T[1].put(tiled(values[middle:], edge), slice(middle, None), layout=layout, checked=True)
    np.testing.assert_array_equal(T[1][...], values)
    box = tuple(slice(*sorted((draw.randrange(n), draw.randrange(n) + 1))) for n in shape)
    found = T[1].get(box, layout=layout, dtype=asked)
    expected = values[box].astype(asked)
    np.testing.assert_array_equal(found, tiled(expected, edge) if expected.size else [])


def test_layouts_of_plug_ins_say_what_is_wrong(space, tiled_layouts):
    with pytest.raises(penstock.NotFound, match=r"missing\.so"):
        penstock.layouts.load("missing.so")
    T = new_array(space, "float64", (8, 8))
    T[1][...] = np.arange(64.0).reshape(8, 8)
    with pytest.raises(penstock.NotFound, match="tiled4"):
        T[1].get(layout="tiled5")
    for wrong in ({"order": "F"}, {"out": np.zeros((8, 8))}, {"fields": "x"}):
        with pytest.raises(penstock.InvalidArgument, match="leaves no order"):
            T[1].get(layout="tiled4", **wrong)
    with pytest.raises(penstock.InvalidArgument, match="no steps"):
        T[1].get(slice(None, None, -1), layout="tiled4")
    with pytest.raises(penstock.InvalidArgument, match="takes 512 bytes in layout 'tiled4', the values have 504"):
        T[2].put(np.zeros(63), layout="tiled4")
    with pytest.raises(penstock.InvalidArgument, match=r"\(2, 0\) is 16"):
        T[1].get(slice(2, None), layout="tiled4", dtype="bool", checked=True)
    P = new_array(space, [("x", "f8"), ("id", "i1")], (6,))
    P[0].put(np.array([(i / 2, i) for i in range(6)], P.dtype), layout="tiled4")
    assert P[0].get(slice(1, None), layout="tiled4")["id"].tolist() == [1, 2, 3, 4, 5]
    with pytest.raises(penstock.InvalidArgument, match="structures lie in a layout as"):
        P[0].get(layout="tiled4", dtype=[("x", "f4")])


def test_a_shared_object_that_is_no_plug_in_is_refused(tmp_path, monkeypatch):
    compiler = shutil.which(os.environ.get("CC", "cc")) or pytest.skip("needs a C compiler")
    monkeypatch.chdir(tmp_path)
    for name, text, why in (
        ("data", "int penstock_layouts = 1;", "exports no function penstock_layouts"),
        ("none", "int other;", "exports no function penstock_layouts"),
        ("null", "const void* penstock_layouts(void) { return 0; }", "gave no table"),
    ):
        (tmp_path / f"{name}.c").write_text(text)
        subprocess.run([compiler, "-shared", "-fPIC", f"{name}.c", "-o", f"{name}.so"], check=True, timeout=60)
        with pytest.raises(penstock.Unsupported, match=rf"{name}\.so.*{why}"):
            penstock.layouts.load(f"{name}.so")  # of this folder


@pytest.mark.parametrize("other", ([("x", "f8"), ("y", "f8"), ("id", "i1")], [("y", "f8"), ("id", "i1")], "float64"))
def test_a_layout_of_an_array_that_was_defined_anew_is_not_written_beyond_its_memory(space, tiled_layouts, other):
    old = space.define("P", [("x", "f8"), ("id", "i1")], (6,))
    old[0][...] = np.zeros(6, old.dtype)
    assert space.drop("P")
    new = space.define("P", other, (6,))
    new[0][...] = np.zeros(6, new.dtype)
    with pytest.raises(penstock.InvalidArgument, match="'tiled4'"):
        old[0].get(layout="tiled4", timeout=5)
    with pytest.raises(penstock.InvalidArgument, match="'tiled4'"):
        old[1].put(np.zeros(8, old.dtype), layout="tiled4", timeout=5)
    assert new.versions == [0]


def test_fields_are_those_that_were_named_and_lie_apart(space):
    P = new_array(space, [("x", "f8"), ("y", "f8"), ("id", "i4")], (3,))
    P[0][...] = [(0.5, 10.5, 1), (1.5, 11.5, 2), (2.5, 12.5, 3)]
    for wrong in ({"dtype": [("y", "f8")]}, {"out": np.zeros(3, [("y", "f8")])}):
        with pytest.raises(penstock.InvalidArgument, match=r"fields=\['x'\] names the fields, and so does the type"):
            P[0].get(fields="x", **wrong)
    shared = np.dtype({"names": ["x", "id"], "formats": ["f8", "i4"], "offsets": [0, 4], "itemsize": 12})
    for wrong in ({"dtype": shared}, {"out": np.zeros(3, shared)}):
        with pytest.raises(penstock.InvalidArgument, match=r"fields 'x' and 'id' of .* share bytes"):
            P[0].get(**wrong)
    apart = np.dtype({"names": ["id", "x"], "formats": ["i4", "f8"], "offsets": [8, 0], "itemsize": 16})
    assert P[0].get(dtype=apart)["x"].tolist() == [0.5, 1.5, 2.5]
