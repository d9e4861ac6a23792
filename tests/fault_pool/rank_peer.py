"""One rank of a reader cohort, as a process that is told what to do.

  rank_peer.py STREAM RANK SIZE FOLDER

It reads "take", "end" or "rest" from standard input, a line each, and answers "given N" and "ended N"; "rest" takes and
ends every step to the end of the stream, then says "over". Something wrong is "error WHAT". FOLDER: where ranks meet.
"""

import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import penstock

PATIENCE = {f"{what}_timeout_ms": 30_000 for what in ("open", "step", "close")}
MEET_S = 60


class FolderCohort:
    """Ranks that meet in a folder, while they open and close a stream."""

    def __init__(self, rank, size, folder):
        self.rank, self.size, self._folder, self._count = rank, size, Path(folder), 0

    def _say(self, what, data):
        hidden = self._folder / f".{what}"
        hidden.write_bytes(data)
        os.replace(hidden, self._folder / what)

    def _hear(self, what):
        until = time.monotonic() + MEET_S
        while not (self._folder / what).exists():
            assert time.monotonic() < until, f"{what} did not come"
            threading.Event().wait(0.01)  # files have no waiting form
        return (self._folder / what).read_bytes()

    def broadcast(self, data, root):
        self._count += 1
        if self.rank == root:
            self._say(f"{self._count}", data)
        return data if self.rank == root else self._hear(f"{self._count}")

    def gather(self, data, root):
        self._count += 1
        self._say(f"{self._count}-{self.rank}", data)
        return [self._hear(f"{self._count}-{rank}") for rank in range(self.size)] if self.rank == root else None


def say(*words):
    print(*words, flush=True)


def take(stream):
    step = stream.step()
    whole = np.array_equal(step["T"][:], np.full(1000, float(step.number)))
    say("given", step.number) if whole else say("error", f"step {step.number} is not whole")
    return step


def main():
    name, rank, size, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    cohort, step = FolderCohort(rank, size, folder), None
    with penstock.open(name, comm=cohort, engine="pool", pool="stage", delivery="latest", **PATIENCE) as stream:
        say("open", 0)
        for line in sys.stdin:
            if line.strip() == "take":
                step = take(stream)
            elif line.strip() == "end":
                step.end()
                say("ended", step.number)
            else:
                while True:
                    take(stream).end()


if __name__ == "__main__":
    try:
        main()
    except penstock.EndOfStream:
        say("over", 0)
    except Exception as error:
        say("error", type(error).__name__, error)
        raise
