"""Arrays on a CUDA device, as CuPy, PyTorch and Numba hand them out, for machines that have none of these.

The driver is the double that the C++ tests have (src/memory/cuda_double.cpp), whose memory the processor cannot touch.
With PENSTOCK_TEST_CUDA it is the machine's own.
"""

import ctypes
import os
from pathlib import Path

import numpy as np

BUILD = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build"))
FILE = "libcuda.so.1" if os.environ.get("PENSTOCK_TEST_CUDA") else str(BUILD / "doubles/libcuda.so.1")
CODES = {"i": 0, "u": 1, "f": 2, "bfloat16": 4, "c": 5, "b": 6}


class _Tensor(ctypes.Structure):
    """DLTensor, then the rest of DLManagedTensor (dlpack.h)."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    )


_handed_out = {}  # by the tensor's address: the array, and the tensor


@dict(_Tensor._fields_)["deleter"]
def _delete(address):
    array, _ = _handed_out.pop(address)
    array.handed_out -= 1


class Cuda:
    def __init__(self):
        self._library = ctypes.CDLL(FILE)
        self.call("cuInit", 0)
        self._context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), 0)
        self.call("cuCtxPushCurrent_v2", self._context)

    def call(self, name, *arguments):
        if result := getattr(self._library, name)(*arguments):
            raise OSError(f"{name}: {result}")


class DeviceArray:
    """The memory of `base` on the device, and of it the part that `part` gives of an array."""

    def __init__(self, cuda, base, part=lambda array: array):
        self._cuda, self._base, self.view = cuda, np.ascontiguousarray(base), part(base)
        self.handed_out = 0
        self.offset = self.view.ctypes.data - base.ctypes.data
        address = ctypes.c_ulonglong()
        cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(1, base.nbytes)))
        self.address = address.value
        cuda.call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(base.ctypes.data), ctypes.c_size_t(base.nbytes))
        cuda.call("cuStreamSynchronize", None)

    def to_host(self):
        """All of the memory."""
        out = np.empty_like(self._base)
        into, size = ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(out.nbytes)
        self._cuda.call("cuMemcpyDtoH_v2", into, ctypes.c_ulonglong(self.address), size)
        return out

    def __del__(self):
        self._cuda.call("cuMemFree_v2", ctypes.c_ulonglong(self.address))


class WithDlpack(DeviceArray):
    bfloat16 = False  # what is uint16 is handed out as this

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, *, stream=None):
        assert stream == 1, "the library copies in the legacy stream"
        size, ndim = self.view.itemsize, self.view.ndim
        numbers = ctypes.c_int64 * ndim
        tensor = _Tensor(data=self.address, device_type=2, ndim=ndim, lanes=1, bits=8 * size, byte_offset=self.offset)
        tensor.code = CODES["bfloat16" if self.bfloat16 else self.view.dtype.kind]
        tensor.shape = numbers(*self.view.shape)
        tensor.strides = numbers(*(stride // size for stride in self.view.strides))
        tensor.deleter = _delete
        _handed_out[ctypes.addressof(tensor)] = self, tensor
        self.handed_out += 1
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(tensor), b"dltensor", None)


class WithInterface(DeviceArray):
    read_only = False
    stream = None

    @property
    def __cuda_array_interface__(self):
        packed = self.view.flags.c_contiguous
        return {
            "version": 3,
            "data": (self.address + self.offset, self.read_only),
            "typestr": self.view.dtype.str,
            "shape": self.view.shape,
            "strides": None if packed else self.view.strides,
            "stream": self.stream,
        }


class WithBoth(WithDlpack, WithInterface):
    pass
