"""Computes some rows of a travelling wave, and puts them into the space of the pool, a version for each step."""

import argparse

import numpy as np
import penstock

SHAPE = (256, 192)


def wave(rows: np.ndarray, version: int) -> np.ndarray:
    y, x = np.meshgrid(rows, np.arange(SHAPE[1]), indexing="ij")
    values: np.ndarray = np.sin(2 * np.pi * (4 * x / SHAPE[1] + 3 * y / SHAPE[0] - version / 10))
    return values


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, required=True, help="row")
    parser.add_argument("--last", type=int, required=True, help="the row behind the last")
    parser.add_argument("--versions", type=int, default=10)
    run = parser.parse_args()
    rows = slice(run.first, run.last)
    with penstock.Space() as space:
        T = space.define("T", "float64", SHAPE)  # who comes first; the others get the same
        for version in range(run.versions):
            T[version][rows] = wave(np.arange(SHAPE[0])[rows], version)


if __name__ == "__main__":
    main()
