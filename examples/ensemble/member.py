"""One run of the ensemble: heat in a square plate with a warm spot, put into the pool as it is computed.

    python member.py member/007 0.04 0.35

The arguments after the name are the run's parameters: the plate's diffusivity, and where along x the spot is. No file
is opened: what the run says of itself is in the pool, too.
"""

import argparse
import json
from collections.abc import Iterator

import numpy as np
import penstock

END = 1.0  # of the simulated time; nothing changes with it but how near to its rest the plate gets


def snapshots(diffusivity: float, x: float, cells: int, count: int) -> Iterator[tuple[float, np.ndarray]]:
    """Yields (time, T) `count` times; T is cells × cells, 0 on the edge. Explicit Euler in time, 5-point Laplacian."""
    at = np.linspace(0, 1, cells)
    h = at[1]
    spot = np.exp(-((at[:, None] - x) ** 2 + (at[None, :] - 0.5) ** 2) / (2 * 0.12**2))
    steps = int(np.ceil(END / count / (0.2 * h**2 / diffusivity)))  # between snapshots; stable up to 0.25
    dt = END / count / steps
    T = np.zeros((cells, cells))
    for number in range(1, count + 1):
        for _ in range(steps):
            laplacian = T[:-2, 1:-1] + T[2:, 1:-1] + T[1:-1, :-2] + T[1:-1, 2:] - 4 * T[1:-1, 1:-1]
            T[1:-1, 1:-1] += dt * (diffusivity / h**2 * laplacian + spot[1:-1, 1:-1])
        yield END * number / count, T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("row", help="the run's name, the row of its objects in the pool")
    parser.add_argument("diffusivity", type=float)
    parser.add_argument("x", type=float)
    parser.add_argument("--cells", type=int, default=64)
    parser.add_argument("--snapshots", type=int, default=20)
    run = parser.parse_args()
    with penstock.Pool() as pool:
        pool.put(run.row, "parameters", json.dumps({"diffusivity": run.diffusivity, "x": run.x}))
        for time, T in snapshots(run.diffusivity, run.x, run.cells, run.snapshots):
            pool.put(run.row, f"T/{time:.4f}", T)


if __name__ == "__main__":
    main()
