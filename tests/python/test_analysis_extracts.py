"""Extracts: what is in the files, over ranks too, and what happens when they cannot be written."""

import contextlib
import csv
import errno
import math
import resource

import numpy as np
import penstock
import pytest

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

from penstock.analysis import parts as helpers
from penstock.analysis.expressions import Values
from penstock.analysis.extracts import ExtractWriter, _check_hdf
from penstock.analysis.filters import Table, apply_chain
from penstock.analysis.pipeline import Pipeline
from ranks import on_ranks
from vtkmodules.vtkCommonDataModel import vtkImageData, vtkPolyData, vtkRectilinearGrid, vtkUnstructuredGrid
from vtkmodules.vtkIOHDF import vtkHDFReader
from vtkmodules.vtkIOXML import vtkXMLGenericDataObjectReader

POINT, CELL = helpers.POINT, helpers.CELL
SHAPE = (9, 7, 5)


def extract(text):
    return Pipeline("extracts: {x: {" + text + "}}").extracts["x"]


def part(rank=0, size=1, ghosts=1):
    """Rank's share of a 9 × 7 × 5 image, cut along x: f at the points, c in the cells, ghosts marked."""
    cuts = np.linspace(0, SHAPE[0] - 1, size + 1).astype(int)
    low, high = cuts[rank], cuts[rank + 1]
    first, last = max(low - ghosts, 0), min(high + ghosts, SHAPE[0] - 1)
    image = vtkImageData()
    image.SetExtent(int(first), int(last), 0, SHAPE[1] - 1, 0, SHAPE[2] - 1)
    z, y, x = np.meshgrid(np.arange(5.0), np.arange(7.0), np.arange(first, last + 1.0), indexing="ij")
    helpers.set_array(image, POINT, "f", (x + 10 * y + 100 * z).ravel())
    helpers.set_array(image, POINT, "w", np.stack([x, y, z], axis=-1).reshape(-1, 3))
    helpers.set_array(
        image, POINT, "vtkGhostType", np.where((x < low) | (x >= high) & (x < 8), 1, 0).astype(np.uint8).ravel()
    )
    x = x[:-1, :-1, :-1]
    helpers.set_array(image, CELL, "c", (x + 0.5).ravel())
    helpers.set_array(image, CELL, "vtkGhostType", ((x < low) | (x >= high)).astype(np.uint8).ravel())
    return image


def write(folder, what, parts, size=1, step=3):
    """The path that each rank got. parts: of a rank."""
    one = extract(what)
    values = Values(step, 0.5, step)
    return on_ranks(size, lambda c: ExtractWriter(one, folder, c).write(parts(c.rank) if parts else None, values))


def table_of(path):
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    return {name: np.array([row[n] for row in rows[1:]], dtype=float) for n, name in enumerate(rows[0])}


def read(path):
    reader = vtkHDFReader() if path.suffix == ".vtkhdf" else vtkXMLGenericDataObjectReader()
    reader.SetFileName(str(path))
    reader.Update()
    return reader.GetOutputDataObject(0)


