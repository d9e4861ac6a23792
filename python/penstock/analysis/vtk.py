"""Meshes as VTK data sets, and back. Needs VTK (pip install vtk).

No array is copied whose layout VTK can use: x fastest, components interleaved, or one array for each component
(vtkSOADataArrayTemplate). Else each is copied once, since what could spare the copy is wrong somewhere (VTK 9.7): with
a vtkStridedArray (an array within halos) vtkCutter and vtkFlyingEdgesPlaneCutter give an empty slice, and contours take
twice as long; with a direction matrix (another order of dimensions) vtkContourFilter ignores it, and where that is a
mirror image surfaces are inside out.

AMR becomes a vtkMultiBlockDataSet of one vtkImageData for each block, whose ghost layers are marked. Contours, slices
and thresholds give the same for it as for a vtkOverlappingAMR, which cannot hold blocks with ghost layers (they lie
outside its boxes) and wants the boxes of all blocks on every rank.

vtkGhostType: of elements 1 where another part owns it, of nodes the same. Contour, cut and threshold filters do not
heed marks of the kind 1 and give geometry twice where parts overlap: give them parts that were read with
ghost_layers=0, or parts.owned(). vtkGeometryFilter heeds them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonCore import VTK_ID_TYPE, vtkPoints, vtkSOADataArrayTemplate, vtkVersion
from vtkmodules.vtkCommonDataModel import (
    vtkCellArray,
    vtkCompositeDataSet,
    vtkImageData,
    vtkMultiBlockDataSet,
    vtkPolyData,
    vtkRectilinearGrid,
    vtkStructuredGrid,
    vtkUnstructuredGrid,
)
from vtkmodules.vtkFiltersCore import vtkAppendFilter

from ..errors import InvalidArgument
from ..topologies import TOPOLOGIES
from . import meshes
from .meshes import MIXED, NAMES, ElementBlock, Field, Mesh

if TYPE_CHECKING:
    from vtkmodules.vtkCommonDataModel import vtkDataObject, vtkDataSet

GHOSTS = "vtkGhostType"
_BUFFER = "GetComponentBuffer"  # of arrays with one part for each component
# VTK's axis-aligned cells, as the cells with the same nodes in another order.
_TWISTED = {8: (9, [0, 1, 3, 2]), 11: (12, [0, 1, 3, 2, 4, 5, 7, 6])}


def to_vtk(mesh: Mesh) -> vtkDataObject:
    """The mesh as vtkImageData, vtkRectilinearGrid, vtkStructuredGrid, vtkUnstructuredGrid, vtkPolyData (particles) or
    vtkMultiBlockDataSet (multiblock, AMR). It keeps the arrays that it uses alive.

    Structured parts have their extent in the whole, so that nodes that parts share have the same coordinates to the
    last bit. Arrays of float16 become float32, bool uint8.
    """
    converted: vtkDataObject = _CONVERTERS[mesh.type](mesh)
    return converted


def _uniform(mesh: meshes.UniformMesh) -> vtkImageData:
    image = vtkImageData()
    image.SetOrigin(*mesh.origin)
    image.SetSpacing(*mesh.spacing)
    return _with_extent(mesh, image)


def _rectilinear(mesh: meshes.RectilinearMesh) -> vtkRectilinearGrid:
    grid = vtkRectilinearGrid()
    for axis, put in zip("xyz", (grid.SetXCoordinates, grid.SetYCoordinates, grid.SetZCoordinates), strict=True):
        put(_array("", (mesh.coordinates.get(axis, np.zeros(min(1, *mesh.shape))),)))
    return _with_extent(mesh, grid)


def _curvilinear(mesh: meshes.CurvilinearMesh) -> vtkStructuredGrid:
    grid = vtkStructuredGrid()
    grid.SetPoints(_points(mesh.upright(mesh.coordinates)))
    return _with_extent(mesh, grid)


def _with_extent(mesh: meshes.StructuredMesh, grid: Any) -> Any:
    """Gives the grid its extent and data. An axis that the mesh does not have has one node."""
    extent = []
    for axis in "xyz":
        d = mesh.axes.find(axis)
        first, n = (0, min(1, *mesh.shape)) if d < 0 else (mesh.start[d], mesh.shape[d])
        extent += [first, first + n - 1]
    grid.SetExtent(*extent)
    _add_data(mesh, grid)
    return grid


def _unstructured(mesh: meshes.UnstructuredMesh) -> vtkUnstructuredGrid:
    grid = vtkUnstructuredGrid()
    grid.SetPoints(_points(mesh.upright(mesh.coordinates)))
    if mesh.blocks:
        types, offsets, connectivity = zip(*(block.cells() for block in mesh.blocks), strict=True)
        ends = np.cumsum([0, *map(len, connectivity)])
        shifted = [each[:-1] + end for each, end in zip(offsets, ends[:-1], strict=True)]
        cells = vtkCellArray()
        offset = offsets[0] if len(offsets) == 1 else np.concatenate([*shifted, ends[-1:]])
        cells.SetData(*(numpy_to_vtk(each) for each in _same_type(offset, _one(connectivity))))
        grid.SetCells(numpy_to_vtk(_one(types)), cells)
    _add_data(mesh, grid)
    return grid


def _one(arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.ascontiguousarray(arrays[0]) if len(arrays) == 1 else np.concatenate(arrays)


def _same_type(offsets: np.ndarray, connectivity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the type of connectivity, which is the larger, where VTK has cells of that type: int32 or int64."""
    small = connectivity.dtype == np.int32 and len(connectivity) < 2**31
    dtype = np.int32 if small else np.int64
    return np.ascontiguousarray(offsets, dtype), np.ascontiguousarray(connectivity, dtype)


