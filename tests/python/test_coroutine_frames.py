"""g++ 12 lays some coroutines without local variables out wrongly (see src/fabric/task.hpp): such a build dies."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", "build"))
CALL = re.compile(r"call.*TaskPromiseBase::unhandled_exception")
PROMISE = re.compile(r"(?:lea +(0x[0-9a-f]+)\(%r\w+\)|add +\$(0x[0-9a-f]+)),%rdi")
HANDLE_BYTES = 16  # the frame's two function pointers, before the promise


def promise_offsets(binary):
    """Where coroutines find their promise in their frame, as far as the machine code shows."""
    command = ["objdump", "-dC", "--no-show-raw-insn", str(binary)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()
    offsets = []
    for number, line in enumerate(lines):
        if CALL.search(line):
            found = [match for before in lines[number - 4 : number] if (match := PROMISE.search(before))]
            offsets += [int(found[-1][1] or found[-1][2], 16)] if found else []
    return offsets


@pytest.mark.parametrize("binary", ["libpenstock.so", "bin/penstock-server"])
def test_promises_lie_where_handles_look(binary):
    if shutil.which("objdump") is None or os.uname().machine != "x86_64":
        pytest.skip("needs objdump (Debian: binutils) and an x86-64")
    if not (BUILD / binary).exists():
        pytest.skip(f"{binary} was not built")
    offsets = promise_offsets(BUILD / binary)
    assert len(offsets) > 50, "the pattern no longer fits the machine code"
    assert set(offsets) == {HANDLE_BYTES}
