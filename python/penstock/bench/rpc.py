"""`penstock bench rpc`: remote calls and bulk memory beside the limits of their planes and beside gRPC."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from . import ucx_peer
from .programs import find_programs, has_ucx
from .runner import RunFailed, run_programs
from .studies import Benchmark, Claim, Column, Figures, Panel, Row, Run, Sheet, add_options, carry_out, check_options

STUDIES = {
    "calls": "an echo of 64 bytes: latency, and calls a second with 1, 16 and 256 under way",
    "bulk": "memory moved by the server, pulled and pushed, against size",
    "transfer": "the transfer service: an array to the server and back, inside messages and as bulk",
}
KIB, MIB = 1 << 10, 1 << 20
SIZES = tuple(size * KIB for size in (4, 16, 64, 256)) + tuple(size * MIB for size in (1, 4, 16, 64, 256))
QUICK_SIZES = (4 * KIB, 64 * KIB, MIB, 16 * MIB)
LARGE = MIB  # from here on the claim about bandwidth holds
UNDER_WAY = (1, 16, 256)
PYTHON_PEER = "penstock.bench.grpc_peer"
METHODS = ("write-encode", "write-bulk", "read-encode", "read-bulk")
RECORD_BYTES = 16
CONTACT_S = 20.0


def sizes_of(quick: bool) -> tuple[int, ...]:
    return QUICK_SIZES if quick else SIZES


def size_text(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def figures_of(program: str, study: str, way: str, options: tuple[object, ...], run: Run) -> Figures:
    words: tuple[object, ...] = ("--way", way, *options)
    if program != "rpc_limits":
        words = ("--study", study, *words)
    if program in ("grpc_calls", PYTHON_PEER):
        words = (*words, "--directory", run.folder)
    if program == PYTHON_PEER:
        return run.figures([sys.executable, "-m", PYTHON_PEER, *(str(word) for word in words)])
    return run.figures(run.program(program, *words))


def grpc_program(programs: Path) -> tuple[str, str]:
    """gRPC's program: in C++ where it was built, else in Python where grpcio is there; and why not in C++."""
    if not (programs / "grpc_calls").exists() and importlib.util.find_spec("grpc"):
        return PYTHON_PEER, "not built: no libgrpc++-dev"
    return "grpc_calls", "no libgrpc++-dev, and no grpcio from PyPI"


