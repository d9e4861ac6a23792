"""What a run leaves behind: `summary.json`, and the table made of it.

Figures come from the programs' own reports (`<output>/<program>.json`) and, where a report is silent, from the
statistics files of their streams. Nothing is estimated: what nobody measured is absent (null, "–").
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from ..units import duration, size
from .statistics import Endpoint, read_endpoints
from .study import Study
from .supervisor import Child, Verdict

PICTURES = (".png", ".jpg", ".jpeg", ".svg", ".pdf", ".gif", ".mp4", ".webm")


@dataclass(frozen=True)
class Figure:
    """One row of the table: a key of reports, or a field of statistics on one side of a stream."""

    key: str
    label: str
    show: Callable[[Any], str]
    statistic: str = ""
    also: str = ""  # another name of it in reports
    roles: tuple[str, ...] = ("writer", "reader")
    of_all_ranks: bool = False  # a sum over ranks, which statistics (rank 0's) can give for one rank only


FIGURES = (
    Figure("steps", "steps", str, "steps", also="steps_written"),
    Figure("dropped", "steps dropped", str, "steps_dropped", also="steps_dropped"),
    Figure("start_s", "init (to its first step)", duration),
    Figure("steady_s", "steady (to its last step)", duration),
    Figure("close_s", "drain (until all is handed over)", duration),
    Figure("simulation_s", "simulation", duration),
    Figure("put_s", "put, end of step", duration, "copy_s", roles=("writer",)),
    Figure("transfer_s", "transfer", duration, "copy_s", roles=("reader",)),
    Figure("wait_s", "stall (writer), waiting (reader)", duration, "wait_s"),
    Figure("analysis_s", "analysis", duration),
    Figure("bytes", "data", size, "bytes", of_all_ranks=True),
    Figure("copies", "copies", str, "copies", of_all_ranks=True),
)


def summarise(
    study: Study,
    programs: list[Child],
    everything: list[Child],
    verdict: Verdict,
    started_at: datetime,
    elapsed_s: float,
    pool: dict[str, Any] | None = None,
) -> dict[str, Any]:
    by_name = {child.launch.name: child for child in programs}
    check = next((c for c in everything if c not in programs), None)
    return {
        "name": study.name,
        "study": str(study.file),
        "status": verdict.value,
        "started": started_at.isoformat(timespec="seconds"),
        "elapsed_s": round(elapsed_s, 3),
        "programs": {p.name: _program(study, p.name, by_name.get(p.name)) for p in study.programs},
        "check": check.outcome() if check else None,
        "streams": study.streams,
        "pool": pool,
        "files": _files(study.output, study.pool.disk if study.pool else None, since=started_at.timestamp()),
    }


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def summary_table(summary: dict[str, Any]) -> Table:
    """One column for each program, one row for each figure that at least one of them has."""
    programs = summary["programs"]
    title = f"{summary['name']}: {summary['status']} in {duration(summary['elapsed_s'])}"
    table = Table(title=title, title_style="bold")
    table.add_column("")
    for name in programs:
        table.add_column(name, justify="right")
    table.add_row("outcome", *(p["outcome"] for p in programs.values()))
    table.add_row("ranks", *(str(p["ranks"]) for p in programs.values()))
    table.add_row("elapsed", *(_shown(p["elapsed_s"], duration) for p in programs.values()), end_section=True)
    for figure in FIGURES:
        values = [p.get(figure.key) for p in programs.values()]
        if any(value is not None for value in values):
            table.add_row(figure.label, *(_shown(value, figure.show) for value in values))
    return table


def pool_table(summary: dict[str, Any]) -> Table | None:
    """What the servers did that the run has started: one column for each. Only with a disk can they evict anything."""
    pool = summary.get("pool")
    if not pool or not pool["servers"]:
        return None
    servers = pool["servers"]
    table = Table("", title=f"pool {pool['name']}", title_style="bold")
    for server in servers:
        table.add_column(server["name"], justify="right", overflow="fold")
    table.add_row("memory at most", *(size(s["memory"]["peak"]) for s in servers))
    table.add_row("of", *(size(s["memory"]["limit"]) for s in servers))
    if any(s["tiers"] for s in servers):
        table.add_row("disk", *(size(sum(tier["bytes"] for tier in s["tiers"])) for s in servers))
        table.add_row("evicted", *(str(s["evictions"]) for s in servers))
        table.add_row("recalled", *(str(s["recalls"]) for s in servers))
    table.add_row("in", *(size(s["bytes_in"]) for s in servers))
    table.add_row("out", *(size(s["bytes_out"]) for s in servers))
    return table


def pictures_of(summary: dict[str, Any]) -> list[str]:
    return [f["path"] for f in summary["files"] if f["path"].lower().endswith(PICTURES)]


# ------------------------------------------------------------------------------------------------------------ parts


def _program(study: Study, name: str, child: Child | None) -> dict[str, Any]:
    if child is None:
        program = next(p for p in study.programs if p.name == name)
        return {"outcome": "not started", "ranks": program.ranks, "elapsed_s": None}
    endpoints = read_endpoints(study.output / ".statistics" / name)
    report = _report(study.output / f"{name}.json")
    figures = {f.key: _figure(f, report, endpoints, child.launch.ranks) for f in FIGURES}
    return {
        "outcome": child.outcome(),
        "exit_code": child.exit_code,
        "ranks": child.launch.ranks,
        "elapsed_s": round(child.elapsed_s(), 3),
        "command": list(child.launch.command),
        "log": str(child.launch.log.relative_to(study.output)),
        **figures,
        "report": report,
        "streams": [{"stream": e.stream, "role": e.role, "pid": e.pid, **e.values} for e in endpoints],
    }


def _report(path: Path) -> dict[str, Any] | None:
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) else None


def _figure(figure: Figure, report: dict[str, Any] | None, endpoints: list[Endpoint], ranks: int) -> int | float | None:
    for key in (figure.key, figure.also):
        value = (report or {}).get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    if not figure.statistic or (figure.of_all_ranks and ranks > 1):
        return None
    values = [e.values.get(figure.statistic) for e in endpoints if e.role in figure.roles]
    numbers = [v for v in values if isinstance(v, int | float)]
    return sum(numbers) if numbers else None


def _files(output: Path, disk: Path | None, since: float) -> list[dict[str, Any]]:
    """What this run left in its folder, besides the runner's own files."""
    found = []
    for folder, folders, names in os.walk(output):
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        if Path(folder) == output:
            folders[:] = [f for f in folders if f != "logs"]
        folders[:] = [f for f in folders if Path(folder, f) != disk]
        for name in sorted(names):
            path = Path(folder) / name
            if name.startswith(".") or path == output / "penstock.yaml":
                continue
            status = path.stat() if path.exists() else None
            # File times are coarser than the clock that gave `since`.
            if status and status.st_mtime >= since - 0.02:
                found.append({"path": str(path.relative_to(output)), "bytes": status.st_size})
    return found


def _shown(value: Any, show: Callable[[Any], str]) -> str:
    return "–" if value is None else show(value)
