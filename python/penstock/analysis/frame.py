"""One frame of an analysis: what its channels hold at one step, loaded as far as it is asked for."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidArgument, NotFound
from ..names import nearest
from .amr import Batch, Neighbourhood
from .attribute import LackingMesh
from .chain import Parts, Result
from .channels import Channel, Channels
from .description import AmrDescription, MeshDescription
from .meshes import Mesh
from .partition import BoxPart
from .pipeline import the_mesh
from .requests import steering_value

if TYPE_CHECKING:
    from vtkmodules.vtkCommonDataModel import vtkDataObject, vtkDataSet

    from ..reader import ReadStep


class Clock:
    """Seconds by what they were spent on."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[what] += time.perf_counter() - begun


class Lacking(NotFound):
    """A step does not hold the mesh or the field that was asked for."""

    leaves_out = True  # the step, where no rank has another error (agreement.exchange)


class Frame:
    """What scripts get as `step`, and pipelines work on; valid until the next one.

    cycle, time: the simulation's. writer: which run of it, where that is known. live: it may hear requests. cohort:
    the ranks of the analysis, None for one; its rule is that of the module penstock.cohort. output: the folder of
    results. values: what belongs to no mesh (the reduction fields of a region), arrays of one row; expressions take
    them as fields. With one channel, meshes have their own names; with several, they are called CHANNEL/MESH.
    """

    def __init__(self, channels: Channels, cohort: Any, output: Path, clock: Clock):
        self.cycle = channels.lead.cycle
        self.time = channels.lead.time
        self.number = channels.lead.number  # of the leading channel's step
        self.cohort = cohort
        self.output = output
        self.answer = _answer(channels.lead.step)  # the simulation's: docs/internals/coprocessing.md
        self.steering: dict[str, Any] = {}
        self.writer = channels.writer
        self.live = channels.lead.live
        self._clock = clock
        self._found: dict[str, tuple[Channel, MeshDescription]] = {}
        self._lacking: dict[str, LackingMesh] = {}  # meshes that the step names and does not hold
        for channel in channels.present:
            prefix = "" if len(channels.all) == 1 else f"{channel.name.name}/"
            self._found |= {prefix + name: (channel, each) for name, each in channel.meshes.items()}
            self._lacking |= {prefix + name: each for name, each in channel.lacking.items()}
        self.values: dict[str, np.ndarray] = {}
        fields = self.known_fields
        self.values = {
            name: value for channel in channels.present for name, value in channel.values.items() if name not in fields
        }
        self.complete = all(each in channels.present and not each.empty for each in channels.all)
        self._declared = all(each.declared for each in channels.present)
        self._loaded: dict[str, Mesh] = {}
        self._names: dict[str, set[str]] = {}  # fields of what is loaded
        self._converted: dict[str, list[vtkDataSet]] = {}
        self._made: dict[Any, Any] = {}
        self._kept = channels.kept

    @property
    def names_all(self) -> bool:
        """known_fields and known_meshes are all that any step may hold."""
        return self.complete and self._declared

    def lacks_fields(self, fields: Iterable[str], of_any_mesh: bool = False) -> str:
        """What this step lacks of these fields; empty if nothing.

        Every mesh that names a field has to hold it, as reductions are over all of them; of_any_mesh: one mesh is
        enough. Where a channel has no step in this frame, or one that says that nothing was found, unknown fields may
        belong to the absent channel.
        """
        known = self.known_fields
        for name in sorted(set(fields) - (self.held_fields if of_any_mesh else self.whole_fields)):
            if name in known or self.complete:
                whys = [each.why for each in self._lacking.values() if name in each.fields]
                whys += [f"mesh '{mesh}': there is no field '{name}'" for mesh in self._without(name)]
                return whys[0] if whys else f"there is no field '{name}'{nearest(name, sorted(known))}"
        return ""

    def _without(self, field: str) -> list[str]:
        """The meshes that name a field which this step does not hold of them."""
        return [name for name, (_, each) in self._found.items() if field in each.absent]

    def lacks(self, mesh: str | None, fields: Iterable[str] = ()) -> str:
        """What this step lacks of a mesh with these fields; empty if nothing.

        Raises InvalidArgument: none is named of several.
        """
        if mesh in self._lacking:
            return self._lacking[mesh].why
        if self.lacks_meshes and (mesh is None or not self.meshes):
            return self.lacks_meshes
        try:
            description = self._found[mesh if mesh in self._found else the_mesh(mesh, self.meshes)][1]
        except NotFound as error:
            return str(error)
        for name in sorted(set(fields) - description.fields.keys()):
            more = "" if name in description.absent else nearest(name, sorted(description.fields))
            return f"mesh '{description.name}': there is no field '{name}'{more}"
        return ""

    @property
    def lacks_meshes(self) -> str:
        """Why this step lacks a mesh that it names, or all; empty if it has all that it names."""
        return next((each.why for each in self._lacking.values()), "" if self.meshes else "there is no mesh")

    @property
    def meshes(self) -> list[str]:
        """The names of the meshes; blocks of a multiblock are within it."""
        inner = {
            name.rpartition("/")[0] + "/" * ("/" in name) + block
            for name, (_, each) in self._found.items()
            for block in getattr(each, "blocks", ())
            if each.type == "multiblock"
        }
        return [name for name in self._found if name not in inner]

    def fields(self, mesh: str | None = None) -> list[str]:
        """The names of the fields that this step holds of a mesh; the only mesh may go without a name."""
        return list(self._describe(mesh)[2].fields)

    @property
    def held_fields(self) -> set[str]:
        """The names of the fields that this step holds, of all meshes, and of its values."""
        return {name for mesh in self.meshes for name in self.fields(mesh)} | self.values.keys()

    @property
    def known_meshes(self) -> set[str]:
        """The names of the meshes, and of those that the step names and does not hold."""
        return {*self.meshes, *self._lacking}

    @property
    def whole_fields(self) -> set[str]:
        """Of held_fields, those that this step holds of every mesh that names them: reductions take these."""
        return self.held_fields - self._absent_fields

    @property
    def known_fields(self) -> set[str]:
        """The names of all fields of all meshes, those among them that this step does not hold, and of its values."""
        held = {name for _, each in self._found.values() for name in each.fields}
        return held | self._absent_fields | self.values.keys()

    @property
    def _absent_fields(self) -> set[str]:
        """The names of the fields that this step does not hold of a mesh that names them."""
        lacking = {name for each in self._lacking.values() for name in each.fields}
        return lacking | {name for _, each in self._found.values() for name in each.absent}

    def mesh(self, name: str | None = None, fields: Sequence[str] | None = None) -> Mesh:
        """This rank's part of a mesh with these fields (None: all), as NumPy arrays, without a copy where possible.

        Raises Lacking for a field that the step does not hold, or a mesh that is not there.
        """
        name, channel, description = self._describe(name, fields or ())
        wanted = set(description.fields if fields is None else fields)
        have = self._names.get(name)
        if have is None or not wanted <= have:
            whole = have is None or description.type == "multiblock"
            with self._clock("read"):
                more = channel.read(
                    self._plain(channel, name),
                    sorted(wanted | (have or set()) if whole or have is None else wanted - have),
                )
            self._loaded[name] = (
                more if whole else self._loaded[name].with_fields({**self._loaded[name].fields, **more.fields})
            )
            self._names[name] = wanted | (have or set())
            self._converted.pop(name, None)
        return self._loaded[name]

    @staticmethod
    def _plain(channel: Channel, name: str) -> str:
        return name if name in channel.meshes else name.removeprefix(f"{channel.name.name}/")

    def vtk(self, name: str | None = None, fields: Sequence[str] | None = None) -> list[vtkDataSet]:
        """This rank's part of a mesh as VTK's datasets, which share its arrays where the layout allows."""
        name, _, description = self._describe(name)
        known = description.fields if fields is None else [each for each in fields if each in description.fields]
        mesh = self.mesh(name, list(known))
        if name not in self._converted:
            from .vtk import to_vtk

            with self._clock("convert"):
                self._converted[name] = leaves(to_vtk(mesh))
        return self._converted[name]

    def parts(self, name: str | None = None, fields: Sequence[str] | None = None) -> Parts:
        """What a chain starts from: vtk(), once it is needed."""
        name, _, _ = self._describe(name)
        return Parts(_MeshSource(self, name), lambda: self.vtk(name, fields))

    def boxes(self, name: str) -> list[tuple[Any, Any]] | None:
        """The low and high corner of each rank's part, where parts are boxes."""
        _, channel, description = self._describe(name)
        parts = [channel.part(description, rank) for rank in range(channel.size)]
        if not all(isinstance(part, BoxPart) for part in parts):
            return None
        structured: Any = description
        return [structured.box_of(part) for part in parts]

    def close(self) -> None:
        """Gives up what was read: views of the step's memory among it, which keep the step."""
        for kept in (self._loaded, self._names, self._converted, self._made):
            kept.clear()

    def steer(self, **values: Any) -> None:
        """Asks the simulation for these values of its parameters; they arrive at one of its next steps.

        Raises InvalidArgument for what is no bool, int, str or finite float.
        """
        self.steering |= {name: steering_value(name, value) for name, value in values.items()}

    def _describe(self, name: str | None, fields: Iterable[str] = ()) -> tuple[str, Channel, MeshDescription]:
        if lacking := self.lacks(name, fields):
            raise Lacking(lacking)
        name = the_mesh(name, self.meshes) if name not in self._found else name
        return (name, *self._found[name])


