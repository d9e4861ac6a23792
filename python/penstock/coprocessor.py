"""Co-processing: the simulation's side of an analysis that runs in its process, beside it, behind a pool, or on files.

    with penstock.Coprocessor("heat") as coprocessor:
        coprocessor.mesh("grid", "uniform", shape=T.shape, axes="zyx")
        coprocessor.field("grid", "T", T.dtype, units="K")
        coprocessor.declare("source", 1.0, least=0.0, greatest=10.0)
        for cycle in range(1000):
            source = coprocessor.value("source")             # an analysis may have set it
            ...
            if step := coprocessor.request(cycle, time):     # nothing is asked for at most cycles
                with step:
                    step.put("T", T, lend=True)

Where the analysis runs is configuration: the stream's engine, and the section `coprocessing` of penstock.yaml.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Unpack

import numpy as np

from . import devices, dtypes
from ._core import Coprocessor as CoreCoprocessor
from .attributes import Attributes
from .cohort import as_cohort, free_cohort
from .context import Context, _default_context, _freed_on_error, _milliseconds, _text
from .errors import Error, InvalidArgument, NotFound, WrongState
from .options import CoprocessorOptions
from .stream import Spans, take_spans, to_ms

_ANALYSIS = "penstock.analysis.__main__"
_OF_MESHES = ("shape", "axes", "origin", "spacing", "coordinates", "blocks")
_OF_AMR = ("cells", "ghost_layers", "refinement", "levels", "indices", "splits", "depth")
_MESH_KEYS = frozenset((*_OF_MESHES, *_OF_AMR, "ghosts", "node_ids", "element_ids"))


@dataclasses.dataclass(frozen=True, slots=True)
class CoprocessorStatistics:
    """Counted since construction, on this rank. Times in seconds."""

    requests: int  # calls of request()
    steps: int  # published
    skipped_every: int  # by the option `every`
    skipped_trigger: int  # no rule of the demand held
    skipped_not_ready: int  # wait="automatic", and the analysis had no room, or was not there
    skipped_dropped: int  # no room: wait="drop"
    replaced: int  # wait="latest": of the steps, those that gave way to newer ones; rank 0 counts them
    demands: int  # requests of analyses that were applied
    demands_refused: int  # those that could not be read; rank 0 counts them
    demand_number: int  # of the one in force; 0: none
    request_s: float  # in request(), waiting for room and ranks included
    put_s: float
    end_s: float  # in coprocess()


@dataclasses.dataclass(slots=True)
class _Field:
    id: int
    dtype: np.dtype
    order: str


class Coprocessor:
    """The simulation's side of a channel. A context manager: leaving it finalizes; an exception tells readers that the
    writer is lost.

    channel: the stream's name. comm: an mpi4py communicator, a cohort, or None; all calls but those on a step are
    collective over it. context: None is that of penstock.create(). timeout: seconds, for opening, for each step, and
    for closing. options: wait ("block", "drop", "latest", "automatic"), every=10, pipelines=["a.yaml"], and those of
    streams; penstock.yaml and the environment have the last word. Raises as penstock.create().
    """

    def __init__(
        self,
        channel: str,
        *,
        comm: Any = None,
        context: Context | None = None,
        timeout: float | None = None,
        **options: Unpack[CoprocessorOptions],
    ):
        pipelines = options.pop("pipelines", [])
        if isinstance(pipelines, (str, os.PathLike)):
            pipelines = [pipelines]
        texts = {key: _text(value) for key, value in options.items()}
        if timeout is not None:
            deadlines = ("open_timeout_ms", "step_timeout_ms", "close_timeout_ms")
            texts |= dict.fromkeys(deadlines, _milliseconds("timeout", timeout))
        if pipelines:
            texts["pipelines"] = ";".join(os.fspath(path) for path in pipelines)
        self._context = context or _default_context()
        self._cohort = as_cohort(comm)
        self._fields: dict[str, _Field] = {}
        self._attribute_values: dict[str, Any] = {}
        self._open_step: weakref.ref[CoprocessStep] | None = None
        self._spans: Spans = []
        with _freed_on_error(self._cohort):
            self._core = self._context._core.create_coprocessor(channel, self._cohort, texts, _Analysis)
        self._context._streams.add(self)

    @property
    def channel(self) -> str:
        return self._core.name

    @property
    def closed(self) -> bool:
        return self._core.closed

    @property
    def rank(self) -> int:
        return self._cohort.rank if self._cohort else 0

    @property
    def size(self) -> int:
        return self._cohort.size if self._cohort else 1

    def add_pipeline(self, path: str | os.PathLike[str]) -> None:
        """A pipeline of the analysis, before the first request. With engine insitu it runs in this process, on a thread
        of each rank; with others another program runs it, and this says that one is expected."""
        self._core.add_pipeline(os.fspath(path))

    def mesh(self, name: str, type: str, **description: Any) -> None:
        """Defines a mesh, or describes it anew from the next step on.

        type: "uniform" (shape, axes, origin, spacing), "rectilinear" and "curvilinear" (shape, axes, coordinates),
        "unstructured" (coordinates, blocks: dicts of name, id, topology, connectivity, offsets, topologies),
        "particles" (coordinates), "amr" (cells, axes, ghost_layers, origin, spacing, refinement, levels, indices,
        splits, depth), "multiblock" (blocks: names of meshes). Of each: ghosts, node_ids, element_ids.

        shape: nodes by array dimension. axes: "zyx" for T[z, y, x]. origin, spacing: x, y, z. coordinates, levels and
        the like: names of variables, see structure(). splits: a global array of one uint64 for each rank, the Morton
        number of its first block counted in blocks of the level depth (penstock/mesh.hpp).
        """
        unknown = description.keys() - _MESH_KEYS
        if unknown:
            raise InvalidArgument(f"a mesh has no '{min(unknown)}'; there are {', '.join(sorted(_MESH_KEYS))}")
        values = {key: _plain(value) for key, value in description.items() if value is not None}
        if isinstance(values.get("coordinates"), str):
            values["coordinates"] = [values["coordinates"]]
        try:
            self._core.set_mesh(name, type, values)
        except (RuntimeError, TypeError) as error:
            if isinstance(error, Error):
                raise
            raise InvalidArgument(f"mesh '{name}': a value of its description is of a wrong type") from None

    def field(
        self,
        mesh: str,
        name: str,
        dtype: Any = np.float64,
        *,
        association: str = "node",
        components: int = 1,
        units: str = "",
        variable: str = "",
        order: str = "row",
        min_max: bool = False,
    ) -> None:
        """A field of a mesh, of nodes or of elements ("element").

        components: interleaved, as the arrays' last dimension. variable: its name on the stream, if not the field's; a
        field that is defined again with another one gets it as its next component, and those are put by variable.
        """
        options = {
            "association": association,
            "components": int(components),
            "units": units,
            "variable": variable,
            "order": order,
            "min_max": bool(min_max),
        }
        dtype_name = dtypes.from_numpy(dtype)
        field = _Field(self._core.field(mesh, name, dtype_name, options), dtypes.to_numpy(dtype_name), order)
        self._fields[f"{mesh}/{variable or name}"] = field
        self._fields.setdefault(variable or name, field)

    def structure(self, mesh: str, variable: str, dtype: Any = np.float64, *, order: str = "row") -> None:
        """A variable that the mesh names (coordinates, connectivity, levels, ids); wanted with any of its fields."""
        dtype_name = dtypes.from_numpy(dtype)
        field = _Field(self._core.structure(mesh, variable, dtype_name, order), dtypes.to_numpy(dtype_name), order)
        self._fields[f"{mesh}/{variable}"] = field
        self._fields.setdefault(variable, field)

    def declare(self, name: str, value: Any, least: Any = None, greatest: Any = None) -> None:
        """A parameter that analyses may set: a bool, int, float or str as `value` is; numbers within bounds."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, (bool, str)) and (least is not None or greatest is not None):
            raise InvalidArgument(f"parameter '{name}': only numbers have bounds")
        if isinstance(value, float):
            least, greatest = (float(b) if b is not None else d for b, d in ((least, -math.inf), (greatest, math.inf)))
        elif isinstance(value, int) and not isinstance(value, bool):
            least, greatest = (int(b) if b is not None else d for b, d in ((least, -(2**63)), (greatest, 2**63 - 1)))
        elif not isinstance(value, (bool, str)):
            raise InvalidArgument(f"parameter '{name}' is a bool, int, float or str, not {type(value).__name__}")
        self._core.declare(name, value, least, greatest)

    def value(self, name: str) -> Any:
        """The parameter's value as of the last request(), the same on all ranks."""
        return self._core.value(name)

    @property
    def attributes(self) -> Attributes:
        """coprocessor.attributes["title"] = "..." holds from the open step on, or from the next one."""
        return Attributes(self._core.put_attribute, self._attribute_values)

    def request(self, cycle: int, time: float) -> CoprocessStep | None:
        """The step to publish this cycle in; None when nothing is asked for, and then nothing was copied.

        Waits for room as the option `wait` says. The first call waits for the first demand when wait is "block",
        rendezvous_readers is not 0, a pipeline was named, and readers are programs at run time. Raises TimeoutError
        naming what is missing.
        """
        if not self._core.request(int(cycle), float(time)):
            return None
        step = CoprocessStep(self)
        self._open_step = weakref.ref(step)
        return step

    @property
    def statistics(self) -> CoprocessorStatistics:
        return CoprocessorStatistics(**self._core.statistics())

    def finalize(self, timeout: float | None = None) -> int:
        """Closes the channel, which waits for readers, then waits for the analysis of this process, if there is one.

        Returns its exit status, 0 where there is none. timeout: seconds, for each of the two; None is close_timeout_ms.
        Raises TimeoutError; closed all the same.
        """
        take_spans(self._spans)
        try:
            return self._core.finalize(to_ms(timeout))
        finally:
            free_cohort(self._cohort)

    def _lose(self) -> None:
        take_spans(self._spans)
        self._core.lose()

    def __enter__(self) -> Coprocessor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.closed:
            return
        if error is None:
            self.finalize()
        else:
            with suppress(Error):  # the error is what the user is to see, not what follows from it
                self._lose()

    def __repr__(self) -> str:
        return f"<penstock.Coprocessor '{self.channel}' {'closed' if self.closed else 'open'}>"


