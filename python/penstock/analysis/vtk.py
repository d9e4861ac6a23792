"""Meshes as VTK data sets, and back. Needs VTK (pip install vtk).

No array is copied whose layout VTK can use: x fastest, components interleaved, or one array for each component
(vtkSOADataArrayTemplate). Else each is copied once; measured with VTK 9.7, what could spare the copy is wrong
somewhere:

- Strides (an array within halos): a vtkStridedArray of the array's memory makes vtkCutter and vtkFlyingEdgesPlaneCutter
  fail, with an empty slice, and contours take twice as long.
- Another order of dimensions: see `turned` of to_vtk().

AMR becomes a vtkMultiBlockDataSet of one vtkImageData for each block, whose ghost layers are marked. Contours, slices
and thresholds give the same for it as for a vtkOverlappingAMR, which cannot hold blocks with ghost layers (they lie
outside its boxes) and wants the boxes of all blocks on every rank.

vtkGhostType: of elements 1 where another part owns it, of nodes the same. Contour, cut and threshold filters do not
heed marks of the kind 1 and give geometry twice where parts overlap: give them parts that were read with
ghost_layers=0. vtkGeometryFilter heeds them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from vtkmodules.util.numpy_support import numpy_to_vtk, vtk_to_numpy
from vtkmodules.vtkCommonCore import VTK_ID_TYPE, vtkPoints, vtkSOADataArrayTemplate
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

from ..errors import InvalidArgument
from .meshes import (
    MIXED,
    TOPOLOGIES,
    AmrMesh,
    CurvilinearMesh,
    ElementBlock,
    Field,
    Mesh,
    Multiblock,
    ParticleMesh,
    RectilinearMesh,
    StructuredMesh,
    UniformMesh,
    UnstructuredMesh,
)

if TYPE_CHECKING:
    from vtkmodules.vtkCommonDataModel import vtkDataObject, vtkDataSet

GHOSTS = "vtkGhostType"
_NAMES = {each.vtk: name for name, each in TOPOLOGIES.items()}
# VTK's axis-aligned cells, as the cells with the same nodes in another order.
_TWISTED = {8: (9, [0, 1, 3, 2]), 11: (12, [0, 1, 3, 2, 4, 5, 7, 6])}


def to_vtk(mesh: Mesh, turned: bool = False) -> vtkDataObject:
    """The mesh as vtkImageData, vtkRectilinearGrid, vtkStructuredGrid, vtkUnstructuredGrid, vtkPolyData (particles) or
    vtkMultiBlockDataSet (multiblock, AMR). It keeps the arrays that it uses alive.

    Structured parts have their extent in the whole, so that nodes that parts share have the same coordinates to the
    last bit. Arrays of float16 become float32, bool uint8.

    turned: no copy of the fields of a uniform or curvilinear mesh whose arrays have x not last (a C array indexed
    [x, y, z]): VTK's i, j, k are then z, y, x, and the direction matrix of an image says so. Coordinates and values are
    right in vtkFlyingEdges3D, vtkCutter, vtkFlyingEdgesPlaneCutter, vtkProbeFilter, vtkClipDataSet and
    vtkGradientFilter. But where axes is "xyz", "yzx" or "zxy", surfaces (contours, boundaries) are inside out, normals
    too, and cells that clipping makes have negative volumes. vtkContourFilter ignores an image's matrix: its geometry
    is wrong; as are volumes of the voxels that vtkThreshold makes.
    """
    return _CONVERTERS[type(mesh)](mesh, turned)


# ----------------------------------------------------------------------------------------------------- structured


def _uniform(mesh: UniformMesh, turned: bool) -> vtkImageData:
    image = vtkImageData()
    order = _order(mesh, turned)
    dimensions = _grid(mesh, order, image)
    image.SetOrigin(*mesh.origin)
    image.SetSpacing(*(mesh.spacing["xyz".index(axis)] for axis in dimensions))
    if dimensions != "xyz":
        image.SetDirectionMatrix(*(float(world == axis) for world in "xyz" for axis in dimensions))
    return image


def _rectilinear(mesh: RectilinearMesh, turned: bool) -> vtkRectilinearGrid:
    grid = vtkRectilinearGrid()
    _grid(mesh, _upright(mesh.axes), grid)
    for axis, put in zip("xyz", (grid.SetXCoordinates, grid.SetYCoordinates, grid.SetZCoordinates), strict=True):
        put(_array("", (np.asarray(mesh.coordinates.get(axis, np.zeros(1 if mesh.shape[0] else 0))),)))
    return grid


def _curvilinear(mesh: CurvilinearMesh, turned: bool) -> vtkStructuredGrid:
    grid = vtkStructuredGrid()
    order = _order(mesh, turned)
    _grid(mesh, order, grid)
    grid.SetPoints(_points(_reordered(mesh.coordinates, order)))
    return grid


def _grid(mesh: StructuredMesh, order: list[int], grid: Any) -> str:
    """Gives the grid its extent and data; order: array dimensions from the slowest. Gives the axes of i, j, k."""
    dimensions = "xyz"  # an axis that the mesh does not have has one node
    if order != _upright(mesh.axes):
        dimensions = mesh.axes[::-1]
        dimensions += "".join(axis for axis in "xyz" if axis not in dimensions)
    extent = []
    for axis in dimensions:
        d = mesh.axes.find(axis)
        first, n = (0, min(1, *mesh.shape)) if d < 0 else (mesh.start[d], mesh.shape[d])
        extent += [first, first + n - 1]
    grid.SetExtent(*extent)
    _add_data(mesh, grid, order)
    return dimensions


def _upright(axes: str) -> list[int]:
    """Array dimensions from VTK's slowest to its fastest: z, y, x."""
    return sorted(range(len(axes)), key=lambda d: axes[d], reverse=True)


