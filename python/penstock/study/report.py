"""The report of `penstock study staging`: an HTML file with verdicts, and a picture and a table of each experiment."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Sequence
from statistics import median

from .experiments import EXPERIMENTS, Plan
from .judges import ROLES, Raw, counts, rounds_of, times
from .statements import CONFIRMED, NOT_TESTABLE, REFUTED, Verdict

AT = {
    "cycle": "delay {} T",
    "servers": "{} servers",
    "subset": "cube {}³",
    "scaling": "{} writers",
    "sharing": "{} programs",
    "tight": "memory {} × data",
}
SHADES = ("#0b3c6f", "#1f6fb4", "#6aa7d8", "#b5d3ec")
QUICK_NOTE = "Sizes of --quick: counts and memory mean something, times and the verdicts on them do not."
LOGARITHMIC_FROM = 20.0  # longest to shortest

Column = tuple[str, str, Callable[[Raw, str], list[float]]]  # title, format, figures of each round


def _time(role: str) -> Column:
    return f"{role.replace('_', ' ')}, ms/step", "{:.2f}", lambda raw, key: [1e3 * one for one in times(raw, key, role)]


COLUMNS: tuple[Column, ...] = (
    *(_time(role) for role in ROLES),
    ("converted, × data", "{:.3f}", lambda raw, key: counts(raw, key, "converted_bytes")),
    ("memory peak, × data", "{:.3f}", lambda raw, key: counts(raw, key, "memory_peak")),
    ("PSS of servers, MB", "{:.0f}", lambda raw, key: [one["servers"]["pss"] / 1e6 for one in rounds_of(raw, key)]),
)
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1200px; margin: 2em auto; padding: 0 1em; color: #1c2430 }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em }
table { border-collapse: collapse; width: 100%; font-size: 13px }
th, td { text-align: left; vertical-align: top; padding: 5px 10px 5px 0; border-bottom: 1px solid #dfe3e8 }
th { border-bottom: 2px solid #8a8f98 } td:first-child { white-space: nowrap }
td.number, th.number { text-align: right; white-space: nowrap }
.verdict { font-weight: 600; white-space: nowrap } .confirmed { color: #23784a } .refuted { color: #b03a24 }
.not { color: #6a6f78 } img { width: 100% } p.note { color: #555 }
"""


def page(raw: Raw, verdicts: Sequence[Verdict]) -> str:
    plan = Plan(**raw["plan"])
    rounds = max((len(one) for one in raw["cases"].values()), default=0)
    tally = ", ".join(
        f"{sum(one.verdict == word for one in verdicts)} {word}" for word in (CONFIRMED, REFUTED, NOT_TESTABLE)
    )
    about = (
        f"{raw['begun']}; {raw['cores']} cores, {raw['machine']}; load {raw['load_before']:.1f} before, "
        f"{raw['load_after']:.1f} after; rounds: {rounds}. Each case moves {plan.steps} steps of {plan.side}³ doubles "
        f"({plan.step_bytes / 1e6:.1f} MB). T = {1e3 * raw['conversion_s']:.1f} ms: a server converts a step in it."
    )
    words = (
        "R1 = at_reader, R2 = on_request, R3 = in_advance. Writers have rows, readers want columns; with _same, rows. "
        "Reader 1 runs beside the writers, reader 2 when reader 1 has ended. A time is the median over the steps but "
        "the first; a step takes as long as its slowest rank; waiting for a step that is not there yet is not counted."
    )
    parts = [
        f"<h1>SAND2021-10271 on this machine: {tally}</h1><p>{html.escape(about)}</p>",
        f'<p class="note">{html.escape(words)}</p>',
        *([f"<p><b>{QUICK_NOTE}</b></p>"] if raw["quick"] else []),
        *(f"<p>left out: {html.escape(line)}</p>" for line in raw["left_out"]),
        verdict_table(verdicts),
    ]
    for name, title in EXPERIMENTS.items():
        if keys := [key for key in raw["cases"] if key.startswith(f"{name}/")]:
            systems = [key.split("/")[1] for key in keys]
            keys.sort(key=lambda key: systems.index(key.split("/")[1]))
            parts.append(f"<h2>{html.escape(name)}: {html.escape(title)}</h2>{picture(raw, keys)}{figures(raw, keys)}")
    parts += [f"<p>{html.escape(key)} failed: {html.escape(text)}</p>" for key, text in raw["failed"].items()]
    head = f'<meta charset="utf-8"><title>penstock study staging</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    rows = [
        f"<tr><td>{html.escape(one.where)}</td><td>{html.escape(one.text)}</td><td>{html.escape(one.measured)}</td>"
        f'<td class="verdict {one.verdict.split()[0]}">{one.verdict}</td><td>{html.escape(one.why)}</td></tr>'
        for one in verdicts
    ]
    names = ("section", "the paper says", "measured here", "verdict", "why")
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>{''.join(rows)}</table>"


