"""Gets each version of the array, in columns and as float32, and prints the strongest wave along each dimension."""

import argparse

import numpy as np
import penstock


def strongest(T: np.ndarray, axis: int) -> int:
    power = np.abs(np.fft.rfft(T, axis=axis)) ** 2
    return int(power.sum(axis=1 - axis)[1:].argmax()) + 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--versions", type=int, default=10)
    run = parser.parse_args()
    with penstock.Space() as space:
        array = space.wait("T")  # until somebody has defined it
        for version in array.subscribe(stop=run.versions):  # each once both halves are there
            T = version.get(dtype="float32", order="F")
            print(f"version {version.number}: {strongest(T, 0)} waves along y, {strongest(T, 1)} along x", flush=True)


if __name__ == "__main__":
    main()
