"""One pipeline, four engines: the same tables; edits, restarts, several channels, scripts, streams, steering."""

import csv
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import penstock
import pytest

pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")

from penstock.analysis import ParticleMesh, UniformMesh, publish
from penstock.analysis.meshes import Field
from penstock.analysis.run import Analysis
from penstock.cohort import thread_cohort

ENGINES = ["direct", "pool", "insitu", "file", "space"]
TIMEOUT_S = 30.0
SHAPE = (6, 7, 8)
PIPELINE = """
queries: {top: max(T)}
extracts:
  table: {type: csv, values: {top: top, mean: mean(T), rise: top - previous(top)}}
  middle: {type: csv, when: cycle % 2 == 0, slice: {normal: z}, fields: [T]}
  counts: {type: csv, when: top > 2.5, histogram: {field: T, bins: 4}}
"""
SCENE = """
scenes:
  surface: {contour: {field: T, value: 1.2}, color: T, size: [160, 120], when: cycle % 2 == 0 and top > 1}
"""


@pytest.fixture
def choose(tmp_path, monkeypatch, pool_servers):
    """choose(engine): the context in which one word of configuration says where the steps go."""

    def choose(engine):
        here = tmp_path / engine
        here.mkdir()
        (here / "penstock.yaml").write_text(f"streams: {{heat: {{engine: {engine}}}}}\n")
        monkeypatch.setenv("PENSTOCK_CONFIG", str(here / "penstock.yaml"))
        monkeypatch.chdir(here)
        if engine in ("pool", "space"):
            servers = pool_servers(1, memory="256MiB", http="off")
            monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
        else:
            monkeypatch.delenv("PENSTOCK_DIRECTORY_SERVICE", raising=False)
        return penstock.Context(directory=str(here / "streams"), listen="127.0.0.1"), here

    return choose


def field(cycle):
    z, y, x = np.meshgrid(*(np.linspace(0, 1, n) for n in SHAPE), indexing="ij")
    return cycle * x + y * z


def write(context, cycles=5, name="heat", values=field, pause=None):
    """A simulation: a uniform mesh with the field T."""
    with context.create(name, timeout=TIMEOUT_S) as stream:
        for cycle in range(cycles):
            with stream.step() as step:
                step["cycle"] = cycle
                step["time"] = 0.5 * cycle
                mesh = UniformMesh(shape=SHAPE, axes="zyx", fields={"T": Field("node", values(cycle))})
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


def test_the_same_tables_and_pictures_from_each_engine(choose):
    pictures = {}
    for engine in ENGINES:
        context, here = choose(engine)
        reports = []

        def look(context=context, here=here, reports=reports):
            reports.append(analyse(context, here, PIPELINE + SCENE).run())

        if engine == "file":
            write(context)
            look()
        else:
            beside(lambda context=context: write(context), look)
        assert reports[0].frames == 5 and reports[0].bytes > 0
        check_tables(here / "out")
        pictures[engine] = {path.name: path.read_bytes() for path in (here / "out").glob("*.png")}
    assert sorted(pictures["direct"]) == ["surface-000002.png", "surface-000004.png"]
    assert len(set(pictures["direct"].values())) == 2
    for engine in ENGINES:
        assert pictures[engine] == pictures["direct"], engine


def check_tables(out):
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


