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


def test_import_loads_no_http_and_no_tls():
    """The client of etcd brings them; it is loaded for an address of etcd."""
    (extension,) = PACKAGE.glob("_core*.so")
    linked = subprocess.run(["ldd", extension], capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout
    assert "libpenstock.so" in linked
    assert not re.findall(r"libpenstock_etcd|httplib|libssl|brotli|libz\.", linked)


@pytest.mark.skipif(not (PACKAGE / "lib/libpenstock_etcd.so").exists(), reason="built without cpp-httplib")
def test_the_client_of_etcd_is_found():
    with pytest.raises(penstock.Error, match=r"etcd at 127\.0\.0\.1:1"):
        penstock.Pool("objects", directory="etcd://127.0.0.1:1", timeout=1)


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
