"""A mesh that is cut into parts over ranks, with layers of ghosts, and filters over the parts."""

from itertools import pairwise

import numpy as np
from penstock.analysis import parts as helpers
from penstock.analysis.chain import apply_chain
from penstock.analysis.filters import FILTERS
from penstock.analysis.schema import Place, Source, read_kind, record
from ranks import on_ranks
from vtkmodules.vtkCommonDataModel import vtkImageData, vtkRectilinearGrid, vtkStructuredGrid
from vtkmodules.vtkFiltersCore import vtkAppendFilter

POINT, CELL = helpers.POINT, helpers.CELL
SHAPE = (13, 11, 9)  # points in x, y, z
SPACING = (0.5, 1.0, 0.25)
ORIGIN = (-3.0, 2.0, 0.5)


def link(name, **options):
    """A filter from its options as YAML has them."""
    source = Source("{}", "test.yaml")
    result = read_kind(record(*FILTERS[name]), {k.rstrip("_"): v for k, v in options.items()}, Place(source))
    source.check()
    return result


def coordinates(shape=SHAPE, origin=ORIGIN, spacing=SPACING):
    """x, y, z of all points, each z × y × x."""
    axes = [o + s * np.arange(n) for n, o, s in zip(shape, origin, spacing, strict=True)]
    return np.meshgrid(*axes, indexing="ij")[0].T, *(a.T for a in np.meshgrid(*axes, indexing="ij")[1:])


def piece(fields, low, high, shape, ghosts, origin=ORIGIN, spacing=SPACING, kind="image"):
    """The cells low..high (x, y, z) of a whole as a part, with layers of ghosts. fields: z × y × x, nodes or cells."""
    cells = np.maximum(np.array(shape) - 1, 1)
    first, last = np.maximum(np.array(low) - ghosts, 0), np.minimum(np.array(high) + ghosts, cells)
    flat = np.array(shape) == 1
    image = vtkImageData()
    image.SetOrigin(*origin)
    image.SetSpacing(*spacing)
    image.SetExtent(*(int(n) for a in range(3) for n in (first[a], first[a] if flat[a] else last[a])))
    nodes = tuple(slice(first[a], (first[a] if flat[a] else last[a]) + 1) for a in (2, 1, 0))
    inner = tuple(slice(first[a], last[a]) for a in (2, 1, 0))
    for name, values in fields.items():
        at_nodes = values.shape[:3] == tuple(shape[::-1])
        values = values[nodes if at_nodes else inner]
        helpers.set_array(image, POINT if at_nodes else CELL, name, values.reshape(-1, *values.shape[3:]))
    if ghosts:
        number = np.stack(np.meshgrid(*(np.arange(first[a], last[a]) for a in range(3)), indexing="ij"), -1)
        mine = ((number >= low) & (number < high)).all(axis=-1)
        helpers.set_array(image, CELL, "vtkGhostType", (~mine).T.ravel().astype(np.uint8))
        node = np.stack(np.meshgrid(*(np.arange(n.start, n.stop) for n in nodes[::-1]), indexing="ij"), -1)
        top = np.where(np.array(high) == cells, np.array(high) + 1, high)  # a node at a border is the upper part's
        mine = ((node >= low) & (node < top)).all(axis=-1)
        helpers.set_array(image, POINT, "vtkGhostType", (~mine).T.ravel().astype(np.uint8))
    return CONVERT[kind](image)


def rectilinear(image):
    grid = vtkRectilinearGrid()
    extent, origin, spacing = image.GetExtent(), image.GetOrigin(), image.GetSpacing()
    grid.SetExtent(extent)
    for axis, name in enumerate("XYZ"):
        values = origin[axis] + spacing[axis] * np.arange(extent[2 * axis], extent[2 * axis + 1] + 1)
        array = helpers.numpy_to_vtk(values, deep=True)
        getattr(grid, f"Set{name}Coordinates")(array)
    return attributes_of(image, grid)


def structured(image):
    grid = vtkStructuredGrid()
    grid.SetExtent(image.GetExtent())
    grid.SetPoints(unstructured(image).GetPoints())
    return attributes_of(image, grid)


def unstructured(image):
    append = vtkAppendFilter()
    append.SetOutputPointsPrecision(1)
    return helpers.copy_of(helpers.run(append, image))


def attributes_of(image, grid):
    for which in (POINT, CELL):
        grid.GetAttributes(which).ShallowCopy(image.GetAttributes(which))
    return grid


CONVERT = {"image": lambda i: i, "rectilinear": rectilinear, "structured": structured, "unstructured": unstructured}


def divided(fields, size, ghosts=1, shape=SHAPE, kind="image", per_rank=1, **more):
    """For each rank its parts: the whole cut along x and y into size × per_rank boxes, of different sizes."""
    cells = np.maximum(np.array(shape) - 1, 1)
    count = size * per_rank
    rows = 2 if count % 2 == 0 and cells[1] > 1 else 1
    xs = np.linspace(0, cells[0], count // rows + 1).astype(int)
    ys = [0, cells[1] // 3, cells[1]] if rows == 2 else [0, cells[1]]
    boxes = [((x0, y0, 0), (x1, y1, cells[2])) for x0, x1 in pairwise(xs)
             for y0, y1 in pairwise(ys)]  # fmt: skip
    made = [piece(fields, low, high, shape, ghosts, kind=kind, **more) for low, high in boxes]
    return [made[per_rank * r : per_rank * (r + 1)] for r in range(size)]


def whole(fields, shape=SHAPE, **more):
    return piece(fields, (0, 0, 0), np.maximum(np.array(shape) - 1, 1), shape, 0, **more)


def run_on(parts, *filters):
    """The results by rank, for parts by rank."""
    return on_ranks(len(parts), lambda cohort: apply_chain(filters, parts[cohort.rank], cohort))


def flat(results):
    return [part for parts in results for part in parts]


def fields_of(seed=0, shape=SHAPE):
    random = np.random.default_rng(seed)
    return {"U": random.normal(size=shape[::-1]), "V": random.normal(size=shape[::-1]),
            "C": random.normal(size=tuple(max(n - 1, 1) for n in shape[::-1]))}  # fmt: skip