def _particles(mesh: meshes.ParticleMesh) -> vtkPolyData:
    """One vertex for each; fields are point data, as glyphs and point renderers want them."""
    data = vtkPolyData()
    data.SetPoints(_points(mesh.upright(mesh.coordinates)))
    n = mesh.size_of("element")
    vertices = vtkCellArray()
    vertices.SetData(numpy_to_vtk(np.arange(n + 1)), numpy_to_vtk(np.arange(n)))
    data.SetVerts(vertices)
    _add_data(mesh, data)
    return data


def _amr(mesh: meshes.AmrMesh) -> vtkMultiBlockDataSet:
    """Where x is not fastest in each row, all rows are copied at once."""

    def rows(values: Any) -> tuple[np.ndarray, ...]:
        return tuple(map(np.ascontiguousarray, mesh.upright(values)))

    arrays = {name: (rows(each.values), mesh.components(name)) for name, each in mesh.fields.items()}
    layers = mesh.layers()[None]
    # Marks of the mesh (of cells that finer blocks hide, say) are beside those of the layers.
    marks = rows(mesh.ghosts["element"] | layers if "element" in mesh.ghosts else layers)
    ids = rows(mesh.ids["element"]) if "element" in mesh.ids else None
    out = vtkMultiBlockDataSet()
    out.SetNumberOfBlocks(len(mesh.levels))
    for row in range(len(mesh.levels)):
        image = _uniform(mesh.block(row))
        data = image.GetCellData()
        for name, (each, components) in arrays.items():
            data.AddArray(_array(name, tuple(array[row] for array in each), components))
        data.AddArray(_array(GHOSTS, (marks[0][row % len(marks[0])],)))
        if ids is not None:
            data.SetGlobalIds(_ids("element", ids[0][row]))
        out.SetBlock(row, image)
    return out


def _multiblock(mesh: meshes.Multiblock) -> vtkMultiBlockDataSet:
    out = vtkMultiBlockDataSet()
    for number, (name, block) in enumerate(mesh.blocks.items()):
        out.SetBlock(number, to_vtk(block))
        out.GetMetaData(number).Set(vtkCompositeDataSet.NAME(), name)
    return out


_CONVERTERS: dict[str, Any] = {
    "uniform": _uniform, "rectilinear": _rectilinear, "curvilinear": _curvilinear, "unstructured": _unstructured,
    "particles": _particles, "amr": _amr, "multiblock": _multiblock,
}  # fmt: skip


def _add_data(mesh: Mesh, data: vtkDataSet) -> None:
    points = data.GetPointData()
    of = {"node": points, "element": points if mesh.type == "particles" else data.GetCellData()}
    for name, each in mesh.fields.items():
        of[each.association].AddArray(_array(name, mesh.upright(each.values), mesh.components(name)))
    for association, marks in mesh.ghosts.items():
        of[association].AddArray(_array(GHOSTS, mesh.upright(marks)))
    for association, ids in mesh.ids.items():
        of[association].SetGlobalIds(_ids(association, mesh.upright(ids)[0]))


