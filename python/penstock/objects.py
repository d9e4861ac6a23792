"""Objects of pools: their bytes and what is known of them, puts and gets under way, and events."""

from __future__ import annotations

import builtins
import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core, dtypes
from .errors import TimeoutError, WrongState
from .stream import SLICE_MS, to_ms

Text = str | bytes


def _text(raw: bytes) -> Text:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


@dataclass(frozen=True)
class ObjectInfo:
    """What a pool knows of an object. bytes: its size; put_us: microseconds since 1970; row and column are str where
    they are UTF-8, else bytes."""

    row: Text
    column: Text
    bytes: int
    version: int
    checksum: int
    put_us: int
    in_memory: bool
    on_disk: bool
    waiters: int
    metadata: str

    @classmethod
    def _of(cls, raw: dict[str, Any]) -> ObjectInfo:
        return cls(**(raw | {"row": _text(raw["row"]), "column": _text(raw["column"])}))


class Object:
    """An object's bytes and what is known of them. On the server's node the bytes are read in place."""

    def __init__(self, memory: _core.Memory, info: ObjectInfo):
        self._memory = memory
        self.info = info

    def view(self) -> memoryview:
        """The bytes, read-only, without a copy."""
        return memoryview(self._memory)

    def bytes(self) -> builtins.bytes:
        """A copy of the bytes."""
        return bytes(self._memory)

    def text(self) -> str:
        """The bytes as UTF-8."""
        return self.bytes().decode()

    def array(self, dtype: Any = None, shape: Sequence[int] | None = None) -> np.ndarray:
        """The bytes as a read-only NumPy array: of the dtype and shape that it was put with, or that are given."""
        described = _described(self.info.metadata)
        dtype = np.dtype(dtype if dtype is not None else described.get("dtype", "uint8"))
        shape = shape if shape is not None else described.get("shape", (-1,))
        return np.frombuffer(self.view(), dtype).reshape(tuple(shape))

    def __len__(self) -> int:
        return self.info.bytes

    def __repr__(self) -> str:
        return f"<Object {self.info.row!r}/{self.info.column!r} version {self.info.version}, {self.info.bytes} bytes>"


def _described(metadata: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        described = json.loads(metadata)
        if isinstance(described, dict) and "dtype" in described:
            return described
    return {}


def _payload(data: Any, metadata: str | None) -> tuple[Any, str]:
    """What is put: a buffer, and metadata that describes arrays."""
    if isinstance(data, str):
        return data.encode(), metadata or ""
    if hasattr(data, "__dlpack__") and not isinstance(data, np.ndarray):
        data = dtypes.to_array(data, "the object")
    if isinstance(data, np.ndarray | np.generic):
        dtypes.require_no_mask("the object", data)
        array = np.ascontiguousarray(data, np.asarray(data).dtype.newbyteorder("<"))
        if metadata is None:
            metadata = json.dumps({"dtype": array.dtype.name, "shape": list(np.shape(data))})
        return array.reshape(-1).view(np.uint8) if array.size else b"", metadata
    return data, metadata or ""


class PendingPut:
    """A put under way. Its data must not change until it is done."""

    def __init__(self, core: _core.PendingPut):
        self._core = core

    def done(self) -> bool:
        return self._core.done()

    def wait(self) -> int:
        """Waits until the put's own deadline; returns the version."""
        while (version := self._core.wait(SLICE_MS)) is None:
            pass  # here Ctrl-C works
        return version


class Want:
    """An object that is asked for and may not be there yet."""

    def __init__(self, core: _core.Want):
        self._core = core

    def done(self) -> bool:
        return self._core.done()

    def wait(self) -> Object:
        """Waits until the call's own deadline."""
        while (result := self._core.wait(SLICE_MS)) is None:
            pass  # here Ctrl-C works
        return Object(result[0], ObjectInfo._of(result[1]))


@dataclass(frozen=True)
class ObjectEvent:
    """What a subscription tells: `what` is "put" or "dropped"."""

    what: str
    info: ObjectInfo


class Subscription:
    """Events of objects, as they happen: iterate over it, or call next(timeout). A with block closes it.

    The iteration ends when the subscription or its pool is closed, by any thread; events not taken by then are thrown
    away. While no server of the pool can be reached it waits. While one refuses the subscription (Overloaded: this
    client has too many at the server; Forbidden), next and the iteration raise its error where there is no event; the
    server is asked again each second. When the pool's membership changes, an event may come twice.
    """

    def __init__(self, core: _core.Subscription):
        self._core = core

    def next(self, timeout: float = 30.0) -> ObjectEvent:
        """The next event. Raises TimeoutError after `timeout` seconds, WrongState once it is closed, and what a server
        refuses the subscription with."""
        left = to_ms(timeout)
        while not self._core.closed():
            event = self._take(min(left, SLICE_MS))
            if event is not None:
                return event
            left -= SLICE_MS
            if left <= 0 and not self._core.closed():
                raise TimeoutError(f"no event within {timeout} s")
        raise WrongState("the subscription is closed")

    def __iter__(self) -> Iterator[ObjectEvent]:
        while not self._core.closed():
            event = self._take(SLICE_MS)
            if event is not None:
                yield event

    def _take(self, slice_ms: int) -> ObjectEvent | None:
        event = self._core.next(slice_ms)
        return None if event is None else ObjectEvent("dropped" if event[0] else "put", ObjectInfo._of(event[1]))

    @property
    def lost(self) -> int:
        """Events that may have been missed: thrown away, here and by servers, because they were not taken fast enough.

        One more is counted for each server or connection that was lost: some may have been lost with it.
        """
        return self._core.lost()

    def close(self) -> None:
        self._core.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
