"""What the commands of `penstock bench` share: rows measured in rounds, tables, claims, JSON, pictures.

A row is one run of programs that gives figures by name. The studies come one after the other; each round of a study
runs every row of it once, so that drift of the machine meets all of them alike. What is shown are medians over the
rounds, and with more than one their spread. A study's tables appear, and the JSON file grows, when it is done.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .runner import RunFailed, run_programs

Figures = dict[str, Any]  # a name -> a number, a list of numbers (all that was seen), or a word
Key = tuple[str, str, str]  # study, system, variant
Rows = dict[Key, "Measured"]

GIVE_UP_AFTER = 2  # failures of one row
TABLE_WIDTH = 144
BUSY_PER_CORE = 0.5  # load average above which a warning is printed


@dataclass(frozen=True)
class Row:
    """One row of a study. run: measures once and returns the figures; raises RunFailed."""

    study: str
    system: str
    variant: str
    label: str
    run: Callable[[Run], Figures] = field(compare=False)

    @property
    def key(self) -> Key:
        return self.study, self.system, self.variant


class Run:
    """What a row has to run in: a folder of its own, one on the disk, the programs, the deadline."""

    def __init__(self, programs: Path, disk: Path, deadline_s: float):
        self.programs = programs
        self.deadline_s = deadline_s
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        self.disk = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=disk))

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in (self.folder, self.disk):
            shutil.rmtree(folder, ignore_errors=True)

    def program(self, name: str, *options: object) -> list[str]:
        return [str(self.programs / name), *(str(option) for option in options)]

    def figures(self, *commands: Sequence[str], environment: dict[str, str] | None = None) -> Figures:
        """Of commands that run together."""
        figures: Figures = {}
        for line in run_programs(commands, environment or {}, self.folder, self.deadline_s):
            figures |= json.loads(line)
        if not figures:
            raise RunFailed(f"{Path(commands[0][0]).name} printed no figures")
        return figures


@dataclass
class Measured:
    """A row with the figures of every round."""

    row: Row
    rounds: list[Figures]

    def values(self, name: str) -> list[float]:
        return [one[name] for one in self.rounds if isinstance(one.get(name), (int, float))]

    def median(self, name: str) -> float | None:
        values = self.values(name)
        return median(values) if values else None

    def word(self, name: str) -> str:
        """The one that most rounds have; "" without."""
        words = Counter(one[name] for one in self.rounds if isinstance(one.get(name), str))
        return words.most_common(1)[0][0] if words else ""

    def names(self) -> list[str]:
        return sorted({name for one in self.rounds for name in one})


# ------------------------------------------------------------------------------------------------------------ measuring


def result_file(word: str) -> Path:
    """The type of an option: a file to write at the end."""
    path = Path(word)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path


def add_options(parser: argparse.ArgumentParser, studies: dict[str, str]) -> None:
    parser.epilog = "Studies: " + "; ".join(f"{name}: {text}" for name, text in studies.items()) + "."
    parser.add_argument("--only", default=",".join(studies), metavar="STUDY,...", help="only these studies")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round: to see that everything works")
    parser.add_argument("--json", type=result_file, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--add",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="rounds of earlier runs (--json) count too: for a measurement in pieces",
    )
    parser.add_argument("--plot", type=result_file, metavar="FILE", help="draw the medians there (PNG, PDF or SVG)")
    parser.add_argument("--repeat", type=int, default=0, metavar="N", help="rounds (default 3; quick: 1)")
    parser.add_argument("--programs", type=Path, metavar="FOLDER", help="the built benchmark programs")
    parser.add_argument(
        "--disk",
        type=Path,
        default=Path(tempfile.gettempdir()),
        metavar="FOLDER",
        help="where files, tiers and journals go (default: %(default)s)",
    )
    parser.add_argument("--deadline", type=float, default=300, metavar="SECONDS", help="of one program (default 300)")


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace, studies: Iterable[str]) -> None:
    options.studies = [name.strip() for name in options.only.split(",") if name.strip()]
    for name in options.studies:
        if name not in studies:
            parser.error(f"no study {name}; there are {', '.join(studies)}")
    if options.repeat < 0:
        parser.error("--repeat must be at least 1")
    options.repeat = options.repeat or (1 if options.quick else 3)


def wide_console() -> Console:
    console = Console(highlight=False)
    return console if console.width >= TABLE_WIDTH else Console(highlight=False, width=TABLE_WIDTH)


def cores() -> int:
    """That this program, and what it starts, may use."""
    return len(os.sched_getaffinity(0))


def warn_if_busy(console: Console) -> float:
    load = os.getloadavg()[0]
    if load > BUSY_PER_CORE * cores():
        console.print(f"[yellow]The machine is busy (load {load:.1f}): figures are only indicative.[/]")
    return load


class Measurement:
    """All rounds of all rows, and what failed."""

    def __init__(self, options: argparse.Namespace, console: Console):
        self.options = options
        self.console = console
        self.rounds: dict[Key, list[Figures]] = {}
        self.failures: dict[Key, list[str]] = {}

    def add(self, path: Path) -> None:
        """The rounds of an earlier run. Raises OSError, ValueError: no such file."""
        earlier = json.loads(path.read_text())
        if earlier.get("quick", False) != getattr(self.options, "quick", False):
            raise ValueError(f"{path} is of other sizes (--quick)")
        for row in earlier["rows"]:
            self.rounds.setdefault((row["study"], row["system"], row["variant"]), []).extend(row["rounds"])

    def measure(self, rows: list[Row]) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # Drawn between runs only: a refreshing thread would take time from them. Where it cannot be drawn, lines tell.
        told = not self.console.is_terminal
        with Progress(
            *columns, console=self.console, auto_refresh=False, transient=True, disable=not self.console.is_terminal
        ) as progress:
            task = progress.add_task("", total=self.options.repeat * len(rows))
            for number in range(self.options.repeat):
                for row in rows:
                    text = f"round {number + 1}: {row.study} {row.system} {row.variant}"
                    progress.update(task, description=f"{text:<40}")
                    progress.refresh()
                    started = time.monotonic()
                    self.run_once(row)
                    progress.advance(task)
                    if told:
                        print(f"{text}: {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)

    def measured(self, rows: Iterable[Row]) -> Rows:
        return {row.key: Measured(row, self.rounds[row.key]) for row in rows if row.key in self.rounds}

    def run_once(self, row: Row) -> None:
        failures = self.failures.setdefault(row.key, [])
        if len(failures) >= GIVE_UP_AFTER:
            return
        try:
            with Run(self.options.programs, self.options.disk, self.options.deadline) as run:
                self.rounds.setdefault(row.key, []).append(row.run(run))
        except RunFailed as failure:
            failures.append(str(failure))
        if not self.rounds.get(row.key):
            self.rounds.pop(row.key, None)

    def failed(self) -> list[str]:
        return [
            f"{' '.join(key)}: failed {len(texts)} times, first: {texts[0]}"
            for key, texts in self.failures.items()
            if texts
        ]


# --------------------------------------------------------------------------------------------------------------- claims


@dataclass(frozen=True)
class Claim:
    """Of our row, in the figures named, against the best of theirs (with none, as it is): the worst figure counts.

    at_least: our figure is so many times theirs or more. at_most: so many times or less. theirs_lower: in their rows
    less is better (times); chooses the best of several.
    """

    text: str
    ours: Key
    figures: tuple[str, ...]
    bound: float
    theirs: tuple[Key, ...] = ()
    their_figure: str = ""  # "": the same
    sense: str = "at_least"
    theirs_lower: bool = False
    unit: str = "×"
    answers: str = ""  # the limitation that this is about (limits.py)
    cores: int = 0  # with fewer the figure is shown, and not judged

    def judge(self, rows: Rows) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "claim": self.text,
            "bound": self.bound,
            "unit": self.unit,
            "answers": self.answers,
            "figure": None,
            "met": None,
        }
        ours = rows.get(self.ours)
        ratios = [self._ratio(ours, rows, name) for name in self.figures] if ours else []
        if not ratios or any(ratio is None for ratio in ratios):
            return entry
        figure = (min if self.sense == "at_least" else max)(ratio for ratio in ratios if ratio is not None)
        if cores() < self.cores:
            return entry | {"figure": figure, "needs_cores": self.cores}
        met = figure >= self.bound if self.sense == "at_least" else figure <= self.bound
        return entry | {"figure": figure, "met": met}

    def _ratio(self, ours: Measured | None, rows: Rows, name: str) -> float | None:
        value = ours.median(name) if ours else None
        if value is None or not self.theirs:
            return value
        others = [rows[key].median(self.their_figure or name) for key in self.theirs if key in rows]
        known = [other for other in others if other]
        return value / (min if self.theirs_lower else max)(known) if known else None


def judge(claims: Iterable[Claim], rows: Rows, studies: Iterable[str]) -> list[dict[str, Any]]:
    """Each claim about these studies with its figure; `met` is None without its rows, or cores."""
    return [claim.judge(rows) for claim in claims if claim.ours[0] in set(studies)]


# --------------------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Column:
    name: str  # of the figure
    heading: str
    scale: float = 1.0
    over: Key | None = None  # divided by the same figure of this row, round by round


@dataclass(frozen=True)
class Sheet:
    """A table of one study; rows without any of its figures are left out."""

    study: str
    title: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Panel:
    """One panel of the picture: points where x is given for each figure name (lines), else bars of one figure."""

    study: str
    title: str
    figures: tuple[tuple[str, float], ...]  # name, x; bars: one name, x is not used
    lines: bool = False
    histogram: bool = False
    spans: bool = False  # figures are [start, end, start, ...]: a lane for each, over time
    scale: float = 1.0


def text_of(value: float | None, digits: int = 3) -> str:
    """Significant digits; no exponent for large values."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text else text


