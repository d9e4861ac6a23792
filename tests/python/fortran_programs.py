"""The programs of tests/fortran, which tests start."""

import os
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(os.environ.get("PENSTOCK_BIN", Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "bin"))
DEADLINE_S = 60.0

needs_fortran = pytest.mark.skipif(
    not (BIN / "fortran_echo").exists(), reason="the Fortran programs are not built (they need a Fortran compiler)"
)


def starter(tmp_path):
    """For a fixture: start(words, **options), which starts a program with these options for all of its streams."""
    running = []

    def begin(*words, launcher=(), **options):
        configuration = tmp_path / f"fortran{len(running)}.yaml"
        stated = ", ".join(f"{key}: {value}" for key, value in options.items())
        configuration.write_text(f'streams: {{"*": {{{stated}}}}}\n')
        settings = {"PENSTOCK_DIRECTORY": str(tmp_path / "streams"), "PENSTOCK_LISTEN": "127.0.0.1"}
        settings |= {"PENSTOCK_CONFIG": str(configuration), "OMPI_MCA_orte_tmpdir_base": tempfile.mkdtemp(dir=tmp_path)}
        command = [*launcher, BIN / words[0], *words[1:]]
        process = subprocess.Popen(
            list(map(str, command)),
            env=os.environ | settings,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        if not process.stdout.closed:  # the test did not look: what is shown when it failed
            print("".join(process.communicate()))


def ended(process):
    """What a program that ends well printed."""
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, output + errors
    return output
