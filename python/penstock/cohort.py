"""Cohorts: the ranks of one parallel program that open a stream together.

Anything with the attributes rank and size and the methods broadcast(bytes, root) -> bytes and gather(bytes, root) ->
list of bytes (on root; elsewhere None) is one; create() and open() also take an mpi4py communicator, or None for a
program of one rank. They are called while a stream opens and closes, never in between.
"""

from __future__ import annotations

import threading
from typing import Any, Protocol

from .errors import InvalidArgument


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
        return self._comm.bcast(data if self.rank == root else None, root=root)

    def gather(self, data: bytes, root: int) -> list[bytes] | None:
        return self._comm.gather(data, root=root)

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

    def _exchange(self, data: bytes) -> list[bytes]:
        self._shared.slots[self.rank] = data
        self._shared.barrier.wait()
        everything = list(self._shared.slots)
        self._shared.barrier.wait()
        return everything


class _Shared:
    def __init__(self, size: int):
        self.slots = [b""] * size
        # A rank that never comes fails the others instead of keeping them.
        self.barrier = threading.Barrier(size, timeout=60)


def thread_cohort(size: int) -> list[ThreadCohort]:
    """A cohort of `size` threads of this process: give each of them one element."""
    shared = _Shared(size)
    return [ThreadCohort(rank, size, shared) for rank in range(size)]


def as_cohort(comm: Any) -> Any:
    """The cohort of what a user gave as comm: None, an mpi4py communicator (collective), or a cohort."""
    if comm is None:
        return None
    if hasattr(comm, "Get_rank"):
        return MpiCohort(comm)
    if all(hasattr(comm, name) for name in ("rank", "size", "broadcast", "gather")):
        return comm
    raise InvalidArgument(f"{type(comm).__name__} is neither an mpi4py communicator nor a cohort")
