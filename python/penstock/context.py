"""Opening streams: create(), open(), list_streams(), config(), and Context, which they use.

Options are those of penstock.yaml (queue_steps, when_full, data_plane, ...): keywords here, overridden by the file and
by the environment; fixed="queue_steps" keeps the keyword's value of these. timeout is in seconds; math.inf waits for
ever.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Unpack

from . import _core
from .cohort import Cohort, as_cohort, free_cohort
from .errors import InvalidArgument
from .options import StreamOptions
from .reader import Reader
from .stream import Options, to_ms
from .writer import Writer

_FOREVER_MS = 2**32 - 1  # the largest *_timeout_ms: 49 days


def _text(value: Any) -> str:
    """An option as the library reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _milliseconds(name: str, seconds: float) -> str:
    if not seconds >= 0:
        raise InvalidArgument(f"{name} is not negative: {seconds}")
    # At least 1: 0 chooses no timeout.
    return str(_FOREVER_MS if math.isinf(seconds) else min(max(1, math.ceil(seconds * 1000)), _FOREVER_MS))


class Context:
    """Configuration, and the library's thread. Safe to share between threads; streams keep what they need of it.

    penstock.yaml and the environment win over all of these, but for those that `fixed` names ("directory,listen").
    config_file: $PENSTOCK_CONFIG; "": penstock.yaml in the working directory if there. directory: where streams
    register, $PENSTOCK_DIRECTORY; "": $XDG_RUNTIME_DIR/penstock, else /tmp/penstock-<uid>. listen: the address for tcp,
    $PENSTOCK_LISTEN, "::" for every interface; "": loopback while the ranks and the directory are on this host.
    """

    def __init__(self, *, config_file: str = "", directory: str = "", listen: str = "", fixed: str = ""):
        settings = {"config_file": config_file, "directory": directory, "listen": listen, "fixed": fixed}
        self._core = _core.Context({key: os.fspath(value) for key, value in settings.items()})
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()  # readers, writers, coprocessors
        self._pools: weakref.WeakSet[Any] = weakref.WeakSet()
        _contexts.add(self)

    def create(
        self, name: str, *, comm: Any = None, timeout: float | None = None, **options: Unpack[StreamOptions]
    ) -> Writer:
        """Starts writing the stream `name` and returns its Writer. Collective over comm.

        comm: an mpi4py communicator, a cohort (penstock.Cohort), or None. timeout: seconds for this call, for each
        begin of a step, and for close; None: readers have as long as they take, with warnings in the log. options:
        queue_steps=2, when_full="discard_oldest", ...; fixed="queue_steps" keeps that against penstock.yaml and the
        environment. Waits for the other ranks, and with engine="pool" for the pool; the first step waits for
        rendezvous_readers (1 by default). Raises UnknownOption, InvalidArgument, TimeoutError (a rank or the pool did
        not answer), PeerLost (no directory that can be reached), and InvalidArgument or WrongState when the stream is
        already being written.
        """
        texts = {key: _text(value) for key, value in options.items()}
        if timeout is not None:
            deadlines = ("open_timeout_ms", "step_timeout_ms", "close_timeout_ms")
            texts |= dict.fromkeys(deadlines, _milliseconds("timeout", timeout))
        cohort = as_cohort(comm)
        with _freed_on_error(cohort):
            core = self._core.create_stream(name, cohort, texts)
        writer = Writer(core, cohort, self._options_for(name, texts).decided(core.place(), "default"), self)
        self._streams.add(writer)
        return writer

    def open(
        self,
        name: str | os.PathLike[str],
        *,
        comm: Any = None,
        timeout: float | None = None,
        **options: Unpack[StreamOptions],
    ) -> Reader:
        """Opens the stream `name` for reading and returns its Reader. Collective over comm.

        name: a stream's, an address ("tcp://host:port/name?token=..."), or the path of a stream in files: its folder,
        or the file of a step. Waits until the stream exists and its writer, if it lives, has let this reader in.
        A name is looked for among living writers, then in pools, then in files, unless engine= or the configuration
        says where it is; options["engine"] of the reader says where it was found. A stream that has ended is opened
        at once, unless another of its name is being written. timeout: seconds for that, and for each step. options:
        delivery="latest", data_plane="tcp", ... Raises TimeoutError (it says where was looked, and the nearest name),
        AuthenticationError, UnknownOption, InvalidArgument.
        """
        name = os.fspath(name)
        texts = {key: _text(value) for key, value in options.items()}
        if timeout is not None:
            texts |= dict.fromkeys(("open_timeout_ms", "step_timeout_ms"), _milliseconds("timeout", timeout))
        cohort = as_cohort(comm)
        with _freed_on_error(cohort):
            core = self._core.open_stream(name, cohort, texts)
        options_in_effect = self._options_for(core.name, texts).decided(core.place(), "where it was found")
        reader = Reader(core, cohort, options_in_effect, self)
        self._streams.add(reader)
        return reader

    def _options_for(self, name: str, texts: dict[str, str]) -> Options:
        stream = name.partition("://")[2].partition("/")[2].partition("?")[0] if "://" in name else name
        return Options(self._core.describe_options(stream, texts))

    def options_for(self, name: str, **options: Unpack[StreamOptions]) -> Options:
        """The options in effect for a stream: these keywords, overlaid by penstock.yaml, then by the environment.

        The engine is automatic where nobody names one: direct for a writer; a reader finds the stream.
        """
        return self._options_for(name, {key: _text(value) for key, value in options.items()})

    def options_for_pool(self, name: str = "") -> Options:
        """Those that a pool's clients take from penstock.yaml and the environment. name: "": if they name no pool."""
        return Options(self._core.describe_pool(name))

    @property
    def settings(self) -> Options:
        """Those of the process: config_file, directory, listen, log, trace."""
        return Options(self._core.describe_settings())

    def list_streams(self) -> list[_core.StreamEntry]:
        """The streams registered in the directory: objects with name, address, host, pid, ranks and alive."""
        return self._core.list_streams()

    def inspect(self, name: str, timeout: float = 5.0, **options: Unpack[StreamOptions]) -> dict[str, Any]:
        """The statistics of the writer of a live stream, its readers among them, without joining it.

        Of a stream in a pool the pool tells: its state (open, ended, lost), writer, ranks, steps, bytes, readers. Of
        one in files its folder tells: state, writer, ranks, and how many steps there are, the first and the last.
        All have engine, and pool, if any. name, options (engine, pool): as for open(), but it does not wait. timeout:
        seconds. Raises NotFound (it says where was looked, and the nearest name), AuthenticationError, TimeoutError.
        """
        said: dict[str, Any] = json.loads(
            self._core.inspect(name, to_ms(timeout), {key: _text(value) for key, value in options.items()})
        )
        return said

    def _shut_down(self) -> None:
        # Readers first: a writer of this process may wait for them.
        streams = sorted(self._streams, key=lambda stream: not isinstance(stream, Reader))
        for stream in streams:
            if stream._core.busy():
                continue  # a daemon thread is inside and stays there
            with contextlib.suppress(Exception, KeyboardInterrupt):
                if isinstance(stream, Reader):
                    stream.close()
                else:
                    stream._lose()  # it was not closed: readers must not take what they have for all there is
        for pool in list(self._pools):
            with contextlib.suppress(Exception, KeyboardInterrupt):
                pool.close()
        self._core.shut_down()

    def _forget(self) -> None:
        for stream in list(self._streams):
            stream._core.forget()
        for pool in list(self._pools):
            pool._core.forget()
        self._core.forget()


