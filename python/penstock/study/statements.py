"""What SAND2021-10271 says of its experiments, and what the figures of a run make of each statement.

Everything here is computed from the raw figures (the JSON beside the report). A time is the median over the steps but the
first, which waits for the programs to start; a step takes as long as its slowest rank. Where rounds of one run disagree,
nothing is confirmed or refuted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .experiments import FILES, PLACES, Plan

CONFIRMED, REFUTED, NOT_TESTABLE = "confirmed", "refuted", "not testable here"
FASTER = 1.1  # a ratio from which one is called faster than the other
ALIKE = 1.25  # and up to which they are called the same
ALMOST_ALL = 0.9
EXACT = 0.02  # of memory and counts that are accounted

Raw = dict[str, Any]  # plan, cores, conversion_s, cases: key -> the figures of each round


class NotMeasured(Exception):
    """The run lacks figures that a statement is about."""


@dataclass(frozen=True)
class Finding:
    """What a statement's figures say. holds: in each round."""

    holds: Sequence[bool]
    measured: str


@dataclass(frozen=True)
class Statement:
    where: str
    text: str
    judge: Callable[[Raw], Finding]
    if_confirmed: str = ""
    if_refuted: str = ""
    cores: int = 0  # with fewer, the figures are shown and not judged
    untestable: str = ""  # why nothing can be judged on any machine like this


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

    try:
        found = statement.judge(raw)
    except NotMeasured as missing:
        return verdict("–", NOT_TESTABLE, statement.untestable or f"this run has no figures of {missing}")
    if statement.untestable:
        return verdict(found.measured, NOT_TESTABLE, statement.untestable)
    if raw["cores"] < statement.cores:
        why = f"needs {statement.cores} cores, a core for each program; with {raw['cores']} servers add no processors"
        return verdict(found.measured, NOT_TESTABLE, why)
    if all(found.holds):
        return verdict(found.measured, CONFIRMED, statement.if_confirmed)
    if not any(found.holds):
        return verdict(found.measured, REFUTED, statement.if_refuted)
    return verdict(
        found.measured, NOT_TESTABLE, f"the rounds disagree: it holds in {sum(found.holds)} of {len(found.holds)}"
    )


def assess_all(raw: Raw) -> list[Verdict]:
    return [assess(statement, raw) for statement in statements_of(Plan(**raw["plan"]))]


# --------------------------------------------------------------------------------------------------------------- figures


def rounds_of(raw: Raw, key: str) -> list[dict[str, Any]]:
    found = raw["cases"].get(key)
    if not found:
        raise NotMeasured(key)
    return found


def steps_of(figures: dict[str, Any], role: str, name: str = "io_s") -> list[float]:
    """Of one round, by step: the seconds of the slowest rank."""
    return [max(ranks) for ranks in zip(*figures[role][name], strict=True)]


def times(raw: Raw, key: str, role: str, name: str = "io_s") -> list[float]:
    """Seconds of a step, for each round."""
    return [median(steps_of(one, role, name)[1:]) for one in rounds_of(raw, key)]


def ratios(over: Iterable[float], under: Iterable[float]) -> list[float]:
    return [a / max(b, 1e-9) for a, b in zip(over, under, strict=True)]


def counts(raw: Raw, key: str, name: str, when: str = "servers") -> list[float]:
    """Of the servers together, in units of the bytes that were put, for each round."""
    put = Plan(**raw["plan"]).put_bytes
    return [one[when][name] / put for one in rounds_of(raw, key)]


def milliseconds(values: Iterable[float]) -> str:
    return f"{1e3 * median(values):.1f} ms"


def times_text(values: Sequence[float], unit: str = "×") -> str:
    low, high = min(values), max(values)
    spread = f" ({low:.2f}–{high:.2f})" if f"{low:.2f}" != f"{high:.2f}" else ""
    return f"{median(values):.2f}{unit}{spread}"


# ----------------------------------------------------------------------------------------------------------------- judges

Of = tuple[str, str]  # a case's key, a role


def faster(quick: Of, slow: Of, names: tuple[str, str], bound: float = FASTER) -> Callable[[Raw], Finding]:
    """The first takes less time than the second, by the factor."""

    def judge(raw: Raw) -> Finding:
        a, b = times(raw, *quick), times(raw, *slow)
        saved = ratios(b, a)
        text = f"{names[0]} {milliseconds(a)}, {names[1]} {milliseconds(b)}: {times_text(saved)}"
        return Finding([ratio >= bound for ratio in saved], text)

    return judge


