"""ParaView's filters for blocks of adaptive grids, for `penstock bench fragments`: a script of pvbatch.

pvbatch fragments_peer.py FILTER BLOCKS.npz THRESHOLD OUT.npz. BLOCKS.npz has `levels`, `indices` (x, y, z, counted in
blocks of the level) and `values` (blocks, z, y, x) with one layer of ghost cells, -inf outside the unit cube. OUT.npz
gets `seconds` (processor time of the filter), and as far as the filter has them `points` and `triangles` of the
surface, `fragments` (their number), and their `masses`. It needs NumPy and ParaView; Penstock is not there.
"""

import sys
import time
from typing import Any

import numpy as np
from paraview.modules import vtkPVVTKExtensionsAMR as amr
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonDataModel import vtkDataObject, vtkNonOverlappingAMR, vtkUniformGrid

FRACTION, MASS, REGION, GHOSTS = "fraction", "mass", "RegionId-fraction", "vtkGhostType"


def grid_of(level: int, index: np.ndarray, values: np.ndarray) -> vtkUniformGrid:
    """A block with its ghost cells, but none outside the domain: with these ParaView's surface has holes."""
    low, high = index == 0, index == 2**level - 1
    inside = tuple(slice(int(a), n - int(b)) for a, b, n in zip(low, high, values.shape[::-1], strict=True))[::-1]
    ghosts = np.ones(values.shape, np.uint8)
    ghosts[1:-1, 1:-1, 1:-1] = 0
    kept = values[inside]
    cells = np.array(values.shape[::-1]) - 2
    width = 0.5**level / cells
    grid = vtkUniformGrid()
    grid.SetOrigin(*(width * (index * cells - 1 + low)))
    grid.SetSpacing(*width)
    grid.SetDimensions(*(n + 1 for n in kept.shape[::-1]))
    for name, array in ((FRACTION, kept), (MASS, kept * width.prod()), (GHOSTS, ghosts[inside])):
        flat = numpy_to_vtk(np.ascontiguousarray(array).ravel(), deep=True)
        flat.SetName(name)
        grid.GetCellData().AddArray(flat)
    return grid


def blocks_of(given: Any) -> vtkNonOverlappingAMR:
    levels, indices, values = given["levels"], given["indices"], given["values"]
    blocks = vtkNonOverlappingAMR()
    used = np.unique(levels)  # no level may be empty
    blocks.Initialize(len(used), [int((levels == level).sum()) for level in used])
    for number, level in enumerate(used):
        for place, row in enumerate(np.flatnonzero(levels == level)):
            blocks.SetDataSet(number, place, grid_of(int(level), indices[row], values[row]))
    return blocks


def filter_of(name: str, threshold: float) -> Any:
    if name == "AMRDualContour":
        made = amr.vtkAMRDualContour()
        made.SetIsoValue(threshold)
        made.SetEnableMergePoints(0)  # as ours, which numbers points and leaves each block its own
        made.SetInputArrayToProcess(0, 0, 0, vtkDataObject.FIELD_ASSOCIATION_CELLS, FRACTION)
    elif name == "AMRConnectivity":
        made = amr.vtkAMRConnectivity()
        made.AddInputVolumeArrayToProcess(FRACTION)
        made.SetVolumeFractionSurfaceValue(threshold)
    else:
        made = amr.vtkPVAMRFragmentIntegration()
        made.AddInputVolumeArrayToProcess(FRACTION)
        made.AddInputMassArrayToProcess(MASS)
    return made


def run(name: str, blocks: Any, threshold: float) -> tuple[list[Any], float]:
    """The datasets that the filter makes, and its processor time, once it has run before."""
    for _ in range(2):
        made = filter_of(name, threshold)
        made.SetInputData(blocks)
        made.Update()
    made.Modified()
    begun = time.process_time()
    made.Update()
    seconds = time.process_time() - begun
    walk = made.GetOutputDataObject(0).NewIterator()
    walk.InitTraversal()
    found = []
    while not walk.IsDoneWithTraversal():
        found.append(walk.GetCurrentDataObject())
        walk.GoToNextItem()
    return found, seconds


def surface_of(parts: list[Any]) -> dict[str, np.ndarray]:
    points, triangles, first = [np.empty((0, 3))], [np.empty((0, 3), np.int64)], 0
    for part in parts:
        if part.GetNumberOfPolys():
            points.append(vtk_to_numpy(part.GetPoints().GetData()))
            triangles.append(vtk_to_numpy(part.GetPolys().GetConnectivityArray()).reshape(-1, 3) + first)
            first += len(points[-1])
    return {"points": np.concatenate(points), "triangles": np.concatenate(triangles)}


def regions_of(parts: list[Any]) -> int:
    ids: set[int] = set()
    for part in parts:
        region, ghosts = (vtk_to_numpy(part.GetCellData().GetArray(name)) for name in (REGION, GHOSTS))
        ids |= set(np.unique(region[ghosts == 0]).tolist())
    return len(ids - {0})


def main(name: str, path: str, threshold: float, out: str) -> None:
    blocks = blocks_of(np.load(path))
    if name == "AMRFragmentIntegration":  # works on what AMRConnectivity makes
        before = filter_of("AMRConnectivity", threshold)
        before.SetInputData(blocks)
        before.Update()
        blocks = before.GetOutputDataObject(0)
    parts, seconds = run(name, blocks, threshold)
    found: dict[str, Any] = {"seconds": seconds}
    if name == "AMRDualContour":
        found |= surface_of(parts)
    elif name == "AMRConnectivity":
        found["fragments"] = regions_of(parts)
    else:
        found["masses"] = np.concatenate([vtk_to_numpy(part.GetColumnByName("Fragment Mass")) for part in parts])
        found["fragments"] = len(found["masses"])
    np.savez(out, **found)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4])
