"""Filters against analytic results, and against the whole mesh when it is cut into parts over ranks."""

import math
from itertools import pairwise

import numpy as np
import penstock
import pytest

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

from cut_meshes import CONVERT, SHAPE, coordinates, divided, fields_of, flat, link, run_on, whole
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.analysis import parts as helpers
from penstock.analysis.chain import Survey
from penstock.analysis.filters import Table, apply_chain
from ranks import on_ranks
from vtkmodules.util.numpy_support import vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkPolyData
from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D, vtkMassProperties, vtkTriangleFilter


def triangles(datasets, *names, digits=4):
    """The triangles of surfaces, or lines, as a sorted list of the rounded coordinates and fields of their corners."""
    rows = []
    for data in datasets:
        columns = [vtk_to_numpy(data.GetPoints().GetData()).astype(float)]
        columns += [vtk_to_numpy(data.GetPointData().GetArray(n)).reshape(data.GetNumberOfPoints(), -1) for n in names]
        table = np.round(np.concatenate(columns, axis=1), digits) + 0.0
        for number in range(data.GetNumberOfCells()):
            ids = data.GetCell(number).GetPointIds()
            rows.append(tuple(sorted(map(tuple, table[[ids.GetId(n) for n in range(ids.GetNumberOfIds())]].tolist()))))
    return sorted(rows)


def area(datasets):
    total = 0.0
    for data in datasets:
        mass = vtkMassProperties()
        triangulate = vtkTriangleFilter()
        triangulate.SetInputData(data)
        mass.SetInputConnection(triangulate.GetOutputPort())
        total += mass.GetSurfaceArea()
    return total


def volume(datasets):
    from vtkmodules.vtkFiltersVerdict import vtkCellSizeFilter

    return sum(
        vtk_to_numpy(helpers.run(vtkCellSizeFilter(), data).GetCellData().GetArray("Volume")).sum() for data in datasets
    )


# -------------------------------------------------------------------------------------------------------------- contour


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("kind", CONVERT)
def test_contours_of_parts_are_those_of_the_whole(size, kind):
    fields = fields_of(size)
    contour = link("contour", field="U", values=[0.3, -0.5])
    expected = triangles(apply_chain([contour], [whole(fields, kind=kind)]), "U", "V", "Normals", digits=3)
    assert len(expected) > 1000
    results = run_on(divided(fields, size, 1, kind=kind, per_rank=2 if size < 3 else 1), contour)
    assert triangles(flat(results), "U", "V", "Normals", digits=3) == expected
    assert not any(part.GetPointData().HasArray("vtkGhostType") for part in flat(results))


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3, 4]), st.integers(1, 3), st.floats(-2, 2), st.booleans())
@settings(deadline=None, max_examples=25)
def test_contours_of_any_partition(seed, size, ghosts, value, of_cells):
    shape = tuple(np.random.default_rng(seed).integers((6, 2, 2), (13, 9, 9)))
    fields = fields_of(seed, shape)
    contour = link("contour", field="C" if of_cells else "U", value=value)
    expected = triangles(apply_chain([contour], [whole(fields, shape)]), "V", digits=3)
    results = run_on(divided(fields, size, ghosts, shape), contour)
    assert triangles(flat(results), "V", digits=3) == expected


def test_a_sphere():
    shape = (41, 41, 41)
    x, y, z = coordinates(shape, (-1, -1, -1), (0.05, 0.05, 0.05))
    radius = np.sqrt(x * x + y * y + z * z)
    parts = divided({"r": radius}, 4, 1, shape, origin=(-1, -1, -1), spacing=(0.05, 0.05, 0.05))
    surface = flat(run_on(parts, link("contour", field="r", value=0.7)))
    assert area(surface) == pytest.approx(4 * math.pi * 0.49, rel=2e-3)
    for data in surface:
        points, normals = (vtk_to_numpy(a).astype(float) for a in
                           (data.GetPoints().GetData(), data.GetPointData().GetNormals()))  # fmt: skip
        assert abs(normals + points / np.linalg.norm(points, axis=1, keepdims=True)).max() < 0.01
    shells = run_on(parts, link("contour", field="r", count=2))
    radii = [np.linalg.norm(vtk_to_numpy(d.GetPoints().GetData()), axis=1) for d in flat(shells)]
    thirds = np.array([1, 2]) / 3 * math.sqrt(3)
    assert abs(np.concatenate(radii)[:, None] - thirds).min(axis=1).max() < 2e-3


