"""`penstock run`: start the programs of a study, watch them, sum up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from ..names import nearest
from ..workflow import RunResult, Status, load_study, run_study
from ..workflow.summary import pictures_of, pool_table, summary_table
from .console import command, fail, messages, output

SHOWN_FILES = 8


@command
def run(
    file: Annotated[Path, typer.Argument(metavar="STUDY.yaml", help="The study: programs, streams, deadline.")],
    output_folder: Annotated[
        Path | None,
        typer.Option("--output", metavar="FOLDER", help="Where results go, instead of what the study says."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="How many steps: {steps} in the study.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="The deadline for everything together.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Run a study: several programs joined by streams.

    Each program's output goes to logs/NAME.log in the output folder. When one fails, the others get ten seconds to end
    by themselves and are then ended. Ctrl-C ends all of them. Summary: summary.json.
    """
    if not file.exists() and file.suffix not in (".yaml", ".yml"):
        fail(f"{file}: no such study file", _commands_hint(str(file)), code=2)
    study = load_study(file, output=output_folder, steps=steps, timeout_s=timeout)
    console = Console(quiet=True) if quiet else messages()
    result = run_study(study, console=console)
    if not quiet:
        _report(output(), result)
    if not result.ok:
        _explain(messages(), result, study.timeout_s)
        raise typer.Exit(result.exit_code)


def _commands_hint(word: str) -> str:
    from .main import app

    group = typer.main.get_group(app)
    commands = group.commands
    near = nearest(word, [name for name, each in commands.items() if not each.hidden])
    return f"It takes a study file, such as gray-scott.yaml{near if 'did you mean' in near else ''}"


def _report(console: Console, result: RunResult) -> None:
    console.print(summary_table(result.summary))
    if table := pool_table(result.summary):
        console.print(table)
    if result.summary["check"]:
        console.print(Text(f"check: {result.summary['check']}"))
    pictures = pictures_of(result.summary)
    others = [f["path"] for f in result.summary["files"] if f["path"] not in pictures]
    for title, paths in (("pictures", pictures), ("files", others)):
        if paths:
            more = f" and {len(paths) - SHOWN_FILES} more" if len(paths) > SHOWN_FILES else ""
            console.print(Text(f"{title}: {', '.join(paths[:SHOWN_FILES])}{more}"), soft_wrap=True)
    console.print(Text(f"output: {result.output}"), soft_wrap=True)


def _explain(console: Console, result: RunResult, timeout_s: float) -> None:
    for failure in result.failures:
        console.print(Text.assemble(("Error: ", "bold red"), f"{failure.program}: {failure.outcome}"), soft_wrap=True)
        if failure.log_tail:
            console.print(Text(f"the last lines of {failure.log}:", style="dim"), soft_wrap=True)
            console.print(Text("\n".join(f"  | {line}" for line in failure.log_tail)), soft_wrap=True)
    ended = f"; ended: {', '.join(result.running)}" if result.running else ""
    if result.status is Status.timed_out:
        hint = "raise timeout_s in the study or give --timeout; the logs show how far they came"
        console.print(Text.assemble(("Error: ", "bold red"), f"the deadline of {timeout_s:g} s passed{ended}"))
        console.print(Text(f"{hint}: {result.output / 'logs'}"), soft_wrap=True)
    elif result.status is Status.interrupted:
        console.print(Text(f"interrupted{ended}"), soft_wrap=True)
