"""Files of a region that take the place of others once they are complete."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import InvalidArgument, WrongState

FINISHED = "The copy of a region is complete; its files take these names:"


def files_of(path: Path) -> list[Path]:
    """The files of a region, of any number of ranks and of a series; also what is being written."""
    return [Path(each) for each in _core.mesh_files_of(os.fspath(path))]


class Replacement:
    """A context in which a region is written as `beside`; at its end the files take the names of the old ones.

    An exception leaves the old files as they were, and so does the end of the program. Where that comes between the
    first name of several files and the last, the next Replacement finishes the work; until then some files are old.
    Meanwhile no other writer of the old files is accepted. Raises WrongState where there is one, or where files came
    meanwhile.
    """

    def __init__(self, path: Path):
        self._path = path.resolve() if path.is_symlink() else path
        self.beside = self._path.with_name(f"{self._path.name}.copying")
        # Complete, and what the region's files shall be, a name in each line.
        self._finished = self._path.with_name(f"{self._path.name}.copied")

    def __enter__(self) -> Replacement:
        self._held = _core.HeldMeshFiles(os.fspath(self._path))
        try:
            if self._finished.exists():  # of a program that ended while it gave the files their names
                self._take_names(self._names_left())
            for left in files_of(self.beside):
                left.unlink()
            self._there = files_of(self._path)
        except BaseException:
            self._held.release()
            raise
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None:
                self._replace()
        finally:
            if not self._finished.exists():
                for each in files_of(self.beside):
                    each.unlink()
            self._held.release()

    def _replace(self) -> None:
        written = files_of(self.beside)
        if not written:
            raise InvalidArgument(
                f"{self._path}: nothing was written beside it, so it stays: the configuration gives regions of every "
                "name another path or database; say it for the names that it is for"
            )
        self._hold_again()
        names = [self._final(each).name for each in written]
        if self._there:  # which would be lost with what the disk has not got yet
            for each in written:
                shutil.copymode(self._there[0], each)
                _sync(each)
        if len({*names, *(each.name for each in self._there)}) > 1:
            beginning = self._finished.with_name(f"{self._finished.name}.writing")
            beginning.write_text("\n".join([FINISHED, *names]), encoding="utf-8")
            _sync(beginning)
            beginning.replace(self._finished)
            _sync(self._path.parent)
        self._take_names(names)

    def _names_left(self) -> list[str]:
        head, *names = self._finished.read_bytes().decode(errors="replace").splitlines() or [""]
        if head != FINISHED or not names:
            raise InvalidArgument(f"{self._finished}: not a list of the files of a copy; give this file another name")
        return names

    def _final(self, written: Path) -> Path:
        return self._path.with_name(self._path.name + written.name.removeprefix(self.beside.name))

    def _take_names(self, names: list[str]) -> None:
        for each in files_of(self.beside):
            each.replace(self._final(each))
        for each in files_of(self._path):
            if each.name not in names:
                each.unlink(missing_ok=True)
        _sync(self._path.parent)
        self._finished.unlink(missing_ok=True)

    def _hold_again(self) -> None:
        """What is there now: somebody may have begun to write where nothing was."""
        self._held.release()
        self._held = _core.HeldMeshFiles(os.fspath(self._path))
        if files_of(self._path) != self._there:
            raise WrongState(
                f"{self._path}: its files have changed meanwhile, and stay as they are; nothing was written"
            )


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