@pytest.mark.parametrize("kind", ("image", "unstructured"))
def test_contours_of_vectors_are_those_of_their_length(kind):
    vectors = np.random.default_rng(0).normal(size=(*SHAPE[::-1], 3))
    length = np.linalg.norm(vectors, axis=-1)
    of_vectors, of_length = whole({"W": vectors}, kind=kind), whole({"W": length}, kind=kind)
    contour = link("contour", field="W")
    expected = triangles(apply_chain([contour], [of_length]), "W", "Normals")
    assert triangles(apply_chain([contour], [of_vectors]), "W", "Normals") == expected
    assert helpers.values(of_vectors, "W").shape[1] == 3


def test_normals_are_those_of_vtk():
    image = whole({"U": fields_of()["U"]})
    (ours,) = apply_chain([link("contour", field="U", value=0.1)], [image])
    edges = vtkFlyingEdges3D()
    edges.SetInputArrayToProcess(0, 0, 0, 0, "U")
    edges.SetValue(0, 0.1)
    theirs = helpers.run(edges, image)
    assert triangles([ours], "Normals", digits=3) == triangles([theirs], "Normals", digits=3)


@pytest.mark.parametrize(("shape", "cells"), [((9, 8, 1), "line"), ((1, 8, 9), "line"), ((9, 1, 1), "vertex")])
def test_contours_of_flat_meshes(shape, cells):
    fields = fields_of(3, shape)
    (result,) = apply_chain([link("contour", field="U")], [whole(fields, shape)])
    assert result.GetNumberOfCells() > 0
    assert {result.GetCell(n).GetNumberOfPoints() for n in range(result.GetNumberOfCells())} == {
        2 if cells == "line" else 1
    }
    values = vtk_to_numpy(result.GetPointData().GetArray("U"))
    np.testing.assert_allclose(values, (fields["U"].min() + fields["U"].max()) / 2, atol=1e-6)


# --------------------------------------------------------------------------------------- slice, threshold, clip


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("kind", CONVERT)
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 6 * 10), ({"normal": "x"}, 10 * 2), ({"normal": "-y", "at": -2.0}, 6 * 2), ({"normal": "y", "at": 12}, 12),
        ({"normal": "x", "at": -1.0}, 20), ({"normal": [0, 0, 2], "origin": [0, 0, 0.5]}, 60),
        ({"normal": [1, 1, 0], "origin": [0, 7, 0]}, math.hypot(6, 6) * 2), ({"normal": "z", "at": 2.6}, 0),
    ],
)  # fmt: skip
def test_slices_are_whole_and_counted_once(size, kind, options, expected):
    x, y, z = coordinates()
    parts = divided({"f": x + 2 * y + 3 * z}, size, 1, kind=kind)
    planes = flat(run_on(parts, link("slice", **options)))
    assert area(planes) == pytest.approx(expected, rel=1e-5)
    for plane in planes:
        points = vtk_to_numpy(plane.GetPoints().GetData()).astype(float)
        np.testing.assert_allclose(helpers.values(plane, "f"), points @ (1, 2, 3), atol=1e-4)


def test_a_slice_in_a_flat_mesh_is_the_mesh():
    part = whole(fields_of(shape=(5, 4, 1)), (5, 4, 1))
    for options in ({}, {"at": 0.5}, {"normal": "-z"}):
        (result,) = apply_chain([link("slice", **options)], [part])
        assert result.GetNumberOfCells() == 12
    assert apply_chain([link("slice", at=0.6)], [part]) == []
    (line,) = apply_chain([link("slice", normal="x")], [part])
    assert line.GetNumberOfCells() == 3


