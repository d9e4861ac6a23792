"""Scenes: pictures of the results of chains, composed over the ranks of an analysis.

Each rank draws its parts with one camera, which shows the whole of the meshes, and one range of colours; a compositor
makes one picture of these. What is opaque is exact in that. What one sees through is composed by whole ranks, in the
order in which they lie behind each other: that order exists where planes separate them, as the partitioners of
structured meshes cut. Where a filter cuts a mesh, a surface that one sees through shows the borders of parts.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..cohort import Cohort, rank_of
from ..errors import InvalidArgument, NotFound
from ..names import nearest
from .agreement import exchange, together
from .chain import Parts, apply_chain
from .compositor import Compositor, over
from .expressions import Values
from .files import whole_file
from .filters import Slice
from .pipeline import the_mesh
from .records import Plot, Scene, fill
from .view import Boxes, View, view_of

if TYPE_CHECKING:
    from .canvas import Annotator, Canvas, Look

PLAIN_COLORS = ((0.60, 0.66, 0.74), (0.83, 0.66, 0.45), (0.49, 0.68, 0.62), (0.72, 0.52, 0.55))
MAX_BARS = 4

Inputs = Mapping[str, Sequence[Any]]


@dataclass
class Facts:
    """What a rank, or all of them, know of a plot's mesh and result.

    bounds: (2, 3), low and high x, y, z of the mesh's own cells; None: no cells. limits: of the colours' values in the
    result; whole: these are integers. fields: of the result; None: no result. points: of the result. spacing: the
    least, of images.
    """

    bounds: np.ndarray | None = None
    limits: tuple[float, float] | None = None
    whole: bool = False
    fields: frozenset[str] | None = None
    points: int = 0
    spacing: float = np.inf

    @staticmethod
    def joined(facts: Sequence[Facts]) -> Facts:
        bounds = [each.bounds for each in facts if each.bounds is not None]
        limits = [each.limits for each in facts if each.limits is not None]
        whole = [each.whole for each in facts if each.limits is not None]
        fields = [each.fields for each in facts if each.fields is not None]
        return Facts(
            np.array([np.min(bounds, axis=0)[0], np.max(bounds, axis=0)[1]]) if bounds else None,
            (min(low for low, _ in limits), max(high for _, high in limits)) if limits else None,
            bool(whole) and all(whole),
            frozenset().union(*fields) if fields else None,
            sum(each.points for each in facts),
            min((each.spacing for each in facts), default=np.inf),
        )


class SceneRenderer:
    """Draws the pictures of one scene. All ranks make it, and make the same calls, from one thread.

    folder: where the files go. context: a penstock.Context for the stream between the ranks; None: the default one.
    seconds: the time spent so far, by what it was spent on.
    """

    def __init__(self, scene: Scene, folder: str | os.PathLike[str], cohort: Cohort | None = None, context: Any = None):
        self.scene = scene
        self.folder = Path(folder)
        self.seconds = dict.fromkeys(("filter", "render", "compose", "write"), 0.0)
        self._cohort = cohort if cohort is not None and cohort.size > 1 else None
        self._context = context
        self._rank = rank_of(self._cohort)
        self._see_through = any(_see_through(plot) for plot in scene.plots)
        self._compositor: Compositor | None = None
        self._canvas: Canvas | None = None
        self._annotator: Annotator | None = None

    def render(self, inputs: Inputs, values: Values, boxes: Mapping[str, Boxes] | None = None) -> Path:
        """Writes the picture of a step and returns its path, on all ranks. Collective.

        As picture(). OSError, with the path, on all ranks when rank 0 cannot write.
        """
        picture = self.picture(inputs, values, boxes)
        path = self.folder / fill(self.scene.file, int(values.cycle), float(values.time), self.scene.name)

        def write(_: Any) -> None:
            from .canvas import png

            with whole_file(path) as temporary:
                assert picture is not None  # of rank 0
                temporary.write_bytes(png(picture))

        with self._timed("write"):
            exchange(self._cohort, lambda: None, write)
        return path

    def picture(self, inputs: Inputs, values: Values, boxes: Mapping[str, Boxes] | None = None) -> np.ndarray | None:
        """The picture, uint8 (height, width, 3), on rank 0; None elsewhere. Collective.

        inputs: this rank's vtkDataSets of each mesh, maybe none; the names are those of all ranks. boxes: low and high
        corner of each rank's part, by mesh, for the order of what one sees through; default: those of the parts.

        Raises on all ranks what one raises: NotFound for a mesh or field that is not there, InvalidArgument for a
        volume of what is no uniform mesh, Unsupported where VTK cannot draw.
        """
        cohort, scene = self._cohort, self.scene
        with self._timed("filter"):
            starts, results = together(cohort, lambda: self._results(inputs))
            by_rank = exchange(cohort, lambda: list(map(_facts, scene.plots, starts, results)), self._checked)
        facts = [Facts.joined(each) for each in zip(*by_rank, strict=True)]
        ranges = self._ranges(facts)
        bars = self._bars(ranges, facts)
        label = fill(scene.label, int(values.cycle), float(values.time), scene.name)
        whole = Facts.joined(facts).bounds
        view = None if whole is None else view_of(whole, scene.camera, scene.size, bool(bars), bool(label))

        images: list[Any] = []
        if view is not None and whole is not None:
            shown = list(zip(scene.plots, results, ranges, facts, strict=True))
            with self._timed("render"):
                color, depth = together(cohort, lambda: self._draw(shown, view, whole))
            with self._timed("compose"):
                opaque, before = self._compose().opaque(color, depth, self._see_through)
                images.append(opaque)
        if view is not None and whole is not None and self._see_through:
            with self._timed("render"):
                color, _ = together(cohort, lambda: self._draw(shown, view, whole, before))
            with self._timed("compose"):
                order = view.back_to_front(self._boxes(by_rank, boxes or {}, inputs))
                images.append(self._compose().layers(color, order))
        with self._timed("write"):
            return together(cohort, lambda: self._finish(images, view, bars, label) if self._rank == 0 else None)

    def close(self) -> None:
        """Collective. Twice does nothing."""
        if self._compositor is not None:
            self._compositor.close()
        self._canvas = self._annotator = None

    @contextlib.contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - started

    # --------------------------------------------------------------------------------------------------------- parts

    def _results(self, inputs: Inputs) -> tuple[list[Sequence[Any]], list[Any]]:
        """The parts that each plot starts from, and what its chain makes of them."""
        plots = self.scene.plots
        starts = [inputs[the_mesh(plot.mesh, list(inputs))] for plot in plots]
        results = [apply_chain(plot.filters, s, self._cohort) for plot, s in zip(plots, starts, strict=True)]
        return starts, results

    def _checked(self, by_rank: list[list[Facts]]) -> list[list[Facts]]:
        for plot, *facts in zip(self.scene.plots, *by_rank, strict=True):
            fields, name = Facts.joined(facts).fields, plot.volume or plot.color
            if fields is not None and name is not None and name not in fields:
                raise NotFound(f"there is no field '{name}'{nearest(name, sorted(fields))}")
        return by_rank

    def _ranges(self, facts: Sequence[Facts]) -> list[tuple[float, float] | None]:
        """Of the colours of each plot: its own, or that of the field in all plots without one."""
        plots = self.scene.plots
        names = [plot.volume or plot.color for plot in plots]
        found: list[tuple[float, float] | None] = []
        for plot, name in zip(plots, names, strict=True):
            same = [f for f, n, p in zip(facts, names, plots, strict=True) if n == name and p.range is None]
            known = Facts.joined(same)
            low, high = plot.range or known.limits or (0.0, 1.0)
            if high - low <= (0 if known.whole else 1e-6 * max(abs(low), abs(high))):
                half = 0.5 if known.whole else 0.5 * (abs(low) or 1.0)
                low, high = low - half, high + half
            found.append(None if name is None else (low, high))
        return found

    def _bars(
        self, ranges: Sequence[tuple[float, float] | None], facts: Sequence[Facts]
    ) -> list[tuple[str, float, float, bool]]:
        """What canvas.Bar holds, of different fields and ranges."""
        names = [plot.volume or plot.color for plot in self.scene.plots]
        found: dict[tuple[str, float, float, bool], None] = {}
        for name, limits in zip(names, ranges, strict=True):
            if name is not None and limits is not None:
                same = Facts.joined([each for each, other in zip(facts, names, strict=True) if other == name])
                found[(name, *limits, same.whole)] = None
        return list(found)[:MAX_BARS]

    def _boxes(self, by_rank: list[list[Facts]], boxes: Mapping[str, Boxes], inputs: Inputs) -> Boxes:
        """Of the ranks, for the mesh of the first plot that one sees through."""
        first = next(n for n, plot in enumerate(self.scene.plots) if _see_through(plot))
        own = [facts[first].bounds for facts in by_rank]
        mesh = the_mesh(self.scene.plots[first].mesh, list(inputs))
        return boxes.get(mesh) or [_corners(np.zeros((2, 3)) if each is None else each) for each in own]

    # ------------------------------------------------------------------------------------------------------- drawing

    def _draw(
        self, shown: Sequence[tuple[Any, ...]], view: View, whole: np.ndarray, before: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """What is opaque, on rank 0 with the outline of `whole`; or what one sees through, before that depth."""
        from .canvas import Canvas, outline

        if self._canvas is None:
            self._canvas = Canvas(self.scene.size)
        props = []
        for number, (plot, parts, limits, facts) in enumerate(shown):
            if _see_through(plot) == (before is not None) and facts.bounds is not None:
                props += self._props(plot, parts, self._look(plot, number, limits, view), facts, view)
        bare = not any(p.filters or p.volume or p.points for p in self.scene.plots)  # a bare mesh is its own outline
        if self._rank == 0 and before is None and not bare:
            props.append(outline(whole))
        if not props:
            shape = self.scene.size[::-1]
            return np.zeros((*shape, 4), np.uint8), np.ones(shape, np.float32)
        return self._canvas.draw(props, view, before)

    def _look(self, plot: Plot, number: int, limits: tuple[float, float] | None, view: View) -> Look:
        from .canvas import Look

        # In a plane, light would only change the colours.
        flat = plot.points is None and (view.scale is not None or any(isinstance(f, Slice) for f in plot.filters[-1:]))
        return Look(limits, PLAIN_COLORS[number % len(PLAIN_COLORS)], plot.opacity, lit=not flat)

    def _props(self, plot: Plot, parts: Sequence[Any], look: Look, facts: Facts, view: View) -> list[Any]:
        from . import canvas
        from .parts import association, owned, with_points

        bounds = np.zeros((2, 3)) if facts.bounds is None else facts.bounds
        diagonal = float(np.linalg.norm(bounds[1] - bounds[0]))
        if plot.volume is not None:
            parts = [part for part in parts if association(part, plot.volume) is not None]
            parts = [part for part in (owned(with_points(part, plot.volume)) for part in parts) if part is not None]
            order = view.back_to_front([_corners(_box(part)) for part in parts])
            step = max(min(facts.spacing / 2, diagonal / 250), diagonal / 1000)
            return [canvas.volume(parts[n], plot.volume, look, diagonal / 20, step) for n in order]
        balls = [part for part in parts if plot.points is not None or _is_particles(part)]
        faces = [canvas.surface(part, whole=plot.opacity == 1) for part in parts if part not in balls]
        drops = [canvas.points(part, plot.color) for part in balls]
        radius = plot.points.radius if plot.points is not None else None
        return [
            *canvas.actors([each for each in faces if each is not None], plot.color, look),
            *canvas.actors(
                [each for each in drops if each is not None],
                plot.color,
                replace(look, lit=True),
                radius or ball_radius(bounds, facts.points),
            ),
        ]

    # ----------------------------------------------------------------------------------------------------- composing

    def _compose(self) -> Compositor:
        if self._compositor is None:
            self._compositor = Compositor(self.scene.size, self._cohort, self._context)
        return self._compositor

    def _finish(
        self, images: Sequence[np.ndarray], view: View | None, bars: Sequence[tuple[Any, ...]], label: str
    ) -> np.ndarray:
        from .canvas import Annotator, Bar, background

        if self._annotator is None:
            self._annotator = Annotator(self.scene.size)
        picture = over([background(self.scene.size), *images])
        return self._annotator.annotate(picture, view, [Bar(*bar) for bar in bars], label)


def _see_through(plot: Plot) -> bool:
    return plot.volume is not None or plot.opacity < 1


def _corners(box: np.ndarray) -> tuple[list[float], list[float]]:
    low, high = box.tolist()
    return low, high


def _is_particles(part: Any) -> bool:
    return (
        bool(part.IsA("vtkPolyData")) and part.GetNumberOfVerts() == part.GetNumberOfCells() == part.GetNumberOfPoints()
    )


def _box(part: Any) -> np.ndarray:
    return np.reshape(part.GetBounds(), (3, 2)).T


def _facts(plot: Plot, start: Sequence[Any], result: Sequence[Any]) -> Facts:
    from .parts import field_names, magnitude, owned, owned_values

    if plot.filters and plot.filters[0].takes_blocks and isinstance(start, Parts):
        boxes = [Facts(bounds=start.source.bounds())]
    else:
        own = (owned(part) for part in start if part is not None)
        boxes = [Facts(bounds=_box(part)) for part in own if part is not None]
    name = plot.volume or plot.color
    arrays = [owned_values(part, name) for part in result] if name is not None else []
    finite = [a[np.isfinite(a)] for a in (magnitude(array) for array in arrays if array is not None)]
    spacing = [np.inf]
    for part in result if plot.volume is not None else ():
        if not part.IsA("vtkImageData"):
            raise InvalidArgument(
                f"volume: {plot.volume}: only a uniform mesh can be seen through, not a {part.GetClassName()}; the "
                "filter `resample` makes one of any mesh"
            )
        spacing += [d for d, n in zip(part.GetSpacing(), part.GetDimensions(), strict=True) if n > 1]
    colors = [Facts(limits=(float(a.min()), float(a.max())), whole=a.dtype.kind in "iu") for a in finite if a.size]
    return Facts(
        Facts.joined(boxes).bounds,
        Facts.joined(colors).limits,
        Facts.joined(colors).whole,
        frozenset(name for part in result for name in field_names(part)) if result else None,
        sum(part.GetNumberOfPoints() for part in result),
        float(min(spacing)),
    )


def ball_radius(bounds: np.ndarray, count: int) -> float:
    """A third of the distance between so many points, evenly in the box; at most a 60th of its diagonal."""
    sides = bounds[1] - bounds[0]
    diagonal = float(np.linalg.norm(sides)) or 1.0
    sides = sides[sides > 1e-9 * diagonal]
    apart = (float(np.prod(sides)) / max(count, 1)) ** (1 / max(len(sides), 1))
    return float(np.clip(apart / 3, diagonal / 1000, diagonal / 60))
