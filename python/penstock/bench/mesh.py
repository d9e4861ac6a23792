"""`penstock bench mesh`: regions in a pool beside streams and files, and the pool's objects beside FAODEL's key rule.

FAODEL's number is computed, not measured. Its IOSS backend publishes each field of each entity as an object of its own
when the field is written, in every state, and each property of each entity once; the reader needs one call for each.
Keys: the rank, and "/Region/NAME/State/S/Entity/TYPE/Name/ENTITY/Field/RoleType/ROLE/BasicType/TYPE/Name/FIELD", or
".../Property/BasicType/TYPE/Name/PROPERTY" (SEACAS: put_field_internal, put_properties and make_key in
packages/seacas/libraries/ioss/src/faodel/Iofaodel_DatabaseIO.C and Iofaodel_Utils.C; SAND2020-9451). Only the fields
and properties that our model has are counted; IOSS adds some of its own. Entity lists have no objects there: readers
find entities in the keys.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from ..mesh import Model
from ..workflow.launch import LaunchError, find_program
from .programs import mpi
from .runner import MPI_ENVIRONMENT, run_programs
from .stores import pool, wait_idle
from .studies import Benchmark, Claim, Column, Figures, Row, Run, Sheet, add_options, carry_out, check_options, cores

STUDIES = {
    "cost": "what a state of the Sedov blast costs the simulation, by where its volume goes",
    "keys": "puts and key bytes for each rank and state, as the pool's servers count them, beside FAODEL's key rule",
    "first": "time until readers hold the first state: live, and of a reader that comes when the writer has ended",
}
RANKS = 2  # of the simulation
SERVERS = (1, 2, 4)
READERS = (1, 2, 4)
PEER = (sys.executable, "-m", "penstock.bench.mesh_peer")
# Ranks and servers share the cores: a rank that waits for another must not keep one busy.
ENVIRONMENT = MPI_ENVIRONMENT | {"OMPI_MCA_mpi_yield_when_idle": "1", "PENSTOCK_MESH_SEDOV_SURFACE": "null"}
PLACES = {  # system, words; database and stream of the volume ({disk} is filled in), servers, on disk, a reader
    "null": ("limit", "nowhere", "null", "", 0, False, False),
    "direct": ("penstock", "stream, direct, one reader", "stream,path=blast", "direct", 0, False, True),
    "pool_1": ("penstock", "pool, 1 server", "stream,path=blast", "pool", 1, False, False),
    "pool_2": ("penstock", "pool, step_bytes 0", "stream,path=blast", "pool,step_bytes=0", 1, False, False),
    "pool_read": ("penstock", "pool, step_bytes 1MB", "stream,path=blast", "pool,step_bytes=2MB", 1, False, False),
    "durable": ("penstock", "pool, 1 server, synced", "stream,path=blast", "pool,acknowledge=durable", 1, True, False),
    "exodus": ("files", "Exodus, page cache", "exodus,path={disk}/blast.e", "", 0, False, False),
    "hdf5": ("files", "stream in HDF5, page cache", "stream,path=blast", "file,folder={disk}/b", 0, False, False),
    "sync": ("files", "stream in HDF5, synced", "stream,path=blast", "file,folder={disk}/b,sync=true", 0, False, False),
}
BASIC_TYPES = {"float64": "REAL", "float32": "REAL", "int64": "INT64", "int32": "INTEGER", "string": "STRING"}


class Sizes:
    def __init__(self, quick: bool):
        self.side = 16 if quick else 32  # elements of the blast along each axis
        self.states = 6 if quick else 20
        self.end = 0.05 if quick else 0.2
        # Elements along each axis, and blocks, of the region with ten variables of each.
        self.regions = ((16, 8),) if quick else ((32, 1), (32, 8), (32, 32), (64, 8))


def sedov(program: str, sizes: Sizes, states: int, report: Path) -> list[str]:
    options = ("--elements", sizes.side, "--states", states, "--end", sizes.end, "--report", report)
    return mpi(RANKS, program, *options)


# ----------------------------------------------------------------------------------------------------------------- cost


def cost(program: str, sizes: Sizes, place: str, run: Run) -> Figures:
    _, _, database, stream, servers, on_disk, read = PLACES[place]
    report = run.folder / "report.json"
    commands = [sedov(program, sizes, sizes.states, report)] + ([[*PEER, "read", "blast"]] if read else [])
    environment = ENVIRONMENT | {"PENSTOCK_MESH_SEDOV": database.format(disk=run.disk)}
    if stream:
        environment["PENSTOCK_STREAM_BLAST"] = stream.format(disk=run.disk)
    if servers == 0:
        here = {"PENSTOCK_DIRECTORY": str(run.folder / "streams")}
        run_programs(commands, environment | here, run.folder, run.deadline_s)
    else:
        with pool(run, servers, "1GiB", on_disk) as started:
            wait_idle(started)
            run_programs(commands, environment | started.environment(), run.folder, run.deadline_s)
    said = json.loads(report.read_text())
    states = [1e3 * line["volume_s"] for line in said["states"]]
    return {
        "state_ms": mean(states),
        "median_ms": median(states),
        "worst_ms": max(states),
        "close_ms": 1e3 * said["volume_close_s"],
        "compute_ms": 1e3 * said["compute_s"] / len(states),
    }


# ----------------------------------------------------------------------------------------------------------------- keys


def faodel_keys(model: Model, rank: int, state: int) -> list[str]:
    """The keys of one rank's part (see above): of a state, or of everything else for state -1."""
    keys = []
    for entity in model.entities:
        kind = "".join(word.capitalize() for word in entity.type.split("_"))
        name = "" if entity.type == "region" else f"/Name/{entity.name}"
        start = f"{rank}/State/{state}/Entity/{kind}{name}"
        for its in entity.fields:
            if its.in_state == (state >= 0):
                basic = BASIC_TYPES[its.dtype]
                keys.append(f"{start}/Field/RoleType/{its.role.upper()}/BasicType/{basic}/Name/{its.name}")
        if state < 0:
            properties = {"name": "STRING", "id": "INTEGER", "entity_count": "INTEGER"}
            properties |= {"topology_type": "STRING"} if entity.topology else {}
            properties |= dict.fromkeys(entity.properties, "INTEGER")
            keys += [f"{start}/Property/BasicType/{basic}/Name/{name}" for name, basic in properties.items()]
    return keys


