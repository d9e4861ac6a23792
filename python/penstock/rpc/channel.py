"""The calling side of services: channels, clients, calls under way, bulk memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import threading
import weakref
from typing import Any, TypeVar

import numpy as np

from .. import _core
from ..dtypes import require_no_mask
from ..errors import Cancelled, NotFound, TimeoutError
from ..stream import SLICE_MS, Deadline, to_ms
from .messages import Message, Method, Service

DESCRIPTOR = np.dtype(  # struct penstock.transport.fb.Bulk
    {"names": ["id", "bytes", "offset", "segment", "access"], "formats": ["<u8", "<u8", "<u8", "<u4", "u1"],
     "offsets": [0, 8, 16, 24, 28], "itemsize": 32}
)  # fmt: skip
Core = TypeVar("Core")
GRACE_S = 5.0  # beyond a call's own deadline, which the library keeps

_engine: Any = None
_lock = threading.Lock()
_living: weakref.WeakSet[Any] = weakref.WeakSet()  # core objects that a forked child must not touch


def engine() -> Any:
    global _engine
    with _lock:
        if _engine is None:
            _engine = _core.RpcEngine()
            _living.add(_engine)
        return _engine


def keep(core: Core) -> Core:
    _living.add(core)
    return core


def _after_fork() -> None:
    global _engine, _lock, _notices
    for core in list(_living):
        core.forget()
    _living.clear()
    _engine, _notices, _lock = None, None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class _Notices:
    """A thread that tells asyncio which calls have ended."""

    def __init__(self) -> None:
        self.core = _core.RpcNotices()
        self.numbers = itertools.count(1)
        self.waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = {}
        threading.Thread(target=self._run, name="penstock-rpc-notices", daemon=True).start()

    def expect(self) -> tuple[int, asyncio.Future[None]]:
        loop = asyncio.get_running_loop()
        number, future = next(self.numbers), loop.create_future()
        self.waiting[number] = loop, future
        return number, future

    def _run(self) -> None:
        while True:
            for number in self.core.next(1000):
                loop, future = self.waiting.pop(number)
                with contextlib.suppress(RuntimeError):  # the loop has been closed
                    loop.call_soon_threadsafe(_set, future)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_notices: _Notices | None = None


def notices() -> _Notices:
    global _notices
    with _lock:
        if _notices is None:
            _notices = _Notices()
        return _notices


class PendingCall:
    """A call under way. wait() or `await` give the reply; cancel() ends it, with Cancelled, unless it has ended."""

    def __init__(self, client: Client, method: Method, core: _core.RpcCall, ended: asyncio.Future[None] | None = None):
        self._client = client
        self._method = method
        self._core = core
        self._ended = ended

    def done(self) -> bool:
        return self._core.done()

    def cancel(self) -> None:
        self._core.cancel()

    def wait(self) -> Message:
        """Waits until the call's own deadline. Raises what the method raised, TimeoutError, PeerLost, Cancelled."""
        try:
            while not self._core.wait(SLICE_MS):
                pass  # here Ctrl-C works
        except KeyboardInterrupt:
            self.cancel()
            raise
        return self._reply()

    def __await__(self) -> Any:
        return self._finish().__await__()

    async def _finish(self) -> Message:
        if self._ended is None:
            raise Cancelled("awaited, but started outside of asyncio")
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._reply()

    def _reply(self) -> Message:
        return self._client.service.schema.decode(self._method.reply, self._core.take())


class _Caller:
    def __init__(self, client: Client, method: Method):
        self._client = client
        self._method = method

    def __call__(self, request: Any = None, *, timeout: float = 10.0, **fields: Any) -> Message:
        """Calls and waits. The request is a Message or mapping, or the keywords. timeout: seconds."""
        return self.start(request, timeout=timeout, **fields).wait()

    def start(self, request: Any = None, *, timeout: float = 10.0, **fields: Any) -> PendingCall:
        """Calls without waiting; within asyncio the result can be awaited."""
        number, ended = 0, None
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            number, ended = notices().expect()
        schema = self._client.service.schema
        body = schema.encode(self._method.request, fields if request is None else request)
        core = self._client.channel._core.start(
            self._client.service.name, self._method.number, self._method.python_name, body, to_ms(timeout),
            notices().core if ended is not None else None, number,
        )  # fmt: skip
        return PendingCall(self._client, self._method, core, ended)


