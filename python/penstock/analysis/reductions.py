"""Reductions of fields over all ranks, and the history of queries.

The ranks of an analysis agree by exchange(): one gather and one broadcast of its cohort. All of them call it, in the
same order; what fails on one rank is raised on all.
"""

from __future__ import annotations

import json
import math
import os
import pickle
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..cohort import Cohort
from ..errors import Error, InvalidArgument, NotFound
from ..names import nearest
from .expressions import MAX_PREVIOUS, Expression, Reduction, Values
from .files import whole_file

Result = TypeVar("Result")
MAX_HISTORY_BYTES = 64 << 20
MAX_MESSAGE = 4_000  # characters


def exchange(cohort: Cohort | None, work: Callable[[], Any], combine: Callable[[list[Any]], Result]) -> Result:
    """combine() of what work() gives on each rank, in the order of ranks; the same on all. Collective.

    combine() runs on rank 0. An exception of any rank is raised on all ranks, once all have come, and names the rank.
    work() makes no calls of the cohort.
    """
    if cohort is None or cohort.size == 1:
        return combine([work()])
    mine = _tried(work)
    gathered = cohort.gather(_pickled(mine), 0)
    answer = b""
    if gathered is not None:
        everything = [mine if rank == 0 else _unpickled(data) for rank, data in enumerate(gathered)]
        failed = [(rank, error) for rank, (_, error) in enumerate(everything) if error is not None]
        outcome: tuple[Any, Exception | None]
        if failed:
            outcome = None, failed[0][1] if len(failed) == cohort.size else _named(*failed[0])
        else:
            outcome = _tried(lambda: combine([result for result, _ in everything]))
        answer = _pickled(outcome)
    result, error = _unpickled(cohort.broadcast(answer, 0))
    if error is not None:
        error.on_all_ranks = True  # type: ignore[attr-defined]
        raise error
    answered: Result = result
    return answered


def together(cohort: Cohort | None, work: Callable[[], Result]) -> Result:
    """What work() gives on this rank; what fails on one is raised on all. work() may exchange() itself. Collective."""
    if cohort is None or cohort.size == 1:
        return work()
    try:
        result = work()
    except (Exception, SystemExit) as error:
        if getattr(error, "on_all_ranks", False):
            raise
        # A rank that fails alone gives its error to whichever exchange() the others are in.
        failure = error if isinstance(error, Exception) else Error(f"the program left with status {error.code}")
        try:
            exchange(cohort, lambda: _raise(failure), lambda _: None)
        except Exception as known:
            if str(failure)[:MAX_MESSAGE] in str(known):
                raise known from error
            own = _named(cohort.rank, failure)  # the others are in another call, fail there, and cannot say it
            own.on_all_ranks = True  # type: ignore[attr-defined]
            raise own from known
    exchange(cohort, lambda: None, lambda _: None)
    return result


def _raise(failure: Exception) -> None:
    raise failure


def _named(rank: int, error: Exception) -> Exception:
    """The error, which says of which rank it is, with at most MAX_MESSAGE characters of what it says."""
    if isinstance(error, OSError) and error.strerror:
        return type(error)(error.errno, f"rank {rank}: {error.strerror}", error.filename)
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"rank {rank}: {error.args[0][:MAX_MESSAGE]}",)
        return error
    return Error(f"rank {rank}: {type(error).__name__}: {str(error)[:MAX_MESSAGE]}")