@pytest.fixture
def context(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return penstock.Context(directory=str(tmp_path / "streams"), listen="127.0.0.1")


def edit_after(analysed, noticed, path, text):
    """For write(): when the first cycle is analysed the pipeline is edited; the next waits until that is noticed."""

    def pause(cycle):
        if cycle == 0:
            assert analysed.wait(TIMEOUT_S)
            path.write_text(text)
            os.utime(path, ns=(time.time_ns(), time.time_ns()))
            assert noticed.wait(TIMEOUT_S)

    return pause


@pytest.mark.parametrize(
    ("edited", "problem"),
    [
        ("extracts: {other: {type: csv, values: {top: max(T)}}}", ""),
        ("extracts: {other: {type: csv, values: {top: max(X)}}}", "there is no field 'X'"),
        ("extracts: [", "pipeline.yaml"),
    ],
)
def test_an_edited_pipeline_takes_effect_or_is_refused(edited, problem, context, tmp_path):
    first, seen, problems = threading.Event(), threading.Event(), set()
    analysis = analyse(context, tmp_path)

    def observe(progress):
        problems.add(progress.problem)
        if progress.frames:
            first.set()
        if progress.frames and (progress.problem if problem else analysis._edited or analysis.report.edits):
            seen.set()

    analysis._observe = observe
    pause = edit_after(first, seen, tmp_path / "pipeline.yaml", edited)
    beside(lambda: write(context, 4, pause=pause), lambda: analysis.run())
    out = tmp_path / "out"
    assert analysis.report.frames == 4 and analysis.report.edits == (not problem)
    assert len(rows(out / "table.csv")) == (4 if problem else 1)
    assert (out / "other.csv").exists() == (not problem)
    assert not problem or any(problem in each for each in problems)


def test_a_misspelt_field_ends_the_analysis_at_its_first_frame(context, tmp_path):
    def look():
        with pytest.raises(penstock.InvalidArgument, match=r"scenes.a: there is no field 'TT'"):
            analyse(context, tmp_path, "scenes: {a: {slice: z, color: TT}}").run()

    beside(lambda: write(context, 2, name="heat"), look)


def test_an_analysis_that_starts_again_goes_on_with_tables_and_history(context, tmp_path):
    go_on = threading.Event()

    def look():
        analyse(context, tmp_path, frames=2).run()
        analyse(context, tmp_path, observe=lambda progress: go_on.set()).run()

    def pause(cycle):
        assert cycle != 1 or go_on.wait(TIMEOUT_S)

    beside(lambda: write(context, 5, pause=pause), look)
    table = rows(tmp_path / "out/table.csv")
    assert [row[0] for row in table] == [0, 1, 2, 3, 4]
    assert table[2][4] == pytest.approx(field(2).max() - field(1).max())  # previous(top) of the analysis before


def test_tables_are_the_same_for_several_ranks(context, tmp_path):
    text = PIPELINE + "  surface: {type: csv, contour: {field: T, value: 1.5}, fields: [T]}\n"
    results = {}
    for size in (1, 2, 3, 4):
        here = tmp_path / str(size)
        here.mkdir()

        def look(cohort, here=here):
            analyse(context, here, text, comm=cohort).run()

        path = here / "pipeline.yaml"
        path.write_text(text)
        beside(lambda: write(context, 3), *(lambda c=c: look(c) for c in thread_cohort(size)))
        results[size] = {path.name: rows(path) for path in sorted((here / "out").glob("*.csv"))}
    for size in (2, 3, 4):
        assert results[size].keys() == results[1].keys()
        for name in results[1]:
            np.testing.assert_allclose(results[size][name], results[1][name], rtol=1e-12, err_msg=f"{size} {name}")


def test_channels_are_matched_by_cycle_or_by_the_newest_step(context, tmp_path):
    def log():
        with context.create("log", timeout=TIMEOUT_S) as stream:
            for cycle in range(1, 7, 2):
                with stream.step() as step:
                    step["cycle"] = cycle
                    step["P"] = np.full(5, 10.0 + cycle)

    text = "extracts: {t: {type: csv, values: {heat: max(T), log: max(P)}}}"
    analysis = analyse(context, tmp_path, text, channels=["heat", "log"])
    reports = []
    beside(lambda: write(context, 6), log, lambda: reports.append(analysis.run()))
    table = rows(tmp_path / "out/t.csv")
    assert [row[0] for row in table] == [0, 1, 2, 3, 4, 5]
    for row in table:
        assert row[2] == pytest.approx(field(row[0]).max())
        assert row[3] == 10 + row[0] if row[0] % 2 else np.isnan(row[3])
    assert reports[0].missed == {"log": 3}


def test_the_newest_step_of_a_channel_stays(context, tmp_path):
    def log():
        with context.create("log", timeout=TIMEOUT_S) as stream, stream.step() as step:
            step["P"] = np.full(5, 10.0)

    text = "extracts: {t: {type: csv, values: {heat: max(T), log: max(P)}}}"
    analysis = analyse(context, tmp_path, text, channels=["heat", "other=log@latest"])
    beside(lambda: write(context, 4), log, lambda: analysis.run())
    assert [row[3] for row in rows(tmp_path / "out/t.csv")] == [10.0] * 4


def test_a_script_sees_arrays_and_datasets(context, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "FIELDS = ['T']\n"
        "WHEN = 'cycle >= 1'\n"
        "def analyze(step):\n"
        "    mesh = step.mesh()\n"
        "    values = np.asarray(mesh.fields['T'].values)\n"
        "    (data,) = step.vtk('grid')\n"
        "    path = step.output / f'{step.cycle}.txt'\n"
        "    path.parent.mkdir(exist_ok=True)\n"
        "    path.write_text(f'{values.max():.6f} {data.GetNumberOfPoints()} {step.time}')\n"
        "    step.steer(F=values.max())\n"
        "    return path\n"
    )
    analysis = Analysis([script], ["heat"], tmp_path / "out", context=context, timeout=TIMEOUT_S)
    beside(lambda: write(context, 3), lambda: analysis.run())
    assert [path.name for path in sorted((tmp_path / "out").glob("*.txt"))] == ["1.txt", "2.txt"]
    assert (tmp_path / "out/2.txt").read_text() == f"{field(2).max():.6f} {np.prod(SHAPE)} 1.0"
    assert analysis.report.files == [str(tmp_path / f"out/{n}.txt") for n in (1, 2)]


@pytest.fixture
def kept_results(tmp_path, monkeypatch):
    """The context in which a stream of results waits for its reader, who gets every step."""
    (tmp_path / "penstock.yaml").write_text("streams: {surfaces: {rendezvous_readers: 1, when_full: block}}\n")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "penstock.yaml"))
    return penstock.Context(directory=str(tmp_path / "streams"), listen="127.0.0.1")


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_stream_of_results_is_a_channel_for_the_next(ranks, kept_results, tmp_path):
    context = kept_results
    text = "extracts: {surface: {type: stream, stream: surfaces, contour: {field: T, value: 1.2}, fields: [T]}}"
    (tmp_path / "pipeline.yaml").write_text(text)
    (tmp_path / "next").mkdir()
    following = analyse(
        context, tmp_path / "next", "extracts: {t: {type: csv, values: {n: count(T), top: max(T)}}}", ["surfaces"]
    )

    def look(cohort):
        Analysis(
            [tmp_path / "pipeline.yaml"], ["heat"], tmp_path / "out", cohort, context=context, timeout=TIMEOUT_S
        ).run()

    beside(lambda: write(context, 6), *(lambda c=c: look(c) for c in thread_cohort(ranks)), following.run)
    table = rows(tmp_path / "next/out/t.csv")
    assert [row[0] for row in table] == list(range(6))
    assert all(row[2] > 0 and row[3] == pytest.approx(1.2) for row in table if row[0] > 0)  # before, T is below 1.2


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_step_with_an_empty_result_has_no_mesh_for_the_next(ranks, kept_results, tmp_path):
    context = kept_results
    (tmp_path / "first.yaml").write_text(
        "extracts: {surface: {type: stream, stream: surfaces, contour: {field: T, value: 1.2}, fields: [T]}}"
    )
    text = "extracts: {t: {type: csv, values: {n: count(T)}}, s: {type: vtk}}\nqueries: {top: max(T)}"
    following = analyse(context, tmp_path, text, ["surfaces"])

    def look(cohort):
        Analysis([tmp_path / "first.yaml"], ["heat"], tmp_path / "o", cohort, context=context, timeout=TIMEOUT_S).run()

    beside(
        lambda: write(context, 6, values=lambda cycle: field(cycle % 4)),
        *(lambda c=c: look(c) for c in thread_cohort(ranks)),
        following.run,
    )
    assert following.report.frames == 6
    assert following.report.missed == {"s": 2}
    found = {row[0]: row[2] for row in rows(tmp_path / "out/t.csv")}
    assert {cycle for cycle, count in found.items() if count > 0} == {1, 2, 3, 5}
    assert np.isnan([found[0], found[4]]).all()  # T is 1.2 nowhere
    assert len(list((tmp_path / "out").glob("s-*"))) == 4


