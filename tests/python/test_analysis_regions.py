"""A mesh region as a channel of an analysis: on each engine and in files, on one rank and on several."""

import csv
import json
import subprocess
import sys
import threading

import numpy as np
import penstock
import pytest
from penstock import mesh
from penstock.cohort import thread_cohort

from .test_mesh import GENERATED, generated, pytestmark, written  # noqa: F401
from .test_mesh_analysis import two_blocks

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

from penstock.analysis.channels import ChannelName
from penstock.analysis.run import Analysis

TIMEOUT_S = 30.0
PIPELINE = """
queries: {top: max(nodal0)}
extracts:
  table:
    type: csv
    values: {top: top, mean: mean(nodal1), sum: sum(element0), cells: count(element1), whole: max(global0)}
scenes:
  section: {slice: x, color: nodal0, size: [160, 120]}
"""


def analyse(folder, channels, comm=None, pipeline=PIPELINE, context=None):
    folder.mkdir(exist_ok=True)
    path = folder / "pipeline.yaml"
    if comm is None or comm.rank == 0:
        path.write_text(pipeline)
    return Analysis([path], channels, folder, comm, context=context, timeout=TIMEOUT_S).run()


def on_ranks(size, work):
    """work(cohort) on each rank, a thread."""
    if size == 1:
        return [work(None)]
    results, failed = [None] * size, []

    def guarded(cohort):
        try:
            results[cohort.rank] = work(cohort)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(cohort,)) for cohort in thread_cohort(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failed:
        raise failed[0]
    return results


def table(folder, name="table"):
    with open(folder / f"{name}.csv", newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]


def expected():
    with generated() as region:
        return [
            {
                "cycle": state.number,
                "time": state.time,
                "top": state["nodeblock_1", "nodal0"].max(),
                "mean": state["nodeblock_1", "nodal1"].mean(),
                "sum": state["block_1", "element0"].sum(),
                "cells": 72,
                "whole": state["region", "global0"].item(),
            }
            for state in region
        ]


def check(folder):
    found = table(folder)
    assert len(found) == 3
    for ours, theirs in zip(found, expected(), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-12), ours
    pictures = {path.name: path.read_bytes() for path in folder.glob("*.png")}
    assert sorted(pictures) == [f"section-{n:06}.png" for n in range(3)]
    return pictures


@pytest.mark.parametrize("database", ["exodus", "nemesis"])
def test_files(tmp_path, database):
    path = written(tmp_path / "a.e", parts=3 if database == "nemesis" else 1, database=database)
    report = analyse(tmp_path / "one", [str(path)])
    assert report.frames == 3 and report.bytes > 0
    one = check(tmp_path / "one")
    on_ranks(3, lambda cohort: analyse(tmp_path / "three", [str(path)], cohort))
    assert check(tmp_path / "three").keys() == one.keys()


@pytest.mark.parametrize("writers", [1, 2])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("engine", ["direct", "insitu", "pool"])
def test_streams(tmp_path, engine, ranks, writers, monkeypatch, pool_servers):
    """With engine insitu the analysis is in the process of the simulation."""
    monkeypatch.setenv("PENSTOCK_STREAM_PLATE", f"{engine},rendezvous_readers=1,queue_steps=2")
    directory = str(tmp_path / "streams")
    if engine == "pool":
        monkeypatch.setenv("PENSTOCK_STREAM_PLATE", "pool")
        directory = pool_servers(1, memory="256MiB", http="off").directory
    context = penstock.Context(directory=directory, listen="127.0.0.1")
    simulation = threading.Thread(target=lambda: mesh.copy(generated(), "plate", parts=writers, context=context))
    simulation.start()
    on_ranks(ranks, lambda cohort: analyse(tmp_path / "out", ["mesh:plate"], cohort, context=context))
    simulation.join()
    check(tmp_path / "out")
    context._shut_down()


def test_a_script_has_the_region_of_each_state(tmp_path, context):
    script = tmp_path / "script.py"
    script.write_text(
        "FIELDS = ['nodal0']\n"
        "def analyze(step):\n"
        "    found = step.mesh(fields=FIELDS)\n"
        "    path = step.output / f'{step.cycle}.txt'\n"
        "    path.write_text(f\"{step.time} {found.fields['nodal0'].values.max()} {step.values['global0'][0]}\")\n"
        "    return path\n"
    )
    path = written(tmp_path / "a.e")
    (tmp_path / "out").mkdir()
    Analysis([script], [f"run={path}"], tmp_path / "out", context=context).run()
    for row in expected():
        time, top, whole = map(float, (tmp_path / "out" / f"{row['cycle']}.txt").read_text().split())
        assert (time, top, whole) == (row["time"], row["top"], row["whole"])


def test_two_regions(tmp_path, context):
    for name, size in (("a.e", "2x2x2"), ("b.e", "3x3x3")):
        written(tmp_path / name, f"{size}|times:3|nodal:1")
    pipeline = """
extracts:
  a: {type: csv, mesh: a/mesh, statistics: [nodal0]}
  b: {type: csv, mesh: b/mesh, statistics: [nodal0]}
"""
    for latest in ("", "@latest"):
        channels = [f"a={tmp_path / 'a.e'}", f"b={tmp_path / 'b.e'}{latest}"]
        report = analyse(tmp_path / f"out{latest}", channels, pipeline=pipeline, context=context)
        assert report.frames == 3 and report.files_written == 6


def test_names_of_channels():
    assert ChannelName.parse("mesh:plate") == ChannelName("plate", "plate", region=True)
    assert ChannelName.parse("p=mesh:plate@latest") == ChannelName("p", "plate", "latest", region=True)
    assert ChannelName.parse("out/plate.e").region and ChannelName.parse("r=plate.exo").stream == "plate.exo"
    assert not ChannelName.parse("plate").region
    with pytest.raises(penstock.InvalidArgument, match="a stream is needed"):
        ChannelName.parse("mesh:")


def test_a_region_that_is_named_as_a_stream_is_refused(tmp_path, context):
    simulation = threading.Thread(target=lambda: mesh.copy(generated(), "plate", context=context))
    simulation.start()
    with pytest.raises(penstock.InvalidArgument, match="name the channel mesh:plate"):
        analyse(tmp_path / "out", ["plate"], context=context)
    simulation.join()


def test_unknown_fields_and_regions_are_named(tmp_path, context):
    path = written(tmp_path / "a.e")
    with pytest.raises(ValueError, match="nodal9"):
        analyse(tmp_path / "out", [str(path)], pipeline="scenes: {a: {slice: x, color: nodal9}}", context=context)
    with pytest.raises(penstock.NotFound, match="absent"):
        analyse(tmp_path / "out", [str(tmp_path / "absent.e")], context=context)


def test_generated_has_what_is_expected():
    assert "global:1" in GENERATED and np.isfinite([row["whole"] for row in expected()]).all()


def test_more_ranks_than_elements(tmp_path):
    """Blocks that a share has no element of, in files of parts too."""
    two_blocks(tmp_path / "a.e")
    mesh.copy(mesh.open(tmp_path / "a.e"), tmp_path / "parts.e", parts=2, database="nemesis")
    pipeline = """
extracts:
  t:
    type: csv
    values: {strain: max(strain.x), material: max(material), pressure: sum(pressure), p: max(momentum.z),
             energy: max(field("quads/energy"))}
"""
    for name in ("a.e", "parts.e"):
        for ranks in (1, 5):
            out = tmp_path / f"{name}-{ranks}"
            on_ranks(ranks, lambda cohort, out=out, name=name: analyse(out, [str(tmp_path / name)], cohort, pipeline))
            expected = {"cycle": 0, "time": 2.5, "strain": 3, "material": 3, "pressure": 15, "p": 3, "energy": 11}
            assert table(out, "t") == [expected], (name, ranks)


LOST = """
import os, sys
from penstock import mesh

nodes = mesh.Entity("node_block", "nodeblock_1", 1, 1)
nodes.fields = [mesh.Field("coordinates", storage="vector_3d", role="mesh"), mesh.Field("T")]
out = mesh.create("plate", mesh.Model("", 3, [nodes]))
out["nodeblock_1", "coordinates"] = [[0, 0, 0]]
with out.state(0.5) as state:
    state["nodeblock_1", "T"] = [1.0]
sys.stdin.read()
os._exit(1)
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_writer_that_dies_ends_the_analysis(tmp_path, context, ranks, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "streams"))
    script = tmp_path / "script.py"
    script.write_text("def analyze(step):\n    return str(step.time)\n")
    with subprocess.Popen([sys.executable, "-c", LOST], stdin=subprocess.PIPE) as simulation:
        failed = []

        def let_it_die(progress):
            if progress.frames:
                simulation.stdin.close()

        def run(cohort):
            observe = let_it_die if cohort is None or cohort.rank == 0 else None
            given = {"context": context, "timeout": TIMEOUT_S, "observe": observe}
            try:
                Analysis([script], ["mesh:plate"], tmp_path, cohort, **given).run()
            except penstock.Error as error:
                failed.append(error)

        on_ranks(ranks, run)
        assert simulation.wait(TIMEOUT_S) == 1
    assert len(failed) == ranks and any(isinstance(error, penstock.WriterLost) for error in failed), failed
    assert json.loads((tmp_path / "report.json").read_text())["files"] == ["0.5"]
