"""Attributes and arrays of hostile writers: refused with the mesh and the key, whatever they say."""

import json
import re

import numpy as np
import penstock
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from penstock.analysis import describe, partition

PROPERTY = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def plane():
    return "shm"


FIELD = {"association": "node", "variables": ["U"]}
GRID = {"type": "uniform", "shape": [3, 4], "axes": "xy", "fields": {"U": FIELD}}
CLOUD = {"type": "particles", "coordinates": ["x"]}
TETS = {"name": "t", "topology": "tri3", "connectivity": "c"}
SOLID = {"type": "unstructured", "coordinates": "x", "blocks": [TETS]}
TREE = {"type": "amr", "cells": [2, 2], "axes": "xy", "levels": "l", "indices": "i"}

GOOD = [GRID, CLOUD, SOLID, TREE]
BAD = [
    ({**GRID, "type": "hexagonal"}, "key 'type': there is no type 'hexagonal'"),
    ({**GRID, "colour": 1}, "key 'colour': unknown"),
    ({"type": "uniform", "axes": "xy"}, "key 'shape': missing"),
    ({**GRID, "shape": [3, 4, 5, 6]}, "key 'shape': expected 1 to 3 integers"),
    ({**GRID, "shape": [3, True]}, "key 'shape'"),
    ({**GRID, "shape": [3, 1 << 60]}, "key 'shape'"),
    ({**GRID, "shape": "34"}, "key 'shape'"),
    ({**GRID, "axes": "xx"}, "key 'axes': axes are 2 different letters"),
    ({**GRID, "axes": "xyz"}, "key 'axes'"),
    ({**GRID, "spacing": [1, 0, 1]}, "key 'spacing': spacing is positive"),
    ({**GRID, "origin": [1, 2]}, "key 'origin': expected three finite numbers"),
    ({**GRID, "origin": [1, 2, "1e999"]}, "key 'origin'"),
    ({**GRID, "fields": []}, "key 'fields': expected an object"),
    ({**GRID, "fields": {"U": {**FIELD, "x": 1}}}, "key 'fields/U', key 'x': unknown"),
    ({**GRID, "fields": {"U": {**FIELD, "association": "face"}}}, "key 'association': expected one of"),
    ({**GRID, "fields": {"U": {**FIELD, "association": "element"}}}, r"shape \(3, 4\), expected \(2, 3\)"),
    ({**GRID, "fields": {"U": {**FIELD, "components": 2}}}, r"expected \(3, 4, 2\)"),
    ({**GRID, "fields": {"U": {**FIELD, "components": 0}}}, "key 'components'"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": []}}}, "key 'variables'"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": ["U", "absent"]}}}, "no variable 'absent'"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": ["U", "U"], "components": 3}}}, "so many components"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": ["z"]}}}, "complex128, expected real numbers"),
    ({**GRID, "fields": {"U": {**FIELD, "variables": ["x"]}}}, "is a local_array, expected a global_array"),
    ({**GRID, "ghosts": FIELD}, "key 'ghosts'.*expected uint8"),
    ({**GRID, "ids": {"face": "U"}}, "key 'ids', key 'face': unknown"),
    ({**GRID, "ids": {"node": "U"}}, "key 'ids/node'.*expected int64"),
    ({**GRID, "ids": {"node": 3}}, "key 'node': expected text"),
    ({**GRID, "type": "rectilinear"}, "key 'coordinates': missing"),
    ({**GRID, "type": "rectilinear", "coordinates": {"x": "U", "y": "U"}}, r"key 'coordinates/x'.*expected \(3,\)"),
    ({**GRID, "type": "curvilinear", "coordinates": ["U"]}, r"expected \(3, 4, 3\)"),
    ({**CLOUD, "coordinates": "absent"}, "key 'coordinates': the step has no variable 'absent'"),
    ({**CLOUD, "coordinates": ["x", "x"]}, "one variable, or three, not 2"),
    ({**CLOUD, "coordinates": [["x"]]}, "expected a list of at least 1 names"),
    ({**CLOUD, "fields": {"m": {"association": "node", "variables": ["x"]}}}, r"expected one of \('element',\)"),
    ({**CLOUD, "fields": {"m": {"association": "element", "variables": ["two"]}}}, "'two' has 2 blocks, 'x' 1"),
    ({**SOLID, "blocks": {}}, "key 'blocks': expected a list"),
    ({**SOLID, "blocks": [TETS, TETS]}, "a name of its own"),
    ({**SOLID, "blocks": [{**TETS, "topology": "hex99"}]}, "there is no topology 'hex99'"),
    ({**SOLID, "blocks": [{**TETS, "topology": "mixed"}]}, "key 'offsets': missing"),
    ({**SOLID, "blocks": [{**TETS, "offsets": "c"}]}, "key 'offsets': unknown"),
    ({**SOLID, "blocks": [{**TETS, "connectivity": "x"}]}, "expected integers"),
    ({**TREE, "cells": [2, 2], "ghost_layers": 1}, "key 'cells': blocks of"),
    ({**TREE, "refinement": 1}, "key 'refinement': expected an integer from 2"),
    ({**TREE, "refinement": 10**6}, "key 'refinement'"),
    ({**TREE, "splits": "s"}, "splits and depth are given together"),
    ({**TREE, "depth": 1}, "splits and depth are given together"),
    ({**TREE, "splits": "s", "depth": 21}, "key 'depth': expected an integer from 0 to 20"),
    ({**TREE, "splits": "s", "depth": 1, "refinement": 3}, "key 'splits': splits need the refinement 2"),
    ({**TREE, "splits": "l", "depth": 1}, "key 'splits': .* is a local_array, expected a global_array"),
    ({**TREE, "splits": "U", "depth": 1}, "key 'splits': .* is of float64, expected uint64"),
    ({**TREE, "splits": "s", "depth": 1}, r"key 'splits': .* has the shape \(3,\), expected \(1,\)"),
    ({"type": "multiblock", "blocks": ["m"]}, "'m' is no other mesh"),
    ({"type": "multiblock", "blocks": ["absent"]}, "key 'blocks': 'absent' is no other mesh"),
    ({**GRID, "shape": [1 << 40, 1 << 40]}, "key 'shape': .* are more than"),
    ({**TREE, "cells": [1 << 20, 1 << 20]}, "key 'cells': .* are more than"),
    ({**GRID, "spacing": [1, 1, 10**400]}, "key 'spacing'"),
    ({**GRID, "fields": {"U": {**FIELD, "units": "m" * 2000}}}, "key 'units': expected text of at most 1000"),
    ({**GRID, "x" * 900_000: 1}, "unknown"),
    ([], "key 'type'"),
    ({}, "key 'type': there is no type None"),
]
TEXTS = [
    ("", "is no JSON"),
    ("[", "is no JSON"),
    ("[" * 500_000, "is no JSON"),
    ('{"version": 1, "version": 1, "meshes": {}}', "not all different"),
    ('{"version": NaN, "meshes": {}}', "key 'version': this program reads version 1, not nan"),
    ("[]", "expected an object"),
    ('{"meshes": {}}', "key 'version': missing"),
    ('{"version": 2, "meshes": {}}', "key 'version': this program reads version 1, not 2"),
    ('{"version": true, "meshes": {}}', "key 'version'"),
    ('{"version": 1, "meshes": []}', "key 'meshes'"),
    ('{"version": 1, "meshes": {}, "more": 1}', "key 'more': unknown"),
    (json.dumps({"version": 1, "meshes": {str(n): GRID for n in range(1001)}}), "at most 1000 meshes"),
    (json.dumps({"version": 1, "meshes": {"n" * 201: GRID}}), "1 to 200 characters"),
    (json.dumps({"version": 1, "meshes": {"": GRID}}), "1 to 200 characters"),
    (" " * (1 << 20) + "{}", "at most 1048576 bytes"),
    ('{"version": ' + "1" * 5000 + ', "meshes": {}}', "is no JSON"),
    (3, "one text"),
    (["a", "b"], "one text"),
]


