"""What is there in part: steps that hold a part of what they name, frames without a channel, errors of one rank."""

import csv
import dataclasses
import os
import threading

import numpy as np
import penstock
import pytest

pytest.importorskip("vtkmodules")

from penstock.analysis import ParticleMesh, UniformMesh, publish
from penstock.analysis.agreement import exchange, together
from penstock.analysis.meshes import Field, Multiblock
from penstock.analysis.run import Analysis
from penstock.analysis.tasks import PipelineTask, load
from ranks import on_ranks


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """recorded(*steps): the context of the recording "heat", whose steps these functions have filled."""
    (tmp_path / "penstock.yaml").write_text("streams: {heat: {engine: file}}\n")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "penstock.yaml"))
    monkeypatch.chdir(tmp_path)

    def recorded(*steps):
        context = penstock.Context(directory=str(tmp_path / "streams"))
        with context.create("heat") as stream:
            for fill in steps:
                with stream.step() as step:
                    fill(step)
        return context

    return recorded


@pytest.fixture
def analysed(recorded, tmp_path):
    """analysed(pipeline, *steps): the Analysis that ran the pipeline over steps that these functions filled."""

    def analysed(pipeline, *steps):
        context = recorded(*steps)
        (tmp_path / "pipeline.yaml").write_text(pipeline)
        analysis = Analysis([tmp_path / "pipeline.yaml"], ["heat"], context=context)
        analysis.run()
        return analysis

    return analysed


def cloud(top):
    return ParticleMesh(coordinates=np.eye(3), fields={"T": Field("element", np.array([0.0, 1.0, top]))})


def both(step):
    publish(step, {"a": cloud(2.0), "b": cloud(9.0)})


def one(step):
    """The arrays of the cloud a alone; what the attribute says stays in force."""
    step.put_local("a/coordinates", np.eye(3))
    step.put_local("a/T", np.array([0.0, 1.0, 5.0]))


def grids(step, part=False, blocks=False):
    """Two structured meshes, or blocks, with the field T; or in part: this field of the first."""
    grid = UniformMesh(shape=(3,), axes="x", fields={"T": Field("node", np.arange(3.0))})
    a, b = grid, dataclasses.replace(grid)
    whole = {"all": Multiblock(blocks={"a": a, "b": b})} if blocks else {"a": a, "b": b}
    step.put("a/T", np.arange(3.0)) if part else publish(step, whole)


def column(path, name):
    with open(path, newline="") as file:
        return [float(row[name]) for row in csv.DictReader(file)]


def test_a_block_is_no_substitute_for_its_mesh(analysed):
    def blocks(step):
        a, b = cloud(2.0), cloud(9.0)
        publish(step, {"all": Multiblock(blocks={"a": a, "b": b})})

    analysis = analysed("extracts: {whole: {type: vtk}}", blocks, one, blocks)
    assert analysis.report.missed == {"whole": 1}
    assert "mesh 'b', key 'coordinates': the step has no variable" in analysis.report.lacked["whole"]


def test_a_reduction_is_over_all_meshes_that_have_the_field(analysed):
    text = """
    queries: {top: max(T), rise: top - previous(top)}
    extracts:
      table: {type: csv, values: {top: max(T)}}
      risen: {type: csv, values: {rise: rise}}
      some: {type: csv, when: max(T) > 0, mesh: a, threshold: {field: T, min: 0}}
      all_of_a: {type: csv, mesh: a, threshold: {field: T, min: 0}}
    """
    analysis = analysed(text, both, one, both)
    assert column("output/table.csv", "top") == [9, 9]
    assert column("output/risen.csv", "rise")[1] == 0  # against the step before the one that was left out
    assert analysis.report.missed == {"table": 1, "risen": 1, "some": 1}


def test_a_reduction_goes_on_where_the_lacking_mesh_has_no_such_field(analysed):
    def walls(step, part=False):
        wall = UniformMesh(shape=(3,), axes="x", fields={"W": Field("node", np.arange(3.0))})
        step.put("W", np.arange(3.0)) if part else publish(step, {"cloud": cloud(2.0), "wall": wall})

    text = "extracts: {w: {type: csv, values: {w: max(W)}}, t: {type: csv, values: {t: max(T)}}}"
    analysis = analysed(text, walls, lambda step: walls(step, part=True))
    assert analysis.report.missed == {"t": 1} and column("output/w.csv", "w") == [2, 2]


