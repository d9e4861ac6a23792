"""Cohorts: the ranks of one parallel program that open a stream together.

Anything with the attributes rank and size and the methods broadcast(bytes, root) -> bytes and gather(bytes, root) ->
list of bytes (on root; elsewhere None) is one; create() and open() also take an mpi4py communicator, or None for a
program of one rank. One whose calls wait without a deadline also has leave(bytes), as MpiCohort has. Streams call them
while they open and close, never in between.

All ranks make the same calls in the same order. A cohort does not see that a rank fails between two calls: the others
wait for it in the next one, without end where there is no deadline. What can fail on one rank alone therefore runs
within penstock.analysis.exchange(), which raises it on all.
"""

from __future__ import annotations

import math
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from .errors import EndOfStream, Error, InvalidArgument, PeerLost, TimeoutError, WriterLost, WrongState

_PATIENCE_S = 60  # for a rank among threads


class Cohort(Protocol):
    """What create() and open() need of a parallel program."""

    rank: int
    size: int

    def broadcast(self, data: bytes, root: int) -> bytes: ...
    def gather(self, data: bytes, root: int) -> list[bytes] | None: ...


class MpiCohort:
    """An mpi4py communicator as a cohort. Collective: making it duplicates the communicator, free() frees that."""

    def __init__(self, comm: Any):
        self._comm = comm.Dup()
        self.rank = self._comm.Get_rank()
        self.size = self._comm.Get_size()

    def broadcast(self, data: bytes, root: int) -> bytes:
        received: bytes = self._comm.bcast(data if self.rank == root else None, root=root)
        return received

    def gather(self, data: bytes, root: int) -> list[bytes] | None:
        gathered: list[bytes] | None = self._comm.gather(data, root=root)
        return gathered

    def leave(self, data: bytes) -> None:
        """Not collective: this rank has failed, and the others' next broadcast from it gives data. Waits for nobody."""
        self._comm.bcast(data, root=self.rank)

    def free(self) -> None:
        """Collective."""
        if self._comm is not None:
            self._comm.Free()
            self._comm = None


class ThreadCohort:
    """One rank of a cohort whose ranks are threads of this process; made by thread_cohort()."""

    def __init__(self, rank: int, size: int, shared: _Shared):
        self.rank = rank
        self.size = size
        self._shared = shared

    def broadcast(self, data: bytes, root: int) -> bytes:
        return self._exchange(data)[root]

    def gather(self, data: bytes, root: int) -> list[bytes] | None:
        everything = self._exchange(data)
        return everything if self.rank == root else None

    def give_up(self) -> None:
        """Not collective: the others' calls raise TimeoutError from now on."""
        self._shared.barrier.abort()

    def _exchange(self, data: bytes) -> list[bytes]:
        self._shared.slots[self.rank] = data
        self._shared.calls[self.rank] += 1
        self._wait()
        everything = list(self._shared.slots)
        self._wait()
        return everything

    def _wait(self) -> None:
        try:
            self._shared.barrier.wait()
        except threading.BrokenBarrierError:
            calls = self._shared.calls
            missing = ", ".join(str(rank) for rank, count in enumerate(calls) if count < calls[self.rank])
            raise TimeoutError(
                f"cohort of threads: rank {missing} did not come to call {calls[self.rank]} within {_PATIENCE_S} s"
                if missing
                else f"cohort of threads: the others gave up waiting for a rank after {_PATIENCE_S} s"
            ) from None


class _Shared:
    def __init__(self, size: int):
        self.slots = [b""] * size
        self.calls = [0] * size
        self.barrier = threading.Barrier(size, timeout=_PATIENCE_S)


def thread_cohort(size: int) -> list[ThreadCohort]:
    """A cohort of `size` threads of this process: give each of them one element.

    Its calls raise TimeoutError, with the ranks, when some did not come within 60 s; the cohort is over then.
    """
    shared = _Shared(size)
    return [ThreadCohort(rank, size, shared) for rank in range(size)]


