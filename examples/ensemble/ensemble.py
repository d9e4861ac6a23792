"""Starts the runs of the ensemble, a few at a time: first those that are held out, to test the model, then the others.

    python ensemble.py --members 48 --held-out 8 --at-once 2

Each is a program of its own (member.py) that puts what it computes into the pool.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

DIFFUSIVITY = (0.02, 0.08)
X = (0.25, 0.75)


def halton(number: int, base: int) -> float:
    """The element `number`, from 1, of van der Corput's sequence: fills [0, 1) evenly, however many there are."""
    value, share = 0.0, 1.0
    while number:
        share /= base
        value += share * (number % base)
        number //= base
    return value


def parameters(number: int, margin: float = 0.0) -> tuple[float, float]:
    """Of a run: a point of the rectangle, or of what is left of it without a margin (a share of each side)."""
    u, v = (margin + (1 - 2 * margin) * halton(number, base) for base in (2, 3))
    return DIFFUSIVITY[0] * (DIFFUSIVITY[1] / DIFFUSIVITY[0]) ** u, X[0] + (X[1] - X[0]) * v


def runs(members: int, held_out: int) -> Iterator[tuple[str, float, float]]:
    """(name, diffusivity, x) of each. Those held out lie between the others, not on the rim."""
    for number in range(held_out):
        yield f"held-out/{number:03}", *parameters(1000 + 7 * number, margin=0.1)
    for number in range(members):
        yield f"member/{number:03}", *parameters(1 + number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=48)
    parser.add_argument("--held-out", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=2, help="so many run together")
    options, further = parser.parse_known_args()
    program = [sys.executable, "-B", str(Path(__file__).with_name("member.py"))]

    def run(words: tuple[str, float, float]) -> None:
        subprocess.run([*program, *map(str, words), *further], stdin=subprocess.DEVNULL, check=True)

    with ThreadPoolExecutor(options.at_once) as slots:
        for ended in [slots.submit(run, words) for words in runs(options.members, options.held_out)]:
            ended.result()
    print(f"ensemble: {options.members} members and {options.held_out} held out have ended")


if __name__ == "__main__":
    main()
