"""Earlier names of commands, hidden, for one more release. Each prints one line that names the command of today."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.text import Text

from . import objects
from .console import Yes, fail, messages
from .drop import drop as drop_stream
from .objects import Column, Into, Namespace, PoolName, Row, Tag, Timeout

RENAMED = {
    "ls": "stream ls",
    "inspect": "stream show",
    "top": "stream top",
    "save": "stream save",
    "serve": "pool serve",
    **{word: f"object {word}" for word in ("put", "get", "list", "info", "compute")},
}


def add_to(app: typer.Typer, groups: dict[str, tuple[str, dict[str, Callable[..., Any]]]]) -> None:
    for old, new in RENAMED.items():
        group, word = new.split()
        app.command(old, hidden=True)(_renamed(old, new, groups[group][1][word]))
    app.command("need", hidden=True)(need)
    app.command("drop", hidden=True)(drop)


def _say(old: str, new: str, more: str = "") -> None:
    messages().print(Text(f"penstock {old} is now penstock {new}; the old name goes with the next release{more}"))


def _renamed(old: str, new: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        _say(old, new)
        return function(*args, **kwargs)

    return run


ASKS = "; it asks now, and needs --yes in scripts"


def need(
    row: Row,
    column: Column = "",
    into: Into = None,
    tag: Tag = None,
    pool: PoolName = "",
    namespace: Namespace = "",
    timeout: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long to wait for it.")] = 30.0,
) -> None:
    """Get an object's bytes; wait until it is there."""
    _say("need", "object get --wait SECONDS")
    objects.get(row, column, into, wait=timeout, tag=tag, pool=pool, namespace=namespace)


def drop(
    row: Annotated[str, typer.Argument(help="The key's row; a stream's name with --stream.")],
    column: Annotated[str, typer.Argument(help="The key's column.")] = "",
    stream: Annotated[bool, typer.Option("--stream", help="Drop the stream of this name, with all its steps.")] = False,
    matching: Annotated[bool, typer.Option("--matching", help="Drop all that match; COLUMN may be left out.")] = False,
    version: Annotated[int | None, typer.Option(min=1, help="Only this version.")] = None,
    tag: Tag = None,
    pool: PoolName = "",
    namespace: Namespace = "",
    timeout: Timeout = 30.0,
    yes: Yes = False,
) -> None:
    """Remove objects, or a stream, from memory and disk."""
    if not stream:
        _say("drop", "object drop", ASKS)
        objects.drop(row, column, matching, version, tag, pool, namespace, timeout, yes)
        return
    _say("drop --stream", "stream drop", ASKS)
    if column or matching or version is not None or tag is not None or namespace:
        fail("--stream takes a stream's name, and no other choice", code=2)
    drop_stream(row, pool, timeout, yes)
