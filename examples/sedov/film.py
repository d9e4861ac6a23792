"""Pictures and statistics of the Sedov blast, from the region "sedov", wherever its states are.

    python film.py sedov --output output/sedov

leaves frames/*.png (the density in the plane y = 0, on the moving mesh), statistics.csv and radius.png (the shock's
radius beside Sedov's) in the output folder.
"""

import argparse
import csv
import time
from pathlib import Path

import matplotlib
import numpy as np
from penstock import mesh

matplotlib.use("Agg")  # files only
from matplotlib import pyplot
from matplotlib.collections import PolyCollection


def draw(nodes, faces, density, moment, path):
    figure, axes = pyplot.subplots(figsize=(6, 5.2), layout="constrained")
    polygons = PolyCollection(
        nodes[faces][:, :, [0, 2]], array=density, cmap="magma", edgecolors="#00000030", linewidths=0.2
    )
    polygons.set_clim(0, 6)
    axes.add_collection(polygons)
    axes.set(xlim=(0, 1.2), ylim=(0, 1.2), aspect="equal", xlabel="x", ylabel="z", title=f"density, time {moment:.2f}")
    figure.colorbar(polygons)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def plot(rows, path):
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    times = [row["time"] for row in rows]
    curve = np.linspace(0, max(times), 200)
    axes.plot(curve, curve**0.4, color="#888888", label="Sedov: time to the power 2/5")
    axes.plot(times, [row["shock_radius"] for row in rows], "o", color="#b04a33", label="simulation")
    axes.set(xlabel="time", ylabel="radius of the shock", xlim=0, ylim=0)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("region")
    parser.add_argument("--output", type=Path, required=True)
    run = parser.parse_args()
    frames = run.output / "frames"
    frames.mkdir(parents=True, exist_ok=True)
    rows = []
    begin = time.perf_counter()
    with mesh.open(run.region) as region:
        print(f"{region.model.title}: {region.model.count('element_block')} elements")
        start = region["nodeblock_1", "coordinates"]
        hexes = region["gas", "connectivity"]
        cut = np.flatnonzero((start[hexes[:, [0, 1, 5, 4]], 1] == 0).all(axis=1))
        faces = hexes[cut][:, [0, 1, 5, 4]]
        for state in region:
            if not rows:
                print(f"first state after {time.perf_counter() - begin:.2f} s")
            density = state["gas", "density"]
            moved = start + state["nodeblock_1", "displ"]
            rows.append(
                {
                    "time": state.time,
                    "shock_radius": state["region", "shock_radius"].item(),
                    "total_energy": state["region", "total_energy"].item(),
                    "greatest_density": density.max(),
                    "mean_pressure": state["gas", "pressure"].mean(),
                    "greatest_speed": np.linalg.norm(state["nodeblock_1", "velocity"], axis=1).max(),
                }
            )
            draw(moved, faces, density[cut], state.time, frames / f"{state.number:03}.png")
    with open(run.output / "statistics.csv", "w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    plot(rows, run.output / "radius.png")
    worst = max(abs(row["shock_radius"] / row["time"] ** 0.4 - 1) for row in rows)
    print(f"{len(rows)} states; the shock's radius is at most {100 * worst:.2f} % from Sedov's")


if __name__ == "__main__":
    main()
