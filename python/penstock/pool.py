"""Pools: objects kept by staging servers that outlive the programs that put them.

    pool = penstock.Pool("stage")
    pool.put("run 7", "temperature", T)              # NumPy arrays come back as arrays
    T = pool.need("run 7", "temperature").array()    # waits until it is there
    for info in pool.list("run *"):
        print(info.row, info.column, info.bytes)

A key is a row and a column: str (UTF-8) or bytes, at most 4 KiB each. Objects are write-once unless asked otherwise.
Source: SAND2020-9451 (FAODEL), with replication, durability, deadlines and back-pressure added.
"""

from __future__ import annotations

import builtins
import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .errors import Error, InvalidArgument, NotFound, ProtocolError, error_of
from .objects import (
    Object,
    ObjectEvent,
    ObjectInfo,
    PendingPut,
    Subscription,
    Text,
    Want,
    _described,
    _payload,
    _text,
)
from .stream import to_ms

if TYPE_CHECKING:
    from .context import Context

__all__ = [
    "STREAMS_NAMESPACE",
    "KeyLike",
    "Object",
    "ObjectEvent",
    "ObjectInfo",
    "PendingPut",
    "Pool",
    "Subscription",
    "Text",
    "Want",
    "known_pools",
]

T = TypeVar("T")

KeyLike = tuple[Text, Text] | Text

STREAMS_NAMESPACE = "penstock.streams"
_CONFIGURED = -1


def _bytes(text: Text) -> bytes:
    if isinstance(text, str):
        return text.encode()
    if isinstance(text, bytes | bytearray | memoryview):
        return bytes(text)
    raise InvalidArgument(f"a row or a column is str or bytes, not {type(text).__name__}")


