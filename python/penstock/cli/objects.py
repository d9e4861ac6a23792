"""`penstock object put`, `get`, `list`, `info`, `watch`, `drop`, `compute`: objects of a pool."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..units import size, timestamp
from ..workflow.registry import directory_is_known, runtime_directory
from .console import Yes, command, confirm, fail, json_text, messages, output, print_json, say, visible

CALL_S = 30.0
Row = Annotated[str, typer.Argument(help="The key's row.")]
Column = Annotated[str, typer.Argument(help="The key's column.")]
PoolName = Annotated[str, typer.Option("--pool", metavar="NAME", help="The pool; not needed when there is only one.")]
Namespace = Annotated[str, typer.Option("--namespace", "-n", metavar="NAME", help="The namespace of the keys.")]
Timeout = Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long the call may take.")]
Tag = Annotated[int | None, typer.Option(min=0, help="The number by which the object was placed, if it was.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Into = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the bytes there, not to standard output.")
]


def open_pool(pool: str, namespace: str, timeout: float, wait: bool = False) -> Any:
    """wait: for a directory too, instead of failing at once where none is registered."""
    import penstock

    if not wait:
        check_directory()
    return penstock.Pool(pool, ns=namespace, timeout=timeout)


def check_directory() -> None:
    """Fails where no pool can be found."""
    if not directory_is_known():
        fail(
            f"no directory service is registered in {runtime_directory()}, so there is no pool to find",
            "Start one with penstock pool serve, or set PENSTOCK_DIRECTORY_SERVICE to the address of one.",
        )


@command
def put(
    row: Row,
    column: Column,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="What to put; - or none: standard input.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Put this text instead of a file.")] = None,
    if_exists: Annotated[str, typer.Option(metavar="WHAT", help="refuse, overwrite or add_version.")] = "refuse",
    acknowledge: Annotated[
        str, typer.Option(metavar="LEVEL", help="How safe on return: memory, replicated, durable.")
    ] = "memory",
    metadata: Annotated[
        str | None, typer.Option(metavar="TEXT", help='Kept with it, such as {"dtype": "float64", "shape": [2, 3]}.')
    ] = None,
    tag: Annotated[int | None, typer.Option(min=0, help="Place it by this number instead of by its key.")] = None,
    pool: PoolName = "",
    namespace: Namespace = "",
    timeout: Timeout = 30.0,
) -> None:
    """Put an object into a pool."""
    if text is not None and file is not None:
        fail("give a file or --text, not both", code=2)
    if text is not None:
        data: bytes = text.encode()
    else:
        data = sys.stdin.buffer.read() if file is None or str(file) == "-" else file.read_bytes()
    with open_pool(pool, namespace, timeout) as there:
        version = there.put(row, column, data, if_exists=if_exists, acknowledge=acknowledge, metadata=metadata, tag=tag)
    say(f"{row}/{column}: version {version}, {size(len(data))}")


@command
def get(
    row: Row,
    column: Column = "",
    into: Into = None,
    wait: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="Wait so long until it is there.")
    ] = None,
    version: Annotated[int | None, typer.Option(min=1, help="An older version.")] = None,
    tag: Tag = None,
    pool: PoolName = "",
    namespace: Namespace = "",
    timeout: Timeout = 30.0,
) -> None:
    """Get an object's bytes."""
    if wait is not None and version is not None:
        fail("--wait takes the newest version, and --version an older one, which is there or not", code=2)
    with open_pool(pool, namespace, timeout) as there:
        if wait is None:
            found = there.get(row, column, version=version, tag=tag)
        else:
            found = there.need(row, column, tag=tag, timeout=wait)
        _write(found, into)


def _write(found: Any, into: Path | None) -> None:
    if into is not None:
        into.write_bytes(found.view())
        return
    sys.stdout.buffer.write(found.view())
    sys.stdout.buffer.flush()


@command
def info(
    row: Row,
    column: Column = "",
    version: Annotated[int | None, typer.Option(min=1, help="An older version.")] = None,
    tag: Tag = None,
    pool: PoolName = "",
    namespace: Namespace = "",
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """Show what a pool knows of an object."""
    with open_pool(pool, namespace, timeout) as there:
        known = _as_dict(there.info(row, column, version=version, tag=tag))
    if as_json:
        print_json(known)
        return
    table = Table(show_header=False)
    for key, value in known.items():
        words = f"{value} ({size(value)})" if key == "bytes" else visible(str(value))
        if isinstance(value, bool):
            words = "yes" if value else "no"
        table.add_row(key.replace("_", " "), Text(words))
    output().print(table)


@command
def list_objects(
    row: Annotated[str, typer.Argument(help='Rows: exact, a prefix ("heat*"), or a pattern (* ? [a-z]).')] = "*",
    column: Annotated[str, typer.Argument(help="Columns, in the same way.")] = "*",
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1000,
    pool: PoolName = "",
    namespace: Namespace = "",
    timeout: Timeout = 30.0,
    as_json: Json = False,
) -> None:
    """List objects, in key order."""
    with open_pool(pool, namespace, timeout) as there:
        found = [_as_dict(one) for one in there.list(row, column, limit=limit)]
    if as_json:
        print_json(found)
        return
    if not found:
        messages().print(Text("no such objects"))
        return
    table = Table()
    for title in ("row", "column", "size", "version", "put", "where"):
        table.add_column(title, justify="right" if title in ("size", "version") else "left", overflow="fold")
    for one in found:
        where = " ".join(word for word, here in (("memory", one["in_memory"]), ("disk", one["on_disk"])) if here)
        table.add_row(
            Text(visible(one["row"])),
            Text(visible(one["column"])),
            size(one["bytes"]),
            str(one["version"]),
            one["put"],
            where,
        )
    output().print(table)
    if len(found) == limit:
        messages().print(Text(f"the first {limit}; --limit shows more"))


@command
def watch(
    row: Annotated[str, typer.Argument(help='Rows: exact, a prefix ("heat*"), or a pattern (* ? [a-z]).')] = "*",
    column: Annotated[str, typer.Argument(help="Columns, in the same way.")] = "*",
    existing: Annotated[bool, typer.Option("--existing", help="Begin with what is there, as puts.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Leave after so many events.")] = None,
    pool: PoolName = "",
    namespace: Namespace = "",
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="Leave when nothing has come for so long. [default: never]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each event.")] = False,
) -> None:
    """Print puts and drops of objects as they happen (Ctrl-C leaves)."""
    with open_pool(pool, namespace, CALL_S) as there, there.subscribe(row, column, existing=existing) as events:
        say(f"watching {row}/{column} in pool {there.name}")
        try:
            while count is None or count > 0:
                event = events.next(math.inf if timeout is None else timeout)
                _print_event(event.what, _as_dict(event.info), as_json)
                count = None if count is None else count - 1
        finally:
            if events.lost:
                messages().print(Text(f"{events.lost} events came too fast and are not shown"))