def hostile(step, attribute):
    step["U"] = np.zeros((3, 4))
    step["z"] = np.zeros((3, 4), complex)
    step["s"] = np.zeros(3, np.uint64)
    step.put_local("x", np.zeros((3, 3)))
    step.put_local("two", np.zeros(3))
    step.put_local("two", np.zeros(3))
    step.put_local("c", np.array([[0, 1, 2]]))
    step.put_local("l", np.zeros(2, np.int64))
    step.put_local("i", np.zeros((2, 3), np.int64))
    step.attributes["meshes"] = attribute


def test_attributes_that_are_refused(hand_over):
    """All over one stream: each step has another attribute."""
    for mesh in GOOD:
        step = hand_over(lambda step, mesh=mesh: hostile(step, json.dumps({"version": 1, "meshes": {"m": mesh}})))
        found = describe(step)["m"]
        found.read(step, found.parts(2)[0])
    for mesh, message in BAD:
        text = json.dumps({"version": 1, "meshes": {"m": mesh}}).replace('"1e999"', "1e999")  # infinite when read
        step = hand_over(lambda step, text=text: hostile(step, text))
        with pytest.raises(penstock.InvalidArgument) as error:
            describe(step)
        assert re.search(message, str(error.value)) and "mesh 'm'" in str(error.value), (mesh, str(error.value))
        assert len(str(error.value)) < 2000
    for text, message in TEXTS:
        step = hand_over(lambda step, text=text: hostile(step, text))
        with pytest.raises(penstock.InvalidArgument) as error:
            describe(step)
        assert re.search(message, str(error.value)) and "attribute 'meshes'" in str(error.value), str(error.value)