def _ids(association: str, ids: np.ndarray) -> Any:
    array = numpy_to_vtk(np.ascontiguousarray(ids).reshape(-1), array_type=VTK_ID_TYPE)
    array.SetName(f"{association}_ids")
    return array


def _points(coordinates: tuple[np.ndarray, ...]) -> vtkPoints:
    floats = tuple(each if each.dtype in (np.float32, np.float64) else each.astype(np.float64) for each in coordinates)
    points = vtkPoints()
    points.SetData(_array("", floats, 3))
    return points


def _array(name: str, arrays: tuple[np.ndarray, ...], components: int = 1) -> Any:
    """A VTK array of arrays in VTK's order, one for all components or one for each; they live as long as it."""
    arrays = tuple(np.ascontiguousarray(_of_vtk_type(each)) for each in arrays)
    if len(arrays) == 1:
        out = numpy_to_vtk(arrays[0].reshape(-1, components) if components > 1 else arrays[0].reshape(-1))
    elif hasattr(vtkSOADataArrayTemplate, "__getitem__") and hasattr(vtkSOADataArrayTemplate["float64"], _BUFFER):
        out = vtkSOADataArrayTemplate[arrays[0].dtype.name]()
        out.SetNumberOfComponents(len(arrays))
        for c, array in enumerate(arrays):
            flat = array.reshape(-1)
            out.SetArray(c, flat, flat.size, True, True)
            out.GetComponentBuffer(c)._numpy_reference = flat  # as numpy_to_vtk does
    else:  # older VTK has no way to keep the arrays alive
        out = numpy_to_vtk(np.stack([each.reshape(-1) for each in arrays], axis=-1))
    if name:
        out.SetName(name)
    return out


def _of_vtk_type(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.bool_:
        return array.view(np.uint8)
    return array.astype(np.float32) if array.dtype == np.float16 else array


def from_vtk(dataset: vtkDataSet) -> Mesh:
    """A vtkDataSet as a mesh of its own, so that an extract can be published.

    Arrays are shared where the layout allows. A vtkPolyData of vertices only, one for each point, gives particles.
    Voxels and pixels become hex8 and quad4. Arrays without a name, or of no numbers, are left out. Raises
    InvalidArgument for other data sets and cells (triangle strips), and images with a direction matrix.
    """
    if dataset.IsA("vtkPolyData"):
        return _from_poly(dataset)
    if dataset.IsA("vtkUnstructuredGrid"):
        cells = dataset.GetCells()
        types = vtk_to_numpy(_cell_types(dataset)) if cells else np.empty(0)
        offsets, connectivity = _of_cell_array(cells) if cells else (np.zeros(1, np.int64), np.empty(0, np.int64))
        return _with_cells(dataset, np.asarray(types, np.uint8), offsets, connectivity)
    if any(dataset.IsA(name) for name in ("vtkImageData", "vtkRectilinearGrid", "vtkStructuredGrid")):
        return _with_data(_from_grid(dataset), dataset)
    raise InvalidArgument(f"a {dataset.GetClassName()} cannot be made a mesh; convert it to an unstructured grid")


def _cell_types(grid: Any) -> Any:
    old = vtkVersion.GetVTKMajorVersion() * 100 + vtkVersion.GetVTKMinorVersion() < 906
    return grid.GetCellTypesArray() if old else grid.GetCellTypes()


def numpy_of(array: Any) -> np.ndarray:
    """A VTK array as NumPy's, (n,) or (n, components), shared where possible.

    As vtk_to_numpy, which fails (VTK 9.7) for what filters make of arrays with one part for each component.
    """
    if not hasattr(array, _BUFFER):
        values: np.ndarray = vtk_to_numpy(array)
        return values
    n = array.GetNumberOfTuples()
    parts = [np.asarray(array.GetComponentBuffer(c))[:n] for c in range(array.GetNumberOfComponents())]
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)


