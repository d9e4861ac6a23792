"""`penstock stream save`: keep a stream's steps in an HDF5 file."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..units import size
from .console import command, fail, messages, output, say
from .places import StreamName, Variables, find, hint_for, variables_of


@command
def save(
    name: StreamName,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The HDF5 file to write, or a Zarr store: OUT.zarr.")],
    first: Annotated[
        int | None, typer.Option("--from", min=0, metavar="STEP", help="The first step. [default: the next one]")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Keep so many steps and leave.")] = None,
    every: Annotated[int, typer.Option(min=1, help="Keep the first step and every so many-th after it.")] = 1,
    variables: Variables = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace OUT if it exists.")] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add to OUT, an HDF5 file, if it exists; steps that it has are skipped.")
    ] = False,
    compression: Annotated[
        int, typer.Option(min=0, max=9, help="Of HDF5 (deflate) or Zarr (zstd): 0 none, 9 smallest.")
    ] = 0,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="How long to wait for the stream, and for each step."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Keep a stream's steps, from now until it ends, in an HDF5 file for h5py and xarray, or in a Zarr store.

    It attaches as one more reader: the writer waits for it as for any reader. When the writer dies, or on Ctrl-C or
    SIGTERM, the steps so far are kept, and the exit code is not 0.
    """
    import penstock

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as batch systems end programs

    from ..save import require_free, save_stream
    from ..zarr_archive import is_store_name

    chosen = variables_of(variables)
    if force and append:
        fail("--force replaces the file, --append adds to it: give one of them", code=2)
    try:
        require_free(out, force or append)
        place = find(name)
        if not quiet and place is None:
            say(f"waiting for stream '{name}' to appear")
        if not quiet and place is not None and place.kind in ("pool", "space", "files"):
            so_far = " so far" if place.about.get("state") == "open" else ""
            known = f"{place.about.get('state')}, {place.about.get('steps')} steps{so_far}"
            say(f"stream '{name}' is in {place}: {known}")
        asked: dict[str, Any] = {"steps": steps, "first": first, "every": every}
        asked |= {"variables": chosen, "force": force, "append": append, "compression": compression}
        asked |= {"timeout": timeout}
        with _progress(name, steps, quiet) as on_step:
            result = save_stream(name, out, **asked, on_step=on_step, options=place.options if place else None)
    except FileExistsError as error:
        adds = "" if is_store_name(out) else ", --append to add to it"  # stores are not appended to
        fail(str(error), f"Give --force to replace it{adds}, or another name.")
    except ModuleNotFoundError as error:
        if error.name not in ("h5py", "zarr"):
            raise
        fail(f"saving needs {error.name}, which is not installed", f"pip install {error.name}")
    except penstock.Error as error:
        fail(str(error), hint_for(name), code=124 if isinstance(error, TimeoutError) else 1)

    if result.problem:
        kept = f"{result.steps} steps were kept in {out}" if result.steps or append else f"{out} holds no steps"
        fail(result.problem, kept, code=130 if result.problem == "interrupted" else 1)
    if not quiet:
        dropped = (
            f"; {result.steps_dropped} steps were dropped before they could be read" if result.steps_dropped else ""
        )
        done = "added to" if append else "in"
        text = f"{result.steps} steps, {size(result.bytes)} of data, {done} {out} ({size(_stored(out))}){dropped}"
        output().print(Text(text), soft_wrap=True)


def _stored(out: Path) -> int:
    """Bytes on the disk of a file, or of the files in a store."""
    return sum(file.stat().st_size for file in [out, *out.rglob("*")] if file.is_file())


@contextlib.contextmanager
def _progress(name: str, total: int | None, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    console = messages()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn() if total else TextColumn("{task.completed:.0f} steps"),
        TextColumn("{task.fields[size]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(name.partition("?")[0], total=total, size="")
        yield lambda steps, count: progress.update(task, completed=steps, size=size(count))