def _tried(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except Exception as error:
        return None, error


def _pickled(outcome: tuple[Any, Exception | None]) -> bytes:
    try:
        data = pickle.dumps(outcome, protocol=5)  # which copies an array once
        if outcome[1] is not None:
            pickle.loads(data)  # an exception may be picklable and yet not come back
        return data
    except Exception as error:
        return pickle.dumps((None, RuntimeError(str(outcome[1] or error))))


def _unpickled(data: bytes) -> tuple[Any, Exception | None]:
    try:
        outcome: tuple[Any, Exception | None] = pickle.loads(data)
        return outcome
    except Exception as error:
        return None, Error(f"a result cannot be unpickled: {type(error).__name__}: {error}")


# ------------------------------------------------------------------------------------------------------- reductions


class Reductions:
    """All distinct reductions of some expressions, computed together.

    NaN values are left out. Over no values, count and sum are 0 and the others NaN. Sums are of float64, and differ in
    their last digits with the number of ranks; std is the population's.
    """

    def __init__(self, expressions: Iterable[Expression], known: Collection[str] | None = None):
        """known: names of fields; reductions of others are left out."""
        found = (r for expression in expressions for r in expression.reductions)
        distinct = {r.text: r for r in found if known is None or r.fields <= set(known)}
        self.all: tuple[Reduction, ...] = tuple(distinct.values())
        self.arguments = {r.argument: r for r in self.all}
        self.fields: frozenset[str] = frozenset().union(*(r.fields for r in self.all))

    def compute(
        self, parts: Sequence[Mapping[str, np.ndarray]], values: Values, cohort: Cohort | None = None
    ) -> dict[str, float]:
        """The reductions by their text; the same on all ranks. Collective.

        parts: for each part of this rank, the fields' values that it owns: n, or n × components. A part without a
        field of a reduction does not count for it; NotFound when no part of any rank has the field, unless there are
        no parts at all. InvalidArgument when fields of one reduction have different lengths (nodes and elements).
        """
        if not self.all:
            return {}
        combined = exchange(cohort, lambda: self._partial(parts, values), self._combined)
        rows = dict(zip(self.arguments, combined, strict=True))
        return {r.text: _result(r, rows[r.argument]) for r in self.all}

    def _partial(self, parts: Sequence[Mapping[str, np.ndarray]], values: Values) -> tuple[np.ndarray, set[str] | None]:
        rows = [[_moments(reduction, part, values) for part in parts] for reduction in self.arguments.values()]
        names = {name for part in parts for name in part} if parts else None
        return np.array([_joined(row) for row in rows]), names

    def _combined(self, partials: list[tuple[np.ndarray, set[str] | None]]) -> np.ndarray:
        known = [names for _, names in partials if names is not None]
        for name in sorted(self.fields) if known else ():
            if not any(name in names for names in known):
                raise NotFound(f"there is no field '{name}'{nearest(name, sorted(set().union(*known)))}")
        return np.array([_joined(rows) for rows in zip(*(rows for rows, _ in partials), strict=True)])


# Partial results: count, min, max, sum, mean, sum of squared differences from the mean.
_NOTHING = (0.0, math.inf, -math.inf, 0.0, 0.0, 0.0)


def _moments(reduction: Reduction, part: Mapping[str, np.ndarray], values: Values) -> tuple[float, ...]:
    if not reduction.fields <= part.keys():
        return _NOTHING
    lengths = {name: len(part[name]) for name in reduction.fields}
    if len(set(lengths.values())) > 1:
        raise InvalidArgument(
            f"'{reduction.text}': {' and '.join(sorted(lengths))} have different numbers of values "
            f"({', '.join(str(lengths[name]) for name in sorted(lengths))}): fields of nodes and of elements do not mix"
        )
    array = reduction.of(part, values).astype(np.float64, copy=False)
    known = ~np.isnan(array)
    array = array if known.all() else array[known]
    if array.size == 0:
        return _NOTHING
    with np.errstate(all="ignore"):
        mean = array.mean()
        return (array.size, array.min(), array.max(), array.sum(), mean, np.square(array - mean).sum())


def _joined(partials: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979)."""
    count, low, high, total, mean, squares = _NOTHING
    with np.errstate(all="ignore"):
        for n, least, most, plus, center, spread in partials:
            if n == 0:
                continue
            apart, both = center - mean, count + n
            squares += spread + (apart * apart * count * n / both if count else 0.0)
            mean = mean + apart * (n / both) if count else center
            count, low, high, total = both, min(low, least), max(high, most), total + plus
    return (count, low, high, total, mean, squares)


def _result(reduction: Reduction, row: np.ndarray) -> float:
    count, low, high, total, mean, squares = map(float, row)
    if reduction.kind == "count":
        return total if reduction.counts_truth else count
    if reduction.kind == "sum":
        return total
    if count == 0:
        return math.nan
    return {"min": low, "max": high, "mean": mean, "std": math.sqrt(squares / count)}[reduction.kind]


# ---------------------------------------------------------------------------------------------------------- history


class History:
    """The values of queries at the last `length` steps analysed, which save() and load() carry over a restart."""

    def __init__(self, length: int = MAX_PREVIOUS):
        if not 1 <= length <= MAX_PREVIOUS:
            raise InvalidArgument(f"a history holds 1 to {MAX_PREVIOUS} steps, not {length}")
        self.length = length
        self.writer = ""  # whose steps these are, where that is known
        self._values: dict[str, deque[float]] = {}

    def previous(self, query: str, k: int = 1) -> float:
        """The query's value k recorded steps ago; NaN when there are fewer."""
        values = self._values.get(query, ())
        return values[-k] if k <= len(values) else math.nan

    def record(self, queries: Mapping[str, float]) -> None:
        """The end of a step: what the queries evaluated at it become previous(query). Others keep what they have."""
        for name, value in queries.items():
            self._values.setdefault(name, deque(maxlen=self.length)).append(float(value))

    def keep(self, names: Iterable[str], length: int | None = None) -> None:
        """A pipeline was edited: forgets all other queries, and takes another length."""
        self.length = length or self.length
        known = set(names)
        self._values = {n: deque(v, maxlen=self.length) for n, v in self._values.items() if n in known}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Replaces the file. OSError with the path."""
        # JSON has no NaN and no infinity: these are text.
        plain = {n: [v if math.isfinite(v) else str(v) for v in values] for n, values in self._values.items()}
        with whole_file(Path(path)) as temporary:
            temporary.write_text(json.dumps({"version": 1, "writer": self.writer, "queries": plain}), encoding="utf-8")

    def load(self, path: str | os.PathLike[str]) -> bool:
        """Takes over a saved history; False when there is no such file. InvalidArgument when it is none; OSError."""
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(MAX_HISTORY_BYTES + 1)
            if len(text) > MAX_HISTORY_BYTES:
                raise ValueError(f"more than {MAX_HISTORY_BYTES} bytes")
            saved = json.loads(text)
            if saved["version"] != 1:
                raise ValueError(f"its version is {saved['version']}")
            values = {str(n): deque(map(float, v), maxlen=self.length) for n, v in saved["queries"].items()}
        except FileNotFoundError:
            return False
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidArgument(f"{path} is no history of queries ({error}); remove it to begin anew") from None
        self._values = values
        self.writer = str(saved.get("writer", ""))
        return True