class CoprocessStep:
    """A cycle that is being published; made by Coprocessor.request(). Leaving its `with` block publishes it, an
    exception there gives it up. Fields that are not asked for may be put all the same: that does nothing."""

    def __init__(self, coprocessor: Coprocessor):
        self._coprocessor = coprocessor
        self._over = False

    def wants(self, field: str) -> bool:
        return self._core.wants(self._field(field).id)

    def __setitem__(self, field: str, array: Any) -> None:
        self.put(field, array)

    def put(self, field: str, array: Any, *, start: Sequence[int] | None = None, lend: bool = False) -> None:
        """One block of a field: elements start .. start + array.shape; of a local array, one domain.

        field: "T", "grid/T", or the name of a variable. lend: the array stays unchanged until the step is over, which
        may spare the copy; it may be a part of a larger one, T[1:-1, 1:-1]. Raises InvalidArgument (dtype, shape).
        """
        core, known = self._core, self._field(field)
        if not core.wants(known.id):
            return
        given = devices.array_of(array, f"'{field}'")
        if given.dtype != known.dtype:
            raise InvalidArgument(f"'{field}' is of {known.dtype}, not of {given.dtype}")
        origin = tuple(int(i) for i in start) if start is not None else ()
        core.put(known.id, origin, dtypes.as_bits(given), lend)

    def span(self, field: str, count: Sequence[int], *, start: Sequence[int] | None = None) -> np.ndarray | None:
        """The stream's own memory for one block, as a writable array to fill; None when the field is not asked for."""
        core, known = self._core, self._field(field)
        count = tuple(int(size) for size in count)
        memory: Any = core.put_span(known.id, tuple(int(i) for i in start) if start is not None else (), count)
        if memory is None:
            return None
        layout: Literal["C", "F"] = "F" if known.order == "column" else "C"
        if memory.size == 0:
            return np.empty(count, known.dtype, layout)
        array = np.ndarray(count, known.dtype, memory, order=layout)
        self._coprocessor._spans.append((array, memory))
        return array

    def coprocess(self) -> None:
        """Publishes the step. With engine insitu the analysis has used lent arrays when this returns."""
        self._leave(self._core.coprocess)

    def abandon(self) -> None:
        """Gives the step up, on every rank."""
        self._leave(self._core.abandon)

    def __enter__(self) -> CoprocessStep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over:
            return
        if error is None:
            self.coprocess()
        else:
            with suppress(Error):
                self.abandon()

    @property
    def _core(self) -> CoreCoprocessor:
        if self._over or self._coprocessor.closed:
            raise WrongState(f"this step of channel '{self._coprocessor.channel}' is over")
        return self._coprocessor._core

    def _field(self, name: str) -> _Field:
        found = self._coprocessor._fields.get(name)
        if found is None:
            raise NotFound(f"the channel has no field '{name}'; it has {', '.join(sorted(self._coprocessor._fields))}")
        return found

    def _leave(self, how: Callable[[], None]) -> None:
        take_spans(self._coprocessor._spans)
        self._over = True
        how()


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's, which the extension takes."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


class _Analysis:
    """The analysis on a thread of this interpreter: the simulation is a Python program itself."""

    def __init__(self, arguments: list[str]):
        self._status = 1
        self._thread = threading.Thread(target=self._run, args=(arguments,), name="penstock-analysis", daemon=True)
        self._thread.start()

    def _run(self, arguments: list[str]) -> None:
        try:
            self._status = int(importlib.import_module(_ANALYSIS).main(arguments) or 0)
        except SystemExit as end:
            self._status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc(file=sys.stderr)

    def wait(self, timeout: float | None) -> int | None:
        """The exit status; None when it has not ended within timeout seconds."""
        self._thread.join(timeout)
        return None if self._thread.is_alive() else self._status
