"""Reading streams."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ._core import Reader as CoreReader
from .attributes import StepAttributes
from .cohort import free_cohort
from .errors import EndOfStream, Error, InvalidArgument, NotFound, WrongState
from .stream import Deadline, Stream, to_ms
from .variable import Variable

if TYPE_CHECKING:
    import pandas
    import vtkmodules.vtkCommonDataModel
    import xarray


class Reader(Stream[CoreReader, "ReadStep"]):
    """Reads a stream of steps; made by penstock.open(). A context manager, which leaves the stream.

    for step in stream: ... gives one step after the other, ends each as the loop goes on, and ends with the stream. It
    raises WriterLost when the writer dies and TimeoutError when no step comes in time.
    """

    def __iter__(self) -> Iterator[ReadStep]:
        while True:
            try:
                step = self.step()
            except EndOfStream:
                return
            with step:
                yield step

    def step(self, timeout: float | None = None) -> ReadStep:
        """Waits for the next step: with stream.step() as step: ...; Ctrl-C works.

        timeout: seconds; None is step_timeout_ms. Raises TimeoutError, EndOfStream, WriterLost (naming the steps that
        are lost), WrongState while a step is open.
        """
        self._end_dropped()
        step: ReadStep = self._give_step(ReadStep, lambda: self._wait_step(timeout, must=True))
        return step

    def try_step(self, timeout: float | None = 0) -> ReadStep | None:
        """As step(), but None when the timeout passes."""
        self._end_dropped()
        step: ReadStep | None = self._give_step(ReadStep, lambda: self._wait_step(timeout))
        return step

    def _end_dropped(self) -> None:
        """Ends a step that nobody has any more."""
        if self._step is None and self._core.in_step and not self._unclaimed:
            with suppress(Error):
                self._core.end_step()

    def _wait_step(self, timeout: float | None, must: bool = False) -> ReadStep | None:
        deadline = Deadline(timeout, int(self._options["step_timeout_ms"]))
        slice_ms = deadline.slice_ms()
        while True:
            outcome = self._core.try_begin_step(slice_ms)
            if outcome == "ready":
                step = self._step = ReadStep(self)
                return step
            if outcome != "not_ready":
                self._core.begin_step(0)  # raises EndOfStream or WriterLost, with all that is known
                raise EndOfStream(f"stream '{self.name}' has ended")
            slice_ms = deadline.slice_ms()
            if slice_ms == 0:
                break
        if not must:
            return None
        self._core.begin_step(0)  # raises, and says who was awaited; or there is a step just now
        step = self._step = ReadStep(self)
        return step

    def on_step(self, function: Callable[[ReadStep], None], on_error: Literal["report", "raise"] = "report") -> None:
        """Has function(step) called at the end of each step of the writer, in the writer's thread (engine insitu).

        The writer's rank with this stream's rank is in this process and waits for it; elsewhere this raises
        Unsupported: loop over the steps there. The step ends with the function. No view of a step with arrays that were
        lent may outlive it: copy what is to be kept. on_error: what the function raises is "report"ed, logged and
        counted (statistics.analysis_errors), and the simulation goes on; or the writer's end() "raise"s it as well.
        """
        if on_error not in ("report", "raise"):
            raise ValueError(f"on_error is 'report' or 'raise', not {on_error!r}")
        this = weakref.ref(self)

        def call() -> None:
            stream = this()
            if stream is None:
                return
            step = stream._step = ReadStep(stream)
            with step:
                function(step)

        self._core.on_step(call, on_error == "raise")

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps that are kept now (engines pool, file, space). Raises Unsupported where none are."""
        return self._core.steps()

    def seek(self, number: int) -> None:
        """The next step is the first kept one with at least this number; so iteration goes on (pool, file, space)."""
        self._core.seek(number)

    @overload
    def __getitem__(self, which: int) -> ReadStep: ...
    @overload
    def __getitem__(self, which: slice) -> Iterator[ReadStep]: ...
    @overload
    def __getitem__(self, which: tuple[Any, ...]) -> np.ndarray: ...
    def __getitem__(self, which: int | slice | tuple[Any, ...]) -> ReadStep | Iterator[ReadStep] | np.ndarray:
        """A kept step by its number (pool, file, space): with stream[3] as step: ...; a negative one counts from the
        end: stream[-1] is the last step that is kept.

        A slice counts positions in the list `steps`, not numbers: for step in stream[5:10] gives the sixth to the tenth
        step that is kept, stream[::10] every tenth. It iterates over them and ends each when the next begins.

        stream["T", 5:10, ..., 3] reads T[..., 3] in each of these steps into one array, whose first axis is the steps;
        stream["T", :] all of T. Raises InvalidArgument when T's shape or type changes between them.

        All ranks of a reader ask for the same. Raises NotFound for a step that is not kept, Unsupported where none are.
        """
        if isinstance(which, slice):
            return self._each(self.steps[which])
        if isinstance(which, tuple):
            return self._several(which)
        if not hasattr(which, "__index__"):
            raise InvalidArgument(
                "stream[...] takes the number of a step, a slice of steps, or a variable's name and such a slice "
                f'(stream["T", 5:10, ..., 3]), not {type(which).__name__}'
            )
        number, kept = operator.index(which), self.steps
        if number < -len(kept):
            raise NotFound(f"stream '{self.name}' keeps {len(kept)} steps; there is none at {number}")
        if number < 0:
            number = kept[number]
        elif number not in kept:
            raise NotFound(f"stream '{self.name}' does not keep step {number}")
        return self._kept(number)

    def _each(self, numbers: list[int]) -> Iterator[ReadStep]:
        for number in numbers:
            with self._kept(number) as step:
                yield step

    def _several(self, which: tuple[Any, ...]) -> np.ndarray:
        if len(which) < 2 or not isinstance(which[0], str) or not isinstance(which[1], slice):
            raise InvalidArgument(
                'write stream[-1]["T"] to read one step, and stream["T", 5:10, ..., 3] to read several: '
                "a variable's name, a slice of steps, an index"
            )
        name, chosen, index = which[0], which[1], which[2:]
        kept = self.steps
        numbers = kept[chosen]
        if not numbers:
            of = f"the {len(kept)} kept steps" + (f" (numbers {kept[0]} to {kept[-1]})" if kept else "")
            raise NotFound(
                f"stream '{self.name}': the slice {_plain(chosen)} counts positions among {of}; none is in it"
            )
        with self._kept(numbers[0]) as step:
            shape, dtype = step[name].shape, step[name].dtype
        out = np.zeros((len(numbers), *np.broadcast_to(False, shape)[index].shape), dtype)
        self._read_steps(name, numbers, shape, index, out)
        return out

    def _read_steps(
        self, name: str, numbers: list[int], shape: tuple[int, ...], index: tuple[Any, ...], out: np.ndarray
    ) -> None:
        """The elements of a variable of this shape in each of these kept steps into out[0], out[1], ..., which holds
        zeros."""
        for place, number in enumerate(numbers):
            with self._kept(number) as step:
                variable = step[name]
                if (variable.shape, variable.dtype) != (shape, out.dtype):
                    raise InvalidArgument(
                        f"'{name}' is {variable.dtype} {variable.shape} in step {number}, and {out.dtype} {shape} in "
                        f"step {numbers[0]}; read each with stream[number]"
                    )
                if variable.kind == "global_array" and variable.dtype != object:
                    variable.read(index, out=out[place, ...])
                else:  # small, or read whole in any case
                    out[place, ...] = np.asarray(variable[...], variable.dtype)[index]

    def _kept(self, number: int) -> ReadStep:
        """A step that was kept a moment ago."""
        self.seek(number)
        try:
            step = self.step()
        except EndOfStream:
            step = None
        if step is None or step.number != number:
            if step is not None:
                step.end()
            raise NotFound(f"stream '{self.name}' does not keep step {number} any more")
        return step

    def close(self) -> None:
        """Leaves the stream; the writer goes on. An open step is given back; views stay valid. Twice does nothing."""
        if self.closed:
            return
        self._step = None
        try:
            self._core.close()
        finally:
            free_cohort(self._cohort)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        # The error is what the user is to see, not what follows from it.
        with suppress(Error):
            self.close()


