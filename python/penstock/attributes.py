"""Attributes: named values of a step, or of a variable of it ("T/units").

Values: bool, int, float, complex, str, NumPy scalars, and one-dimensional arrays or lists of these. Scalars come back
as Python values, arrays as NumPy arrays, arrays of strings as lists of str. An attribute stays in force for later steps
until it is put again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

from . import _core, dtypes
from .errors import InvalidArgument, NotFound

MISSING = object()

# (dtype, is_array, packed elements, strings): what penstock._core takes and gives.
Packed = tuple[str, bool, bytes, list[str]]


def pack(name: str, value: Any) -> Packed:
    """What the library stores for a value. Raises InvalidArgument for what no attribute can hold."""
    if isinstance(value, str):
        return "string", False, b"", [str(value)]
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, str) for each in value):
        return "string", True, b"", [str(each) for each in value]
    if isinstance(value, (bytes, dict, set)) or value is None:
        raise InvalidArgument(f"the attribute '{name}' cannot be of type {type(value).__name__}")
    try:
        array = dtypes.to_array(value, f"the attribute '{name}'")
    except ValueError as error:
        raise InvalidArgument(f"the attribute '{name}' cannot be {value!r}: {error}") from None
    if array.ndim > 1:
        raise InvalidArgument(f"the attribute '{name}' has {array.ndim} dimensions; attributes have at most one")
    if array.dtype.kind in "UT" and isinstance(value, np.ndarray):
        return "string", True, b"", [str(each) for each in array]
    if array.dtype.kind in "OUT":
        raise InvalidArgument(f"the attribute '{name}' cannot be {value!r}")
    return dtypes.from_numpy(array.dtype), array.ndim == 1, dtypes.as_bits(array).tobytes(), []


def unpack(packed: Packed) -> Any:
    dtype, is_array, raw, strings = packed
    if dtype == "string":
        return strings if is_array else strings[0]
    array = np.frombuffer(raw, dtypes.to_numpy(dtype)).copy()
    return array if is_array else array[0].item()


class Attributes(MutableMapping[str, Any]):
    """The writer's side: what was put, by name. There is no deleting: readers may have seen it."""

    def __init__(self, put: Callable[..., None], values: dict[str, Any], replaced: dict[str, Any] | None = None):
        """replaced: of a step; takes what each name had before the step, MISSING if nothing."""
        self._put = put
        self._values = values
        self._replaced = replaced

    def __setitem__(self, name: str, value: Any) -> None:
        packed = pack(name, value)
        self._put(name, *packed)
        if self._replaced is not None:
            self._replaced.setdefault(name, self._values.get(name, MISSING))
        self._values[name] = unpack(packed)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise NotFound(f"no attribute '{name}' was put")
        return self._values[name]

    def __delitem__(self, name: str) -> None:
        raise InvalidArgument("attributes cannot be deleted; put another value")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


class StepAttributes(Mapping[str, Any]):
    """The reader's side: the attributes in force in one step, or those of one variable of it (without "name/")."""

    def __init__(self, core: Callable[[], _core.Reader], prefix: str = ""):
        self._core = core  # gives the open step's core, or raises
        self._prefix = prefix

    def __getitem__(self, name: str) -> Any:
        packed = self._core().attribute(self._prefix + name)
        if packed is None:
            raise NotFound(f"the step has no attribute '{self._prefix}{name}'; it has {', '.join(self) or 'none'}")
        return unpack(packed)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._core().attribute(self._prefix + name) is not None

    def __iter__(self) -> Iterator[str]:
        names = self._core().attribute_names()
        return iter([name[len(self._prefix) :] for name in names if name.startswith(self._prefix)])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return repr(dict(self))
