"""Changes of a region that is there, in files: what `penstock mesh modify` does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import _core
from ..errors import InvalidArgument, Unsupported
from .copy import Copied, Edit, transfer
from .region import Region, create
from .replacement import Replacement


def modify(
    name: str | os.PathLike[str],
    change: Callable[[Edit], None],
    *,
    progress: Callable[[int, float], None] = lambda _state, _time: None,
    context: Any = None,
    **options: Any,
) -> Copied:
    """Changes a region in files: NAME, NAME.RANKS.RANK, and the files of its series.

    change: changes `edit.model`, and gives values of what is new by `edit[entity, field] = values`: an array, or a
    function of a State. It is called for each part, and again where the topology changes. Everything is written anew
    beside the files, and takes their names at the end: until then, and after an error or the program's end, they are as
    they were. options: of create(); format, compression and states_per_file are those of the files otherwise.
    Raises NotFound, InvalidArgument, Unsupported (no files), WrongState (the files are being written).
    """
    from ..context import _default_context

    path = Path(name)
    if options.get("database", _core.mesh_database_of(os.fspath(path))) not in ("exodus", "nemesis"):
        raise Unsupported(f"{path}: a region is modified in files only; copy it to a file: penstock mesh copy")
    if "path" in options or "resume" in options:
        raise InvalidArgument(f"{path}: a region is modified where it is: path and resume are no options of that")
    context = context if context is not None else _default_context()
    with Replacement(path) as replacement:
        kept = dict(line.split(": ", 1) for line in _core.mesh_options_of_files(os.fspath(path)).splitlines())
        own = ("database", "format", "compression", "states_per_file")
        chosen: dict[str, Any] = {key: kept[key] for key in own} | options
        core = context._core.open_region(os.fspath(path), None, {"database": chosen["database"]})
        return transfer(
            [Region(core, part, None) for part in range(core.parts())],
            change,
            lambda model, cohort: create(replacement.beside, model, comm=cohort, context=context, **chosen),
            progress=progress,
        )
