"""Runs Python functions beside the data, for the Penstock server that started it. Needs NumPy only.

A function is called as function(inputs, **arguments): inputs is a list of Input, arguments the caller's JSON object. It
returns an array, a number, bytes, text or None; or a pair of that and a dict that goes to the caller as JSON.

    def energy(inputs, scale=1.0):
        return scale * sum(float((block.array**2).sum()) for block in inputs)

Not for people: it talks to its parent over descriptor 3. src/pool/compute/protocol.hpp describes the messages.
"""

import contextlib
import importlib.util
import json
import mmap
import os
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, TextIO

import numpy

MAGIC, VERSION, PYTHON = 0x31435350, 1, 1
SEGMENT, CALL, FILE, HELLO, WANT_FILE, REPLY = 1, 2, 3, 16, 17, 18
MAX_INLINE_BYTES = 64 << 10
MAX_MESSAGE = 16 << 10
MAX_INFO_BYTES = 64 << 10
# All page-table entries at once instead of a fault for every few; kernels before 5.14 go without.
MADV_POPULATE_READ, WORTH_POPULATING = 22, 256 << 10
OK, INVALID_ARGUMENT, NOT_FOUND, MEMORY = 0, 1, 3, 81

# By penstock::DType; bfloat16 as its bits, since NumPy has none.
DTYPES = [
    None,
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "uint16",
    "float32",
    "float64",
    "complex64",
    "complex128",
    None,
]
CODES = {name: code for code, name in reversed(list(enumerate(DTYPES))) if name}


class ComputeError(Exception):
    """A failure with one of Penstock's codes."""

    def __init__(self, code: int, message: str):
        super().__init__(message)
        self.code = code


class Input:
    """An object, or a block of a variable. Read-only; gone when the function has returned.

    array: its elements, with the block's shape; raw bytes and strings are a uint8 array.
    name:  its key or variable.   start: where the block begins in its global array, or None.
    """

    def __init__(self, name: str, array: numpy.ndarray, start: tuple[int, ...] | None):
        self.name, self.array, self.start = name, array, start

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        changed = dtype is not None and dtype != self.array.dtype
        return numpy.array(self.array, dtype=dtype, copy=bool(copy) or changed)

    def __bytes__(self) -> bytes:
        return self.array.tobytes()


class Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, layout: str) -> Any:
        values = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return values[0] if len(values) == 1 else values

    def text(self) -> bytes:
        size: int = self.take("I")
        self.at += size
        return self.data[self.at - size : self.at]

    def dims(self) -> tuple[int, ...]:
        return struct.unpack_from(f"<{(count := self.take('B'))}Q", self.data, self._skip(8 * count))

    def _skip(self, size: int) -> int:
        self.at += size
        return self.at - size


class Channel:
    def __init__(self, descriptor: int):
        self.socket = socket.socket(fileno=descriptor)

    def send(self, kind: int, payload: bytes) -> None:
        self.socket.sendall(struct.pack("<IHH", len(payload), kind, 0) + payload)

    def receive(self) -> tuple[int, bytes, int] | None:
        """(kind, payload, descriptor or -1); None when the server is gone."""
        header, descriptor = b"", -1
        while len(header) < 8:
            part, descriptors, _, _ = socket.recv_fds(self.socket, 8 - len(header), 1)
            if not part:
                return None
            header += part
            descriptor = descriptors[0] if descriptors else descriptor
        length, kind, _ = struct.unpack("<IHH", header)
        payload = bytearray(length)
        view = memoryview(payload)
        while view:
            count = self.socket.recv_into(view)
            if count == 0:
                return None
            view = view[count:]
        return kind, bytes(payload), descriptor