def label(key: str) -> str:
    experiment, system, at = key.split("/")
    return f"{system}, {AT[experiment].format(at)}"


def of_column(raw: Raw, key: str, column: Column) -> list[float]:
    """Nothing where a case has no servers."""
    try:
        return column[2](raw, key)
    except KeyError:
        return []


def figures(raw: Raw, keys: Sequence[str]) -> str:
    head = "".join(f'<th class="number">{title}</th>' for title, _, _ in COLUMNS)
    rows = []
    for key in keys:
        found = [of_column(raw, key, column) for column in COLUMNS]
        shown = [form.format(median(one)) if one else "–" for (_, form, _), one in zip(COLUMNS, found, strict=True)]
        cells = [f'<td class="number">{one}</td>' for one in shown]
        rows.append(f"<tr><td>{label(key)}</td>{''.join(cells)}</tr>")
    return f"<table><tr><th>case</th>{head}</tr>{''.join(rows)}</table>"


def picture(raw: Raw, keys: Sequence[str]) -> str:
    """Times, conversions and memory beside each other; a bar for each case, from zero or on a logarithmic axis."""
    try:
        import matplotlib
    except ImportError:
        return '<p class="note">Pictures need Matplotlib: pip install matplotlib</p>'
    matplotlib.use("Agg")
    from matplotlib import pyplot

    values = list(dict.fromkeys(key.split("/")[2] for key in keys))
    colours = [SHADES[values.index(key.split("/")[2]) % len(SHADES)] for key in keys]
    size = (14, 0.9 + 0.22 * len(keys))
    drawn, axes = pyplot.subplots(1, len(COLUMNS) - 1, figsize=size, sharey=True, layout="constrained")
    for axis, column in zip(axes, COLUMNS, strict=False):
        found = {n: one for n, key in enumerate(keys) if (one := of_column(raw, key, column))}
        heights = [median(one) for one in found.values()]
        axis.barh(list(found), heights, color=[colours[n] for n in found])
        axis.hlines(
            list(found), [min(one) for one in found.values()], [max(one) for one in found.values()], color="#333"
        )
        for n, one in found.items():
            axis.annotate("  " + column[1].format(median(one)), (max(one), n), va="center", fontsize=7)
        if heights and min(heights) > 0 and max(heights) > LOGARITHMIC_FROM * min(heights):
            axis.set_xscale("log")
        else:
            axis.locator_params(axis="x", nbins=4)
        axis.margins(x=0.25, y=0.02)
        axis.set_title(column[0], fontsize=9, loc="left")
        axis.tick_params(labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(range(len(keys)), [label(key) for key in keys], fontsize=7)
    axes[0].invert_yaxis()
    stream = io.BytesIO()
    drawn.savefig(stream, format="svg")
    pyplot.close(drawn)
    return f'<img alt="bars" src="data:image/svg+xml;base64,{base64.b64encode(stream.getvalue()).decode()}">'