def test_steering_and_demand_reach_the_stream_of_requests(context, tmp_path):
    text = PIPELINE + "steering: {F: 0.5 * top, G: 1 / 0}\n"
    heard, steered = [], threading.Event()

    def listen():
        with context.open("heat.requests", timeout=TIMEOUT_S) as stream:
            for step in stream:
                heard.append(json.loads(step["request"].value))
                if heard[-1]["steering"].get("F") == pytest.approx(0.5 * field(1).max()):
                    steered.set()
                    return

    def pause(cycle):
        assert cycle != 1 or steered.wait(TIMEOUT_S)

    beside(lambda: write(context, 3, pause=pause), lambda: analyse(context, tmp_path, text).run(), listen)
    assert heard[0]["rules"][0]["fields"] == ["T"]
    assert all(each["steering"].keys() <= {"F"} for each in heard)


def test_an_edit_of_a_tables_columns_begins_another_table(context, tmp_path):
    first, seen = threading.Event(), threading.Event()
    analysis = analyse(context, tmp_path, "extracts: {t: {type: csv, values: {top: max(T)}}}")

    def observe(progress):
        if progress.frames:
            first.set()
        if analysis._edited or analysis.report.edits:
            seen.set()

    analysis._observe = observe
    text = "extracts: {t: {type: csv, values: {low: min(T), top: max(T)}}}"
    pause = edit_after(first, seen, tmp_path / "pipeline.yaml", text)
    beside(lambda: write(context, 4, pause=pause), lambda: analysis.run())
    assert [row[0] for row in rows(tmp_path / "out/t.csv")] == [0]
    assert [(row[0], row[2]) for row in rows(tmp_path / "out/t-2.csv")] == [(1, 0.0), (2, 0.0), (3, 0.0)]


