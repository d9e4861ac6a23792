"""Fragments in pipelines: the same tables from any ranks, algorithm and batch; VTK's surface; over time."""

import csv
import gc

import numpy as np
import pytest

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

from penstock.analysis import AmrMesh, UniformMesh, publish
from penstock.analysis.meshes import Field
from penstock.analysis.pipeline import Pipeline
from penstock.analysis.run import Analysis
from penstock.analysis.schema import PipelineError
from penstock.bench.fragments_data import CELLS, ONE, THREE, Balls, octree, volume_fractions
from penstock.cohort import thread_cohort
from penstock.errors import InvalidArgument, NotFound

from .test_analysis_run import beside

TIMEOUT_S = 60.0
FIND = "field: f, mass: m, velocity: u, average: [p]"


def write(context, trees, ranks=1):
    """A simulation: of each tree and its balls one step, in equal runs of blocks. The field p is x of the cells."""

    def of_rank(cohort):
        with context.create("blocks", comm=cohort, timeout=TIMEOUT_S) as stream:
            for cycle, (tree, balls) in enumerate(trees):
                starts = [len(tree) * r // ranks for r in range(ranks + 1)]
                own = tree.rows(starts[cohort.rank], starts[cohort.rank + 1])
                f = volume_fractions(balls, own)
                u = np.zeros((*f.shape, 3), np.float32)
                u[...] = [0.1, 0, 0]
                wide = (own.widths / CELLS)[:, None]
                x = (own.indices[:, :1] * CELLS + np.arange(CELLS) + 0.5) * wide
                fields = {"f": f, "m": 8 * f, "u": u, "p": np.broadcast_to(x[:, None, None, :], f.shape)}
                with stream.step() as step:
                    if cohort.rank == 0:
                        step["cycle"] = cycle
                        step["time"] = 0.5 * cycle
                    mesh = AmrMesh(
                        cells=(CELLS,) * 3, levels=own.levels, indices=own.indices, spacing=(1 / CELLS,) * 3,
                        splits=tree.mortons()[starts[:-1]], depth=tree.depth,
                        fields={name: Field("element", np.ascontiguousarray(each)) for name, each in fields.items()},
                    )  # fmt: skip
                    publish(step, {"blocks": mesh})

    return [lambda c=c: of_rank(c) for c in thread_cohort(ranks)]


def look(context, folder, pipeline, ranks=1, observe=lambda analysis, progress: None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.yaml").write_text(pipeline)

    def of_rank(cohort):
        analysis = Analysis([folder / "pipeline.yaml"], ["blocks"], folder, cohort, context=context, timeout=TIMEOUT_S)
        analysis._observe = lambda progress: observe(analysis, progress)
        analysis.run()

    return [lambda c=c: of_rank(c) for c in thread_cohort(ranks)]


def table(path):
    with open(path, newline="") as file:
        names, *rows = csv.reader(file)
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)} if rows else {}


def numbers(path):
    return {name: column.astype(float) for name, column in table(path).items()}


def test_the_table_is_the_same_for_any_ranks_algorithm_and_batch(context, tmp_path):
    tree = octree(THREE, 3, half=True)
    texts = set()
    for ranks, more in (
        (1, ""),
        (2, ", algorithm: baseline"),
        (3, ", algorithm: refined, batch: 7"),
        (5, ", batch: 50"),
    ):
        folder = tmp_path / str(ranks)
        pipeline = f"extracts: {{t: {{type: csv, fragment_table: {{{FIND}{more}}}}}}}"
        beside(*write(context, [(tree, THREE)], 3), *look(context, folder, pipeline, ranks))
        texts.add((folder / "t-000000.csv").read_text())
    assert len(texts) == 1
    found = numbers(tmp_path / "1/t-000000.csv")
    order = np.argsort(-THREE.radii)
    assert np.allclose(
        found["volume"], 4 / 3 * np.pi * THREE.radii[order] ** 3, rtol=0.07
    )  # without what is below the threshold
    assert np.allclose(found["mass"], 8 * found["volume"]) and np.allclose(found["vx"], 0.1)
    assert np.allclose(np.stack([found[axis] for axis in "xyz"], axis=1), THREE.centres[order], atol=5e-3)
    assert np.allclose(found["p"], found["x"], atol=2e-3)
    assert (
        np.allclose(found["length"], 2 * THREE.radii[order], rtol=0.03) and (abs(found["hull_ratio"] - 1) < 0.04).all()
    )