def counted(client: Any, streams: Any) -> tuple[int, int, int]:
    """What the servers have counted as puts; objects of streams that are there, and the bytes of their keys."""
    objects = [len(one.row) + len(one.column) for one in streams.list()]
    return sum(server["puts"] for server in client.status()["servers"]), len(objects), sum(objects)


def keys(sizes: Sizes, command: Any, run: Run) -> Figures:
    """Of a long stream less a short one: what a region has once does not count. command(name, states)."""
    import penstock
    from penstock import mesh

    counts = []
    with pool(run, 2, "2GiB") as started:
        (run.folder / "penstock.yaml").write_text('streams: {"*": {engine: pool}}\n')
        context = penstock.Context(directory=started.directory, config_file=str(run.folder / "penstock.yaml"))
        with penstock.Pool(context=context) as client, penstock.Pool(context=context, ns="penstock.streams") as streams:
            counts.append(counted(client, streams))
            for name, states in (("short", sizes.states), ("long", 2 * sizes.states)):
                environment = ENVIRONMENT | {
                    "PENSTOCK_MESH_SEDOV": f"stream,path={name}",
                    f"PENSTOCK_STREAM_{name.upper()}": "pool",
                }
                run_programs(
                    [command(name, states, run)], environment | started.environment(), run.folder, run.deadline_s
                )
                counts.append(counted(client, streams))
        with mesh.open("long", context=context, part=1) as region:
            model = region.model
    short, long = ([b - a for a, b in zip(counts[n], counts[n + 1], strict=True)] for n in (0, 1))
    puts, objects, key_bytes = ((b - a) / sizes.states / RANKS for a, b in zip(short, long, strict=True))
    theirs, once = faodel_keys(model, 1, 1), faodel_keys(model, 1, -1)
    their_bytes = sum(map(len, theirs))
    whole = short[0] / RANKS  # with the model, and what opening and closing put
    return {
        "puts": puts,
        "objects": objects,
        "key_bytes": key_bytes,
        "their_puts": len(theirs),
        "their_key_bytes": their_bytes,
        "fewer": len(theirs) / puts,
        "fewer_bytes": their_bytes / key_bytes,
        "fewer_in_all": (len(once) + sizes.states * len(theirs)) / whole,
    }


# ---------------------------------------------------------------------------------------------------------------- first


def first(sizes: Sizes, servers: int, readers: int, engine: str, run: Run) -> Figures:
    """Two writer ranks, eight blocks. Live readers have opened the region before its first state is complete."""
    gate = run.folder / "gate"
    name = str(run.disk / "blast.e") if engine == "exodus" else "blast"
    read = mpi(readers, *PEER, "read", name)
    write = mpi(RANKS, *PEER, "write", name, sizes.side, 8, 4)
    environment = ENVIRONMENT | {"PENSTOCK_DIRECTORY": str(run.folder / "streams")}
    if engine == "exodus":
        run_programs([write], environment, run.folder, run.deadline_s)
        return late(run.figures(read, environment=environment))
    environment["PENSTOCK_STREAM_BLAST"] = engine
    if engine == "direct":
        return live(run.figures([*write, str(gate)], [*read, str(gate)], environment=environment))
    with pool(run, servers, "1GiB") as started:
        wait_idle(started)
        environment |= started.environment()
        del environment["PENSTOCK_DIRECTORY"]
        figures = live(run.figures([*write, str(gate)], [*read, str(gate)], environment=environment))
        return figures | late(run.figures(read, environment=environment))


def live(figures: Figures) -> Figures:
    return {"live_ms": 1e3 * (figures["held_s"] - figures["ended_s"])}


def late(figures: Figures) -> Figures:
    return {"late_ms": 1e3 * (figures["held_s"] - figures["begun_s"])}


# ----------------------------------------------------------------------------------------------------------------- rows