def test_another_run_of_the_simulation_begins_the_table_anew(context, tmp_path):
    for cycles in (4, 2):
        program = "import penstock, numpy as np\n"
        program += f"c = penstock.Context(directory={str(tmp_path / 'streams')!r}, listen='127.0.0.1')\n"
        program += "with c.create('heat', timeout=30) as s:\n"
        program += f"    for n in range({cycles}):\n"
        program += "        with s.step() as step:\n            step['T'] = np.full((3, 3), float(n))\n"
        with subprocess.Popen([sys.executable, "-c", program]) as simulation:
            analyse(context, tmp_path, "extracts: {t: {type: csv, values: {top: max(T)}}}").run()
            assert simulation.wait(TIMEOUT_S) == 0
        assert [row[0] for row in rows(tmp_path / "out/t.csv")] == list(range(cycles))


def test_steps_that_come_again_are_in_the_table_once(context, tmp_path):
    """A reader that joins later gets the first step again (keep_first_step)."""
    text = "extracts: {t: {type: csv, values: {top: max(T)}}}"
    go_on = threading.Event()

    def look():
        analyse(context, tmp_path, text, frames=3).run()
        analyse(context, tmp_path, text, observe=lambda progress: go_on.set()).run()

    def simulate():
        with context.create("heat", timeout=TIMEOUT_S, keep_first_step=True) as stream:
            for cycle in range(6):
                with stream.step() as step:
                    step["cycle"] = cycle
                    step["T"] = field(cycle)
                assert cycle != 2 or go_on.wait(TIMEOUT_S)

    beside(simulate, look)
    assert [row[0] for row in rows(tmp_path / "out/t.csv")] == [0, 1, 2, 3, 4, 5]


