#!/usr/bin/env python3
"""The storage that discards, against a program whose operations are known: what was synced is there, nothing else is.

check_roll_back.py --preload libunsynced_preload.so
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from roll_back import roll_back

# Runs below the watched folder and ends by SIGKILL.
PROGRAM = r"""
import os, signal
def write(name, data, flags=os.O_WRONLY | os.O_CREAT, sync=False, offset=None):
    fd = os.open(name, flags, 0o600)
    os.write(fd, data) if offset is None else os.pwrite(fd, data, offset)
    if sync:
        os.fsync(fd)
    os.close(fd)
def sync_folder(name):
    fd = os.open(name, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)

write("synced", b"synced", sync=True)
write("appended", b"first", sync=True)
write("overwritten", b"0123456789", sync=True)
write("truncated", b"0123456789", sync=True)
write("emptied", b"0123456789", sync=True)
write("old_name", b"renamed", sync=True)
write("replacing", b"new", sync=True)
write("replaced", b"old", sync=True)
write("removed", b"removed", sync=True)
write("erased", b"erased", sync=True)
os.mkdir("folder")
sync_folder(".")
write("appended", b"-second", flags=os.O_WRONLY | os.O_APPEND)
write("overwritten", b"xxx", offset=4)
write("overwritten", b"yyy", offset=9)
fd = os.open("truncated", os.O_WRONLY)
os.ftruncate(fd, 3)
os.pwrite(fd, b"zz", 3)
os.close(fd)
write("emptied", b"new", flags=os.O_WRONLY | os.O_TRUNC)
os.rename("old_name", "new_name")
os.rename("replacing", "replaced")
os.unlink("removed")
write("base", b"changed", flags=os.O_WRONLY | os.O_TRUNC)
write("unsynced", b"unsynced")
write("nameless", b"synced, but its name is not", sync=True)
write("folder/kept", b"kept", sync=True)
os.unlink("erased")
sync_folder("folder")
os.rename("folder/kept", "folder/kept2")
write("folder/unsynced", b"bytes")
sync_folder("folder")
os.mkdir("folder2")
write("folder2/file", b"in a folder without a name", sync=True)
sync_folder("folder2")
write("partly", b"half", sync=False)
os.kill(os.getpid(), signal.SIGKILL)
"""

EXPECTED = {
    "base": b"was there",
    "synced": b"synced",
    "appended": b"first",
    "overwritten": b"0123456789",
    "truncated": b"0123456789",
    "emptied": b"0123456789",
    "old_name": b"renamed",
    "replacing": b"new",
    "replaced": b"old",
    "removed": b"removed",
    "erased": b"erased",
    "folder/kept2": b"kept",
    "folder/unsynced": b"",  # its name is durable, its bytes are not
}


def found_in(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def run(preload, folder, program):
    root, journal = folder / "root", folder / "journal"
    environment = dict(os.environ, LD_PRELOAD=preload)
    environment.update(PENSTOCK_UNSYNCED_ROOT=str(root), PENSTOCK_UNSYNCED_JOURNAL=str(journal))
    command = [sys.executable, "-S", "-B", "-c", program]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=60), root, journal


def check_all_is_lost(preload, folder):
    result, root, journal = run(preload, folder, PROGRAM)
    assert result.returncode == -signal.SIGKILL, result.stderr
    second = run(preload, folder, 'open("x", "wb", buffering=0)')[0]
    assert second.returncode == -signal.SIGABRT and "roll back first" in second.stderr, second.stderr
    summary = roll_back(root, journal)
    assert found_in(root) == EXPECTED, found_in(root)
    assert not (root / "folder2").exists() and not journal.exists()
    print(f"all that was not synced is lost: {summary}")


def check_some_survives(preload, folder, seed):
    """What was synced and not changed since is there whatever survives of the rest."""
    result, root, journal = run(preload, folder, PROGRAM)
    assert result.returncode == -signal.SIGKILL, result.stderr
    roll_back(root, journal, seed)
    found = found_in(root)
    assert found["synced"] == b"synced" and found["folder/kept2"] == b"kept", found
    assert found["appended"].startswith(b"first"), found
    assert b"renamed" in (found.get("old_name"), found.get("new_name")), found
    assert found["replaced"] in (b"old", b"new"), found
    assert found["overwritten"] in (b"0123456789", b"0123xxx789", b"0123xxx78yyy", b"0123xxx78yy", b"0123xxx78y") or (
        found["overwritten"].startswith(b"0123xxx78")
    ), found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preload", required=True)
    arguments = parser.parse_args()
    for seed in [None, *range(20)]:
        with tempfile.TemporaryDirectory(prefix="penstock-unsynced-") as name:
            folder = Path(name)
            (folder / "root").mkdir()
            (folder / "root" / "base").write_bytes(b"was there")
            if seed is None:
                check_all_is_lost(arguments.preload, folder)
            else:
                check_some_survives(arguments.preload, folder, seed)


if __name__ == "__main__":
    main()
