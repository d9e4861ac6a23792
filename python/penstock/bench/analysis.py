"""`penstock bench analysis`: what co-processing costs the simulation, and the time of a picture from 1 to 4 ranks.

The pictures are of one step that lies in files, so that nothing waits for a simulation. Those of several ranks are
compared with that of one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from . import coupling
from .programs import find_programs
from .studies import result_file

PIPELINES = {
    "surface": "scenes: {p: {contour: {field: T, value: 0.5}, color: T}}",
    "volume": "scenes: {p: {volume: T}}",
    "slice": "scenes: {p: {slice: z, color: T}}",
}
STEPS = 6


def simulation_cost(rounds: int) -> dict[str, float] | None:
    """The medians of the figures of coprocess_steps; None where it is not built."""
    programs = find_programs("coprocess_steps")
    if programs is None:
        return None
    lines = [
        json.loads(subprocess.run([programs / "coprocess_steps"], check=True, capture_output=True).stdout)
        for _ in range(rounds)
    ]
    return {name: float(np.median([line[name] for line in lines])) for name in lines[0]}


def write_steps(folder: Path, side: int) -> None:
    import penstock

    x = np.linspace(-1, 1, side)
    field = np.sqrt(x[:, None, None] ** 2 + x[:, None] ** 2 + x**2) + 0.1 * np.sin(12 * x)
    with penstock.create("field", engine="file", folder=folder) as stream:
        for _ in range(STEPS):
            with stream.step() as step:
                step["T"] = field


def frames(folder: Path, steps: Path, name: str, ranks: int) -> tuple[float, dict[str, float], np.ndarray]:
    """The seconds of a frame, what they were spent on, and the picture."""
    from PIL import Image

    pipeline, out = folder / f"{name}.yaml", folder / f"{name}-{ranks}"
    pipeline.write_text(PIPELINES[name])
    command = [sys.executable, "-m", "penstock.cli.main", "analyze", steps, pipeline, "-o", out, "-n", ranks, "--json"]
    done = subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)
    seconds = json.loads(done.stdout)["seconds"]
    spent = {what: seconds.get(what, 0.0) / STEPS for what in ("filter", "render", "compose", "write")}
    picture = np.asarray(Image.open(sorted(out.glob("p-*.png"))[-1]).convert("RGB"), np.int16)
    return sum(spent.values()), spent, picture


def main(words: list[str] | None = None) -> int:
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(prog="penstock bench analysis", description=__doc__)
    parser.add_argument("--side", type=int, default=64, help="nodes of the mesh in each direction")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of the simulation's side")
    parser.add_argument("--json", type=result_file, help="writes the figures to a file")
    given = parser.parse_args(words)
    console = Console(width=110)
    figures: dict[str, Any] = {"simulation": simulation_cost(given.repeat), "frames": []}
    if figures["simulation"] is not None:
        table = Table("the simulation's side", "figure")
        for name, value in figures["simulation"].items():
            table.add_row(name, f"{value:.3g}")
        console.print(table)
    else:
        console.print("left out: the simulation's side; coprocess_steps is not built (make build, in a source folder)")
    table = Table("picture", "ranks", "s/frame", "filter", "render", "compose", "write", "pixels apart by > 2/255")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["PENSTOCK_DIRECTORY"] = str(folder / "streams")
        coupling_figures = {
            "steering": coupling.steering(folder),
            "wait: automatic": coupling.waiting(folder),
            "analysis killed and restarted": coupling.restarts(folder, given.repeat),
            "largest part over the mean": coupling.partitioners(),
        }
        figures["coupling"] = coupling_figures
        together = Table("together", "figures")
        for what, found in coupling_figures.items():
            together.add_row(what, ", ".join(f"{name} {value:.3g}" for name, value in found.items()))
        console.print(together)
        write_steps(folder / "field.steps", given.side)
        for what in PIPELINES:
            first = None
            for ranks in (1, 2, 3, 4):
                total, spent, picture = frames(folder, folder / "field.steps", what, ranks)
                first = picture if first is None else first
                apart = float((np.abs(picture - first).max(axis=2) > 2).mean())
                figures["frames"].append({"picture": what, "ranks": ranks, "s": total, "apart": apart, **spent})
                table.add_row(what, str(ranks), *(f"{v:.3f}" for v in (total, *spent.values())), f"{100 * apart:.3f} %")
    console.print(table)
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