@pytest.mark.parametrize("size", (1, 3, 4))
def test_threshold_is_numpys(size):
    fields = fields_of()
    fields["W"] = np.random.default_rng(1).normal(size=(*fields["C"].shape, 3))
    parts = divided(fields, size, 2)
    nodes = [fields["U"][i : i + 8, j : j + 10, k : k + 12] for i in (0, 1) for j in (0, 1) for k in (0, 1)]
    for options, keep in (
        ({"field": "C", "min": 0.2}, fields["C"] >= 0.2),
        ({"field": "C", "max": -0.1, "min": -1}, (fields["C"] <= -0.1) & (fields["C"] >= -1)),
        ({"field": "U", "max": 1.0}, np.max(nodes, axis=0) <= 1.0),
        ({"field": "W", "min": 2}, np.linalg.norm(fields["W"], axis=-1) >= 2),
        ({"field": "C", "min": 99}, fields["C"] > 99),
    ):
        result = flat(run_on(parts, link("threshold", **options)))
        kept = np.concatenate([helpers.values(part, "C") for part in result]) if result else np.zeros(0)
        np.testing.assert_array_equal(np.sort(kept), np.sort(fields["C"][keep]))


@pytest.mark.parametrize("size", (1, 2, 4))
@pytest.mark.parametrize("kind", ("image", "unstructured"))
@pytest.mark.parametrize(
    ("options", "expected", "tolerance"),
    [
        ({"plane": "x"}, 60, 1e-5), ({"plane": {"normal": "-x", "origin": [1, 0, 0]}}, 40, 1e-5),
        ({"sphere": 0.9}, 4 / 3 * math.pi * 0.9**3, 0.04), ({"sphere": 0.9, "keep": "outside"}, 116.95, 0.01),
        ({"box": {"min": [-1, 3, 1], "max": [1, 5, 2]}}, 4, 0.07),
    ],
)  # fmt: skip
def test_clip_keeps_its_volume(size, kind, options, expected, tolerance):
    fine = {"shape": (37, 61, 13), "spacing": (1 / 6, 1 / 6, 1 / 6)}
    parts = divided(fields_of(shape=fine["shape"]), size, 1, kind=kind, **fine)
    result = flat(run_on(parts, link("clip", **options)))
    assert volume(result) == pytest.approx(expected, rel=tolerance)


def test_a_clipped_surface_stays_one():
    filters = [link("contour", field="U", value=0), link("clip", plane="z")]
    (surface,) = apply_chain(filters, [whole(fields_of())])
    assert isinstance(surface, vtkPolyData) and surface.GetPointData().GetNormals() is not None
    assert surface.GetBounds()[5] <= 1.5


# ------------------------------------------------------------------------------------- probe, resample, histogram, ...


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize("ghosts", (0, 1))
def test_probe_of_a_linear_field_is_exact(size, ghosts):
    x, y, z = coordinates()
    fields = {"f": x + 2 * y + 3 * z, "W": np.stack([x, y, z], axis=-1), "C": fields_of()["C"]}
    parts = divided(fields, size, ghosts, per_rank=2)
    tables = run_on(parts, link("probe", line={"from": [-4, 2, 0.5], "to": [3, 12, 2.5], "n": 15}))
    for table in tables:
        assert isinstance(table, Table) and len(table) == 15
        assert list(table.columns) == ["x", "y", "z", "distance", "C", "W.x", "W.y", "W.z", "f"]
        inside = table.columns["x"] >= -3
        where = np.stack([table.columns[axis] for axis in "xyz"])
        np.testing.assert_allclose(table.columns["f"][inside], (np.array([1, 2, 3]) @ where)[inside])
        np.testing.assert_allclose(table.columns["W.y"][inside], where[1][inside])
        assert np.isnan(table.columns["f"][~inside]).all() and (~inside).sum() == 2
        np.testing.assert_allclose(table.columns["distance"], np.linalg.norm(where.T - (-4, 2, 0.5), axis=1))
        np.testing.assert_array_equal(table.columns["C"], tables[0].columns["C"])
    tables = run_on(parts, link("probe", points=[[0, 5, 1], [9, 9, 9]], fields=["f"]))
    for table in tables:
        assert list(table.columns) == ["x", "y", "z", "f"]
        np.testing.assert_allclose(table.columns["f"], [13, math.nan])


