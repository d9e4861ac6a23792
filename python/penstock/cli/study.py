"""`penstock study`: a paper's experiments on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import command, fail, messages, output

app = typer.Typer(help="Do a paper's experiments on this machine, and judge its statements.", no_args_is_help=True)


@app.callback()
def _studies() -> None:
    pass


@app.command("staging")
@command
def staging(
    json_file: Annotated[Path, typer.Option("--json", metavar="FILE", help="Where the raw figures go.")] = Path(
        "staging.json"
    ),
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="Where the report goes.")] = Path("staging.html"),
    only: Annotated[list[str] | None, typer.Option(metavar="EXPERIMENT", help="Only this; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes: to see that everything works.")] = False,
    repeat: Annotated[int, typer.Option(min=1, help="Rounds.")] = 1,
    disk: Annotated[Path, typer.Option(metavar="FOLDER", help="Where files go.")] = Path("/tmp"),
) -> None:
    """Where layouts are converted (SAND2021-10271): cycle time, servers, subsets, scaling, beside files."""
    from ..bench.runner import RunFailed
    from ..study.experiments import EXPERIMENTS
    from ..study.staging import run

    if unknown := [name for name in only or [] if name not in EXPERIMENTS]:
        fail(f"no experiment {unknown[0]}; there are {', '.join(EXPERIMENTS)}", code=2)
    for file in (json_file, html):
        if not file.absolute().parent.is_dir():
            fail(f"there is no folder {file.absolute().parent} for {file.name}", code=2)
    if not disk.is_dir():
        fail(f"--disk: {disk} is not a folder", code=2)
    try:
        run(only or [], quick, repeat, disk, json_file, html, [output(), messages()])
    except RunFailed as failure:
        fail(f"the study has ended early: {failure}", "Its programs have ended.")
