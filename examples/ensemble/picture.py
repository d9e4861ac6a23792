"""Draws what the model says of a run held out, and how it came to know it.

python picture.py --output output/ensemble
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
import penstock

matplotlib.use("Agg")  # files only
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

sys.path.insert(0, str(Path(__file__).resolve().parent))
from model import MODES, fetch


def fields(
    figure: SubFigure, axes: Sequence[Axes], parameters: dict[str, float], truth: np.ndarray, guess: np.ndarray
) -> None:
    cells = round(len(truth) ** 0.5)
    truth, guess = (snapshots[:, -1].reshape(cells, cells).T for snapshots in (truth, guess))
    least, most = truth.min(), truth.max()
    worst = np.abs(guess - truth).max()
    where = f"κ = {parameters['diffusivity']:.3f}, x = {parameters['x']:.2f}"
    for axis, field, title, options in (
        (axes[0], truth, f"computed: {where}", {"cmap": "inferno", "vmin": least, "vmax": most}),
        (axes[1], guess, "the model's", {"cmap": "inferno", "vmin": least, "vmax": most}),
        (axes[2], guess - truth, "difference", {"cmap": "RdBu_r", "vmin": -worst, "vmax": worst}),
    ):
        image = axis.imshow(field, origin="lower", extent=(0, 1, 0, 1), **options)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
        bar = figure.colorbar(image, ax=axis, shrink=0.8)
        bar.ax.tick_params(labelsize=7)


def learning(axis: Axes, history: np.ndarray) -> None:
    members, _, middle, worst = history.T
    axis.semilogy(members, 100 * worst, "o-", markersize=3, color="#c24a33", label="worst of the runs held out")
    axis.semilogy(members, 100 * middle, "o-", markersize=3, color="#21407a", label="median")
    axis.set_xlabel("members that have ended")
    axis.set_title("error of the model, %, while the ensemble runs", loc="left", fontsize=10)
    axis.legend(fontsize="small", frameon=False)


def spectrum(axis: Axes, values: np.ndarray) -> None:
    shares = values / values[0]
    used = int((shares >= MODES).sum())
    axis.semilogy(np.arange(1, len(values) + 1), shares, ".", color="#8a8f98")
    axis.semilogy(np.arange(1, used + 1), shares[:used], ".", color="#2a8591", label=f"the model's {used} modes")
    axis.set_xlabel("mode")
    axis.set_title("singular values, relative to the first", loc="left", fontsize=10)
    axis.legend(fontsize="small", frameon=False)


def draw(pool: penstock.Pool, path: Path) -> None:
    figure = pyplot.figure(figsize=(9.5, 6), layout="constrained")
    upper, lower = np.asarray(figure.subfigures(2, 1, height_ratios=(1.05, 1)))
    parameters, truth = fetch(pool, "held-out/000")
    fields(upper, upper.subplots(1, 3), parameters, truth, pool.get("model", "prediction/000").array())
    left, right = lower.subplots(1, 2)
    learning(left, pool.get("model", "history").array())
    spectrum(right, pool.get("model", "values").array())
    for axis in (left, right):
        axis.grid(color="#dde2ea", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("output/ensemble"), help="folder for ensemble.png")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with penstock.Pool() as pool:
        draw(pool, options.output / "ensemble.png")


if __name__ == "__main__":
    main()