@pytest.mark.parametrize("size", (1, 2, 4))
def test_resample_gives_one_grid(size):
    x, y, z = coordinates()
    parts = divided({"f": x + 2 * y + 3 * z}, size, 1)
    grids = flat(run_on(parts, link("resample", size=[7, 6, 5], bounds=[[-2, 2], [2, 12], [0, 2]])))
    gx, gy, gz = coordinates((7, 6, 5), (-2, 2, 0), (4 / 6, 2, 0.5))
    for rank, grid in enumerate(grids):
        values = helpers.values(grid, "f").reshape(5, 6, 7)
        np.testing.assert_allclose(values[1:], (gx + 2 * gy + 3 * gz)[1:])
        assert np.isnan(values[0]).all()  # below the mesh
        cells = helpers.owned(grid)
        assert (cells.GetNumberOfCells() if cells else 0) == (0 if rank else 6 * 5 * 3)
        assert len(helpers.owned_values(grid, "f")) == (0 if rank else 7 * 6 * 4)
    chain = [link("resample", size=12, fields=["f"]), link("contour", field="f", value=15)]
    surface = flat(run_on(parts, *chain))
    assert len(surface) == 1 and area(surface) > 1
    flats = apply_chain([link("resample", size=[4, 4, 4])], [whole(fields_of(shape=(5, 4, 1)), (5, 4, 1))])
    assert flats[0].GetDimensions() == (4, 4, 1) and not np.isnan(helpers.values(flats[0], "U")).any()


