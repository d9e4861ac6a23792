"""What `penstock bench rpc` and `penstock bench pool` share: rows measured in rounds, tables, claims, JSON, pictures.

A row is one run of programs that gives figures by name. Each round runs every row once, so that drift of the machine
meets all rows alike; what is shown are medians over the rounds, and with more than one their spread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
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

Figures = dict[str, Any]  # a name -> a number, or a list of numbers (all that was seen)
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

    def names(self) -> list[str]:
        return sorted({name for one in self.rounds for name in one})


# ------------------------------------------------------------------------------------------------------------ measuring


def add_options(parser: argparse.ArgumentParser, studies: dict[str, str]) -> None:
    parser.epilog = "Studies: " + "; ".join(f"{name}: {text}" for name, text in studies.items()) + "."
    parser.add_argument("--only", default=",".join(studies), metavar="STUDY,...", help="only these studies")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round: to see that everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the medians there (PNG, PDF or SVG)")
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


def warn_if_busy(console: Console) -> float:
    load = os.getloadavg()[0]
    if load > BUSY_PER_CORE * len(os.sched_getaffinity(0)):
        console.print(f"[yellow]The machine is busy (load {load:.1f}): figures are only indicative.[/]")
    return load


class Measurement:
    """All rounds of all rows, and what failed."""

    def __init__(self, options: argparse.Namespace, console: Console):
        self.options = options
        self.console = console
        self.rounds: dict[Key, list[Figures]] = {}
        self.failures: dict[Key, list[str]] = {}

    def measure(self, rows: list[Row]) -> Rows:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        # Drawn between runs only: a refreshing thread would take time from them.
        with Progress(*columns, console=self.console, auto_refresh=False, transient=True) as progress:
            task = progress.add_task("", total=self.options.repeat * len(rows))
            for number in range(self.options.repeat):
                for row in rows:
                    progress.update(task, description=f"round {number + 1}: {row.study} {row.system} {row.variant:<24}")
                    progress.refresh()
                    self.run_once(row)
                    progress.advance(task)
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

    def judge(self, rows: Rows) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "claim": self.text,
            "bound": self.bound,
            "unit": self.unit,
            "figure": None,
            "met": None,
        }
        ours = rows.get(self.ours)
        ratios = [self._ratio(ours, rows, name) for name in self.figures] if ours else []
        if not ratios or any(ratio is None for ratio in ratios):
            return entry
        figure = (min if self.sense == "at_least" else max)(ratio for ratio in ratios if ratio is not None)
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
    """Each claim about these studies with its figure; `met` is None when a row was not measured."""
    return [claim.judge(rows) for claim in claims if claim.ours[0] in set(studies)]


# --------------------------------------------------------------------------------------------------------------- tables


@dataclass(frozen=True)
class Column:
    name: str  # of the figure
    heading: str
    scale: float = 1.0


@dataclass(frozen=True)
class Sheet:
    """A table of one study; rows without any of its figures are left out."""

    study: str
    title: str
    columns: tuple[Column, ...]


def text_of(value: float | None, digits: int = 3) -> str:
    """Significant digits; no exponent for large values."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text else text


def cell_of(measured: Measured, column: Column) -> str:
    values = [value * column.scale for value in measured.values(column.name)]
    if not values:
        return "–"
    middle = text_of(median(values))
    if len(values) == 1:
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
        cells = [cell_of(one, column) for column in sheet.columns]
        table.add_row(one.row.system, one.row.label, *cells, style="bold" if one.row.system == "penstock" else None)
    console.print(table)


