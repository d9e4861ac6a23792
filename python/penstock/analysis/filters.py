"""The filters that pipelines name, and those that cut geometry out of meshes."""

# ruff: noqa: RUF009  (records are frozen)
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import schema
from .chain import Filter, Survey, Table, apply_chain, on_own_cells
from .fragments import Fragments, FragmentTable
from .sampling import Histogram, Probe, Resample, Statistics
from .schema import Problem, listing, number, only_one, option, record, text, vector, whole
from .streamlines import Streamlines

__all__ = ["FILTERS", "Clip", "Contour", "Filter", "Slice", "Survey", "Table", "Threshold", "apply_chain"]


@dataclass(frozen=True)
class Slice(Filter):
    """The mesh in a plane. at: along the normal, as from the origin; origin: a point of it; default: the centre."""

    key: ClassVar[str] = "slice"
    normal: tuple[Any, ...] = option(schema.direction, (0.0, 0.0, 1.0))
    at: float | None = option(number(), None)
    origin: tuple[Any, ...] | None = option(vector, None)

    def __post_init__(self) -> None:
        only_one(self, "at", "origin", needed=False)

    def apply(self, parts: list[Any], survey: Survey) -> Any:
        from vtkmodules.vtkCommonDataModel import vtkPlane
        from vtkmodules.vtkFiltersCore import vtkCutter

        from .parts import run

        normal = np.array(self.normal) / np.linalg.norm(self.normal)
        at = self.at if self.at is not None else normal @ (survey.center if self.origin is None else self.origin)
        corners = np.where(normal > 0, survey.low, survey.high), np.where(normal > 0, survey.high, survey.low)
        low, high = (float(normal @ corner) for corner in corners)
        if high - low <= 1e-9 * survey.diagonal:  # a flat mesh in a plane of that direction
            return on_own_cells(parts, lambda part: part if abs(at - low) <= 1e-6 * survey.diagonal else None)
        # Off the nodes by a hair: a plane in them would be in the cells of both sides, or of none at the mesh's end.
        tiny = 1e-9 * (high - low)
        at += tiny if at < high - tiny else -tiny if at <= high else 0.0
        plane = vtkPlane()
        plane.SetOrigin(*(normal * at))
        plane.SetNormal(*normal)
        cut = vtkCutter()
        cut.SetCutFunction(plane)
        cut.GenerateCutScalarsOff()
        return on_own_cells(parts, lambda part: run(cut, part))


@dataclass(frozen=True)
class Contour(Filter):
    """Where the field has a value, of these values, or of `count` values evenly in its range (default: the middle).

    In 3-D the surface has the array Normals, from the field's gradient, which points to where the field falls. A field
    of cells is taken to the points; of vectors it is their length. normals: false leaves the normals out.
    """

    key: ClassVar[str] = "contour"
    makes: ClassVar[frozenset[str]] = frozenset(["Normals"])
    field: str = option(text)
    value: float | None = option(number(), None)
    values: tuple[Any, ...] | None = option(listing(number(), 1, 100), None)
    count: int | None = option(whole(1, 100), None)
    normals: bool = option(schema.boolean, True)

    def __post_init__(self) -> None:
        only_one(self, "value", "values", "count", needed=False)

    def fields(self) -> frozenset[str]:
        return frozenset([self.field])

    def ranges(self) -> frozenset[str]:
        return self.fields() if self.value is None and self.values is None else frozenset()

    def levels(self, survey: Survey) -> list[float]:
        if self.value is not None or self.values is not None:
            return list(self.values or (self.value,))
        limits = survey.ranges[self.field]
        count = self.count or 1
        return [] if limits is None else [float(v) for v in np.linspace(*limits, count + 2)[1:-1]]

    def apply(self, parts: list[Any], survey: Survey) -> Any:
        from vtkmodules.vtkFiltersCore import vtkContourFilter

        from .parts import association, run, with_points

        contour = vtkContourFilter()
        contour.ComputeNormalsOff()
        contour.ComputeScalarsOn()
        contour.SetInputArrayToProcess(0, 0, 0, 0, self.field)
        for place, level in enumerate(self.levels(survey)):
            contour.SetValue(place, level)
        parts = [with_points(part, self.field) for part in parts if association(part, self.field) is not None]
        parts = [_with_length(part, self.field) for part in parts]
        if self.normals:
            parts = [_with_gradient(part, self.field) for part in parts]
        return [_with_normals(lines) for lines in on_own_cells(parts, lambda part: run(contour, _unless_flat(part)))]


