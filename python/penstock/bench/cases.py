"""What is measured: workloads, and for each the systems and variants with the programs that make one run of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from .programs import has_ucx, mpi

WORKLOADS = {
    "W1": "one writer to one reader, 40 steps of 64 MiB",
    "W2": "two writers (z-slabs) to two readers (x-slabs), 20 steps of 256³ float64",
    "W3": "500 variables of 1 KiB a step, 200 steps",
    "W4": "two programs exchange one element, 2000 round trips",
}

# Peers are also shown at their best: glibc keeps freed blocks instead of giving them back to the system, so their large
# buffers are not made of fresh pages in every step.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
# SST takes 88 ms per exchange as installed: fewer exchanges, scaled to 2000.
SLOW_ROUND_TRIPS = 50
ROUND_TRIPS = 2000
SPIN_US = 2000  # Penstock's bounded spinning in W4


@dataclass(frozen=True)
class Case:
    """One row: `commands` are started together; {directory} and {data} are filled in for each run."""

    workload: str
    system: str
    variant: str
    label: str
    commands: tuple[tuple[str, ...], ...]
    environment: dict[str, str] = field(default_factory=dict, hash=False)
    files: str = ""  # "memory" or "disk": needs a data directory there
    scale: float = 1.0  # the measured time stands for so many times as many steps

    @property
    def key(self) -> tuple[str, str, str]:
        return self.workload, self.system, self.variant


class Programs:
    """The benchmark programs of a build folder; a program that was not built is None."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.mpiexec = shutil.which("mpiexec") or ""

    def find(self, name: str) -> str | None:
        path = self.folder / name
        return str(path) if path.exists() else None

    def library(self, name: str) -> str | None:
        return self.find(f"lib{name}.so")


def pair(program: str, *options: str, pinned: bool = True) -> tuple[tuple[str, ...], ...]:
    """A writer and a reader, on different cores."""
    return tuple(
        (program, "--role", role, "--directory", "{directory}", *(("--core", core) if pinned else ()), *options)
        for role, core in (("writer", "0"), ("reader", "1"))
    )


def limit_cases(programs: Programs) -> Iterator[Case]:
    labels = {
        ("W1", "one_copy"): "one copy, sampled in place",
        ("W1", "one_copy_sum"): "one copy, summed in place",
        ("W1", "two_copies"): "two copies",
        ("W1", "fresh"): "two copies, fresh slots",
        ("W1", "fill_sum"): "filled in place, summed in place",
        ("W1", "handover"): "hand-over only",
        ("W2", "one_copy"): "one copy",
        ("W2", "two_copies"): "two copies",
        ("W3", "two_copies"): "500 + 500 memcpy",
        ("W4", "futex"): "futex, sleeping",
        ("W4", "eventfd"): "eventfd, sleeping",
        ("W4", "spin"): "spinning",
    }
    program = programs.find("limit_streams")
    if program:
        for (workload, variant), label in labels.items():
            command = (program, "--workload", workload, "--variant", variant)
            yield Case(workload, "limit", variant, label, (command,))


def penstock_cases(programs: Programs) -> Iterator[Case]:
    labels = {
        "put_get": "put, get",
        "put_view": "put, view sampled",
        "put_view_sum": "put, view summed",
        "span_view_sum": "put_span filled, view summed",
        "handshake": "put_span, view untouched",
    }
    program = programs.find("penstock_streams")
    if program:
        for variant, label in labels.items():
            yield Case("W1", "penstock", variant, label, pair(program, "--workload", "W1", "--variant", variant))
        tcp = pair(program, "--workload", "W1", "--variant", "put_get", "--plane", "tcp")
        yield Case("W1", "penstock", "tcp_put_get", "tcp: put, get", tcp)
        if has_ucx(programs.folder):
            ucx = pair(program, "--workload", "W1", "--variant", "put_get", "--plane", "ucx")
            yield Case("W1", "penstock", "ucx_put_get", "ucx: put, get", ucx)
        yield Case("W3", "penstock", "put_get", "put, get", pair(program, "--workload", "W3", "--variant", "put_get"))
        for variant, label, spin in (("blocking", "sleeping", 0), ("spinning", f"spinning ≤ {SPIN_US} µs", SPIN_US)):
            options = ("--workload", "W4", "--variant", "put_get", "--spin-us", str(spin))
            yield Case("W4", "penstock", variant, label, pair(program, *options))
    program = programs.find("penstock_streams_mpi")
    if program and programs.mpiexec:
        for variant, label in (("span_get", "put_span, get"), ("put_get", "put, get")):
            sides = pair(program, "--workload", "W2", "--variant", variant, pinned=False)
            yield Case("W2", "penstock", variant, label, tuple(tuple(mpi(2, *side)) for side in sides))


