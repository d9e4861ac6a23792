"""Regions that are open: reading, and writing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from .. import _core, dtypes
from ..cohort import as_cohort
from ..errors import InvalidArgument, NotFound, TimeoutError, WrongState
from ..options import MeshOptions
from ..stream import to_ms
from .model import Entity, Field, Model, numpy_dtype

if TYPE_CHECKING:
    import xarray

Key = tuple[str | tuple[str, str], str]


class _Fields:
    """Arrays by (entity, field)."""

    def __init__(self, region: Region):
        self._region = region

    def __getitem__(self, key: Key) -> np.ndarray:
        return self._region.read(*key)


class State(_Fields):
    """A state of a region, until the next one. number: from 0, the region's first, also where the reader came later.

    model_number: how many models this reader had before the one that the state is of.
    """

    def __init__(self, region: Region, number: int, time: float):
        super().__init__(region)
        self.number = number
        self.time = time
        self.model_number = region.model_number

    def __getitem__(self, key: Key) -> np.ndarray:
        if self._region.state is not self:
            raise WrongState("the region has gone on to another state")
        return super().__getitem__(key)


class Region:
    """A region that is read: one part of it, or all parts as one. Made by open(); a context manager.

    Iterating goes through the states: of a stream as they come, of files those that are there. Where the topology
    changes from one state to the next, `model` is another one from then on, and `model_number` greater.
    """

    def __init__(self, core: _core.RegionSource, part: int, timeout: float | None):
        self._core = core
        self.part = part  # 0 where parts are joined
        self.bytes = 0  # read so far
        self._timeout = timeout
        self.state: State | None = None  # the present one
        self.model_number = 0
        self.model = Model.from_text(core.model(part))

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._core.close()

    @property
    def times(self) -> list[float]:
        """Of all states. Raises Unsupported for a stream, whose states are read in order."""
        return self._core.times()

    def seek(self, state: int) -> None:
        """The next state is this one, from 0; -1 is the last one. Raises NotFound, Unsupported (streams)."""
        number = state + len(self.times) if state < 0 else state
        if number < 0:
            raise NotFound(f"there is no state {state}; there are {len(self.times)}")
        self._core.seek(number)

    def next_state(self, timeout: float | None = None) -> State | None:
        """The next state; None where there are no more. timeout: seconds. Raises TimeoutError."""
        wait = to_ms(self._timeout if timeout is None else timeout)
        while (found := self._core.next_state(wait)) is True:
            self.take_model(self.model_number + 1)
        if found is None:
            raise TimeoutError("no state came in time")
        self.state = None if isinstance(found, bool) else State(self, *found)
        return self.state

    def take_model(self, number: int) -> None:
        """What next_state does where the topology has changed. For regions that are parts of one that was spread."""
        self.model = Model.from_text(self._core.model(self.part))
        self.model_number = number

    def __iter__(self) -> Iterator[State]:
        while (state := self.next_state()) is not None:
            yield state

    def __getitem__(self, key: Key) -> np.ndarray:
        return self.read(*key)

    def read(
        self, entity: str | tuple[str, str], field: str, *, role: str | None = None, first: int = 0, count: int = -1
    ) -> np.ndarray:
        """A field of the model, or of the present state: rows, or rows x components. Reduction fields have one row.

        first, count: rows (-1: to the end). role: where fields of several roles have the name.
        """
        e, i, its, which = _slot(self.model, entity, field, role)
        shape = list(its.shape(which))
        if count < 0:
            count = shape[0] - first
        if first < 0 or count < 0 or first + count > shape[0]:
            raise InvalidArgument(
                f"{its.name}, {which.name}: there are {shape[0]} rows, not {first} to {first + count}"
            )
        out = np.empty([count, *shape[1:]], numpy_dtype(which))
        self._core.read(self.part, e, i, first, count, out)
        self.bytes += out.nbytes
        return out

    def to_mesh(self, fields: Sequence[str] | None = None) -> Any:
        """Nodes, element blocks and their fields, of the present state (penstock.analysis.meshes)."""
        from ..analysis.region_meshes import to_mesh

        return to_mesh(self, fields)

    def to_vtk(self, fields: Sequence[str] | None = None) -> Any:
        """The same as a vtkUnstructuredGrid. Needs VTK."""
        from ..analysis.vtk import to_vtk

        return to_vtk(self.to_mesh(fields))

    def to_xarray(self, fields: Sequence[str] | None = None) -> xarray.Dataset:
        """The model and the present state, if there is one, as an xarray.Dataset (pip install xarray).

        Fields of nodes and of the region have their names, others are ENTITY_FIELD. Dimensions are "node", the names
        of entities, and the storages of values with several components ("vector_3d"). Ids are the coordinates of
        dimensions, x, y and z those of nodes. Each element block of one topology is a UGRID mesh, ENTITY_mesh; its
        nodes are in IOSS's order. fields: names of fields of the state; None: all.
        """
        from .dataset import to_xarray

        dataset: xarray.Dataset = to_xarray(self, fields)
        return dataset

    @property
    def parts(self) -> int:
        """How many ranks wrote the region, or have a share of it; 1 where the parts are joined."""
        return self._core.parts()


def open(
    name: str | os.PathLike[str],
    *,
    part: int | None = None,
    share: tuple[int, int] | None = None,
    comm: Any = None,
    context: Any = None,
    timeout: float | None = None,
    **options: Unpack[MeshOptions],
) -> Region:
    """Opens a region: a file, files that several ranks wrote (name.RANKS.RANK), a stream, or "10x10x10|times:3".

    The parts that ranks wrote are joined, unless `part` names one. share=(i, n): the i-th of n pieces with as many
    elements each, without nodes of no element; the ranks of a cohort (comm: mpi4py's communicator, or a cohort) have
    theirs. options: of MeshOptions (database, path); configuration and environment count as everywhere. timeout:
    seconds, for each state.
    Raises NotFound, InvalidArgument (no mesh, or one that contradicts itself), Unsupported, TimeoutError.
    """
    from ..context import _default_context, _freed_on_error

    context = context if context is not None else _default_context()
    cohort = as_cohort(comm)
    with _freed_on_error(cohort):
        core = context._core.open_region(os.fspath(name), cohort, _texts(options))
    if part is not None:
        if share is not None:
            raise InvalidArgument("part and share exclude each other")
        if not 0 <= part < core.parts():
            raise InvalidArgument(f"{os.fspath(name)} has {core.parts()} parts, from 0; there is no part {part}")
        return Region(core, part, timeout)
    if share is None and cohort is not None and cohort.size > 1:
        share = cohort.rank, cohort.size
    if core.parts() > 1:
        core = core.join()
    if share is not None:
        index, pieces = share
        if not 0 <= index < pieces:
            raise InvalidArgument(f"share ({index}, {pieces}): the first counts from 0 and is less than the second")
        return Region(core.spread(pieces, None, 0), index, timeout)
    return Region(core, 0, timeout)


class _StateWriter:
    def __init__(self, writer: RegionWriter, time: float):
        self._writer = writer
        self._time = time

    def begin(self) -> None:
        self._writer._core.begin_state(self._time)

    def end(self) -> None:
        core = self._writer._core
        try:
            core.end_state()
        except BaseException:
            core.abandon_state()
            raise

    def __enter__(self) -> _StateWriter:
        self.begin()
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            self.end()
        else:
            self._writer._core.abandon_state()

    def __setitem__(self, key: Key, values: Any) -> None:
        self._writer.write(*key, values)


class RegionWriter:
    """A region that is written: this rank's part. Made by create(); a context manager.

    The region that is left by an exception stays as it is: readers see the states that are complete.
    """

    def __init__(self, core: _core.RegionSink, model: Model):
        self._core = core
        self._open = True
        self.define(model)

    def __enter__(self) -> RegionWriter:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            self.abandon()
        elif self._open:
            self.close()

    def close(self) -> None:
        """Collective. Raises WrongState, which names a field that has no values."""
        self._core.close()
        self._open = False

    def abandon(self) -> None:
        """Leaves the region as it is: readers see the states that are complete. Not collective."""
        self._core.abandon()
        self._open = False

    def define(self, model: Model) -> None:
        """The topology has changed: the model that the next states are of; its fields are written first. Collective."""
        self._core.define(model.to_text())
        self.model = model

    def state(self, time: float) -> _StateWriter:
        """A context in which all transient and reduction fields are set; the state is complete at its end.

        Left by an exception, or where a field has no values, it is given up: readers do not see it, and the next one
        can begin. All ranks give up the same state.
        """
        return _StateWriter(self, float(time))

    def __setitem__(self, key: Key, values: Any) -> None:
        self.write(*key, values)

    def write(self, entity: str | tuple[str, str], field: str, values: Any, *, role: str | None = None) -> None:
        """The whole of a field: rows, or rows x components. Integers are checked, not rounded."""
        e, i, its, which = _slot(self.model, entity, field, role)
        self._core.write(e, i, _packed(dtypes.to_array(values), its, which))


def create(
    name: str | os.PathLike[str], model: Model, *, comm: Any = None, context: Any = None, **options: Unpack[MeshOptions]
) -> RegionWriter:
    """Makes a region, and replaces one of the name. Collective.

    Where it goes is `database` (exodus, nemesis, stream, null), else what the ending of the name means, else a stream;
    configuration and environment win. Other options: path, format, integers, compression, states_per_file, shared,
    sync, resume (MeshOptions).
    Raises InvalidArgument (the model contradicts itself), Unsupported (the database cannot keep it), WrongState (files:
    another writer has not closed them yet).
    """
    from ..context import _default_context, _freed_on_error

    context = context if context is not None else _default_context()
    cohort = as_cohort(comm)
    with _freed_on_error(cohort):
        return RegionWriter(context._core.create_region(os.fspath(name), cohort, _texts(options)), model)


def _texts(options: MeshOptions) -> dict[str, str]:
    return {key: os.fspath(value) if isinstance(value, os.PathLike) else str(value) for key, value in options.items()}


def _slot(model: Model, entity: str | tuple[str, str], field: str, role: str | None) -> tuple[int, int, Entity, Field]:
    its = model.find(entity)
    for i, each in enumerate(its.fields):
        if each.name == field and role in (None, each.role):
            return next(e for e, other in enumerate(model.entities) if other is its), i, its, each
    names = ", ".join(each.name for each in its.fields)
    raise NotFound(f"{its.type} {its.name!r} has no field {field!r}; there are: {names[:500]}")


def _packed(values: np.ndarray, its: Entity, which: Field) -> np.ndarray:
    shape, dtype = its.shape(which), numpy_dtype(which)
    if values.shape != shape and not (values.size == 1 == int(np.prod(shape))):
        raise InvalidArgument(f"{its.name}, {which.name}: the array has the shape {values.shape}, and takes {shape}")
    if not np.can_cast(values.dtype, dtype, "same_kind"):
        raise InvalidArgument(f"{its.name}, {which.name}: {values.dtype} does not become {dtype}")
    out = np.ascontiguousarray(values.reshape(shape), dtype)
    if (
        values.dtype.kind in "iu"
        and out.dtype.itemsize < values.dtype.itemsize
        and not np.array_equal(out, values.reshape(shape))
    ):
        raise InvalidArgument(f"{its.name}, {which.name}: a number does not fit into {dtype}")
    return out