class Client:
    """Calls a service's methods: client.method(field=value, ..., timeout=10), or client.method.start(...)."""

    def __init__(self, channel: Channel, service: Service):
        self.channel = channel
        self.service = service

    def __getattr__(self, name: str) -> _Caller:
        method = self.service.methods.get(name)
        if method is None:
            known = ", ".join(self.service.methods)
            raise AttributeError(f"service {self.service.name} has no method '{name}', but {known}")
        return _Caller(self, method)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.service.methods]


class Exposure:
    """Memory that the other side may move, until it is closed (or its with block ends). `descriptor` goes into a
    message (a field of the struct penstock.transport.fb.Bulk takes the Exposure itself)."""

    def __init__(self, core: _core.RpcExposure):
        self._core = core

    @property
    def descriptor(self) -> np.void:
        named: np.void = np.array([self._core.descriptor()], DESCRIPTOR)[0]
        return named

    def close(self) -> None:
        """Waits until nothing of it is under way."""
        self._core.close()

    def __enter__(self) -> Exposure:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Channel:
    """A connection to a process that offers services; both sides may expose memory, which the other moves. Safe to
    share between threads. Made by connect(), or given to a method as call.channel."""

    def __init__(self, core: _core.RpcChannel, answering: Any = None):
        self._core = keep(core)
        self._answering = answering  # threads that serve what this side offers

    def client(self, service: Service) -> Client:
        return Client(self, service)

    def expose(self, memory: Any, writable: bool = False) -> Exposure:
        """memory: anything with a contiguous buffer, kept until it is closed. Arrays of allocate() are shared with
        peers on this machine; others go by a socket."""
        require_no_mask("the array", memory)
        return Exposure(self._core.expose(memory, writable))

    def pull(self, source: Any, into: Any, *, offset: int = 0, timeout: float | None = 10.0) -> None:
        """Fills `into` (a NumPy array, ...) from the other side's memory. source: its descriptor; offset: in bytes;
        timeout: seconds, None: no limit."""
        timeout = math.inf if timeout is None else timeout
        self._move(self._core.pull(_descriptor(source), offset, into, to_ms(timeout)), timeout)

    def push(self, to: Any, memory: Any, *, offset: int = 0, timeout: float | None = 10.0) -> None:
        """Writes an array, or bytes, into the other side's memory. As pull()."""
        timeout = math.inf if timeout is None else timeout
        require_no_mask("the array", memory)
        self._move(self._core.push(_descriptor(to), offset, memory, to_ms(timeout)), timeout)

    def fetch_add(self, on: Any, value: int, *, offset: int = 0, timeout: float = 10.0) -> int:
        """Adds to an unsigned 64-bit number there, atomically; what it was before. offset: a multiple of 8."""
        return self._core.fetch_add(_descriptor(on), offset, value % 2**64, to_ms(timeout))

    def compare_swap(self, on: Any, expected: int, desired: int, *, offset: int = 0, timeout: float = 10.0) -> int:
        """Sets it to `desired` where it is `expected`; what it was before."""
        return self._core.compare_swap(_descriptor(on), offset, expected, desired, to_ms(timeout))

    @staticmethod
    def _move(transfer: Any, timeout: float) -> None:
        deadline = Deadline(timeout + GRACE_S, 0)
        while not transfer.wait(SLICE_MS):
            if deadline.slice_ms() == 0:
                raise TimeoutError(f"bulk memory was not moved within {timeout} s")
        transfer.take()

    @property
    def plane(self) -> str:
        """How bulk memory goes: "shm" where it can be shared, else "tcp"."""
        return self._core.plane

    @property
    def peer(self) -> str:
        return self._core.peer

    @property
    def role(self) -> str:
        """What the other side may do, as the server decided: the part of "realm/role" after the slash."""
        return self._core.role

    @property
    def closed(self) -> bool:
        return not self._core.open

    def close(self) -> None:
        self._core.close()
        if self._answering:
            self._answering.close()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _descriptor(source: Any) -> tuple[int, int, int, int, int]:
    if source is None:
        raise NotFound("no memory is named")
    named = source.descriptor if isinstance(source, Exposure) else source
    number, size, offset, segment, access = (int(named[name]) for name in DESCRIPTOR.names or ())
    return number, size, offset, segment, access


def allocate(shape: int | tuple[int, ...], dtype: Any = np.uint8) -> np.ndarray:
    """An array in memory that is shared with peers on this machine when it is exposed: one copy, no socket."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    return np.frombuffer(memoryview(_core.rpc_allocate(max(count * dtype.itemsize, 1))), dtype, count).reshape(shape)