@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3, 4]), st.integers(1, 40), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=40)
def test_histogram_is_numpys(seed, size, bins, of_cells, weighted):
    fields = fields_of(seed)
    fields["U"].flat[:5] = math.nan, math.inf, -math.inf, 0, 0
    name = "C" if of_cells else "U"
    options = {"weights": name} if weighted else {}
    parts = divided(fields, size, 1 + seed % 2)
    values = fields[name][np.isfinite(fields[name])]
    for more in ({}, {"range": [-1.0, 0.5]}):
        counts, edges = np.histogram(values, bins, more.get("range"), weights=values if weighted else None)
        for table in run_on(parts, link("histogram", field=name, bins=bins, **options, **more)):
            np.testing.assert_allclose(table.columns["count"], counts, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(table.columns["low"], edges[:-1])
            np.testing.assert_allclose(table.columns["high"], edges[1:])


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_statistics_are_numpys(size):
    fields = fields_of()
    fields['it\'s "odd" (é)'] = fields["V"] * 2
    parts = divided(fields, size, 2)
    tables = run_on(parts, link("statistics"))
    for table in tables:
        assert list(table.columns) == ["field", "count", "min", "max", "mean", "std", "sum"]
        assert table.columns["field"].tolist() == sorted(fields)
        for row, name in enumerate(sorted(fields)):
            values = fields[name]
            wanted = [values.size, values.min(), values.max(), values.mean(), values.std(), values.sum()]
            np.testing.assert_allclose([table.columns[k][row] for k in list(table.columns)[1:]], wanted, atol=1e-9)
    for table in run_on(parts, link("threshold", field="C", min=0.5), link("statistics", fields=["C"])):
        kept = fields["C"][fields["C"] >= 0.5]
        assert table.columns["count"] == len(kept)
        np.testing.assert_allclose(table.columns["mean"], kept.mean())


# ---------------------------------------------------------------------------------------------------------- streamlines


def rotation(shape=(25, 25, 3)):
    x, y, z = coordinates(shape, (-1.2, -1.2, -0.1), (0.1, 0.1, 0.1))
    return {"u": np.stack([-y, x, 0 * z], axis=-1), "r": np.hypot(x, y)}


def paths(results):
    """The points of each seed's lines, and the time there, together over all ranks."""
    found = {}
    for data in flat(results):
        points = vtk_to_numpy(data.GetPoints().GetData())
        time, seeds = helpers.values(data, "IntegrationTime"), helpers.values(data, "SeedIds")
        for number, seed in enumerate(seeds.tolist()):
            ids = data.GetCell(number).GetPointIds()
            chosen = [ids.GetId(n) for n in range(ids.GetNumberOfIds())]
            found.setdefault(seed, []).append((points[chosen], time[chosen]))
    return found


@pytest.mark.parametrize("size", (1, 2, 3, 4))
@pytest.mark.parametrize(("ghosts", "tolerance"), [(1, 2e-3), (2, 2e-3), (0, 2e-2)])
@pytest.mark.parametrize("kind", ("image", "unstructured"))
def test_a_rotation_stays_on_its_circle(size, ghosts, tolerance, kind):
    shape, place = (25, 25, 3), {"origin": (-1.2, -1.2, -0.1), "spacing": (0.1, 0.1, 0.1)}
    parts = divided(rotation(), size, ghosts, shape, kind, per_rank=2, **place)
    seeds = [[0.33, 0, 0], [0.5, 0.01, 0], [0, 0.8, 0.05]]
    length = 2 * math.pi * 0.8
    results = run_on(parts, link("streamlines", field="u", seeds={"points": seeds}, direction="forward",
                                 max_length=length))  # fmt: skip
    found = paths(results)
    assert set(found) == {0, 1, 2}
    for seed, pieces in found.items():
        radius = math.hypot(*seeds[seed][:2])
        for points, _ in pieces:
            assert abs(np.hypot(points[:, 0], points[:, 1]) - radius).max() < tolerance
            assert abs(points[:, 2] - seeds[seed][2]).max() < 1e-6
        pieces.sort(key=lambda p: p[1][0])
        walked = sum(np.linalg.norm(np.diff(points, axis=0), axis=1).sum() for points, _ in pieces)
        assert length - 0.15 < walked < length + 0.05
        for (before, _), (after, _) in pairwise(pieces):
            np.testing.assert_allclose(before[-1], after[0], atol=1e-6)  # no gap
    for part in flat(results):
        points = vtk_to_numpy(part.GetPoints().GetData())
        assert abs(helpers.values(part, "r") - np.hypot(points[:, 0], points[:, 1])).max() < 0.02


def test_streamlines_end():
    fields = {"u": np.tile([1.0, 0.0, 0.0], (*SHAPE[::-1], 1))}
    parts = divided(fields, 3, 1)
    seeds = {"line": {"from": [0.1, 3, 1], "to": [0.1, 11, 1], "n": 4}}

    def extent(**options):
        found = paths(run_on(parts, link("streamlines", field="u", seeds=seeds, **options)))
        assert set(found) == {0, 1, 2, 3}
        xs = np.concatenate([points[:, 0] for points, _ in found[2]])
        return xs.min(), xs.max()

    low, high = extent()
    assert -3 <= low < -2.6 and 2.6 < high <= 3
    low, high = extent(direction="backward")
    assert -3 <= low < -2.6 and high == pytest.approx(0.1)
    low, high = extent(direction="forward", max_length=1.0)
    assert low == pytest.approx(0.1) and 0.7 < high <= 1.1 + 1e-5
    low, high = extent(direction="forward", max_steps=1)
    assert high < 1.0
    assert flat(run_on(parts, link("streamlines", field="u", seeds={"points": [[50, 0, 0]]}))) == []
    still = divided({"u": np.zeros((*SHAPE[::-1], 3))}, 2, 1)
    assert flat(run_on(still, link("streamlines", field="u"))) == []


@pytest.mark.parametrize("size", (1, 3))
def test_streamlines_of_what_is_no_vector(size):
    parts = [[] for _ in range(size)]
    parts[-1] = [whole(fields_of())]

    def work(cohort):
        with pytest.raises(penstock.InvalidArgument, match="'U' is no field of vectors"):
            apply_chain([link("streamlines", field="U")], parts[cohort.rank], cohort)

    on_ranks(size, work)


def test_seeds():
    survey = Survey(bounds=(0, 4, 0, 4, 0, 4))
    ball = link("streamlines", field="u", seeds={"sphere": {"radius": 1, "n": 400}}).seeds.all(survey)
    away = np.linalg.norm(ball - 2, axis=1)
    assert away.max() <= 1 and (away < 0.5).mean() == pytest.approx(1 / 8, abs=0.02)
    assert abs(ball.mean(axis=0) - 2).max() < 0.05
    flat_survey = Survey(bounds=(0, 4, 0, 4, 1, 1))
    assert (link("streamlines", field="u").seeds.all(flat_survey)[:, 2] == 1).all()
