"""xarray.open_dataset("heat.steps", engine="penstock"): the kept steps of a stream as one lazy dataset.

Steps are the dimension `step`, whose coordinate is their numbers. A slice reads the steps and the elements that it
names, and nothing else; with chunks={} and dask each step is a chunk. What is opened is what penstock.open opens under
this name: the folder of a stream in files, the file of one step, a stream in a pool. Of a live stream without kept
steps the dataset is the next step, without the dimension `step`, as ReadStep.to_xarray() gives it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray
from xarray.backends import BackendArray, BackendEntrypoint, CachingFileManager
from xarray.backends.locks import SerializableLock
from xarray.core import indexing

from . import context
from .archive import is_number
from .errors import InvalidArgument, NotFound, Unsupported
from .export import attributes_of, dims_of
from .reader import Reader, ReadStep
from .variable import Variable

STEP = "step"
TIME = "time"  # a value or an attribute of this name is a coordinate along the steps


class PenstockBackend(BackendEntrypoint):
    """The engine "penstock" of xarray."""

    description = "Streams of Penstock: steps in files and in pools, and the next step of a live stream"
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "steps", "stream_engine", "timeout")

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """The folder of a stream in files. Other streams need engine="penstock"."""
        return isinstance(filename_or_obj, str | os.PathLike) and os.path.isfile(
            os.path.join(os.fspath(filename_or_obj), "stream.json")
        )

    def open_dataset(  # type: ignore[override]  # a path, and options of its own
        self,
        filename_or_obj: str | os.PathLike[str],
        *,
        drop_variables: str | Iterable[str] | None = None,
        steps: slice | Iterable[int] | None = None,
        stream_engine: str | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> xarray.Dataset:
        """The steps that are kept now, or those of `steps`: a list of step numbers, or a slice of Reader.steps.

        stream_engine is the option `engine` of penstock.open; options (pool, folder, ...) and timeout are its others.
        Opening looks at every step, and reads no arrays but coordinates. A variable that is not in all steps, or whose
        shape, type or dimensions change, or that is a local array of several blocks, is left out with a warning. A
        variable that is named like its one dimension is that dimension's coordinate, and is left out if its values
        change. Numbers among the stream's attributes that change are variables along `step`.

        Raises what penstock.open raises; NotFound for a step that is not kept, or when there is none.
        """
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        options |= {} if stream_engine is None else {"engine": stream_engine}
        name = os.fspath(filename_or_obj)
        manager = CachingFileManager(context.open, name, kwargs={"timeout": timeout, **options})
        try:
            reader = manager.acquire()
            numbers = _numbers(reader, steps, os.path.isfile(name))
            if numbers is None:  # a live stream, which must not wait for this reader
                dataset = _next_step(reader, dropped)
                manager.close()
                return dataset
            survey = _Survey(dropped)
            for number in numbers:
                with reader._kept(number) as step:
                    survey.add(step)
            dataset = survey.dataset(_Source(manager, SerializableLock(), numbers))
        except BaseException:
            manager.close()
            raise
        for variable, reason in survey.left_out.items():
            _warn(reader, variable, reason)
        dataset.set_close(manager.close)
        return dataset


def _numbers(reader: Reader, steps: Any, only_first: bool) -> list[int] | None:
    """The numbers of the chosen steps; None: no steps are kept. only_first: the file of one step was opened."""
    try:
        kept = reader.steps
    except Unsupported as error:
        if steps is None:
            return None
        raise Unsupported(f"steps= needs a stream whose steps are kept: {error}") from None
    if steps is None and (only_first or not kept):  # no step yet: the first one is awaited
        with reader.step() as step:
            return [step.number]
    if steps is None or isinstance(steps, slice):
        chosen = kept[steps or slice(None)]
    elif isinstance(steps, Iterable) and not isinstance(steps, str):
        chosen = [int(number) for number in steps]
    else:
        raise InvalidArgument(f"steps= is a slice or a list of step numbers, not {steps!r}")
    if missing := set(chosen).difference(kept):
        raise NotFound(f"stream '{reader.name}' does not keep step {min(missing)}")
    if not chosen:
        raise NotFound(f"stream '{reader.name}': steps={steps!r} selects none of {len(kept)} steps")
    return chosen


def _next_step(reader: Reader, dropped: set[str]) -> xarray.Dataset:
    with reader.step() as step:
        reasons = {name: _obstacle(step[name]) for name in step if name not in dropped}
        for name, reason in reasons.items():
            if reason:
                _warn(reader, name, reason)
        return step.to_xarray([name for name, reason in reasons.items() if not reason])


def _obstacle(variable: Variable) -> str:
    several = variable.kind == "local_array" and len(variable.blocks) != 1
    return f"it is a local array of {len(variable.blocks)} blocks" if several else ""


def _warn(reader: Reader, name: str, reason: str) -> None:
    warnings.warn(f"stream '{reader.name}': the dataset is without '{name}': {reason}", stacklevel=4)


@dataclass(frozen=True)
class _Form:
    """What must be the same in all steps."""

    shape: tuple[int, ...]
    dtype: np.dtype
    dims: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape} of dimensions {self.dims}"


@dataclass
class _Survey:
    """What the steps have, gathered step by step."""

    dropped: set[str]
    numbers: list[int] = field(default_factory=list)
    forms: dict[str, _Form] = field(default_factory=dict)  # as first seen
    seen: dict[str, list[int]] = field(default_factory=dict)  # in these steps
    left_out: dict[str, str] = field(default_factory=dict)  # why
    coordinates: dict[str, np.ndarray] = field(default_factory=dict)
    times: list[Any] = field(default_factory=list)  # of the global value of this name
    series: dict[str, list[Any]] = field(default_factory=dict)  # attributes that are a number in all steps
    own_attributes: dict[str, dict[str, Any]] = field(default_factory=dict)  # of variables, as last seen
    attributes: dict[str, Any] = field(default_factory=dict)  # of the last step

    def add(self, step: ReadStep) -> None:
        for name in step:
            if name not in self.dropped and name not in self.left_out:
                self._add_variable(step, name)
        self.attributes = attributes_of(step)
        numbers = {key: value for key, value in self.attributes.items() if is_number(value)}
        if not self.numbers:
            self.series = {key: [value] for key, value in numbers.items()}
        else:
            self.series = {key: [*was, numbers[key]] for key, was in self.series.items() if key in numbers}
        self.numbers.append(step.number)

    def _add_variable(self, step: ReadStep, name: str) -> None:
        variable = step[name]
        obstacle = _obstacle(variable)
        form = None if obstacle else _Form(variable.shape, variable.dtype, dims_of(step, name, variable.ndim))
        first = self.forms.setdefault(name, form) if form else None
        if obstacle or form is None or first != form:
            self.left_out[name] = obstacle or f"in step {step.number} it is {form}, before that {first}"
            return
        self.seen.setdefault(name, []).append(step.number)
        self.own_attributes[name] = attributes_of(step, name)
        if form.dims == (name,):
            values = np.asarray(variable[...])
            known = self.coordinates.setdefault(name, values)
            if not np.array_equal(values, known, equal_nan=values.dtype.kind in "fc"):
                self.left_out[name] = f"as a coordinate it must not change, and step {step.number} has other values"
        elif name == TIME and not form.dims:
            self.times.append(variable[()])

    def dataset(self, source: _Source) -> xarray.Dataset:
        for name, seen in self.seen.items():
            if name not in self.left_out and name not in self.coordinates and len(seen) < len(self.numbers):
                self.left_out[name] = f"it is not in step {min(set(self.numbers).difference(seen))}"
        forms = {name: form for name, form in self.forms.items() if name not in self.left_out}
        steps = STEP
        while steps in self.forms or any(steps in form.dims for form in self.forms.values()):
            steps = f"penstock_{steps}"
        variables = {name: self._variable(name, form, steps, source) for name, form in forms.items()}
        variables[steps] = xarray.Variable((steps,), np.asarray(self.numbers), {"long_name": "number of the step"})
        changing = {key for key, values in self.series.items() if key == TIME or any(v != values[0] for v in values)}
        for key in changing.difference(self.forms, variables, *(form.dims for form in forms.values())):
            variables[key] = xarray.Variable((steps,), np.asarray(self.series[key]))
        attributes = {key: value for key, value in self.attributes.items() if key not in variables}
        dataset = xarray.Dataset(variables, attrs=attributes)
        return dataset.set_coords([TIME]) if TIME in dataset and dataset[TIME].dims == (steps,) else dataset

    def _variable(self, name: str, form: _Form, steps: str, source: _Source) -> xarray.Variable:
        own = self.own_attributes[name]
        if name in self.coordinates:
            return xarray.Variable(form.dims, self.coordinates[name], own)
        if name == TIME and len(self.times) == len(self.numbers):
            return xarray.Variable((steps,), np.asarray(self.times), own)
        lazy = indexing.LazilyIndexedArray(_StepsArray(source, name, form))
        return xarray.Variable((steps, *form.dims), lazy, own, encoding={"preferred_chunks": {steps: 1}})


@dataclass(frozen=True)
class _Source:
    """The reader that all arrays of a dataset share. It is opened again in another process (dask)."""

    manager: CachingFileManager[Reader]
    lock: SerializableLock  # a reader has one open step
    numbers: list[int]


class _StepsArray(BackendArray):
    """A variable in all steps; the first axis is the steps."""

    def __init__(self, source: _Source, name: str, form: _Form):
        self.source = source
        self.name = name
        self.shape = (len(source.numbers), *form.shape)
        self.dtype = form.dtype

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        """key: an integer, a slice, or an array of integers for each axis."""
        numbers = np.atleast_1d(np.asarray(self.source.numbers)[key[0]]).tolist()
        box = tuple(map(_covering, key[1:]))
        covered = np.broadcast_to(False, self.shape[1:])[box].shape
        axes = [each for each in key[1:] if isinstance(each, slice | np.ndarray)]
        picked = [
            np.arange(length) if isinstance(each, slice) else each - min(each, default=0)
            for each, length in zip(axes, covered, strict=True)
        ]
        out = np.zeros((len(numbers), *map(len, picked)), self.dtype)
        with self.source.lock, self.source.manager.acquire_context() as reader:
            if all(isinstance(each, slice) for each in axes):
                reader._read_steps(self.name, numbers, self.shape[1:], box, out)
            else:  # what lies between the elements is read too, and is kept for one step only
                for place, number in enumerate(numbers):
                    part = np.zeros((1, *covered), self.dtype)
                    reader._read_steps(self.name, [number], self.shape[1:], box, part)
                    out[place] = part[0][np.ix_(*picked)]
        return out if np.ndim(key[0]) or isinstance(key[0], slice) else out[0]


def _covering(key: Any) -> int | slice:
    """The part of an axis that has what the key names."""
    if not isinstance(key, np.ndarray):
        return key if isinstance(key, slice) else int(key)
    return slice(int(key.min()), int(key.max()) + 1) if key.size else slice(0, 0)