def print_claims(console: Console, judged: list[dict[str, Any]]) -> None:
    if not judged:
        return
    table = Table(title="Claims", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim")
    table.add_column("figure", justify="right")
    table.add_column("")
    words = {True: "[green]met[/]", False: "[red]not met[/]", None: "[dim]not measured[/]"}
    for one in judged:
        value = f"{text_of(one['figure'])}{one['unit']}" if one["figure"] is not None else "–"
        table.add_row(one["claim"], value, words[one["met"]])
    console.print(table)


def write_json(path: Path, rows: Rows, extra: dict[str, Any]) -> None:
    machine = {
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
    }
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
    path.write_text(json.dumps({"machine": machine, "rows": listed, **extra}, indent=2) + "\n")


# ------------------------------------------------------------------------------------------------------------- pictures

COLOURS = {
    "limit": "#8a8f98",
    "penstock": "#1f6fb4",
    "grpc": "#c8553d",
    "redis": "#c8553d",
    "hdf5 files": "#8d6cab",
}
DASHES = ("-", "--", ":", "-.")


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


def plot(path: Path, panels: Iterable[Panel], rows: Rows) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = []
    for panel in panels:
        mine = [one for key, one in rows.items() if key[0] == panel.study]
        mine = [one for one in mine if any(name in one.names() for name, _ in panel.figures)]
        if mine:
            shown.append((panel, mine))
    if not shown:
        return
    heights = [panel_height(panel, len(mine)) for panel, mine in shown]
    picture, axes = pyplot.subplots(
        len(shown),
        1,
        figsize=(9, sum(heights) + 0.5 * len(shown)),
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
        layout="constrained",
    )
    for axis, (panel, mine) in zip(axes[:, 0], shown, strict=True):
        draw = (
            draw_lines
            if panel.lines
            else draw_histogram
            if panel.histogram
            else draw_spans
            if panel.spans
            else draw_bars
        )
        draw(axis, panel, mine)
        axis.set_title(panel.title, fontsize=9, loc="left")
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    picture.savefig(path, dpi=150)
    pyplot.close(picture)


def panel_height(panel: Panel, rows: int) -> float:
    if panel.lines or panel.histogram:
        return 4.0
    return 0.6 + 0.24 * rows * (len(panel.figures) if panel.spans else 1)


def draw_spans(axis: Any, panel: Panel, rows: list[Measured]) -> None:
    """Of the last round of each row, a lane for each figure; steps are numbered, and every other one is lighter."""
    lanes = []
    for one in rows:
        for n, (name, _) in enumerate(panel.figures):
            spans = [t * panel.scale for t in one.rounds[-1][name]]
            for step, (start, end) in enumerate(zip(spans[::2], spans[1::2], strict=True)):
                axis.barh(len(lanes), end - start, left=start, height=0.7, color=f"C{n}", alpha=0.9 - 0.4 * (step % 2))
                axis.text((start + end) / 2, len(lanes), str(step), ha="center", va="center", fontsize=6)
            lanes.append(f"{name.removesuffix('_s')} ({one.row.label})")
    axis.set_yticks(range(len(lanes)), lanes, fontsize=8)
    axis.invert_yaxis()


def draw_lines(axis: Any, panel: Panel, rows: list[Measured]) -> None:
    seen: dict[str, int] = {}
    for one in rows:
        points = [(x, one.median(name)) for name, x in panel.figures if one.median(name) is not None]
        number = seen[one.row.system] = seen.get(one.row.system, -1) + 1
        axis.plot(
            [x for x, _ in points],
            [y for _, y in points],
            DASHES[number % len(DASHES)],
            marker="o",
            markersize=3,
            color=COLOURS.get(one.row.system),
            label=f"{one.row.system}: {one.row.label}",
        )
    axis.set_xscale("log", base=2)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=6, frameon=False)


def draw_bars(axis: Any, panel: Panel, rows: list[Measured]) -> None:
    name = panel.figures[0][0]
    values = [(one.median(name) or 0.0) * panel.scale for one in rows]
    positions = range(len(rows))
    axis.barh(positions, values, color=[COLOURS.get(one.row.system) for one in rows])
    spans = [[value * panel.scale for value in one.values(name)] or [0.0] for one in rows]
    axis.hlines(positions, [min(span) for span in spans], [max(span) for span in spans], color="#333333", linewidth=1)
    for position, (value, span) in enumerate(zip(values, spans, strict=True)):
        axis.annotate("  " + text_of(value), (max(span), position), va="center", fontsize=7)
    axis.set_yticks(positions, [f"{one.row.system}: {one.row.label}" for one in rows], fontsize=7)
    axis.invert_yaxis()
    axis.margins(x=0.12)


def draw_histogram(axis: Any, panel: Panel, rows: list[Measured]) -> None:
    """Of all values seen, on logarithmic bins."""
    import numpy

    for one in rows:
        values = [value for name, _ in panel.figures for figures in one.rounds for value in figures.get(name, [])]
        if values:
            low, high = max(1.0, min(values)), max(values) * 1.01 + 1
            bins = numpy.geomspace(low, high, 30)
            axis.hist(values, bins=bins, histtype="step", label=f"{one.row.label}: {len(values)}")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.legend(fontsize=6, frameon=False)


# -------------------------------------------------------------------------------------------------------------- one run


@dataclass(frozen=True)
class Benchmark:
    """Everything that a command measures and says."""

    rows: list[Row]
    left_out: list[str]
    claims: Sequence[Claim]
    sheets: Sequence[Sheet]
    panels: Sequence[Panel]
    notes: Sequence[str] = ()


def carry_out(benchmark: Benchmark, options: argparse.Namespace) -> int:
    console = wide_console()
    load = warn_if_busy(console)
    started = time.monotonic()
    measurement = Measurement(options, console)
    rows = measurement.measure(benchmark.rows)
    for sheet in benchmark.sheets:
        print_sheet(console, sheet, rows)
    judged = judge(benchmark.claims, rows, options.studies)
    print_claims(console, judged)
    for note in benchmark.notes:
        console.print(note)
    for line in benchmark.left_out:
        console.print(f"left out: {line}")
    for line in measurement.failed():
        console.print(f"[red]{line}[/]")
    seconds = time.monotonic() - started
    console.print(f"medians of {options.repeat} rounds, {seconds:.0f} s in all; what is measured: bench/README.md")
    if options.json:
        extra = {
            "repeat": options.repeat,
            "quick": options.quick,
            "load_before": load,
            "claims": judged,
            "left_out": benchmark.left_out,
            "failed": measurement.failed(),
        }
        write_json(options.json, rows, extra)
    if options.plot:
        plot(options.plot, benchmark.panels, rows)
    return 1 if measurement.failed() else 0
