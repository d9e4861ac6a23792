"""`penstock bench pool`: staging servers beside files, beside Redis, and beside what they promise."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from . import counts, limits, links, pool_claims, restart, workflow
from .programs import find_programs, has_ucx, mpi
from .runner import MPI_ENVIRONMENT, run_programs
from .stores import ROCKSDB_BYTES, SEGMENT_BYTES, Memory, cpu_seconds, disk_rates, pool, redis, redis_program, wait_idle
from .studies import (
    Benchmark,
    Claim,
    Column,
    Figures,
    Panel,
    Row,
    Run,
    Sheet,
    add_options,
    carry_out,
    check_options,
    cores,
)

STUDIES = {
    "io": "a Gray-Scott-like writer of two ranks against servers and tiers, and a later reader; beside HDF5 files; one "
    "step right after the other, or computing between them",
    "room": "what a step costs its writer while the queue has room, beside one copy into memory",
    "sustain": "ten queue lengths of steps, produced at 80 % of what the pool was seen to take",
    "overlap": "a reader works on a step while the writer computes the next: when each did what",
    "packing": "what a stream's steps are in the pool: objects for each step and rank, key bytes",
    "readers": "one reader's bandwidth against servers",
    "objects": "small objects put, listed and fetched in batches of 1000; beside Redis",
    "spill": "blocks through a pool whose memory is a tenth of them, read back and checked",
    restart.STUDY: restart.TEXT,
    links.STUDY: links.TEXT,
    **workflow.STUDIES,
    **counts.STUDIES,
}
MIB, GIB = 1 << 20, 1 << 30
SERVERS = (1, 2, 4)
TIERS = {  # what a step is when its writer may forget it
    "memory": ("in memory", False, "memory"),
    "disk": ("in memory, written behind", True, "memory"),
    "durable": ("on disk, synced", True, "durable"),
}
LEVELS = {  # of small objects when put returns: words, a disk, acknowledgement; Redis's appendfsync, and words for it
    "memory": ("in memory", False, "memory", "", "no persistence"),
    "behind": ("in memory, written behind", True, "memory", "everysec", "appendfsync everysec"),
    "durable": ("durable", True, "durable", "always", "appendfsync always"),
}
THREADS = (1, 4)  # of the client, each with a batch of small objects under way
RANKS = 2
QUEUE = 4
COMPUTE_MS = 40  # between the steps of `io`, where it says so


class Sizes:
    """How much is moved."""

    def __init__(self, quick: bool, objects: int = 0):
        self.quick = quick
        self.side = 64 if quick else 128  # of the fields: 4 or 32 MiB a step
        self.steps = 8 if quick else 20
        self.bursts = 3 if quick else 10
        self.lengths = 3 if quick else 10
        self.overlap_steps = 6 if quick else 12
        self.objects = objects or (20_000 if quick else 1_000_000)
        self.spill_memory = 128 * MIB if quick else GIB
        self.spill_bytes = (GIB if quick else 10 * GIB) // (4 * MIB) * 4 * MIB
        self.step_bytes = 2 * 8 * self.side**3
        self.gray_scott_steps = 4 if quick else 10

    def fields(self, *more: object) -> tuple[object, ...]:
        return ("--ranks", RANKS, "--side", self.side, "--queue", QUEUE, *more)


# -------------------------------------------------------------------------------------------------------------- streams


def stream_io(sizes: Sizes, servers: int, tier: str, compute_ms: int, run: Run) -> Figures:
    _, disk, acknowledge = TIERS[tier]
    options = sizes.fields("--study", "io", "--steps", sizes.steps, "--acknowledge", acknowledge)
    with pool(run, servers, "2GiB", disk) as started:
        wait_idle(started)
        environment = started.environment()
        writer = run.program("pool_steps", "--role", "writer", "--compute-ms", compute_ms, *options)
        figures = run.figures(writer, environment=environment)
        return figures | run.figures(run.program("pool_steps", "--role", "reader", *options), environment=environment)


def file_io(sizes: Sizes, synced: bool, compute_ms: int, run: Run) -> Figures:
    options = ("--ranks", RANKS, "--side", sizes.side, "--steps", sizes.steps, "--data", run.disk)
    how = ("--fsync", int(synced), "--compute-ms", compute_ms)
    writer = run.program("pool_files", "--role", "writer", *how, *options)
    return run.figures(writer) | run.figures(run.program("pool_files", "--role", "reader", *options))


def stall(sizes: Sizes, study: str, tier: str, servers: int, run: Run) -> Figures:
    """Steps go as soon as later ones are there, so that memory is not what stops the writer. In `room`, durable steps
    are in turns with steps in memory, of a second stream of the same pool, which writes only what it must."""
    _, disk, acknowledge = TIERS[tier]
    amount = ("--bursts", sizes.bursts) if study == "room" else ("--lengths", sizes.lengths)
    beside = study == "room" and acknowledge == "durable"
    turns = ("--beside", "memory") if beside else ()
    options = sizes.fields("--study", study, *amount, "--acknowledge", acknowledge, "--retain", QUEUE, *turns)
    with pool(run, servers, "2GiB", disk, **({"write_behind": "false"} if beside else {})) as started:
        wait_idle(started)
        before = cpu_seconds(started)
        figures = run.figures(
            run.program("pool_steps", "--role", "writer", *options), environment=started.environment()
        )
        if study != "room":
            return figures
        steps = (sizes.bursts + 1) * QUEUE * (2 if beside else 1)
        return figures | {"servers_cpu_ms": 1e3 * (cpu_seconds(started) - before) / steps}


def read_only(sizes: Sizes, servers: int, plane: str, run: Run) -> Figures:
    options = sizes.fields("--study", "io", "--steps", sizes.steps)
    more: dict[str, Any] = {"data_plane": plane} if plane == "ucx" else {}
    with pool(run, servers, "2GiB", **more) as started:
        environment = started.environment()
        run.figures(run.program("pool_steps", "--role", "writer", *options), environment=environment)
        reader = run.program("pool_steps", "--role", "reader", "--plane", plane, *options)
        wait_idle(started)  # what they make ahead while the reader reads takes its processor
        before = cpu_seconds(started)
        figures = run.figures(reader, environment=environment)
        gigabytes = sizes.steps * sizes.step_bytes / 1e9
        return figures | {"servers_cpu_ms_per_gb": 1e3 * (cpu_seconds(started) - before) / gigabytes}


def overlap(sizes: Sizes, servers: int, run: Run) -> Figures:
    """The last step has no next one; in the first two the reader makes its connections and maps memory."""
    words = ("--origin", time.monotonic(), "--compute-ms", 80)
    shape = ("--ranks", RANKS, "--side", 64, "--queue", QUEUE, "--steps", sizes.overlap_steps)
    options = ("--study", "overlap", *shape, *words)
    with pool(run, servers, "2GiB") as started:
        programs = [run.program("pool_steps", "--role", role, *options) for role in ("writer", "reader")]
        spans = run.figures(*programs, environment=started.environment())
    begun, ends = spans["reading_s"][::2], spans["writing_s"][1::2]
    done, computed = spans["analysing_s"][1::2], spans["computing_s"][1::2]
    pairs = range(2, sizes.overlap_steps - 1)
    return spans | {
        "visible_ms": 1e3 * median(begun[n] - ends[n] for n in pairs),
        "begun_percent": 100 * mean(begun[n] < computed[n + 1] for n in pairs),
        "done_percent": 100 * mean(done[n] < computed[n + 1] for n in pairs),
    }


# -------------------------------------------------------------------------------------------------------------- packing


def packed(run: Run, environment: dict[str, str], blocks: float, attributes: float, steps: int, ranks: int) -> Figures:
    """Of a stream that lies in the pool: what it was, and what it is. blocks, attributes: of a step and rank."""
    census = run.figures(
        run.program("pool_objects", "--study", "census", "--namespace", "penstock.streams"), environment=environment
    )
    keys = [size for name, values in census.items() if name.endswith("_key_bytes") for size in values]
    kinds = [name.removesuffix("_key_bytes") for name in census if name.endswith("_key_bytes")]
    sizes = [size for kind in kinds for size in census[f"{kind}_bytes"]]
    stripes = census["stripe_bytes"]
    return {
        "blocks": blocks,
        "attributes": attributes,
        "objects": len(sizes) / steps / ranks,
        "stripes": len(stripes) / steps / ranks,
        "records": (len(sizes) - len(stripes)) / steps,
        "key_percent": 100 * sum(keys) / sum(stripes),
        "key_bytes": mean(keys),
        "stripe_kib": median(stripes) / 1024,
        "object_sizes": sizes,
        "key_sizes": keys,
    }


def pack_many(sizes: Sizes, variables: int, run: Run) -> Figures:
    ranks, steps = 4, sizes.gray_scott_steps
    options = ("--ranks", ranks, "--many", variables, "--side", ranks, "--steps", steps)
    with pool(run, 2) as started:
        writer = run.program("pool_steps", "--role", "writer", "--study", "io", *options)
        run.figures(writer, environment=started.environment())
        return packed(run, started.environment(), variables, 0, steps, ranks)


def pack_gray_scott(program: Path, settings: Path, sizes: Sizes, run: Run) -> Figures:
    """The simulation of the tutorial. Before packing: U, V, sim_step, time; five attributes."""
    steps, ranks = sizes.gray_scott_steps, RANKS
    shutil.copy(settings, run.folder / "settings.yaml")
    (run.folder / "penstock.yaml").write_text("streams: {gray-scott: {engine: pool}}\n")
    overrides = {"L": 48 if sizes.side < 128 else 96, "steps": 4 * steps, "plot_every": 4}
    words = [word for name, value in overrides.items() for word in ("--set", f"{name}={value}")]
    with pool(run, 2) as started:
        environment = started.environment() | {"PENSTOCK_CONFIG": str(run.folder / "penstock.yaml")}
        simulation = mpi(ranks, program, run.folder / "settings.yaml", *words)
        run_programs([simulation], MPI_ENVIRONMENT | environment, run.folder, run.deadline_s)
        return packed(run, started.environment(), 4, 5, steps, ranks)


# -------------------------------------------------------------------------------------------------------------- objects


def small_objects(sizes: Sizes, level: str, threads: int, run: Run) -> Figures:
    _, disk, acknowledge, _, _ = LEVELS[level]
    options = ("--study", "small", "--count", sizes.objects, "--acknowledge", acknowledge, "--threads", threads)
    with pool(run, 1, "2GiB", disk) as started:
        wait_idle(started)
        return run.figures(run.program("pool_objects", *options), environment=started.environment())


def redis_objects(sizes: Sizes, variant: str, level: str, threads: int, run: Run) -> Figures:
    options = ("--variant", variant, "--count", sizes.objects, "--threads", threads)
    with redis(run, LEVELS[level][3]) as path:
        return run.figures(run.program("redis_objects", "--socket", path, *options))


def spill(sizes: Sizes, run: Run) -> Figures:
    plain_write, plain_read = disk_rates(run.disk, sizes.spill_bytes // 5)
    with pool(run, 1, str(sizes.spill_memory), disk=True) as started:
        memory = Memory(started.servers[0].process.pid)
        with memory:
            figures = run.figures(
                run.program("pool_objects", "--study", "blocks", "--total", sizes.spill_bytes),
                environment=started.environment(),
            )
    limit = sizes.spill_memory / MIB
    declared = (SEGMENT_BYTES + ROCKSDB_BYTES) / MIB
    return figures | {
        "plain_write_gb_per_s": plain_write,
        "plain_read_gb_per_s": plain_read,
        "pss_mib": memory.pss,
        "rss_mib": memory.rss,
        "idle_pss_mib": memory.first_pss,
        "limit_mib": limit,
        "declared_mib": declared,
        "pss_share": memory.pss / (1.1 * limit + declared),
        "rss_share": memory.rss / (1.1 * limit + declared),
    }


# ----------------------------------------------------------------------------------------------------------------- rows


def servers_text(servers: int) -> str:
    return "1 server" if servers == 1 else f"{servers} servers"


def stream_rows(programs: Path, sizes: Sizes) -> Iterator[Row]:
    for tier, (words, _, _) in TIERS.items():
        for servers in SERVERS:
            label = f"{servers_text(servers)}, {words}"
            yield Row("io", "penstock", f"{tier}_{servers}", label, partial(stream_io, sizes, servers, tier, 0))
    for tier, (words, _, _) in TIERS.items():
        for servers in SERVERS if tier == "memory" else SERVERS[:1]:
            label = f"{servers_text(servers)}, {words}; computing between"
            run = partial(stream_io, sizes, servers, tier, COMPUTE_MS)
            yield Row("io", "penstock", f"{tier}_{servers}_computing", label, run)
    for study in ("room", "sustain"):
        for tier, (words, _, _) in TIERS.items():
            yield Row(study, "penstock", tier, f"1 server, {words}", partial(stall, sizes, study, tier, 1))
        label = f"{servers_text(2)}, in memory"
        yield Row(study, "penstock", "memory_2", label, partial(stall, sizes, study, "memory", 2))
    for servers in (1, 2):
        yield Row("overlap", "penstock", f"memory_{servers}", servers_text(servers), partial(overlap, sizes, servers))
    planes = {"shm": "in place", "tcp": "asked for"} | ({"ucx": "asked for by ucx"} if has_ucx(programs) else {})
    for plane, how in planes.items():
        for servers in SERVERS:
            label = f"{servers_text(servers)}, {how}"
            yield Row("readers", "penstock", f"{plane}_{servers}", label, partial(read_only, sizes, servers, plane))
    for count in (10, 500):
        label = f"4 ranks, {count} blocks of 1 KiB each"
        yield Row("packing", "penstock", f"many_{count}", label, partial(pack_many, sizes, count))


def at(variant: str, threads: int) -> str:
    return variant if threads == 1 else f"{variant}_{threads}"


def threads_text(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def object_rows(sizes: Sizes) -> Iterator[Row]:
    for level, (words, *_) in LEVELS.items():
        for threads in THREADS:
            label = f"acknowledged {words}, {threads_text(threads)}"
            yield Row("objects", "penstock", at(level, threads), label, partial(small_objects, sizes, level, threads))


def redis_rows(sizes: Sizes) -> Iterator[Row]:
    for level, (*_, words) in LEVELS.items():
        for variant, how in (("multi", "MSET, MGET"), ("pipeline", "pipelined SET, GET")):
            for threads in THREADS:
                run = partial(redis_objects, sizes, variant, level, threads)
                label = f"{words}: {how}, {threads_text(threads)}"
                yield Row("objects", "redis", at(f"{variant}_{level}", threads), label, run)


def gray_scott_row(programs: Path, sizes: Sizes) -> Row | None:
    program = programs.parent / "bin" / "gray-scott"
    trees = (Path(__file__).resolve().parents[3], programs.resolve().parents[1], Path.cwd())
    settings = next((p for tree in trees if (p := tree / "examples/gray-scott/settings.yaml").exists()), None)
    if not settings or not program.exists() or not shutil.which("mpiexec"):
        return None
    return Row(
        "packing",
        "penstock",
        "gray_scott",
        f"Gray-Scott, {RANKS} ranks",
        partial(pack_gray_scott, program, settings, sizes),
    )


def rows_of(programs: Path, sizes: Sizes) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    left_out: list[str] = []
    if (programs / "pool_steps").exists():
        rows += stream_rows(programs, sizes)
        simulation = gray_scott_row(programs, sizes)
        if simulation:
            rows.append(simulation)
        else:
            left_out.append("packing: the Gray-Scott simulation was not built, or there is no mpiexec")
    else:
        left_out.append("penstock: pool_steps was not built")
    if (programs / "pool_files").exists():
        for synced, name, words in ((False, "plain", "no fsync"), (True, "fsync", "fsync of each file")):
            rows.append(Row("io", "hdf5 files", name, words, partial(file_io, sizes, synced, 0)))
            run = partial(file_io, sizes, synced, COMPUTE_MS)
            rows.append(Row("io", "hdf5 files", f"{name}_computing", f"{words}; computing between", run))
    else:
        left_out.append("hdf5 files: pool_files was not built (no HDF5)")
    if (programs / "pool_objects").exists():
        rows += object_rows(sizes)
        rows.append(Row("spill", "penstock", "disk", "1 server, blocks of 4 MiB", partial(spill, sizes)))
    if (programs / "redis_objects").exists() and redis_program():
        rows += redis_rows(sizes)
    else:
        left_out.append("redis: redis_objects was not built (no hiredis), or there is no redis-server")
    for more, missing in (part.rows_of(programs, sizes.quick) for part in (restart, links, workflow, counts)):
        rows += more
        left_out += missing
    order = list(STUDIES)
    return sorted(rows, key=lambda row: order.index(row.study)), left_out


# ----------------------------------------------------------------------------------------------------- tables, pictures


def sheets_of(sizes: Sizes) -> list[Sheet]:
    megabytes = sizes.step_bytes / 1e6
    stalls = (Column("stall_ms", "stall of\na step ms"), Column("copy_ms", "one copy\nms"))
    return [
        Sheet(
            "io",
            f"io: {sizes.steps} steps of {megabytes:.0f} MB from {RANKS} ranks; {STUDIES['io']}",
            (
                Column("stall_ms", "a step ms"),
                Column("io_s", "I/O time\nof the writer s"),
                Column("until_safe_s", "until all is\nsafe s"),
                Column("gb_per_s", "GB/s"),
                Column("read_gb_per_s", "read back\nGB/s"),
            ),
        ),
        Sheet(
            "room",
            f"room: {STUDIES['room']}; {cores()} cores",
            (
                *stalls,
                Column("cpu_per_copy", "in processor\ntime"),
                Column("writer_cpu_ms", "writer CPU\nms/step"),
                Column("servers_cpu_ms", "servers CPU\nms/step"),
                Column("stall_per_copy", "stall ×\ncopy"),
                Column("stall_per_beside", "× one in memory,\nin turns"),
            ),
        ),
        Sheet(
            "sustain",
            f"sustain: {STUDIES['sustain']}; the writer sleeps between steps; {cores()} cores",
            (
                Column("pull_gb_per_s", "pulled\nGB/s"),
                *stalls,
                Column("io_percent", "in begin, put,\nend %"),
                Column("wait_percent", "waiting for\nthe pool %"),
                Column("stall_percent", "beyond one\ncopy %"),
            ),
        ),
        Sheet(
            "overlap",
            f"overlap: {STUDIES['overlap']}; of the steps but the first two and the last",
            (
                Column("visible_ms", "from end_step\nto begin_step ms"),
                Column("begun_percent", "begun before the\nnext was computed %"),
                Column("done_percent", "analysed before\nthat %"),
            ),
        ),
        Sheet(
            "packing",
            f"packing: {STUDIES['packing']}",
            (
                Column("blocks", "blocks/step\nand rank"),
                Column("attributes", "attributes"),
                Column("objects", "objects/step\nand rank"),
                Column("stripes", "of which\nstripes"),
                Column("stripe_kib", "a stripe\nKiB"),
                Column("key_bytes", "a key\nbytes"),
                Column("key_percent", "keys, % of\npayload"),
            ),
        ),
        Sheet(
            "readers",
            f"readers: {STUDIES['readers']}; whole fields, copied; {cores()} cores",
            (
                Column("read_gb_per_s", "GB/s"),
                Column("reader_cpu_ms_per_gb", "reader CPU\nms/GB"),
                Column("servers_cpu_ms_per_gb", "servers CPU\nms/GB"),
                Column("reader_faults_per_gb", "reader's minor\nfaults/GB"),
            ),
        ),
        Sheet(
            "objects",
            f"objects: {sizes.objects} of 100 bytes; {STUDIES['objects']}; 1000/s",
            (
                Column("put_per_s", "put", 1e-3),
                Column("list_per_s", "listed", 1e-3),
                Column("get_per_s", "fetched", 1e-3),
            ),
        ),
        Sheet(
            "spill",
            f"spill: {sizes.spill_bytes / GIB:.3g} GiB; {STUDIES['spill']}; MiB",
            (
                Column("put_gb_per_s", "put GB/s"),
                Column("get_gb_per_s", "get GB/s"),
                Column("plain_write_gb_per_s", "a plain file\nwritten GB/s"),
                Column("plain_read_gb_per_s", "read\nGB/s"),
                Column("limit_mib", "memory\nlimit"),
                Column("declared_mib", "declared\noverhead"),
                Column("pss_mib", "largest\nPSS"),
                Column("rss_mib", "largest\nRSS"),
                Column("idle_pss_mib", "PSS\nat start"),
            ),
        ),
        restart.sheet(sizes.quick),
        *links.sheets(),
        *workflow.sheets(sizes.quick),
        *counts.sheets(sizes.quick),
    ]


PANELS = (
    Panel("io", "writer's I/O time, s", (("io_s", 0),)),
    Panel("io", "until all is safe, s", (("until_safe_s", 0),)),
    Panel("room", "stall of a step, ms", (("stall_ms", 0),)),
    Panel("sustain", "waiting for the pool, % of the time", (("wait_percent", 0),)),
    Panel(
        "overlap",
        "a writer and a reader, ms; the number is the step's",
        tuple((f"{name}_s", 0) for name in ("computing", "writing", "reading", "analysing")),
        spans=True,
        scale=1e3,
    ),
    Panel("packing", "objects in the pool against their size, bytes", (("object_sizes", 0),), histogram=True),
    Panel("packing", "objects in the pool against the size of their key, bytes", (("key_sizes", 0),), histogram=True),
    Panel("readers", "one reader, GB/s", (("read_gb_per_s", 0),)),
    Panel("objects", "small objects put, 1000/s", (("put_per_s", 0),), scale=1e-3),
    Panel("objects", "small objects listed, 1000/s", (("list_per_s", 0),), scale=1e-3),
    Panel("objects", "small objects fetched, 1000/s", (("get_per_s", 0),), scale=1e-3),
    *restart.PANELS,
    *workflow.PANELS,
    *counts.PANELS,
)


def claims_of() -> list[Claim]:
    return [claim for part in (pool_claims, restart, links, workflow, counts) for claim in part.claims_of()]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="penstock bench pool", description="Measures staging servers beside files, Redis, and what they promise."
    )
    add_options(parser, STUDIES)
    parser.add_argument("--objects", type=int, default=0, metavar="N", help="so many small objects")
    options: Any = parser.parse_args(arguments)
    claims = claims_of()
    chosen = set(options.only.split(","))
    # The table of limitations is about many studies: one alone does without it.
    conclude = limits.print_limits if limits.ONLY in chosen or chosen >= set(STUDIES) or options.add else None
    if limits.ONLY in chosen:
        options.only = ",".join([options.only, *limits.studies_of(claims)])
    check_options(parser, options, {limits.ONLY: "", **STUDIES})
    options.programs = options.programs or find_programs("pool_objects")
    if not options.programs or not (options.programs / "pool_objects").exists():
        parser.error("the benchmark programs are not built; build them (cmake --build build) or give --programs FOLDER")
    # penstock-server of the same build.
    os.environ["PENSTOCK_BIN"] = os.pathsep.join(
        [str(options.programs.parent / "bin"), *filter(None, [os.environ.get("PENSTOCK_BIN")])]
    )
    sizes = Sizes(options.quick, options.objects)
    rows, left_out = rows_of(options.programs, sizes)
    benchmark = Benchmark(rows, left_out, claims, sheets_of(sizes), PANELS, conclude=conclude)
    return carry_out(benchmark, options)