@given(st.data())
@PROPERTY
def test_mutations_of_attributes(hand_over, data):
    """Whatever is put in the place of a value, describe() and read() work or raise InvalidArgument."""
    junk = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-5, 1 << 70)
        | st.floats()
        | st.sampled_from(["U", "x", "c", "l", "", "xy"]),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["x", "name", "U"]), inner, max_size=3)
        ),
        max_leaves=6,
    )
    whole = json.loads(json.dumps({"version": 1, "meshes": {f"m{n}": mesh for n, mesh in enumerate(GOOD)}}))
    place = whole
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    place[key] = data.draw(junk)
    step = hand_over(lambda step: hostile(step, json.dumps(whole)))
    try:
        for mesh in describe(step).values():
            for part in mesh.parts(2):
                mesh.read(step, part)
    except penstock.InvalidArgument as error:
        assert "mesh" in str(error)


NAMES = ["U", "x", "c", "l", "i", "z", "two", "o", "t", "n", "absent", ""]
NUMBERS = st.integers(-2, 5) | st.sampled_from([1 << 20, 1 << 31, 1 << 48, 1 << 62, -(1 << 63)]) | st.floats()
AXIS = st.sampled_from(["x", "xy", "yx", "zyx", "xx", "w", ""])
NAME = st.sampled_from(NAMES)
FIELDS = st.dictionaries(
    st.sampled_from(["f", "g"]),
    st.fixed_dictionaries(
        {
            "association": st.sampled_from(["node", "element", "face"]),
            "variables": st.lists(NAME, min_size=1, max_size=3),
        },
        optional={"components": st.integers(0, 4), "units": st.text(max_size=3)},
    ),
    max_size=2,
)
BLOCK = st.fixed_dictionaries(
    {"name": NAME, "topology": st.sampled_from(["tri3", "mixed", "hex8", "sphere"]), "connectivity": NAME},
    optional={"offsets": NAME, "topologies": NAME, "id": NUMBERS},
)
MESH = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["uniform", "rectilinear", "curvilinear", "unstructured", "particles", "amr", "multiblock"]
        )
    },
    optional={
        "shape": st.lists(NUMBERS, max_size=4) | st.just([3, 4]),
        "cells": st.lists(NUMBERS, max_size=4) | st.just([2, 2]),
        "axes": AXIS,
        "origin": st.lists(NUMBERS, max_size=4),
        "spacing": st.lists(NUMBERS, max_size=4),
        "coordinates": NAME | st.lists(NAME, max_size=4) | st.dictionaries(AXIS, NAME, max_size=2),
        "blocks": st.lists(BLOCK, max_size=2) | st.lists(NAME, max_size=2),
        "levels": NAME,
        "indices": NAME,
        "ghost_layers": NUMBERS,
        "refinement": NUMBERS,
        "fields": FIELDS,
        "ids": st.dictionaries(st.sampled_from(["node", "element"]), NAME, max_size=2),
    },
)


