"""The attribute of a stream that describes its meshes: put when it changes, names that collide, streams without it."""

import json

import numpy as np
import penstock
import pytest
from penstock.analysis import Field, Multiblock, ParticleMesh, UniformMesh, describe, publish, time_and_cycle


@pytest.fixture
def plane():
    return "shm"


def test_the_attribute_is_put_when_it_changes(hand_over):
    mesh = UniformMesh(shape=(3,), fields={"U": Field("node", np.zeros(3)), "V": Field("node", np.ones(3))})
    texts, puts = [], []

    def put(meshes, wanted=None):
        def fill(step):
            original = step._put_attribute
            step._put_attribute = lambda name, *packed: (puts.append(name), original(name, *packed))
            publish(step, meshes, wanted)

        step = hand_over(fill)
        texts.append(step.attributes["meshes"])
        return step

    step = put({"grid": mesh})
    assert json.loads(texts[0]) == {
        "version": 1,
        "meshes": {
            "grid": {
                "type": "uniform",
                "shape": [3],
                "axes": "x",
                "origin": [0, 0, 0],
                "spacing": [1, 1, 1],
                "fields": {
                    "U": {"association": "node", "variables": ["U"]},
                    "V": {"association": "node", "variables": ["V"]},
                },
            }
        },
    }
    step = put({"grid": mesh}, {"V"})
    assert "U" not in step and puts == ["meshes"] and texts[0] == texts[1]
    (found,) = describe(step).values()
    assert list(found.fields) == ["V"] and found.absent == ("U",)
    with pytest.raises(penstock.NotFound, match="'U' is not in this step"):
        found.read(step, found.parts(1)[0], ["U"])
    assert list(found.read(step, found.parts(1)[0]).fields) == ["V"]
    put({"grid": mesh}, set())
    assert puts == ["meshes"]
    put({"grid": mesh, "other": ParticleMesh(coordinates=np.zeros((1, 3)))})
    assert puts == ["meshes"] * 2


def test_names_that_collide(hand_over):
    fields = {"U": Field("node", np.zeros((3, 2))), "U_x": Field("node", np.zeros(3))}

    def fill(step):
        publish(step, {"grid": UniformMesh(shape=(3,), fields=fields)})
        with pytest.raises(penstock.InvalidArgument, match="two arrays of the channel would be the variable 'U_x'"):
            split = fields | {"U": Field("node", (np.zeros(3), np.zeros(3)))}
            publish(step, {"grid": UniformMesh(shape=(3,), fields=split)})
        with pytest.raises(penstock.InvalidArgument, match="no mesh has the field 'W'"):
            publish(step, {"grid": UniformMesh(shape=(3,), fields=fields)}, {"W"})
        grid = UniformMesh(shape=(3,))
        with pytest.raises(penstock.InvalidArgument, match="block 'grid' of 'all' is not the mesh"):
            publish(step, {"grid": grid, "all": Multiblock(blocks={"grid": UniformMesh(shape=(3,))})})

    hand_over(fill)


def test_a_stream_without_the_attribute(hand_over):
    array = np.arange(24.0).reshape(2, 3, 4)

    def fill(step):
        step["T"] = array
        step["flags"] = array > 3
        step["line"] = np.arange(3)
        step["complex"] = array.astype(complex)
        step["empty"] = np.zeros((0, 2))
        step["x"] = 3.5
        step.attributes.update({"T/spacing": [0.5, 1.0, 2.0], "origin": [1.0, 2.0], "T/units": "K"})

    step = hand_over(fill)
    (mesh,) = describe(step).values()
    assert list(mesh.fields) == ["T", "flags"] and mesh.axes == "zyx" and mesh.fields["T"].units == "K"
    whole = mesh.read(step, mesh.parts(1)[0])
    np.testing.assert_array_equal(whole.fields["T"].values, array)
    assert whole.spacing == (0.5, 1, 2) and whole.origin == (1, 2, 0) and not whole.ghosts
    assert mesh.box_of(mesh.parts(1)[0]) == ((1, 2, 0), (2.5, 4, 2))
    expected = step.to_vtk()
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from penstock.analysis import to_vtk

    image = to_vtk(whole)
    assert image.GetDimensions() == expected.GetDimensions() and image.GetBounds() == expected.GetBounds()


def test_no_meshes_at_all(hand_over):
    assert describe(hand_over(lambda step: step.put_value("x", 1.0))) == {}


@pytest.mark.parametrize(
    ("values", "attributes", "expected"),
    [
        ({}, {}, (0.0, 0)),
        ({"time": 2.5, "cycle": 7}, {"time": 9.0}, (2.5, 7)),
        ({}, {"time": 1.5, "cycle": 3}, (1.5, 3)),
        ({"time": np.arange(3.0)}, {"cycle": "three"}, (0.0, 0)),
        ({"time": float("nan")}, {"cycle": [1, 2]}, (0.0, 0)),
    ],
)
def test_time_and_cycle(hand_over, values, attributes, expected):
    def fill(step):
        step.attributes.update(attributes)
        for name, value in values.items():
            step[name] = value

    assert time_and_cycle(hand_over(fill)) == expected