def test_a_field_that_one_of_two_meshes_lacks(analysed):
    """Structured meshes need no arrays but those of their fields."""

    analysis = analysed("extracts: {t: {type: csv, values: {n: count(T)}}}", grids, lambda step: grids(step, part=True))
    assert column("output/t.csv", "n") == [6]
    assert analysis.report.lacked == {"t": "step 1: mesh 'b': there is no field 'T'"}


def test_a_field_that_one_of_two_blocks_lacks(analysed):
    text = "extracts: {v: {type: vtk, threshold: {field: T, min: 0}}}"
    analysis = analysed(text, lambda step: grids(step, blocks=True), lambda step: grids(step, part=True))
    assert analysis.report.lacked == {"v": "step 1: mesh 'all': there is no field 'T'"}


def test_a_step_that_a_script_cannot_use_on_one_rank_is_left_out_on_all(recorded, tmp_path):
    """The other ranks are in a call of the script's own at the time."""
    context = recorded(both, both, both)
    (tmp_path / "script.py").write_text(
        "from penstock.analysis import exchange\n"
        "def analyze(step):\n"
        "    if step.cohort.rank == 1 and step.number == 1:\n"
        "        step.mesh('nowhere')\n"
        "    assert exchange(step.cohort, lambda: 1, sum) == 3\n"
    )

    def look(cohort):
        analysis = Analysis([tmp_path / "script.py"], ["heat"], comm=cohort, context=context)
        analysis.run()
        return analysis.report.missed, analysis.report.lacked

    for missed, lacked in on_ranks(3, look):
        assert missed == {"script.py": 1}
        assert lacked["script.py"].startswith("step 1: rank 1: there is no mesh 'nowhere'")


def test_an_error_of_one_rank_goes_before_a_step_that_another_leaves_out(recorded, tmp_path):
    context = recorded(both, both)
    (tmp_path / "script.py").write_text(
        "def analyze(step):\n"
        "    if step.cohort.rank == 0:\n"
        "        step.mesh('nowhere')\n"
        "    raise ValueError('the sky is falling')\n"
    )

    def look(cohort):
        with pytest.raises(ValueError, match=r"^rank 1: the sky is falling$"):
            Analysis([tmp_path / "script.py"], ["heat"], tmp_path / "out", cohort, context=context).run()

    on_ranks(3, look)


class OddOnRank1:
    """Cannot be unpickled by the thread of rank 1."""

    here = threading.local()

    def __setstate__(self, _):
        if getattr(self.here, "rank", 0) == 1:
            raise MemoryError("no room")

    def __getstate__(self):
        return {"any": 1}


def test_a_result_that_one_rank_cannot_unpickle_ends_all():
    def look(cohort):
        OddOnRank1.here.rank = cohort.rank
        with pytest.raises(penstock.Error, match="rank 1: a result cannot be unpickled: MemoryError: no room"):
            together(cohort, lambda: exchange(cohort, lambda: None, lambda _: OddOnRank1()))

    on_ranks(3, look)


def test_a_script_needs_its_fields_of_one_mesh_alone(recorded, tmp_path):
    context = recorded(grids, lambda step: grids(step, part=True))
    for folder in "ab":  # scripts of one name
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "script.py").write_text(
            f"FIELDS = ['T']\ndef analyze(step): assert len(step.mesh('{folder}', ['T']).fields['T'].values)\n"
        )
    paths = [tmp_path / folder / "script.py" for folder in "ab"]
    report = Analysis(paths, ["heat"], tmp_path / "out", context=context).run()
    assert report.missed == {str(paths[1]): 1}


