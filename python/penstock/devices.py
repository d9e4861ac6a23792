"""Arrays in the memory of a CUDA device, without a copy to the host.

Two protocols say where such an array lies: DLPack (https://dmlc.github.io/dlpack) and the CUDA array interface, version
3 (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html). The NumPy arrays made here lie on the device
too: only the library may read or write their elements. Python may ask for type, shape and strides.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np

from . import _core, dtypes
from .errors import InvalidArgument

_CUDA = 2  # kDLCUDA
_ON_HOST = (np.ndarray, np.generic, list, tuple, int, float, complex, str)
_LEGACY_STREAM = 1  # of both protocols: the stream in which the library copies


def array_of(value: Any, what: str) -> np.ndarray:
    """What put() takes: an array on a CUDA device as it is, anything else as dtypes.to_array() makes it."""
    on_device = None if isinstance(value, _ON_HOST) else array_on_device(value)
    return dtypes.to_array(value, what) if on_device is None else on_device


def array_on_device(value: Any) -> np.ndarray | None:
    """The memory of an array of CuPy, PyTorch, JAX, Numba and the like. Copies from it wait for what fills it.

    Returns None where the caller must use to_array(): the array is not on a CUDA device, its library does not hand it
    out (PyTorch, where gradients are required), or the type or the strides are none of ours.
    """
    if isinstance(value, _ON_HOST):
        return None
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) != _CUDA:
            return None
        try:
            memory, name, shape, strides = _core.dlpack_array(value.__dlpack__(stream=_LEGACY_STREAM), True)
        except (BufferError, RuntimeError, TypeError, ValueError):
            return None
        return _array(memory, dtypes.to_numpy(name), shape, strides) if name else None
    described = _interface(value)
    try:
        return None if described is None else _of_interface(value, described)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(f"{type(value).__name__}: its __cuda_array_interface__ is damaged: {error}") from None


def writable_on_device(value: Any) -> np.ndarray | None:
    """As array_on_device(), to be read into. None also where its library does not say that it may be changed (JAX)."""
    described = _interface(value)
    return None if described is None or described["data"][1] else array_on_device(value)


def _of_interface(value: Any, described: dict[str, Any]) -> np.ndarray | None:
    dtype, shape, strides = np.dtype(described["typestr"]), tuple(described["shape"]), described.get("strides")
    if not dtype.isnative or described.get("mask") is not None:
        return None
    address, stream = described["data"][0], described.get("stream")
    if 0 not in shape and not _core.on_device(
        address
    ):  # not known to the driver: to be touched by its own library only
        return None
    if stream not in (None, _LEGACY_STREAM) and 0 not in shape:
        _core.wait_for_stream(address, stream)
    if strides is None:
        reach = math.prod(shape) * dtype.itemsize
    else:
        reach = dtype.itemsize + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    return _array(_core.Memory(value, address, max(0, reach)), dtype, shape, strides)


def _array(memory: Any, dtype: np.dtype, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> np.ndarray | None:
    if 0 in shape:
        return np.empty(shape, dtype)
    return None if strides and min(strides) < 0 else np.ndarray(shape, dtype, memory, strides=strides)


def _interface(value: Any) -> dict[str, Any] | None:
    with suppress(AttributeError, TypeError, RuntimeError):  # PyTorch: on the host, or of a type without a name there
        interface: dict[str, Any] = value.__cuda_array_interface__
        return interface
    return None
