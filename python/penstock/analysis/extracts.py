"""Extracts: the results of chains and the values of expressions, written to files.

csv of values: one table for the run, a row for each step; each run begins it anew, unless it goes on with another.
csv of a chain: the rows of its table, or the points of its datasets, gathered on rank 0 and sorted by x, y, z (or first
by what a filter names in row_order()); the centres of cells, where only fields of cells are asked for.
vtk: .vti, .vtp, .vtu, .vtr or .vts, as the dataset is, from one rank with one part. Otherwise a folder of such files,
one for each part, and beside it a .vtm file that names them.
vtkhdf: one file of all parts; with several ranks a folder with one file for each, RANK.vtkhdf.
blueprint: a root file, and with several ranks a folder of domains beside it; see blueprint.py.

A file appears whole under its name, or not at all; the table grows by whole rows.
"""

from __future__ import annotations

import csv
import errno
import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from ..cohort import Cohort
from ..errors import InvalidArgument, NotFound
from ..names import nearest
from .agreement import exchange
from .chain import Table
from .expressions import Values
from .files import whole_file
from .records import Extract, fill
from .sampling import components

MAX_TABLES = 1000  # of one name, with different columns
Publish = Callable[[Extract, Any, Values], None]
_VTK_SUFFIXES = (".vti", ".vtp", ".vtu", ".vtr", ".vts", ".vtm")


class ExtractWriter:
    """Writes one extract of a run to a folder. All ranks make it, and call write() together.

    publish(extract, result, values) sends a step of type `stream`. goes_on: a table of values that is there goes on.
    """

    def __init__(
        self,
        extract: Extract,
        folder: str | os.PathLike[str],
        cohort: Cohort | None = None,
        publish: Publish | None = None,
        goes_on: bool = False,
    ):
        self.extract = extract
        self.folder = Path(folder)
        self.cohort = cohort
        self._publish = publish
        self._goes_on = goes_on
        self._asked: Path | None = None  # the name by the pattern, and that of the table it goes to
        self._table: Path | None = None
        self._last_cycle = -math.inf  # of the rows that were there

    def write(self, result: list[Any] | Table | None, values: Values) -> Path | None:
        """Writes this step: what the chain gave (None where the extract has `values`). Collective.

        The path is that of the file, index or folder; None for a stream. OSError, with the path, on all ranks when one
        cannot write; NotFound when no part has a field that the extract selects.
        """
        if self.extract.type == "stream":
            if self._publish is None:
                raise InvalidArgument(f"{self.extract.name}: streams cannot be published here")
            self._publish(self.extract, result, values)
            return None
        path = self.folder / fill(str(self.extract.file), int(values.cycle), float(values.time), self.extract.name)
        if self.extract.values is not None:
            numbers = {name: expression.evaluate(values) for name, expression in self.extract.values.items()}
            return exchange(self.cohort, lambda: None, lambda _: self._add_row(path, values, numbers))
        assert result is not None  # of an extract without values
        if isinstance(result, Table):
            return exchange(self.cohort, lambda: None, lambda _: write_columns(path, self._selected(result)))
        if self.extract.type == "csv":
            return self._write_rows(path, result)
        if self.extract.type == "blueprint":
            return self._write_blueprint(path, result, values)
        return self._write_parts(path, result)

    # ------------------------------------------------------------------------------------------------------------ csv

    def _add_row(self, path: Path, values: Values, numbers: dict[str, float]) -> Path:
        row = {"cycle": int(values.cycle), "time": float(values.time)} | numbers
        begins = path != self._asked
        if begins:
            self._asked = path
            path, begins = self._continued(path, list(row)) if self._goes_on else (path, True)
        else:
            path = self._table or path
        self._table = path
        if row["cycle"] <= self._last_cycle:  # an analysis before has written it
            return path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb" if begins else "ab", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                try:
                    data = _csv(([row] if begins else []) + [row.values()])
                    if file.write(data) != len(data):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    file.truncate(size)
                    raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        return path

    def _continued(self, path: Path, columns: list[str]) -> tuple[Path, bool]:
        """The table of these columns to go on with, and whether it begins anew: name.csv, name-2.csv, ..."""
        header = _csv([columns])
        for number in range(1, MAX_TABLES):
            table = path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")
            try:
                with open(table, "rb") as file:
                    if file.read(len(header)) == header:
                        self._last_cycle = _last_cycle(file)
                        return table, False
            except FileNotFoundError:
                return table, True
        raise InvalidArgument(f"{path}: there are {MAX_TABLES} tables of other columns; remove some")

    def _selected(self, table: Table) -> dict[str, np.ndarray]:
        if self.extract.selected is None:
            return table.columns
        for name in self.extract.selected:
            if name not in table.columns:
                raise NotFound(f"the table has no column '{name}'{nearest(name, table.columns)}")
        return {name: table.columns[name] for name in self.extract.selected}

    def _write_rows(self, path: Path, parts: Iterable[Any]) -> Path:
        fields = self.extract.selected
        order = [name for link in self.extract.filters for name in link.row_order()]
        read = None if fields is None else [*fields, *(name for name in order if name not in fields)]

        def write(everything: list[tuple[set[str], list[dict[str, np.ndarray]]]]) -> Path:
            _check_known(set().union(*(known for known, _ in everything)), fields)
            columns = _table_of([part for _, found in everything for part in found], order)
            left_out = set(read or ()) - set(fields or ())
            return write_columns(path, {name: each for name, each in columns.items() if name not in left_out})

        return exchange(self.cohort, lambda: _rows(parts, read), write)

    # ------------------------------------------------------------------------------------------------------------ vtk

    def _write_parts(self, path: Path, parts: Iterable[Any]) -> Path:
        rank, size = (self.cohort.rank, self.cohort.size) if self.cohort is not None else (0, 1)
        hdf = self.extract.type == "vtkhdf"
        path = path.with_suffix("") if path.suffix in (*_VTK_SUFFIXES, ".vtkhdf") else path

        def mine() -> tuple[set[str], list[str]]:
            known, own = _chosen(parts, self.extract.selected)
            own = _joined(own) if hdf else own
            alone = size == 1 and len(own) <= 1
            names = []
            for number, part in enumerate(own or ([_nothing()] if alone else [])):
                suffix = ".vtkhdf" if hdf else _suffix(part)
                within = "" if alone else f"/{rank}" if hdf else f"/{rank}-{number}"
                names.append(f"{path}{within}{suffix}")
                (_write_hdf if hdf else _write_xml)(Path(names[-1]), part)
            return known, names

        def finish(everything: list[tuple[set[str], list[str]]]) -> Path:
            _check_known(set().union(*(known for known, _ in everything)), self.extract.selected)
            names = [name for _, own in everything for name in own]
            if len(names) == 1 and size == 1:
                return Path(names[0])
            return path if hdf else _write_index(Path(f"{path}.vtm"), names)

        return exchange(self.cohort, mine, finish)

    # ------------------------------------------------------------------------------------------------------ blueprint

    def _write_blueprint(self, path: Path, parts: Iterable[Any], values: Values) -> Path:
        from .blueprint import write_blueprint

        own: list[Any] = []

        def mine() -> set[str]:
            known, found = _chosen(parts, self.extract.selected)
            own.extend(found)
            return known

        exchange(self.cohort, mine, lambda known: _check_known(set().union(*known), self.extract.selected))
        return write_blueprint(path, map(_mesh_of, own), int(values.cycle), float(values.time), self.cohort)