@pytest.fixture
def beside_a_log(recorded, tmp_path):
    """beside_a_log(pipeline, edited): an Analysis of two channels; the second has a step for cycle 1 alone. The
    pipeline is edited after the first frame."""

    def beside_a_log(pipeline, edited):
        def cycles(*numbers):
            return [lambda step, n=n: (step.put_value("cycle", n), publish(step, {"m": cloud(2.0)})) for n in numbers]

        context = recorded(*cycles(0, 1, 2))
        with context.create("log", engine="file") as stream, stream.step() as step:
            step["cycle"] = 1
            publish(step, {"m": ParticleMesh(coordinates=np.eye(3), fields={"P": Field("element", np.full(3, 7.0))})})
        path = tmp_path / "pipeline.yaml"
        path.write_text(pipeline)

        def observe(progress):
            if progress.frames == 1:
                path.write_text(edited)
                os.utime(path, (1, 1))  # it has been left alone since

        return Analysis([path], ["heat", "log"], context=context, observe=observe)

    return beside_a_log


def table(value, more=""):
    return f"extracts: {{t: {{type: csv, values: {{v: {value}}}}}{more}}}"


def test_a_frame_without_a_channel_does_not_say_what_there_is(beside_a_log):
    analysis = beside_a_log(table("max(TT)"), table("max(TT)"))
    with pytest.raises(penstock.InvalidArgument, match=r"extracts.t: there is no field 'TT'; did you mean 'T'"):
        analysis.run()
    assert analysis.report.frames == 1


def test_an_edit_may_name_what_an_absent_channel_has(beside_a_log):
    analysis = beside_a_log(table("max(T)"), table("max(P)"))
    assert analysis.run().edits == 1
    assert column("output/t.csv", "v")[:2] == [2, 7]


def test_an_edit_is_taken_back_once_the_channel_is_there(beside_a_log):
    analysis = beside_a_log(table("max(T)"), table("max(PP)"))
    analysis.run()
    assert "there is no field 'PP'" in analysis._problem
    assert column("output/t.csv", "v") == [2, 2, 2]


@pytest.mark.parametrize("mesh", ["heat/n", "m"])
def test_a_mesh_that_no_channel_has_is_an_error(mesh, beside_a_log):
    text = table("max(T)", f", v: {{type: vtk, mesh: {mesh}}}")
    with pytest.raises(penstock.InvalidArgument, match=f"extracts.v: there is no mesh '{mesh}'; .*'?heat/m"):
        beside_a_log(text, text).run()


@pytest.mark.parametrize("failing", ["import", "finish"])
def test_a_script_that_fails_on_one_rank_at_its_import_or_end_ends_all(failing, recorded, tmp_path):
    context = recorded(both)
    script = tmp_path / "script.py"
    script.write_text("def analyze(step): pass")

    def look(cohort):
        def fail():
            raise ValueError("the sky is falling")

        def load_one(path, *arguments):
            task = load(path, *arguments)
            if cohort.rank == 1:
                fail() if failing == "import" else setattr(task, "close", fail)
            return task

        with pytest.raises(ValueError, match="rank 1: the sky is falling"):
            Analysis([script], ["heat"], tmp_path / "out", cohort, context=context, load=load_one).run()

    on_ranks(3, look)
    assert failing == "import" or "the sky is falling" in (tmp_path / "out/report.json").read_text()


def test_what_two_pipelines_leave_out_is_counted_for_each(recorded, tmp_path):
    context = recorded(both, one, lambda step: step.put("U", np.arange(3.0)))
    paths = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    paths[0].write_text("extracts: {v: {type: vtk, mesh: a}}")
    paths[1].write_text("extracts: {v: {type: vtk, mesh: b}}")
    report = Analysis(paths, ["heat"], tmp_path / "out", context=context).run()
    assert report.missed == {f"{paths[0]}: v": 1, f"{paths[1]}: v": 2}
    assert report.lacked.keys() == report.missed.keys()


def test_what_fails_in_an_extract_on_one_rank_names_its_place_once(recorded, tmp_path, monkeypatch):
    context = recorded(both)
    (tmp_path / "pipeline.yaml").write_text("extracts: {v: {type: vtk, mesh: a}}")

    def make(task, *_):
        if task._cohort.rank == 1:
            raise penstock.InvalidArgument("it is odd")
        return exchange(task._cohort, lambda: None, len)

    monkeypatch.setattr(PipelineTask, "_make", make)

    def look(cohort):
        with pytest.raises(penstock.InvalidArgument, match=r"^rank 1: [^:]*pipeline.yaml: extracts.v: it is odd$"):
            Analysis([tmp_path / "pipeline.yaml"], ["heat"], tmp_path / "out", cohort, context=context).run()

    on_ranks(3, look)
