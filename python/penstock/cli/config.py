"""`penstock config`: what is configured, and where each value came from."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer
from rich.table import Table

from .console import command, fail, output, print_json, visible

SECTIONS = ("streams", "pools", "coprocessing", "meshes")


@command
def config(
    name: Annotated[str, typer.Argument(help="A stream. Without it: the settings of the process.")] = "",
    pool: Annotated[str, typer.Option(metavar="NAME", help="Show the options of this pool's clients instead.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print each option of a stream, its value here, and who gave it: the default, penstock.yaml, the environment.

    A program alone knows what it gives in its code: see `stream.options` there.

    Without a name it prints the settings of the process and the names in each section of penstock.yaml.
    """
    import penstock

    if name and pool:
        fail("give the name of a stream or --pool, not both", code=2)
    try:
        context = penstock.Context()
        named = context.options_for_pool(pool) if pool else context.options_for(name) if name else None
        options = context.settings if named is None else named
    except penstock.Error as error:
        fail(str(error), code=2)
    sections = {} if named else _sections(options["config_file"])
    if as_json:
        given = {key: {"value": _shown(key, value), "from": options.origin(key)} for key, value in options.items()}
        print_json(
            {"stream": name or None, "pool": pool or None, "options": given, "sections": None if named else sections}
        )
        return
    table = Table(box=None, pad_edge=False)
    for title in ("option", "value", "from"):
        table.add_column(title, overflow="fold")
    for key, value in options.items():
        table.add_row(key, visible(_shown(key, value)) or '""', visible(options.origin(key)))
    output().print(table)
    for section, names in sections.items():
        output().print(f"{section}: {', '.join(map(visible, names))}", markup=False)


def _shown(key: str, value: str) -> str:
    """Without secrets: a token, or the one that the address of a directory holds."""
    if key == "token" and value:
        return "(hidden)"
    return value.partition("?")[0] if key == "directory" else value


def _sections(file: str) -> dict[str, list[str]]:
    """The names in each section of the file, which the library has read and found right."""
    import yaml

    if not file:
        return {}
    with open(os.fspath(file), encoding="utf-8") as text:
        said: dict[str, Any] = yaml.safe_load(text) or {}
    return {section: [str(name) for name in said[section]] for section in SECTIONS if said.get(section)}
