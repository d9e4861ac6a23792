"""What SAND2021-10271 says of its experiments, and the verdict that the raw figures of a run give on each statement.

Where the rounds of one run disagree, nothing is confirmed or refuted. The reasons say no more than figures of the
run show, or "probably".
"""

from __future__ import annotations

from dataclasses import dataclass

from .experiments import FILES, PLACES, Plan
from .judges import (
    ALIKE,
    ROLES,
    Judge,
    NotMeasured,
    Of,
    Raw,
    accounted,
    alike,
    almost_always_faster,
    breaks_down,
    early_steps_longer,
    every,
    faster,
    flat,
    least,
)

CONFIRMED, REFUTED, NOT_TESTABLE = "confirmed", "refuted", "not testable here"
R1, R2, R3 = PLACES[:3]


@dataclass(frozen=True)
class Statement:
    where: str
    text: str
    judge: Judge | None
    if_confirmed: str = ""
    if_refuted: str = ""
    cores: int = 0  # with fewer, the figures are shown and not judged
    untestable: str = ""  # why there is no judge


@dataclass(frozen=True)
class Verdict:
    where: str
    text: str
    measured: str
    verdict: str
    why: str


def assess(statement: Statement, raw: Raw) -> Verdict:
    def verdict(measured: str, word: str, why: str) -> Verdict:
        return Verdict(statement.where, statement.text, measured, word, why)

    if statement.judge is None:
        return verdict("–", NOT_TESTABLE, statement.untestable)
    try:
        found = statement.judge(raw)
    except NotMeasured as missing:
        return verdict("–", NOT_TESTABLE, f"this run has no figures of {missing}")
    if raw["cores"] < statement.cores:
        why = f"needs {statement.cores} cores, one for each busy thread; with {raw['cores']}, servers add no processors"
        return verdict(found.measured, NOT_TESTABLE, why)
    if all(found.holds):
        return verdict(found.measured, CONFIRMED, statement.if_confirmed)
    if not any(found.holds):
        return verdict(found.measured, REFUTED, statement.if_refuted)
    why = f"the rounds disagree: it holds in {sum(found.holds)} of {len(found.holds)}"
    return verdict(found.measured, NOT_TESTABLE, why)


def assess_all(raw: Raw) -> list[Verdict]:
    plan = Plan(**raw["plan"])
    groups = (on_design(), on_cycles(plan), on_servers(plan), on_subsets(plan), on_files(plan), on_the_rest(plan))
    return [assess(statement, raw) for group in groups for statement in group]


def on_design() -> list[Statement]:
    shared = f"sharing/{R2}/4"
    return [
        Statement(
            "2.2, 3.2",
            "R2: only the first request for a layout launches a reorganisation; the others wait and share the result.",
            every(
                accounted(shared, "converted_bytes", 1, "converted for 4 programs at once", "servers_after_reader_1"),
                accounted(shared, "converted_bytes", 1, "after 4 more"),
            ),
            "by the servers' count, each element was converted once",
            "by the servers' count, elements were converted more than once, or left to the readers",
        ),
        Statement(
            "3.1",
            "R1: if several applications request the same layout, every one reorganises on its own.",
            accounted(f"sharing/{R1}/4", "converted_bytes", 0, "converted by servers"),
            "servers converted nothing; each program got the data in its own order",
            "servers converted, although readers should",
        ),
        Statement(
            "3.3",
            "R3: the server reorganises the entire object as soon as it arrives, whatever is asked for.",
            accounted(f"cycle/{R3}/0", "converted_bytes", 1, "converted"),
            "by the servers' count, each put was converted once, as a whole",
            "by the servers' count, not all was converted, or some more than once",
        ),
    ]


def on_cycles(plan: Plan) -> list[Statement]:
    first, last = f"{plan.delays[0]:g}", f"{plan.delays[-1]:g}"
    where = "4.1.1, fig. 4-2"

    def of(place: str, delay: str, role: str) -> Of:
        return f"cycle/{place}/{delay}", role

    return [
        Statement(
            where,
            "R1 keeps a steady I/O time regardless of the cycle time.",
            flat([f"cycle/{R1}/{delay:g}" for delay in plan.delays], "reader_1"),
            if_refuted="the reader's time depends on the cycle; probably on how much writers and readers run at once",
        ),
        Statement(
            where,
            "R2 benefits from longer cycle times.",
            faster(of(R2, last, "reader_1"), of(R2, first, "reader_1"), ("longest cycle", "no delay")),
            "probably because requests and puts compete less for the cores",
            if_refuted="a conversion begins with the request, which longer cycles do not bring forward",
        ),
        Statement(
            where,
            "With the longest cycle R3 is faster for the first reader than R1 (paper: 25×).",
            faster(of(R3, last, "reader_1"), of(R1, last, "reader_1"), ("R3", "R1")),
            "the order is the paper's. R1 here copies out of shared memory, not over a network",
            "R1 here converts while it copies out of shared memory: no network, no second copy",
        ),
        Statement(
            where,
            "With the longest cycle R3 is faster for the first reader than R2 (paper: 5×).",
            faster(of(R3, last, "reader_1"), of(R2, last, "reader_1"), ("R3", "R2")),
            "the conversion has begun, or is done, when the request comes",
            "a reader in step with its writer probably waits for the conversion in both",
        ),
        Statement(
            where,
            "Without a delay the writer with R3 degrades dramatically. Here: by half or more, beside R1.",
            faster(of(R1, first, "writer"), of(R3, first, "writer"), ("R1's writer", "R3's"), 1.5),
            "servers convert on the cores that the writers run on",
            "the writers' time grows by less than half, or not at all; conversions wait while blocks arrive",
        ),
        Statement(
            where,
            "For the second reader R2 and R3 take nearly the same time.",
            alike(of(R2, first, "reader_2"), of(R3, first, "reader_2"), ("R2", "R3")),
            "both find converted copies at the servers",
            "both find converted copies at the servers; why they differ was not measured",
        ),
        Statement(
            where,
            "For the second reader R2 saves read time against R1 (paper: up to 94 %).",
            faster(of(R2, first, "reader_2"), of(R1, first, "reader_2"), ("R2", "R1")),
            "what is converted already is copied as it is",
            "R1 converts while it copies out of shared memory; a copy of what is converted saves little beside it",
        ),
    ]