def test_pieces_are_closed_across_ranks(context, tmp_path):
    tree = octree(ONE, 3, half=True)
    pipeline = (
        f"extracts: {{s: {{type: vtk, fragments: {{{FIND}}}}}, c: {{type: vtk, fragments: {{{FIND}, give: cells}}}}}}"
    )
    beside(*write(context, [(tree, ONE)], 2), *look(context, tmp_path / "out", pipeline, 3))
    surface, cells = (parts_of(tmp_path / "out" / f"{name}-000000.vtm") for name in "sc")
    edges, volume = {}, 0.0
    for part in surface:
        points = [part.GetPoint(n) for n in range(part.GetNumberOfPoints())]
        for n in range(part.GetNumberOfCells()):
            corners = [points[part.GetCell(n).GetPointId(k)] for k in range(3)]
            volume += np.dot(corners[0], np.cross(corners[1], corners[2])) / 6
            for k in range(3):
                edge = (corners[k], corners[(k + 1) % 3])
                edges[edge] = edges.get(edge, 0) + 1
    assert all(count == 1 and edges.get((b, a)) == 1 for (a, b), count in edges.items())
    assert np.isclose(volume, ONE.volume, rtol=0.03)
    assert sum(part.GetNumberOfCells() for part in cells) == (volume_fractions(ONE, tree) >= 0.5).sum()


def parts_of(path):
    from vtkmodules.vtkIOXML import vtkXMLMultiBlockDataReader

    reader = vtkXMLMultiBlockDataReader()
    reader.SetFileName(str(path))
    reader.Update()
    data = reader.GetOutput()
    found = [data.GetBlock(n) for n in range(data.GetNumberOfBlocks())]
    return [each for each in found if each is not None and each.GetNumberOfCells()]