def arrays_of(seed):
    """Local arrays that may fit each other or not, with numbers that overflow."""
    rng = np.random.default_rng(seed)
    extremes = np.array([0, 1, 2, 5, 10, -1, -(2**63), 2**63 - 1])
    return {
        "x": rng.random((int(rng.integers(0, 5)), int(rng.integers(2, 4)))),
        "c": rng.choice(extremes, (2, 3)) if rng.random() < 0.5 else np.array([[0, 1, 2]]),
        "l": rng.choice(extremes, int(rng.integers(0, 4))),
        "i": rng.choice(extremes, (int(rng.integers(0, 4)), 3)),
        "n": rng.integers(0, 3, 10),
        "o": np.array([0, 5, -(2**63), -1, 10]) if rng.random() < 0.5 else np.array([0, 5, 10]),
        "t": np.full(int(rng.choice([2, 4])), int(rng.choice([4, 5, 7, 99])), np.uint8),
    }


@given(st.dictionaries(st.sampled_from(["m", "n"]), MESH, max_size=2), st.integers(0, 50), st.integers(1, 3))
@settings(PROPERTY, max_examples=150)
def test_whatever_a_hostile_writer_sends(hand_over, meshes, seed, size):
    """Attributes that look right, over arrays of any content: read, and given to VTK, or refused with the place."""

    def fill(step):
        hostile(step, json.dumps({"version": 1, "meshes": meshes}).replace("Infinity", "1e999").replace("NaN", "1e999"))

    def fill_all(step):
        step["U"] = np.zeros((3, 4))
        for name, array in arrays_of(seed).items():
            step.put_local(name, array)
        text = json.dumps({"version": 1, "meshes": meshes}).replace("Infinity", "1e999").replace("NaN", "1e999")
        step.attributes["meshes"] = text

    step = hand_over(fill if seed == 0 else fill_all)
    try:
        found = [mesh.read(step, part) for mesh in describe(step).values() for part in mesh.parts(size)]
    except penstock.InvalidArgument as error:
        assert re.search("mesh|attribute 'meshes'", str(error)) and len(str(error)) < 2000
        return
    for mesh in found:
        draw(mesh)


def draw(mesh):
    """VTK does not crash on it."""
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from penstock.analysis import to_vtk
    from vtkmodules.vtkFiltersGeometry import vtkGeometryFilter

    data = to_vtk(mesh)
    blocks = (
        [data] if not data.IsA("vtkMultiBlockDataSet") else [data.GetBlock(n) for n in range(data.GetNumberOfBlocks())]
    )
    for block in blocks:
        if not block.IsA("vtkMultiBlockDataSet"):
            surface = vtkGeometryFilter()
            surface.SetInputData(block)
            surface.Update()


