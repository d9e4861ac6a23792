"""Arrays in the memory of a CUDA device, without a copy to the host.

Two protocols say where such an array lies: DLPack (https://dmlc.github.io/dlpack) and the CUDA array interface, version
3 (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html). The NumPy arrays made here lie on the device
too: only the library may read or write their elements. Python may ask for type, shape and strides.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from typing import Any

import numpy as np

from . import _core, dtypes

_CUDA = 2  # kDLCUDA
_LEGACY_STREAM = 1  # of both protocols: the stream in which the library copies


def array_on_device(value: Any) -> np.ndarray | None:
    """The memory of an array of CuPy, PyTorch, JAX, Numba and the like, once what fills it is done.

    None where to_array() is to be asked: the array is not on a CUDA device, it is empty, its library does not hand it
    out (PyTorch, where gradients are required), or the type is not one of ours.
    """
    if isinstance(value, np.ndarray | np.generic | list | tuple | int | float | complex | str):
        return None
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        if int(value.__dlpack_device__()[0]) != _CUDA:
            return None
        try:
            memory, name, shape, strides = _core.dlpack_array(value.__dlpack__(stream=_LEGACY_STREAM))
        except (BufferError, RuntimeError, TypeError, ValueError):
            return None
        dtype = dtypes.to_numpy(name) if name else None
    else:
        described = _interface(value)
        if described is None:
            return None
        (address, _), dtype, shape = described["data"], np.dtype(described["typestr"]), tuple(described["shape"])
        strides = described.get("strides") or _packed(shape, dtype.itemsize)
        if described.get("stream") not in (None, _LEGACY_STREAM):
            ctypes.CDLL("libcuda.so.1").cuStreamSynchronize(ctypes.c_void_p(described["stream"]))
        memory = _core.Memory(value, address, _extent(shape, strides, dtype.itemsize))
    if dtype is None or memory.size == 0 or min(strides, default=0) < 0:
        return None
    return np.ndarray(shape, dtype, memory, strides=strides)


def writable_on_device(value: Any) -> np.ndarray | None:
    """As array_on_device(), to be read into. None also for what its library calls read-only (JAX)."""
    described = _interface(value)
    return None if described is not None and described["data"][1] else array_on_device(value)


def _interface(value: Any) -> dict[str, Any] | None:
    with suppress(AttributeError, TypeError, RuntimeError):  # PyTorch: on the host, or of a type without a name there
        return value.__cuda_array_interface__
    return None


def _packed(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    strides = [size]
    for count in reversed(shape[1:]):
        strides.insert(0, strides[0] * count)
    return tuple(strides[: len(shape)])


def _extent(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> int:
    return (
        size + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
    )
