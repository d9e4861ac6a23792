"""The HDF5 file of saved steps, which h5py, xarray and netCDF tools open.

The layout:

    /T            (step, ...)   a variable that has one shape in every step: one dataset, growing along `step`
    /step         (step,)       the steps' numbers, and the dimension scale
    /steps/00000012/U           a variable whose shape changes, or that is not in every step: a dataset per step, in a
                                group named after the step's number; local arrays: a group of blocks, /steps/.../P/0, 1
    /time         (step,)       an attribute of the stream that is one number, different from step to step
    /penstock                   a group whose attribute "layout" is JSON that says where everything is, for append

The attribute "T/dims", a list of names, names the dimensions of T; others are called T_dim_0, T_dim_1, ... as by
step.to_xarray(). Other attributes are attributes: of the file, of the variable they belong to ("T/units"), and, when
they change, of the step's group. Slashes in their names become "_"; a name that is taken there gets a "_" before it.
Booleans are int8 with the attribute dtype="bool" (netCDF's custom, which xarray undoes).

The file appears under its name when it is complete: it is written beside it and renamed. Needs h5py.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .errors import InvalidArgument

CHUNK_BYTES = 32 << 20  # of large arrays
SMALL_CHUNK_BYTES = 64 << 10  # of small ones: several steps share a chunk
OWN_GROUP = "penstock"  # as masters of the engine `file` have it
OWN_ATTRIBUTES = ("penstock_complete", "penstock_steps_dropped")
NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable.{:>10}"


class LocalBlocks(list[np.ndarray]):
    """The blocks of a local array: arrays of any shapes, by block number."""


@dataclass(frozen=True)
class Value:
    """One variable in one step. data: an array, a text, or LocalBlocks."""

    data: np.ndarray | str | LocalBlocks
    dimensions: tuple[str, ...] = ()  # names of the array's dimensions, if it has them


def require_folder(path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.absolute().parent}")


def full_disk(error: BaseException | None) -> str:
    """The system's text when an error says that the disk has no room, or that a file may not grow; else empty."""
    said = re.search(r"\berrno = (\d+)", str(error))  # h5py's errors that are no OSError
    number = getattr(error, "errno", None) or (int(said[1]) if said else 0)
    return os.strerror(number) if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""


