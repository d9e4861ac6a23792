"""The `penstock` program: its commands by their words."""

from __future__ import annotations

from typing import Annotated

import typer

from . import (
    aliases,
    analyze,
    bench,
    config,
    doctor,
    drop,
    dump,
    ls,
    mesh,
    objects,
    pool,
    run,
    save,
    serve,
    show,
    study,
    top,
    trace,
)

GROUPS = {
    "stream": (
        "List streams, look into them, keep their steps, remove them.",
        {
            "ls": ls.ls,
            "show": show.show,
            "dump": dump.dump,
            "save": save.save,
            "top": top.top,
            "drop": drop.drop,
        },
    ),
    "object": (
        "Put objects into a pool, get, list and remove them.",
        {
            "put": objects.put,
            "get": objects.get,
            "list": objects.list_objects,
            "info": objects.info,
            "watch": objects.watch,
            "drop": objects.drop,
            "compute": objects.compute,
        },
    ),
    "pool": (
        "Run a staging pool, look at it, drain or stop its servers, give out tokens.",
        {
            "serve": serve.serve,
            "status": pool.status,
            "drain": pool.drain,
            "stop": pool.stop,
            "token": pool.token,
            "directory": pool.directory,
        },
    ),
}

app = typer.Typer(
    name="penstock",
    help="Streams of steps from a running simulation to whatever uses them, and pools that keep them.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,  # rich takes minutes for a message of 100 kB
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
for _name, (_help, _commands) in GROUPS.items():
    _group = typer.Typer(help=_help, no_args_is_help=True)
    for _word, _function in _commands.items():
        _group.command(_word)(_function)
    app.add_typer(_group, name=_name)
app.command("analyze")(analyze.analyze)
app.add_typer(mesh.app, name="mesh")
app.add_typer(trace.app, name="trace")
app.command("replay")(trace.replay)
app.add_typer(bench.app, name="bench")
app.add_typer(study.app, name="study")
app.command("config")(config.config)
app.command("doctor")(doctor.doctor)
aliases.add_to(app, GROUPS)


def _version(asked: bool) -> None:
    if asked:
        print(f"penstock {doctor.version()}")
        raise typer.Exit()


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point of the installed program."""
    app(prog_name="penstock")


if __name__ == "__main__":
    main()