def on_servers(plan: Plan) -> list[Statement]:
    few, many = plan.servers[0], plan.servers[-1]
    cores = 4 + plan.many_readers + 2 * many

    def of(place: str, count: int = few) -> Of:
        return f"servers/{place}/{count}", "reader_1"

    def fewer_take_longer(*places: str) -> Judge:
        return every(*(faster(of(one, many), of(one), (f"{one}: {many} servers", f"{few}"), 1.0) for one in places))

    return [
        Statement(
            "4.1.2, fig. 4-3",
            "All three take more time with fewer servers; the impact on R2 and R3 is large.",
            fewer_take_longer(R1, R2, R3),
            cores=cores,
        ),
        Statement(
            "4.1.2, fig. 4-3",
            "With the fewest servers R2 is the worst, and R3 about the same as R1.",
            every(
                faster(of(R1), of(R2), ("R1", "R2"), 1.0),
                faster(of(R3), of(R2), ("R3", "R2"), 1.0),
                alike(of(R3), of(R1), ("R3", "R1"), 1.5),
            ),
            cores=cores,
        ),
        Statement(
            "4.1.2, fig. 4-4",
            "With the fewest servers R3's first steps are long; later they come down to the second reader's.",
            early_steps_longer(of(R3)[0]),
            "first the reader waits for conversions, later it finds them done",
            "early and late steps differ little, or late ones stay longer than the second reader's",
        ),
    ]


def on_subsets(plan: Plan) -> list[Statement]:
    where, memory = "4.1.3, fig. 4-5", "4.1.3, fig. 4-6"
    first = f"{plan.delays[0]:g}"

    def key(place: str, cube: int = plan.cubes[-1]) -> str:
        return f"subset/{place}/{cube}"

    def peaks(place: str, expected: dict[int, float]) -> Judge:
        return every(*(accounted(key(place, cube), "memory_peak", of, f"{cube}³") for cube, of in expected.items()))

    def same(role: str) -> Judge:
        return alike((key(R1), role), (key(R2), role), (f"{role.replace('_', ' ')} R1", "R2"))

    def worst(role: str) -> Judge:
        name = role.replace("_", " ")
        return every(*(faster((key(one), role), (key(R3), role), (f"{name} {one}", "R3"), 1.0) for one in (R1, R2)))

    def spent(place: str) -> list[Of]:
        return [(f"cycle/{place}/{first}", role) for role in ROLES]

    return [
        Statement(
            where,
            "A subset: writer and first reader take the same with R1 and R2.",
            every(same("writer"), same("reader_1")),
            if_refuted="they differ in one of the roles at least; why was not measured",
        ),
        Statement(
            where,
            "A subset: R3 is the worst for the writer and for the first reader.",
            every(worst("writer"), worst("reader_1")),
            "it converts all of each step, of which the readers want a part",
            "R3 is not behind both others in both roles",
        ),
        Statement(
            memory,
            "R1 needs the memory of the original only.",
            peaks(R1, dict.fromkeys(plan.cubes, 1)),
            "by the servers' own accounting, at its peak",
            "by the servers' own accounting, at its peak",
        ),
        Statement(
            memory,
            "R2 needs the original and the subset that was asked for.",
            peaks(R2, {cube: 1 + (cube / plan.side) ** 3 for cube in plan.cubes}),
            "copies are the boxes that somebody asked for, not whole objects",
            "copies take more, or less, than what was asked for",
        ),
        Statement(
            memory,
            "R3 doubles the memory, whatever the subset.",
            peaks(R3, dict.fromkeys(plan.cubes, 2)),
            "all that is put is converted and kept",
            "copies were evicted, or not made",
        ),
        Statement(
            "4.1.3",
            "With very few resources for staging R1 is best in time to solution. Here: I/O of a step, no delay.",
            least(spent(R1), [spent(R2), spent(R3)]),
            "servers convert on the cores that the programs run on",
            "another place takes less, all programs together",
        ),
        Statement(
            "4.1.3",
            "Without memory for the copies R2 and R3 may break down.",
            breaks_down("tight/in_advance/1.25"),
            "the run failed",
            "servers keep what was put, and only as many copies as there is room for",
        ),
        Statement(
            "4.1.3",
            "Where applications need a subset only, R2 outperforms the others (first reader).",
            least([(key(R2), "reader_1")], [[(key(R1), "reader_1")], [(key(R3), "reader_1")]]),
            if_refuted="readers take less time in another place",
        ),
    ]