def names_in(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def room_for(count):
    """As on a disk with room for so many bytes in each file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# ------------------------------------------------------------------------------------------------------------------ csv


@pytest.mark.parametrize("size", (1, 3))
def test_a_row_for_each_step(tmp_path, size):
    one = extract('type: csv, values: {"top of V": max(V), twice: 2 * step, none: max(U)}, file: sub/table.csv')
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/table.csv").write_text("of the run before\n")

    def work(cohort):
        writer = ExtractWriter(one, tmp_path, cohort)
        return [writer.write(None, Values(n, n / 3, n, reduced={"max(V)": n / 7})) for n in range(3)]

    assert on_ranks(size, work) == [[tmp_path / "sub/table.csv"] * 3] * size
    assert (tmp_path / "sub/table.csv").read_text().splitlines()[0] == "cycle,time,top of V,twice,none"
    table = table_of(tmp_path / "sub/table.csv")
    np.testing.assert_array_equal(table["time"], [0, 1 / 3, 2 / 3])  # all digits
    np.testing.assert_array_equal(table["top of V"], [0, 1 / 7, 2 / 7])
    np.testing.assert_array_equal(table["twice"], [0, 2, 4])
    assert np.isnan(table["none"]).all()


def test_a_row_that_does_not_fit(tmp_path):
    one = extract("type: csv, values: {top: max(V)}")
    writer = ExtractWriter(one, tmp_path)
    path = writer.write(None, Values(1, 0.5, 1))
    before = path.read_bytes()
    with room_for(len(before) + 4):
        with pytest.raises(OSError, match=r"x\.csv"):
            writer.write(None, Values(2, 0.5, 2))
    assert path.read_bytes() == before
    writer.write(None, Values(3, 0.5, 3))
    np.testing.assert_array_equal(table_of(path)["cycle"], [1, 3])


@pytest.mark.parametrize("size", (1, 3))
def test_a_table(tmp_path, size):
    table = Table({"low": np.array([0.1, 1 / 3]), "count": np.array([3, 4]), "field": np.array(["a,b", "é"])})
    write(tmp_path, "type: csv, histogram: U", lambda rank: table, size)
    with open(tmp_path / "x-000003.csv", newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["low", "count", "field"], ["0.1", "3", "a,b"], [repr(1 / 3), "4", "é"]]
    write(tmp_path, 'type: csv, histogram: U, fields: [count], file: "y.csv"', lambda rank: table, size)
    assert (tmp_path / "y.csv").read_text() == "count\n3\n4\n"

    def wrong(rank):
        with pytest.raises(penstock.NotFound, match="no column 'counts'; did you mean 'count'"):
            one = extract("type: csv, histogram: U, fields: [counts]")
            ExtractWriter(one, tmp_path, rank).write(table, Values(1, 1.0, 1))

    on_ranks(size, wrong)


@pytest.mark.parametrize("size", (1, 2, 4))
def test_points_of_all_ranks_once(tmp_path, size):
    (path, *_) = write(tmp_path, "type: csv, fields: [f, w]", lambda rank: [part(rank, size)], size)
    table = table_of(path)
    assert list(table) == ["x", "y", "z", "f", "w.x", "w.y", "w.z"]
    assert len(table["x"]) == math.prod(SHAPE) == len(set(zip(*(table[a].tolist() for a in "xyz"), strict=True)))
    np.testing.assert_array_equal(table["f"], table["x"] + 10 * table["y"] + 100 * table["z"])
    np.testing.assert_array_equal(table["w.y"], table["y"])


@pytest.mark.parametrize("size", (1, 2, 4))
def test_cells_of_all_ranks_once(tmp_path, size):
    (path, *_) = write(tmp_path, "type: csv, fields: [c]", lambda rank: [part(rank, size)], size)
    table = table_of(path)
    assert list(table) == ["x", "y", "z", "c"] and len(table["c"]) == 8 * 6 * 4
    np.testing.assert_allclose(table["c"], table["x"])
    (path, *_) = write(tmp_path, "type: csv, file: all.csv", lambda rank: [part(rank, size)], size)
    table = table_of(path)
    assert set(table) == {"x", "y", "z", "c", "f", "w.x", "w.y", "w.z"} and len(table["c"]) == math.prod(SHAPE)
    np.testing.assert_allclose(table["c"], np.clip(table["x"], 0.5, 7.5))  # means of the cells around, over borders


@pytest.mark.parametrize("size", (1, 3))
def test_no_points_and_unknown_fields(tmp_path, size):
    (path, *_) = write(tmp_path, "type: csv, fields: [f]", lambda rank: [], size)
    assert path.read_text() == "x,y,z\n"

    for kind in ("csv", "vtk", "vtkhdf"):

        def work(cohort, kind=kind):
            one = extract(f"type: {kind}, fields: [ff]")
            with pytest.raises(penstock.NotFound, match="no field 'ff'; did you mean 'f'"):
                parts = [part()] if cohort.rank == size - 1 else []
                ExtractWriter(one, tmp_path, cohort).write(parts, Values(1, 1.0, 1))

        on_ranks(size, work)


# ------------------------------------------------------------------------------------------------------------------ vtk


def kinds():
    (surface,) = apply_chain(
        Pipeline("pipelines: {a: [contour: {field: f, value: 99.5}]}").pipelines["a"].filters, [part()]
    )
    append = helpers.vtkAppendFilter()
    grid = vtkRectilinearGrid()
    grid.SetDimensions(3, 2, 1)
    for axis, count in zip("XYZ", (3, 2, 1), strict=True):
        getattr(grid, f"Set{axis}Coordinates")(helpers.numpy_to_vtk(np.arange(float(count)), deep=True))
    return {
        "vti": part(ghosts=0),
        "vtp": surface,
        "vtu": helpers.copy_of(helpers.run(append, part(ghosts=0))),
        "vtr": grid,
    }


@pytest.mark.parametrize("suffix", ("vti", "vtp", "vtu", "vtr"))
@pytest.mark.parametrize("given", ("", ', file: "sub/a.vtp"', ', file: "a-0.5"'))
def test_one_rank_writes_one_file(tmp_path, suffix, given):
    data = kinds()[suffix]
    (path,) = write(tmp_path, f"type: vtk{given}", lambda rank: [data])
    name = {"": "x-000003", ', file: "sub/a.vtp"': "sub/a", ', file: "a-0.5"': "a-0.5"}[given]
    assert path == tmp_path / f"{name}.{suffix}" and names_in(tmp_path) == [f"{name}.{suffix}"]
    again = read(path)
    assert again.GetClassName() == data.GetClassName()
    assert again.GetNumberOfCells() == data.GetNumberOfCells() > 0
    for field in helpers.field_names(data):
        np.testing.assert_array_equal(helpers.values(again, field), helpers.values(data, field))


def test_only_selected_fields_and_own_cells(tmp_path):
    (path,) = write(tmp_path, "type: vtk, fields: [c]", lambda rank: [part(1, 4)])
    data = read(path)
    assert isinstance(data, vtkImageData) and data.GetNumberOfCells() == 2 * 6 * 4
    assert helpers.field_names(data) == ["c"] and data.GetBounds()[:2] == (2, 4)
    assert not data.GetCellData().HasArray("vtkGhostType")
    assert sorted(helpers.field_names(part())) == ["c", "f", "w"]


@pytest.mark.parametrize("size", (1, 2, 4))
def test_pieces_and_their_index(tmp_path, size):
    def two(rank):
        return [] if rank == 1 else [part(2 * rank, 2 * size), part(2 * rank + 1, 2 * size)]

    (path, *others) = write(tmp_path, "type: vtk", two, size)
    assert path == tmp_path / "x-000003.vtm" and set(others) <= {path}
    ranks = [rank for rank in range(size) if rank != 1]
    assert names_in(tmp_path) == ["x-000003.vtm", *(f"x-000003/{rank}-{n}.vti" for rank in ranks for n in (0, 1))]
    blocks = read(path)
    cells = sum(blocks.GetBlock(n).GetNumberOfCells() for n in range(blocks.GetNumberOfBlocks()))
    assert cells == 8 * 6 * 4 * len(ranks) // size


@pytest.mark.parametrize("size", (1, 3))
@pytest.mark.parametrize("kind", ("vtk", "vtkhdf"))
def test_nothing_is_written_as_nothing(tmp_path, size, kind):
    (path, *_) = write(tmp_path, f"type: {kind}", lambda rank: [], size)
    if size == 1:
        assert isinstance(read(path), vtkPolyData) and read(path).GetNumberOfCells() == 0
    elif kind == "vtk":
        assert read(path).GetNumberOfBlocks() == 0


@pytest.mark.parametrize("size", (1, 2, 4))
def test_vtkhdf(tmp_path, size):
    (path, *_) = write(tmp_path, "type: vtkhdf, fields: [f]", lambda rank: [part(rank, size)], size)
    expected = ["x-000003.vtkhdf"] if size == 1 else [f"x-000003/{rank}.vtkhdf" for rank in range(size)]
    assert names_in(tmp_path) == expected
    assert path == tmp_path / ("x-000003.vtkhdf" if size == 1 else "x-000003")
    read_again = [read(tmp_path / name) for name in expected]
    assert sum(data.GetNumberOfCells() for data in read_again) == 8 * 6 * 4
    assert all(helpers.field_names(data) == ["f"] for data in read_again)


def test_vtkhdf_joins_the_parts_of_a_rank(tmp_path):
    (path,) = write(tmp_path, "type: vtkhdf", lambda rank: [part(0, 2), part(1, 2)])
    data = read(path)
    assert isinstance(data, vtkUnstructuredGrid) and data.GetNumberOfCells() == 8 * 6 * 4
    np.testing.assert_array_equal(np.sort(helpers.values(data, "c")), np.sort(helpers.values(part(), "c")))
    surface = kinds()["vtp"]
    (path,) = write(tmp_path, 'type: vtkhdf, file: "s"', lambda rank: [surface, surface])
    assert isinstance(read(path), vtkPolyData) and read(path).GetNumberOfCells() == 2 * surface.GetNumberOfCells()
    (path,) = write(tmp_path, 'type: vtkhdf, file: "r.vtkhdf"', lambda rank: [kinds()["vtr"]])
    assert read(path).GetNumberOfCells() == 2


def test_a_vtkhdf_file_that_was_cut_is_noticed(tmp_path):
    (path,) = write(tmp_path, "type: vtkhdf", lambda rank: [kinds()["vtp"]])
    _check_hdf(path)
    data = path.read_bytes()
    for cut in (data[:-1], data[:100], data[:10], b"", data + b"x"):
        path.write_bytes(cut)
        with pytest.raises(OSError):
            _check_hdf(path)


# --------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("size", (1, 3))
@pytest.mark.parametrize("kind", ("csv", "vtk", "vtkhdf"))
@pytest.mark.parametrize("surface", (False, True))
def test_a_disk_that_is_full(tmp_path, size, kind, surface):
    """One rank has more to write than there is room for; all ranks learn of it, and nothing half written is left."""
    one = extract(f'type: {kind}, file: "a"')
    big = vtkImageData()
    big.SetDimensions(40, 40, 40)
    helpers.set_array(big, POINT, "f", np.random.default_rng(0).normal(size=40**3))
    if surface:
        (big,) = apply_chain(Pipeline("pipelines: {a: [contour: f]}").pipelines["a"].filters, [big])

    def work(cohort):
        with pytest.raises(OSError, match=f"{tmp_path}/a") as raised:
            ExtractWriter(one, tmp_path, cohort).write([big] if cohort.rank == size - 1 else [], Values(1, 1.0, 1))
        return raised.value.errno

    with room_for(100_000):
        errors = on_ranks(size, work)
    assert set(errors) == {errno.EFBIG}
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("kind", ("csv", "vtk", "vtkhdf"))
@pytest.mark.parametrize("size", (1, 2))
def test_a_folder_that_is_none(tmp_path, kind, size):
    (tmp_path / "file").write_text("")
    one = extract(f'type: {kind}, file: "file/a"')

    def work(cohort):
        with pytest.raises(OSError, match="file/a"):
            ExtractWriter(one, tmp_path, cohort).write([part(cohort.rank, size)], Values(1, 1.0, 1))

    on_ranks(size, work)
    with pytest.raises(OSError, match=r"file/table\.csv"):
        ExtractWriter(extract('type: csv, values: {a: 1}, file: "file/table.csv"'), tmp_path).write(
            None, Values(1, 1, 1)
        )
    with pytest.raises(OSError, match=r"folder"):
        (tmp_path / "folder.csv").mkdir()
        ExtractWriter(extract('type: csv, file: "folder.csv"'), tmp_path).write([part()], Values(1, 1, 1))
    assert names_in(tmp_path) == ["file"]


def test_what_was_there_is_replaced_as_a_whole(tmp_path):
    (path,) = write(tmp_path, 'type: vtk, file: "a"', lambda rank: [part()])
    before = path.read_bytes()
    with room_for(len(before) // 2):
        with pytest.raises(OSError):
            ExtractWriter(extract('type: vtk, file: "a"'), tmp_path).write([part()], Values(1, 1, 1))
    assert path.read_bytes() == before and names_in(tmp_path) == ["a.vti"]


def test_streams_are_published_by_the_caller(tmp_path):
    one = extract("type: stream, stream: back")
    sent = []
    writer = ExtractWriter(one, tmp_path, publish=lambda *call: sent.append(call))
    values = Values(1, 1.0, 1)
    assert writer.write(["part"], values) is None
    assert sent == [(one, ["part"], values)]
    with pytest.raises(penstock.InvalidArgument, match="x: streams cannot be published here"):
        ExtractWriter(one, tmp_path).write([], values)
