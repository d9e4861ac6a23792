"""The answering side of services: methods are Python functions, or coroutines, of an object."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Mapping
from typing import Any

from .. import _core
from ..errors import Error, InvalidArgument
from ..stream import SLICE_MS, to_ms
from .channel import Channel, engine, keep
from .messages import Service

Offers = Mapping[Service, Any]


class Call:
    """What a method knows of the call that it serves. Methods take (call, request) and return a Message or mapping."""

    def __init__(self, core: _core.RpcIncoming):
        self._core = core
        self._channel: Channel | None = None

    @property
    def channel(self) -> Channel:
        """To the caller: its bulk memory, and what it offers."""
        if self._channel is None:
            self._channel = Channel(self._core.channel())
        return self._channel

    @property
    def cancelled(self) -> bool:
        """The caller has gone, cancelled, or its deadline has passed: nobody waits for the reply."""
        return self._core.cancelled()

    @property
    def remaining(self) -> float | None:
        """Seconds until the caller's deadline; None: it has none."""
        ms = self._core.remaining_ms()
        return None if ms is None else ms / 1000


class Answering:
    """Threads that take calls of services and answer them. Coroutines run in an event loop of their own thread."""

    def __init__(self, offers: Offers, workers: int):
        self._offers = list(offers.items())
        for service, target in self._offers:
            missing = [name for name in service.methods if not callable(getattr(target, name, None))]
            if missing:
                raise InvalidArgument(f"{type(target).__name__} has no method {', '.join(missing)} of {service.name}")
        self.core = _core.RpcServices([(one.name, [*one.methods]) for one, _ in self._offers])
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = [
            threading.Thread(target=self._run, name=f"penstock-rpc-{number}", daemon=True) for number in range(workers)
        ]
        if any(
            inspect.iscoroutinefunction(getattr(target, name))
            for service, target in self._offers
            for name in service.methods
        ):
            self._loop = asyncio.new_event_loop()
            self._threads.append(threading.Thread(target=self._loop.run_forever, name="penstock-rpc-loop", daemon=True))
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._closed:
            incoming = self.core.next(SLICE_MS)
            if incoming is not None:
                self._answer(incoming)

    def _answer(self, incoming: Any) -> None:
        service, target = self._offers[incoming.service]
        method = list(service.methods.values())[incoming.method]
        try:
            request = service.schema.decode(method.request, incoming.request())
            result = getattr(target, method.python_name)(Call(incoming), request)
            if inspect.iscoroutine(result) and self._loop:
                task = asyncio.run_coroutine_threadsafe(self._finish(incoming, service, method, result), self._loop)
                del task
                return
            incoming.reply(service.schema.encode(method.reply, {} if result is None else result))
        except BaseException as error:
            _fail(incoming, error)

    @staticmethod
    async def _finish(incoming: Any, service: Service, method: Any, coroutine: Any) -> None:
        try:
            result = await coroutine
            incoming.reply(service.schema.encode(method.reply, {} if result is None else result))
        except BaseException as error:
            _fail(incoming, error)

    def close(self) -> None:
        """Calls that wait are refused; those under way go on to their end."""
        self._closed = True
        self.core.close()
        if self._loop:
            self._loop.call_soon_threadsafe(self._loop.stop)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        if self._loop and not self._loop.is_running():
            self._loop.close()
            self._loop = None


def _fail(incoming: Any, error: BaseException) -> None:
    code = error.code if isinstance(error, Error) else "internal"
    text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    incoming.fail(code, text)


class Server:
    """Offers services to whoever knows a role's token, from when it is made until it is closed. A context manager.

    offers: for each service the object whose methods answer; methods are named as in the schema, in snake_case, and
    take (call, request). They run on `workers` threads; `async def` ones in an event loop. tokens: for each
    "realm/role" its token; None: one is drawn for `realm_and_role`, which is then `token`. memory: bytes of requests
    that are taken at once; more wait. Errors of Penstock that a method raises reach the caller as they are, with where
    they arose; others as InternalError.
    """

    def __init__(
        self,
        offers: Offers,
        *,
        listen: str = "",
        realm_and_role: str = "service/user",
        tokens: Mapping[str, str] | None = None,
        workers: int = 4,
        memory: int = 256 << 20,
    ):
        if tokens is None:
            tokens = {realm_and_role: _core.rpc_token()}
        self.token = next(iter(tokens.values()))
        self._answering = Answering(offers, workers)
        self._core = keep(_core.RpcServer(engine(), self._answering.core, dict(tokens), listen, memory))

    @property
    def endpoint(self) -> str:
        """Where it listens, for connect()."""
        return self._core.endpoint

    def close(self) -> None:
        """Closes all channels, and ends the threads."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._answering.close)
            self._core.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def connect(
    endpoint: str,
    token: str,
    realm_and_role: str = "service/user",
    *,
    offers: Offers | None = None,
    over: str = "automatic",
    workers: int = 2,
    timeout: float = 10.0,
) -> Channel:
    """Connects to a server. offers: services that this side offers to it. over: "automatic", "unix" or "tcp".
    Raises TimeoutError, PeerLost (nobody is there), AuthenticationError."""
    if over not in ("automatic", "unix", "tcp"):
        raise InvalidArgument(f"over is automatic, unix or tcp, not {over}")
    answering = Answering(offers, workers) if offers else None
    try:
        core = _core.rpc_connect(
            engine(), endpoint, token, realm_and_role, answering.core if answering else None, to_ms(timeout), over
        )
    except BaseException:
        if answering:
            answering.close()
        raise
    return Channel(core, answering)
