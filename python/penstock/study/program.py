"""One rank of `penstock study staging`, a writer or a reader: a process that prints its seconds as one line of JSON.

A writer puts its box of each step, a reader gets its box, in the same order or another one, through a space or through
files. The delay, which stands for computing, comes before the transfer of each step and is not counted.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

Box = tuple[tuple[int, ...], tuple[int, ...]]  # start, count

ARRAY, GATE = "field", "gate"
SAMPLED = (17, 19, 23)  # strides of the elements that readers check
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Job:
    """What one process does. gate: its number among `members` programs that begin together; -1: it begins at once."""

    role: str  # writer or reader
    way: str  # space, full (the reader gets rows of the whole and converts), files, hdf5
    shape: tuple[int, ...]
    box: Box
    steps: int
    delay_s: float
    order: Literal["C", "F"] = "C"  # of what readers get; writers have rows
    place: str = "at_reader"
    gate: int = -1
    members: int = 0
    folder: str = ""  # of files
    fsync: bool = False
    written: tuple[Box, ...] = ()  # the writers' boxes, each in a file of its own

    def words(self) -> str:
        return json.dumps(asdict(self))


def job_of(words: str) -> Job:
    given = json.loads(words)
    start, count = given.pop("box")
    written = tuple((tuple(a), tuple(b)) for a, b in given.pop("written"))
    return Job(**given | {"shape": tuple(given["shape"]), "box": (tuple(start), tuple(count)), "written": written})


def slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(start, start + count) for start, count in zip(*box, strict=True))


def elements(shape: tuple[int, ...], box: Box, strides: tuple[int, ...] = (1, 1, 1)) -> np.ndarray:
    """Each element's number in the whole array, in rows. A step adds its own number to all."""
    starts, sizes = box
    axes = [np.arange(0, size, stride) + start for start, size, stride in zip(starts, sizes, strides, strict=True)]
    i, j, k = np.ix_(*axes)
    return ((i * shape[1] + j) * shape[2] + k).astype(np.float64)


def timed(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


# ------------------------------------------------------------------------------------------------------------ transfers


class InSpace:
    def __init__(self, job: Job, space: Any):
        self.job = job
        if job.role == "writer":
            layouts = [("float64", job.order)] if job.place == "in_advance" else []
            self.array = space.define(ARRAY, "float64", job.shape, convert=job.place, layouts=layouts)
        else:
            self.array = space.wait(ARRAY, timeout=TIMEOUT_S)
        self.whole = np.empty(job.shape) if job.way == "full" and job.role == "reader" else None

    def put(self, step: int, data: np.ndarray) -> None:
        self.array[step].put(data, slices(self.job.box))

    def wait(self, step: int) -> None:
        self.array[step].wait(... if self.whole is not None else slices(self.job.box))

    def get(self, step: int, out: np.ndarray) -> None:
        if self.whole is None:
            self.array[step].get(slices(self.job.box), out=out)
            return
        self.array[step].get(out=self.whole)
        out[...] = self.whole[slices(self.job.box)]


class InFiles:
    """A file for each writer and step: its box in rows. Readers come when all is there."""

    def __init__(self, job: Job):
        self.job = job
        self.mine = job.written.index(job.box) if job.role == "writer" else -1

    def path(self, step: int, writer: int) -> Path:
        return Path(self.job.folder) / f"{step}-{writer}"

    def put(self, step: int, data: np.ndarray) -> None:
        path = self.path(step, self.mine)
        self.write(path, data)
        if self.job.fsync:
            with open(path, "rb") as file:
                os.fsync(file.fileno())

    def write(self, path: Path, data: np.ndarray) -> None:
        with open(path, "wb", buffering=0) as file:
            file.write(data.data)

    def wait(self, step: int) -> None:
        pass

    def get(self, step: int, out: np.ndarray) -> None:
        for writer, (starts, sizes) in enumerate(self.job.written):
            lower = np.maximum(starts, self.job.box[0])
            upper = np.minimum(np.add(starts, sizes), np.add(*self.job.box))
            if (lower < upper).all():
                into = out[tuple(map(slice, lower - self.job.box[0], upper - self.job.box[0]))]
                self.read(self.path(step, writer), sizes, tuple(map(slice, lower - starts, upper - starts)), into)

    def read(self, path: Path, sizes: tuple[int, ...], part: tuple[slice, ...], into: np.ndarray) -> None:
        """Of a file those planes that are needed, then those elements into the reader's order."""
        planes, plane = part[0].stop - part[0].start, sizes[1] * sizes[2]
        found = np.fromfile(path, np.float64, planes * plane, offset=8 * part[0].start * plane)
        into[...] = found.reshape(planes, *sizes[1:])[:, part[1], part[2]]


class InHdf5(InFiles):
    def __init__(self, job: Job):
        super().__init__(job)
        self.h5py = importlib.import_module("h5py")

    def write(self, path: Path, data: np.ndarray) -> None:
        with self.h5py.File(path, "w") as file:
            file.create_dataset(ARRAY, data=data)

    def read(self, path: Path, sizes: tuple[int, ...], part: tuple[slice, ...], into: np.ndarray) -> None:
        with self.h5py.File(path, "r") as file:
            into[...] = file[ARRAY][part]


# ---------------------------------------------------------------------------------------------------------------- roles


def write(job: Job, store: Any) -> dict[str, Any]:
    first = elements(job.shape, job.box)
    data = np.empty_like(first)
    seconds = []
    for step in range(job.steps):
        np.add(first, step, out=data)
        time.sleep(job.delay_s)
        seconds.append(timed(partial(store.put, step, data)))
    return {"role": "writer", "io_s": seconds}


def read(job: Job, store: Any) -> dict[str, Any]:
    """wait_s: until the elements are there; io_s: from then on."""
    out = np.zeros(job.box[1], order=job.order)
    expected = elements(job.shape, job.box, SAMPLED)
    sampled = tuple(slice(None, None, stride) for stride in SAMPLED)
    waited, seconds = [], []
    for step in range(job.steps):
        time.sleep(job.delay_s)
        waited.append(timed(partial(store.wait, step)))
        seconds.append(timed(partial(store.get, step, out)))
        if not np.array_equal(out[sampled], expected + step) or out[-1, -1, -1] != last_of(job) + step:
            raise RuntimeError(f"step {step}: what was got is not what was put")
    return {"role": "reader", "wait_s": waited, "io_s": seconds}


def last_of(job: Job) -> float:
    at = [start + count - 1 for start, count in zip(*job.box, strict=True)]
    return float((at[0] * job.shape[1] + at[1]) * job.shape[2] + at[2])


def pass_gate(job: Job, space: Any) -> None:
    """Returns when all members are here: a gate is an array of which each puts its element."""
    if job.gate >= 0:
        gate = space.define(GATE, "int8", (job.members,))
        gate[0][job.gate] = 1
        gate[0].wait(timeout=TIMEOUT_S)


def main() -> int:
    job = job_of(sys.argv[1])
    with contextlib.ExitStack() as stack:
        if job.way in ("files", "hdf5"):
            store: Any = (InFiles if job.way == "files" else InHdf5)(job)
        else:
            import penstock

            space = stack.enter_context(penstock.Space(timeout=TIMEOUT_S))
            store = InSpace(job, space)
            pass_gate(job, space)
        print(json.dumps((write if job.role == "writer" else read)(job, store)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