def key_rows(program: str, sizes: Sizes) -> Iterator[Row]:
    def blast(name: str, states: int, run: Run) -> list[str]:
        return sedov(program, sizes, states, run.folder / "report.json")

    yield Row("keys", "penstock", "sedov", f"Sedov, {sizes.side}³", partial(keys, sizes, blast))
    for side, blocks in sizes.regions:

        def command(name: str, states: int, run: Run, side: int = side, blocks: int = blocks) -> list[str]:
            return mpi(RANKS, *PEER, "write", name, side, blocks, states)

        label = f"{blocks} block{'s' if blocks > 1 else ''}, 10 sets, {side}³"
        yield Row("keys", "penstock", f"{side}_{blocks}", label, partial(keys, sizes, command))


def first_rows(sizes: Sizes) -> Iterator[Row]:
    for readers in READERS:
        words = f"{readers} reader{'s' if readers > 1 else ''}"
        for servers in SERVERS:
            label = f"pool, {servers} server{'s' if servers > 1 else ''}, {words}"
            yield Row(
                "first", "penstock", f"{servers}_{readers}", label, partial(first, sizes, servers, readers, "pool")
            )
        for system, engine, label in (("penstock", "direct", "direct"), ("files", "exodus", "Exodus, page cache")):
            run = partial(first, sizes, 0, readers, engine)
            yield Row("first", system, f"{engine}_{readers}", f"{label}, {words}", run)


def rows_of(program: str, sizes: Sizes) -> tuple[list[Row], list[str]]:
    rows = [
        Row("cost", system, place, words, partial(cost, program, sizes, place))
        for place, (system, words, *_) in PLACES.items()
    ]
    left_out = ["cost: Exodus files with fsync; the database has no such option"]
    if importlib.util.find_spec("mpi4py"):
        rows += [*key_rows(program, sizes), *first_rows(sizes)]
    else:
        left_out.append("keys, first: there is no mpi4py")
    return rows, left_out


def sheets_of(sizes: Sizes) -> list[Sheet]:
    files = ("cost", "files", "exodus")
    return [
        Sheet(
            "cost",
            f"cost: {STUDIES['cost']}; {sizes.side}³ elements, {RANKS} ranks, {sizes.states} states; {cores()} cores",
            (
                Column("state_ms", "a state ms,\nmean"),
                Column("median_ms", "median"),
                Column("worst_ms", "longest"),
                Column("state_ms", "mean ×\nfiles", over=files),
                Column("median_ms", "median ×\nfiles", over=files),
                Column("close_ms", "close ms"),
                Column("compute_ms", "computing\nms/state"),
            ),
        ),
        Sheet(
            "keys",
            f"keys: {STUDIES['keys']}; {RANKS} ranks",
            (
                Column("puts", "puts"),
                Column("objects", "objects\nthat stay"),
                Column("key_bytes", "key bytes"),
                Column("their_puts", "FAODEL's\nputs"),
                Column("their_key_bytes", "key bytes"),
                Column("fewer", "fewer puts\n×"),
                Column("fewer_bytes", "key bytes\n×"),
                Column("fewer_in_all", f"puts with the model,\n{sizes.states} states ×"),
            ),
        ),
        Sheet(
            "first",
            f"first: {STUDIES['first']}; {sizes.side}³ elements, {RANKS} writer ranks; {cores()} cores",
            (Column("live_ms", "live: from\nend_state ms"), Column("late_ms", "late: from\nopen ms")),
        ),
    ]


def claims_of(sizes: Sizes) -> list[Claim]:
    exodus, sync = ("cost", "files", "exodus"), ("cost", "files", "sync")
    text = "a state costs the simulation at most what it does in"
    return [
        Claim(f"pool: {text} Exodus files", ("cost", "penstock", "pool_1"), ("state_ms",), 1.0, (exodus,),
              sense="at_most", theirs_lower=True, cores=RANKS + 1),
        Claim(f"direct: {text} Exodus files", ("cost", "penstock", "direct"), ("state_ms",), 1.0, (exodus,),
              sense="at_most", theirs_lower=True, cores=RANKS + 1),
        Claim(f"pool, synced: {text} synced files", ("cost", "penstock", "durable"), ("state_ms",), 1.0, (sync,),
              sense="at_most", theirs_lower=True, cores=RANKS + 1),
        Claim(f"a state of 8 blocks, {sizes.side}³ elements, is at least 50× fewer puts than FAODEL's key rule makes",
              ("keys", "penstock", f"{sizes.side}_8"), ("fewer",), 50),
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="penstock bench mesh", description=__doc__)
    add_options(parser, STUDIES)
    options: Any = parser.parse_args(arguments)
    check_options(parser, options, STUDIES)
    try:
        program = find_program("sedov", Path.cwd())
    except LaunchError as error:
        parser.error(str(error))
    if not shutil.which("mpiexec"):
        parser.error("there is no mpiexec")
    sizes = Sizes(options.quick)
    rows, left_out = rows_of(program, sizes)
    return carry_out(Benchmark(rows, left_out, claims_of(sizes), sheets_of(sizes), ()), options)
