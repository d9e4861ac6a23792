"""A writer or reader of a stream in a pool, to be killed: stream_peer.py write STREAM STEP BLOCK | read STREAM.

The writer stops in that step, with that many blocks filled, says "here", and waits to be killed.
"""

import sys

import numpy as np
import penstock

BLOCKS, CELLS = 4, 20_000
what, name = sys.argv[1:3]


def block(step, number):
    return np.full(CELLS, 1000.0 * step + number)


def say(*words):
    print(*words, flush=True)


try:
    if what == "write":
        with penstock.create(name, engine="pool", pool="stage", rendezvous_readers=0) as stream:
            for step_number in range(100_000):
                with stream.step() as step:
                    for number in range(BLOCKS):
                        step[f"T{number}"] = block(step_number, number)
                        if [step_number, number] == list(map(int, sys.argv[3:5])):
                            say("here")
                            sys.stdin.read()
    else:
        with penstock.open(name, engine="pool", pool="stage") as stream:
            for step in stream:
                first = step["T0"][:]
                at = int(first[0] // 1000)
                whole = all(np.array_equal(step[f"T{n}"][:], block(at, n)) for n in range(BLOCKS))
                say("read", step.number, "whole" if whole else "PARTIAL")
            say("end")
except penstock.WriterLost as error:
    say("lost", error)
except penstock.Error as error:
    say("error", type(error).__name__, error)
    sys.exit(1)