def _print_event(what: str, known: dict[str, Any], as_json: bool) -> None:
    if as_json:
        line = json_text({"event": what, **known})
    else:
        about = f"{size(known['bytes'])}, version {known['version']}, put {known['put']}"
        line = f"{what} {known['row']}/{known['column']}: {about}"
    print(line, flush=True)


@command
def drop(
    row: Annotated[str, typer.Argument(help="The key's row; a pattern with --matching.")],
    column: Annotated[str, typer.Argument(help="The key's column; a pattern with --matching.")] = "",
    matching: Annotated[bool, typer.Option("--matching", help="Drop all that match; COLUMN may be left out.")] = False,
    version: Annotated[int | None, typer.Option(min=1, help="Only this version.")] = None,
    tag: Tag = None,
    pool: PoolName = "",
    namespace: Namespace = "",
    timeout: Timeout = 30.0,
    yes: Yes = False,
) -> None:
    """Remove objects from memory and disk. It says what is lost, and asks."""
    if matching and (version is not None or tag is not None):
        fail("--matching drops all versions of all that match, and takes neither --version nor --tag", code=2)
    with open_pool(pool, namespace, timeout) as there:
        if matching:
            if (lost := _matching(there, row, column or "*")) is None:
                messages().print(Text("no such objects"))
                return
            confirm(lost, yes)
            count = there.drop_matching(row, column or "*")
            messages().print(Text(f"{count} dropped"))
            return
        confirm(_one(there, row, column, version, tag), yes)
        if not there.drop(row, column, version=version, tag=tag):
            fail(f"there is no object {row}/{column}")


def _matching(there: Any, row: str, column: str) -> str | None:
    """What is lost; None: nothing matches."""
    sizes = [one.bytes for one in there.list(row, column)]
    if not sizes:
        return None
    lost = f"{len(sizes)} objects ({size(sum(sizes))}), with all their versions"
    return f"This removes {lost}, from the memory and the disks of pool {there.name}."


def _one(there: Any, row: str, column: str, version: int | None, tag: int | None) -> str:
    import penstock

    try:
        known = there.info(row, column, version=version, tag=tag)
    except penstock.NotFound:
        fail(f"there is no object {row}/{column}")
    which = f"version {known.version}" if version else f"version {known.version}, and all earlier ones"
    lost = f"{row}/{column} ({size(known.bytes)}, {which})"
    return f"This removes {lost}, from the memory and the disks of pool {there.name}."


@command
def compute(
    function: Annotated[str, typer.Argument(help="A built-in (min, max, sum, ...) or one of the servers' own.")],
    keys: Annotated[list[str], typer.Argument(metavar="ROW/COLUMN...", help="The objects.")],
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", "-a", metavar="NAME=JSON", help="For the function; may be given several times."),
    ] = None,
    separator: Annotated[str, typer.Option("--separator", metavar="TEXT", help="What ends the row in a key.")] = "/",
    time_limit: Annotated[float, typer.Option(min=0.001, metavar="SECONDS", help="How long it may run.")] = 10.0,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for objects that are not there yet.")] = False,
    pool: PoolName = "",
    namespace: Namespace = "",
    timeout: Timeout = 30.0,
) -> None:
    """Run a function beside the data, and print what it gives."""
    arguments = {}
    for word in argument or []:
        name, equals, value = word.partition("=")
        if not equals:
            fail(f"'{word}' is not NAME=JSON", code=2)
        try:
            arguments[name] = json.loads(value)
        except ValueError:
            arguments[name] = value
    if not separator:
        fail("--separator is empty; a character that no row has is needed", code=2)
    pairs = [tuple(key.partition(separator)[::2]) for key in keys]
    with open_pool(pool, namespace, timeout) as there:
        result = there.compute(function, pairs, time_limit=time_limit, wait=wait, **arguments)
    if isinstance(result, bytes):
        sys.stdout.buffer.write(result)
        sys.stdout.buffer.flush()
    else:
        print(result.tolist() if hasattr(result, "tolist") else result)


def printable(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode(errors="backslashreplace")


def _as_dict(known: Any) -> dict[str, Any]:
    return {
        "row": printable(known.row),
        "column": printable(known.column),
        "bytes": known.bytes,
        "version": known.version,
        "checksum": f"{known.checksum:016x}",
        "put": timestamp(known.put_us / 1e6),
        "in_memory": known.in_memory,
        "on_disk": known.on_disk,
        "waiters": known.waiters,
        "metadata": known.metadata,
    }
