"""Pictures of what the studies of `penstock bench rpc` and `penstock bench pool` have measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .studies import Measured, Panel, Rows, text_of

COLOURS = {
    "limit": "#8a8f98",
    "penstock": "#1f6fb4",
    "grpc": "#c8553d",
    "grpcio": "#c8553d",
    "redis": "#c8553d",
    "hdf5 files": "#8d6cab",
    "one process": "#3f9c6b",
}
OTHERS = "#555555"
DASHES = ("-", "--", ":", "-.")


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
    lanes: list[Any] = []
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
            color=COLOURS.get(one.row.system, OTHERS),
            label=f"{one.row.system}: {one.row.label}",
        )
    axis.set_xscale("log", base=2)
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=6, frameon=False)


def draw_bars(axis: Any, panel: Panel, rows: list[Measured]) -> None:
    name = panel.figures[0][0]
    values = [(one.median(name) or 0.0) * panel.scale for one in rows]
    positions = range(len(rows))
    axis.barh(positions, values, color=[COLOURS.get(one.row.system, OTHERS) for one in rows])
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
