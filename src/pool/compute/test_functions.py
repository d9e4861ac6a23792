"""Functions for the tests of the Python worker; numpy_* are what the built-ins are compared with."""

import os
import signal
import sys

import numpy as np


def _arrays(inputs):
    return [block.array for block in inputs]


def _joined(inputs):
    """The blocks put together, and where they begin."""
    if inputs[0].start is None:
        return inputs[0].array, tuple(0 for _ in inputs[0].array.shape)
    low = np.min([block.start for block in inputs], axis=0)
    high = np.max([np.add(block.start, block.array.shape) for block in inputs], axis=0)
    whole = np.zeros(tuple(int(n) for n in high - low), inputs[0].array.dtype)
    for block in inputs:
        begin = np.subtract(block.start, low)
        whole[tuple(slice(int(b), int(b) + n) for b, n in zip(begin, block.array.shape, strict=True))] = block.array
    return whole, tuple(int(n) for n in low)


def _flat(inputs):
    return np.concatenate([a.reshape(-1) for a in _arrays(inputs)])


def numpy_min(inputs):
    return np.nanmin(_flat(inputs))


def numpy_max(inputs):
    return np.nanmax(_flat(inputs))


def numpy_sum(inputs):
    flat = _flat(inputs)
    if flat.dtype.kind == "f":
        return np.sum(flat, dtype=np.float64)
    return np.sum(flat, dtype=np.complex128) if flat.dtype.kind == "c" else np.sum(flat)


def numpy_histogram(inputs, bins=10, range=None):
    flat = _flat(inputs).astype(np.float64)
    if range is None:
        flat = flat[np.isfinite(flat)]
    return np.histogram(flat, bins=bins, range=range)[0].astype(np.int64)


def numpy_subset(inputs, box):
    whole, low = _joined(inputs)
    parts = zip(box["start"], box["count"], low, strict=True)
    return np.ascontiguousarray(whole[tuple(slice(s - o, s - o + n) for s, n, o in parts)])


def numpy_downsample(inputs, factor=2):
    whole, low = _joined(inputs)
    factors = [factor] * whole.ndim if isinstance(factor, int) else factor
    return np.ascontiguousarray(whole[tuple(slice(-o % f, None, f) for o, f in zip(low, factors, strict=True))])


def numpy_first(inputs):
    return inputs[0].array


def numpy_last(inputs):
    return inputs[-1].array


def doubled(inputs):
    return 2 * inputs[0].array


def energy(inputs, scale=1.0):
    return scale * sum(float((block.array**2).sum()) for block in inputs), {"blocks": len(inputs)}


def text(inputs):
    return " ".join(f"{block.name}:{block.array.dtype}" for block in inputs)


def nothing(inputs):
    return None


def write_input(inputs):
    inputs[0].array[0] = 1


def fails(inputs):
    raise ValueError("no good")


def unsendable(inputs):
    return object()


def hog(inputs):
    return np.ones(1 << 30, np.float64)[:1]


def huge(inputs):
    return np.zeros(64 << 20, np.uint8)


def spin(inputs):
    while True:
        pass


def crash(inputs):
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(inputs):
    os._exit(5)


def prints(inputs):
    print("x" * 100)
    print("y", file=sys.stderr)
    return 1