def cell_of(measured: Measured, column: Column, rows: Rows) -> str:
    values = [value * column.scale for value in measured.values(column.name)]
    if column.over is not None:
        other = rows[column.over].values(column.name) if column.over in rows else []
        values = [value / by for value, by in zip(values, other, strict=False) if by]
    if not values:
        return measured.word(column.name) or "–"
    middle = text_of(median(values))
    if min(values) == max(values):
        return middle
    return f"{middle} [dim]{text_of(min(values), 2)}–{text_of(max(values), 2)}[/]"


def print_sheet(console: Console, sheet: Sheet, rows: Rows) -> None:
    shown = [
        one
        for key, one in rows.items()
        if key[0] == sheet.study and any(one.values(column.name) for column in sheet.columns)
    ]
    if not shown:
        return
    table = Table(title=sheet.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("system", no_wrap=True)
    table.add_column("", no_wrap=True)
    for column in sheet.columns:
        table.add_column(column.heading, justify="right")
    for one in shown:
        cells = [cell_of(one, column, rows) for column in sheet.columns]
        table.add_row(one.row.system, one.row.label, *cells, style="bold" if one.row.system == "penstock" else None)
    console.print(table)


def print_claims(console: Console, judged: list[dict[str, Any]]) -> None:
    if not judged:
        return
    table = Table(title=f"Claims, {cores()} cores", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim")
    table.add_column("figure", justify="right")
    table.add_column("")
    words = {True: "[green]met[/]", False: "[red]not met[/]", None: "[dim]not measured[/]"}
    for one in judged:
        value = f"{text_of(one['figure'])}{one['unit']}" if one["figure"] is not None else "–"
        word = f"[dim]needs {one['needs_cores']} cores[/]" if "needs_cores" in one else words[one["met"]]
        table.add_row(one["claim"], value, word)
    console.print(table)


def machine() -> dict[str, Any]:
    """What figures are of, for JSON."""
    return {
        "cores": cores(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }


def write_json(path: Path, rows: Rows, extra: dict[str, Any]) -> None:
    listed = [
        {
            "study": key[0],
            "system": key[1],
            "variant": key[2],
            "label": one.row.label,
            "median": {name: one.median(name) for name in one.names() if one.values(name)},
            "rounds": one.rounds,
        }
        for key, one in rows.items()
    ]
    path.write_text(json.dumps({"machine": machine(), "rows": listed, **extra}, indent=2) + "\n")


# -------------------------------------------------------------------------------------------------------------- one run


@dataclass(frozen=True)
class Benchmark:
    """Everything that a command measures and says. rows: all that there are; the options choose studies."""

    rows: list[Row]
    left_out: list[str]
    claims: Sequence[Claim]
    sheets: Sequence[Sheet]
    panels: Sequence[Panel]
    notes: Sequence[str] = ()
    # Prints what follows from the claims as they were judged, and the number of rounds.
    conclude: Callable[[Console, list[dict[str, Any]], int], None] | None = None


def carry_out(benchmark: Benchmark, options: argparse.Namespace) -> int:
    console = wide_console()
    load = warn_if_busy(console)
    started = time.monotonic()
    measurement = Measurement(options, console)
    for path in options.add:
        try:
            measurement.add(path)
        except (OSError, ValueError, KeyError) as error:
            console.print(f"[red]--add: {error}[/]")
            return 2
    studies = set(options.studies) | {key[0] for key in measurement.rounds}
    interrupted = False
    for study in dict.fromkeys(row.study for row in benchmark.rows if row.study in studies):
        mine = [row for row in benchmark.rows if row.study == study]
        try:
            if study in options.studies and not interrupted:
                measurement.measure(mine)
        except KeyboardInterrupt:  # what there is is shown
            interrupted = True
        for sheet in benchmark.sheets:
            if sheet.study == study:
                print_sheet(console, sheet, measurement.measured(mine))
        if options.json:
            save(benchmark, measurement, studies, load)
    rows = measurement.measured(benchmark.rows)
    judged = judge(benchmark.claims, rows, studies)
    print_claims(console, judged)
    rounds = max((len(one.rounds) for one in rows.values()), default=0)
    if benchmark.conclude:
        benchmark.conclude(console, judged, rounds)
    for note in benchmark.notes:
        console.print(note)
    for line in benchmark.left_out:
        console.print(f"left out: {line}")
    for line in measurement.failed():
        console.print(f"[red]{line}[/]")
    seconds = time.monotonic() - started
    console.print(
        f"medians of {rounds} rounds on {cores()} cores, {seconds:.0f} s in all; what is measured: bench/README.md"
    )
    if options.plot:
        from .pictures import plot

        plot(options.plot, benchmark.panels, rows)
    if interrupted:
        raise KeyboardInterrupt
    return 1 if measurement.failed() else 0


def save(benchmark: Benchmark, measurement: Measurement, studies: set[str], load: float) -> None:
    options, rows = measurement.options, measurement.measured(benchmark.rows)
    extra = {
        "repeat": options.repeat,
        "quick": options.quick,
        "load_before": load,
        "claims": judge(benchmark.claims, rows, studies),
        "left_out": benchmark.left_out,
        "failed": measurement.failed(),
    }
    write_json(options.json, rows, extra)