def _mesh_of(part: Any) -> Any:
    from .vtk import from_vtk

    return from_vtk(part)


def _last_cycle(file: Any) -> float:
    """Of the last row of a table from here on."""
    last = b""
    for line in file:
        last = line
    try:
        return float(last.split(b",")[0])
    except ValueError:
        return -math.inf


def _csv(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def write_columns(path: Path, columns: dict[str, np.ndarray]) -> Path:
    """A csv file of columns of equal length. OSError with the path."""
    with whole_file(path) as temporary:
        temporary.write_bytes(_csv([columns, *zip(*(np.asarray(c).tolist() for c in columns.values()), strict=True)]))
    return path


def _rows(parts: Iterable[Any], fields: Sequence[str] | None) -> tuple[set[str], list[dict[str, np.ndarray]]]:
    """The names of all fields, and of each part the columns x, y, z and of the fields."""
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkCommonDataModel import vtkPointSet
    from vtkmodules.vtkFiltersCore import vtkAppendFilter, vtkCellCenters

    from .parts import POINT, association, field_names, ghosts, owned, run, values, with_points

    parts = list(parts)
    known = {name: association(part, name) for part in parts for name in field_names(part)}
    wanted = list(known) if fields is None else [name for name in fields if name in known]
    of_cells = bool(wanted) and POINT not in (known[name] for name in wanted)
    found = []
    for part in parts:
        own = owned(part if of_cells else with_points(part, *wanted), keep_points=True)
        if own is None:
            continue
        if of_cells:
            own = run(vtkCellCenters(), own)
        elif not isinstance(own, vtkPointSet):
            own = run(vtkAppendFilter(), own)
        marks = ghosts(own, POINT)
        keep = slice(None) if of_cells or marks is None else ~marks
        columns = dict(zip("xyz", vtk_to_numpy(own.GetPoints().GetData())[keep].T, strict=True))
        for name in wanted:
            array = values(own, name)
            columns |= components(name, array[keep]) if array is not None else {}
        found.append(columns)
    return set(known), found


def _table_of(parts: Sequence[dict[str, np.ndarray]], order: Sequence[str]) -> dict[str, np.ndarray]:
    """The rows of all parts, sorted by the columns in `order`, then by x, y, z and the others. Columns that a part does
    not have are NaN there."""
    names = list(dict.fromkeys(["x", "y", "z", *(name for columns in parts for name in columns)]))
    joined = {
        name: np.concatenate([c.get(name, np.full(len(c["x"]), np.nan)) for c in parts] or [np.zeros(0)])
        for name in names
    }
    first = {name: joined[name] for name in order if name in joined}
    kept = _in_order(list((first | joined).values()), np.repeat(np.arange(len(parts)), [len(c["x"]) for c in parts]))
    return {name: column[kept] for name, column in joined.items()}


def _in_order(keys: Sequence[np.ndarray], part: np.ndarray) -> np.ndarray:
    """The numbers of the rows by these keys, so that the table is the same from any ranks: without a part's points that
    another part has too."""
    order = np.lexsort([part, *reversed(keys)])
    same = np.array([np.equal(k[order][1:], k[order][:-1]) | (k[order][1:] != k[order][1:]) for k in keys]).all(axis=0)
    repeated = np.concatenate([[False][: len(order)], same & (np.diff(part[order]) != 0)]).astype(bool)
    kept: np.ndarray = order[~repeated]
    return kept


def _check_known(known: set[str], fields: Sequence[str] | None) -> None:
    for name in fields or ():
        if known and name not in known:
            raise NotFound(f"there is no field '{name}'{nearest(name, sorted(known))}")


# ------------------------------------------------------------------------------------------------------ files of VTK


def _chosen(parts: Iterable[Any], fields: Sequence[str] | None) -> tuple[set[str], list[Any]]:
    """The names of all fields, and the own cells of the parts with the fields selected."""
    from .parts import CELL, POINT, field_names, owned

    parts = list(parts)
    known = {name for part in parts for name in field_names(part)}
    own = [part for part in map(owned, parts) if part is not None]
    for part in own:
        for name in known - set(known if fields is None else fields):
            for which in (POINT, CELL):
                part.GetAttributes(which).RemoveArray(name)
    return known, own


def _nothing() -> Any:
    from vtkmodules.vtkCommonDataModel import vtkPolyData

    return vtkPolyData()


def _joined(parts: list[Any]) -> list[Any]:
    """All parts as one dataset of a kind that VTKHDF has: an image, surface or unstructured grid."""
    from vtkmodules.vtkCommonDataModel import vtkImageData, vtkPolyData, vtkUnstructuredGrid
    from vtkmodules.vtkFiltersCore import vtkAppendFilter, vtkAppendPolyData

    if not parts or (len(parts) == 1 and isinstance(parts[0], vtkImageData | vtkPolyData | vtkUnstructuredGrid)):
        return parts
    append = vtkAppendPolyData() if all(isinstance(part, vtkPolyData) for part in parts) else vtkAppendFilter()
    for part in parts:
        append.AddInputData(part)
    append.Update()
    return [append.GetOutput()]


def _xml_writer(part: Any) -> Any:
    from vtkmodules import vtkIOXML

    return getattr(
        vtkIOXML, part.GetClassName().replace("vtk", "vtkXML", 1).replace("UniformGrid", "ImageData") + "Writer"
    )()


def _suffix(part: Any) -> str:
    return f".{_xml_writer(part).GetDefaultFileExtension()}"


def _write_xml(path: Path, part: Any) -> None:
    _write(_xml_writer(part), path, part, Path.touch)  # what cannot be opened is said by the system, not by VTK


def _write_hdf(path: Path, part: Any) -> None:
    from vtkmodules.vtkIOHDF import vtkHDFWriter

    def make_room(temporary: Path) -> None:
        # HDF5 does not get over a full disk: it keeps the file open for ever.
        with open(temporary, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1024 * part.GetActualMemorySize() + (1 << 20))

    _write(vtkHDFWriter(), path, part, make_room, _check_hdf)


def _write(
    writer: Any, path: Path, part: Any, before: Callable[[Path], None], after: Callable[[Path], None] | None = None
) -> None:
    with whole_file(path) as temporary:
        before(temporary)
        writer.SetFileName(str(temporary))
        writer.SetInputDataObject(part)
        written = writer.Write()
        code = writer.GetErrorCode()
        if code or not written:
            code = code if 0 < code < 20000 else errno.EIO  # VTK's own codes begin there
            raise OSError(code, os.strerror(code))
        if after is not None:
            after(temporary)


def _check_hdf(path: Path) -> None:
    """vtkHDFWriter does not notice a failed write: the file is not as long then as its superblock says."""
    with open(path, "rb") as file:
        head = file.read(56)
    # HDF5's format: the end of the file is the third address of superblocks 2 and 3, and of the earlier ones.
    at = {0: 40, 1: 44, 2: 28, 3: 28}.get(head[8], 0) if len(head) == 56 and head[:8] == b"\x89HDF\r\n\x1a\n" else 0
    if not at or int.from_bytes(head[at : at + 8], "little") != path.stat().st_size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _write_index(path: Path, names: list[str]) -> Path:
    files = (quoteattr(os.path.relpath(name, path.parent)) for name in names)
    lines = [
        '<VTKFile type="vtkMultiBlockDataSet" version="1.0">',
        "  <vtkMultiBlockDataSet>",
        *(f'    <DataSet index="{number}" file={file}/>' for number, file in enumerate(files)),
        "  </vtkMultiBlockDataSet>",
        "</VTKFile>",
    ]
    with whole_file(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
