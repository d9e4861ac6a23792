"""Pictures of the Sedov blast: a script for an analysis of the region "sedov", wherever its states are.

    penstock analyze mesh:sedov film.py statistics.yaml --output output/sedov

leaves frames/*.png (the density in the plane y = 0, on the moving mesh) and radius.png (the shock's radius beside
Sedov's) in the output folder.
"""

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")  # files only
from matplotlib import pyplot
from matplotlib.collections import PolyCollection
from penstock.analysis.frame import Frame
from penstock.analysis.meshes import UnstructuredMesh

FIELDS = ["density", "displ"]
radii: dict[float, float] = {}  # of the shock, by time


def draw(nodes: np.ndarray, faces: np.ndarray, density: np.ndarray, moment: float, path: Path) -> None:
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


def plot(path: Path) -> None:
    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    curve = np.linspace(0, max(radii), 200)
    axes.plot(curve, curve**0.4, color="#888888", label="Sedov: time to the power 2/5")
    axes.plot(*zip(*radii.items(), strict=True), "o", color="#b04a33", label="simulation")
    axes.set(xlabel="time", ylabel="radius of the shock", xlim=0, ylim=0)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


def analyze(step: Frame) -> list[Path]:
    mesh = step.mesh(fields=FIELDS)
    assert isinstance(mesh, UnstructuredMesh)
    coordinates = np.asarray(mesh.coordinates)
    faces = mesh.blocks[0].connectivity[:, [0, 1, 5, 4]]
    cut = (coordinates[faces, 1] == 0).all(axis=1)
    nodes = coordinates + mesh.fields["displ"].arrays[0]
    radii[step.time] = step.values["shock_radius"].item()
    (step.output / "frames").mkdir(exist_ok=True)
    frame, radius = step.output / "frames" / f"{step.cycle:03}.png", step.output / "radius.png"
    draw(nodes, faces[cut], mesh.fields["density"].arrays[0][cut], step.time, frame)
    plot(radius)
    return [frame, radius]