def _from_grid(grid: Any) -> meshes.StructuredMesh:
    extent = np.array(grid.GetExtent()).reshape(3, 2)
    counts = np.maximum(extent[::-1, 1] - extent[::-1, 0] + 1, 0)
    shape = tuple(counts.tolist()) if counts.all() else (0, 0, 0)
    if grid.IsA("vtkStructuredGrid"):
        return meshes.CurvilinearMesh(shape=shape, coordinates=_coordinates(grid).reshape(*shape, 3))
    if grid.IsA("vtkRectilinearGrid"):
        lines = zip("xyz", (grid.GetXCoordinates(), grid.GetYCoordinates(), grid.GetZCoordinates()), strict=True)
        coordinates = {axis: vtk_to_numpy(array)[: max(shape)] for axis, array in lines}
        return meshes.RectilinearMesh(shape=shape, coordinates=coordinates)
    matrix = grid.GetDirectionMatrix()
    if any(matrix.GetElement(i, j) != float(i == j) for i in range(3) for j in range(3)):
        raise InvalidArgument("the image has a direction matrix; resample it first")
    first = extent[:, 0] if counts.all() else np.zeros(3)
    origin = np.array(grid.GetOrigin()) + np.array(grid.GetSpacing()) * first
    return meshes.UniformMesh(shape=shape, origin=tuple(origin), spacing=grid.GetSpacing())


def _from_poly(data: vtkPolyData) -> Mesh:
    n = data.GetNumberOfPoints()
    verts = data.GetVerts()
    single = n and verts.GetNumberOfCells() == data.GetNumberOfCells() == verts.GetNumberOfConnectivityIds() == n
    if single and (_of_cell_array(verts)[1] == np.arange(n)).all():
        return _with_data(meshes.ParticleMesh(coordinates=_coordinates(data)), data)
    append = vtkAppendFilter()  # makes an unstructured grid
    append.SetInputData(data)
    append.Update()
    return from_vtk(append.GetOutput())


def _of_cell_array(cells: vtkCellArray) -> tuple[np.ndarray, np.ndarray]:
    return vtk_to_numpy(cells.GetOffsetsArray()), vtk_to_numpy(cells.GetConnectivityArray())


def _with_cells(data: vtkDataSet, types: np.ndarray, offsets: np.ndarray, nodes: np.ndarray) -> Mesh:
    types, nodes = _untwisted(types, offsets, nodes)
    present = np.unique(types).tolist()
    wrong = [kind for kind in present if kind not in MIXED]
    if wrong:
        raise InvalidArgument(f"cells of VTK's types {wrong} have no topology here; vtkDataSetTriangleFilter helps")
    if len(present) == 1 and present[0] in NAMES:
        name = NAMES[present[0]]
        topology = TOPOLOGIES[name]
        blocks = [ElementBlock(name, name, topology.from_order_of_vtk(nodes.reshape(-1, topology.nodes)))]
    else:
        blocks = [ElementBlock("cells", "mixed", nodes, offsets=offsets, topologies=types)] if present else []
    return _with_data(meshes.UnstructuredMesh(coordinates=_coordinates(data), blocks=blocks), data)


def _untwisted(types: np.ndarray, offsets: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if np.isin(types, list(_TWISTED)).any():
        types, nodes = types.copy(), nodes.copy()
    for kind, (plain, order) in _TWISTED.items():
        at = offsets[:-1][types == kind]
        nodes[at[:, None] + np.arange(len(order))] = nodes[at[:, None] + np.array(order)]
        types[types == kind] = plain
    return types, nodes


def _coordinates(data: Any) -> np.ndarray:
    points = data.GetPoints()
    return numpy_of(points.GetData()) if points is not None else np.empty((0, 3), np.float32)


def _with_data(mesh: Any, data: vtkDataSet) -> Mesh:
    fields: dict[str, Field] = {}
    marks: dict[str, dict[str, np.ndarray]] = {"ghosts": {}, "ids": {}}
    points, cells = data.GetPointData(), data.GetCellData()
    sources = {"element": points} if mesh.type == "particles" else {"node": points, "element": cells}
    for association, attributes in sources.items():
        shape = mesh.shape_of(association)
        for number in range(attributes.GetNumberOfArrays()):
            array = attributes.GetArray(number)
            if array is None or not array.GetName():
                continue
            values = numpy_of(array)
            values = values.reshape(shape if values.ndim == 1 else (*shape, values.shape[-1]))
            if array is attributes.GetGlobalIds():
                marks["ids"][association] = values.astype(np.int64, copy=False)
            elif array.GetName() == GHOSTS:
                marks["ghosts"][association] = values
            else:
                name = array.GetName()
                fields[f"{name}_{association}" if name in fields else name] = Field(association, values)
    with_data: Mesh = replace(mesh, fields=fields, **marks)
    return with_data
