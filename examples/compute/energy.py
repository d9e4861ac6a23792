"""Functions that a pool's servers run beside their data. penstock-server gets them as compute_functions."""


def energy(inputs, scale=1.0):
    """inputs: the objects or blocks that the caller chose; each has array, name and, for a block, start."""
    return scale * sum(float((block.array**2).sum()) for block in inputs)
