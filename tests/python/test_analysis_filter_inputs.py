"""What filters are given: parts with ghosts, meshes without cells or with one, unknown fields, wrong options."""

import math

import numpy as np
import penstock
import pytest

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

from cut_meshes import CELL, CONVERT, POINT, SHAPE, divided, fields_of, flat, link, run_on, whole
from penstock.analysis import parts as helpers
from penstock.analysis.chain import take_survey
from penstock.analysis.filters import Table, apply_chain
from penstock.analysis.schema import PipelineError
from ranks import on_ranks
from vtkmodules.vtkCommonDataModel import vtkUnstructuredGrid

# ----------------------------------------------------------------------------------------------------- parts of meshes


@pytest.mark.parametrize("kind", CONVERT)
@pytest.mark.parametrize("shape", [SHAPE, (13, 11, 1), (13, 1, 1), (1, 11, 9), (1, 1, 9)])
def test_owned_cells_and_values(kind, shape):
    fields = fields_of(shape=shape)
    made = flat(divided(fields, 3, 2, shape, kind)) if shape[0] > 1 else [whole(fields, shape, kind=kind)]
    for name in fields:
        together = np.concatenate([helpers.owned_values(part, name) for part in made])
        np.testing.assert_array_equal(np.sort(together), np.sort(fields[name].ravel()))
    own = [helpers.owned(part) for part in made]
    assert sum(part.GetNumberOfCells() for part in own) == fields["C"].size
    assert [type(part) for part in own] == [type(part) for part in made]
    together = np.concatenate([helpers.values(part, "C") for part in own])
    np.testing.assert_array_equal(np.sort(together), np.sort(fields["C"].ravel()))
    assert not any(part.GetAttributes(which).HasArray("vtkGhostType") for part in own for which in (POINT, CELL))
    assert all(part.GetCellData().HasArray("vtkGhostType") for part in made if shape[0] > 1)  # the parts are untouched


@pytest.mark.parametrize("kind", CONVERT)
def test_hidden_cells_that_are_no_box(kind):
    part = whole(fields_of(), kind=kind)
    marks = np.zeros(part.GetNumberOfCells(), np.uint8)
    marks[::7], marks[1::7], marks[2::7] = 32, 1, 8
    helpers.set_array(part, CELL, "vtkGhostType", marks)
    own = helpers.owned(part)
    np.testing.assert_array_equal(helpers.values(own, "C"), helpers.values(part, "C")[marks == 0])
    np.testing.assert_array_equal(helpers.owned_values(part, "C"), helpers.values(part, "C")[marks == 0])
    helpers.set_array(part, CELL, "vtkGhostType", np.ones_like(marks))
    assert helpers.owned(part) is None
    assert len(helpers.owned_values(part, "C")) == 0 == len(helpers.owned_values(part, "U"))
    assert helpers.owned(vtkUnstructuredGrid()) is None


@pytest.mark.parametrize("size", (1, 2, 3, 4))
def test_survey(size):
    fields = fields_of()
    fields["W"] = np.random.default_rng(1).normal(size=(*SHAPE[::-1], 3))
    fields["U"][0, 0, 0], fields["U"][1, 1, 1] = math.nan, math.inf
    parts = divided(fields, size, 2)
    filters = [link("contour", field="W"), link("histogram", field="U"), link("contour", field="C", count=3)]
    surveys = on_ranks(size, lambda cohort: take_survey(filters, parts[cohort.rank], cohort))
    finite = fields["U"][np.isfinite(fields["U"])]
    for survey in surveys:
        np.testing.assert_allclose(survey.bounds, (-3, 3, 2, 12, 0.5, 2.5))
        length = np.linalg.norm(fields["W"], axis=-1)
        expected = {"W": length, "U": finite, "C": fields["C"]}
        assert survey.ranges == {name: pytest.approx((a.min(), a.max())) for name, a in expected.items()}
        assert survey.names == {"U", "V", "W", "C"}


