"""A writer: write.py STREAM STEPS [option=value...]. Says where it is on its first line, then what happens."""

import os
import sys

import numpy as np
import penstock

name, steps = sys.argv[1], int(sys.argv[2])
options = dict(word.split("=", 1) for word in sys.argv[3:])


def say(*words):
    print(*words, flush=True)


penstock._core.set_first_warning(int(os.environ.get("FIRST_WARNING_MS", "10000")))
try:
    with penstock.create(name, **options) as stream:
        say("address", stream.address)
        for t in range(steps):
            with stream.step() as step:
                step["T"] = np.arange(100_000, dtype=np.float64) + t
                step.attributes["time"] = t / 2
            say("wrote", t)
        # Steps that are still unread hold up the end: readers have close_timeout for them.
    say("closed")
except penstock.Error as error:
    say("error", type(error).__name__, error)
    sys.exit(1)
