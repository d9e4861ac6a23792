"""Load-balance files: which part each element of a region goes to, as SEACAS's nem_slice and nem_spread exchange it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidArgument
from .region import Region


@dataclass(frozen=True)
class Balance:
    """assignment: the part of each element, through the blocks: uint32 of shape (elements,). parts: how many."""

    assignment: np.ndarray
    parts: int


def balance(assignment: Any, parts: int | None = None) -> Balance:
    """A Balance of any array of whole numbers. parts: as many as are named when left out. Raises InvalidArgument."""
    given = np.asarray(assignment)
    if given.ndim != 1 or given.dtype.kind not in "iu" or (given.size and not 0 <= given.min() <= given.max() < 2**20):
        raise InvalidArgument(f"the part of each element is a whole number from 0 to {2**20 - 1}, in one dimension")
    named = int(given.max(initial=0)) + 1
    return Balance(np.ascontiguousarray(given, np.uint32), named if parts is None else parts)


def read_balance(path: Any) -> Balance:
    """Reads a load-balance file. Raises NotFound, InvalidArgument (another file, a damaged one, one of nodes)."""
    parts, assignment = _core.read_load_balance(os.fspath(path))
    return Balance(np.frombuffer(assignment, np.uint32), parts)


def write_balance(path: Any, region: Region, how: Balance | int) -> None:
    """Writes a load-balance file, in place of one that is there: elements and nodes of each part, nodes it shares.

    how: a Balance, or a number of parts with as many elements each, in their order. region: of one part.
    Raises InvalidArgument.
    """
    parts, assignment = (how, None) if isinstance(how, int) else (how.parts, how.assignment)
    region._core.write_load_balance(os.fspath(path), parts, assignment)
