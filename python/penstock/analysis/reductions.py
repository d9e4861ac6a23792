"""Reductions of fields over all ranks, and the history of queries."""

from __future__ import annotations

import json
import math
import os
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..cohort import Cohort
from ..errors import InvalidArgument, NotFound
from ..names import nearest
from .agreement import exchange
from .expressions import MAX_PREVIOUS, Expression, Reduction, Values
from .files import whole_file

MAX_HISTORY_BYTES = 64 << 20


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
