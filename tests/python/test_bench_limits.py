"""The table of limitations: that each is answered, by what there is; and the workflow of several ranks it names."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from penstock.bench import limits, pool, studies, workflow
from penstock.bench.programs import find_programs
from penstock.bench.runner import RunFailed
from penstock.bench.studies import Benchmark, Claim, Column, Row, Sheet
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]
ANSWERS = {claim.answers for claim in pool.claims_of() if claim.answers}


def test_every_limitation_is_answered_or_left_to_a_later_issue():
    names = [limitation.name for limitation in limits.LIMITATIONS]
    assert len(set(names)) == len(names)
    assert set(names) >= ANSWERS
    for limitation in limits.LIMITATIONS:
        answered = limitation.name in ANSWERS or limitation.tests or limitation.name == "repeats"
        assert bool(answered) != bool(limitation.later), limitation.name


@pytest.mark.parametrize("name", sorted({name for one in limits.LIMITATIONS for name in one.tests}))
def test_tests_that_are_named_exist(name):
    if "::" in name:
        file, test = name.split("::")
        assert re.search(rf"^def {test}\(", (ROOT / file).read_text(), re.MULTILINE)
    else:
        suite, test = name.split(".")
        pattern = re.compile(rf"^TEST(_F|_P)?\({suite}, {test}\)", re.MULTILINE)
        assert any(
            pattern.search(path.read_text()) for part in ("src", "tests") for path in (ROOT / part).rglob("*_test.cpp")
        )


def judged(name, *mets):
    return [
        {"claim": f"{name} {met}", "answers": name, "figure": 1.5, "unit": "×", "met": met, "bound": 1} for met in mets
    ]


@pytest.mark.parametrize(
    "mets, tests, later, verdict",
    [
        ((True, True), (), "", "met"),
        ((True, False), ("T.T",), "", "not met"),
        ((True, None), (), "", "not measured"),
        ((), (), "", "not measured"),
        ((), ("T.T",), "", "tested"),
        ((), (), "meshes", "later"),
    ],
)
def test_verdicts(mets, tests, later, verdict):
    limitation = limits.Limitation("x", "was", "must", tests, later)
    assert limits.verdict_of(limitation, judged("x", *mets)) == verdict


def test_the_table_says_what_was_measured():
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 closed below
    limits.print_limits(console, [*judged("serial", True), *judged("keys", False)], rounds=1)
    text = console.export_text()
    console.file.close()
    assert "serial True: 1.5×" in text and "keys False: 1.5× (not met)" in text
    assert "rounds of each figure, with their spread: 1 (not met)" in text
    assert "waits for later parts: front doors" in text


def options_of(tmp_path, **more):
    given = {"repeat": 1, "programs": tmp_path, "disk": tmp_path, "deadline": 1, "quick": False}
    return SimpleNamespace(**given | {"studies": ["a", "b"], "add": [], "json": None, "plot": None} | more)


def rows(runs):
    def measure(study, value):
        def run(_):
            runs.append(study)
            return {"x": value, "word": "often"}

        return run

    return [Row(study, "penstock", "v", study, measure(study, value)) for study, value in (("a", 1.0), ("b", 2.0))]


def test_studies_come_one_after_the_other_and_are_kept_when_each_is_done(tmp_path, capsys):
    runs, kept = [], []
    out = tmp_path / "out.json"

    class Sheets(list):
        def __iter__(self):  # asked for once a study is done
            kept.append(json.loads(out.read_text())["rows"] if out.exists() else [])
            return super().__iter__()

    sheets = Sheets([Sheet("a", "table a", (Column("x", "x"), Column("word", "word"))), Sheet("b", "table b", ())])
    benchmark = Benchmark(rows(runs), [], [Claim("x is large", ("b", "penstock", "v"), ("x",), 1)], sheets, ())
    assert studies.carry_out(benchmark, options_of(tmp_path, repeat=2, json=out)) == 0
    assert runs == ["a", "a", "b", "b"] and [len(one) for one in kept] == [0, 1]
    said = capsys.readouterr()
    assert "often" in said.out and "round 2: b penstock v" in said.err


def test_rounds_of_earlier_runs_count(tmp_path, capsys):
    out, more = tmp_path / "out.json", tmp_path / "more.json"
    benchmark = Benchmark(rows([]), [], [], (), (), conclude=lambda console, judged, rounds: print(f"{rounds} rounds"))
    assert studies.carry_out(benchmark, options_of(tmp_path, studies=["a"], json=out)) == 0
    assert studies.carry_out(benchmark, options_of(tmp_path, studies=["a", "b"], add=[out], json=more)) == 0
    counts = {row["study"]: len(row["rounds"]) for row in json.loads(more.read_text())["rows"]}
    assert counts == {"a": 2, "b": 1} and "2 rounds" in capsys.readouterr().out
    assert studies.carry_out(benchmark, options_of(tmp_path, add=[out], quick=True)) == 2
    assert "other sizes" in capsys.readouterr().out


def test_what_there_is_is_shown_when_it_is_interrupted(tmp_path, capsys):
    def stop(_):
        raise KeyboardInterrupt

    made = [*rows([])[:1], Row("b", "penstock", "v", "b", stop), Row("c", "penstock", "v", "c", stop)]
    benchmark = Benchmark(made, [], [], [Sheet("a", "table a", (Column("x", "x"),))], ())
    with pytest.raises(KeyboardInterrupt):
        studies.carry_out(benchmark, options_of(tmp_path, studies=["a", "b", "c"]))
    assert "table a" in capsys.readouterr().out


@pytest.fixture
def programs():
    found = find_programs("workflow_stream")
    if not found or not (found / "workflow_files").exists() or not shutil.which("mpiexec"):
        pytest.skip("workflow_stream and workflow_files are not built (PENSTOCK_BENCH, with MPI and HDF5 for MPI)")
    return found


def test_a_workflow_of_several_ranks(programs, tmp_path, monkeypatch):
    """Two ranks of a simulation, two of an analysis that cut the arrays the other way, two servers: what the analysis
    finds is what it finds inside the simulation, and in files."""
    monkeypatch.setenv("PENSTOCK_BIN", str(programs.parent / "bin"))
    plan = workflow.Plan(quick=True)
    found = []
    for row in (
        lambda run: workflow.alone(plan, "insitu", run),
        lambda run: workflow.through_stream(plan, 2, run),
        lambda run: workflow.through_files(plan, False, True, run),
    ):
        with studies.Run(programs, tmp_path, 60) as run:
            found.append(row(run))
    assert found[0]["crossings"] > 0 and len({one["crossings"] for one in found}) == 1
    assert all(one["whole_s"] > 0 and one["bound_by"] for one in found)
    with pytest.raises(RunFailed, match="elsewhere"):
        plan.check("workflow", {"crossings": 1.0})