def alike(one: Of, other: Of, names: tuple[str, str], bound: float = ALIKE) -> Callable[[Raw], Finding]:
    def judge(raw: Raw) -> Finding:
        a, b = times(raw, *one), times(raw, *other)
        between = ratios(a, b)
        text = f"{names[0]} {milliseconds(a)}, {names[1]} {milliseconds(b)}: {times_text(between)}"
        return Finding([1 / bound <= ratio <= bound for ratio in between], text)

    return judge


def every(*judges: Callable[[Raw], Finding]) -> Callable[[Raw], Finding]:
    def judge(raw: Raw) -> Finding:
        found = [one(raw) for one in judges]
        holds = [all(each) for each in zip(*(one.holds for one in found), strict=True)]
        return Finding(holds, "; ".join(one.measured for one in found))

    return judge


def accounted(key: str, name: str, expected: float, what: str, when: str = "servers") -> Callable[[Raw], Finding]:
    """A count of the servers, in units of the bytes put."""

    def judge(raw: Raw) -> Finding:
        found = counts(raw, key, name, when)
        text = f"{what}: {times_text(found)} of what was put, expected {expected:.3g}×"
        return Finding([abs(one - expected) <= EXACT for one in found], text)

    return judge


def flat(keys: Sequence[str], role: str) -> Callable[[Raw], Finding]:
    """The longest is at most half as long again as the shortest."""

    def judge(raw: Raw) -> Finding:
        each = [times(raw, key, role) for key in keys]
        spread = [max(one) / min(one) for one in zip(*each, strict=True)]
        text = f"{', '.join(milliseconds(one) for one in each)}: longest to shortest {times_text(spread)}"
        return Finding([ratio <= 1.5 for ratio in spread], text)

    return judge


def almost_always_faster(pairs: Sequence[tuple[Of, Of]]) -> Callable[[Raw], Finding]:
    def judge(raw: Raw) -> Finding:
        saved = [[1 - r for r in ratios(times(raw, *a), times(raw, *b))] for a, b in pairs]
        by_round = list(zip(*saved, strict=True))
        won = [sum(one > 0 for one in each) for each in by_round]
        medians = [median(one) for one in saved]
        text = (
            f"less in {' / '.join(map(str, won))} of {len(pairs)} comparisons; "
            f"saved {100 * min(medians):.0f} % to {100 * max(medians):.0f} %, median {100 * median(medians):.0f} %"
        )
        return Finding([count >= ALMOST_ALL * len(pairs) for count in won], text)

    return judge


