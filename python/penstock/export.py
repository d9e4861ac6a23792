"""A step as objects of other libraries, which are imported only here and only when asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import InvalidArgument

if TYPE_CHECKING:
    import pandas

    from .reader import ReadStep
    from .variable import Variable


def to_xarray(step: ReadStep, names: Sequence[str] | None) -> Any:
    import xarray

    values, pending = {}, []
    for name in step if names is None else names:
        variable = step[name]
        if variable.kind in ("global_value", "local_value"):
            data = variable[...]
        else:
            data = variable.get()  # all arrays are fetched at once, below
            pending.append(data)
        values[name] = (dims_of(step, name, np.ndim(data)), data, attributes_of(step, name))
    if pending:
        step.wait()
    return xarray.Dataset(values, attrs={**attributes_of(step), "step": step.number})


def dims_of(step: ReadStep, name: str, ndim: int) -> tuple[str, ...]:
    dims = step.attributes.get(f"{name}/dims")
    if dims is None:
        return tuple(f"{name}_dim_{d}" for d in range(ndim))
    dims = (dims,) if isinstance(dims, str) else tuple(dims)
    if len(dims) != ndim:
        raise InvalidArgument(f"the attribute '{name}/dims' names {len(dims)} dimensions, '{name}' has {ndim}")
    return dims


def attributes_of(step: ReadStep, name: str | None = None) -> dict[str, Any]:
    """Those of a variable, or of the stream: what belongs to no variable."""
    if name is not None:
        return {key: value for key, value in step[name].attributes.items() if key != "dims"}
    return {key: value for key, value in step.attributes.items() if key.partition("/")[0] not in step}


def to_pandas(step: ReadStep, names: Sequence[str] | None) -> pandas.DataFrame:
    import pandas

    lengths = {name: _column_lengths(step[name]) for name in (step if names is None else names)}
    of_first = next((each for each in lengths.values() if each), [])
    if names is None:
        lengths = {name: each for name, each in lengths.items() if each == of_first and each}
    if not lengths:
        raise InvalidArgument(f"step {step.number} has no arrays of one dimension, which are the columns of a table")
    for name, each in lengths.items():
        if not each:
            raise InvalidArgument(f"'{name}' is no array of one dimension, and so no column of a table")
        if each != of_first:
            raise InvalidArgument(f"'{name}' has {each} rows (by block), '{next(iter(lengths))}' {of_first}")
    columns = {name: _enqueued(step[name]) for name in lengths}
    step.wait()
    return pandas.DataFrame({name: np.concatenate(blocks) for name, blocks in columns.items()})


def _column_lengths(variable: Variable) -> list[int]:
    """Of the blocks of an array of one dimension, a global one counts as one block; empty for anything else."""
    if variable.kind == "global_array":
        shapes = [variable.shape]
    else:
        shapes = [block.count for block in variable.blocks] if variable.kind == "local_array" else []
    return [shape[0] for shape in shapes] if all(len(shape) == 1 for shape in shapes) else []


def _enqueued(variable: Variable) -> list[np.ndarray]:
    """The blocks of a column, filled by step.wait()."""
    if variable.kind == "global_array":
        return [variable.get()]
    return [variable.get_block(block.number) for block in variable.blocks]


def to_vtk(
    step: ReadStep, names: str | Sequence[str] | None, spacing: Sequence[float] | None, origin: Sequence[float] | None
) -> Any:
    from vtkmodules.util.numpy_support import numpy_to_vtk
    from vtkmodules.vtkCommonDataModel import vtkImageData

    chosen = _chosen(step, names)
    shape = step[chosen[0]].shape
    image = vtkImageData()
    image.SetDimensions(*_in_xyz(shape, 1))
    image.SetSpacing(*_in_3d(spacing if spacing is not None else _attribute(step, chosen[0], "spacing"), 1.0))
    image.SetOrigin(*_in_3d(origin if origin is not None else _attribute(step, chosen[0], "origin"), 0.0))
    arrays = [step[name].get() for name in chosen]
    step.wait()
    for name, array in zip(chosen, arrays, strict=True):
        # VTK counts x fastest, as this array lies. The VTK array keeps it alive.
        points = numpy_to_vtk(_of_vtk_type(name, array).ravel(), deep=False)
        points.SetName(name)
        image.GetPointData().AddArray(points)
    image.GetPointData().SetActiveScalars(chosen[0])
    return image


def _chosen(step: ReadStep, names: str | Sequence[str] | None) -> list[str]:
    if isinstance(names, str):
        names = [names]
    if names is None:
        arrays = [name for name in step if step[name].kind == "global_array"]
        fit = [name for name in arrays if 1 <= step[name].ndim <= 3 and step[name].dtype.kind in "biuf"]
        names = [name for name in fit if step[name].shape == step[fit[0]].shape]
    if not names:
        raise InvalidArgument("the step has no global array of numbers with one to three dimensions")
    for name in names:
        variable = step[name]
        if variable.kind != "global_array" or not 1 <= variable.ndim <= 3:
            raise InvalidArgument(f"'{name}' is no global array of one to three dimensions")
        if variable.shape != step[names[0]].shape:
            raise InvalidArgument(f"'{name}' has the shape {variable.shape}, '{names[0]}' {step[names[0]].shape}")
    return list(names)


def _in_xyz(values: Sequence[Any], missing: Any) -> tuple[Any, ...]:
    """The last index is x."""
    values = tuple(values)[::-1]
    return values + (missing,) * (3 - len(values))


def _in_3d(values: Any, missing: float) -> tuple[float, ...]:
    known = tuple(float(value) for value in np.atleast_1d(values)) if values is not None else ()
    return known + (missing,) * (3 - len(known))


def _attribute(step: ReadStep, name: str, key: str) -> Any:
    return step.attributes.get(f"{name}/{key}", step.attributes.get(key))


def _of_vtk_type(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "c":
        raise InvalidArgument(f"'{name}' is complex, which VTK images are not")
    if array.dtype == np.bool_:
        return array.view(np.uint8)
    return array.astype(np.float32) if array.dtype.itemsize == 2 and array.dtype.kind not in "iu" else array
