"""scripts/steps shows where a make target is, and why it failed. The tools that it calls are stand-ins."""

import os
import select
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

STEPS = Path(__file__).with_name("steps")


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "scripts").mkdir()
    shutil.copy(STEPS, tmp_path / "scripts")
    program(tmp_path / "scripts/install_deps", "true")
    return tmp_path


def program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def command(tree, *steps):
    path = f"{tree / 'bin'}:{os.environ['PATH']}"
    return {"args": ["scripts/steps", *steps], "cwd": tree, "env": os.environ | {"PATH": path, "CI": "1"}, "text": True}


def test_it_numbers_the_steps_and_keeps_their_output_in_files(tree):
    program(tree / "bin/cmake", 'echo "[1/2] Building CXX object a.o"')
    done = subprocess.run(**command(tree, "packages", "environment", "library"), capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    ends = [line.split("  ") for line in done.stdout.splitlines() if line.endswith("done")]
    assert [end[0] for end in ends] == [
        "[1/3] Debian packages",
        "[2/3] Python environment (.venv)",
        "[3/3] library and programs",
    ]
    assert "[1/2] Building" in (tree / "build/log/library.log").read_text()


def test_a_compiler_s_messages_are_shown_and_the_file_is_named(tree):
    failing = "\n".join(
        [
            "echo '[1/9] Building CXX object a.o'",
            "echo 'FAILED: b.o'",
            "echo \"b.cpp:3:1: error: expected ';'\"",
            "echo '[2/9] Building CXX object c.o'",
            "exit 3",
        ]
    )
    program(tree / "bin/cmake", failing)
    done = subprocess.run(**command(tree, "library"), capture_output=True, timeout=60)
    assert done.returncode == 3
    assert "b.cpp:3:1: error: expected ';'" in done.stderr and "c.o" not in done.stderr
    assert "build/log/library.log" in done.stderr.splitlines()[-1]


def test_other_tools_show_the_end_of_what_they_printed(tree):
    program(tree / "scripts/install_deps", '[ "$1" = venv ] && seq 100 && exit 1 || true')
    program(tree / "bin/cmake", "exec tail -f /dev/null")  # compiles while packages are installed, and ends with them
    done = subprocess.run(**command(tree, "environment", "library"), capture_output=True, timeout=60)
    assert done.returncode == 1
    assert "\n100\n" in done.stderr and "\n79\n" not in done.stderr and "environment.log" in done.stderr


def test_an_interrupt_ends_what_a_step_started(tree):
    program(tree / "bin/cmake", "echo $$ >pid; mv pid started; exec cat fifo")
    os.mkfifo(tree / "fifo")
    process = subprocess.Popen(**command(tree, "library"), stderr=subprocess.PIPE, start_new_session=True)
    with open(tree / "fifo", "wb", buffering=0) as fifo:  # waits until the tool reads it
        os.killpg(process.pid, signal.SIGTERM)  # SIGINT is ignored where the tests run in the background
        _, errors = process.communicate(timeout=60)
        reading = select.poll()
        reading.register(fifo, 0)  # POLLERR: nobody reads any more
        assert reading.poll(60_000), "the tool goes on"
    assert process.returncode == 130 and "stopped after" in errors
