"""Files of a region that take the place of others once they are complete."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .. import _core


def files_of(path: Path) -> list[Path]:
    """The files of a region, of any number of ranks and of a series; also what is being written."""
    return [Path(each) for each in _core.mesh_files_of(os.fspath(path))]


class Replacement:
    """A context in which a region is written as `beside`; at its end the files take the names of the old ones.

    An exception leaves the old files as they were. So does the end of the program, except between the first name of
    several files and the last. Meanwhile no other writer of the old files is accepted: raises WrongState where there is
    one.
    """

    def __init__(self, path: Path):
        self._path = path
        self.beside = path.with_name(f"{path.name}.copying")

    def __enter__(self) -> Replacement:
        self._held = _core.HeldMeshFiles(os.fspath(self._path))
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            written = files_of(self.beside)
            if kind is None:
                self._rename(written)
            else:
                for each in written:
                    each.unlink()
        finally:
            self._held.release()

    def _rename(self, written: list[Path]) -> None:
        names = {
            each: self._path.with_name(self._path.name + each.name.removeprefix(self.beside.name)) for each in written
        }
        old = files_of(self._path)
        if old:  # which would be lost with what the disk has not got yet
            for each in written:
                _sync(each)
        for each, name in names.items():
            each.replace(name)
        for each in old:
            if each not in names.values():
                each.unlink(missing_ok=True)
        if old:
            _sync(self._path.parent)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
