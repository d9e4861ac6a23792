"""Programs that write streams in processes of their own, and the commands beside them."""

import contextlib
import os
import select
import subprocess
import sys
import textwrap

import pytest

TIMEOUT_S = 120

# Says what happens on its standard output, and goes on when a line comes in.
PRELUDE = """
import os, signal, sys
import numpy as np
import penstock

def say(word):
    print(word, flush=True)

def wait():
    sys.stdin.readline()

def write(stream, n):
    with stream.step() as step:
        step["T"] = np.full((4, 6), float(n))
        step["n"] = np.int64(n)
        step.attributes["time"] = n / 2
        step.attributes["code"] = "test"
        step.attributes["T/units"] = "K"
"""


@pytest.fixture(name="processes")  # the name that tests ask for is not the one that they import
def streams_and_commands(tmp_path):
    """writer(script) starts a Python program; penstock(*words) runs the command, start=True only starts it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    environment |= {"PENSTOCK_DIRECTORY": str(tmp_path / "runtime" / "penstock"), "COLUMNS": "160"}
    options = {"cwd": tmp_path, "env": environment, "text": True}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with contextlib.ExitStack() as stack:

        def start(command, **more):
            process = subprocess.Popen(command, **options, **pipes, **more)
            stack.callback(end, process)
            return process

        def writer(script):
            return start([sys.executable, "-c", PRELUDE + textwrap.dedent(script)])

        def penstock(*words, only_start=False, **more):
            command = [sys.executable, "-m", "penstock.cli.main", *map(str, words)]
            if only_start:
                return start(command)
            return subprocess.run(
                command, **{**options, "env": {**environment, **more}}, capture_output=True, timeout=TIMEOUT_S
            )

        yield writer, penstock


def end(process):
    process.kill()
    process.communicate()


def next_line(process):
    ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
    assert ready, "nothing was said in time"
    line = process.stdout.readline().strip()
    assert line, process.stderr.read()
    return line


def finish(process, say=""):
    out, errors = process.communicate(say, timeout=TIMEOUT_S)
    return process.returncode, out, errors


# An own stream that retains its newest step for whoever comes, and waits.
RETAINING = """
with penstock.create("heat", rendezvous_readers=0, reserve_steps=1, min_max=True) as stream:
    for n in range(3):
        write(stream, n)
    say("ready")
    wait()
    write(stream, 3)
"""

FIVE_STEPS = """
with penstock.create("heat", queue_steps=2) as stream:
    for n in range(5):
        write(stream, n)
"""