def on_files(plan: Plan) -> list[Statement]:
    where = "4.2, fig. 4-8"
    scales = [w[0] * w[1] * w[2] for w, _, _ in plan.scales]
    middle = scales[len(scales) // 2]
    most = max(w + readers + 2 * servers for w, (_, readers, servers) in zip(scales, plan.scales, strict=True))

    def of(system: str, role: str, writers: int = middle) -> Of:
        return f"scaling/{system}/{writers}", role

    def beside_files(role: str, synced: bool) -> Judge:
        others = [name for name in FILES if name.endswith("_fsync") == synced]
        pairs = ((R1, ""), (R2, ""), (f"{R1}_same", "_same"))
        return almost_always_faster(
            [
                (of(one, role, writers), of(other + layout, role, writers))
                for writers in scales
                for other in others
                for one, layout in pairs
            ]
        )

    return [
        Statement(
            where,
            "Staging takes less writer I/O time than files and HDF5 (paper: 20–87 %, R3 apart). Here: synced files.",
            beside_files("writer", True),
            "a put waits for no disk",
            "in fewer than nine of ten; this disk acknowledges sooner than a put in some of them",
        ),
        Statement(
            where,
            "The same, beside files that are not synced.",
            beside_files("writer", False),
            if_refuted="in fewer than nine of ten; such files are memory too: the page cache",
        ),
        Statement(
            where,
            "Staging takes less reader I/O time than files and HDF5 (paper: 27–97 %).",
            beside_files("reader_1", False),
            if_refuted="in fewer than nine of ten; files were read from the page cache when no writer ran",
        ),
        Statement(
            where,
            "The same for the second reader, which runs when no writer does.",
            beside_files("reader_2", False),
            if_refuted="in fewer than nine of ten; files were read from the page cache, which is memory too",
        ),
        Statement(
            where,
            "R3 sacrifices a little at the writer's side.",
            faster(of(R1, "writer"), of(R3, "writer"), ("R1", "R3")),
            "the writer takes longer than with R1",
            "the writer takes hardly longer, or less, than with R1",
        ),
        Statement(
            where,
            "R3's reader is identical to one that wants the writers' layout.",
            alike(of(R3, "reader_1"), of(f"{R1}_same", "reader_1"), ("R3", "same layout")),
            "both copy what lies there in the layout asked for",
            "a reader in step with its writer probably waits for conversions that are not done",
        ),
        Statement(
            where,
            "Staging scales well from 300 to 5000 processes.",
            faster(of(R2, "reader_1", scales[-1]), of(R2, "reader_1", scales[0]),
                   (f"{scales[-1]} writers", f"{scales[0]}"), 1.0),
            cores=most,
        ),
    ]  # fmt: skip


def on_the_rest(plan: Plan) -> list[Statement]:
    """What no figure is about, what the paper leaves to future work, and a full read beside it all."""
    writers, _, _ = plan.scales[len(plan.scales) // 2]
    count = writers[0] * writers[1] * writers[2]

    def both_readers(place: str, delay: float) -> list[Of]:
        return [(f"cycle/{place}/{delay:g}", role) for role in ROLES[1:]]

    return [
        Statement(
            "4.2",
            "Reorganising at the servers is best for large workflows, if staging is not extremely limited.",
            None,
            untestable="this is one machine; the statement on very few resources (4.1.3) is the one about it",
        ),
        Statement(
            "4.2, 5",
            "The same few lines couple applications of any layout.",
            None,
            untestable="no figure shows it; examples/heterogeneous couples C++ in rows and Fortran in columns",
        ),
        Statement(
            "5, future work",
            "A mechanism that chooses by time and memory (here: automatic; each cycle) is as fast as the best place.",
            every(
                *(
                    least(both_readers("automatic", delay), [both_readers(one, delay) for one in (R1, R2, R3)], ALIKE)
                    for delay in plan.delays
                )
            ),
            f"within a factor of {ALIKE} of the best, for both readers together, in every cycle",
            f"not within a factor of {ALIKE} of the best in every cycle",
        ),
        Statement(
            "not in the paper",
            "A share in the other layout takes less than all in rows, converted in the program.",
            faster((f"scaling/{R1}/{count}", "reader_1"), (f"scaling/full/{count}", "reader_1"), ("R1", "full read")),
            "the share is copied once, and converted in that copy",
        ),
    ]