def test_steps_without_a_field_are_left_out_and_counted(context, tmp_path):
    text = "extracts: {a: {type: csv, values: {t: sum(T)}}, b: {type: csv, values: {u: sum(U)}}}"

    def simulate():
        with context.create("heat", timeout=TIMEOUT_S) as stream:
            for cycle in range(4):
                with stream.step() as step:
                    step["cycle"] = cycle
                    fields = {name: Field("node", field(cycle)) for name in "TU"}
                    wanted = {"T"} if cycle % 2 else {"T", "U"}
                    publish(step, {"grid": UniformMesh(shape=SHAPE, axes="zyx", fields=fields)}, wanted)

    analysis = analyse(context, tmp_path, text)
    beside(simulate, lambda: analysis.run())
    assert [row[0] for row in rows(tmp_path / "out/a.csv")] == [0, 1, 2, 3]
    assert [row[0] for row in rows(tmp_path / "out/b.csv")] == [0, 2]
    assert analysis.report.missed == {"b": 2}


LACKING = """
scenes:
  s: {slice: {normal: z}, color: T, size: [64, 64]}
extracts:
  c: {type: vtk, contour: {field: T, value: 1.2}}
  t: {type: csv, values: {top: max(T)}}
"""


def simulate_lacking(context, fill):
    """Four steps of cycles 0, 10, 20, 30; that of cycle 20 holds what fill() puts."""
    with context.create("heat", timeout=TIMEOUT_S) as stream:
        for number in range(4):
            with stream.step() as step:
                step["cycle"] = 10 * number
                fill(step) if number == 2 else step.put("T", field(number))


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_without_the_mesh_are_left_out_in_each_engine(engine, choose):
    context, here = choose(engine)
    analysis, seen = analyse(context, here, LACKING), []
    analysis._observe = lambda progress: seen.append(dict(progress.lacked))
    simulation = lambda: simulate_lacking(context, lambda step: None)  # noqa: E731
    if engine == "file":
        simulation()
        analysis.run()
    else:
        beside(simulation, analysis.run)
    assert analysis.report.frames == 4 and analysis.report.missed == {"s": 1, "c": 1, "t": 1}
    assert analysis.report.lacked["s"] == "step 2 (cycle 20): there is no mesh"
    assert seen[-1] == analysis.report.lacked and {} in seen
    assert [row[0] for row in rows(here / "out/t.csv")] == [0, 10, 30]
    assert sorted(path.name for path in (here / "out").glob("s-*")) == [f"s-{n:06d}.png" for n in (0, 10, 30)]


def test_steps_without_a_field_that_nobody_declared_are_left_out(context, tmp_path):
    analysis = analyse(context, tmp_path, LACKING)
    beside(lambda: simulate_lacking(context, lambda step: step.put("U", field(1))), analysis.run)
    assert analysis.report.frames == 4 and analysis.report.missed == {"s": 1, "c": 1, "t": 1}
    assert analysis.report.lacked["t"] == "step 2 (cycle 20): there is no field 'T'; known: U"


def test_a_step_without_the_arrays_of_its_mesh_is_left_out(context, tmp_path):
    """The attribute that names the mesh stays in force."""
    cloud = ParticleMesh(coordinates=np.eye(3), fields={"T": Field("element", np.arange(3.0))})

    def simulate():
        with context.create("heat", timeout=TIMEOUT_S) as stream:
            for number in range(3):
                with stream.step() as step:
                    publish(step, {"grid": cloud}) if number != 1 else step.put("note", np.arange(3.0))

    analysis = analyse(context, tmp_path, "extracts: {v: {type: vtk}, t: {type: csv, values: {top: max(T)}}}")
    beside(simulate, analysis.run)
    assert analysis.report.missed == {"v": 1, "t": 1}
    assert "step 1: mesh 'grid', key 'coordinates': the step has no variable" in analysis.report.lacked["v"]