@contextlib.contextmanager
def _freed_on_error(cohort: Cohort | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        free_cohort(cohort)
        raise


_contexts: weakref.WeakSet[Context] = weakref.WeakSet()
_settings: dict[str, str] = {"config_file": "", "directory": "", "listen": "", "fixed": ""}
_default: Context | None = None


def _default_context() -> Context:
    global _default
    if _default is None:
        _default = Context(**_settings)
    return _default


def config(**settings: str) -> dict[str, str]:
    """Sets config_file, directory, listen or fixed for streams opened from now on by create() and open(); returns all.

    penstock.config(directory="/run/penstock"). Streams that are open keep what they have. "": the default; see Context,
    and there for what penstock.yaml and the environment may change.
    """
    global _default
    unknown = settings.keys() - _settings.keys()
    if unknown:
        raise InvalidArgument(f"config has no setting '{min(unknown)}'; it has {', '.join(_settings)}")
    if settings:
        _settings.update({key: os.fspath(value) for key, value in settings.items()})
        _default = None
    return dict(_settings)


def create(name: str, *, comm: Any = None, timeout: float | None = None, **options: Unpack[StreamOptions]) -> Writer:
    return _default_context().create(name, comm=comm, timeout=timeout, **options)


def open(
    name: str | os.PathLike[str], *, comm: Any = None, timeout: float | None = None, **options: Unpack[StreamOptions]
) -> Reader:
    return _default_context().open(name, comm=comm, timeout=timeout, **options)


def list_streams() -> list[_core.StreamEntry]:
    return _default_context().list_streams()


def inspect(name: str, timeout: float = 5.0, **options: Unpack[StreamOptions]) -> dict[str, Any]:
    return _default_context().inspect(name, timeout, **options)


create.__doc__ = Context.create.__doc__
open.__doc__ = Context.open.__doc__
list_streams.__doc__ = Context.list_streams.__doc__
inspect.__doc__ = Context.inspect.__doc__


@atexit.register
def _shut_down() -> None:
    # While the interpreter still runs. What daemon threads and open streams hold lives until the process ends: no leak.
    _core.begin_exit(quiet=threading.active_count() > 1 or any(context._streams for context in _contexts))
    for context in list(_contexts):
        context._shut_down()


def _after_fork() -> None:
    # The library's threads are the parent's; nothing of it may run here. New streams are opened by a new context.
    global _default
    _core.forget_threads()
    for context in list(_contexts):
        context._forget()
    _contexts.clear()
    _default = None


os.register_at_fork(after_in_child=_after_fork)
