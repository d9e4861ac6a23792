"""Compares what the programs left in the space with NumPy, and writes what the servers did: servers.json.

Exits with 1 when the gradient or its statistics differ. Versions of V that are not kept any more are not compared.
"""

import argparse
import csv
import json
from pathlib import Path

import numpy as np
import penstock

TOLERANCE = 1e-6  # of float32 values below 0.5


def magnitude(V: np.ndarray) -> np.ndarray:
    """|grad V| by central differences, periodic, in cells of size 1."""
    differences = [np.roll(V, -1, axis) - np.roll(V, 1, axis) for axis in range(V.ndim)]
    length: np.ndarray = 0.5 * np.sqrt(sum(one**2 for one in differences))
    return length


def difference(space: penstock.Space, version: int, row: dict[str, str]) -> float:
    """The largest difference of the gradient's elements, its mean and its maximum. Has the servers convert nothing."""
    expected = magnitude(space["V", version][...].astype("float32").astype("float64"))
    found = space["gradient", version][...]
    figures = abs(expected.mean() - float(row["mean"])), abs(expected.max() - float(row["max"]))
    return float(max(np.abs(found - expected).max(), *figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("output/heterogeneous"))
    run = parser.parse_args()
    with open(run.output / "statistics.csv", newline="", encoding="utf-8") as file:
        rows = {int(row["version"]): row for row in csv.DictReader(file)}
    with penstock.Space() as space:
        (run.output / "servers.json").write_text(json.dumps(space.status, indent=2) + "\n", encoding="utf-8")
        versions = space["V"].versions
        worst = max(difference(space, version, rows[version]) for version in versions)
    print(f"check: versions {versions[0]} to {versions[-1]}: largest difference from NumPy {worst:.1e}")
    if not worst <= TOLERANCE:
        raise SystemExit(f"check: the gradient differs from NumPy's by more than {TOLERANCE:g}")


if __name__ == "__main__":
    main()