_GRADIENT = "penstock:gradient"


def _unless_flat(part: Any) -> Any:
    """A flat image as an unstructured grid: in an image, VTK's contours lose all fields but their own."""
    from vtkmodules.vtkCommonDataModel import vtkImageData
    from vtkmodules.vtkFiltersCore import vtkAppendFilter

    from .parts import run

    flat = isinstance(part, vtkImageData) and part.GetMaxSpatialDimension() < 3 and part.GetDataDimension() < 3
    return run(vtkAppendFilter(), part) if flat else part


def _with_length(part: Any, name: str) -> Any:
    """The part with the length of vectors in their place."""
    from .parts import POINT, copy_of, magnitude, set_array, values

    array = values(part, name)
    if array.ndim > 1:
        part = copy_of(part)
        set_array(part, POINT, name, magnitude(array))
    return part


def _with_gradient(part: Any, name: str) -> Any:
    """Before ghosts are removed, so that gradients at borders are those of the whole."""
    from vtkmodules.vtkCommonDataModel import vtkImageData, vtkPolyData
    from vtkmodules.vtkFiltersGeneral import vtkGradientFilter

    from .parts import POINT, copy_of, run, set_array, values

    if isinstance(part, vtkPolyData) or part.GetNumberOfCells() == 0 or part.GetMaxSpatialDimension() < 3:
        return part
    if isinstance(part, vtkImageData) and part.GetDirectionMatrix().IsIdentity():  # as VTK, in a fifth of its time
        field = values(part, name).astype(np.float32, copy=False).reshape(part.GetDimensions()[::-1])
        along = np.gradient(field, *part.GetSpacing()[::-1])
        part = copy_of(part)
        set_array(part, POINT, _GRADIENT, np.stack([g.ravel() for g in along[::-1]], axis=1))
        return part
    gradient = vtkGradientFilter()
    gradient.SetInputArrayToProcess(0, 0, 0, 0, name)
    gradient.SetResultArrayName(_GRADIENT)
    return copy_of(run(gradient, part))


def _with_normals(surface: Any) -> Any:
    from .parts import POINT, set_array, values

    gradient = values(surface, _GRADIENT)
    if gradient is not None:
        length = np.linalg.norm(gradient, axis=1, keepdims=True)
        normals = -gradient / np.where(length > 0, length, 1)
        surface.GetPointData().RemoveArray(_GRADIENT)
        set_array(surface, POINT, "Normals", normals.astype(np.float32))
        surface.GetPointData().SetActiveNormals("Normals")
    return surface


@dataclass(frozen=True)
class Threshold(Filter):
    """The cells where the field lies from min to max (of a vector: its length); a field of points: at all points."""

    key: ClassVar[str] = "threshold"
    field: str = option(text)
    min: float | None = option(number(), None)
    max: float | None = option(number(), None)

    def __post_init__(self) -> None:
        if self.min is None and self.max is None:
            raise Problem("min or max is needed")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise Problem(f"min {self.min:g} is above max {self.max:g}")

    def fields(self) -> frozenset[str]:
        return frozenset([self.field])

    def apply(self, parts: list[Any], survey: Survey) -> Any:
        from vtkmodules.vtkFiltersCore import vtkThreshold

        from .parts import association, copy_of, owned, run

        kept = []
        for part in (owned(part, keep_points=True) for part in parts):
            which = association(part, self.field) if part is not None else None
            if which is None:
                continue
            threshold = vtkThreshold()
            threshold.SetInputArrayToProcess(0, 0, 0, which, self.field)
            threshold.SetComponentModeToUseSelected()
            components = part.GetAttributes(which).GetArray(self.field).GetNumberOfComponents()
            threshold.SetSelectedComponent(components if components > 1 else 0)  # one too many means the length
            threshold.SetLowerThreshold(-np.inf if self.min is None else self.min)
            threshold.SetUpperThreshold(np.inf if self.max is None else self.max)
            kept.append(copy_of(run(threshold, part)))
        return [part for part in kept if part.GetNumberOfCells()]


