"""`penstock mesh`: look into mesh regions, copy, join, spread, change and compare them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..units import size
from .console import command, fail, messages, output, print_json, say
from .places import find

app = typer.Typer(help="Mesh regions in Exodus and Nemesis files and on streams.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(
        metavar="REGION", help='A file, the name of files NAME.RANKS.RANK, a stream, or "10x10x10|times:3".'
    ),
]
Database = Annotated[
    str,
    typer.Option(
        "--database", "-d", metavar="DB", help="exodus, nemesis, stream or generated; else as the name's ending means."
    ),
]
Part = Annotated[
    int | None, typer.Option(min=0, help="Of files of several ranks: this one alone; else all are joined.")
]
Wait = Annotated[
    float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait for each state.")
]
To = Annotated[
    str,
    typer.Argument(
        metavar="TO", help="The file or stream to write; an Exodus file that is there is replaced only with --force."
    ),
]
ToDatabase = Annotated[str, typer.Option("--to-database", "-D", metavar="DB", help="exodus, nemesis, stream or null.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _open(name: str, database: str = "", part: int | None = None, timeout: float | None = None) -> Any:
    from .. import _core, mesh

    _require_stream_name(name, database, "--database")
    if (database or _core.mesh_database_of(name)) == "stream" and find(name) is None:
        say(f"waiting for stream '{name}' to appear")
    chosen: dict[str, Any] = {"database": database} if database else {}
    return mesh.open(name, part=part, timeout=timeout, **chosen)


def _require_stream_name(name: str, database: str, option: str) -> None:
    """A misspelt file would be waited for as a stream."""
    from .. import _core

    if database or _core.mesh_database_of(name) != "stream" or not ("/" in name or Path(name).suffix):
        return
    fail(
        f"there is no file {name}, and its ending names no mesh format (.e, .exo, .ex2, .g, .gen)",
        f"Correct the name, or say what it is: {option} exodus, nemesis or stream.",
        code=2,
    )


@app.command()
@command
def info(name: Name, database: Database = "", part: Part = None, json: AsJson = False) -> None:
    """Show what a region holds: blocks, sets, fields, times."""
    import penstock

    with _open(name, database, part) as region:
        model = region.model
        try:
            times: list[float] | None = region.times
        except penstock.Unsupported:
            times = None
        if json:
            print_json(
                {"title": model.title, "dimensions": model.dimensions, "times": times, "entities": _as_json(model)}
            )
            return
        _print(model, times)


def _as_json(model: Any) -> list[dict[str, Any]]:
    from dataclasses import asdict

    return [asdict(each) for each in model.entities]


def _print(model: Any, times: list[float] | None) -> None:
    console = output()
    if model.title:
        console.print(Text(model.title))
    table = Table(box=None, pad_edge=False)
    for column in ("type", "name", "id", "count", "fields"):
        table.add_column(column, justify="right" if column in ("id", "count") else "left", overflow="fold")
    for each in model.entities:
        fields = ", ".join(_field(its) for its in each.fields)
        kind = f"{each.type} {each.topology}".strip()
        table.add_row(
            Text(kind), Text(each.name), "" if each.type == "region" else str(each.id), str(each.count), Text(fields)
        )
    console.print(table)
    for each in model.entities:
        for line in _structured(each):
            console.print(Text(line), soft_wrap=True)
    if times is None:
        console.print("states: as they come")
    elif times:
        console.print(f"states: {len(times)}, times {times[0]:g} to {times[-1]:g}")
    else:
        console.print("states: none")


def _structured(block: Any) -> Iterator[str]:
    """What is known of a structured block, a line for each fact."""
    its = block.structured
    if its is None:
        return
    part = "" if its.cells == its.whole else f" of {_times(its.whole)}, from {its.offset}"
    yield f"{block.name}: {_times(its.cells)} cells{part}"
    for each in its.connectivities:
        kind = "continues in another part" if each.decomposition else f"connected to {each.donor}"
        axes = "".join(f"{'-' if axis < 0 else '+'}{'ijk'[abs(axis) - 1]}" for axis in each.transform)
        yield (
            f"{block.name}: {kind} by {each.name}: nodes {_nodes(each.owner_range)} are {_nodes(each.donor_range)}, "
            f"axes ijk are {axes}"
        )
    for each in its.boundaries:
        face = f"{'greatest' if each.face > 2 else 'least'} {'ijk'[each.face % 3]}"
        family = f" ({each.family})" if each.family else ""
        yield f"{block.name}: boundary condition {each.name}{family}: nodes {_nodes(each.range)}, {face}"


def _times(cells: tuple[int, int, int]) -> str:
    return " x ".join(map(str, cells))


def _nodes(its: Any) -> str:
    return f"{its[0]} to {its[1]}"


def _field(its: Any) -> str:
    kind = "" if its.storage == "scalar" else f" {its.storage}"
    role = "" if its.role in ("transient", "mesh") else f" ({its.role})"
    return f"{its.name}{kind}{role}"


@app.command()
@command
def copy(
    name: Name,
    to: To,
    database: Database = "",
    to_database: ToDatabase = "",
    parts: Annotated[
        int, typer.Option(min=1, max=10_000, help="Write it as so many parts (files NAME.PARTS.PART).")
    ] = 1,
    balance: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write it as the parts of a load-balance file (nem_slice, mesh balance)."),
    ] = None,
    states: Annotated[
        str, typer.Option(metavar="A:B[:C]", help="States by number, as Python's slices: 0:10:2, -1: for the last.")
    ] = "",
    least_time: Annotated[float | None, typer.Option("--from-time", help="States from this time on.")] = None,
    greatest_time: Annotated[float | None, typer.Option("--to-time", help="States up to this time.")] = None,
    blocks: Annotated[
        list[str] | None, typer.Option("--block", "-b", help="This element block and others so named only.")
    ] = None,
    without_blocks: Annotated[
        list[str] | None, typer.Option("--without-block", help="Leave this element block out.")
    ] = None,
    sets: Annotated[bool, typer.Option("--sets/--no-sets", help="Node, edge, face, element and side sets.")] = True,
    fields: Annotated[
        list[str] | None, typer.Option("--field", "-f", help="This field of results and others so named only.")
    ] = None,
    integers: Annotated[
        int, typer.Option(help="Bits of ids, connectivity and the like: 32 or 64; 0: as they are.")
    ] = 0,
    reals: Annotated[int, typer.Option(help="Bits of real numbers: 32 or 64; 0: as they are.")] = 0,
    format: Annotated[
        str,
        typer.Option(
            help="offset64, cdf5, netcdf4, netcdf4_classic; auto: offset64 where it holds everything, else cdf5."
        ),
    ] = "auto",
    compression: Annotated[int, typer.Option(min=0, max=9, help="Deflate, of netcdf4 files.")] = 0,
    states_per_file: Annotated[
        int, typer.Option(min=0, metavar="N", help="Begin another file, TO-s0002, after so many states.")
    ] = 0,
    force: Force = False,
    timeout: Wait = None,
    quiet: Quiet = False,
) -> None:
    """Copy a region from any database into any other, or some of it; the parts of several ranks are joined.

    `penstock mesh copy run.e one.e` joins run.e.8.0 to run.e.8.7; --parts 8 spreads a file over eight.
    """
    from .. import mesh

    if integers not in (0, 32, 64) or reals not in (0, 32, 64):
        fail("--integers and --reals are 32, 64 or 0", code=2)
    if balance is not None and parts > 1:
        fail("--parts and --balance exclude each other", code=2)
    how = parts if balance is None else mesh.read_balance(balance)
    if (balance is not None or parts > 1) and not to_database:
        to_database = "nemesis"
    target = _Target(to, how, to_database)
    target.check(name, force)
    with _open(name, database, timeout=timeout) as region:
        choice = mesh.Choice(
            states=_numbers(states, region),
            times=(
                -float("inf") if least_time is None else least_time,
                float("inf") if greatest_time is None else greatest_time,
            ),
            blocks=tuple(blocks or ()),
            without_blocks=tuple(without_blocks or ()),
            sets=sets,
            fields=tuple(fields or ()),
            integers=integers,
            reals=reals,
        )
        _copy(
            region, name, target, quiet, choice, format=format, compression=compression, states_per_file=states_per_file
        )


@app.command()
@command
def balance(
    name: Name,
    to: Annotated[
        str, typer.Argument(metavar="FILE", help="The load-balance file: for nem_spread, or copy --balance.")
    ],
    parts: Annotated[int, typer.Option("--parts", min=1, max=10_000, metavar="N", help="How many parts.")],
    database: Database = "",
    force: Force = False,
) -> None:
    """Write a load-balance file: N parts with the same number of elements, in their order, and the nodes they share."""
    from .. import mesh

    if Path(to).exists() and not force:
        fail(f"{to} is there already", "Give --force to replace it.", code=2)
    with _open(name, database) as region:
        mesh.write_balance(to, region, parts)
        elements = sum(each.count for each in region.model.of("element_block"))
    output().print(Text(f"{to}: {elements} elements in {parts} parts"), soft_wrap=True)


@app.command()
@command
def join(
    name: Annotated[
        str, typer.Argument(metavar="PARTS", help="The name of files NAME.RANKS.RANK, or a stream of several ranks.")
    ],
    to: To,
    database: Database = "",
    to_database: ToDatabase = "",
    force: Force = False,
    timeout: Wait = None,
    quiet: Quiet = False,
) -> None:
    """Join the parts that several ranks wrote to one: a copy of everything.

    `penstock mesh join run.e one.e` joins run.e.8.0 to run.e.8.7. What has one id is there once, in the order of ids.
    """
    target = _Target(to, 1, to_database)
    target.check(name, force)
    with _open(name, database, timeout=timeout) as region:
        _copy(region, name, target, quiet)


def _copy(region: Any, name: str, target: _Target, quiet: bool, choice: Any = None, **options: Any) -> None:
    """Copies a region, and prints what was copied. options: of create(), those that are not empty."""
    from .. import mesh

    given = {key: value for key, value in {"database": target.database, **options}.items() if value}
    with _progress(f"{name} to {target.name}", quiet) as step, target as place:
        done = mesh.copy(region, place, choice=choice, parts=target.how, progress=step, **given)
    if not quiet:
        into = f" in {target.parts} parts" if target.parts > 1 else ""
        text = f"{target.name}{into}: {done.states} states, {done.fields} arrays, {size(done.bytes)}"
        output().print(Text(text), soft_wrap=True)


class _Target:
    """Where a copy goes. Files are written beside their place, and take it once they are complete."""

    def __init__(self, to: str, how: Any, database: str):
        """how: the number of parts, or a Balance."""
        from .. import _core

        self._given = database
        self.database = database or _core.mesh_database_of(to)
        self.name, self.how, self.parts = to, how, how if isinstance(how, int) else how.parts
        self._to = Path(to)
        self._in_files = self.database in ("exodus", "nemesis")

    def check(self, source: str, force: bool) -> None:
        """What would be lost is named, and refused."""
        from ..mesh.replacement import files_of

        _require_stream_name(self.name, self._given, "--to-database")
        if not self._in_files:
            return
        there, read = files_of(self._to), files_of(Path(source))
        for each in there:
            if not each.is_file():
                fail(f"{each} is no regular file", "Give another name.", code=2)
            if any(each.samefile(other) for other in read):
                fail(f"{each} would be replaced by a copy of itself", "Give another name.", code=2)
        if there and not force:
            fail(f"{there[0]} is there already", "Give --force to replace it.", code=2)

    def __enter__(self) -> str:
        from ..mesh.replacement import Replacement

        if not self._in_files:
            return str(self._to)
        self._replacement = Replacement(self._to)
        return str(self._replacement.__enter__().beside)

    def __exit__(self, *error: Any) -> None:
        if self._in_files:
            self._replacement.__exit__(*error)


@app.command()
@command
def modify(
    name: Annotated[str, typer.Argument(metavar="FILE", help="An Exodus file, or the name of files of several ranks.")],
    rename: Annotated[
        list[str] | None, typer.Option(metavar="[TYPE:]OLD=NEW", help="Rename an entity: block:block_1=steel.")
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="[TYPE:]NAME=ID", help="Give an entity another id.")
    ] = None,
    assemblies: Annotated[
        list[str] | None,
        typer.Option("--assembly", metavar="NAME=A,B", help="Add an assembly of entities, by their new names."),
    ] = None,
    information: Annotated[
        list[str] | None, typer.Option("--information", metavar="TEXT", help="Add an information record.")
    ] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Another title.")] = None,
    quiet: Quiet = False,
) -> None:
    """Change a region in files: names, ids, assemblies, records, title.

    The files are written anew beside the old ones, and take their names at the end. In Python: penstock.mesh.modify.
    """
    from .. import mesh

    names = [_assignment(each, "--rename") for each in rename or []]
    numbers = [_assignment(each, "--id") for each in ids or []]
    added = [_assignment(each, "--assembly") for each in assemblies or []]
    for _, number in numbers:
        if not number.lstrip("-").isdecimal():
            fail(f"--id takes a whole number, not {number!r}", code=2)
    if not (names or numbers or added or information or title is not None):
        fail("nothing is to be changed", "Give --rename, --id, --assembly, --information or --title.", code=2)

    def change(edit: Any) -> None:
        model = edit.model
        found = [(_entity(model, old), new) for old, new in names]
        numbered = [(_entity(model, which), int(number)) for which, number in numbers]
        for each, new in found:
            each.name = new
        for each, number in numbered:
            each.id = number
        for label, members in added:
            first, *others = [_entity(model, member) for member in members.split(",")]
            number = 1 + max((each.id for each in model.of("assembly")), default=0)
            its = mesh.Entity("assembly", label, number, 1 + len(others), member_type=first.type)
            its.members = [each.name for each in (first, *others)]
            if any(each.type != first.type for each in others):
                fail(f"--assembly {label}: its members are of several types", code=2)
            model.entities.append(its)
        model.information.extend(information or [])
        model.title = model.title if title is None else title

    with _progress(name, quiet) as step:
        done = mesh.modify(name, change, progress=step)
    if not quiet:
        output().print(Text(f"{name}: {done.states} states, {done.fields} arrays, {size(done.bytes)}"), soft_wrap=True)


def _assignment(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not (name and equals and value):
        fail(f"{option} takes NAME=VALUE, not {text!r}", code=2)
    return name, value


def _entity(model: Any, text: str) -> Any:
    """By NAME or TYPE:NAME; "block" is an element block."""
    kind, colon, name = text.partition(":")
    kind = "element_block" if kind == "block" else kind
    types = {each.type for each in model.entities}
    return model.find((kind, name) if colon and kind in types else text)


def _numbers(text: str, region: Any) -> Any:
    if not text:
        return None
    try:
        bounds = [int(each) if each.strip() else None for each in text.split(":")]
    except ValueError:
        bounds = []
    if not 1 <= len(bounds) <= 3 or (len(bounds) == 1 and bounds[0] is None):
        fail(f"--states takes numbers like 3 or 0:10:2, not {text!r}", code=2)
    known = range(len(region.times))
    if len(bounds) > 1:
        if len(bounds) == 3 and bounds[2] == 0:
            fail("--states: the third number is not 0", code=2)
        chosen = known[slice(*bounds)]
        if not chosen:
            fail(f"--states {text} chooses none of the {len(known)} states", code=2)
        return chosen
    wanted = bounds[0] or 0
    number = wanted + len(known) if wanted < 0 else wanted
    if number not in known:
        fail(f"there is no state {wanted}; there are {len(known)}", code=2)
    return [number]


@contextlib.contextmanager
def _progress(what: str, quiet: bool) -> Iterator[Callable[[int, float], None]]:
    console = messages()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("state {task.fields[state]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task(what, state="-")
        yield lambda state, time: bar.update(task, state=f"{state} (time {time:g})")


@app.command()
@command
def compare(
    first: Name,
    second: Name,
    database: Database = "",
    second_database: Annotated[
        str, typer.Option("--second-database", "-D", metavar="DB", help="Of the second region.")
    ] = "",
    absolute: Annotated[float | None, typer.Option(min=0, help="Real numbers may be apart so far.")] = None,
    relative: Annotated[float | None, typer.Option(min=0, help="The same, of the greater of both.")] = None,
    combined: Annotated[float | None, typer.Option(min=0, help="Relative above 1, absolute below.")] = None,
    ulps: Annotated[int | None, typer.Option(min=0, help="So many floating-point numbers apart.")] = None,
    floor: Annotated[float, typer.Option(min=0, help="Numbers smaller than this count as 0.")] = 0.0,
    tolerances: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml",
            help="Tolerances by field: {stress: {relative: 1e-6}, flag: {ignore: true}}; time and coordinates too.",
        ),
    ] = None,
    ids: Annotated[
        bool, typer.Option("--ids/--no-ids", help="Match nodes and elements by their ids, not their order.")
    ] = True,
    records: Annotated[
        bool, typer.Option("--records", help="Compare titles, QA and information records and properties too.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="List so many differences at most.")] = 20,
    timeout: Wait = None,
    json: AsJson = False,
) -> None:
    """Compare two regions: entities, fields, times and values. The exit code is 1 when they differ.

    Parts are joined; files, pools and live streams are compared with each other; 32 and 64 bits make no difference.
    """
    from .. import mesh

    general = mesh.Tolerance(absolute, relative, combined, ulps, floor)
    by_field = _tolerances(tolerances) if tolerances else {}
    options = mesh.Options(
        tolerance=general,
        time=by_field.pop("time", general),
        coordinates=by_field.pop("coordinates", None),
        by_field=by_field,
        ids=ids,
        records=records,
        limit=limit,
    )
    with _open(first, database, timeout=timeout) as a, _open(second, second_database, timeout=timeout) as b:
        report = mesh.compare(a, b, options)
    if json:
        print_json(
            {
                "same": report.same,
                "total": report.total,
                "states": report.states,
                "fields": report.fields,
                "values": report.values,
                "differences": [
                    {"what": each.what, "where": each.where, "state": each.state, "text": each.text}
                    for each in report.differences
                ],
            }
        )
    else:
        for each in report.differences:
            output().print(Text(str(each)), soft_wrap=True)
        more = report.total - len(report.differences)
        if more:
            output().print(f"... and {more} more (--limit)")
        compared = f"{report.states} states, {report.fields} arrays, {report.values} values compared"
        verdict = "the same" if report.same else f"{report.total} difference{'s' * (report.total > 1)}"
        output().print(Text(f"{verdict}: {compared}"), soft_wrap=True)
    raise typer.Exit(0 if report.same else 1)


def _tolerances(file: Path) -> dict[str, Any]:
    import yaml

    from .. import mesh

    try:
        read = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        fail(f"cannot read {file}: {error}", code=2)
    if not isinstance(read, dict) or not all(isinstance(each, dict) for each in read.values()):
        fail(f"{file}: expected fields with their tolerances, like stress: {{relative: 1e-6}}", code=2)
    return {str(name): mesh.Tolerance.of(each) for name, each in read.items()}