@pytest.mark.parametrize("size", (1, 2, 4))
def test_an_unknown_field_is_an_error_on_every_rank(size):
    parts = [[] for _ in range(size)]
    parts[-1] = [whole({"rho": fields_of()["U"]})]

    def work(cohort):
        with pytest.raises(penstock.NotFound, match="no field 'rh'; did you mean 'rho'"):
            apply_chain([link("contour", field="rh", value=0)], parts[cohort.rank], cohort)

    on_ranks(size, work)


# ------------------------------------------------------------------------------------------------------------- nothing


ALL = [
    link("slice"), link("contour", field="U"), link("threshold", field="U", min=0), link("clip", plane="x"),
    link("clip", sphere=1), link("probe", points=[[0, 0, 0]]), link("streamlines", field="W"), link("resample", size=4),
    link("histogram", field="U", bins=4), link("histogram", field="U", weights="U"), link("statistics"),
]  # fmt: skip


@pytest.mark.parametrize("one", ALL, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("size", (1, 3))
def test_a_mesh_without_cells(one, size):
    results = run_on([[vtkUnstructuredGrid()] for _ in range(size)], one)
    for result in results:
        assert isinstance(result, Table) or sum(part.GetNumberOfCells() for part in result) == 0
    results = run_on([[] for _ in range(size)], one)
    for result in results:
        assert isinstance(result, Table) == one.makes_table
        if isinstance(result, Table) and "count" in result.columns:
            assert not result.columns["count"].any()


@pytest.mark.parametrize("one", ALL, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 2, 1), (2, 1, 1)])
def test_one_cell_on_one_of_three_ranks(one, shape):
    fields = fields_of(shape=shape) | {"W": np.ones((*shape[::-1], 3))}
    results = run_on([[], [whole(fields, shape)], []], one)
    for result in results:
        assert isinstance(result, Table) == one.makes_table
    if one.makes_table:
        for result in results:
            for name, column in result.columns.items():
                np.testing.assert_array_equal(column, results[0].columns[name])
                assert len(column) == len(result)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("slice", {"normal": "w"}, "x, y, z"), ("slice", {"normal": [0, 0, 0]}, "not .0"), ("slice", {"a": 1}, "'at'"),
        ("slice", {"at": 1, "origin": [0, 0, 0]}, "at most one"), ("slice", {"at": "1"}, "number is needed"),
        ("contour", {}, "'field' is missing"), ("contour", {"field": "U", "value": 1, "count": 2}, "at most one"),
        ("contour", {"field": "U", "values": []}, "1 to 100"), ("contour", {"field": "U", "value": True}, "number"),
        ("contour", {"field": "U", "value": math.nan}, "number"), ("contour", {"field": 3}, "text"),
        ("threshold", {"field": "U"}, "min or max"), ("threshold", {"field": "U", "min": 2, "max": 1}, "above"),
        ("clip", {}, "one of plane, sphere, box"), ("clip", {"sphere": -1}, "more than 0"),
        ("clip", {"sphere": 1, "plane": "x"}, "not plane and sphere"), ("clip", {"sphere": 1, "keep": "in"}, "inside"),
        ("clip", {"box": {"min": [0, 0, 0], "max": [1, 0, 1]}}, "below max"), ("probe", {}, "one of points, line"),
        ("probe", {"line": {"from": [0, 0, 0]}}, "'to' is missing"), ("probe", {"points": [[1, 2]]}, "list of 3"),
        ("probe", {"line": {"from": [0, 0, 0], "to": [1, 1, 1], "n": 0}}, "from 1"),
        ("streamlines", {"field": "u", "direction": "up"}, "both"), ("streamlines", {"field": "u", "step": 0}, "more"),
        ("histogram", {"field": "U", "bins": 0}, "from 1"), ("histogram", {"field": "U", "range": [1, 1]}, "low <"),
        ("resample", {"size": 300}, "16777216"), ("resample", {"size": [1, 2]}, "list of 3"),
        ("resample", {"bounds": [0, 1, 0, 1, 0, 1]}, "list of 3"), ("statistics", {"fields": []}, "1 to 1000"),
    ],
)  # fmt: skip
def test_wrong_options(name, options, words):
    with pytest.raises(PipelineError, match=words):
        link(name, **options)