def early_steps_longer(key: str) -> Callable[[Raw], Finding]:
    """Reader 1: the second quarter of the steps takes longer than the last one, which is as short as reader 2's."""

    def judge(raw: Raw) -> Finding:
        holds, texts = [], []
        for one, second in zip(rounds_of(raw, key), times(raw, key, "reader_2"), strict=True):
            steps = steps_of(one, "reader_1")[1:]
            part = max(1, len(steps) // 3)
            early, late = median(steps[:part]), median(steps[-part:])
            holds.append(early >= FASTER * late and late <= 1.5 * second)
            texts.append(f"{1e3 * early:.1f} ms, then {1e3 * late:.1f} ms (reader 2: {1e3 * second:.1f} ms)")
        return Finding(holds, "first third of the steps, last third: " + "; ".join(texts))

    return judge


def longer_in_most_steps(slow: str, quick: str) -> Callable[[Raw], Finding]:
    def judge(raw: Raw) -> Finding:
        won = []
        for a, b in zip(rounds_of(raw, slow), rounds_of(raw, quick), strict=True):
            steps = list(zip(steps_of(a, "reader_1")[1:], steps_of(b, "reader_1")[1:], strict=True))
            won.append(sum(x > y for x, y in steps) / len(steps))
        return Finding([share >= ALMOST_ALL for share in won], f"longer in {100 * median(won):.0f} % of the steps")

    return judge


def steady(key: str) -> Callable[[Raw], Finding]:
    """From the second step on nine of ten steps take at most twice the median."""

    def judge(raw: Raw) -> Finding:
        spread = []
        for one in rounds_of(raw, key):
            steps = sorted(steps_of(one, "reader_1")[1:])
            spread.append(steps[int(0.9 * (len(steps) - 1))] / median(steps))
        return Finding([ratio <= 2 for ratio in spread], f"90th percentile to median: {times_text(spread)}")

    return judge


def survives(key: str) -> Callable[[Raw], Finding]:
    """Holds when the run did not end well: the statement says that it breaks down."""

    def judge(raw: Raw) -> Finding:
        if key in raw.get("failed", {}):
            return Finding([True], raw["failed"][key])
        evicted = [one["servers"]["evictions"] for one in rounds_of(raw, key)]
        peak = counts(raw, key, "memory_peak")
        text = f"all steps read, and right; {median(evicted):.0f} copies evicted, memory {times_text(peak)} of what was put"
        return Finding([False for _ in evicted], text)

    return judge


def whole_time(best: str, others: Sequence[str]) -> Callable[[Raw], Finding]:
    """Transfers of all programs, added up."""

    def judge(raw: Raw) -> Finding:
        def spent(key: str) -> list[float]:
            roles = ("writer", "reader_1", "reader_2")
            return [sum(sum(steps_of(one, role)[1:]) for role in roles) for one in rounds_of(raw, key)]

        mine, theirs = spent(best), [spent(key) for key in others]
        shown = [
            f"{key.split('/')[1]} {median(each):.2f} s"
            for key, each in zip((best, *others), (mine, *theirs), strict=True)
        ]
        holds = [m <= min(each) for m, each in zip(mine, zip(*theirs, strict=True), strict=True)]
        return Finding(holds, "transfers of all programs: " + ", ".join(shown))

    return judge


def nothing(raw: Raw) -> Finding:
    raise NotMeasured("it")


# ------------------------------------------------------------------------------------------------------------- statements


def statements_of(plan: Plan) -> list[Statement]:
    return [*on_design(), *on_cycles(plan), *on_servers(plan), *on_subsets(plan), *on_files(plan), *ours(plan)]


R1, R2, R3 = PLACES[:3]


def on_design() -> list[Statement]:
    return [
        Statement(
            "2.2, 3.2",
            "Only the first request for a layout launches a reorganisation; the others wait for it and share the result.",
            every(
                accounted(f"sharing/{R2}/4", "converted_bytes", 1, "converted for 4 programs that get the whole",
                          "servers_after_reader_1"),
                accounted(f"sharing/{R2}/4", "converted_bytes", 1, "after 4 more"),
            ),
            "one conversion of each element and layout, by the count of the servers",
            "elements were converted more than once, or not at all",
        ),
        Statement(
            "3.1",
            "R1: if several applications request the same layout, every one reorganises on its own.",
            accounted(f"sharing/{R1}/4", "converted_bytes", 0, "converted by servers"),
            "servers convert nothing, so each of the 8 programs converts all that it gets",
            "servers converted although readers should",
        ),
        Statement(
            "3.3",
            "R3: the server reorganises the entire object as soon as it arrives, whatever is asked for.",
            accounted(f"cycle/{R3}/0", "converted_bytes", 1, "converted"),
            "one conversion of each put and layout, by the count of the servers",
            "not all was converted, or more than once",
        ),
    ]  # fmt: skip


def on_cycles(plan: Plan) -> list[Statement]:
    first, last = f"{plan.delays[0]:g}", f"{plan.delays[-1]:g}"
    where = "4.1.1, fig. 4-2"

    def case(place: str, delay: str, role: str) -> Of:
        return f"cycle/{place}/{delay}", role

    return [
        Statement(
            where,
            "R1 keeps a steady I/O time regardless of the cycle time.",
            flat([f"cycle/{R1}/{delay:g}" for delay in plan.delays], "reader_1"),
            "nothing is left for the idle time: the reader converts when it reads",
            "on so few cores the writers' and readers' work itself overlaps less with longer cycles, or more",
        ),
        Statement(
            where,
            "R2 benefits from longer cycle times.",
            faster(case(R2, last, "reader_1"), case(R2, first, "reader_1"), ("longest cycle", "no delay")),
            "requests that come apart do not queue at the servers",
            "a request is converted when it comes, so idle time before it does not help; and conversions do not queue here",
        ),
        Statement(
            where,
            "With the longest cycle R3 is faster for the first reader than R1 (paper: 25×).",
            faster(case(R3, last, "reader_1"), case(R1, last, "reader_1"), ("R3", "R1")),
            "the conversion is done in the writer's idle time. The factor is of that machine: R1 fetched over a network",
            "a reader in step with its writer asks for a step that was just put, before it is converted; and R1 here "
            "converts in the copy out of shared memory, which is hardly dearer than a copy",
        ),
        Statement(
            where,
            "With the longest cycle R3 is faster for the first reader than R2 (paper: 5×).",
            faster(case(R3, last, "reader_1"), case(R2, last, "reader_1"), ("R3", "R2")),
            "the conversion has begun, or is done, when the request comes",
            "a reader in step with its writer asks for what was just put: it waits for the conversion in both",
        ),
        Statement(
            where,
            "Without a delay the writer with R3 degrades dramatically.",
            faster(case(R1, first, "writer"), case(R3, first, "writer"), ("R1's writer", "R3's"), 1.5),
            "conversions take processors from the transfer, although they yield while blocks arrive",
            "conversions in advance wait while blocks arrive",
        ),
        Statement(
            where,
            "For the second reader R2 and R3 take nearly the same time.",
            alike(case(R2, first, "reader_2"), case(R3, first, "reader_2"), ("R2", "R3")),
            "both find all copies at the servers",
            "both find all copies at the servers; the difference is in how many pieces they lie, or noise",
        ),
        Statement(
            where,
            "For the second reader a hit saves read time against R1 (paper: up to 94 %).",
            faster(case(R2, first, "reader_2"), case(R1, first, "reader_2"), ("R2", "R1")),
            "a contiguous copy instead of a transposing one",
            "R1 converts in the one copy out of shared memory, which costs hardly more than a copy of what is converted",
        ),
    ]


def on_servers(plan: Plan) -> list[Statement]:
    few, many = plan.servers[0], plan.servers[-1]
    cores = 4 + plan.many_readers + 2 * many
    where, where_steps = "4.1.2, fig. 4-3", "4.1.2, fig. 4-4"

    def more_time(place: str) -> Callable[[Raw], Finding]:
        one, other = (f"servers/{place}/{count}" for count in (many, few))
        return faster((one, "reader_1"), (other, "reader_1"), (f"{place}: {many} servers", f"{few}"), 1.0)

    key = f"servers/{{}}/{few}"
    return [
        Statement(
            where,
            "All three take slightly more time as there are fewer servers for the readers.",
            every(*(more_time(place) for place in (R1, R2, R3))),
            "fewer servers have fewer threads that hand out blocks",
            "one server hands out blocks fast enough",
            cores,
        ),
        Statement(
            where,
            "The number of servers has a large impact on R2 and R3.",
            every(*(more_time(place) for place in (R2, R3))),
            "conversions are shared by more processors",
            "one server converts fast enough",
            cores,
        ),
        Statement(
            where,
            "With one server for eight readers R2 is the worst, and R3 about the same as R1.",
            every(
                faster((key.format(R1), "reader_1"), (key.format(R2), "reader_1"), ("R1", "R2"), 1.0),
                faster((key.format(R3), "reader_1"), (key.format(R2), "reader_1"), ("R3", "R2"), 1.0),
                alike((key.format(R3), "reader_1"), (key.format(R1), "reader_1"), ("R3", "R1"), 1.5),
            ),
            "the readers' processors are more than the server's",
            "a server converts on two threads",
            cores,
        ),
        Statement(
            where_steps,
            "With one server for eight readers R1's read time is stable from the second step on.",
            steady(key.format(R1)),
            "each step is fetched and converted alike",
            "more programs than cores: the scheduler decides which rank is the slowest",
        ),
        Statement(
            where_steps,
            "R2's read time is longer than R1's in almost every step.",
            longer_in_most_steps(key.format(R2), key.format(R1)),
            "a reader waits for two threads of the server, which do for all readers what each does alone with R1",
            "server and readers share the same cores",
        ),
        Statement(
            where_steps,
            "R3's first steps are long; later they come down to the second reader's.",
            early_steps_longer(key.format(R3)),
            "first the reader waits for conversions, later they are ahead of it",
            "conversions do not fall behind the writer, or never get ahead of the reader within these steps",
        ),
    ]


def on_subsets(plan: Plan) -> list[Statement]:
    where, memory = "4.1.3, fig. 4-5", "4.1.3, fig. 4-6"
    largest = plan.cubes[-1]
    share = (largest / plan.side) ** 3

    def key(place: str, cube: int = largest) -> str:
        return f"subset/{place}/{cube}"

    return [
        Statement(
            where,
            "A subset: writer and first reader take the same with R1 and R2.",
            every(
                alike((key(R1), "writer"), (key(R2), "writer"), ("writer R1", "R2")),
                alike((key(R1), "reader_1"), (key(R2), "reader_1"), ("reader R1", "R2")),
            ),
            "little is converted, wherever",
            "a cube is small: what counts is one more request to the server, and the scheduler",
        ),
        Statement(
            where,
            "A subset: R3 is the worst for the writer and for the first reader.",
            every(
                *(
                    faster((key(place), role), (key(R3), role), (f"{role.replace('_', ' ')} {name}", "R3"), 1.0)
                    for role in ("writer", "reader_1")
                    for place, name in ((R1, "R1"), (R2, "R2"))
                )
            ),
            "it converts all of each step for readers that want little of it",
            "conversions in advance wait while blocks arrive, and until nobody asks",
        ),
        Statement(
            where,
            "A subset: for the second reader R1 and the others differ less.",
            alike((key(R1), "reader_2"), (key(R2), "reader_2"), ("R1", "R2"), 1.5),
            "little is converted, wherever",
            "a cube is small: what counts is one more request to the server",
        ),
        Statement(
            memory,
            "R1 needs the memory of the original only.",
            every(*(accounted(key(R1, cube), "memory_peak", 1, f"d={cube}") for cube in plan.cubes)),
            "own accounting of the servers, at its peak",
            "own accounting of the servers, at its peak",
        ),
        Statement(
            memory,
            "R2 needs the original and the subset that was asked for.",
            every(
                *(
                    accounted(key(R2, cube), "memory_peak", 1 + (cube / plan.side) ** 3, f"d={cube}")
                    for cube in plan.cubes
                )
            ),
            "copies are boxes that somebody asked for, not whole objects",
            "copies are larger than what was asked for",
        ),
        Statement(
            memory,
            "R3 doubles the memory, whatever the subset.",
            every(*(accounted(key(R3, cube), "memory_peak", 2, f"d={cube}") for cube in plan.cubes)),
            "all that is put is converted",
            "copies were evicted, or not made",
        ),
        Statement(
            "4.1.3",
            "With very few resources for staging R1 is best in time to solution and in memory.",
            whole_time(f"cycle/{R1}/{plan.delays[0]:g}", [f"cycle/{place}/{plan.delays[0]:g}" for place in (R2, R3)]),
            "two cores for everything are few: what a server converts, it takes from the others",
            "sharing conversions saves more processor time than the servers take",
        ),
        Statement(
            "4.1.3",
            "Without memory for the copies R2 and R3 may break down.",
            survives("tight/in_advance/1.25"),
            "the run failed",
            "copies are the first to be evicted, and are made again or left to the reader",
        ),
        Statement(
            "4.1.3",
            "Where applications need a subset only, R2 outperforms the others.",
            every(
                faster((key(R2), "reader_1"), (key(R1), "reader_1"), ("R2", "R1"), 1.0),
                faster((key(R2), "reader_1"), (key(R3), "reader_1"), ("R2", "R3"), 1.0),
            ),
            f"it converts {100 * share:.1f} % of each step",
            f"the cube is {100 * share:.1f} % of a step: converting it is too little to be worth a request",
        ),
    ]


def on_files(plan: Plan) -> list[Statement]:
    scales = [(w[0] * w[1] * w[2], w, r, s) for w, r, s in plan.scales]
    most = max(w + r + 2 * s for w, _, r, s in scales)
    base = scales[len(scales) // 2][0]
    where = "4.2, fig. 4-8"

    def pairs(role: str, synced: bool) -> list[tuple[Of, Of]]:
        others = [name for name in FILES if name.endswith("_fsync") == synced]
        found = []
        for writers, *_ in scales:
            for other in others:
                found += [
                    ((f"scaling/{one}/{writers}", role), (f"scaling/{other}/{writers}", role)) for one in (R1, R2)
                ]
                found.append(((f"scaling/{R1}_same/{writers}", role), (f"scaling/{other}_same/{writers}", role)))
        return found

    cached = "not synced: such files are memory, too (the page cache), written by one call in each writer's own process"
    return [
        Statement(
            where,
            "Staging takes less writer I/O time than files and HDF5 (paper: 20–87 %, R3 apart). Here: synced files.",
            almost_always_faster(pairs("writer", True)),
            "no secondary storage is waited for",
            "the disk under these files acknowledges faster than two cores copy into a server",
        ),
        Statement(
            where,
            "The same, beside files that are not synced.",
            almost_always_faster(pairs("writer", False)),
            "a put takes less than a file in the page cache",
            cached,
        ),
        Statement(
            where,
            "Staging takes less reader I/O time than files and HDF5 (paper: 27–97 %).",
            almost_always_faster(pairs("reader_1", False)),
            "readers copy once, out of the servers' memory, and convert in that copy",
            "files were read from the page cache and when nothing else ran; readers of arrays run beside the writers",
        ),
        Statement(
            where,
            "The same for the second reader, which runs alone in both.",
            almost_always_faster(pairs("reader_2", False)),
            "readers copy once, out of the servers' memory, and convert in that copy",
            "files were read from the page cache, which is memory, too",
        ),
        Statement(
            where,
            "R3 sacrifices a little at the writer's side.",
            faster((f"scaling/{R1}/{base}", "writer"), (f"scaling/{R3}/{base}", "writer"), ("R1", "R3")),
            "conversions of the step before take processors from the transfer",
            "conversions are done in the idle time of the cycle",
        ),
        Statement(
            where,
            "R3's reader is identical to one that wants the writers' layout.",
            alike((f"scaling/{R3}/{base}", "reader_1"), (f"scaling/{R1}_same/{base}", "reader_1"), ("R3", "same layout")),
            "both copy what lies there in the layout asked for",
            "the reader asks for a step that was just put: it waits for the conversion, which has begun",
        ),
        Statement(
            where,
            "Staging scales well from 300 to 5000 processes.",
            faster((f"scaling/{R2}/{scales[-1][0]}", "reader_1"), (f"scaling/{R2}/{scales[0][0]}", "reader_1"),
                   (f"{scales[-1][0]} writers", f"{scales[0][0]}"), 1.0),
            "more readers and servers take less time for a step",
            "more programs take more time for a step",
            most,
        ),
        Statement(
            "4.2",
            "Reorganising at the servers is best for large workflows, if staging is not extremely limited.",
            nothing,
            untestable="two cores are extremely limited; the row on very few resources (4.1.3) is about that",
        ),
        Statement(
            "4.2, 5",
            "The same few lines couple applications of any layout.",
            nothing,
            untestable="no figure of this study; examples/heterogeneous couples C++ in rows and Fortran in columns, and "
            "changes the place of conversions by one word",
        ),
    ]  # fmt: skip


def ours(plan: Plan) -> list[Statement]:
    """What the paper leaves to future work, or compares with nothing."""
    base = plan.scales[len(plan.scales) // 2][0]
    writers = base[0] * base[1] * base[2]

    def near_best(raw: Raw) -> Finding:
        found = []
        for delay in plan.delays:
            mine, *fixed = (
                [a + b for a, b in zip(*(times(raw, f"cycle/{place}/{delay:g}", role) for role in ("reader_1", "reader_2")),
                                       strict=True)]
                for place in ("automatic", *PLACES[:3])
            )  # fmt: skip
            found.append([m / min(each) for m, each in zip(mine, zip(*fixed, strict=True), strict=True)])
        text = f"both readers' time to that of the best place, by cycle: {', '.join(times_text(one) for one in found)}"
        return Finding([all(ratio <= ALIKE for ratio in each) for each in zip(*found, strict=True)], text)

    return [
        Statement(
            "5, future work",
            "A mechanism that chooses by time and memory (here: automatic) is as fast as the best of the three.",
            near_best,
            "it chooses by the rates and requests that it has measured",
            "it chooses before it knows the machine's load, or for the sum of all programs and not for one",
        ),
        Statement(
            "not in the paper",
            "Getting a share in the other layout takes less than getting all in rows and converting it in the program.",
            faster(
                (f"scaling/{R1}/{writers}", "reader_1"), (f"scaling/full/{writers}", "reader_1"), ("R1", "full read")
            ),
            "the share is copied once, and converted in that copy",
            "one reader has all as its share, or the machine is busy with others",
        ),
    ]
