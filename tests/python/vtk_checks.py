"""What VTK finds in the data sets of meshes: volumes of cells, and linear fields that it interpolates."""

import numpy as np
from penstock.analysis import ParticleMesh, to_vtk
from penstock.analysis.vtk import numpy_of

ORIGIN, SPACING = np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.07, 0.05])
WEIGHTS = np.array([2.0, -3.0, 5.0])


def output(filter_, data, **arrays):
    filter_.SetInputData(data)
    filter_.Update()
    return filter_.GetOutput()


def cell_volumes(grid):
    from vtkmodules.vtkFiltersVerdict import vtkCellSizeFilter

    return numpy_of(output(vtkCellSizeFilter(), grid).GetCellData().GetArray("Volume"))


def probe_error(data, n=40):
    """The greatest difference of VTK's own interpolation from the linear fields: within n cells, and by a probe."""
    from vtkmodules.vtkCommonCore import reference
    from vtkmodules.vtkFiltersCore import vtkProbeFilter

    rng = np.random.default_rng(1)
    arrays = {name: numpy_of(data.GetPointData().GetArray(name)) for name in "pqs"}
    places, error = [], 0.0
    for _ in range(n):
        cell = data.GetCell(int(rng.integers(data.GetNumberOfCells())))
        weights, at, middle = [0.0] * cell.GetNumberOfPoints(), [0.0] * 3, [0.0] * 3
        cell.GetParametricCenter(middle)
        shift = rng.uniform(-0.1, 0.1, 3) * (np.arange(3) < cell.GetCellDimension())
        cell.EvaluateLocation(reference(0), (middle + shift).tolist(), at, weights)
        nodes = [cell.GetPointId(k) for k in range(len(weights))]
        error = max(error, *(np.abs(weights @ arrays[q][nodes] - at).max() for q in "qs"))
        error = max(error, abs(weights @ arrays["p"][nodes] - (WEIGHTS @ at + 1)))
        places.append(at)
    flat = [
        axis for axis, k in zip("xyz", range(0, 6, 2), strict=True) if data.GetBounds()[k] == data.GetBounds()[k + 1]
    ]
    # VTK 9.7 does not find cells of rectilinear grids without an extent in x or y, and probes lines of images along
    # other axes than x wrongly.
    if (data.IsA("vtkRectilinearGrid") and {"x", "y"} & {*flat}) or (data.IsA("vtkImageData") and len(flat) == 2):
        return error
    probe = vtkProbeFilter()
    probe.SetSourceData(data)
    found = output(probe, to_vtk(ParticleMesh(coordinates=np.array(places)))).GetPointData()
    assert probe.GetValidPoints().GetNumberOfTuples() == n
    error = max(error, *(np.abs(numpy_of(found.GetArray(q)) - places).max() for q in "qs"))
    return max(error, np.abs(numpy_of(found.GetArray("p")) - (places @ WEIGHTS + 1)).max())
