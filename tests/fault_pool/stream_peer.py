"""A writer or reader of a stream in a pool, to be killed.

  stream_peer.py write STREAM STEPS QUEUE_STEPS ACKNOWLEDGE [WHERE STEP BLOCK]
  stream_peer.py read STREAM GROUP [STEP]

It says what it does, a line each: "begun N", "ended N", "closed"; "read N whole|PARTIAL", "end", "lost WHY",
"error WHAT". A writer kills itself in that step: WHERE is `begin` (inside begin_step), `put` (BLOCK blocks are filled),
`end` (inside end_step), `ended` (right after it). A reader kills itself in its STEPth step, which it holds then.
"""

import os
import signal
import sys
import threading

import numpy as np
import penstock

BLOCKS, CELLS = 4, 20_000
PATIENCE = {f"{what}_timeout_ms": 30_000 for what in ("open", "step", "close")}


def block(step, number):
    return np.full(CELLS, 1000.0 * step + number)


def whole(step):
    """All blocks of a step that is being read are of that step."""
    return all(np.array_equal(step[f"T{n}"][:], block(step.number, n)) for n in range(BLOCKS))


def say(*words):
    print(*words, flush=True)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def die_in(call):
    """Calls it, and kills the process as soon as the call lets go of the interpreter, which is inside the library (or,
    on a busy machine, right after it)."""
    go = threading.Lock()
    go.acquire()

    def wait():
        with go:
            die()

    threading.Thread(target=wait, daemon=True).start()
    sys.setswitchinterval(5e-5)
    go.release()
    call()
    threading.Event().wait()


def write(name, steps, queue_steps, acknowledge, where="", at=-1, filled=0):
    options = {"acknowledge": acknowledge, "queue_steps": queue_steps, "stripe_bytes": "256KiB", **PATIENCE}
    with penstock.create(name, engine="pool", pool="stage", rendezvous_readers=0, **options) as stream:
        for number in range(steps):
            if (where, at) == ("begin", number):
                die_in(stream.step)
            step = stream.step()
            say("begun", number)
            for index in range(BLOCKS):
                if (where, at, filled) == ("put", number, index):
                    die()
                step[f"T{index}"] = block(number, index)
            if (where, at) == ("end", number):
                die_in(step.end)
            step.end()
            say("ended", number)
            if (where, at) == ("ended", number):
                die()
    say("closed")


def read(name, group, at=-1):
    with penstock.open(name, engine="pool", pool="stage", group=group, **PATIENCE) as stream:
        for count, step in enumerate(stream):
            if count == at:
                held = step["T0"][:]  # noqa: F841 it dies with that in its hands
                die()
            say("read", step.number, "whole" if whole(step) else "PARTIAL")
        say("end")


def main():
    what, name, *words = sys.argv[1:]
    try:
        if what == "write":
            write(name, int(words[0]), int(words[1]), *words[2:4], *map(int, words[4:]))
        else:
            read(name, words[0], *map(int, words[1:]))
    except penstock.WriterLost as error:
        say("lost", error)
    except penstock.Error as error:
        say("error", type(error).__name__, error)
        sys.exit(1)


if __name__ == "__main__":
    main()
