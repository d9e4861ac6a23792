"""Tables, plot and JSON of a benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .cases import COUNT_AFTER, WORKLOADS, Case
from .studies import machine, text_of

Row = dict[str, Any]

# Which bare reference a row is compared with, where it is not two copies.
LIMIT_OF = {
    ("W1", "put_view"): "one_copy",
    ("W1", "put_view_sum"): "one_copy_sum",
    ("W1", "span_view_sum"): "fill_sum",
    ("W2", "span_get"): "one_copy",
    ("W2", "derived"): "one_copy",
    ("W4", "spinning"): "spin",
    ("W4", "spin"): "spin",
}
NOTHING_MOVES = ("handshake", "handover")  # rows whose rates and ratios would mean nothing
FRESH = "fresh"  # the bare reference whose memory is made in the first steps
DEFAULT_LIMIT = {"W1": "two_copies", "W2": "two_copies", "W3": "two_copies", "W4": "futex"}


def row_of(case: Case, runs: list[dict[str, float]]) -> Row:
    """Medians over the runs of one case, times in seconds: median_s of all steps, step_s of one steady step, startup_s
    of what the first steps took beyond steady ones, opened_s of what came before the first step."""
    steady = [run["step_s"] for run in runs]
    row: Row = {
        "workload": case.workload,
        "system": case.system,
        "variant": case.variant,
        "label": case.label,
        "step_s": median(steady),
        "min_s": min(steady),
        "max_s": max(steady),
        "median_s": median(run["seconds"] for run in runs),
        "runs": len(runs),
    }
    sides = ("cpu_{}_s", "{}_step_cpu_s", "rss_{}_mb", "{}_opened_faults", "{}_first_faults", "{}_first_system_s")
    for name in (
        "startup_s",
        "opened_s",
        "begun_s",
        *(one.format(role) for one in sides for role in ("writer", "reader")),
    ):
        row[name] = round(median(run[name] for run in runs), 9)
    row["gb_per_s"] = runs[0]["bytes"] / row["step_s"] / 1e9
    row["first_steps"] = runs[0]["first_steps"]
    row["scaled"] = case.scale != 1.0
    row["rounds"] = {name: [run[name] for run in runs] for name in ("seconds", "step_s", "begun_s")}
    return row


def ratio_of(ours: Row, theirs: Row, figure: str = "step_s") -> float:
    """The median of the ratios within each round: what loads the machine meanwhile meets neighbours alike."""
    pairs = list(zip(ours["rounds"][figure], theirs["rounds"][figure], strict=False))
    if ours["runs"] != theirs["runs"] or any(their <= 0 for _, their in pairs):
        return float(ours[figure] / theirs[figure])
    return float(median(our / their for our, their in pairs))


def add_ratios(rows: dict[tuple[str, str, str], Row]) -> None:
    """Of the steady state."""
    for row in rows.values():
        workload, variant = row["workload"], row["variant"]
        for name in ("installed", "best"):
            sst = rows.get((workload, "sst", name))
            row[f"faster_than_sst_{name}"] = 1 / ratio_of(row, sst) if sst else None
        bare = LIMIT_OF.get((workload, variant), DEFAULT_LIMIT[workload])
        if row["system"] == "limit" and variant != FRESH:
            bare = variant
        limit = rows.get((workload, "limit", bare))
        row["limit"] = bare
        row["times_limit"] = ratio_of(row, limit) if limit else None
        if variant in NOTHING_MOVES:
            row |= {
                "gb_per_s": None,
                "faster_than_sst_installed": None,
                "faster_than_sst_best": None,
                "times_limit": None,
            }


def unit_of(workload: str) -> tuple[str, float]:
    """Of a steady step, with the factor from seconds."""
    return {"W3": ("µs/step", 1e6), "W4": ("µs/trip", 1e6)}.get(workload, ("ms/step", 1e3))


def print_workload(console: Console, workload: str, rows: list[Row]) -> None:
    unit, shown = unit_of(workload)
    title = f"{workload}: {WORKLOADS[workload]}; steady state: after the first {rows[0]['first_steps']:.0f} steps"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("system", "variant"):
        table.add_column(name, no_wrap=True)
    columns = [
        unit,
        "min – max",
        *([] if workload == "W4" else ["GB/s"]),
        f"CPU\n{unit}",
        "peak\nMB",
        "×\nlimit",
        "faster\nthan SST",
        "faster\nthan best",
    ]
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [
            row["system"],
            row["label"],
            text_of(row["step_s"] * shown),
            " – ".join(text_of(row[name] * shown, 3 if row[name] * shown > 0.01 else 1) for name in ("min_s", "max_s")),
        ]
        if workload != "W4":
            cells.append(text_of(row["gb_per_s"]))
        cells += [
            " + ".join(text_of(row[f"{role}_step_cpu_s"] * shown, 2) for role in ("writer", "reader")),
            f"{row['rss_writer_mb']:.0f} + {row['rss_reader_mb']:.0f}",
            text_of(row["times_limit"]),
            text_of(row["faster_than_sst_installed"]),
            text_of(row["faster_than_sst_best"]),
        ]
        table.add_row(*cells, style="bold" if row["system"] == "penstock" else None)
    console.print(table)


def print_startup(console: Console, workload: str, rows: list[Row]) -> None:
    title = (
        f"{workload}, start-up: before the first step, and in the first {rows[0]['first_steps']:.0f}; writer + reader"
    )
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("system", "variant"):
        table.add_column(name, no_wrap=True)
    for name in (
        "ms to the\nfirst step",
        "minor faults\nuntil then",
        "first steps, ms\nbeyond steady ones",
        "minor faults\nin them",
        "ms in the kernel\nin them",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        cells = [
            row["system"],
            row["label"],
            f"{1e3 * row['opened_s']:.0f}",
            both_sides(row, "opened_faults"),
            f"{round(1e3 * row['startup_s'], 1) + 0.0:.1f}",
            both_sides(row, "first_faults"),
            both_sides(row, "first_system_s", 1e3),
        ]
        table.add_row(*cells, style="bold" if row["system"] == "penstock" else None)
    console.print(table)


def steady_row(case: Case, figures: list[dict[str, Any]]) -> Row:
    """Counts of one run, summed over the ranks of each side; announcement bytes of the writer's rank 0."""
    row: Row = {"workload": case.workload, "variant": case.variant, "label": case.label}
    for role in ("writer", "reader"):
        mine = [one for one in figures if one["role"] == role]
        for name in ("allocations", "minor_faults", "major_faults"):
            if all(name in one for one in mine):
                row[f"{role}_{name}"] = sum(one[name] for one in mine)
    first = next(one for one in figures if one["role"] == "writer" and one["rank"] == 0)
    row["counted_steps"] = first.get("counted_steps")
    if "announcement_bytes" in first:
        row["announcement_bytes_per_step"] = first["announcement_bytes"] / first["steps"]
    return row


