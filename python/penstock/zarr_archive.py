"""The Zarr store of saved steps, which zarr and xarray.open_zarr open.

Every variable is an array along `step`, as are the steps' numbers and the stream's attributes that are a number and
change. So every step has the same variables, with the same shapes and types. Other attributes are attributes, with
their last value; those that change, appear after the first step, or whose name is taken are in the attribute
`penstock_attributes`, too: JSON of {name: {number of a step: value from this step on}}. A slash in a name becomes an
underscore. The store appears under its name when it is complete. Needs zarr 3.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .archive import SMALL_CHUNK_BYTES, LocalBlocks, Value, chunk_of, is_number, plain_name, require_folder
from .errors import Unsupported


def is_store(path: Path) -> bool:
    """Whether a store that this module may replace is there."""
    return is_store_name(path) and (path / "zarr.json").is_file()


def is_store_name(path: Path) -> bool:
    return path.suffix == ".zarr"


class ZarrArchive:
    """The store being written, as archive.Archive. Left without finish(), nothing remains of it."""

    def __init__(self, path: Path, compression: int = 0):
        """compression: of zstd, 0 (none) to 9."""
        import zarr.codecs

        self.path = path
        self._target = path.resolve()  # of a symbolic link, which stays
        require_folder(self._target)
        self.temporary = self._target.with_name(f".{self._target.name}.{os.getpid()}.partial")
        self.root = zarr.open_group(self.temporary, mode="w", zarr_format=3)
        self.numbers: list[int] = []
        self._compressors = [zarr.codecs.ZstdCodec(level=compression)] if compression else None
        self._arrays: dict[str, Any] = {}
        self._step = "step"
        self._lengths: dict[str, int] = {}  # of dimensions
        self._attributes: dict[str, dict[int, Any]] = {}  # their values, by the number of the step that brought them

    def __enter__(self) -> ZarrArchive:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)

    def add_step(self, number: int, values: Mapping[str, Value], attributes: Mapping[str, Any]) -> int:
        """Appends a step; returns the bytes of its arrays. When it raises, the store has the steps before this one."""
        data = {name: _array(name, value) for name, value in values.items()}
        index = len(self.numbers)
        if index == 0:
            while self._step in map(plain_name, values):
                self._step = f"penstock_{self._step}"
            self._lengths[self._step] = -1  # no other dimension has its name
            self._arrays = {name: self._make(name, each, values[name].dimensions) for name, each in data.items()}
        self.require_same(values)
        try:
            for name, array in self._arrays.items():
                array.resize((index + 1, *array.shape[1:]))
                array[index] = data[name]
        except Exception:
            for array in self._arrays.values():
                array.resize((index, *array.shape[1:]))
            raise
        self.numbers.append(number)
        for name, value in attributes.items():
            changes = self._attributes.setdefault(name, {})
            plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
            if not changes or _last(changes) != plain:
                changes[number] = plain
        return sum(each.nbytes for each in data.values())

    def finish(self, complete: bool, steps_dropped: int = 0) -> list[str]:
        """Closes the store and gives it its name. Returns the attributes that could not be kept."""
        import zarr

        self._put_series(self._step, np.asarray(self.numbers, np.int64))
        # At first, for their names are taken.
        self.root.attrs.update(penstock_complete=0, penstock_steps_dropped=steps_dropped, penstock_attributes="")
        apart: dict[str, dict[int, Any]] = {}
        left_out = [name for name, changes in self._attributes.items() if not self._keep(name, changes, apart)]
        self.root.attrs["penstock_attributes"] = json.dumps(apart)
        self.root.attrs["penstock_complete"] = int(complete and not left_out)
        with warnings.catch_warnings():  # no part of the format yet, but xarray asks for it
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(self.root.store)
        _replace(self._target, self.temporary)
        return left_out

    @property
    def variables(self) -> list[str]:
        """Those that the store has."""
        return list(self._arrays)

    def require_same(self, values: Mapping[str, Value]) -> None:
        """Raises Unsupported unless the variables are those of the store, with their shapes and types."""
        if different := self._arrays.keys() ^ values.keys():
            raise Unsupported(f"'{min(different)}' is not in every step, which only HDF5 files hold")
        for name, array in self._arrays.items():
            data = _array(name, values[name])
            if array.shape[1:] != data.shape or not (data.dtype == object or array.dtype == data.dtype):
                raise Unsupported(f"the shape or type of '{name}' changes, which only HDF5 files hold")

    def _make(self, name: str, first: np.ndarray, given: tuple[str, ...]) -> Any:
        """The array of a variable along `step`, without values yet."""
        path = plain_name(name)
        if path in self.root:
            raise Unsupported(f"two variables would be '{path}', one of them '{name}'")
        dimensions = [self._step]
        for axis, length in enumerate(first.shape):
            wanted = given[axis] if axis < len(given) else f"{path}_dim_{axis}"
            if self._lengths.setdefault(wanted, length) != length:
                wanted = f"{wanted}_{length}"
            dimensions.append(wanted)
        return self._create(path, first.shape, str if first.dtype == object else first.dtype, first.nbytes, dimensions)

    def _create(self, path: str, shape: tuple[int, ...], dtype: Any, step_bytes: int, dimensions: list[str]) -> Any:
        rows = max(1, min(1024, SMALL_CHUNK_BYTES // max(1, step_bytes)))
        return self.root.create_array(
            path,
            shape=(0, *shape),
            chunks=(rows, *chunk_of(shape, max(1, step_bytes))),
            dtype=dtype,
            compressors=self._compressors,
            dimension_names=dimensions,
        )

    def _put_series(self, name: str, data: np.ndarray) -> None:
        array = self._create(name, (), data.dtype, data.itemsize, [self._step])
        array.resize(data.shape)
        array[...] = data

    def _keep(self, name: str, changes: dict[int, Any], apart: dict[str, dict[int, Any]]) -> bool:
        """Puts an attribute where it belongs, or in `apart`. Returns whether it could: NaN and complex numbers are no
        JSON, as attributes of Zarr are.
        """
        from_start = next(iter(changes)) == self.numbers[0]
        numbers = from_start and len(changes) > 1 and all(map(is_number, changes.values()))
        if numbers and "/" not in name and name not in self.root:
            series = itertools.accumulate(self.numbers, lambda last, number: changes.get(number, last), initial=0)
            self._put_series(name, np.asarray(list(series)[1:]))
            return True
        try:
            json.dumps(changes, allow_nan=False)
        except (TypeError, ValueError):
            return False
        owner, _, key = name.rpartition("/")
        target, key = (self._arrays[owner], key) if owner in self._arrays else (self.root, plain_name(name))
        taken = key in target.attrs
        if taken or not from_start or len(changes) > 1:
            apart[name] = changes
        if not taken and not (owner in self._arrays and key == "dims"):
            target.attrs[key] = _last(changes)
        return True


def _array(name: str, value: Value) -> np.ndarray:
    data = value.data
    if isinstance(data, LocalBlocks):
        if len(data) != 1:
            raise Unsupported(f"'{name}' is a local array of {len(data)} blocks, which only HDF5 files hold")
        data = data[0]
    array = np.asarray(data)
    return array.astype(object) if array.dtype.kind in "OUST" else array


def _last(changes: dict[int, Any]) -> Any:
    return next(reversed(changes.values()))


def _replace(path: Path, by: Path) -> None:
    """A folder cannot be renamed onto another one, as a file can."""
    old = by.with_suffix(".old")
    if path.exists():
        path.rename(old)
    by.rename(path)
    shutil.rmtree(old) if old.is_dir() else old.unlink(missing_ok=True)