def _order(mesh: StructuredMesh, turned: bool) -> list[int]:
    """Array dimensions from the slowest: upright; or as they are, where fields agree with that only."""
    upright = _upright(mesh.axes)
    arrays = [array for each in mesh.fields.values() for array in each.arrays]
    return upright if not turned or all(_agrees(each, upright) for each in arrays) else sorted(upright)


def _agrees(array: np.ndarray, order: list[int]) -> bool:
    return array.transpose([*order, *range(len(order), array.ndim)]).flags.c_contiguous


def _reordered(values: Any, order: list[int]) -> tuple[np.ndarray, ...]:
    """Arrays with the dimensions in this order, one for each component if that is how they lie in memory."""
    if isinstance(values, tuple):
        return tuple(each.transpose(order) for each in values)
    if values.ndim == len(order):
        return (values.transpose(order),)
    turned = values.transpose([*order, len(order)])
    parts = tuple(turned[..., c] for c in range(turned.shape[-1]))
    if not turned.flags.c_contiguous and all(each.flags.c_contiguous for each in parts):
        return parts
    return (turned.reshape(-1, turned.shape[-1]),)


# --------------------------------------------------------------------------------------------------- other meshes


def _unstructured(mesh: UnstructuredMesh, turned: bool) -> vtkUnstructuredGrid:
    grid = vtkUnstructuredGrid()
    grid.SetPoints(_points(_split(mesh.coordinates)))
    if mesh.blocks:
        types, offsets, connectivity = zip(*(_cells(block) for block in mesh.blocks), strict=True)
        ends = np.cumsum([0, *map(len, connectivity)])
        shifted = [each[:-1] + end for each, end in zip(offsets, ends[:-1], strict=True)]
        cells = vtkCellArray()
        offset = offsets[0] if len(offsets) == 1 else np.concatenate([*shifted, ends[-1:]])
        cells.SetData(*(numpy_to_vtk(each) for each in _same_type(offset, _one(connectivity))))
        grid.SetCells(numpy_to_vtk(_one(types)), cells)
    _add_data(mesh, grid)
    return grid


def _cells(block: ElementBlock) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """VTK's types, offsets and connectivity."""
    if block.topology == "mixed":
        return np.ascontiguousarray(block.topologies), np.asarray(block.offsets), block.connectivity
    topology, n = TOPOLOGIES[block.topology], len(block)
    width = topology.nodes or 0
    offsets = np.arange(0, (n + 1) * width, width, dtype=np.int64)
    return np.full(n, topology.vtk, np.uint8), offsets, block.connectivity.reshape(-1)