class Archive:
    """The file being written. Used as a context: left by an exception, or without finish(), nothing remains of it."""

    def __init__(self, path: str | Path, compression: int = 0, append: bool = False):
        """compression: of deflate, 0 (none) to 9, for new datasets. append: goes on with a copy of what was saved, and
        raises InvalidArgument if that is something else.
        """
        import h5py

        self.path = Path(path)
        self._compression = compression
        require_folder(self.path)
        self._target = self.path.resolve()  # of a symbolic link, which stays
        self.temporary = self._target.with_name(f".{self._target.name}.{os.getpid()}.partial")
        if append and not h5py.is_hdf5(self.path):
            raise InvalidArgument(f"{self.path} cannot be appended to: it is no HDF5 file")
        try:
            if append:
                shutil.copy(self.path, self.temporary)  # with its permissions
            # netCDF-4 readers want the order of creation.
            self.root = h5py.File(self.temporary, "r+" if append else "w", track_order=True)
        except BaseException:
            self.temporary.unlink(missing_ok=True)
            raise
        self.numbers: list[int] = []
        self._series: dict[str, Any] = {}  # datasets along `step`
        self._loose: set[str] = set()  # variables that live in the steps' groups
        self._scales: dict[str, Any] = {}
        self._paths: dict[str, str] = {}  # of variables, by name
        self._taken: set[str] = set()  # those and the dimensions'
        self._dropped_before = 0
        self._step_name = "step"
        self._groups_name = "steps"
        self._attributes = _Attributes(self)
        self._finished = False
        if not append:
            self.root.create_group(OWN_GROUP, track_order=True)
            return
        try:
            self._restore(json.loads(self.root[OWN_GROUP].attrs["layout"]))
        except BaseException as error:
            self.__exit__()
            if isinstance(error, Exception):
                what = f"this version of penstock stream save has not written it: {error}"
                raise InvalidArgument(f"{self.path} cannot be appended to: {what}") from None
            raise

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, kind: object = None, error: BaseException | None = None, trace: object = None) -> None:
        if not self._finished:
            with contextlib.suppress(Exception):
                if full_disk(error):  # what HDF5 cannot write crashes the process when it ends
                    with open(os.devnull, "r+b", buffering=0) as nothing:
                        os.dup2(nothing.fileno(), self.root.id.get_vfd_handle(), inheritable=False)
                self.root.close()
            self.temporary.unlink(missing_ok=True)

    def add_step(self, number: int, values: Mapping[str, Value], attributes: Mapping[str, Any]) -> int:
        """Appends a step; returns the bytes of its arrays. When it raises, the file has the steps before this one."""
        index = len(self.numbers)
        if index == 0:
            self._choose_names(values)
        self.numbers.append(number)
        last, known = dict(self._attributes.last), set(self._paths)
        try:
            return self._add_step(number, values, attributes, index)
        except Exception:
            self._forget(index, known)
            self._attributes.last = last
            raise

    def _forget(self, index: int, known: set[str]) -> None:
        """Takes back what was added of the step of this index, the last one. known: the variables before it."""
        for name in self._paths.keys() - known - self._series.keys():
            self._taken.discard(self._paths.pop(name))
            self._loose.discard(name)
        self.root.pop(f"{self._groups_name}/{self.numbers.pop():08d}", None)
        for name, dataset in list(self._series.items()):
            if index == 0:
                del self.root[self._series.pop(name).name]
            elif dataset.shape[0] > index:
                dataset.resize(index, axis=0)
        for dataset in (self._scale(self._step_name), *self._attributes.series.values()):
            if dataset.shape[0] > index:
                dataset.resize(index, axis=0)

    def _add_step(self, number: int, values: Mapping[str, Value], attributes: Mapping[str, Any], index: int) -> int:
        self._append(self._scale(self._step_name), index, number)
        for name in values:  # before any dimension takes one of their names
            self.path_of(name)
        for name in [n for n in self._series if n not in values]:
            self._loosen(name, index)
        size = 0
        for name, value in values.items():
            size += self._add(name, value, index)
        self._attributes.add(index, attributes)
        return size

    def finish(self, complete: bool, steps_dropped: int = 0) -> list[str]:
        """Closes the file and gives it its name. Returns the attributes that could not be kept."""
        left_out = self._attributes.attach() if self.numbers else []
        self.root.attrs["penstock_complete"] = np.int8(complete and not left_out)
        self.root.attrs["penstock_steps_dropped"] = steps_dropped + self._dropped_before
        self.root[OWN_GROUP].attrs["layout"] = json.dumps(self._layout(), default=str)
        self.root.flush()  # an error here leaves the file open, for __exit__
        self.root.close()
        descriptor = os.open(self.temporary, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.temporary.replace(self._target)
        self._finished = True
        return left_out

    @property
    def variables(self) -> list[str]:
        """Those that the file has."""
        return list(self._paths)

    def require_same(self, values: Mapping[str, Value]) -> None:
        """Raises InvalidArgument unless the variables along `step` are there, with the type that they have. Another
        shape is no error, as within a stream.
        """
        for name, dataset in self._series.items():
            if name not in values:
                raise InvalidArgument(f"{self.path} cannot be appended to: the step has no '{name}'")
            was, now = _kind(dataset.dtype, dataset.ndim - 1), _kind_of(values[name].data)
            if was != now:
                raise InvalidArgument(
                    f"{self.path} cannot be appended to: '{name}' is {was} there, and {now} in the step"
                )

    def group_of(self, index: int) -> Any:
        path = f"{self._groups_name}/{self.numbers[index]:08d}"
        # With an order of creation HDF5 also takes attributes of more than 64 KiB.
        return self.root[path] if path in self.root else self.root.create_group(path, track_order=True)

    def dataset_of(self, name: str, index: int) -> Any | None:
        """Where the variable's values of this step are."""
        if name in self._series:
            return self._series[name]
        return self.group_of(index).get(self.path_of(name)) if name in self._loose else None

    def has(self, name: str) -> bool:
        return name in self._series or name in self._loose

    def series(self, path: str, dtype: Any, shape: tuple[int, ...], dimensions: tuple[str, ...] = ()) -> Any:
        """A new dataset along `step`, without values yet."""
        stored, marks = _storage(dtype)
        item = max(1, int(np.prod(shape)) * (stored.itemsize if isinstance(stored, np.dtype) else 16))
        rows = max(1, min(1024, SMALL_CHUNK_BYTES // item))
        dataset = self.root.create_dataset(
            path,
            shape=(0, *shape),
            maxshape=(None, *shape),
            dtype=stored,
            chunks=(rows, *chunk_of(shape, item)),
            **self._filters(stored),
        )
        dataset.attrs.update(marks)
        dataset.dims[0].attach_scale(self._scale(self._step_name))
        for axis, length in enumerate(shape):
            wanted = dimensions[axis] if axis < len(dimensions) else ""
            dataset.dims[axis + 1].attach_scale(self._dimension(wanted or f"{path}_dim_{axis}", length))
        return dataset

    def path_of(self, name: str) -> str:
        """Where a variable of this name is."""
        if name not in self._paths:
            self._paths[name] = self.free_path(name)
        return self._paths[name]

    def free_path(self, wanted: str) -> str:
        """As masters of the engine `file` choose it: a name with a slash is in a group, unless that is a variable."""
        path = "/".join(part if part not in ("", ".") else "_" for part in wanted.split("/"))
        while True:
            if any(path[:at] in self._taken for at, each in enumerate(path) if each == "/"):
                path = path.replace("/", "_")
            if path not in self._taken and not any(taken.startswith(f"{path}/") for taken in self._taken):
                break
            path = f"_{path}"
        self._taken.add(path)
        return path

    def drop(self, dataset: Any) -> None:
        self._taken.discard(dataset.name.removeprefix("/"))
        del self.root[dataset.name]

    # ----------------------------------------------------------------------------------------------------- inside

    def _layout(self) -> dict[str, Any]:
        return {
            "names": [self._step_name, self._groups_name],
            "variables": self._paths,
            "loose": sorted(self._loose),
            "scales": {name: scale.name for name, scale in self._scales.items()},
            "taken": sorted(self._taken),
            "attributes": self._attributes.layout(),
        }

    def _restore(self, layout: dict[str, Any]) -> None:
        self._step_name, self._groups_name = layout["names"]
        self._paths, self._loose, self._taken = layout["variables"], set(layout["loose"]), set(layout["taken"])
        self._scales = {name: self.root[path] for name, path in layout["scales"].items()}
        self._series = {name: self.root[path] for name, path in self._paths.items() if name not in self._loose}
        self.numbers = self._scale(self._step_name)[...].tolist() if self._scales else []
        self._dropped_before = int(self.root.attrs["penstock_steps_dropped"])
        self._attributes.restore(layout["attributes"])

    def _choose_names(self, values: Mapping[str, Value]) -> None:
        taken = {name.split("/")[0] for name in values}
        while self._step_name in taken:
            self._step_name = f"penstock_{self._step_name}"
        while self._groups_name in taken:
            self._groups_name = f"penstock_{self._groups_name}"
        self._taken |= {self._step_name, self._groups_name, OWN_GROUP}
        scale = self.root.create_dataset(self._step_name, shape=(0,), maxshape=(None,), dtype="i8", chunks=(1024,))
        scale.make_scale(self._step_name)
        scale.attrs["long_name"] = "number of the step"
        self._scales[self._step_name] = scale

    def _scale(self, name: str) -> Any:
        return self._scales[name]

    def _dimension(self, name: str, length: int) -> Any:
        """The scale of a dimension without coordinates; equal names of other lengths are told apart by the length."""
        if name in self._scales and self._scales[name].shape != (length,):
            name = f"{name}_{length}"
        if name not in self._scales:
            scale = self.root.create_dataset(self.free_path(name), shape=(length,), dtype=">f4", track_order=True)
            scale.make_scale(NO_VARIABLE.format(length))
            self._scales[name] = scale
        return self._scales[name]

    def _add(self, name: str, value: Value, index: int) -> int:
        data = value.data
        if name not in self._series and name not in self._loose:
            # HDF5 has no chunks of nothing, so empty arrays cannot grow along `step`.
            if index == 0 and not isinstance(data, LocalBlocks) and 0 not in np.shape(data):
                self._series[name] = self.series(
                    self.path_of(name), _dtype(data), _as_array(data).shape, value.dimensions
                )
            else:
                self._loose.add(name)
        dataset = self._series.get(name)
        if dataset is not None:
            array = _as_array(data)
            if not isinstance(data, LocalBlocks) and _fits(dataset, array, data):
                self._append(dataset, index, _stored(array))
                return array.nbytes
            self._loosen(name, index)
        return self._add_loose(self.path_of(name), data, self.group_of(index))

    @staticmethod
    def _append(dataset: Any, index: int, value: Any) -> None:
        dataset.resize(index + 1, axis=0)
        dataset[index] = value

    def _filters(self, stored: Any) -> dict[str, Any]:
        if self._compression == 0 or stored.kind == "O":  # texts are not in the chunks
            return {}
        return {"compression": "gzip", "compression_opts": self._compression, "shuffle": True}

    def _add_loose(self, name: str, data: Any, group: Any) -> int:
        if isinstance(data, LocalBlocks):
            return sum(self._add_loose(f"{name}/{number}", block, group) for number, block in enumerate(data))
        array = _as_array(data)
        stored, marks = _storage(_dtype(data))
        filters = self._filters(stored) if array.size > 0 and array.ndim > 0 else {}
        dataset = group.create_dataset(name, data=_stored(array), dtype=stored, track_order=True, **filters)
        dataset.attrs.update(marks)
        return array.nbytes

    def _loosen(self, name: str, steps: int) -> None:
        """The variable turned out to change its shape, or to be missing: its steps so far move into groups."""
        dataset = self._series.pop(name)
        self._loose.add(name)
        for index in range(steps):
            filters = self._filters(dataset.dtype) if dataset.ndim > 1 else {}
            copy = self.group_of(index).create_dataset(
                self.path_of(name), data=dataset[index], dtype=dataset.dtype, track_order=True, **filters
            )
            for key, value in dataset.attrs.items():
                if key not in ("DIMENSION_LIST", "REFERENCE_LIST"):
                    copy.attrs[key] = value
        for axis, dimension in enumerate(dataset.dims):
            for scale in list(dimension.values()):
                dataset.dims[axis].detach_scale(scale)
        del self.root[self.path_of(name)]


@dataclass
class _Attributes:
    """The stream's attributes: constant ones become attributes, numbers that change become series."""

    archive: Archive
    last: dict[str, Any] = field(default_factory=dict)
    from_start: set[str] = field(default_factory=set)
    series: dict[str, Any] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)  # HDF5 could not hold them when the file was saved before
    keys: dict[str, str] = field(default_factory=dict)  # of those that attach() put: the names there
    notes: dict[str, str] = field(default_factory=dict)  # the names in the steps' groups

    def add(self, index: int, attributes: Mapping[str, Any]) -> None:
        for name, value in attributes.items():
            if index == 0:
                self.from_start.add(name)
            elif name not in self.last and name not in self.lost:
                self._note(name, value, index)
            elif name in self.last and not _equal(self.last[name], value):
                self._changed(name, value, index)
            self.last[name] = value
        for name, dataset in self.series.items():
            Archive._append(dataset, index, self.last[name])

    def attach(self) -> list[str]:
        """At the end: what stayed the same goes to the file and the variables, with what the others were last. Returns
        the names of what HDF5 cannot hold."""
        left_out = []
        index = len(self.archive.numbers) - 1
        for name, value in self.last.items():
            if name in self.series or self._names_dimensions(name):
                continue
            target, key = self._place(name, index)
            while key in target.attrs or key in OWN_ATTRIBUTES:
                key = f"_{key}"
            self.keys[name] = key
            try:
                target.attrs[key] = _attribute(value)
            except (OSError, ValueError, TypeError, RuntimeError):
                left_out.append(name)
        return left_out

    def layout(self) -> dict[str, Any]:
        return {
            "known": {name: value if self._names_dimensions(name) else None for name, value in self.last.items()},
            "from_start": sorted(self.from_start),
            "series": {name: dataset.name for name, dataset in self.series.items()},
            "keys": self.keys,
            "notes": self.notes,
        }

    def restore(self, layout: dict[str, Any]) -> None:
        """What attach() has put is taken from there: it may change, and comes back at the end."""
        self.from_start = set(layout["from_start"])
        self.notes = layout.get("notes", {})  # files of earlier versions have none
        self.series = {name: self.archive.root[path] for name, path in layout["series"].items()}
        index = len(self.archive.numbers) - 1
        for name, value in layout["known"].items():
            if name in self.series:
                self.last[name] = self.series[name][-1]
            elif self._names_dimensions(name):
                self.last[name] = value
            else:
                target, key = self._place(name, index)
                key = layout.get("keys", {}).get(name, key)
                if key not in target.attrs:
                    self.lost.add(name)
                    continue
                self.last[name] = target.attrs[key]
                del target.attrs[key]

    def _names_dimensions(self, name: str) -> bool:
        return name.endswith("/dims") and self.archive.has(name.removesuffix("/dims"))

    def _place(self, name: str, index: int) -> tuple[Any, str]:
        """What has the attribute in the end, and its name there."""
        owner, _, key = name.rpartition("/")
        dataset = self.archive.dataset_of(owner, index) if owner else None
        return (self.archive.root, plain_name(name)) if dataset is None else (dataset, key)

    def _changed(self, name: str, value: Any, index: int) -> None:
        dataset = self.series.get(name)
        if dataset is None:
            known_from_start = name in self.from_start and "/" not in name
            if known_from_start and is_number(value) and is_number(self.last[name]):
                self._start_series(name, value, [self.last[name]] * index)
            else:
                self._note(name, value, index)
        elif not is_number(value):
            earlier = dataset[...]
            self.archive.drop(self.series.pop(name))
            self.from_start.discard(name)
            for i, was in enumerate(earlier):
                self._note(name, was, i)
            self._note(name, value, index)
        elif np.result_type(dataset.dtype, np.asarray(value).dtype) != dataset.dtype:  # a whole number so far
            earlier = list(dataset[...])
            self.archive.drop(self.series.pop(name))
            self._start_series(name, value, earlier)

    def _start_series(self, name: str, value: Any, earlier: list[Any]) -> None:
        dtype = np.result_type(np.asarray(earlier).dtype, np.asarray(value).dtype)
        dataset = self.archive.series(self.archive.free_path(name), dtype, ())
        dataset.resize(len(earlier), axis=0)
        dataset[...] = np.asarray(earlier, dtype)
        self.series[name] = dataset

    def _note(self, name: str, value: Any, index: int) -> None:
        if name not in self.notes:
            self.notes[name] = plain_name(name)
            while list(self.notes.values()).count(self.notes[name]) > 1:
                self.notes[name] = f"_{self.notes[name]}"
        self.archive.group_of(index).attrs[self.notes[name]] = _attribute(value)


# ----------------------------------------------------------------------------------------------------------- values


def _dtype(data: Any) -> Any:
    return str if isinstance(data, str) or _as_array(data).dtype.kind in "OUST" else _as_array(data).dtype


def _as_array(data: Any) -> np.ndarray:
    return np.asarray(data, dtype=object) if isinstance(data, str | list) else np.asarray(data)


def _storage(dtype: Any) -> tuple[Any, dict[str, Any]]:
    """How a type is stored, and the attributes that say what it stands for."""
    import h5py

    if dtype is str:
        return h5py.string_dtype(), {}
    dtype = np.dtype(dtype)
    if dtype == np.bool_:
        return np.dtype(np.int8), {"dtype": "bool"}
    if dtype.kind == "V" or (dtype.kind == "f" and dtype.itemsize == 2 and dtype != np.float16):
        return np.dtype(f"u{dtype.itemsize}"), {"penstock_dtype": dtype.name}  # bfloat16: its bits
    return dtype, {}


def _stored(array: np.ndarray) -> Any:
    if array.dtype.kind in "OUST":
        return array.astype(object)
    stored, _ = _storage(array.dtype)
    return array if stored == array.dtype else array.view(stored)


def _fits(dataset: Any, array: np.ndarray, data: Any) -> bool:
    stored, _ = _storage(_dtype(data))
    return bool(dataset.shape[1:] == array.shape and dataset.dtype == stored)


def chunk_of(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """The shape halved along its slowest dimensions until it is small enough."""
    chunk = [max(1, length) for length in shape]
    for axis in range(len(chunk)):
        while item > CHUNK_BYTES and chunk[axis] > 1:
            item = item * ((chunk[axis] + 1) // 2) // chunk[axis]
            chunk[axis] = (chunk[axis] + 1) // 2
    return tuple(chunk)


def _attribute(value: Any) -> Any:
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "OUST":
        import h5py

        return np.asarray([str(v) for v in array.ravel()], dtype=h5py.string_dtype())
    return _stored(np.atleast_1d(array)) if array.ndim else _stored(np.atleast_1d(array))[0]


def plain_name(name: str) -> str:
    return name.replace("/", "_")


def is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"


def _equal(a: Any, b: Any) -> bool:
    """As they are stored: one of them may come from the file."""
    a, b = np.asarray(_attribute(a)), np.asarray(_attribute(b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return np.array_equal(a, b) if a.dtype == object else a.tobytes() == b.tobytes()


def _kind(stored: Any, ndim: int) -> str:
    return f"an array of {ndim} dimensions of {stored}"


def _kind_of(data: Any) -> str:
    return "a local array" if isinstance(data, LocalBlocks) else _kind(_storage(_dtype(data))[0], _as_array(data).ndim)
