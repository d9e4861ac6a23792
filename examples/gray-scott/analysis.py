"""Statistics and pictures of a Gray-Scott simulation, made while it runs.

    python analysis.py gray-scott --output output/gray-scott

attaches to the stream, now or when it appears, started by `penstock run` or from a second terminal, and leaves in the
output folder: statistics.csv and .png over time; frames/*.png and gray-scott.gif, where V has grown; isosurface.png,
the last of them; analysis.json, where the time went.
"""

import argparse
import csv
import json
import shutil
from pathlib import Path
from time import perf_counter

import matplotlib
import numpy as np
import penstock
from penstock.render import animate, isosurface

LEVEL = 0.2  # the concentration of V that separates pattern from background
U_RANGE = (0.33, 0.66)  # of U on that surface


def statistics(U: np.ndarray, V: np.ndarray) -> dict[str, float]:
    """One row of statistics.csv, beyond step and time."""
    row: dict[str, float] = {}
    for name, field in (("U", U), ("V", V)):
        row |= {f"{name}_min": field.min(), f"{name}_max": field.max()}
        row |= {f"{name}_mean": field.mean(), f"{name}_std": field.std()}
    row["V_fraction"] = (V > LEVEL).mean()
    return {name: float(value) for name, value in row.items()}


def plot(rows: list[dict[str, float]], path: Path) -> None:
    """Draws the rows of statistics.csv over time."""
    matplotlib.use("Agg")  # files only
    from matplotlib import pyplot

    time = [row["time"] for row in rows]
    figure, (fields, pattern) = pyplot.subplots(2, 1, sharex=True, figsize=(7.5, 5.6), layout="constrained")
    for name, color in (("U", "#21407a"), ("V", "#c24a33")):
        mean, low, high = ([row[f"{name}_{what}"] for row in rows] for what in ("mean", "min", "max"))
        fields.fill_between(time, low, high, color=color, alpha=0.13, linewidth=0, label=f"{name}, min to max")
        fields.plot(time, mean, color=color, linewidth=2, label=f"{name}, mean")
    fields.set_ylabel("concentration")
    fields.set_ylim(0, 1.09)
    fields.legend(ncols=2, fontsize="small", frameon=False, loc="center left")
    pattern.plot(time, [100 * row["V_fraction"] for row in rows], color="#2a8591", linewidth=2)
    pattern.set_ylabel(f"volume with V > {LEVEL:g} (%)")
    pattern.set_ylim(bottom=0)
    pattern.set_xlabel("time")
    fields.set_title("Gray-Scott, as the simulation ran", loc="left")
    for axes in (fields, pattern):
        axes.grid(color="#dde2ea", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def analyse(
    stream: penstock.Reader, output: Path, picture_every: int
) -> tuple[list[dict[str, float]], list[Path], dict[str, float]]:
    """Reads the stream to its end; returns the rows, the picture files, and seconds and bytes by what they were for:
    start_s, steady_s, close_s one after the other, and what the steady time was spent on."""
    (output / "frames").mkdir(parents=True, exist_ok=True)
    for old in (output / "frames").glob("*.png"):
        old.unlink()
    rows: list[dict[str, float]] = []
    frames: list[Path] = []
    used = {"wait_s": 0.0, "transfer_s": 0.0, "analysis_s": 0.0, "bytes": 0}
    opened = perf_counter()
    with open(output / "statistics.csv", "w", newline="", encoding="utf-8") as file:
        table = None
        ended = first = opened
        for step in stream:
            began = perf_counter()
            first = began if not rows else first
            U, V = step["U"][...], step["V"][...]
            sim_step, time = step["sim_step"].value, step["time"].value
            taken = perf_counter()

            rows.append({"step": step.number, "sim_step": sim_step, "time": time} | statistics(U, V))
            if table is None:
                table = csv.DictWriter(file, rows[0])
                table.writeheader()
            table.writerow(rows[-1])
            file.flush()  # for whoever looks at it meanwhile
            if picture_every and (len(rows) - 1) % picture_every == 0:
                label = f"Gray–Scott   V = {LEVEL:g}   step {sim_step}   t = {time:g}"
                frame = output / "frames" / f"{sim_step:06d}.png"
                isosurface(V, LEVEL, frame, color_by=U, color_range=U_RANGE, color_label="U", label=label)
                frames.append(frame)

            used["wait_s"] += began - ended
            used["transfer_s"] += taken - began
            used["bytes"] += U.nbytes + V.nbytes
            ended = perf_counter()
            used["analysis_s"] += ended - taken
        used["wait_s"] += perf_counter() - ended  # for the end of the stream
        used |= {"start_s": first - opened, "steady_s": ended - first, "close_s": perf_counter() - ended}
    return rows, frames, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stream", help="the stream's name, or its address")
    parser.add_argument("--output", type=Path, default=Path("output/gray-scott"), help="folder for the results")
    parser.add_argument("--picture-every", type=int, default=1, metavar="N", help="a picture every N steps; 0: none")
    arguments = parser.parse_args()
    output = arguments.output
    began = perf_counter()
    with penstock.open(arguments.stream) as stream:
        opening = perf_counter() - began
        rows, frames, used = analyse(stream, output, arguments.picture_every)
    used["start_s"] += opening
    if not rows:
        raise SystemExit(f"{arguments.stream}: the stream ended before a step could be read")

    began = perf_counter()
    plot(rows, output / "statistics.png")
    if frames:
        shutil.copyfile(frames[-1], output / "isosurface.png")
        animate(frames, output / "gray-scott.gif")
    used["finish_s"] = perf_counter() - began  # plots and animation, after the stream's end
    report = {"program": "analysis", "stream": arguments.stream, "steps": len(rows), "pictures": len(frames)} | used
    (output / "analysis.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(
        f"analysis: {len(rows)} steps, {used['bytes'] / 1e6:.0f} MB: transfer {used['transfer_s']:.2f} s, "
        f"waiting {used['wait_s']:.2f} s, analysis and pictures {used['analysis_s']:.2f} s\n"
        f"V fills {100 * rows[-1]['V_fraction']:.1f} % of the volume at t = {rows[-1]['time']:g}; results in {output}"
    )


if __name__ == "__main__":
    main()
