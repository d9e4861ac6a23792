"""`penstock pool serve`: servers of a staging pool, in the foreground."""

from __future__ import annotations

import contextlib
import select
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..workflow.registry import runtime_directory
from ..workflow.servers import PoolServers
from ..workflow.study import PoolPlan
from ..workflow.supervisor import signal_pipe
from .console import command, fail, messages, output, print_json, say


@command
def serve(
    name: Annotated[str, typer.Option(metavar="POOL", help="The pool's name.")] = "default",
    servers: Annotated[int, typer.Option(min=1, max=64, help="How many servers to start here.")] = 1,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of each server, such as 512MiB.")] = "1GiB",
    replication: Annotated[int, typer.Option(min=1, help="On how many servers each object lies.")] = 1,
    disk: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep objects there, too: they outlive the servers."),
    ] = None,
    tier: Annotated[
        str | None, typer.Option(metavar="KIND", help="How they lie there: disk, files, hdf5. [default: disk]")
    ] = None,
    directory: Annotated[
        str,
        typer.Option(
            metavar="WHERE",
            help="The directory service: embedded (started by the first server), registered (that of a pool which runs "
            "here already), or etcd://HOST:PORT.",
        ),
    ] = "embedded",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="KEY=VALUE", help="Any key of penstock-server; may be repeated."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="How long all may take to be ready.")
    ] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print where they are as JSON.")] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the first server's configuration in effect, and leave.")
    ] = False,
) -> None:
    """Run the servers of a staging pool, until Ctrl-C.

    Programs of this user on this machine find the pool by themselves; others need PENSTOCK_DIRECTORY_SERVICE, which
    --json prints.
    """
    options = dict(_key_and_value(word) for word in option or [])
    if replication > servers:
        fail(f"{replication} replicas need at least as many servers", f"Give --servers {replication}.", code=2)
    if tier is not None and disk is None:
        fail("--tier says how objects lie in the folder of --disk, which is not given", code=2)
    plan = PoolPlan(
        name=name,
        servers=servers,
        memory=memory,
        replication=replication,
        disk=disk,
        tier=tier or "disk",
        directory=directory,
        registration=runtime_directory(),
        options={"log": "warn", **options},
    )
    if print_config:
        with contextlib.ExitStack() as stack:
            planned = PoolServers(plan)
            stack.callback(planned.stop)
            sys.stdout.write(planned.configuration())
        return
    for number in (signal.SIGTERM, signal.SIGHUP):  # while they start and end, as Ctrl-C; _wait() takes all three
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(PoolServers(plan))
        with messages().status(f"starting {servers} server{'s' if servers > 1 else ''}"):
            running.wait_ready(timeout)
        _show(running, as_json)
        _wait(running)
        with messages().status("ending the servers"):
            well = running.stop()
    if not well:
        fail("a server did not end in order")


def _key_and_value(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        fail(f"'{word}' is not KEY=VALUE", "penstock-server --print-config lists the keys.", code=2)
    return key.strip(), value.strip()


def _show(running: PoolServers, as_json: bool) -> None:
    ready = [server.ready for server in running.servers if server.ready]
    if as_json:
        print_json({"pool": running.plan.name, "directory": running.directory, "servers": ready})
        sys.stdout.flush()  # whoever reads it waits for it
        return
    table = Table(title=f"pool {running.plan.name}", title_style="bold")
    for title in ("server", "id", "pid"):
        table.add_column(title, justify="right" if title == "pid" else "left", overflow="fold")
    for entry in ready:
        table.add_row(Text(entry["name"]), entry["id"], str(entry["pid"]))
    output().print(table)
    for entry in ready:
        if entry["http"]:  # a line each, to copy it
            output().print(Text(f"status page of {entry['name']}: http://{entry['http']}/"), soft_wrap=True)
    say("ready; Ctrl-C ends the pool")


def _wait(running: PoolServers) -> None:
    """Until Ctrl-C, SIGTERM or SIGHUP, or until a server has ended by itself."""
    with signal_pipe() as read_end:
        said: set[int] = set()
        while True:
            fds = [read_end, *(s.pidfd for s in running.servers if s.number not in said)]
            readable, _, _ = select.select(fds, [], [], None)
            if read_end in readable:
                return
            for server in running.ended():
                if server.number in said:
                    continue
                said.add(server.number)
                code = server.process.returncode
                word = "ended" if code == 0 else f"ended with exit code {code}"
                say(f"server {server.number} {word}{running.tail(server)}")
            if len(said) == len(running.servers):
                return
