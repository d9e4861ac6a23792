"""A mesh with every kind of entity goes through files, a pool, parts and back, and stays the same."""

import threading

import numpy as np
import penstock
import pytest
from mesh_models import everything, values_of, without_faces, write
from penstock import mesh

from .test_mesh import leaves, pytestmark, vtk_reader  # noqa: F401


@pytest.fixture
def first(tmp_path):
    write(tmp_path / "first.e", *everything())
    return tmp_path / "first.e"


def report(a, b):
    with mesh.open(a) if not isinstance(a, mesh.Region) else a as one, mesh.open(b) as two:
        return mesh.compare(one, two, mesh.Options(records=True))


def test_what_was_written_is_there(first):
    model, arrays = everything()
    with mesh.open(first) as region:
        assert region.model == model
        for (kind, name, field), values in arrays.items():
            np.testing.assert_array_equal(region[(kind, name), field], values)
        for state in region:
            for entity in model.entities:
                for its in entity.fields:
                    if its.in_state:
                        np.testing.assert_array_equal(
                            state[(entity.type, entity.name), its.name], values_of(entity, its, state.number)
                        )


@pytest.mark.parametrize("format", ["cdf5", "netcdf4"])
def test_through_other_formats(first, tmp_path, format):
    mesh.copy(mesh.open(first), tmp_path / "second.e", format=format)
    result = report(first, tmp_path / "second.e")
    assert result.same and result.states == 3, result.differences
    with mesh.open(first) as a, mesh.open(tmp_path / "second.e") as b:
        assert a.model == b.model


def test_an_attribute_that_is_not_a_number_equals_itself(first, tmp_path):
    def add(edit):
        region = edit.model.find("region")
        region.fields.append(mesh.Field("netcdf/probe", role="mesh", count=3))
        region.properties |= {"netcdf/probe": "float64/x=3", "netcdf/probe/missing_value": float("nan")}
        edit["region", "netcdf/probe"] = np.arange(3.0)

    mesh.modify(first, add)
    with mesh.open(first) as a, mesh.open(first) as b:
        assert a.model == b.model
    result = report(first, first)
    assert result.same, result.differences


@pytest.mark.parametrize("parts", [2, 4])
def test_through_parts(first, tmp_path, parts):
    mesh.copy(mesh.open(first), tmp_path / "parts.e", parts=parts, database="nemesis")
    mesh.copy(mesh.open(tmp_path / "parts.e"), tmp_path / "joined.e")
    result = report(first, tmp_path / "joined.e")
    assert result.same and result.states == 3, result.differences
    with mesh.open(first) as a, mesh.open(tmp_path / "joined.e") as b:
        assert a.model == b.model  # and nothing is left of what spreading added
        for entity in a.model.entities:
            for its in entity.fields:
                if not its.in_state:
                    key = (entity.type, entity.name)
                    np.testing.assert_array_equal(a.read(key, its.name), b.read(key, its.name))


@pytest.mark.parametrize("servers", [1, 2])
def test_through_a_pool(first, tmp_path, pool_servers, monkeypatch, servers):
    pool = pool_servers(servers)
    monkeypatch.setenv("PENSTOCK_STREAM_RESULTS", "pool")
    context = penstock.Context(directory=pool.directory, listen="127.0.0.1")
    mesh.copy(mesh.open(first), "results", database="stream", context=context)
    with mesh.open("results", context=context) as region:  # the writer has gone
        mesh.copy(region, tmp_path / "second.e")
    result = report(first, tmp_path / "second.e")
    assert result.same and result.states == 3, result.differences
    with mesh.open("results", context=context) as region:
        mesh.copy(region, tmp_path / "parts.e", parts=4, database="nemesis")
    assert report(first, tmp_path / "parts.e").same
    context._shut_down()


def test_through_a_stream_while_it_is_written(first, tmp_path, context):
    thread = threading.Thread(
        target=lambda: mesh.copy(mesh.open(first), "results", parts=2, database="stream", context=context)
    )
    thread.start()
    with mesh.open("results", context=context) as region:
        result = mesh.compare(region, mesh.open(first), mesh.Options(records=True))
    thread.join()
    assert result.same and result.states == 3, result.differences


@pytest.mark.parametrize("kind", ["ioss", "exodus"])
@pytest.mark.parametrize("integers", [32, 64])
def test_vtk_reads_the_same(tmp_path, kind, integers):
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    from vtkmodules.util.numpy_support import vtk_to_numpy

    model, arrays = without_faces()
    write(tmp_path / "all.e", model, arrays)
    mesh.copy(mesh.open(tmp_path / "all.e"), tmp_path / "file.e", choice=mesh.Choice(integers=integers))
    found = leaves(vtk_reader(kind, tmp_path / "file.e"))  # at the third state
    for name in ("lower", "upper"):
        entity = model.find(name)
        its = [leaf for leaf in found if leaf.GetNumberOfCells() == entity.count]
        expected = values_of(entity, entity.find("pressure"), 2)
        assert any(np.array_equal(vtk_to_numpy(leaf.GetCellData().GetArray("pressure")), expected) for leaf in its), (
            name
        )
    if kind == "ioss":
        from vtkmodules.vtkIOIOSS import vtkIOSSReader

        reader = vtkIOSSReader()
        reader.SetFileName(str(tmp_path / "file.e"))
        reader.UpdateInformation()
        for getter, names in (
            ("ElementBlock", ["lower", "upper"]),
            ("EdgeBlock", ["edges"]),
            ("NodeSet", ["bottom"]),
            ("EdgeSet", ["some_edges"]),
            ("ElementSet", ["some_elements"]),
            ("SideSet", ["loaded"]),
        ):
            chosen = getattr(reader, f"Get{getter}Selection")()
            assert [chosen.GetArrayName(i) for i in range(chosen.GetNumberOfArrays())] == names
        assert reader.GetAssembly().FindFirstNodeWithName("solids") >= 0