def _one(arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.ascontiguousarray(arrays[0]) if len(arrays) == 1 else np.concatenate(arrays)


def _same_type(offsets: np.ndarray, connectivity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the type of connectivity, which is the larger, where VTK has cells of that type: int32 or int64."""
    dtype = connectivity.dtype if connectivity.dtype in (np.int32, np.int64) else np.dtype(np.int64)
    if dtype == np.int32 and len(connectivity) >= 2**31:
        dtype = np.dtype(np.int64)
    return np.ascontiguousarray(offsets, dtype), np.ascontiguousarray(connectivity, dtype)


def _particles(mesh: ParticleMesh, turned: bool) -> vtkPolyData:
    """One vertex for each; fields are point data, as glyphs and point renderers want them."""
    data = vtkPolyData()
    data.SetPoints(_points(_split(mesh.coordinates)))
    n = mesh.size_of("element")
    vertices = vtkCellArray()
    vertices.SetData(numpy_to_vtk(np.arange(n + 1)), numpy_to_vtk(np.arange(n)))
    data.SetVerts(vertices)
    _add_data(mesh, data)
    return data


def _amr(mesh: AmrMesh, turned: bool) -> vtkMultiBlockDataSet:
    order = _upright(mesh.axes)
    rows = [0, *(d + 1 for d in order)]
    fields = {name: _rows(each.values, rows) for name, each in mesh.fields.items()}
    ghosts = _array(GHOSTS, (_amr_ghosts(mesh).transpose(order),))
    marks = mesh.ghosts["element"].transpose(rows) if "element" in mesh.ghosts else None
    ids = mesh.ids["element"].transpose(rows) if "element" in mesh.ids else None
    out = vtkMultiBlockDataSet()
    out.SetNumberOfBlocks(len(mesh.levels))
    for row in range(len(mesh.levels)):
        image = _amr_image(mesh, row)
        data = image.GetCellData()
        for name, arrays in fields.items():
            data.AddArray(_array(name, tuple(each[row] for each in arrays), mesh.components(name)))
        data.AddArray(ghosts if marks is None else _array(GHOSTS, (marks[row],)))
        if ids is not None:
            data.SetGlobalIds(_array("ids", (ids[row],)))
        out.SetBlock(row, image)
    return out


def _rows(values: Any, rows: list[int]) -> tuple[np.ndarray, ...]:
    """With x fastest in each row: one copy of all rows where they are not."""
    arrays = values if isinstance(values, tuple) else (values,)
    return tuple(np.ascontiguousarray(each.transpose([*rows, *range(len(rows), each.ndim)])) for each in arrays)


def _amr_image(mesh: AmrMesh, row: int) -> vtkImageData:
    image = vtkImageData()
    finer = float(mesh.refinement) ** int(mesh.levels[row])
    origin, spacing, nodes = list(mesh.origin), [each / finer for each in mesh.spacing], [1, 1, 1]
    for d, axis in enumerate(mesh.axes):
        a = "xyz".index(axis)
        inner = mesh.cells[d] - 2 * mesh.ghost_layers
        origin[a] += spacing[a] * (int(mesh.indices[row, a]) * inner - mesh.ghost_layers)
        nodes[a] = mesh.cells[d] + 1
    image.SetDimensions(*nodes)
    image.SetOrigin(*origin)
    image.SetSpacing(*spacing)
    return image


def _amr_ghosts(mesh: AmrMesh) -> np.ndarray:
    """Of each block: one array for all."""
    marks = np.ones(mesh.cells, np.uint8)
    layers = mesh.ghost_layers
    marks[tuple(slice(layers, n - layers) for n in mesh.cells)] = 0
    return marks


def _multiblock(mesh: Multiblock, turned: bool) -> vtkMultiBlockDataSet:
    out = vtkMultiBlockDataSet()
    for number, (name, block) in enumerate(mesh.blocks.items()):
        out.SetBlock(number, to_vtk(block, turned))
        out.GetMetaData(number).Set(vtkCompositeDataSet.NAME(), name)
    return out


_CONVERTERS: dict[type, Any] = {
    UniformMesh: _uniform,
    RectilinearMesh: _rectilinear,
    CurvilinearMesh: _curvilinear,
    UnstructuredMesh: _unstructured,
    ParticleMesh: _particles,
    AmrMesh: _amr,
    Multiblock: _multiblock,
}


# --------------------------------------------------------------------------------------------------------- arrays


def _add_data(mesh: Mesh, data: vtkDataSet, order: list[int] | None = None) -> None:
    def arrays(values: Any) -> tuple[np.ndarray, ...]:
        return _split(values) if order is None else _reordered(values, order)

    # Particles are points in VTK.
    of = {
        "node": data.GetPointData(),
        "element": data.GetPointData() if data.IsA("vtkPolyData") else data.GetCellData(),
    }
    for name, each in mesh.fields.items():
        of[each.association].AddArray(_array(name, arrays(each.values), mesh.components(name)))
    for association, marks in mesh.ghosts.items():
        of[association].AddArray(_array(GHOSTS, arrays(marks)))
    for association, ids in mesh.ids.items():
        array = numpy_to_vtk(np.ascontiguousarray(arrays(ids)[0]).reshape(-1), array_type=VTK_ID_TYPE)
        array.SetName(f"{association}_ids")
        of[association].SetGlobalIds(array)


def _split(values: Any) -> tuple[np.ndarray, ...]:
    return values if isinstance(values, tuple) else (values,)


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
    elif hasattr(vtkSOADataArrayTemplate, "__getitem__") and hasattr(
        vtkSOADataArrayTemplate["float64"], "GetComponentBuffer"
    ):
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


# ------------------------------------------------------------------------------------------------------- from VTK


def from_vtk(dataset: vtkDataSet) -> UniformMesh | UnstructuredMesh | ParticleMesh:
    """A vtkImageData, vtkUnstructuredGrid or vtkPolyData as a mesh of its own, so that an extract can be published.

    Arrays are shared where the layout allows. A data set of vertices only, one for each point, gives particles. Voxels
    and pixels become hex8 and quad4. Arrays without a name, or of no numbers, are left out. Raises InvalidArgument for
    other data sets and cells, triangle strips, and images with a direction matrix.
    """
    if dataset.IsA("vtkImageData"):
        return _from_image(dataset)
    if dataset.IsA("vtkPolyData"):
        return _from_poly(dataset)
    if dataset.IsA("vtkUnstructuredGrid"):
        cells = dataset.GetCells()
        types = dataset.GetCellTypes() if hasattr(dataset, "GetCellTypes") else None
        types = vtk_to_numpy(types if types is not None else dataset.GetCellTypesArray()) if cells else np.empty(0)
        offsets, connectivity = _of_cell_array(cells) if cells else (np.zeros(1, np.int64), np.empty(0, np.int64))
        return _with_cells(dataset, np.asarray(types, np.uint8), offsets, connectivity)
    raise InvalidArgument(f"a {dataset.GetClassName()} cannot be made a mesh; convert it to an unstructured grid")


def numpy_of(array: Any) -> np.ndarray:
    """A VTK array as NumPy's, (n,) or (n, components), shared where possible.

    As vtk_to_numpy, which fails (VTK 9.7) for what filters make of arrays with one part for each component.
    """
    if not hasattr(array, "GetComponentBuffer"):
        return vtk_to_numpy(array)
    n = array.GetNumberOfTuples()
    parts = [np.asarray(array.GetComponentBuffer(c))[:n] for c in range(array.GetNumberOfComponents())]
    return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)


def _from_image(image: vtkImageData) -> UniformMesh:
    matrix = image.GetDirectionMatrix()
    if any(matrix.GetElement(i, j) != float(i == j) for i in range(3) for j in range(3)):
        raise InvalidArgument("the image has a direction matrix; resample it first")
    counts = image.GetDimensions()
    empty = 0 in counts
    axes = "".join(axis for axis, n in zip("xyz", counts, strict=True) if n > 1)[::-1] or "x"
    shape = (0,) if empty else tuple(counts["xyz".index(axis)] for axis in axes)
    axes = "x" if empty else axes
    spacing = image.GetSpacing()
    first = image.GetExtent()[::2]
    origin = tuple(o + s * (0 if empty else i) for o, s, i in zip(image.GetOrigin(), spacing, first, strict=True))
    mesh = UniformMesh(shape=shape, axes=axes, origin=origin, spacing=spacing)
    return _with_data(mesh, image)


def _from_poly(data: vtkPolyData) -> UnstructuredMesh | ParticleMesh:
    if data.GetNumberOfStrips():
        raise InvalidArgument("the data set has triangle strips; vtkTriangleFilter makes triangles of them")
    n = data.GetNumberOfPoints()
    kinds, ends, nodes = [], [np.zeros(1, np.int64)], []
    for cells, of_size in ((data.GetVerts(), {1: 1}), (data.GetLines(), {2: 3}), (data.GetPolys(), {3: 5, 4: 9})):
        offsets, connectivity = _of_cell_array(cells)
        many = {1: 2, 2: 4, 3: 7}[min(of_size)]  # polyvertex, polyline, polygon
        sizes = np.diff(offsets)
        kind = np.full(len(sizes), many, np.uint8)
        for size, number in of_size.items():
            kind[sizes == size] = number
        kinds.append(kind)
        ends.append(offsets[1:] + sum(map(len, nodes)))
        nodes.append(connectivity)
    used = [each for each in nodes if len(each)]
    connectivity = used[0] if len(used) == 1 else np.concatenate(nodes)
    vertices = vtk_cells = sum(map(len, kinds))
    if vertices and (kinds[0] == 1).all() and len(kinds[0]) == vtk_cells == n and (connectivity == np.arange(n)).all():
        return _with_data(ParticleMesh(coordinates=_coordinates(data)), data)
    return _with_cells(data, np.concatenate(kinds), np.concatenate(ends), connectivity)


def _of_cell_array(cells: vtkCellArray) -> tuple[np.ndarray, np.ndarray]:
    return vtk_to_numpy(cells.GetOffsetsArray()), vtk_to_numpy(cells.GetConnectivityArray())


def _with_cells(data: vtkDataSet, types: np.ndarray, offsets: np.ndarray, nodes: np.ndarray) -> UnstructuredMesh:
    types, nodes = _untwisted(types, offsets, nodes)
    present = np.unique(types).tolist()
    wrong = [kind for kind in present if kind not in MIXED]
    if wrong:
        raise InvalidArgument(f"cells of VTK's types {wrong} have no topology here; vtkDataSetTriangleFilter helps")
    if not present:
        blocks = []
    elif len(present) == 1 and present[0] in _NAMES:
        name = _NAMES[present[0]]
        blocks = [ElementBlock(name, name, nodes.reshape(-1, TOPOLOGIES[name].nodes))]
    else:
        blocks = [ElementBlock("cells", "mixed", nodes, offsets=offsets, topologies=types)]
    return _with_data(UnstructuredMesh(coordinates=_coordinates(data), blocks=blocks), data)


def _untwisted(types: np.ndarray, offsets: np.ndarray, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not np.isin(types, list(_TWISTED)).any():
        return types, nodes
    types, nodes = types.copy(), nodes.copy()
    for kind, (plain, order) in _TWISTED.items():
        at = offsets[:-1][types == kind]
        nodes[at[:, None] + np.arange(len(order))] = nodes[at[:, None] + np.array(order)]
        types[types == kind] = plain
    return types, nodes


def _coordinates(data: Any) -> np.ndarray:
    points = data.GetPoints()
    return vtk_to_numpy(points.GetData()) if points is not None else np.empty((0, 3), np.float32)


def _with_data(mesh: Any, data: vtkDataSet) -> Any:
    fields: dict[str, Field] = {}
    marks: dict[str, dict[str, np.ndarray]] = {"ghosts": {}, "ids": {}}
    points, cells = data.GetPointData(), data.GetCellData()
    sources = {"element": points} if isinstance(mesh, ParticleMesh) else {"node": points, "element": cells}
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
    return replace(mesh, fields=fields, **marks)