class _MeshSource:
    """A mesh of a frame as chains see it (chain.Source)."""

    def __init__(self, frame: Frame, mesh: str):
        self.time = frame.time
        self._frame = frame
        self._mesh = mesh
        self.spacing: Sequence[float] = getattr(frame._describe(mesh)[2], "spacing", ())

    def bounds(self) -> np.ndarray | None:
        mesh: Any = self._frame.mesh(self._mesh, [])
        if not len(mesh.levels):
            return None
        cells = np.array([mesh.block(0).shape[mesh.axes.index(a)] - 1 if a in mesh.axes else 1 for a in "xyz"])
        own = np.maximum(cells - 2 * mesh.ghost_layers, 1)
        width = own * np.array(mesh.spacing) / float(mesh.refinement) ** mesh.levels[:, np.newaxis]
        low = np.array(mesh.origin) + mesh.indices * width
        return np.array([low.min(axis=0), (low + width).max(axis=0)])

    def blocks(self, fields: Sequence[str], algorithm: str | None, batch: int | None) -> Iterator[Batch]:
        _, channel, description = self._frame._describe(self._mesh)
        if not isinstance(description, AmrDescription):
            raise InvalidArgument(
                f"mesh '{self._mesh}' is {description.type}; fragments are found in the blocks of an AMR mesh: name "
                "one in 'mesh:', or use 'contour' or 'threshold'"
            )
        part: Any = channel.part(description)
        with self._frame._clock("read"):
            near = Neighbourhood(description, part, algorithm)
        found = near.batches(fields, batch)
        while True:
            with self._frame._clock("read"):
                one = next(found, None)
            if one is None:
                return
            yield one

    def once(self, key: Any, make: Callable[[], Result]) -> Result:
        return _made(self._frame._made, (self._mesh, key), make)

    def kept(self, key: Any, make: Callable[[], Result]) -> Result:
        return _made(self._frame._kept, (self._mesh, key), make)


def _made(known: dict[Any, Any], key: Any, make: Callable[[], Result]) -> Result:
    if key not in known:
        known[key] = make()
    found: Result = known[key]
    return found


def _answer(step: ReadStep | None) -> dict[str, Any]:
    """The attribute `coprocessing` of a step; empty where there is none, or where it is something else."""
    try:
        said = json.loads(step.attributes["coprocessing"]) if step is not None else {}
    except (KeyError, ValueError, TypeError, AttributeError):  # it is no simulation with a coprocessor
        return {}
    return said if isinstance(said, dict) else {}


def leaves(data: vtkDataObject) -> list[vtkDataSet]:
    """The datasets in a composite one; those without cells are left out."""
    if not data.IsA("vtkCompositeDataSet"):
        return [data] if data.GetNumberOfCells() else []
    found = []
    each = data.NewIterator()
    each.InitTraversal()
    while not each.IsDoneWithTraversal():
        found.append(each.GetCurrentDataObject())
        each.GoToNextItem()
    return [leaf for leaf in found if leaf.GetNumberOfCells()]