def test_offsets_that_overflow(hand_over):
    """Differences of which are all positive in 64 bits, and which VTK would follow out of memory."""
    block = {"name": "b", "topology": "mixed", "connectivity": "n", "offsets": "o", "topologies": "t"}
    mesh = {"type": "unstructured", "coordinates": "x", "blocks": [block]}
    for offsets in (np.array([0, 5, -(2**63), -1, 10]), np.array([0, 5, 2**63, 2**64 - 1, 10], np.uint64)):

        def fill(step, offsets=offsets):
            step.put_local("x", np.zeros((3, 3)))
            step.put_local("n", np.zeros(10, int))
            step.put_local(f"o{offsets.dtype}", offsets)
            step.put_local("t", np.full(4, 7, np.uint8))
            text = json.dumps({"version": 1, "meshes": {"m": mesh}}).replace('"o"', f'"o{offsets.dtype}"')
            step.attributes["meshes"] = text

        step = hand_over(fill)
        found = describe(step)["m"]
        with pytest.raises(penstock.InvalidArgument, match="mesh 'm', domain 0: element block 'b': offsets rise"):
            found.read(step, found.parts(1)[0])


def test_more_than_the_machine_has(hand_over):
    """A global array of which hardly a block is there: the part is refused before memory is asked for."""
    shape = (1 << 44, 4)
    field = {"association": "node", "variables": ["huge"]}
    grid = {"type": "uniform", "shape": shape, "axes": "xy"}

    def fill(step, meshes):
        step.put("huge", np.zeros((1, 4)), start=(0, 0), shape=shape)
        if meshes:
            step.attributes["meshes"] = json.dumps({"version": 1, "meshes": meshes})

    for meshes in (None, {"mesh": {**grid, "fields": {"f": field}}}, {"mesh": grid}):
        step = hand_over(lambda step, meshes=meshes: fill(step, meshes))
        found = describe(step)["mesh"]
        with pytest.raises(penstock.InvalidArgument, match=r"mesh 'mesh': the part needs over .* use more ranks"):
            found.read(step, found.parts(2)[1])


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"spacing": 1j}, "'T': the attribute 'spacing' is at most three finite numbers, not 1j"),
        ({"spacing": "abc"}, "'T': the attribute 'spacing'"),
        ({"spacing": [1.0] * 4}, "'T': the attribute 'spacing'"),
        ({"spacing": [1.0, 0.0]}, "'T': spacing is positive"),
        ({"T/origin": [np.inf]}, "'T': the attribute 'origin'"),
        ({"origin": [1j]}, "'T': the attribute 'origin'"),
        ({"origin": ["a", "b"]}, "'T': the attribute 'origin'"),
    ],
)
def test_attributes_of_a_plain_stream_that_are_refused(hand_over, attributes, message):
    def fill(step):
        step["T"] = np.zeros((3, 4))
        step.attributes.update(attributes)

    step = hand_over(fill)
    with pytest.raises(penstock.InvalidArgument, match=message):
        describe(step)


def test_the_largest_arrays_of_a_plain_stream_are_the_mesh(hand_over):
    def fill(step):
        step["histogram"] = np.zeros(10)
        step["U"] = np.zeros((4, 5))
        step["V"] = np.ones((4, 5))

    (mesh,) = describe(hand_over(fill)).values()
    assert list(mesh.fields) == ["U", "V"] and mesh.shape == (4, 5)


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (
            {"c": np.array([[0, 1, 3]])},
            "mesh 'm', domain 0: element block 't': connectivity has the node numbers 0 to 3",
        ),
        ({"c": np.array([0, 1, 2])}, r"shape \(n, 3\), not \(3,\)"),
        ({"x": np.zeros((3, 2))}, "coordinates are one array"),
        ({"p": np.zeros(4)}, r"field 'p'.*expected shape \(3,\), not \(4,\)"),
        ({"p": np.zeros((3, 2))}, "field 'p' has 2 components, not 1"),
        ({"g": np.zeros(2, np.uint8)}, "ghosts of each element"),
    ],
)
def test_arrays_that_make_no_mesh(hand_over, put, message):
    good = {"c": np.array([[0, 1, 2]]), "x": np.zeros((3, 3)), "p": np.zeros(3), "g": np.zeros(1, np.uint8)}
    mesh = {
        **SOLID,
        "fields": {"p": {"association": "node", "variables": ["p"]}},
        "ghosts": {"association": "element", "variables": ["g"]},
    }

    def fill(step):
        for name, array in (good | put).items():
            step.put_local(name, array)
        step.attributes["meshes"] = json.dumps({"version": 1, "meshes": {"m": mesh}})

    step = hand_over(fill)
    found = describe(step)["m"]
    with pytest.raises(penstock.InvalidArgument, match=message):
        found.read(step, found.parts(1)[0])


