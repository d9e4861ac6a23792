"""Pictures of V and of its gradient, and a table of statistics, while the programs that compute them run.

Gets planes of V and "gradient" in rows, whatever the layout of the programs that put them. Leaves in the output folder:
frames/*.png, heterogeneous.gif, statistics.csv.
"""

import argparse
import csv
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

import matplotlib
import numpy as np
import penstock
from penstock.render import animate

matplotlib.use("Agg")  # files only
from matplotlib import pyplot

HIGHEST = {"V": 0.5, "|∇V|": 0.25}  # of the colours


class Picture:
    """Two planes side by side. The figure is made once and drawn anew for each version."""

    def __init__(self, shape: tuple[int, ...]):
        self.figure, axes = pyplot.subplots(1, 2, figsize=(8.4, 4.2), layout="constrained")
        self.images = []
        for axis, (title, highest), colours in zip(axes, HIGHEST.items(), ("inferno", "viridis"), strict=True):
            image = axis.imshow(np.zeros(shape).T, origin="lower", vmin=0, vmax=highest, cmap=colours)
            axis.set_title(title, loc="left", fontsize=10)
            axis.set_xticks([])
            axis.set_yticks([])
            self.figure.colorbar(image, ax=axis, shrink=0.8).ax.tick_params(labelsize=7)
            self.images.append(image)

    def draw(self, planes: Sequence[np.ndarray], title: str, path: Path) -> None:
        for image, plane in zip(self.images, planes, strict=True):
            image.set_data(plane.T)  # x to the right
        self.figure.suptitle(title, fontsize=11)
        self.figure.savefig(path, dpi=100)


def statistics_of(parts: np.ndarray, cells: int) -> dict[str, float]:
    """Mean and maximum of the gradient, from each part's sum and maximum."""
    sums, largest = parts.T
    return {"mean": sums.sum() / cells, "max": largest.max()}


def work(space: penstock.Space, output: Path, versions: int) -> Iterator[tuple[dict[str, float], dict[str, float]]]:
    """Yields a row of statistics and the seconds of each version: waiting, getting, drawing."""
    V, gradient, statistics = (space.wait(name) for name in ("V", "gradient", "gradient_statistics"))
    middle = (..., V.shape[2] // 2)
    picture = Picture(V.shape[:2])
    for version in range(versions):
        begun = perf_counter()
        gradient[version].wait(middle)
        parts = statistics[version][...]
        ready = perf_counter()
        planes = V[version].get(middle, dtype="float32"), gradient[version][middle]
        taken = perf_counter()
        V[version].done("pictures")  # the analyses have read it, too, since the gradient is there
        gradient[version].done("pictures")
        row = {"version": version} | statistics_of(parts, math.prod(V.shape))
        title = f"Gray–Scott, version {version}: |∇V| mean {row['mean']:.4f}, max {row['max']:.3f}"
        picture.draw(planes, title, output / "frames" / f"{version:04d}.png")
        yield row, {"wait": ready - begun, "get": taken - ready, "draw": perf_counter() - taken}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path("output/heterogeneous"), help="folder for the results")
    run = parser.parse_args()
    frames = run.output / "frames"
    frames.mkdir(parents=True, exist_ok=True)
    for old in frames.glob("*.png"):
        old.unlink()
    rows, seconds = [], []
    print("version  mean |∇V|  max |∇V|    get")
    with penstock.Space(timeout=120) as space:
        for row, took in work(space, run.output, run.versions):
            rows.append(row)
            seconds.append(took)
            print(f"{row['version']:7}  {row['mean']:10.6f}  {row['max']:8.5f}  {1e3 * took['get']:.1f} ms", flush=True)
    with open(run.output / "statistics.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    animate(sorted(frames.glob("*.png")), run.output / "heterogeneous.gif", width=640)
    wait, get, draw = ([took[what] for took in seconds] for what in ("wait", "get", "draw"))
    report = {"program": "pictures", "steps": len(rows), "wait_s": sum(wait), "transfer_s": sum(get)}
    report |= {"analysis_s": sum(draw), "gets_s": get}
    (run.output / "pictures.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