def _said(text: str) -> dict[str, Any]:
    """What a server said of itself, which another process may have got wrong."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a server's answer cannot be read: {error}") from error
    if not isinstance(said, dict):
        raise ProtocolError(f"a server's answer is no object: {text[:80]}")
    return said


def _key(key: KeyLike) -> tuple[bytes, bytes]:
    if not isinstance(key, tuple):
        return _bytes(key), b""
    if len(key) != 2:
        raise InvalidArgument(f"a key is a row, or a tuple of row and column; this one has {len(key)} parts")
    row, column = key
    return _bytes(row), _bytes(column)


def _timeout(seconds: float | None) -> int:
    return _CONFIGURED if seconds is None else to_ms(seconds)


class Pool:
    """A pool of staging servers, found through the directory. Safe to share between threads.

    name: "" means the only pool there is. ns: the namespace of the keys, by name. directory: the directory service's
    address; "" means $PENSTOCK_DIRECTORY_SERVICE, else the one registered on this machine. role and token: what this
    client may do (read, write, compute, admin). timeout: seconds for each call unless it says otherwise. data_plane:
    how large objects move: automatic (shared memory on a host, tcp elsewhere), tcp or ucx. trace: where this client's
    operations are recorded, a folder or a file *.trace: "" means $PENSTOCK_TRACE, "off" nowhere. The section `pools` of
    penstock.yaml and $PENSTOCK_POOL_<NAME> change these, but for those that `fixed` names ("directory,timeout_ms").
    Raises NotFound (no such pool), PeerLost (no directory that can be reached), TimeoutError, AuthenticationError.
    """

    def __init__(
        self,
        name: str = "",
        *,
        ns: str = "",
        directory: str = "",
        role: str = "",
        token: str = "",
        timeout: float = 30.0,
        data_plane: str = "automatic",
        trace: str = "",
        fixed: str = "",
        context: Context | None = None,
    ):
        from .context import _default_context

        self._context = context if context is not None else _default_context()
        options: dict[str, str | int] = {
            "pool": name,
            "ns": ns,
            "directory": directory,
            "role": role,
            "token": token,
            "data_plane": data_plane,
            "trace": trace,
            "timeout_ms": str(min(to_ms(timeout), 2**32 - 1)),
            "fixed": fixed,
        }
        self._open(options)

    @classmethod
    def _opened(cls, context: Context, options: dict[str, Any]) -> Pool:
        pool = cls.__new__(cls)
        pool._context = context
        pool._open(options)
        return pool

    def _open(self, options: dict[str, Any]) -> None:
        self._options = options
        self._core = self._context._core.open_pool(options)
        self._context._pools.add(self)

    @property
    def name(self) -> str:
        return self._core.name

    # ------------------------------------------------------------------------------------------------------ one object

    def put(
        self,
        row: Text,
        column: Text,
        data: Any,
        *,
        if_exists: str = "refuse",
        acknowledge: str = "memory",
        tag: int | None = None,
        metadata: str | None = None,
        timeout: float | None = None,
    ) -> int:
        """Puts an object and returns its version. data: bytes, str, or anything with a buffer; NumPy arrays are
        described in the metadata, so that get(...).array() gives them back.

        if_exists: "refuse" (AlreadyExists), "overwrite", "add_version". acknowledge: how safe it is on return: "memory"
        (one server), "replicated" (every replica), "durable" (on disk, synced). tag: placed by this number instead of
        the key.
        Raises AlreadyExists, PoolFull, TimeoutError, Forbidden.
        """
        pending = self.start_put(
            row, column, data, if_exists=if_exists, acknowledge=acknowledge, tag=tag, metadata=metadata, timeout=timeout
        )
        return pending.wait()

    def start_put(
        self,
        row: Text,
        column: Text,
        data: Any,
        *,
        if_exists: str = "refuse",
        acknowledge: str = "memory",
        tag: int | None = None,
        metadata: str | None = None,
        timeout: float | None = None,
    ) -> PendingPut:
        """As put, without waiting: wait() on the result gives the version."""
        data, metadata = _payload(data, metadata)
        key = (_bytes(row), _bytes(column))
        return PendingPut(self._core.start_put(key, data, if_exists, acknowledge, tag, metadata, _timeout(timeout)))

    def get(
        self,
        row: Text,
        column: Text = "",
        *,
        version: int | None = None,
        tag: int | None = None,
        offset: int = 0,
        size: int | None = None,
        timeout: float | None = None,
    ) -> Object:
        """The object as it is now, or a part of it (offset and size in bytes). Raises NotFound."""
        key = (_bytes(row), _bytes(column))
        return _object(_one(self._core.get([key], False, False, version, tag, offset, size, _timeout(timeout))))

    def need(self, row: Text, column: Text = "", *, tag: int | None = None, timeout: float | None = None) -> Object:
        """As get, but waits until the object is there. Raises TimeoutError."""
        return self.want(row, column, tag=tag, timeout=timeout).wait()

    def want(self, row: Text, column: Text = "", *, tag: int | None = None, timeout: float | None = None) -> Want:
        """Asks for an object that may come later; wait() on the result gives it."""
        return Want(self._core.want((_bytes(row), _bytes(column)), None, tag, 0, None, _timeout(timeout)))

    def info(
        self,
        row: Text,
        column: Text = "",
        *,
        version: int | None = None,
        tag: int | None = None,
        timeout: float | None = None,
    ) -> ObjectInfo:
        """What is known of an object. Raises NotFound."""
        key = (_bytes(row), _bytes(column))
        result = _one(self._core.get([key], False, True, version, tag, 0, None, _timeout(timeout)))
        return ObjectInfo._of(result[1])

    def drop(
        self,
        row: Text,
        column: Text = "",
        *,
        version: int | None = None,
        tag: int | None = None,
        timeout: float | None = None,
    ) -> bool:
        """Removes an object (all its versions, or one), from memory and disk. False when there was none."""
        dropped: bool = _one(self._core.drop([(_bytes(row), _bytes(column))], version, tag, _timeout(timeout)))
        return dropped

    # --------------------------------------------------------------------------------------------------------- batches

    def put_many(
        self,
        items: Iterable[tuple[KeyLike, Any]] | Mapping[KeyLike, Any],
        *,
        if_exists: str = "refuse",
        acknowledge: str = "memory",
        tag: int | None = None,
        metadata: str | None = None,
        timeout: float | None = None,
    ) -> builtins.list[int | Error]:
        """Puts many objects. Returns, in order, each one's version or the exception.

        data and options: as for put; arrays keep their dtypes and shapes. One message goes to each server, or where
        arrays differ one for each dtype and shape: `timeout` is for each of these.
        """
        keys, payloads = [], []
        for item in items.items() if isinstance(items, Mapping) else items:
            if not isinstance(item, tuple | list) or len(item) != 2:
                raise InvalidArgument("put_many takes pairs of a key and data: [((row, column), data), ...]")
            key, data = item
            keys.append(_key(key))
            payloads.append(_payload(data, metadata))
        groups: dict[str, list[int]] = {}  # metadata are sent once for all objects of a message
        for number, (_, described) in enumerate(payloads):
            groups.setdefault(described, []).append(number)
        results: list[Any] = [None] * len(keys)
        for described, numbers in groups.items():
            raw = [(*keys[n], payloads[n][0]) for n in numbers]
            found = self._core.put(raw, if_exists, acknowledge, tag, described, _timeout(timeout))
            for number, result in zip(numbers, found, strict=True):
                results[number] = result
        return _all(results, int)

    def get_many(
        self, keys: Iterable[KeyLike], *, wait: bool = False, tag: int | None = None, timeout: float | None = None
    ) -> builtins.list[Object | Error]:
        """Gets many objects. Returns, in order, each Object or the exception. wait: for those not there yet."""
        raw = [_key(key) for key in keys]
        return _all(self._core.get(raw, wait, False, None, tag, 0, None, _timeout(timeout)), _object)

    def info_many(
        self, keys: Iterable[KeyLike], *, tag: int | None = None, timeout: float | None = None
    ) -> builtins.list[ObjectInfo | Error]:
        """What is known of many objects: each ObjectInfo or the exception."""
        raw = [_key(key) for key in keys]
        results = self._core.get(raw, False, True, None, tag, 0, None, _timeout(timeout))
        return _all(results, lambda result: ObjectInfo._of(result[1]))

    def drop_many(
        self, keys: Iterable[KeyLike], *, tag: int | None = None, timeout: float | None = None
    ) -> builtins.list[bool | Error]:
        """Drops many objects: for each, whether it was there, or the exception."""
        return _all(self._core.drop([_key(key) for key in keys], None, tag, _timeout(timeout)), bool)

    # -------------------------------------------------------------------------------------------------------- patterns

    def list(self, row: Text = "*", column: Text = "*", *, limit: int | None = None) -> Iterator[ObjectInfo]:
        """Objects whose row and column match, in key order: exact text, a prefix ("heat*"), or a glob (* ? [a-z])."""
        following, given = b"", 0
        while True:
            page = 1000 if limit is None else min(1000, limit - given)
            if page <= 0:
                return
            objects, following = self._core.list_objects(_bytes(row), _bytes(column), page, following)
            for raw in objects:
                yield ObjectInfo._of(raw)
            given += len(objects)
            if not following:
                return

    def drop_matching(self, row: Text, column: Text = "*") -> int:
        """Drops every object that matches; returns how many."""
        return self._core.drop_pattern(_bytes(row), _bytes(column))

    def wait_row(
        self, row: Text, count: int, column: Text = "*", *, timeout: float | None = None
    ) -> builtins.list[ObjectInfo]:
        """Waits until a row holds `count` objects whose columns match, and returns what is known of them."""
        if not 0 <= count < 2**32:
            raise InvalidArgument(f"wait_row waits for 0 to {2**32 - 1} objects, not {count}")
        found = self._core.wait_row(_bytes(row), count, _bytes(column), _timeout(timeout))
        return [ObjectInfo._of(raw) for raw in found]

    def subscribe(self, row: Text = "*", column: Text = "*", *, existing: bool = False) -> Subscription:
        """Events of matching objects from now on; existing: what is there already comes first, as puts."""
        return Subscription(self._core.subscribe(_bytes(row), _bytes(column), existing))

    # ------------------------------------------------------------------------------------------------------------ rest

    def compute(
        self,
        function: str,
        keys: Iterable[KeyLike],
        *,
        time_limit: float = 10.0,
        memory_limit: int = 256 << 20,
        wait: bool = False,
        timeout: float | None = None,
        **arguments: Any,
    ) -> Any:
        """Runs a registered function beside the data, in a process of its own, and returns what it returns: an array or
        number where it says so, else bytes. time_limit: seconds; memory_limit: bytes. Raises Forbidden, NotFound."""
        memory, metadata = self._core.compute(
            function,
            [_key(key) for key in keys],
            json.dumps(arguments),
            to_ms(time_limit),
            memory_limit,
            wait,
            _timeout(timeout),
        )
        described = _described(metadata)
        if not described:
            return bytes(memory)
        array = np.frombuffer(memory, np.dtype(described["dtype"])).reshape(tuple(described.get("shape", (-1,))))
        return array[()] if array.ndim == 0 else array

    def status(self) -> dict[str, Any]:
        """The pool's view and its servers: memory, disk, objects, operations."""
        status: dict[str, Any] = self._core.status()
        return status

    # --------------------------------------------------------------------------------------------------- for operators

    def administer(self, server: str, command: str) -> dict[str, Any]:
        """Tells a server (by its name or id) to do something. Raises Forbidden without the role admin, NotFound.

        "drain": hand every object on to the other servers, however long that takes, leave the pool and end. Returns at
        once, what "drain_status" does; raises WrongState when no other server is active. "drain_status": waits 0.2 s
        for the drain to go on; a dict of state (handing_on; handed_on, then left; failed: the server stays in the
        pool; or none), objects and bytes (what the other servers do not hold yet), why (it failed), awaits (servers).
        "cancel_drain": the server stays. "stop": end at once; objects that no tier and no other server holds are lost.
        "config": say its configuration.
        """
        return _said(self._core.administer(server, command))

    def token(self, role: str) -> str:
        """What lets a client have this role and none above it: Pool(token=..., role=...). Raises Forbidden where this
        client was given a token itself."""
        return self._core.token(role)

    def directory_for_roles(self) -> str:
        """Where a client with such a token finds the pool: Pool(directory=...). Its holder sees servers and no secret.
        Raises Unsupported for etcd, which has users and roles of its own."""
        return self._core.directory_for_roles()

    def streams(self) -> builtins.list[dict[str, Any]]:
        """The streams in this pool: each one's state (open, ended or lost), writer, ranks, steps, bytes, readers."""
        options = self._options | {"pool": self.name, "ns": STREAMS_NAMESPACE, "trace": "off"}
        with Pool._opened(self._context, options) as inside:
            names = [_text(_bytes(info.row)[len(b"stream/") :]) for info in inside.list("stream/*", "stream")]
        found = []
        for name in names:
            with contextlib.suppress(NotFound):  # dropped meanwhile
                found.append(_said(self._core.stream_info(str(name))))
        return found

    def drop_stream(self, name: str) -> None:
        """Removes a stream, with its steps. Raises WrongState while a writer has it open, NotFound, Forbidden (it needs
        the role write). Readers that have it open are told that it is lost."""
        self._core.drop_stream(name)

    def close(self) -> None:
        """Ends the subscriptions, puts and wants of this client. Its calls in other threads raise WrongState."""
        self._core.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def known_pools(directory: str = "", *, timeout: float = 10.0, context: Context | None = None) -> list[dict[str, Any]]:
    """The pools that a directory knows: name, view, settled, replication, and servers with id, name and state.

    directory: as for Pool. Raises PeerLost (no directory that can be reached), TimeoutError (it
    does not answer).
    """
    from .context import _default_context

    context = context if context is not None else _default_context()
    pools: list[dict[str, Any]] = context._core.known_pools(directory, to_ms(timeout))
    for pool in pools:
        pool["servers"] = [{key: server[key] for key in ("id", "name", "state")} for server in pool["servers"]]
    return pools


def _failed(result: Any) -> bool:
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], str)


def _one(results: Sequence[Any]) -> Any:
    if len(results) != 1:
        raise InvalidArgument(f"{len(results)} results for one object")
    if _failed(results[0]):
        raise error_of(*results[0])
    return results[0]


def _all(results: Sequence[Any], make: Callable[[Any], T]) -> list[T | Error]:
    return [error_of(*result) if _failed(result) else make(result) for result in results]


def _object(result: tuple[Any, dict[str, Any]]) -> Object:
    return Object(result[0], ObjectInfo._of(result[1]))
