"""One pipeline, four engines: the same tables; edits, restarts, several channels, scripts, streams, steering."""

import csv
import json
import threading
import time

import numpy as np
import penstock
import pytest

pytest.importorskip("vtkmodules")

from penstock.analysis import UniformMesh, UnstructuredMesh, publish
from penstock.analysis.meshes import ElementBlock, Field
from penstock.analysis.requests import Requests
from penstock.analysis.run import Analysis
from penstock.cohort import thread_cohort

ENGINES = ["direct", "pool", "insitu", "file"]
TIMEOUT_S = 30.0
SHAPE = (6, 7, 8)
PIPELINE = """
queries: {top: max(T)}
extracts:
  table: {type: csv, values: {top: top, mean: mean(T), rise: top - previous(top)}}
  middle: {type: csv, when: cycle % 2 == 0, slice: {normal: z}, fields: [T]}
  counts: {type: csv, when: top > 2.5, histogram: {field: T, bins: 4}}
"""


@pytest.fixture
def engine(request, tmp_path, monkeypatch):
    """One word of configuration says where the steps go."""
    configuration = tmp_path / "penstock.yaml"
    configuration.write_text(f"streams: {{heat: {{engine: {request.param}}}}}\n")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(configuration))
    monkeypatch.chdir(tmp_path)
    if request.param == "pool":
        servers = request.getfixturevalue("pool_servers")(1, memory="256MiB", http="off")
        monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    return request.param


def field(cycle):
    z, y, x = np.meshgrid(*(np.linspace(0, 1, n) for n in SHAPE), indexing="ij")
    return cycle * x + y * z


def write(context, cycles=5, name="heat", at=None, pause=None):
    """A simulation: a uniform mesh with the field T."""
    with context.create(name, timeout=TIMEOUT_S) as stream:
        for cycle in range(cycles):
            with stream.step() as step:
                step["cycle"] = cycle
                step["time"] = 0.5 * cycle
                mesh = UniformMesh(shape=SHAPE, axes="zyx", fields={"T": Field("node", field(cycle))})
                publish(step, {"grid": mesh})
            if pause is not None:
                pause(cycle)


def rows(path):
    with open(path, newline="") as file:
        return [[float(cell) for cell in row] for row in list(csv.reader(file))[1:]]


def analyse(context, tmp_path, pipeline=PIPELINE, channels=("heat",), **options):
    path = tmp_path / "pipeline.yaml"
    path.write_text(pipeline)
    return Analysis([path], channels, tmp_path / "out", context=context, timeout=TIMEOUT_S, **options)


def beside(*works):
    """Runs each on a thread; raises what the first failed with."""
    failed = []

    def guarded(work):
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failed:
        raise failed[0]


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_the_same_tables_from_each_engine(engine, tmp_path):
    analysis = []
    context = penstock.Context(directory=str(tmp_path / "streams"), listen="127.0.0.1")

    def look():
        analysis.append(analyse(context, tmp_path).run())

    if engine == "file":
        write(context)
        look()
    else:
        beside(lambda: write(context), look)
    (report,) = analysis
    assert report.frames == 5 and report.bytes > 0
    out = tmp_path / "out"
    table = rows(out / "table.csv")
    for cycle, row in enumerate(table):
        values = field(cycle)
        expected = [cycle, 0.5 * cycle, values.max(), values.mean(), values.max() - field(cycle - 1).max()]
        np.testing.assert_allclose(row, [*expected[:4], np.nan if cycle == 0 else expected[4]], rtol=1e-12)
    assert len(table) == 5
    assert sorted(path.name for path in out.glob("middle-*.csv")) == [f"middle-{n:06d}.csv" for n in (0, 2, 4)]
    assert len(rows(out / "middle-000004.csv")) == SHAPE[1] * SHAPE[2]
    assert sorted(path.name for path in out.glob("counts-*.csv")) == [f"counts-{n:06d}.csv" for n in (2, 3, 4)]
    assert json.loads((out / "report.json").read_text())["frames"] == 5
