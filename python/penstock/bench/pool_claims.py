"""What staging pools promise, judged by the studies of pool.py."""

from __future__ import annotations

from .studies import Claim

RANKS = 2  # of the writer in room and sustain


def room_claims() -> list[Claim]:
    """Servers pull while the ranks put: a stall is one copy only where neither takes the other's processor."""
    claims = []
    for variant, servers, words in (("memory", 1, "one server"), ("memory_2", 2, "two servers")):
        ours = ("room", "penstock", variant)
        claims += [
            Claim(
                f"in processor time a step in memory costs its writer at most 1.3 copies, with room, {words}",
                ours,
                ("cpu_per_copy",),
                1.3,
                sense="at_most",
            ),
            Claim(
                f"the same by the clock, with a core for each rank and server: {RANKS + servers}",
                ours,
                ("stall_per_copy",),
                1.3,
                sense="at_most",
                cores=RANKS + servers,
            ),
        ]
    return claims


def claims_of() -> list[Claim]:
    room, sustain = "room", "sustain"
    claims = [
        *room_claims(),
        Claim(
            "over ten queue lengths at 80 % of the pull bandwidth the writer waits for the pool for less than 5 %",
            (sustain, "penstock", "memory"),
            ("wait_percent",),
            5,
            sense="at_most",
            unit=" %",
            cores=RANKS + 1,
        ),
        Claim(
            "the same wait with two servers",
            (sustain, "penstock", "memory_2"),
            ("wait_percent",),
            5,
            sense="at_most",
            unit=" %",
            cores=RANKS + 2,
        ),
        Claim(
            "durable acknowledgement is off the producer's path: a step costs at most 1.15× one in memory, with room",
            (room, "penstock", "durable"),
            ("stall_per_beside",),
            1.15,
            sense="at_most",
            answers="acknowledge",
        ),
        Claim(
            "the writer's I/O time into a memory pool is below that of files without fsync",
            ("io", "penstock", "memory_1"),
            ("io_s",),
            1.0,
            theirs=(("io", "hdf5 files", "plain"),),
            sense="at_most",
            theirs_lower=True,
        ),
        Claim(
            "the same with computing between the steps",
            ("io", "penstock", "memory_1_computing"),
            ("io_s",),
            1.0,
            theirs=(("io", "hdf5 files", "plain_computing"),),
            sense="at_most",
            theirs_lower=True,
        ),
        Claim(
            "with computing between the steps, durable ones are safe no later than files with fsync",
            ("io", "penstock", "durable_1_computing"),
            ("until_safe_s",),
            1.0,
            theirs=(("io", "hdf5 files", "fsync_computing"),),
            sense="at_most",
            theirs_lower=True,
        ),
        Claim(
            "durable steps are safe no later than files with fsync",
            ("io", "penstock", "durable_1"),
            ("until_safe_s",),
            1.0,
            theirs=(("io", "hdf5 files", "fsync"),),
            sense="at_most",
            theirs_lower=True,
        ),
    ]
    claims.append(
        Claim(
            "readers work on a step while the writer computes the next: every step was begun before that",
            ("overlap", "penstock", "memory_1"),
            ("begun_percent",),
            100,
            sense="at_least",
            unit=" %",
            answers="overlap",
        )
    )
    for variant, words in (("gray_scott", "Gray-Scott"), ("many_500", "500 small blocks a rank")):
        claims.append(
            Claim(
                f"keys take at most 1 % of the payload: {words}",
                ("packing", "penstock", variant),
                ("key_percent",),
                1,
                sense="at_most",
                unit=" %",
                answers="keys",
            )
        )
    claims.append(
        Claim(
            "500 small blocks are at most 2 objects for a step and rank",
            ("packing", "penstock", "many_500"),
            ("objects",),
            2,
            sense="at_most",
            unit="",
            answers="small objects",
        )
    )
    claims.append(
        Claim(
            "on one machine one reader loses nothing to 4 servers: at least 0.95× what it has from 1",
            ("readers", "penstock", "shm_4"),
            ("read_gb_per_s",),
            0.95,
            theirs=(("readers", "penstock", "shm_1"),),
            answers="one server",
        )
    )
    for durability, words in (("memory", "in memory"), ("durable", "durable")):
        for figure, verb in (("put_per_s", "put"), ("list_per_s", "listed"), ("get_per_s", "fetched")):
            for under_way, batches in (("", "one batch"), ("_4", "four batches")):
                if under_way and figure == "list_per_s":
                    continue  # one thread lists
                # Redis appends to one file. RocksDB sorts what it is given, so that it need not be in memory.
                half = (durability, verb) == ("durable", "put")
                faster = "at least half as fast as" if half else "faster than"
                claims.append(
                    Claim(
                        f"small objects, {words}, are {verb} {faster} by Redis, {batches} under way",
                        ("objects", "penstock", durability + under_way),
                        (figure,),
                        0.5 if half else 1.0,
                        theirs=tuple(
                            ("objects", "redis", f"{variant}_{durability}{under_way}")
                            for variant in ("multi", "pipeline")
                        ),
                    )
                )
    claims.append(
        Claim(
            "PSS at most 1.1× the memory limit, and the declared overhead (a segment, RocksDB's cache)",
            ("spill", "penstock", "disk"),
            ("pss_share",),
            1.0,
            sense="at_most",
            answers="accounting",
        )
    )
    return claims
