"""What filters and extracts need of a part of a mesh, a vtkDataSet of one rank.

The array vtkGhostType marks ghosts: a cell or point whose mark is not 0 belongs to another rank, or is hidden.
Importing this module imports VTK.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import (
    vtkDataSet,
    vtkImageData,
    vtkPolyData,
    vtkRectilinearGrid,
    vtkStructuredGrid,
    vtkUnstructuredGrid,
)
from vtkmodules.vtkCommonExecutionModel import vtkAlgorithm
from vtkmodules.vtkFiltersCore import vtkAppendFilter, vtkCellDataToPointData
from vtkmodules.vtkFiltersExtraction import vtkExtractGrid, vtkExtractRectilinearGrid
from vtkmodules.vtkImagingCore import vtkExtractVOI

from .vtk import GHOSTS, numpy_of

POINT, CELL = 0, 1  # vtkDataObject's numbers of associations


def run(algorithm: vtkAlgorithm, data: vtkDataSet) -> vtkDataSet:
    """The output of a filter for this input."""
    algorithm.SetInputDataObject(data)
    algorithm.Update()
    output: vtkDataSet = algorithm.GetOutputDataObject(0)
    return output


def association(part: vtkDataSet, name: str) -> int | None:
    """POINT or CELL: where the part has the field; None: nowhere."""
    return next((which for which in (POINT, CELL) if part.GetAttributes(which).HasArray(name)), None)


def field_names(part: vtkDataSet) -> list[str]:
    attributes = (part.GetAttributes(which) for which in (POINT, CELL))
    names = [data.GetArrayName(n) for data in attributes for n in range(data.GetNumberOfArrays())]
    return [name for name in names if name and name != GHOSTS]


def ghosts(part: vtkDataSet, which: int) -> np.ndarray | None:
    """True where a cell or point is not owned; None when all are."""
    marks = part.GetAttributes(which).GetArray(GHOSTS)
    flags = vtk_to_numpy(marks) != 0 if marks is not None else np.zeros(0, bool)
    return flags if flags.any() else None


def set_array(part: vtkDataSet, which: int, name: str, values: np.ndarray) -> None:
    array = numpy_to_vtk(np.ascontiguousarray(values))
    array.SetName(name)
    part.GetAttributes(which).AddArray(array)


def copy_of(part: vtkDataSet) -> vtkDataSet:
    """Another dataset with the same arrays: what is added to it does not show in the part."""
    copy = part.NewInstance()
    copy.ShallowCopy(part)
    return copy


def owned(part: Any, keep_points: bool = False) -> Any:
    """The part's own cells, without marks (keep_points: but those of points); None when it has none.

    Keeps the kind of dataset, except where the own cells of a structured one are no box.
    """
    marks = ghosts(part, CELL)
    if part.GetNumberOfCells() == 0 or (marks is not None and marks.all()):
        return None
    result = copy_of(part)
    if marks is not None:
        result = _own_box(result, marks) or _own_list(result, marks)
    result.GetCellData().RemoveArray(GHOSTS)
    if not keep_points:
        result.GetPointData().RemoveArray(GHOSTS)
    return result


_CUTTERS = {
    vtkImageData: vtkExtractVOI,
    vtkRectilinearGrid: vtkExtractRectilinearGrid,
    vtkStructuredGrid: vtkExtractGrid,
}


def _own_box(part: vtkDataSet, marks: np.ndarray) -> vtkDataSet | None:
    cutter = next((cutter for kind, cutter in _CUTTERS.items() if isinstance(part, kind)), None)
    if cutter is None:
        return None
    extent = np.array(part.GetExtent()).reshape(3, 2)
    cells = np.maximum(extent[:, 1] - extent[:, 0], 1)
    own = ~marks.reshape(cells[::-1])
    box = []
    for axis in range(3):
        inside = np.nonzero(own.any(axis=tuple(d for d in range(3) if d != 2 - axis)))[0]
        flat = extent[axis, 0] == extent[axis, 1]
        box.append((extent[axis, 0] + inside[0], extent[axis, 0] + inside[-1] + (not flat)))
    size = np.prod([max(high - low, 1) for low, high in box])
    if own.sum() != size:
        return None
    extract: Any = cutter()
    extract.SetVOI(*(int(n) for pair in box for n in pair))
    return copy_of(run(extract, part))


def _own_list(part: vtkDataSet, marks: np.ndarray) -> vtkDataSet:
    set_array(part, CELL, GHOSTS, marks.astype(np.uint8))  # 1 is a mark that RemoveGhostCells() knows
    if not isinstance(part, vtkPolyData | vtkUnstructuredGrid):
        part = copy_of(run(vtkAppendFilter(), part))
    part.RemoveGhostCells()
    return part


def values(part: vtkDataSet, name: str) -> Any:
    """The field's values, n or n × components, ghosts included; None when the part has no such field."""
    which = association(part, name)
    return None if which is None else numpy_of(part.GetAttributes(which).GetArray(name))


def owned_values(part: vtkDataSet, name: str) -> Any:
    """The field's values at the cells or points that the part owns; None when it has no such field.

    Without marks of points, these are the points of the own cells: two parts share those at their border.
    """
    which = association(part, name)
    if which is None:
        return None
    array, marks = values(part, name), ghosts(part, which)
    if which == POINT and marks is None and ghosts(part, CELL) is not None:
        mine = owned(part)
        return values(mine, name) if mine is not None else array[:0]
    return array if marks is None else array[~marks]


def owned_fields(part: vtkDataSet, names: Any = None) -> dict[str, np.ndarray]:
    """owned_values() of these fields (None: all) that the part has: what Reductions.compute() takes."""
    found = {name: owned_values(part, name) for name in (field_names(part) if names is None else names)}
    return {name: array for name, array in found.items() if array is not None}


def magnitude(array: np.ndarray) -> np.ndarray:
    """The length of vectors; numbers as they are."""
    lengths: np.ndarray = array if array.ndim == 1 else np.linalg.norm(array, axis=1)
    return lengths


def with_points(part: vtkDataSet, *names: str) -> vtkDataSet:
    """The part with these fields at its points: those of cells become means over the cells around, ghosts included."""
    cells = [name for name in names if association(part, name) == CELL]
    if not cells:
        return part
    convert = vtkCellDataToPointData()
    convert.ProcessAllArraysOff()
    convert.PassCellDataOn()
    for name in cells:
        convert.AddCellDataArray(name)
    return copy_of(run(convert, part))
