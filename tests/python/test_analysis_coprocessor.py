"""Meshes that a coprocessor describes, as an analysis reads them: each kind, with ghosts and ids."""

import threading

import numpy as np
import penstock
import pytest
from ranks import on_ranks

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

from penstock.analysis import describe, to_vtk

TIMEOUT_S = 30.0
HEX = np.array([[0, 1, 2, 3, 4, 5, 6, 7]])
CUBE = np.array([[x ^ y, y, z] for z in (0, 1) for y in (0, 1) for x in (0, 1)], float)  # in the order of hex8
LINE = np.linspace(0.0, 1.0, 4)


def uniform(c):
    c.mesh("m", "uniform", shape=(4, 5), axes="yx", ghosts="ghost")
    return {"f": ("node", np.arange(20.0).reshape(4, 5)), "ghost": ("element", np.zeros((3, 4), np.uint8))}, {}


def rectilinear(c):
    c.mesh("m", "rectilinear", shape=(4, 4), axes="yx", coordinates=["ys", "xs"])
    return {"f": ("node", np.arange(16.0).reshape(4, 4))}, {"xs": LINE, "ys": LINE**2}


def curvilinear(c):
    c.mesh("m", "curvilinear", shape=(4, 4), axes="yx", coordinates="xyz")
    y, x = np.meshgrid(LINE, LINE, indexing="ij")
    return {"f": ("node", x + y)}, {"xyz": np.stack([x, y, 0 * x], axis=-1)}


def unstructured(c):
    block = {"name": "b", "id": 3, "topology": "hex8", "connectivity": "nodes"}
    c.mesh("m", "unstructured", coordinates="xyz", blocks=[block], ghosts="ghost", node_ids="ni", element_ids="ei")
    structure = {"xyz": CUBE, "nodes": HEX, "ni": np.arange(8), "ei": np.array([7])}
    return {"f": ("node", np.arange(8.0)), "ghost": ("element", np.zeros(1, np.uint8))}, structure


def mixed(c):
    block = {"name": "b", "topology": "mixed", "connectivity": "c", "offsets": "o", "topologies": "t"}
    c.mesh("m", "unstructured", coordinates="xyz", blocks=[block])
    kinds = {"c": np.array([0, 1, 2, 0, 1, 2, 4]), "o": np.array([0, 3, 7]), "t": np.array([5, 10], np.uint8)}
    return {"f": ("element", np.arange(2.0))}, {"xyz": CUBE, **kinds}


def particles(c):
    c.mesh("m", "particles", coordinates="xyz", element_ids="ei", ghosts="ghost")
    fields = {"f": ("element", np.arange(8.0)), "ghost": ("element", np.zeros(8, np.uint8))}
    return fields, {"xyz": CUBE, "ei": np.arange(8)}


def amr(c):
    c.mesh("m", "amr", cells=(4, 4, 4), axes="zyx", ghost_layers=1, levels="l", indices="i")
    structure = {"l": np.zeros(2, np.int32), "i": np.array([[0, 0, 0], [1, 0, 0]], np.int32)}
    return {"f": ("element", np.arange(128.0).reshape(2, 4, 4, 4))}, structure


KINDS = [uniform, rectilinear, curvilinear, unstructured, mixed, particles, amr]


@pytest.mark.parametrize("kind", KINDS)
def test_an_analysis_reads_what_a_coprocessor_describes(kind, tmp_path):
    context = penstock.Context(directory=str(tmp_path), listen="127.0.0.1")
    seen = []

    def read():
        with context.open("channel", timeout=TIMEOUT_S) as stream:
            for step in stream:
                description = describe(step)["m"]
                mesh = description.read(step, description.parts(1)[0])
                seen.append((mesh, description.ghosts is not None, to_vtk(mesh).GetNumberOfCells()))

    reader = threading.Thread(target=read)
    reader.start()
    with penstock.Coprocessor("channel", context=context, timeout=TIMEOUT_S) as c:
        fields, structure = kind(c)
        for name, (association, array) in fields.items():
            c.field("m", name, array.dtype, association=association)
        for name, array in structure.items():
            c.structure("m", name, array.dtype)
        with c.request(0, 0.0) as step:
            for name, array in ({name: array for name, (_, array) in fields.items()} | structure).items():
                step.put(name, array)
    reader.join(TIMEOUT_S)
    ((mesh, ghosts, cells),) = seen
    assert mesh.type == {"mixed": "unstructured"}.get(kind.__name__, kind.__name__)
    np.testing.assert_array_equal(np.asarray(mesh.fields["f"].values).reshape(-1), fields["f"][1].reshape(-1))
    assert cells > 0 and ghosts == ("ghost" in fields)
    assert ("ei" in structure) == ("element" in mesh.ids)


def test_splits_of_ranks(tmp_path):
    """Each rank puts the number of its first block, into an array of one element for each rank."""
    context = penstock.Context(directory=str(tmp_path), listen="127.0.0.1")
    splits = np.array([0, 3, 2**64 - 1], np.uint64)

    def simulate(cohort):
        blocks = [2, 1, 0][cohort.rank]
        with penstock.Coprocessor("channel", comm=cohort, context=context, timeout=TIMEOUT_S) as c:
            c.mesh("m", "amr", cells=(2, 2, 2), levels="l", indices="i", splits="s", depth=1)
            for name, dtype in {"l": np.int32, "i": np.int32, "s": np.uint64}.items():
                c.structure("m", name, dtype)
            with c.request(0, 0.0) as step:
                step.put("l", np.zeros(blocks, np.int32))
                step.put("i", np.zeros((blocks, 3), np.int32))
                step.put("s", splits[cohort.rank : cohort.rank + 1], start=(cohort.rank,))

    ranks = threading.Thread(target=on_ranks, args=(3, simulate))
    ranks.start()
    with context.open("channel", timeout=TIMEOUT_S) as stream, stream.step() as step:
        found = describe(step)["m"]
        assert (found.splits, found.depth) == ("s", 1)
        np.testing.assert_array_equal(step["s"][...], splits)
    ranks.join(TIMEOUT_S)


@pytest.mark.parametrize(
    ("describe_it", "why"),
    [
        (lambda c: c.mesh("m", "unstructured", coordinates="p",
                          blocks=[{"name": "b", "topology": "hex9", "connectivity": "c"}]), "hex9"),
        (lambda c: c.mesh("m", "particles", coordinates="p", node_ids="ids"), "ids are of elements"),
        (lambda c: (c.mesh("m", "uniform", shape=(2,)), c.field("m", "z", np.complex128)), "real numbers"),
    ],
)  # fmt: skip
def test_what_no_analysis_could_read_is_refused(describe_it, why, tmp_path):
    context = penstock.Context(directory=str(tmp_path), listen="127.0.0.1")
    with penstock.Coprocessor("channel", context=context, rendezvous_readers=0) as c:
        with pytest.raises(penstock.InvalidArgument, match=why):
            describe_it(c)
