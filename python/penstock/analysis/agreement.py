"""How the ranks of an analysis agree: by one gather and one broadcast of their cohort.

All of them make the same calls, in the same order. What fails on one rank is raised on all.
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from ..cohort import Cohort
from ..errors import Error

Result = TypeVar("Result")
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
        others = (_tried(partial(_unpickled, data)) for data in gathered[1:])
        everything = [mine, *(found or (None, failure) for found, failure in others)]
        errors = [error for _, error in everything]
        outcome: tuple[Any, Exception | None]
        if any(error is not None for error in errors):
            outcome = None, _the_error(errors)
        else:
            outcome = _tried(lambda: combine([result for result, _ in everything]))
        answer = _pickled(outcome)
    result, error = _unpickled(cohort.broadcast(answer, 0))  # what this raises, it raises on this rank alone
    if error is not None:
        error.on_all_ranks = True  # type: ignore[attr-defined]
        raise error
    answered: Result = result
    return answered


def together(cohort: Cohort | None, work: Callable[[], Result]) -> Result:
    """What work() gives on this rank; what fails on one is raised on all. Collective.

    work() may exchange() itself, and does not catch what that raises. Errors raised here have the attribute
    on_all_ranks: False where the others, in another call, could not be told.
    """
    if cohort is None or cohort.size == 1:
        return work()
    try:
        result = work()
    except (Exception, SystemExit) as error:
        if hasattr(error, "on_all_ranks"):
            raise
        # A rank that fails alone gives its error to whichever exchange() the others are in.
        failure = _with_text(error)
        try:
            exchange(cohort, lambda: _raise(failure), lambda _: None)
        except Exception as known:
            if getattr(known, "on_all_ranks", False):
                raise known from error
            own = _named(cohort.rank, failure)  # the others are in another call, fail there, and cannot say it
            own.on_all_ranks = False  # type: ignore[attr-defined]
            raise own from known
    exchange(cohort, lambda: None, lambda _: None)
    return result


def _the_error(errors: list[Exception | None]) -> Exception:
    """The error that all ranks raise. errors: of each rank. One that ends the analysis goes before one with the
    attribute `leaves_out`, after which it goes on."""
    failed = [(rank, error) for rank, error in enumerate(errors) if error is not None]
    rank, chosen = min(failed, key=lambda each: hasattr(each[1], "leaves_out"))
    same = all(type(each) is type(chosen) and str(each) == str(chosen) for each in errors)
    return chosen if same else _named(rank, chosen)


def _with_text(error: BaseException) -> Exception:
    if not isinstance(error, Exception):
        return Error(f"the program left with status {getattr(error, 'code', error)}")
    if str(error):
        return error
    *_, place = traceback.extract_tb(error.__traceback__)
    return Error(f"{type(error).__name__} in {place.filename}, line {place.lineno}")


def _raise(failure: Exception) -> None:
    raise failure


def _named(rank: int, error: Exception) -> Exception:
    """The error, which says of which rank it is, with at most MAX_MESSAGE characters of what it says."""
    if isinstance(error, OSError) and error.strerror:
        with contextlib.suppress(Exception):  # a class of the script's own may take other arguments
            return type(error)(error.errno, f"rank {rank}: {error.strerror}", error.filename)
    elif len(error.args) == 1 and isinstance(error.args[0], str):
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
    """What _pickled() was given. Raises Error where this process cannot unpickle it."""
    try:
        outcome: tuple[Any, Exception | None] = pickle.loads(data)
        return outcome
    except Exception as error:
        raise Error(f"a result cannot be unpickled: {type(error).__name__}: {error}") from error
