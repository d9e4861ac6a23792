"""The Gray-Scott system of sims/gray-scott in NumPy: short, slow, and equal to it bit by bit.

run(settings) yields (step, U, V) every plot_every time steps, as the program puts them out. Arrays are float64 with
shape (nx, ny, nz). Sources: J. E. Pearson, Science 261 (1993) 189-192; the Gray-Scott tutorial of ADIOS2.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import yaml

GOLDEN = 0x9E3779B97F4A7C15
WORD = 2**64 - 1


@dataclass
class Settings:
    """The keys of a settings file and their defaults; see settings.hpp."""

    shape: tuple[int, int, int] = (64, 64, 64)
    Du: float = 0.2
    Dv: float = 0.1
    F: float = 0.02
    k: float = 0.048
    dt: float = 1.0
    noise: float = 0.0
    box: int = 12
    steps: int = 1000
    plot_every: int = 20
    seed: int = 1
    stream: str = "gray-scott"


def load_settings(path: str | os.PathLike[str]) -> Settings:
    """Reads a settings file. Ranges are checked by the program, not here; an unknown key is a ValueError."""
    with open(path, encoding="utf-8") as file:
        values = yaml.safe_load(file) or {}
    if "L" in values:
        values["shape"] = (values.pop("L"),) * 3
    unknown = set(values) - {field.name for field in fields(Settings)}
    if unknown:
        raise ValueError(f"{path}: unknown keys: {', '.join(sorted(unknown))}")
    return Settings(**values)


def mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64; x is a uint64 array and is overwritten."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def uniform(seed: int, step: int, cells: np.ndarray) -> np.ndarray:
    """Noise in [-1, 1) of one time step; cells: the global indices times GOLDEN, uint64."""
    stream = mix(np.array([(seed * GOLDEN + step) & WORD], dtype=np.uint64))
    # 52 random bits as the fraction of a number in [1, 2).
    bits = mix(cells + stream) >> np.uint64(12) | np.uint64(0x3FF0000000000000)
    return bits.view(np.float64) * 2.0 - 3.0


def initial(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """U = 1 and V = 0, but U = 0.25 and V = 0.33 in a box in the middle."""
    U = np.ones(settings.shape)
    V = np.zeros(settings.shape)
    box = tuple(slice((n - settings.box) // 2, (n - settings.box) // 2 + settings.box) for n in settings.shape)
    U[box] = 0.25
    V[box] = 0.33
    return U, V


def laplacian(field: np.ndarray) -> np.ndarray:
    """The mean of the six neighbours minus the centre, added up in the program's order."""
    neighbours: np.ndarray = np.roll(field, 1, axis=0) + np.roll(field, -1, axis=0)
    for axis in (1, 2):
        neighbours += np.roll(field, 1, axis=axis)
        neighbours += np.roll(field, -1, axis=axis)
    change: np.ndarray = neighbours * (1.0 / 6.0) - field
    return change


def run(settings: Settings) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    U, V = initial(settings)
    kill = settings.F + settings.k
    cells = np.arange(U.size, dtype=np.uint64).reshape(U.shape) * np.uint64(GOLDEN)
    for step in range(settings.steps):
        reaction = U * V * V
        rate_U = settings.Du * laplacian(U) - reaction + settings.F * (1.0 - U)
        if settings.noise:
            rate_U += settings.noise * uniform(settings.seed, step, cells)
        rate_V = settings.Dv * laplacian(V) + reaction - kill * V
        U = U + settings.dt * rate_U
        V = V + settings.dt * rate_V
        if (step + 1) % settings.plot_every == 0:
            yield step + 1, U, V
