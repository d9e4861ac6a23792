"""Fragments as datasets of VTK: their surfaces, their cells, and the lines along which they moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .fragments_search import Found


def surfaces_of(found: Found, track: np.ndarray, keep: np.ndarray, shown: Sequence[str]) -> list[Any]:
    """One dataset of all pieces, whose common points are one."""
    from .parts import CELL, POINT, set_array

    pieces = [piece for piece in found.pieces if len(piece.triangles)]
    if not pieces:
        return []
    starts = np.cumsum([0, *(len(piece.points) for piece in pieces)])
    triangles = np.concatenate([p.triangles + start for p, start in zip(pieces, starts, strict=False)])
    fragment = np.concatenate([piece.fragment for piece in pieces])
    chosen = keep[fragment]
    _, first, point_of = np.unique(np.concatenate([p.ids for p in pieces]), return_index=True, return_inverse=True)
    points = np.concatenate([piece.points for piece in pieces])[first]
    triangles, fragment = point_of[triangles[chosen]], fragment[chosen]
    surface = _polygons(points, triangles)
    set_array(surface, POINT, "Normals", normals(points, triangles).astype(np.float32))
    surface.GetPointData().SetActiveNormals("Normals")
    set_array(surface, CELL, "track", track[fragment])
    for name in shown:
        if name in found.columns:
            set_array(surface, CELL, name, found.columns[name][fragment])
    return [surface] if len(triangles) else []


def normals(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Of the points of a surface: the mean of the triangles around, weighted by their areas; of length 1, or 0."""
    a, b, c = points[triangles].swapaxes(0, 1)
    faces = np.repeat(np.cross(b - a, c - a), 3, axis=0)
    corners = triangles.ravel()
    summed = np.stack([np.bincount(corners, faces[:, d], len(points)) for d in range(3)], axis=1)
    length = np.linalg.norm(summed, axis=1, keepdims=True)
    unit: np.ndarray = summed / np.where(length > 0, length, 1)
    return unit


def _polygons(points: np.ndarray, triangles: np.ndarray) -> Any:
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonDataModel import vtkCellArray

    from .sampling import point_set

    surface = point_set(points)
    cells = vtkCellArray()
    offsets = np.arange(0, 3 * len(triangles) + 1, 3, dtype=np.int64)
    cells.SetData(numpy_to_vtk(offsets, deep=True), numpy_to_vtk(triangles.ravel().astype(np.int64), deep=True))
    surface.SetPolys(cells)
    return surface


def cells_of(parts: Sequence[Any], labels: np.ndarray, track: np.ndarray, keep: np.ndarray) -> list[Any]:
    """The cells of the fragments to keep. parts: blocks as images, with ghost layers; labels: of their own cells."""
    from vtkmodules.vtkCommonDataModel import vtkDataObject
    from vtkmodules.vtkFiltersCore import vtkThreshold

    from .parts import CELL, copy_of, owned, run, set_array

    chosen = np.append(keep, False)  # the last is for -1
    tracks = np.append(track, -1)
    found = []
    for part, label in zip(parts, labels, strict=True):
        if not chosen[label].any():
            continue
        block = owned(part)
        set_array(block, CELL, "fragment", np.where(chosen[label], label, -1))
        set_array(block, CELL, "track", tracks[label])
        threshold = vtkThreshold()
        threshold.SetInputArrayToProcess(0, 0, 0, vtkDataObject.FIELD_ASSOCIATION_CELLS, "fragment")
        threshold.SetLowerThreshold(0)
        threshold.SetThresholdFunction(vtkThreshold.THRESHOLD_UPPER)
        threshold.SetUpperThreshold(0)
        found.append(copy_of(run(threshold, block)))
    return found


def lines_of(trajectories: dict[str, np.ndarray]) -> list[Any]:
    """A line for each track; a point for one of a single step."""
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonDataModel import vtkCellArray

    from .parts import POINT, set_array
    from .sampling import point_set

    order = np.lexsort((trajectories["time"], trajectories["track"]))
    rows = {name: column[order] for name, column in trajectories.items()}
    if not len(order):
        return []
    lines = point_set(np.stack([rows[axis] for axis in "xyz"], axis=1))
    ends = np.flatnonzero(np.diff(rows["track"])) + 1
    offsets = np.array([0, *ends, len(order)], np.int64)
    cells = vtkCellArray()
    cells.SetData(numpy_to_vtk(offsets, deep=True), numpy_to_vtk(np.arange(len(order), dtype=np.int64), deep=True))
    lines.SetLines(cells)
    for name in ("track", "time", "volume"):
        set_array(lines, POINT, name, rows[name])
    return [lines]