def both_sides(row: Row, name: str, scale: float = 1.0) -> str:
    sides = [row.get(f"{role}_{name}") for role in ("writer", "reader")]
    return " + ".join("–" if side is None else f"{side * scale:.0f}" for side in sides)


def print_steady(console: Console, rows: list[Row]) -> None:
    if not rows:
        return
    title = f"Penstock in the steady state: whole processes, writer + reader, after the first {COUNT_AFTER} steps"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("", "variant"):
        table.add_column(name)
    for name in ("steps", "allocations", "minor faults", "major faults", "announced bytes/step"):
        table.add_column(name, justify="right")
    for row in rows:
        counts = [both_sides(row, name) for name in ("allocations", "minor_faults", "major_faults")]
        announced = text_of(row.get("announcement_bytes_per_step"), 4)
        table.add_row(row["workload"], row["label"], text_of(row["counted_steps"], 5), *counts, announced)
    console.print(table)


def write_json(path: Path, rows: list[Row], extra: dict[str, Any]) -> None:
    path.write_text(json.dumps({"machine": machine(), "rows": rows, **extra}, indent=2) + "\n")


COLOURS = {
    "limit": "#8a8f98",
    "penstock": "#1f6fb4",
    "mpi": "#3f9c6b",
    "sst": "#c8553d",
    "zeromq ipc": "#d9a441",
    "hdf5 files": "#8d6cab",
}


def plot(path: Path, rows: list[Row]) -> None:
    """One panel a workload, one line a row."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["variant"] not in NOTHING_MOVES:
            groups.setdefault(row["workload"], []).append(row)
    heights = [len(group) + 2 for group in groups.values()]
    picture, axes = pyplot.subplots(
        len(groups),
        1,
        figsize=(9, 0.24 * sum(heights) + 0.5),
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
        layout="constrained",
    )
    for axis, (workload, group) in zip(axes[:, 0], groups.items(), strict=True):
        panel(axis, workload, group)
    picture.savefig(path, dpi=150)
    pyplot.close(picture)


def panel(axis: Any, workload: str, group: list[Row]) -> None:
    """Bars from zero; where the rows lie decades apart, points on a logarithmic axis. Lines span minimum to maximum."""
    per_item = workload in ("W3", "W4")
    unit, factor = unit_of(workload)
    values = [row["step_s"] * factor for row in group]
    positions = range(len(group))
    colours = [COLOURS[row["system"]] for row in group]
    if per_item:
        axis.scatter(values, positions, color=colours, s=28, zorder=3)
        axis.set_xscale("log")
        axis.grid(axis="x", linewidth=0.4, alpha=0.5)
    else:
        axis.barh(positions, values, color=colours)
    axis.hlines(
        positions,
        [row["min_s"] * factor for row in group],
        [row["max_s"] * factor for row in group],
        color="#333333",
        linewidth=1,
    )
    for position, row in enumerate(group):
        text = "  " + text_of(row["step_s"] * factor)
        axis.annotate(text, (row["max_s"] * factor, position), va="center", fontsize=7)
    axis.set_yticks(positions, [f"{row['system']}: {row['label']}" for row in group], fontsize=7)
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_title(f"{workload}: {WORKLOADS[workload]}; {unit} in the steady state", fontsize=9, loc="left")
    axis.tick_params(axis="x", labelsize=7)
    axis.spines[["top", "right"]].set_visible(False)
