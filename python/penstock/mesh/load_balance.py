"""Load-balance files: which part each element of a region goes to, as SEACAS's nem_slice and nem_spread exchange it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from ..errors import InvalidArgument
from .region import Region

MOST = 2**20  # parts


@dataclass(frozen=True, eq=False)
class Balance:
    """assignment: the part of each element, through the blocks: whole numbers of shape (elements,).

    parts: how many there are; as many as are named when left out. A part may have no elements. nodes: of the mesh that
    it is for; 0 where that is not known. Raises InvalidArgument.
    """

    assignment: np.ndarray
    parts: int = 0
    nodes: int = 0

    def __post_init__(self) -> None:
        given = np.asarray(self.assignment)
        if (
            given.ndim != 1
            or given.dtype.kind not in "iu"
            or (given.size and not 0 <= given.min() <= given.max() < MOST)
        ):
            raise InvalidArgument(f"the part of each element is a whole number from 0 to {MOST - 1}, in one dimension")
        named = int(given.max(initial=0)) + 1
        parts = self.parts or named
        if not named <= parts <= MOST:
            raise InvalidArgument(f"elements go to {named} parts, and there are {parts}; {MOST} are possible")
        object.__setattr__(self, "assignment", np.ascontiguousarray(given, np.uint32))
        object.__setattr__(self, "parts", parts)


def parts_and_assignment(how: Balance | int) -> tuple[int, np.ndarray | None, int]:
    """Also the nodes. Raises InvalidArgument."""
    if isinstance(how, Balance):
        return how.parts, how.assignment, how.nodes
    if not isinstance(how, int | np.integer) or not 1 <= how <= MOST:
        raise InvalidArgument(f"parts are a number from 1 to {MOST}, or a mesh.Balance; not {type(how).__name__} {how}")
    return int(how), None, 0


def read_balance(path: Any) -> Balance:
    """Reads a load-balance file. Raises NotFound, InvalidArgument (another file, a damaged one, one of nodes)."""
    parts, assignment, nodes = _core.read_load_balance(os.fspath(path))
    return Balance(np.frombuffer(assignment, np.uint32), parts, nodes)


def write_balance(path: Any, region: Region, how: Balance | int) -> None:
    """Writes a load-balance file, in place of one that is there: elements and nodes of each part, nodes it shares.

    how: a Balance, or a number of parts with as many elements each, in their order. region: of one part.
    Raises InvalidArgument.
    """
    parts, assignment, _ = parts_and_assignment(how)
    region._core.write_load_balance(os.fspath(path), parts, assignment)
