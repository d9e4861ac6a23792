"""The `penstock` program."""

from __future__ import annotations

from typing import Annotated

import typer

from . import analyze, bench, doctor, inspect, ls, mesh, objects, pool, run, save, serve, study, top, trace

app = typer.Typer(
    name="penstock",
    help="Streams of steps from a running simulation to whatever uses them, and pools that keep them.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("ls")(ls.ls)
app.command("inspect")(inspect.inspect)
app.command("top")(top.top)
app.command("save")(save.save)
app.command("analyze")(analyze.analyze)
app.command("serve")(serve.serve)
app.add_typer(pool.app, name="pool")
app.command("put")(objects.put)
app.command("get")(objects.get)
app.command("need")(objects.need)
app.command("info")(objects.info)
app.command("list")(objects.list_objects)
app.command("drop")(objects.drop)
app.command("compute")(objects.compute)
app.add_typer(mesh.app, name="mesh")
app.add_typer(trace.app, name="trace")
app.command("replay")(trace.replay)
app.add_typer(bench.app, name="bench")
app.add_typer(study.app, name="study")
app.command("doctor")(doctor.doctor)


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