class StreamCohort:
    """A cohort over Penstock's own streams, for ranks without MPI: threads, or programs that are started apart.

    Collective. name: the same on all ranks, of no other cohort that runs. context: a penstock.Context (None: the
    default one). timeout: seconds for each call. All ranks make the same calls in the same order, one thread at a time.

    Rank 0 reads the stream NAME.cohort.<rank> of every other rank, and these read NAME.cohort.0: in each call all send
    to rank 0, which answers all; it does not answer a gather to itself.

    The constructor and calls raise TimeoutError for a rank that did not come, PeerLost for one that died or left, and
    InvalidArgument for one that made another call, each naming the rank. After an error the cohort is over: every
    further call repeats it.
    """

    def __init__(self, name: str, rank: int, size: int, context: Any = None, timeout: float = 60.0):
        if not 0 <= rank < size:
            raise InvalidArgument(f"cohort '{name}': rank {rank} is not one of 0 to {size - 1}")
        if not 0 < timeout < math.inf:
            raise InvalidArgument(f"cohort '{name}': the timeout is positive, not {timeout}")
        self.name, self.rank, self.size = name, rank, size
        # The others wait longer than rank 0, so that they get its error, which says for whom it waited.
        self._timeout = timeout if rank == 0 else 1.5 * timeout
        self._calls = 0
        self._error: Error | None = None
        self._writer: Any = None
        self._readers: dict[int, Any] = {}  # by the rank that writes
        if size > 1:
            self._guarded(self._connect, context)

    def broadcast(self, data: bytes, root: int) -> bytes:
        """What root gave as data, on every rank; that of others is ignored."""
        self._check(root)
        return self._guarded(self._call, _BROADCAST, root, data) if self.size > 1 else bytes(data)

    def gather(self, data: bytes, root: int) -> list[bytes] | None:
        """The data of all ranks, by rank, on root; None elsewhere."""
        self._check(root)
        return self._guarded(self._call, _GATHER, root, data) if self.size > 1 else [bytes(data)]

    def close(self) -> None:
        """Waits until the others have what this rank sent. After an error it does nothing. Twice does nothing."""
        if self._error is None:
            self._error = WrongState(f"cohort '{self.name}' is closed")
            self._disconnect(lost=False)

    def __enter__(self) -> StreamCohort:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            self._fail(PeerLost(f"cohort '{self.name}': rank {self.rank} failed: {kind.__name__}: {error}"))
        self.close()

    def _connect(self, context: Any) -> None:
        if context is None:
            from .context import _default_context

            context = _default_context()
        self._until = time.monotonic() + self._timeout
        if self.rank > 0:
            self._open(context, 0)  # first: rank 0 is to find only ranks that it can answer
        name = self._stream(self.rank)
        self._writer = context.create(
            name, timeout=self._timeout, rendezvous_readers=int(self.rank > 0), queue_steps=2,
            **internal_options(context, name),
        )  # fmt: skip
        for rank in range(1, self.size) if self.rank == 0 else ():
            self._open(context, rank)
        self._call(_START, self.size, b"")

    def _stream(self, rank: int) -> str:
        return f"{self.name}.cohort.{rank}"

    def _open(self, context: Any, rank: int) -> None:
        name = self._stream(rank)
        with self._naming(rank, f"cohort '{self.name}'"):
            self._readers[rank] = context.open(name, timeout=self._left(), **internal_options(context, name))

    def _left(self) -> float:
        return max(self._until - time.monotonic(), 0)

    def _check(self, root: int) -> None:
        if self._error is not None:
            raise type(self._error)(str(self._error))
        if not 0 <= root < self.size:
            raise InvalidArgument(f"cohort '{self.name}': root {root} is not one of 0 to {self.size - 1}")

    def _guarded(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except Error as error:
            self._fail(error)
            raise
        except BaseException as error:  # Ctrl-C: nobody knows which messages were taken
            self._fail(PeerLost(f"cohort '{self.name}': rank {self.rank} was interrupted: {type(error).__name__}"))
            raise

    def _call(self, kind: int, root: int, data: bytes) -> Any:
        self._until = time.monotonic() + self._timeout
        message = (kind, root, self._calls)
        self._calls += 1
        mine = bytes(data)
        if self.rank == 0:
            parts = [mine, *(self._receive(rank, message) for rank in range(1, self.size))]
            if message[:2] == (_GATHER, 0):
                return parts
            self._send(message, parts[root] if kind == _BROADCAST else _packed(parts))
            return parts[root] if kind == _BROADCAST else None
        self._send(message, mine if kind == _GATHER or self.rank == root else b"")
        if message[:2] == (_GATHER, 0):
            return None
        answer = self._receive(0, message)
        if kind == _BROADCAST:
            return answer
        return _unpacked(answer, self.size) if self.rank == root else None

    def _send(self, message: tuple[int, int, int], data: bytes) -> None:
        small = len(data) <= _SMALL_BYTES
        # All heads have one size: small messages keep the layout of the stream.
        head = _HEAD.pack(*message, len(data)) + (data if small else b"").ljust(_SMALL_BYTES, b"\0")
        # All have taken what rank 0 sent, since they made this call; another rank may be two messages ahead of rank 0.
        with self._naming(0, self._text(message)), self._writer.step(self._left()) as step:
            step.put_local("head", np.frombuffer(head, np.uint8))
            if not small:
                step.put_local("body", np.frombuffer(data, np.uint8))

    def _receive(self, rank: int, message: tuple[int, int, int]) -> bytes:
        """The next message of that rank, which is to be of this call."""
        with self._naming(rank, self._text(message)), self._readers[rank].step(self._left()) as step:
            head = step["head"].view().tobytes()
            *found, length = _HEAD.unpack_from(head)
            # Of an answer to a gather, only its root wants the data.
            wanted = self.rank in (0, found[1]) or found[0] != _GATHER
            data: bytes = head[_HEAD.size : _HEAD.size + length]
            if length > _SMALL_BYTES:
                data = step["body"].view().tobytes() if wanted else b""
        if found[0] == _FAILED:
            raise _ERRORS[found[1]](data.decode())
        if tuple(found) != message:
            raise InvalidArgument(
                f"{self._text(message)}: rank {rank} is in {self._text(found)}; all ranks make the same calls"
            )
        return data

    def _text(self, message: Sequence[int]) -> str:
        kind, root, number = message
        return f"cohort '{self.name}', call {number} ({_KINDS[kind]} {root})"

    @contextmanager
    def _naming(self, rank: int, what: str) -> Iterator[None]:
        """Errors of streams become those of the rank behind them."""
        try:
            yield
        except TimeoutError as error:
            raise TimeoutError(f"{what}: rank {rank} did not come in time") from error
        except (WriterLost, PeerLost) as error:
            raise PeerLost(f"{what}: rank {rank} is lost: {error}") from error
        except EndOfStream as error:
            raise PeerLost(f"{what}: rank {rank} has left") from error

    def _fail(self, error: Error) -> None:
        if self._error is not None:
            return
        self._error = error
        if self.rank == 0 and self._writer is not None:
            code = next((n for n, each in enumerate(_ERRORS) if isinstance(error, each)), 0)
            self._until = time.monotonic() + 1
            with suppress(Error):
                self._send((_FAILED, code, self._calls), str(error).encode())
                self._writer.close(1)  # until the others have it; those that do not come see a stream that ended
        self._disconnect(lost=True)

    def _disconnect(self, lost: bool) -> None:
        for reader in self._readers.values():
            with suppress(Error):
                reader.close()
        if self._writer is not None and not self._writer.closed:
            self._writer._lose() if lost else self._writer.close()


# A message: a head, which small data fits into, and a body for large data.
_HEAD = struct.Struct("<iiQQ")  # kind, root, number of the call, bytes of data
_SMALL_BYTES = 1000
_START, _BROADCAST, _GATHER, _FAILED = range(4)
_KINDS = ("start of ranks", "broadcast from rank", "gather to rank", "failure")
_ERRORS = (PeerLost, TimeoutError, InvalidArgument)  # what rank 0 tells the others


def _packed(parts: list[bytes]) -> bytes:
    return struct.pack(f"<{len(parts)}Q", *map(len, parts)) + b"".join(parts)


def _unpacked(data: bytes, size: int) -> list[bytes]:
    ends = np.cumsum([8 * size, *struct.unpack_from(f"<{size}Q", data)])
    return [data[first:last] for first, last in pairwise(ends)]


def internal_options(context: Any, name: str) -> dict[str, str]:
    """The options that every stream between ranks of one program has: engine direct, and no step is dropped.

    Raises InvalidArgument where penstock.yaml or the environment chooses otherwise.
    """
    effective = context.options_for(name, engine="direct")
    for key, value in (("engine", "direct"), ("when_full", "block"), ("delivery", "every")):
        if effective[key] != value:
            raise InvalidArgument(
                f"stream '{name}', internal to a program, needs {key}={value}; penstock.yaml or the environment says "
                f"{effective[key]}: give it a section of its own, or name the streams that are meant instead of '*'"
            )
    return {"engine": "direct"}


def rank_of(cohort: Cohort | None) -> int:
    """This rank's number; 0 in a program of one rank."""
    return cohort.rank if cohort is not None else 0


def free_cohort(cohort: Cohort | None) -> None:
    """Calls its free(), if it has one, as MpiCohort has."""
    if (free := getattr(cohort, "free", None)) is not None:
        free()


def as_cohort(comm: Any) -> Cohort | None:
    """The cohort of what a user gave as comm: None, an mpi4py communicator (collective), or a cohort."""
    if comm is None:
        return None
    if hasattr(comm, "Get_rank"):
        return MpiCohort(comm)
    if all(hasattr(comm, name) for name in ("rank", "size", "broadcast", "gather")):
        cohort: Cohort = comm
        return cohort
    raise InvalidArgument(f"{type(comm).__name__} is neither an mpi4py communicator nor a cohort")