@pytest.mark.parametrize(
    "what", ["extracts: {v: {type: vtk, mesh: other}}", "scenes: {v: {slice: z, color: TT}, w: {slice: z}}"]
)
def test_what_can_use_no_step_is_an_error_at_the_end(what, context, tmp_path):
    analysis = analyse(context, tmp_path, what)

    def look():
        with pytest.raises(penstock.NotFound, match=r"pipeline.yaml: no step held what it needs; v first at step 0: "):
            analysis.run()

    beside(lambda: simulate_lacking(context, lambda step: None), look)
    assert analysis.report.frames == 4 and analysis.report.missed["v"] == 4
    assert json.loads((tmp_path / "out/report.json").read_text())["error"].startswith("NotFound")


def test_a_script_is_not_called_for_steps_that_lack_what_it_needs(context, tmp_path):
    for name, text in {
        "a": "FIELDS = ['T']\ndef analyze(step): calls(step)",
        "b": "def analyze(step): step.mesh()",
    }.items():
        (tmp_path / f"{name}.py").write_text(f"{text}\ndef calls(step): assert step.mesh().fields['T']\n")
    scripts = [tmp_path / "a.py", tmp_path / "b.py"]
    analysis = Analysis(scripts, ["heat"], tmp_path / "out", context=context, timeout=TIMEOUT_S)
    beside(lambda: simulate_lacking(context, lambda step: None), analysis.run)
    assert analysis.report.frames == 4 and analysis.report.missed == dict.fromkeys(map(str, scripts), 1)


@pytest.mark.parametrize("failing", [0, 2])
def test_what_fails_on_one_rank_ends_all_at_once(failing, context, tmp_path):
    (tmp_path / "script.py").write_text(
        "def analyze(step):\n"
        f"    if step.cohort.rank == {failing} and step.cycle == 1:\n"
        "        raise ValueError('the sky is falling')\n"
    )

    def look(cohort):
        begun = time.monotonic()
        with pytest.raises(ValueError, match=f"rank {failing}: the sky is falling"):
            Analysis(
                [tmp_path / "script.py"], ["heat"], tmp_path / "out", cohort, context=context, timeout=TIMEOUT_S
            ).run()
        assert time.monotonic() - begun < TIMEOUT_S  # the cohort waits for 60 s

    beside(lambda: write(context, 3), *(lambda c=c: look(c) for c in thread_cohort(3)))


@pytest.mark.parametrize("end", ["raise KeyError('made by analyze')", "raise SystemExit(0)"])
def test_what_fails_at_the_end_does_not_hide_what_failed_before(end, context, tmp_path):
    (tmp_path / "script.py").write_text(
        f"def analyze(step): raise ValueError('the sky is falling')\ndef finish(): {end}\n"
    )
    analysis = Analysis([tmp_path / "script.py"], ["heat"], tmp_path / "out", context=context, timeout=TIMEOUT_S)

    def look():
        with pytest.raises(ValueError, match="the sky is falling"):
            analysis.run()

    beside(lambda: write(context, 1), look)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["error"] == "ValueError: the sky is falling" and report["seconds"]["total"] > 0


def test_a_file_that_cannot_be_written_names_its_extract(context, tmp_path):
    (tmp_path / "out/t.csv").mkdir(parents=True)
    analysis = analyse(context, tmp_path, "extracts: {t: {type: csv, values: {top: max(T)}}}")

    def look():
        with pytest.raises(OSError, match=r"pipeline.yaml: extracts.t: .*t\.csv"):
            analysis.run()

    beside(lambda: write(context, 1), look)
