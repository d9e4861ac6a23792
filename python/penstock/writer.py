"""Writing streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _core, devices, dtypes
from ._core import Writer as CoreWriter
from .attributes import MISSING, Attributes
from .cohort import Cohort, free_cohort
from .errors import Error, InvalidArgument, WrongState
from .stream import SLICE_MS, Deadline, Options, Spans, Stream, take_spans, to_ms

if TYPE_CHECKING:
    from .context import Context

_UNTYPED = (bool, int, float, complex)


@dataclass(slots=True)
class _Defined:
    id: int
    dtype: str
    kind: str
    order: str
    shape: tuple[int, ...] | None  # None: a step that changed it was given up


class Writer(Stream[CoreWriter, "WriteStep"]):
    """Writes a stream of steps; made by penstock.create(). A context manager, which closes the stream.

    When an exception leaves the `with` block, an open step is given up and readers are told at once that the writer is
    lost: they read what they have seen announced, then get WriterLost.
    """

    def __init__(self, core: CoreWriter, cohort: Cohort | None, options: Options, context: Context):
        super().__init__(core, cohort, options, context)
        self._variables: dict[str, _Defined] = {}
        self._attribute_values: dict[str, Any] = {}
        # Of the open step. Kept here, because the memory of spans is taken back even when nobody has the step any more.
        self._spans: Spans = []

    @property
    def address(self) -> str:
        """For readers on other hosts: "tcp://host:port/name?token=...". Only rank 0 knows it; "" elsewhere."""
        return self._core.address

    def define(
        self,
        name: str,
        dtype: Any,
        shape: Sequence[int] = (),
        *,
        kind: str = "global_array",
        order: str = "row",
        min_max: bool = False,
    ) -> None:
        """Defines a variable, once; otherwise its first put does, from what is put.

        dtype: anything numpy.dtype takes, "bfloat16", or str. kind: "global_array" (with a shape), "local_array",
        "global_value", "local_value". order: "row" or "column", how this writer keeps it. min_max: compute the range of
        every block, for step[name].min_max. Raises InvalidArgument when the name is taken.
        """
        name_of_dtype = "string" if dtype is str else dtypes.from_numpy(dtype)
        shape = tuple(int(size) for size in shape)
        variable = self._core.define(name, name_of_dtype, shape, kind, order, min_max)
        self._variables[name] = _Defined(variable, name_of_dtype, kind, order, shape)

    @property
    def attributes(self) -> Attributes:
        """stream.attributes["title"] = "..." holds from the open step on, or from the next one.

        It stays when the open step is given up.
        """
        return Attributes(self._put_attribute, self._attribute_values)

    def _put_attribute(self, name: str, dtype: str, is_array: bool, values: bytes, strings: list[str]) -> None:
        self._core.put_attribute(name, dtype, is_array, values, strings)
        if self._step is not None:
            self._step._replaced.pop(name, None)

    def step(self, timeout: float | None = None) -> WriteStep:
        """Begins a step: with stream.step() as step: step["T"] = T.

        Waits for room (when_full="block"), and the first time for rendezvous_readers; Ctrl-C works. timeout: seconds;
        None is step_timeout_ms, and where that is 0 readers have as long as they take: the log warns who is awaited.
        Raises TimeoutError naming who was awaited, WrongState while a step is open.
        """
        step: WriteStep = self._give_step(WriteStep, lambda: self._wait_step(timeout, must=True))
        return step

    def try_step(self, timeout: float | None = 0) -> WriteStep | None:
        """As step(), but None when the timeout passes."""
        step: WriteStep | None = self._give_step(WriteStep, lambda: self._wait_step(timeout))
        return step

    def _wait_step(self, timeout: float | None, must: bool = False) -> WriteStep | None:
        chosen_ms = int(self._options["step_timeout_ms"])
        patient = timeout is None and chosen_ms == 0  # the library says how long, and who is awaited
        deadline = Deadline(math.inf if patient else timeout, chosen_ms)
        while not self._core.try_begin_step(deadline.slice_ms()):
            if not (self._core.keeps_waiting() if patient else deadline.slice_ms() > 0):
                if not must:
                    return None
                self._core.begin_step(0)  # raises, and says who was awaited; or there is room just now
                break
        step = self._step = WriteStep(self)
        return step

    def close(self, timeout: float | None = None) -> None:
        """Collective. Waits until readers have read what was committed, then tells them that the stream has ended.

        timeout: seconds; None is close_timeout_ms, and where that is 0 readers have as long as they take. Raises
        TimeoutError naming the readers that still hold steps; the stream is closed all the same. Ctrl-C ends the wait,
        and closing goes on in the background. An open step is given up. Closing twice does nothing.
        """
        if self.closed:
            return
        self._give_up_step()
        try:
            if self._cohort is not None:
                self._core.close(to_ms(timeout))  # cohorts are used by the calling thread only
                return
            self._core.start_close(to_ms(timeout))
            while not self._core.wait_close(SLICE_MS):
                pass
        finally:
            free_cohort(self._cohort)

    def _lose(self) -> None:
        """Closes after a failure: readers see that the writer is lost, not that the stream is complete."""
        self._give_up_step()
        self._core.lose()

    def _give_up_step(self) -> None:
        if self._step is not None:
            with suppress(Error):
                self._step.abandon()
        take_spans(self._spans)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            with suppress(Error):  # the error is what the user is to see, not what follows from it
                self._lose()


class WriteStep:
    """A step being written; made by Writer.step(). Leaving its `with` block ends it, an exception there gives it up.

    Arrays may be NumPy arrays of any layout, DLPack producers, arrays on a CUDA device, or lists. What put() and []
    take is copied before they return.
    """

    def __init__(self, stream: Writer):
        self._stream = stream
        self._number = stream._core.step_number()
        self._reshaped: list[_Defined] = []
        self._replaced: dict[str, Any] = {}
        self._dropped = stream._core.step_dropped()

    @property
    def number(self) -> int:
        return self._number

    @property
    def dropped(self) -> bool:
        """True when when_full dropped this step: puts cost nothing, readers never see it."""
        return self._dropped

    @property
    def attributes(self) -> Attributes:
        """step.attributes["time"] = t; in force until put again. A step that is given up takes them with it."""
        return Attributes(self._put_attribute, self._stream._attribute_values, self._replaced)

    def _put_attribute(self, name: str, dtype: str, is_array: bool, values: bytes, strings: list[str]) -> None:
        self._core.put_attribute(name, dtype, is_array, values, strings, True)

    # ------------------------------------------------------------------------------------------------------- putting

    def __setitem__(self, name: str, value: Any) -> None:
        """An array: the whole of a global array. A scalar or str: a global value. Defines what is not defined yet."""
        if isinstance(value, (str, int, float, complex)):
            self.put_value(name, value)
            return
        value = _array(name, value)
        if value.ndim == 0:
            self.put_value(name, value)
            return
        known = self._stream._variables.get(name)
        if known is not None and known.kind == "local_array":
            self.put_local(name, value)
            return
        if self._stream.size > 1:
            raise InvalidArgument(
                f"'{name}': one rank of {self._stream.size} has no whole array to give; "
                "use put(name, part, start=..., shape=...)"
            )
        self.put(name, value)

    def put(
        self,
        name: str,
        array: Any,
        *,
        start: Sequence[int] | None = None,
        shape: Sequence[int] | None = None,
        lend: bool = False,
    ) -> None:
        """Puts one block of a global array: elements start .. start + array.shape, of an array of this shape.

        start: all zeros when left out. shape: of the global array, the same on all ranks; when left out the one known,
        or array.shape when the block is the whole; another one than before changes it from this step on. Column-major
        (Fortran) arrays keep their order without a copy when they come first. lend: the array stays unchanged until the
        step ends, which may spare a copy; it may be a part of a larger one, T[1:-1, 1:-1]. Blocks may be empty.
        Raises InvalidArgument (dtype, shape or box do not fit), StepTooLarge (the step is void).
        """
        array = _array(name, array)
        variable = self._global_array(name, array.dtype, array.shape, start, shape, _order_of(array))
        origin = tuple(int(i) for i in start) if start is not None else (0,) * array.ndim
        put = self._core.lend if lend else self._core.put
        put(variable.id, origin, dtypes.as_bits(array))

    def put_local(self, name: str, array: Any) -> None:
        """Puts one block of a local array: every block is an array of its own, found by its number."""
        array = _array(name, array)
        variable = self._defined(name, array.dtype, "local_array", order=_order_of(array))
        self._core.put(variable.id, (), dtypes.as_bits(array))

    def put_value(self, name: str, value: Any, *, local: bool = False) -> None:
        """Puts a scalar or a str: one value per step, or with local one per writer rank."""
        kind = "local_value" if local else "global_value"
        if isinstance(value, str):
            self._core.put_string(self._defined(name, str, kind).id, str(value))
            return
        array = _array(name, value)
        if array.ndim != 0:
            raise InvalidArgument(f"'{name}': a value is a scalar or a str, not an array of shape {array.shape}")
        known = self._stream._variables.get(name)
        if known is not None and (type(value) in _UNTYPED or not _has_type(value, array)):
            array = _converted(array, known)
        self._core.put_value(self._defined(name, array.dtype, kind).id, dtypes.as_bits(array))

    def span(
        self,
        name: str,
        *,
        start: Sequence[int] | None = None,
        count: Sequence[int] | None = None,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        order: str = "row",
        local: bool = False,
    ) -> np.ndarray:
        """The stream's own memory for one block, as a writable array of shape `count` to fill before the step ends.

        Spares the copy of put(). start, shape: as there. count: when left out, shape. dtype, order: needed (order: if
        not "row") the first time only. local: a block of a local array. After the step the array is read-only, and so
        is what it holds then: keep no slices of it.
        """
        known = self._stream._variables.get(name)
        if dtype is None:
            if known is None:
                raise InvalidArgument(f"'{name}' is not defined yet: give its dtype")
            dtype = known.dtype
        dtype = dtypes.to_numpy(dtypes.from_numpy(dtype))
        if count is None:
            count = shape if shape is not None else known.shape if known is not None else None
        if count is None:
            raise InvalidArgument(f"'{name}': give the count of the block")
        count = tuple(int(size) for size in count)
        if local:
            variable = self._defined(name, dtype, "local_array", order=order)
        else:
            variable = self._global_array(name, dtype, count, start, shape, order)
        origin = tuple(int(i) for i in start) if start is not None else ()
        memory: Any = self._core.put_span(variable.id, origin, count)
        layout: Literal["C", "F"] = "F" if variable.order == "column" else "C"
        if memory.size < math.prod(count) * dtype.itemsize or memory.size == 0:
            return np.empty(count, dtype, layout)  # nothing to fill: an empty block, or a dropped step
        array = np.ndarray(count, dtype, memory, order=layout)
        self._stream._spans.append((array, memory))
        return array

    def set_shape(self, name: str, shape: Sequence[int]) -> None:
        """A new shape for a global array, from this step on. All ranks give the same."""
        known = self._stream._variables.get(name)
        if known is None:
            raise InvalidArgument(f"'{name}' is not defined yet")
        shape = tuple(int(size) for size in shape)
        if known.shape != shape:
            self._core.set_shape(known.id, shape)
            known.shape = shape
            self._reshaped.append(known)

    # -------------------------------------------------------------------------------------------------------- ending

    def end(self) -> None:
        """Hands the step over; it becomes visible when every rank has done so. Raises StepVoided, StepTooLarge."""
        self._leave(self._core.end_step)

    def abandon(self) -> None:
        """Gives the step up, on every rank: readers never see it."""
        self._leave(self._core.abandon_step, void=True)

    def __enter__(self) -> WriteStep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream._step is not self:
            return  # ended inside
        if error is None:
            self.end()
        else:
            with suppress(Error):
                self.abandon()

    def __repr__(self) -> str:
        state = "open" if self._stream._step is self else "over"
        return f"<penstock.WriteStep {self._number} of '{self._stream.name}' {state}>"

    # ------------------------------------------------------------------------------------------------------- helpers

    @property
    def _core(self) -> CoreWriter:
        if self._stream._step is not self:
            raise WrongState(f"step {self._number} of stream '{self._stream.name}' is over")
        return self._stream._core

    def _leave(self, how: Callable[[], None], void: bool = False) -> None:
        stream = self._stream
        take_spans(stream._spans)
        stream._step = None
        try:
            how()
        except Error:
            void = True
            raise
        finally:
            if void:
                self._undo()

    def _undo(self) -> None:
        for variable in self._reshaped:
            variable.shape = None
        values = self._stream._attribute_values
        for name, before in self._replaced.items():
            if before is MISSING:
                del values[name]
            else:
                values[name] = before

    def _defined(self, name: str, dtype: Any, kind: str, shape: Any = (), order: str = "row") -> _Defined:
        """The variable, defined if it is not, checked to be the same if it is."""
        core = self._core
        dtype = "string" if dtype is str else dtypes.from_numpy(dtype)
        known = self._stream._variables.get(name)
        if known is not None and known.dtype == "bfloat16" and dtypes.BFLOAT16.kind == "u" and dtype == "uint16":
            dtype = "bfloat16"  # its bits
        if known is None:
            variable = core.define(name, dtype, shape, kind, order, False)
            known = self._stream._variables[name] = _Defined(variable, dtype, kind, order, shape)
        elif (known.dtype, known.kind) != (dtype, kind):
            raise InvalidArgument(f"'{name}' is a {known.kind} of {known.dtype}, and cannot become a {kind} of {dtype}")
        return known

    def _global_array(self, name: str, dtype: Any, count: Any, start: Any, shape: Any, order: str) -> _Defined:
        known = self._stream._variables.get(name)
        whole = self._stream.size == 1 and (start is None or not any(start))
        if shape is not None:
            shape = tuple(int(size) for size in shape)
        elif known is not None and (known.shape is not None and not (whole and start is None)):
            shape = known.shape
        elif whole:
            shape = tuple(count)
        else:
            raise InvalidArgument(f"'{name}': a part of a global array needs its shape the first time")
        variable = self._defined(name, dtype, "global_array", shape, order)
        self.set_shape(name, shape)
        return variable


def _array(name: str, value: Any) -> np.ndarray:
    """May lie on a device: its elements are for the library only."""
    if _is_text(value):
        raise InvalidArgument(f"'{name}': arrays of strings can be attributes, not variables")
    try:
        array = devices.array_of(value, f"'{name}'")
    except ValueError as error:  # a ragged list
        raise InvalidArgument(f"'{name}': {error}") from None
    if array.dtype.kind in "OUST":
        raise InvalidArgument(f"'{name}': penstock has no arrays of {array.dtype}; arrays of strings can be attributes")
    return array


def _has_type(value: Any, array: np.ndarray) -> bool:
    return isinstance(value, (np.generic, np.ndarray)) or isinstance(array.base, _core.Memory)


def _is_text(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(each, str) for each in value)


def _order_of(array: np.ndarray) -> str:
    return "column" if array.flags.f_contiguous and not array.flags.c_contiguous else "row"


def _converted(array: np.ndarray, known: _Defined) -> np.ndarray:
    """A Python scalar takes the type that the variable has, if it fits."""
    target = dtypes.to_numpy(known.dtype)
    if array.dtype.kind in "iu" and target.kind in "iu":
        limits = np.iinfo(target)
        fits = limits.min <= array.item() <= limits.max
    else:
        fits = array.dtype.kind in "iuf" and (target.kind in "fc" or known.dtype == "bfloat16")
    return array.astype(target) if fits else array
