"""`penstock bench`: measure on this machine."""

from __future__ import annotations

import sys

import typer

from .console import command, fail

app = typer.Typer(help="Measure Penstock on this machine, beside the limits and its peers.", no_args_is_help=True)

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command("streams", context_settings=_PASS_ON)
@command
def streams(context: typer.Context) -> None:
    """Streams: throughput, latency, many variables; all options are passed on (--help shows them)."""
    try:
        from .. import bench as benchmark
    except ImportError as error:
        fail(f"the benchmarks cannot be loaded: {error}", "They need NumPy: pip install numpy")
    sys.argv[0] = "penstock bench streams"
    code = benchmark.main(list(context.args))
    if code:
        raise typer.Exit(int(code))