def test_on_one_level_the_surface_and_components_are_those_of_vtk(context, tmp_path):
    from penstock.analysis.vtk import to_vtk
    from vtkmodules.util.numpy_support import vtk_to_numpy
    from vtkmodules.vtkFiltersCore import vtkFlyingEdges3D, vtkPolyDataConnectivityFilter

    depth = 3
    tree = octree(Balls(THREE.centres, THREE.radii), depth)
    tree = tree.rows(0, len(tree))
    assert set(tree.levels) <= {2, 3}
    side = 2**depth
    places = np.stack(np.meshgrid(*[np.arange(side)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    uniform = type(tree)(np.full(len(places), depth), places, depth)
    order = np.argsort(uniform.mortons())
    uniform = type(tree)(uniform.levels[order], uniform.indices[order], depth)
    pipeline = f"extracts: {{s: {{type: vtk, fragments: {{{FIND}}}}}, t: {{type: csv, fragment_table: {{{FIND}}}}}}}"
    beside(*write(context, [(uniform, THREE)]), *look(context, tmp_path / "out", pipeline))

    n = side * CELLS
    f = np.empty((n, n, n))
    for (x, y, z), block in zip(uniform.indices, volume_fractions(THREE, uniform), strict=True):
        f[z * CELLS : (z + 1) * CELLS, y * CELLS : (y + 1) * CELLS, x * CELLS : (x + 1) * CELLS] = block
    centres = UniformMesh(
        shape=f.shape, axes="zyx", origin=(0.5 / n,) * 3, spacing=(1 / n,) * 3, fields={"f": Field("node", f)}
    )
    edges = vtkFlyingEdges3D()
    edges.SetInputData(to_vtk(centres))
    edges.SetInputArrayToProcess(0, 0, 0, 0, "f")
    edges.SetValue(0, 0.5)
    edges.Update()
    theirs = edges.GetOutput()
    ours = surface_of(tmp_path / "out")
    assert ours.GetNumberOfPoints() == theirs.GetNumberOfPoints()
    assert ours.GetNumberOfCells() == theirs.GetNumberOfCells()
    points = [vtk_to_numpy(each.GetPoints().GetData()).astype(np.float64) for each in (ours, theirs)]
    sorted_points = [each[np.lexsort(np.rint(each.T * 1e5))] for each in points]
    assert np.allclose(*sorted_points, atol=2e-6)
    connected = vtkPolyDataConnectivityFilter()
    connected.SetInputData(theirs)
    connected.SetExtractionModeToAllRegions()
    connected.Update()
    assert connected.GetNumberOfExtractedRegions() == len(numbers(tmp_path / "out/t-000000.csv")["fragment"]) == 3


def surface_of(folder):
    from vtkmodules.vtkIOXML import vtkXMLPolyDataReader

    reader = vtkXMLPolyDataReader()
    reader.SetFileName(str(folder / "s-000000.vtp"))
    reader.Update()
    return reader.GetOutput()


def test_fragments_keep_their_tracks(context, tmp_path):
    """Two balls move by 0.05 a step; then a third one is there; then only that."""
    two = [Balls(np.array([[0.3 + d, 0.3, 0.5], [0.3 + d, 0.7, 0.5]]), np.array([0.12, 0.1])) for d in (0, 0.05, 0.1)]
    three = Balls(np.vstack([two[2].centres, [[0.75, 0.5, 0.5]]]), np.array([0.12, 0.1, 0.15]))
    last = Balls(three.centres[2:], three.radii[2:])
    scenes = [*two[:2], three, last]
    pipeline = f"""extracts:
      t: {{type: csv, fragment_table: {{{FIND}}}}}
      e: {{type: csv, fragment_table: {{{FIND}, give: events}}}}
      w: {{type: csv, fragments: {{{FIND}, give: trajectories}}, fields: [track, time]}}
      v: {{type: csv, fragments: {{{FIND}, give: trajectories}}, fields: [volume]}}"""
    beside(*write(context, [(octree(b, 3), b) for b in scenes], 2), *look(context, tmp_path / "out", pipeline, 2))
    tracks = [numbers(tmp_path / f"out/t-{n:06d}.csv")["track"].tolist() for n in range(4)]
    assert tracks == [[0, 1], [0, 1], [2, 0, 1], [2]]
    kinds = [sorted(table(tmp_path / f"out/e-{n:06d}.csv")["kind"].tolist()) for n in range(4)]
    assert kinds == [
        ["birth"] * 2,
        ["continuation"] * 2,
        ["birth"] + ["continuation"] * 2,
        ["continuation"] + ["death"] * 2,
    ]
    ways = table(tmp_path / "out/w-000003.csv")
    assert ways["track"].tolist() == list("00011122") and ways["time"].astype(float).tolist() == [
        0, 0.5, 1, 0, 0.5, 1, 1, 1.5,
    ]  # fmt: skip
    volumes = table(tmp_path / "out/v-000003.csv")
    assert list(volumes) == [*"xyz", "volume"] and all((volumes[axis] == ways[axis]).all() for axis in "xyz")


@pytest.mark.parametrize("ranks", [1, 2])
def test_each_extract_has_each_event_once(context, tmp_path, ranks):
    """Also extracts of one named pipeline, and after an edit; another search begins anew."""

    def text(threshold, picture=""):
        find = f"fragment_table: {{field: f, threshold: {threshold}, give: events}}"
        extracts = "a: {type: csv, pipeline: e, when: cycle % 2 == 1}, b: {type: csv, pipeline: e}"
        return f"pipelines: {{e: {{{find}}}}}\nextracts: {{{extracts}{picture}}}"

    edits = {2: text(0.5, ", c: {type: csv, slice: z}"), 3: text(0.6)}
    kept = {}

    def observe(analysis, progress):
        if progress.files:
            analysis._edited = {"0": edits[progress.cycle]} if progress.cycle in edits else {}
            kept[progress.cycle] = len(analysis._channels.kept)

    looks = look(context, tmp_path / "out", text(0.5), ranks, observe)
    beside(*write(context, [(octree(ONE, 2), ONE)] * 6), *looks)
    kinds = {
        path.name[0] + path.name[7]: "".join(k[0] for k in table(path)["kind"])
        for path in ((tmp_path / "out").glob("[ab]-*.csv"))
    }
    events = ["a1 bc", "a3 cc", "a5 bc", *(f"b{n} {'b' if n in (0, 4) else 'c'}" for n in range(6))]
    assert sorted(f"{name} {text}" for name, text in kinds.items()) == events
    assert kept == dict.fromkeys(range(6), 1)


def test_the_newest_events_are_kept_on_one_rank(context, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.analysis.fragments_tracks.MAX_ROWS", 2)
    kept = []

    def observe(analysis, progress):
        kept.extend(len(tracks._events) for tracks in analysis._channels.kept.values() if progress.files)

    events = "e: {type: csv, fragment_table: {field: f, give: events}, when: cycle == 4}"
    text = f"extracts: {{{events}, t: {{type: csv, fragment_table: f}}}}"
    beside(*write(context, [(octree(ONE, 2), ONE)] * 5), *look(context, tmp_path / "out", text, 2, observe))
    assert table(tmp_path / "out/e-000004.csv")["time"].astype(float).tolist() == [1.5, 2.0]
    assert max(kept) == 2 and kept.count(0) == 5


def test_a_histogram_and_chosen_fragments(context, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_STREAM_FOUND", "rendezvous_readers=1")
    pipeline = f"""
extracts:
  h: {{type: csv, fragment_table: {{{FIND}, give: histogram, bins: 4, log: true}}}}
  t: {{type: csv, fragment_table: {{{FIND}, largest: 2}}}}
  v: {{type: csv, fragment_table: {{{FIND}, min_volume: 0.03}}}}
  s: {{type: stream, stream: found, fragment_table: {{{FIND}}}}}
scenes:
  p: {{fragments: {{{FIND}}}, color: fragment, size: [160, 120]}}
"""
    got = {}

    def follow():
        with context.open("found", timeout=TIMEOUT_S) as stream:
            for step in stream:
                got.update({name: np.array(step[name][...]) for name in step})

    beside(*write(context, [(octree(THREE, 3), THREE)]), *look(context, tmp_path / "out", pipeline), follow)
    histogram = numbers(tmp_path / "out/h-000000.csv")
    assert histogram["count"].sum() == 3 and (histogram["high"] > histogram["low"]).all()
    assert len(numbers(tmp_path / "out/t-000000.csv")["volume"]) == 2
    assert len(numbers(tmp_path / "out/v-000000.csv")["volume"]) == 1
    assert len(got["volume"]) == 3 and got["cycle"] == 0 and (np.diff(got["volume"]) < 0).all()
    assert (tmp_path / "out/p-000000.png").stat().st_size > 1000


def test_an_analysis_keeps_no_step(context, tmp_path):
    """What is read in place of one writer's memory is given up with each frame, also without the garbage collector."""
    pipeline = f"""
scenes:
  p: {{fragments: {{{FIND}}}, color: fragment, size: [160, 120]}}
  s: {{slice: z, color: f, size: [160, 120]}}
extracts:
  c: {{type: vtk, fragments: {{{FIND}, give: cells}}}}
  e: {{type: csv, fragment_table: {{{FIND}, give: events}}, when: cycle % 4 == 3}}
"""
    gc.disable()
    try:
        beside(*write(context, [(octree(ONE, 2), ONE)] * 9), *look(context, tmp_path / "out", pipeline))
    finally:
        gc.enable()
    assert len(list((tmp_path / "out").glob("p-*.png"))) == 9
    kinds = [table(tmp_path / f"out/e-{n:06d}.csv")["kind"].tolist() for n in (3, 7)]
    assert kinds == [["birth"] + ["continuation"] * 3, ["continuation"] * 4]


def test_what_has_no_place_or_an_absurd_velocity_ends_nothing(context, tmp_path):
    """Three bodies: without mass, with a velocity that is no number, and with one that is far too large."""
    tree = octree(THREE, 3)
    f = volume_fractions(THREE, tree)
    centres = tree.indices * tree.widths[:, None] + tree.widths[:, None] / 2
    body = np.linalg.norm(centres[:, None] - THREE.centres, axis=2).argmin(axis=1)
    u = np.zeros((*f.shape, 3))
    u[body == 1], u[body == 2] = np.nan, 1e30
    m = np.where((body == 0)[:, None, None, None], 0, f)

    def simulation():
        with context.create("blocks", timeout=TIMEOUT_S) as stream:
            for cycle in range(2):
                with stream.step() as step:
                    step["time"] = float(cycle)
                    fields = {name: Field("element", each) for name, each in (("f", f), ("m", m), ("u", u))}
                    mesh = AmrMesh(
                        cells=(CELLS,) * 3,
                        levels=tree.levels,
                        indices=tree.indices,
                        spacing=(1 / CELLS,) * 3,
                        fields=fields,
                    )
                    publish(step, {"blocks": mesh})

    pipeline = "extracts: {t: {type: csv, fragment_table: {field: f, mass: m, velocity: u}}}"
    beside(simulation, *look(context, tmp_path / "out", pipeline))
    found = numbers(tmp_path / "out/t-000001.csv")
    order = np.argsort(-THREE.radii).tolist()
    assert found["track"][order.index(0)] == -1 and (np.delete(found["track"], order.index(0)) >= 0).all()
    assert np.isnan(found["x"]).sum() == np.isnan(found["length"]).sum() == 1


def test_mistakes_are_said(context, tmp_path):
    with pytest.raises(
        PipelineError, match=r"pipelines.p: 'fragments' .* stands first in a chain: put it before 'contour'"
    ):
        Pipeline("pipelines: {p: [{contour: f}, {fragments: f}]}")
    with pytest.raises(PipelineError, match=r"extracts.e: .*before 'slice', in a chain without 'pipeline: p'"):
        Pipeline("pipelines: {p: [{slice: z}]}\nextracts: {e: {type: vtk, pipeline: p, fragments: f}}")
    with pytest.raises(PipelineError, match="nothing can follow"):
        Pipeline("pipelines: {p: [{fragment_table: f}, {slice: z}]}")

    for name in ("x", "cells", "track"):
        with pytest.raises(PipelineError, match=f"'{name}' is a column"):
            Pipeline(f"pipelines: {{p: [{{fragments: {{field: f, average: [{name}]}}}}]}}")
    for threshold in (0, 1.5, 200):
        with pytest.raises(PipelineError, match=f"threshold: {threshold} is out of range; more than 0 and at most 1"):
            Pipeline(f"pipelines: {{p: [{{fragments: {{field: f, threshold: {threshold}}}}}]}}")
    for more, why in (("of: volum", "column 'volum'; did you mean 'volume'"), ("of: vx", "column 'vx'")):
        with pytest.raises(PipelineError, match=f"of: the table of fragments has .*{why}"):
            Pipeline(f"pipelines: {{p: [{{fragment_table: {{field: f, {more}}}}}]}}")
    Pipeline("pipelines: {p: [{fragment_table: {field: f, velocity: u, average: [p], of: vx}}]}")

    def uniform():
        with context.create("blocks", timeout=TIMEOUT_S) as stream, stream.step() as step:
            mesh = UniformMesh(shape=(4, 4, 4), fields={"f": Field("node", np.zeros((4, 4, 4)))})
            publish(step, {"grid": mesh})

    why = r"pipeline.yaml: extracts.t: mesh 'grid' is uniform; .* AMR mesh: name one in 'mesh:'"
    with pytest.raises(InvalidArgument, match=why):
        beside(uniform, *look(context, tmp_path / "out", "extracts: {t: {type: csv, fragment_table: f}}"))


def publish_blocks(context, tree, fields):
    """A step of one rank, with these values of the tree's blocks."""
    with context.create("blocks", timeout=TIMEOUT_S) as stream, stream.step() as step:
        mesh = AmrMesh(
            cells=(CELLS,) * 3, levels=tree.levels, indices=tree.indices, spacing=(1 / CELLS,) * 3,
            fields={name: Field("element", each) for name, each in fields.items()},
        )  # fmt: skip
        publish(step, {"blocks": mesh})


@pytest.mark.parametrize(
    "of, why",
    [
        (
            "extracts: {t: {type: csv, fragment_table: {field: u}}}",
            "t: field: mesh 'blocks', field 'u' has 3 components",
        ),
        ("extracts: {t: {type: csv, fragment_table: {field: f, velocity: m}}}", "t: velocity: .* field 'm' has 1 comp"),
        ("extracts: {t: {type: csv, fragment_table: {field: f, mass: n}}}", "t: mass: .* field 'n' is int32, expected"),
        (
            "extracts: {t: {type: csv, fragment_table: f, fields: [volum]}}",
            "t: the table has no column 'volum'; did you",
        ),
        (
            "extracts: {t: {type: csv, fragments: f, fields: [nass]}}",
            "t: there is no field 'nass'; did you mean 'mass'",
        ),
        (
            "extracts: {t: {type: csv, fragment_table: {field: d}}}",
            "t: .*field: a volume fraction is 0 to 1; .* to 7.8",
        ),
        ("scenes: {t: {fragments: f, color: trak}}", "t: there is no field 'trak'; did you mean 'track'"),
        ("scenes: {t: {fragments: f, color: vx}}", "t: there is no field 'vx'; known: .*"),
    ],
)
def test_mistakes_about_fields_are_said(context, tmp_path, of, why):
    tree = octree(ONE, 1)
    f = volume_fractions(ONE, tree)
    fields = {"f": f, "m": f, "u": np.zeros((*f.shape, 3)), "n": f.astype(np.int32), "d": 7.8 * f}

    with pytest.raises((InvalidArgument, NotFound), match=rf"pipeline.yaml: {of.partition(':')[0]}.{why}"):
        beside(lambda: publish_blocks(context, tree, fields), *look(context, tmp_path / "out", of, 2))


def test_fields_of_bytes_are_their_values_and_fractions_of_255(context, tmp_path):
    tree = octree(ONE, 2)
    f = np.rint(255 * volume_fractions(ONE, tree)).astype(np.uint8)
    three = np.full(f.shape, 3, np.uint8)
    fields = {"f": f, "m": three, "u": np.full((*f.shape, 3), 2, np.uint8), "material": three}

    pipeline = "extracts: {t: {type: csv, fragment_table: {field: f, mass: m, velocity: u, average: [material]}}}"
    beside(lambda: publish_blocks(context, tree, fields), *look(context, tmp_path / "out", pipeline))
    found = numbers(tmp_path / "out/t-000000.csv")
    cell = (tree.widths / CELLS)[:, None, None, None] ** 3
    assert np.allclose(found["volume"], np.where(f >= 127.5, f / 255 * cell, 0).sum())
    assert np.allclose(found["mass"], np.where(f >= 127.5, 3 * cell, 0).sum())
    assert np.allclose(found["material"], 3) and np.allclose(found["vx"], 2)