class ReadStep(Mapping[str, Variable]):
    """A step being read: a mapping from names to variables. Leaving its `with` block, or its loop, gives it back."""

    def __init__(self, stream: Reader):
        self._stream = stream
        self._number = stream._core.step_number()

    @property
    def number(self) -> int:
        """The writer's number; gaps follow drops and late joins."""
        return self._number

    @property
    def attributes(self) -> StepAttributes:
        """The attributes in force, those of variables ("T/units") among them."""
        return StepAttributes(lambda: self._core)

    def __getitem__(self, name: str) -> Variable:
        """Raises NotFound, a KeyError, for what no rank put into this step: it names the last step seen with it."""
        return Variable(self, self._core.variable(name))

    def __iter__(self) -> Iterator[str]:
        return iter([info.name for info in self._core.variables()])

    def __len__(self) -> int:
        return len(self._core.variables())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._core.has(name)

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def wait(self, timeout: float | None = None) -> None:
        """Performs what get() has enqueued, all at once. timeout: seconds; None is step_timeout_ms.

        Raises TimeoutError, PeerLost, WriterLost, StepGone; the arrays then hold anything.
        """
        self._core.wait(to_ms(timeout))

    def end(self) -> None:
        """Performs what get() has enqueued and gives the step back. Views of it stay valid and keep it leased."""
        core = self._core
        self._stream._step = None
        core.end_step()

    def to_xarray(self, names: Sequence[str] | None = None) -> xarray.Dataset:
        """The arrays and values of the step, or those named, as an xarray.Dataset (pip install xarray).

        The attribute "T/dims" (a list of names) gives the dimensions of T; others are called T_dim_0, ... A variable
        that has the name of its one dimension becomes a coordinate. Attributes come along: "T/units" as units of T,
        others in Dataset.attrs, with the step's number as "step". Local arrays need one block.
        """
        from .export import to_xarray

        dataset: xarray.Dataset = to_xarray(self, names)
        return dataset

    def to_pandas(self, names: Sequence[str] | None = None) -> pandas.DataFrame:
        """Arrays of one dimension as the columns of a pandas.DataFrame (pip install pandas).

        names: None: the first such array and all of its length. The blocks of a local array (particles, say) are put
        one after the other, by writer rank. Raises InvalidArgument when columns differ in the rows of a block.
        """
        from .export import to_pandas

        return to_pandas(self, names)

    def to_vtk(
        self,
        names: str | Sequence[str] | None = None,
        *,
        spacing: Sequence[float] | None = None,
        origin: Sequence[float] | None = None,
    ) -> vtkmodules.vtkCommonDataModel.vtkImageData:
        """Global arrays of one shape, of one to three dimensions, as point data of a vtkImageData (pip install vtk).

        names: one or several; None: the first array and all of its shape. The last index runs along x. spacing, origin:
        in x, y, z; None: the attributes "T/spacing" and "T/origin" (or "spacing" and "origin"), else 1 and 0.
        """
        from .export import to_vtk

        image: vtkmodules.vtkCommonDataModel.vtkImageData = to_vtk(self, names, spacing, origin)
        return image

    def __enter__(self) -> ReadStep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream._step is not self:
            return
        if error is None:
            self.end()
            return
        with suppress(Error):
            self.end()

    def __repr__(self) -> str:
        if self._stream._step is not self:
            return f"<penstock.ReadStep {self._number} of '{self._stream.name}' over>"
        return f"<penstock.ReadStep {self._number} of '{self._stream.name}': {', '.join(self)}>"

    def _repr_html_(self) -> str | None:
        """In notebooks: a table of the variables and attributes."""
        from .tables import html_of_step

        return html_of_step(self) if self._stream._step is self else None

    @property
    def _core(self) -> CoreReader:
        if self._stream._step is not self:
            raise WrongState(f"step {self._number} of stream '{self._stream.name}' is over")
        return self._stream._core


def _plain(chosen: slice) -> str:
    """As it was written: 15:18."""
    step = () if chosen.step is None else (chosen.step,)
    return ":".join("" if part is None else str(part) for part in (chosen.start, chosen.stop, *step))