def transfer(server: Path, client: Path, way: str, quick: bool, run: Run) -> Figures:
    """The example's own programs: the client prints the best of its repetitions for each method."""
    contact = run.folder / "server"
    process = subprocess.Popen([server, contact], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise RunFailed("the transfer server did not start")
        figures: Figures = {}
        for size in (MIB, 16 * MIB) if quick else (MIB, 64 * MIB):
            command = [str(client), str(contact), str(size // RECORD_BYTES), "5", way]
            lines = run_programs([command], {}, run.folder, run.deadline_s, start="")
            for line in lines:
                found = re.match(r"(\S+)\s+([\d.]+) us\s+([\d.]+) MB/s", line)
                if found and found[1] in METHODS:
                    figures[f"{found[1]}_{size_text(size).replace(' ', '')}"] = float(found[3]) / 1000
    finally:
        if process.stdin:
            process.stdin.close()
        try:
            process.wait(CONTACT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
    if not figures:
        raise RunFailed("the transfer client printed no figures")
    return figures


def rows_of(programs: Path, quick: bool) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    left_out: list[str] = []
    sockets = {"unix": "unix socket", "tcp": "tcp loopback"}
    calls = ("--calls", 2000 if quick else 20_000)
    sizes = ",".join(str(size) for size in sizes_of(quick))
    bulk = ("--sizes", sizes, "--total", (64 if quick else 512) * MIB)
    grpc, note = grpc_program(programs)
    ours_by_ucx = {"ucx": "ucx"} if has_ucx(programs) else {}
    if not ours_by_ucx:
        left_out.append("ucx: built without it (no libucx-dev)")
    elif shutil.which(ucx_peer.TOOL):
        for variant, (label, options) in ucx_peer.VARIANTS.items():
            run = partial(ucx_peer.bandwidths, sizes_of(quick), options)
            rows.append(Row("bulk", ucx_peer.TOOL, variant, label, run))
    else:
        left_out.append(f"{ucx_peer.TOOL}: not installed (Debian: ucx-utils)")
    systems: tuple[Any, ...] = (  # what takes small calls, and what moves memory
        ("limit", "rpc_limits", sockets, {}),
        (
            "penstock",
            "rpc_calls",
            {"shm": "unix socket", "tcp": "tcp loopback"},
            {"shm": "shared memory", **sockets, **ours_by_ucx},
        ),
        ("grpcio" if grpc == PYTHON_PEER else "grpc", grpc, sockets, sockets),  # no claim is about Python's
    )
    for system, program, ways, planes in systems:
        if program == PYTHON_PEER:
            left_out.append(f"gRPC's C++ program ({note}); its rows are of grpcio, from PyPI")
        elif not (programs / program).exists():
            left_out.append(f"{system}: {program} was not built{f' ({note})' if system == 'grpc' else ''}")
            continue
        for way, label in ways.items():
            rows.append(Row("calls", system, way, label, partial(figures_of, program, "calls", way, calls)))
        for way, label in planes.items():
            rows.append(Row("bulk", system, way, label, partial(figures_of, program, "bulk", way, bulk)))
    examples = programs.parent / "examples" / "rpc"
    server, client = examples / "transfer_server", examples / "transfer_client"
    if server.exists() and client.exists():
        for way, label in (("automatic", "shared memory"), ("unix", "unix socket"), ("tcp", "tcp loopback")):
            rows.append(Row("transfer", "penstock", way, label, partial(transfer, server, client, way, quick)))
    else:
        left_out.append("transfer: examples/rpc was not built")
    order = list(STUDIES)
    return sorted(rows, key=lambda row: order.index(row.study)), left_out


def claims_of(quick: bool) -> list[Claim]:
    large = [size for size in sizes_of(quick) if size >= LARGE]
    claims = []
    for way, name in (("shm", "shared memory"), ("unix", "the Unix socket"), ("tcp", "TCP")):
        for direction in ("pull", "push"):
            claims.append(
                Claim(
                    f"bulk {direction} over {name} reaches 0.8 of the plane's bandwidth at every size from 1 MiB on",
                    ("bulk", "penstock", way),
                    tuple(f"ratio_{direction}_{size}" for size in large),
                    0.8,
                )
            )
    for ours, theirs, name in (("shm", "unix", "the Unix socket"), ("tcp", "tcp", "TCP")):
        claims.append(
            Claim(
                f"a small call over {name} takes no longer than gRPC's",
                ("calls", "penstock", ours),
                ("latency_us",),
                1.0,
                theirs=(("calls", "grpc", theirs),),
                sense="at_most",
                theirs_lower=True,
            )
        )
        claims.append(
            Claim(
                f"more small calls a second over {name} than gRPC with 1, 16 and 256 under way",
                ("calls", "penstock", ours),
                tuple(f"calls_per_s_{number}" for number in UNDER_WAY),
                1.0,
                theirs=(("calls", "grpc", theirs),),
            )
        )
    return claims


def sheets_of(quick: bool) -> list[Sheet]:
    sizes = sizes_of(quick)
    calls = (
        Column("latency_us", "latency µs"),
        Column("latency_p99_us", "99 %"),
        *(Column(f"calls_per_s_{number}", f"1000 calls/s,\n{number} under way", 1e-3) for number in UNDER_WAY),
    )
    moved = {
        name: tuple(Column(f"{name}_{size}", size_text(size)) for size in sizes)
        for name in ("pull", "push", "bare_pull", "bare_push", "ratio_pull", "ratio_push")
    }
    array = ("1MiB", "16MiB" if quick else "64MiB")
    methods = tuple(Column(f"{method}_{size}", f"{method}\n{size}") for method in METHODS for size in array)
    return [
        Sheet("calls", f"calls: {STUDIES['calls']}", calls),
        Sheet("bulk", "bulk, pulled by the server: GB/s, 4 under way", moved["pull"]),
        Sheet(
            "bulk",
            "the same memory in turns with it, without the library (memcpy; one stream): GB/s",
            moved["bare_pull"],
        ),
        Sheet("bulk", "ours of that, median of the turns", moved["ratio_pull"]),
        Sheet("bulk", "bulk, pushed by the server: GB/s, 4 under way", moved["push"]),
        Sheet("bulk", "the same memory in turns with it, without the library: GB/s", moved["bare_push"]),
        Sheet("bulk", "ours of that, median of the turns", moved["ratio_push"]),
        Sheet("transfer", f"transfer: {STUDIES['transfer']}; GB/s, best of 5 in a run", methods),
    ]


def panels_of(quick: bool) -> list[Panel]:
    sizes = sizes_of(quick)
    panels = [Panel("calls", "latency of a call, µs", (("latency_us", 0),))]
    panels += [
        Panel("calls", f"calls a second, {number} under way", ((f"calls_per_s_{number}", 0),)) for number in UNDER_WAY
    ]
    panels += [
        Panel("bulk", f"bulk {direction}: GB/s by size", tuple((f"{direction}_{size}", size) for size in sizes), True)
        for direction in ("pull", "push")
    ]
    return panels


NOTES = (
    "Penstock and gRPC both through their C++ APIs; where gRPC's is not there, its Python API gives the rows `grpcio`, "
    "and the claims about gRPC are not judged. gRPC with raw bytes (no protobuf), not encrypted. Penstock "
    "authenticates its connections, gRPC here does not.",
    "ucx_perftest: `ucp_get` as pulled, `ucp_am_bw` as pushed, 4 under way, about a second for each figure. It moves "
    "one buffer again and again, and spins; the others walk through memory that no cache holds, and sleep. On one host "
    "UCX uses TCP with error handling, and shared memory without. Penstock cuts transfers over ucx into pieces of at "
    "most 1 MiB.",
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="penstock bench rpc", description="Measures remote calls beside the limits of this machine and gRPC."
    )
    add_options(parser, STUDIES)
    options: Any = parser.parse_args(arguments)
    check_options(parser, options, STUDIES)
    options.programs = options.programs or find_programs("rpc_limits")
    if not options.programs or not (options.programs / "rpc_limits").exists():
        parser.error("the benchmark programs are not built; build them (cmake --build build) or give --programs FOLDER")
    rows, left_out = rows_of(options.programs, options.quick)
    quick = options.quick
    return carry_out(
        Benchmark(
            rows,
            left_out,
            claims_of(quick),
            sheets_of(quick),
            panels_of(quick),
            NOTES,
        ),
        options,
    )
