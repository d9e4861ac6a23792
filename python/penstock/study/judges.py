"""What the raw figures of `penstock study staging` say: times, counts, and judges that compare them.

A time is the median over the steps but the first, which waits for the programs to start; a step takes as long as its
slowest rank. A judge is a function of the raw figures; it raises NotMeasured when they lack what it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from .experiments import Plan

FASTER = 1.1  # a ratio from which one is called faster than the other
ALIKE = 1.25  # and up to which they are called the same
ALMOST_ALL = 0.9
EXACT = 0.02  # of memory and counts that are accounted
ROLES = ("writer", "reader_1", "reader_2")

Raw = dict[str, Any]  # plan, cores, conversion_s, failed, cases: key -> the figures of each round
Of = tuple[str, str]  # a case's key, a role


class NotMeasured(Exception):
    """The run lacks figures that a statement is about."""


@dataclass(frozen=True)
class Finding:
    """What a statement's figures say. holds: in each round."""

    holds: Sequence[bool]
    measured: str


Judge = Callable[[Raw], Finding]

# -------------------------------------------------------------------------------------------------------------- figures


def rounds_of(raw: Raw, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] | None = raw["cases"].get(key)
    if not found:
        raise NotMeasured(key)
    return found


def steps_of(figures: dict[str, Any], role: str) -> list[float]:
    """Of one round, by step from the second on: the seconds of the slowest rank."""
    return [max(ranks) for ranks in zip(*figures[role]["io_s"], strict=True)][1:]


def times(raw: Raw, key: str, role: str) -> list[float]:
    """Seconds of a step, for each round."""
    return [median(steps_of(one, role)) for one in rounds_of(raw, key)]


def counts(raw: Raw, key: str, name: str, when: str = "servers") -> list[float]:
    """Of the servers together, in units of the bytes that were put, for each round."""
    put = Plan(**raw["plan"]).put_bytes
    return [one[when][name] / put for one in rounds_of(raw, key)]


def ratios(over: Iterable[float], under: Iterable[float]) -> list[float]:
    return [a / max(b, 1e-9) for a, b in zip(over, under, strict=True)]


def milliseconds(values: Iterable[float]) -> str:
    return f"{1e3 * median(values):.1f} ms"


def factor(values: Sequence[float]) -> str:
    """The median, and the range of the rounds."""
    low, high = min(values), max(values)
    spread = f" ({low:.2f}–{high:.2f})" if f"{low:.2f}" != f"{high:.2f}" else ""
    return f"{median(values):.2f}×{spread}"


# --------------------------------------------------------------------------------------------------------------- judges


def within(first: Of, second: Of, names: tuple[str, str], low: float, high: float) -> Judge:
    """The second takes from `low` to `high` times as long as the first."""

    def judge(raw: Raw) -> Finding:
        if first == second:
            raise NotMeasured("two cases to compare")
        a, b = times(raw, *first), times(raw, *second)
        found = ratios(b, a)
        text = f"{names[0]} {milliseconds(a)}, {names[1]} {milliseconds(b)}: {factor(found)}"
        return Finding([low <= ratio <= high for ratio in found], text)

    return judge


def faster(quick: Of, slow: Of, names: tuple[str, str], bound: float = FASTER) -> Judge:
    return within(quick, slow, names, bound, float("inf"))


def alike(one: Of, other: Of, names: tuple[str, str], bound: float = ALIKE) -> Judge:
    return within(one, other, names, 1 / bound, bound)


def every(*judges: Judge) -> Judge:
    def judge(raw: Raw) -> Finding:
        found = [one(raw) for one in judges]
        holds = [all(each) for each in zip(*(one.holds for one in found), strict=True)]
        return Finding(holds, "; ".join(one.measured for one in found))

    return judge


def accounted(key: str, name: str, expected: float, what: str, when: str = "servers") -> Judge:
    """A count of the servers, in units of the bytes put."""

    def judge(raw: Raw) -> Finding:
        found = counts(raw, key, name, when)
        text = f"{what}: {factor(found)}, expected {expected:.2f}×"
        return Finding([abs(one - expected) <= EXACT for one in found], text)

    return judge


def flat(keys: Sequence[str], role: str) -> Judge:
    """The longest is at most half as long again as the shortest."""

    def judge(raw: Raw) -> Finding:
        if len(keys) < 2:
            raise NotMeasured("two cases to compare")
        each = [times(raw, key, role) for key in keys]
        spread = [max(one) / min(one) for one in zip(*each, strict=True)]
        text = f"{', '.join(milliseconds(one) for one in each)}: longest to shortest {factor(spread)}"
        return Finding([ratio <= 1.5 for ratio in spread], text)

    return judge


def almost_always_faster(pairs: Sequence[tuple[Of, Of]]) -> Judge:
    def judge(raw: Raw) -> Finding:
        saved = [[1 - r for r in ratios(times(raw, *a), times(raw, *b))] for a, b in pairs]
        won = [sum(one > 0 for one in each) for each in zip(*saved, strict=True)]
        medians = [median(one) for one in saved]
        text = (
            f"less in {' / '.join(map(str, won))} of {len(pairs)} comparisons; "
            f"saved {100 * min(medians):.0f} % to {100 * max(medians):.0f} %, median {100 * median(medians):.0f} %"
        )
        return Finding([count >= ALMOST_ALL * len(pairs) for count in won], text)

    return judge


def early_steps_longer(key: str) -> Judge:
    """Reader 1: the first third of the steps takes longer than the last one, which is about as short as reader 2's."""

    def judge(raw: Raw) -> Finding:
        holds, texts = [], []
        for one, second in zip(rounds_of(raw, key), times(raw, key, "reader_2"), strict=True):
            steps = steps_of(one, "reader_1")
            part = max(1, len(steps) // 3)
            early, late = median(steps[:part]), median(steps[-part:])
            holds.append(early >= FASTER * late and late <= 1.5 * second)
            texts.append(f"{1e3 * early:.1f} ms, then {1e3 * late:.1f} ms (reader 2: {1e3 * second:.1f} ms)")
        return Finding(holds, "first third of the steps, last third: " + "; ".join(texts))

    return judge


def breaks_down(key: str) -> Judge:
    def judge(raw: Raw) -> Finding:
        if key in raw["failed"]:
            return Finding([True], raw["failed"][key])
        copies, memory = counts(raw, key, "replica_peak"), counts(raw, key, "memory_peak")
        if max(copies) > 1 - EXACT:
            raise NotMeasured("servers whose memory is too small for all copies")
        text = f"all steps were read, and right; copies at most {factor(copies)}, memory {factor(memory)} of the data"
        return Finding([False for _ in copies], text)

    return judge


def least(best: Sequence[Of], others: Sequence[Sequence[Of]], bound: float = 1.0) -> Judge:
    """The times of `best`, added up, are at most `bound` times the smallest sum of the others."""

    def judge(raw: Raw) -> Finding:
        sums = [
            [sum(each) for each in zip(*(times(raw, *one) for one in group), strict=True)] for group in (best, *others)
        ]
        shown = ", ".join(
            f"{group[0][0].split('/')[1]} {milliseconds(one)}" for group, one in zip((best, *others), sums, strict=True)
        )
        holds = [mine <= bound * min(theirs) for mine, *theirs in zip(*sums, strict=True)]
        return Finding(holds, f"{' + '.join(role.replace('_', ' ') for _, role in best)}: {shown}")

    return judge