@pytest.mark.parametrize(
    ("put", "message"),
    [
        ({"i": np.zeros((2, 2), int)}, r"domain 0: indices of 2 blocks have the shape \(2, 3\)"),
        ({"l": np.array([0, 99])}, "domain 0: levels are 0 to 50"),
        ({"f": np.zeros((3, 2, 2))}, r"domain 0: 'f' has the shape \(3, 2, 2\), expected \(2, 2, 2\)"),
        ({"f": np.zeros((2, 2, 3))}, r"domain 0: 'f' has the shape \(2, 2, 3\), expected \(2, 2, 2\)"),
    ],
)
def test_arrays_that_make_no_tree(hand_over, put, message):
    good = {"l": np.zeros(2, int), "i": np.zeros((2, 3), int), "f": np.zeros((2, 2, 2))}

    def fill(step):
        for name, array in (good | put).items():
            step.put_local(name, array)
        mesh = {**TREE, "fields": {"f": {"association": "element", "variables": ["f"]}}}
        step.attributes["meshes"] = json.dumps({"version": 1, "meshes": {"m": mesh}})

    step = hand_over(fill)
    found = describe(step)["m"]
    with pytest.raises(penstock.InvalidArgument, match=message):
        found.read(step, found.parts(1)[0])


@pytest.mark.parametrize("kind", ["field", "coordinates", "amr"])
def test_components_of_different_types(hand_over, kind):
    """Each error says which mesh."""
    field = {"association": "element" if kind == "amr" else "node", "variables": ["a", "b"]}
    mesh = {"type": "uniform", "shape": [3, 4], "axes": "xy", "fields": {"v": field}}
    if kind == "coordinates":
        mesh = {"type": "curvilinear", "shape": [3, 4], "axes": "xy", "coordinates": ["a", "b", "a"]}
    if kind == "amr":
        mesh = {**TREE, "fields": {"v": field}}

    def fill(step):
        for name, dtype in (("a", np.float32), ("b", np.float64)):
            if kind == "amr":
                step.put_local(name, np.zeros((2, 2, 2), dtype))
            else:
                step[name] = np.zeros((3, 4), dtype)
        step.put_local("l", np.zeros(2, int))
        step.put_local("i", np.zeros((2, 3), int))
        step.attributes["meshes"] = json.dumps({"version": 1, "meshes": {"m": mesh}})

    step = hand_over(fill)
    found = describe(step)["m"]
    with pytest.raises(penstock.InvalidArgument, match="mesh 'm': the components of a field are arrays of one type"):
        found.read(step, found.parts(1)[0])


def test_parts_of_another_kind_of_mesh(hand_over):
    step = hand_over(lambda step: step.__setitem__("T", np.zeros((3, 3))))
    mesh = describe(step)["mesh"]
    for part in (partition.DomainsPart((0,)), partition.BoxPart((0, 0), (3, 2)), partition.BoxPart((1, 1), (0, 0))):
        with pytest.raises(penstock.InvalidArgument, match="mesh 'mesh'"):
            mesh.read(step, part)
    with pytest.raises(penstock.InvalidArgument, match="no partitioner"):
        mesh.parts(2, "random")
    with pytest.raises(penstock.InvalidArgument, match="list of names"):
        mesh.read(step, mesh.parts(1)[0], "T")