class Output:
    """A stream for what functions print; a file that must not grow is no reason to fail."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        try:
            return self.stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def map_input(descriptor: int, offset: int, size: int) -> numpy.ndarray:
    """A read-only uint8 array of a part of a memory file."""
    if size == 0:
        return numpy.empty(0, numpy.uint8)
    begin = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    area = mmap.mmap(descriptor, offset + size - begin, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, offset=begin)
    if size >= WORTH_POPULATING:
        with contextlib.suppress(OSError):
            area.madvise(MADV_POPULATE_READ)
    return numpy.frombuffer(area, numpy.uint8, size, offset - begin)


def read_call(payload: bytes, segments: dict[int, int]) -> tuple[int, int, str, str, str, list[Input]]:
    reader = Reader(payload)
    number, limit = reader.take("QQ")
    module, function, arguments = (reader.text().decode() for _ in range(3))
    inputs = []
    for _ in range(reader.take("I")):
        name = reader.text().decode(errors="surrogateescape")
        dtype, shape = reader.take("B"), reader.dims()
        start = reader.dims() if reader.take("B") else None
        segment, offset, size = reader.take("IQQ")
        array = map_input(segments.get(segment, -1), offset, size)
        if DTYPES[dtype] is not None:
            if offset % numpy.dtype(DTYPES[dtype]).alignment:
                array = array.copy()
                array.flags.writeable = False
            array = array.view(DTYPES[dtype]).reshape(shape)
        inputs.append(Input(name, array, start))
    return number, limit, module, function, arguments, inputs


class Worker:
    def __init__(self, channel: Channel):
        self.channel = channel
        self.modules: dict[str, tuple[int, ModuleType]] = {}

    def find(self, path: str, name: str) -> Callable[..., Any]:
        """The function, from its file: loaded once, and again when the file has changed."""
        changed = os.stat(path).st_mtime_ns
        if path not in self.modules or self.modules[path][0] != changed:
            spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
            assert spec is not None and spec.loader is not None  # a path
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self.modules[path] = (changed, module)
        function: Any = getattr(self.modules[path][1], name, None)
        if not callable(function):
            raise ComputeError(NOT_FOUND, f"{path} has no function {name!r}")
        found: Callable[..., Any] = function
        return found

    def call(self, payload: bytes, segments: dict[int, int]) -> None:
        number, limit, path, name, arguments, inputs = read_call(payload, segments)
        try:
            function = self.find(path, name)
            result = function(inputs, **(json.loads(arguments) if arguments else {}))
            reply = self.success(number, limit, result)
        except ComputeError as error:
            reply = failure(number, error.code, str(error))
        except MemoryError as error:
            reply = failure(number, MEMORY, f"out of memory: {error}")
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.filename}:{last.lineno} in {last.name}"
            reply = failure(number, INVALID_ARGUMENT, f"{type(error).__name__}: {error} ({where})")
        self.channel.send(REPLY, reply)

    def success(self, number: int, limit: int, result: Any) -> bytes:
        info = b""
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
            result, info = result[0], json.dumps(result[1], allow_nan=False).encode()
        if len(info) > MAX_INFO_BYTES:
            raise ComputeError(MEMORY, f"{len(info)} bytes of JSON beside the result are more than {MAX_INFO_BYTES}")
        if isinstance(result, str):
            result = result.encode()
        if result is None or isinstance(result, (bytes, bytearray, memoryview)):
            data, dtype, shape = memoryview(result or b"").cast("B"), 0, tuple[int, ...]()
        else:
            array = numpy.asarray(result)
            if array.dtype.name not in CODES or array.ndim > 8:
                raise TypeError(f"a result of type {array.dtype} with {array.ndim} dimensions cannot be sent")
            dtype, shape = CODES[array.dtype.name], array.shape
            array = numpy.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            data = array.reshape(-1).view(numpy.uint8).data
        if len(data) > limit:
            raise ComputeError(MEMORY, f"a result of {len(data)} bytes is larger than the {limit} allowed")
        in_file = len(data) > MAX_INLINE_BYTES
        if in_file:
            self.write_file(number, data)
        head = struct.pack("<QHIBB", number, OK, 0, dtype, len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<QBI", len(data), in_file, len(info))
        return head + info + (b"" if in_file else bytes(data))

    def write_file(self, number: int, data: memoryview) -> None:
        self.channel.send(WANT_FILE, struct.pack("<QQ", number, len(data)))
        answer = self.channel.receive()
        if answer is None:
            raise SystemExit(0)
        kind, _, descriptor = answer
        if kind != FILE:
            raise ComputeError(MEMORY, "the server has no room for the result")
        try:
            with mmap.mmap(descriptor, len(data)) as area:
                area[:] = data
        finally:
            os.close(descriptor)

    def serve(self) -> None:
        self.channel.send(HELLO, struct.pack("<IHBII", MAGIC, VERSION, PYTHON, 0, 0))
        segments: dict[int, int] = {}
        while (received := self.channel.receive()) is not None:
            kind, payload, descriptor = received
            if kind == SEGMENT:
                segments[struct.unpack_from("<I", payload)[0]] = descriptor
                continue
            if kind != CALL:
                raise ValueError("the server sent something that is no call")
            try:
                self.call(payload, segments)
            finally:
                for descriptor in segments.values():
                    os.close(descriptor)
                segments = {}


def failure(number: int, code: int, message: str) -> bytes:
    text = message.encode(errors="replace")[:MAX_MESSAGE]
    return struct.pack("<QHI", number, code, len(text)) + text + struct.pack("<BBQBI", 0, 0, 0, 0, 0)


def main() -> None:
    sys.stdout, sys.stderr = Output(sys.stdout), Output(sys.stderr)
    Worker(Channel(3)).serve()


if __name__ == "__main__":
    main()
