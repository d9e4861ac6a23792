"""Sends Exodus files through a pool, a stream and four parts, and compares what comes back; prints a table.

    python tests/python/mesh_corpus.py [--generated] [--quiet] [FILE or FOLDER ...]

Paths: Exodus -> pool -> Exodus; Exodus -> 4 parts (Nemesis) -> joined -> Exodus; Exodus -> direct stream -> Exodus.
Verdicts are those of penstock.mesh.compare, and of readers that have nothing in common with it, each where it is
installed and reads the first file: VTK's vtkIOSSReader and vtkExodusIIReader, netCDF4 (every variable and attribute),
meshio. They run in a process of their own, because files crash them. A file that is refused has a row that says why.
The exit code is 1 where anything is not identical.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mesh_readers import READERS, Readers

PARTS = 4


# --------------------------------------------------------------------------------------------------------------- paths


@dataclass
class Workshop:
    """What the paths need: a context, a client of a pool, a folder for results."""

    context: object
    pool: object
    folder: Path
    streams: int = 0

    def stream(self, engine: str) -> str:
        self.streams += 1
        os.environ[f"PENSTOCK_STREAM_C{self.streams}"] = engine
        return f"c{self.streams}"


def open_file(path: Path):
    """A file; the files PATH.RANKS.RANK joined where there is none of the name."""
    from penstock import mesh

    of_ranks = not path.exists() and any(path.parent.glob(f"{path.name}.*.0"))
    return mesh.open(path, database="nemesis" if of_ranks else "exodus")


def through_pool(shop: Workshop, source: Path, result: Path) -> None:
    import penstock
    from penstock import mesh

    name = shop.stream("pool")
    try:
        with open_file(source) as region:
            mesh.copy(region, name, database="stream", context=shop.context)
        with mesh.open(name, database="stream", context=shop.context) as region:
            mesh.copy(region, result, database="exodus")
    finally:
        with contextlib.suppress(penstock.Error):  # a copy that failed may have made none
            shop.pool.drop_stream(name)


def through_parts(shop: Workshop, source: Path, result: Path) -> None:
    from penstock import mesh

    parts = result.with_suffix(".parts")
    with open_file(source) as region:
        mesh.copy(region, parts, parts=PARTS, database="nemesis")
    with mesh.open(parts, database="nemesis") as region:
        mesh.copy(region, result, database="exodus")


def through_stream(shop: Workshop, source: Path, result: Path) -> None:
    from penstock import mesh

    name = shop.stream("direct")
    errors: list[BaseException] = []

    def send() -> None:
        try:
            with open_file(source) as region:
                mesh.copy(region, name, database="stream", context=shop.context)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with mesh.open(name, database="stream", context=shop.context, timeout=60) as region:
            mesh.copy(region, result, database="exodus")
    finally:
        thread.join()
    if errors:
        raise errors[0]


PATHS: dict[str, Callable[[Workshop, Path, Path], None]] = {
    "pool": through_pool,
    "parts": through_parts,
    "stream": through_stream,
}

# ------------------------------------------------------------------------------------------------------------- verdicts


@dataclass
class Row:
    """verdicts: of each judge "identical", "-" (it does not read the first file), or what is different."""

    file: str
    path: str
    verdicts: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)  # why readers do not read the first file

    @property
    def identical(self) -> bool:
        return all(each in ("identical", "-") for each in self.verdicts.values())


def judge(shop: Workshop, readers: Readers, source: Path) -> Iterator[Row]:
    """A row for each path, or one for a file that is refused."""
    import penstock
    from penstock import mesh

    try:
        open_file(source).close()
    except penstock.Error as error:
        yield Row(source.name, "open", {"compare": f"refused: {error}".replace(f"{source}: ", "")})
        return
    before = {name: readers.read_first(name, source) for name in READERS}
    for path, send in PATHS.items():
        row = Row(source.name, path, unread={name: each for name, each in before.items() if isinstance(each, str)})
        result = shop.folder / f"{source.name}.{path}.e"
        try:
            send(shop, source, result)
            with open_file(source) as one, open_file(result) as two:
                report = mesh.compare(one, two, mesh.Options(records=True))
            row.verdicts["compare"] = "identical" if report.same else f"{report.differences[0]} ({report.total} in all)"
            for name in READERS:
                if name in row.unread:
                    row.verdicts[name] = "-"
                    continue
                row.verdicts[name] = readers.verdict(name, before[name], result)
        except penstock.Error as error:
            row.verdicts["compare"] = f"failed: {error}"
        yield row
        for each in shop.folder.glob(f"{source.name}.*"):
            each.unlink()


def as_table(rows: list[Row]) -> str:
    judges = ["compare", *READERS]
    lines = ["| file | path | " + " | ".join(judges) + " |", "|---" * (len(judges) + 2) + "|"]
    for row in rows:
        cells = [row.verdicts.get(judge, "-").replace("|", "/").replace("\n", " ") for judge in judges]
        lines.append(f"| {row.file} | {row.path} | " + " | ".join(cells) + " |")
    refused = sum(row.path == "open" for row in rows)
    identical = sum(row.identical for row in rows)
    files = len({row.file for row in rows})
    lines += ["", f"{files} files, {refused} refused; {len(rows) - refused} copies, {identical} identical"]
    for judge in judges:
        given = [row.verdicts[judge] for row in rows if row.path != "open" and row.verdicts.get(judge, "-") != "-"]
        lines.append(f"{judge}: identical in {given.count('identical')} of {len(given)}")
        reasons = Counter(row.unread[judge].splitlines()[0][:100] for row in rows if judge in row.unread)
        lines += [f"    {count} not read: {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def generate(folder: Path) -> list[Path]:
    """Meshes with every entity type and topology, in every format and both widths of integers."""
    from mesh_models import everything, polygons, topologies, without_faces, write
    from penstock import mesh

    write(folder / "everything.e", *everything())
    write(folder / "without_faces.e", *without_faces())
    write(folder / "topologies.e", *topologies(), states=2)
    write(folder / "polygons.e", *polygons(), states=1)
    write(folder / "no_states.e", *topologies(), states=0)
    for name, bits, format in (
        ("everything", 64, "netcdf4"),
        ("everything", 32, "offset64"),
        ("without_faces", 32, "netcdf4_classic"),
        ("without_faces", 32, "cdf5"),
    ):
        with open_file(folder / f"{name}.e") as region:
            choice = mesh.Choice(integers=bits)
            mesh.copy(region, folder / f"{name}-{bits}-{format}.e", choice=choice, format=format)
    return sorted(folder.glob("*.e"))


def files_in(names: list[str]) -> list[Path]:
    """The files, and those in the folders, by name. Of files NAME.RANKS.RANK it is NAME, once."""
    found: dict[Path, None] = {}
    for name in map(Path, names):
        for each in sorted(each for each in name.rglob("*") if each.is_file()) if name.is_dir() else [name]:
            found[each.with_name(re.sub(r"\.\d+\.\d+$", "", each.name))] = None
    return list(found)


def run(sources: list[Path], shop: Workshop, quiet: bool = True) -> list[Row]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    rows: list[Row] = []
    with (
        Readers() as readers,
        Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bar,
    ):
        task = bar.add_task("", total=len(sources))
        for source in sources:
            bar.update(task, description=source.name)
            rows += judge(shop, readers, source)
            bar.advance(task)
    return rows


def main() -> int:
    import penstock
    from penstock.workflow.servers import PoolServers
    from penstock.workflow.study import PoolPlan

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", metavar="FILE", help="Exodus files, and folders of them")
    parser.add_argument("--generated", action="store_true", help="generated meshes too")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mesh-corpus-") as name:
        folder = Path(name)
        (folder / "generated").mkdir()
        sources = files_in(options.sources) + (generate(folder / "generated") if options.generated else [])
        if not sources:
            parser.error("no files")
        with PoolServers(PoolPlan(servers=1, memory="1GiB", options={"listen": "127.0.0.1"})) as servers:
            servers.wait_ready()
            context = penstock.Context(directory=servers.directory, listen="127.0.0.1")
            with penstock.Pool("", context=context, directory=servers.directory) as pool:
                rows = run(sources, Workshop(context, pool, folder), options.quiet)
            context._shut_down()
    print(as_table(rows))
    return 0 if all(row.identical for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