def mpi_cases(programs: Programs) -> Iterator[Case]:
    program = programs.find("mpi_streams")
    if not program or not programs.mpiexec:
        return
    rows = (
        ("W1", "send", "MPI_Send of the array", 2),
        ("W1", "copy_send", "copy, MPI_Isend", 2),
        ("W2", "packed", "packed, double-buffered", 4),
        ("W2", "derived", "derived datatypes", 4),
        ("W3", "messages", "500 messages", 2),
        ("W4", "spin", "MPI_Send, MPI_Recv (spins)", 2),
    )
    for workload, variant, label, ranks in rows:
        command = tuple(mpi(ranks, program, "--workload", workload, "--variant", variant))
        yield Case(workload, "mpi", variant, label, (command,))


def sst_cases(programs: Programs) -> Iterator[Case]:
    program = programs.find("sst_streams")
    if not program:
        return
    best = dict(KEEP_MEMORY)
    nodelay = programs.library("nodelay_preload")
    if nodelay:
        best["LD_PRELOAD"] = nodelay
    for workload in ("W1", "W3", "W4"):
        slow = workload == "W4"
        options = ("--steps", str(SLOW_ROUND_TRIPS)) if slow else ()
        yield Case(
            workload,
            "sst",
            "installed",
            "as installed" + (f" ({SLOW_ROUND_TRIPS} trips, scaled)" if slow else ""),
            pair(program, "--workload", workload, "--queue", "0", *options),
            scale=ROUND_TRIPS / SLOW_ROUND_TRIPS if slow else 1.0,
        )
        yield Case(
            workload,
            "sst",
            "best",
            "best: QueueLimit 2, keep, NODELAY",
            pair(program, "--workload", workload, "--queue", "2"),
            environment=best,
        )


def zmq_cases(programs: Programs) -> Iterator[Case]:
    program = programs.find("zmq_streams")
    if not program:
        return
    # Its threads allocate too; arenas of their own would give large blocks back whatever the other settings say.
    keep = KEEP_MEMORY | {"MALLOC_ARENA_MAX": "1"}
    for variant, label, environment in (("installed", "as installed", {}), ("keep", "memory kept", keep)):
        for workload in ("W1", "W3", "W4"):
            yield Case(
                workload, "zeromq ipc", variant, label, pair(program, "--workload", workload), environment=environment
            )
        ranks = [pair(program, "--workload", "W2", "--rank", str(rank), pinned=False) for rank in (0, 1)]
        yield Case("W2", "zeromq ipc", variant, label, ranks[0] + ranks[1], environment=environment)


def hdf5_cases(programs: Programs) -> Iterator[Case]:
    program = programs.find("hdf5_streams")
    if not program:
        return
    for workload in ("W1", "W3"):
        for files, label in (("memory", "in a memory file system"), ("disk", "on disk, no fsync")):
            if files == "memory" and not os.access("/dev/shm", os.W_OK):
                continue
            commands = pair(program, "--workload", workload, "--data-directory", "{data}")
            yield Case(workload, "hdf5 files", files, label, commands, files=files)


FAMILIES = {
    "limit": limit_cases,
    "penstock": penstock_cases,
    "mpi": mpi_cases,
    "sst": sst_cases,
    "zeromq ipc": zmq_cases,
    "hdf5 files": hdf5_cases,
}
WHY_MISSING = {
    "limit": "limit_streams was not built",
    "penstock": "penstock_streams was not built",
    "mpi": "mpi_streams was not built, or there is no mpiexec",
    "sst": "sst_streams was not built (no adios2 package with headers; pip install adios2, configure again)",
    "zeromq ipc": "zmq_streams was not built (no libzmq)",
    "hdf5 files": "hdf5_streams was not built (no HDF5)",
}


def all_cases(programs: Programs, workloads: list[str]) -> tuple[list[Case], list[str]]:
    """The rows that can be measured here, and a line for each that is left out."""
    cases: list[Case] = []
    left_out: list[str] = []
    for system, make in FAMILIES.items():
        found = list(make(programs))
        cases += [case for case in found if case.workload in workloads]
        if not found:
            left_out.append(f"{system}: {WHY_MISSING[system]}")
        elif system == "penstock" and "W2" in workloads and not any(case.workload == "W2" for case in found):
            left_out.append("penstock W2: penstock_streams_mpi was not built, or there is no mpiexec")
    if "W2" in workloads:
        left_out.append("sst W2: the adios2 wheel has no MPI, so it has no cohorts of more than one rank")
    return sorted(cases, key=lambda case: case.workload), left_out


# Rows whose allocations and page faults are counted, after the first 8 steps.
COUNTED = (
    ("W1", "put_get"),
    ("W1", "put_view"),
    ("W1", "span_view_sum"),
    ("W1", "tcp_put_get"),
    ("W1", "ucx_put_get"),
    ("W2", "put_get"),
    ("W2", "span_get"),
    ("W3", "put_get"),
    ("W4", "blocking"),
)
COUNT_AFTER = 8


def counted_cases(cases: list[Case], programs: Programs) -> list[Case]:
    counters = programs.library("counters_preload")
    environment = {"LD_PRELOAD": counters} if counters else {}
    return [
        replace(
            case,
            environment=environment,
            commands=tuple((*command, "--count-after", str(COUNT_AFTER)) for command in case.commands),
        )
        for case in cases
        if case.system == "penstock" and (case.workload, case.variant) in COUNTED
    ]