@dataclass(frozen=True)
class Plane:
    """Inside is the side that the normal points away from. origin: default the centre of the mesh."""

    normal: tuple[Any, ...] = option(schema.direction, (1.0, 0.0, 0.0))
    origin: tuple[Any, ...] | None = option(vector, None)

    def function(self, survey: Survey) -> Any:
        from vtkmodules.vtkCommonDataModel import vtkPlane

        plane = vtkPlane()
        plane.SetNormal(*(np.array(self.normal) / np.linalg.norm(self.normal)))
        plane.SetOrigin(*(survey.center if self.origin is None else self.origin))
        return plane


@dataclass(frozen=True)
class Sphere:
    radius: float = option(number(above=0))
    center: tuple[Any, ...] | None = option(vector, None)

    def function(self, survey: Survey) -> Any:
        from vtkmodules.vtkCommonDataModel import vtkSphere

        sphere = vtkSphere()
        sphere.SetRadius(self.radius)
        sphere.SetCenter(*(survey.center if self.center is None else self.center))
        return sphere


@dataclass(frozen=True)
class Box:
    min: tuple[Any, ...] = option(vector)
    max: tuple[Any, ...] = option(vector)

    def __post_init__(self) -> None:
        if not all(low < high for low, high in zip(self.min, self.max, strict=True)):
            raise Problem("min must be below max in each direction")

    def function(self, survey: Survey) -> Any:
        from vtkmodules.vtkCommonDataModel import vtkBox

        box = vtkBox()
        box.SetXMin(*self.min)
        box.SetXMax(*self.max)
        return box


@dataclass(frozen=True)
class Clip(Filter):
    """The mesh inside (or outside) of a plane, sphere or box: cells are cut. A surface stays one."""

    key: ClassVar[str] = "clip"
    plane: Plane | None = option(record(Plane, short="normal"), None)
    sphere: Sphere | None = option(record(Sphere, short="radius"), None)
    box: Box | None = option(record(Box), None)
    keep: str = option(schema.choice("inside", "outside"), "inside")

    def __post_init__(self) -> None:
        only_one(self, "plane", "sphere", "box")

    def apply(self, parts: list[Any], survey: Survey) -> Any:
        from vtkmodules.vtkCommonDataModel import vtkPolyData
        from vtkmodules.vtkFiltersCore import vtkClipPolyData
        from vtkmodules.vtkFiltersGeneral import vtkTableBasedClipDataSet

        from .parts import run

        shape: Any = self.plane or self.sphere or self.box
        function = shape.function(survey)

        def clipped(part: Any) -> Any:
            clip = vtkClipPolyData() if isinstance(part, vtkPolyData) else vtkTableBasedClipDataSet()
            clip.SetClipFunction(function)
            clip.SetInsideOut(self.keep == "inside")
            return run(clip, part)

        return on_own_cells(parts, clipped)


# The filters by name: the class, and the option that a value which is no mapping stands for.
FILTERS: dict[str, tuple[type[Filter], str | None]] = {
    kind.key: (kind, short)
    for kind, short in (
        (Slice, "normal"),
        (Contour, "field"),
        (Threshold, "field"),
        (Clip, None),
        (Probe, "points"),
        (Streamlines, "field"),
        (Histogram, "field"),
        (Statistics, "fields"),
        (Resample, "size"),
        (Fragments, "field"),
        (FragmentTable, "field"),
    )
}
