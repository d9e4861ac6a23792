"""`penstock bench`: measure on this machine."""

from __future__ import annotations

import importlib
import sys

import typer

from .console import command, fail

app = typer.Typer(help="Measure Penstock on this machine, beside the limits and its peers.", no_args_is_help=True)

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def pass_on(name: str, module: str, arguments: list[str]) -> None:
    try:
        benchmark = importlib.import_module(f"penstock.bench{module}")
    except ImportError as error:
        fail(f"the benchmarks cannot be loaded: {error}", "They need NumPy: pip install numpy")
    sys.argv[0] = f"penstock bench {name}"
    code = benchmark.main(arguments)
    if code:
        raise typer.Exit(int(code))


@app.command("streams", context_settings=_PASS_ON)
@command
def streams(context: typer.Context) -> None:
    """Streams: throughput, latency, many variables; all options are passed on (--help shows them)."""
    pass_on("streams", "", list(context.args))


@app.command("rpc", context_settings=_PASS_ON)
@command
def rpc(context: typer.Context) -> None:
    """Remote calls and bulk memory, beside the planes' limits and gRPC; all options are passed on."""
    pass_on("rpc", ".rpc", list(context.args))


@app.command("analysis", context_settings=_PASS_ON)
@command
def analysis(context: typer.Context) -> None:
    """Co-processing: what it costs the simulation, and pictures from 1 to 4 ranks; all options are passed on."""
    pass_on("analysis", ".analysis", list(context.args))


@app.command("space", context_settings=_PASS_ON)
@command
def space(context: typer.Context) -> None:
    """Arrays in a pool, put and got in either order, beside copies and a stream; all options are passed on."""
    pass_on("space", ".space", list(context.args))


@app.command("pool", context_settings=_PASS_ON)
@command
def pool(context: typer.Context) -> None:
    """Staging servers, beside HDF5 files and Redis; all options are passed on."""
    pass_on("pool", ".pool", list(context.args))


@app.command("mesh", context_settings=_PASS_ON)
@command
def mesh(context: typer.Context) -> None:
    """Mesh regions in a pool, beside streams, files and FAODEL's key rule; all options are passed on."""
    pass_on("mesh", ".mesh", list(context.args))


@app.command("fragments", context_settings=_PASS_ON)
@command
def fragments(context: typer.Context) -> None:
    """Fragments on adaptive grids: what ranks exchange, and speed beside ParaView; all options are passed on."""
    pass_on("fragments", ".fragments", list(context.args))
