"""Functions that a pool's servers run beside their data. penstock-server gets them as compute_functions."""

from typing import Any


def energy(inputs: list[Any], scale: float = 1.0) -> float:
    """inputs: the objects or blocks that the caller chose; each has array, name and, for a block, start."""
    return scale * sum(float((block.array**2).sum()) for block in inputs)
