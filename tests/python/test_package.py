"""The installed package: what `import penstock` loads, and the programs that it brings."""

import os
import re
import subprocess
import sys
from pathlib import Path

import penstock
import pytest

PACKAGE = Path(penstock.__file__).parent
TIMEOUT_S = 60
SERVERS_ONLY = re.compile("rocksdb|hdf5", re.IGNORECASE)


def test_import_loads_no_database():
    code = "import penstock; print(open('/proc/self/maps').read())"
    mapped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    libraries = {line.split("/", 1)[1] for line in mapped.stdout.splitlines() if ".so" in line}
    assert any("libpenstock" in library for library in libraries)
    assert not [library for library in libraries if SERVERS_ONLY.search(library)]


@pytest.mark.parametrize("program", ["penstock-server", "penstock-compute-worker"])
def test_its_programs_find_their_libraries(program):
    path = PACKAGE / "bin" / program
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "LD_"))}
    if program == "penstock-server":
        done = subprocess.run(
            [path, "--version"], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        assert done.stdout.split() == [program, penstock.__version__]
    else:  # it is started by servers only; the dynamic linker says whether it could be
        linked = subprocess.run(["ldd", path], env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert linked.returncode == 0 and "not found" not in linked.stdout, linked.stdout
