"""Attaching to a stream from the command line: what helps when it fails."""

from __future__ import annotations

import os

from ..names import nearest
from ..workflow.registry import where_streams_register


def is_in_files(name: str) -> bool:
    """Whether this is a path, or the folder of a stream in files."""
    if "://" in name:
        return False
    return "/" in name or name.endswith(".steps") or os.path.isfile(os.path.join(name, "stream.json"))


def is_written_here(name: str) -> bool:
    """Whether a stream of this name has a living writer on this machine. Addresses and paths are taken on trust."""
    import penstock

    return (
        "://" in name
        or is_in_files(name)
        or any(entry.alive and entry.name == name for entry in penstock.list_streams())
    )


def not_found_hint(name: str) -> str:
    """What to do when a stream could not be opened: the nearest name, or what there is; "" when it is there."""
    import penstock

    if "://" in name:
        return "Addresses change with each start of a writer: penstock stream ls --address prints the present one."
    if is_in_files(name):
        return ""
    if os.path.isfile(f"{name}.steps/stream.json"):
        return f"A stream of this name is in files here: give its folder, {name}.steps"
    try:
        entries = penstock.list_streams()
    except Exception:  # the first error says enough
        return ""
    names = sorted(entry.name for entry in entries if entry.alive)
    if name in names:
        return ""
    if not names:
        return (
            f"No stream is being written now by this user on this machine (looked in {where_streams_register()}). "
            "Start its writer, or give an address (penstock stream ls --address, where the writer runs)."
        )
    near = nearest(name, names)
    return near.removeprefix("; ").capitalize() if "did you mean" in near else f"Being written now: {', '.join(names)}"
