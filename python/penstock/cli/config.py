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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print each option of a stream, its value here, and who gave it: the default, penstock.yaml, the environment.

    What a program gives in its code, it alone knows: `stream.options` there says that, too. Without a name it prints
    the settings of the process and the names in each section of penstock.yaml.
    """
    import penstock

    try:
        context = penstock.Context()
        options = context.options_for(name) if name else context.settings
    except penstock.Error as error:
        fail(str(error), code=2)
    sections = {} if name else _sections(options["config_file"])
    if as_json:
        given = {key: {"value": _shown(key, value), "from": options.origin(key)} for key, value in options.items()}
        print_json({"stream": name or None, "options": given, "sections": None if name else sections})
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
    """Without the token that the address of a directory holds."""
    return value.partition("?")[0] if key == "directory" else value


def _sections(file: str) -> dict[str, list[str]]:
    """The names in each section of the file, which the library has read and found right."""
    import yaml

    if not file:
        return {}
    with open(os.fspath(file), encoding="utf-8") as text:
        said: dict[str, Any] = yaml.safe_load(text) or {}
    return {section: [str(name) for name in said[section]] for section in SECTIONS if said.get(section)}
