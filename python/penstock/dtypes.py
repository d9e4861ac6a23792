"""Element types: what Penstock calls them and what they are in NumPy.

The names are NumPy's, and "string". bfloat16 is ml_dtypes.bfloat16 where that package is installed; elsewhere
its bits come as uint16.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from . import _core
from .errors import InvalidArgument

try:
    from ml_dtypes import bfloat16 as _bfloat16

    BFLOAT16 = np.dtype(_bfloat16)
except (ImportError, AttributeError):  # AttributeError: beside a NumPy that is older than it takes, as ParaView's
    BFLOAT16 = np.dtype(np.uint16)

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64", "complex64", "complex128")
_TO_NUMPY = {name: np.dtype(name) for name in ("bool", *_INTEGERS, *_FLOATS)}
_TO_NUMPY |= {"bfloat16": BFLOAT16, "string": np.dtype(object)}
_FROM_NUMPY = {dtype: name for name, dtype in _TO_NUMPY.items() if name != "string"}
_FROM_NUMPY[np.dtype(np.uint16)] = "uint16"  # also where bfloat16 comes as this


def to_numpy(name: str) -> np.dtype:
    """The NumPy type of a Penstock one; object for strings."""
    return _TO_NUMPY[name]


def from_numpy(dtype: Any) -> str:
    """The Penstock name of a NumPy type (or anything numpy.dtype takes, or "bfloat16").

    Raises InvalidArgument for types Penstock does not have (longdouble, datetime64, structured, object).
    """
    if isinstance(dtype, str) and dtype in _TO_NUMPY:
        return dtype
    dtype = np.dtype(dtype)
    name = _FROM_NUMPY.get(dtype) or _FROM_NUMPY.get(dtype.newbyteorder("="))
    if name is not None:
        return name
    if dtype.kind == "U":
        return "string"
    raise InvalidArgument(f"penstock has no element type for {dtype}; it has {', '.join(_TO_NUMPY)}")


def fields_of(dtype: Any) -> list[tuple[str, str]]:
    """(name, Penstock's type) of each field of a structured type; none of any other.

    Raises InvalidArgument for fields that have fields or dimensions.
    """
    if isinstance(dtype, str) and dtype in _TO_NUMPY:
        return []
    dtype = np.dtype(dtype)
    return [(name, from_numpy(dtype[name])) for name in dtype.names or ()]


def require_apart(what: str, dtype: np.dtype) -> None:
    """Raises InvalidArgument for a structured type with fields that share bytes: filling one changes the other."""
    end, before = 0, ""
    fields: Mapping[str, Any] = dtype.fields or {}
    for name in sorted(fields, key=lambda name: fields[name][1]):
        if fields[name][1] < end:
            raise InvalidArgument(f"{what}: fields {before!r} and {name!r} of {dtype} share bytes")
        end, before = fields[name][1] + dtype[name].itemsize, name


def native(dtype: Any) -> np.dtype:
    """NumPy's type of anything from_numpy or fields_of takes."""
    return np.dtype(dtype) if fields_of(dtype) else to_numpy(from_numpy(dtype))


def require_no_mask(what: str, value: Any) -> None:
    """Raises InvalidArgument for an array (numpy.ma), or a list of such, with masked elements: none can be kept."""
    if isinstance(value, list | tuple):
        for each in value:
            if isinstance(each, list | tuple | np.ma.MaskedArray):
                require_no_mask(what, each)
    elif isinstance(value, np.ma.MaskedArray):
        masked = np.count_nonzero(np.ascontiguousarray(np.ma.getmaskarray(value)).view(np.bool_))
        if masked:
            raise InvalidArgument(
                f"{what} has {masked} masked elements, and Penstock keeps no masks: fill them, as with "
                "value.filled(numpy.nan); the mask can be a variable of its own (numpy.ma.getmaskarray(value))"
            )


def to_array(value: Any, what: str = "the array") -> np.ndarray:
    """A host array of native byte order of anything array-like: NumPy, DLPack producers, nested lists, scalars.

    No copy where the value already is one. An array on a device is copied by its own library (DLPack); raises
    InvalidArgument where that cannot, and for masked elements; `what` names the value then.
    """
    require_no_mask(what, value)
    if not isinstance(value, np.ndarray):
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array_interface__"):
            value = _from_dlpack(value)
        else:
            value = np.asarray(value)
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    array: np.ndarray = value
    return array


def _from_dlpack(value: Any) -> np.ndarray:
    device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else 1
    if int(device) not in (1, 3):  # host memory, and host memory that a GPU can reach
        try:
            return np.from_dlpack(value, device="cpu")
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgument(
                f"{type(value).__name__} is in a device's memory, and was not copied to the host's ({error}): "
                "copy it there first"
            ) from error
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):  # a type that NumPy does not have there: bfloat16
        with suppress(BufferError, RuntimeError, TypeError, ValueError):
            memory, dtype, shape, strides = _core.dlpack_array(value.__dlpack__(), False)
            if dtype and 0 not in shape:
                return np.ndarray(shape, to_numpy(dtype), memory, strides=strides)
        return np.asarray(value)


def as_bits(array: np.ndarray) -> np.ndarray:
    """The same memory as a type that the buffer protocol knows; bfloat16 becomes uint16."""
    return array.view(np.uint16) if array.dtype.kind == "V" else array
