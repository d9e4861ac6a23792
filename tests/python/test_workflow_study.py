"""How a study file is read, what is said about a wrong one, and how its programs are found."""

import os
import sys
from pathlib import Path

import pytest
from penstock._core import stream_options
from penstock.workflow import LaunchError, StudyError, load_study, run_study
from penstock.workflow.launch import find_program
from study_files import own_runtime_directory, study_of, writer_of_files  # noqa: F401

# ------------------------------------------------------------------------------------------------------ the study file


def test_a_whole_study(write, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = load_study(
        write(
            "heat.yaml",
            """
            name: heat
            programs:
              analysis: {command: [python, "{here}/a.py", --steps, "{steps}", 3, "{{here}}"], after: simulation}
              simulation: {command: [sim, "{output}/x", "{name}"], ranks: 2, environment: {A: "{steps}"}}
            check: [python, "{here}/check.py"]
            streams: {heat: {engine: direct, queue_steps: 4}, "*": "queue_steps=2"}
            steps: 50
            timeout_s: 1.5
            """,
        )
    )
    assert study.output == tmp_path / "output" / "heat"
    assert [p.name for p in study.programs] == ["simulation", "analysis"]
    simulation, analysis = study.programs
    assert simulation.command == ("sim", f"{study.output}/x", "heat")
    assert (simulation.ranks, simulation.environment) == (2, {"A": "50"})
    assert analysis.command == ("python", f"{tmp_path}/a.py", "--steps", "50", "3", "{here}")
    assert study.check.command == ("python", f"{tmp_path}/check.py")
    assert study.timeout_s == 1.5


@pytest.mark.parametrize(
    "text, message",
    [
        ("programs: {a: {command: [true], rank: 2}}", "programs.a: unknown key 'rank'; did you mean 'ranks'?"),
        ("progams: {a: {command: [x]}}", "unknown key 'progams'; did you mean 'programs'?"),
        ("name: x", "'programs' is needed"),
        ("programs: {}", "'programs' is needed"),
        ("programs: {a: {ranks: 2}}", "programs.a: 'command' is missing"),
        ("programs: {a: {command: echo hi}}", "a list of words is needed, not one text: [echo, hi]"),
        ("programs: {a: {command: [echo, yes]}}", "put it in quotes"),
        ("programs: {a: {command: []}}", "a list of words is needed"),
        ("programs: {a: [echo]}", "{command: [...]} is needed, not a list"),
        ("programs: {a: {command: [echo], ranks: 0}}", "ranks: 0 is out of range; at least 1"),
        ("programs: {a: {command: [echo], ranks: 1.5}}", "a whole number is needed"),
        ("programs: {a: {command: [echo], ranks: true}}", "a whole number is needed"),
        ("programs: {a: {command: [echo, '{hree}']}}", "unknown placeholder {hree}; did you mean 'here'?"),
        ("programs: {a: {command: [echo, '{steps}']}}", "the study has no 'steps:'"),
        ("programs: {a: {command: [echo, {here}/x]}}", "need quotes"),
        ("programs: {sim: {command: [echo], after: smi}}", "there is no program 'smi'"),
        ("programs: {a: {command: [x], after: b}, b: {command: [x], after: [a]}}", "wait for one another"),
        ("programs: {a: {command: [x]}}\nstreams: {s: {queue_step: 3}}", "did you mean 'queue_steps'?"),
        ("programs: {a: {command: [x]}}\nstreams: {s: 3}", "options are needed"),
        ("programs: {a: {command: [x]}}\ntimeout_s: soon", "timeout_s: a number is needed"),
        ("programs: {a: {command: [x]}}\ntimeout_s: .nan", "out of range"),
        ("programs: {a: {command: [x]}}\nname: ../up", "name: '../up' must be letters"),
        ("programs: {a: {command: [x]}, a: {command: [y]}}", "'a' is given twice"),
        ("programs: {check: {command: [x]}}", "not 'check'"),
        ("programs: {a: {command: [x], analyze: s}}", "'command' or 'analyze' is needed, not both"),
        ("programs: {a: {analyze: s}}", "a.pipelines: a list of words is needed"),
        (
            "programs: {a: {analyze: s, pipelines: [p]}, b: {command: [x], after_end: a}}\nstreams: {s: insitu}",
            "engine insitu makes 'a' a part of the simulation",
        ),
        (
            "programs: {a: {command: [x]}}\noutput: '{output}/x'",
            "output: unknown placeholder {output}; known: here, name",
        ),
        ("- programs", "this file holds a list"),
        ("", "this file holds nothing"),
        ("a: [", "study.yaml:1: not valid YAML: expected the node content"),
    ],
)
def test_a_wrong_study_says_what_to_write(write, text, message):
    path = write("study.yaml", text)
    with pytest.raises(StudyError) as caught:
        load_study(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("engine", ["direct", "pool", "file", "insitu"])
def test_the_engine_says_where_an_analysis_runs(engine, write, tmp_path):
    text = f"""
        programs:
          simulation: {{command: [echo]}}
          pictures: {{analyze: heat, pipelines: ["{{here}}/p.yaml"], ranks: 2, after: simulation}}
          film: {{command: [echo], after: pictures}}
        streams: {{heat: {{engine: {engine}}}}}
    """
    study = study_of(write, tmp_path, text)
    names = [program.name for program in study.programs]
    path, out = str(tmp_path / "p.yaml"), str(tmp_path / "out")
    assert study.coprocessing == {"heat": {"pipelines": [path], "output": out}}
    if engine == "insitu":
        assert names == ["simulation", "film"]
    else:
        assert names == ["simulation", "pictures", "film"]
        command = ("penstock", "analyze", "heat", path, "--output", out, "--ranks", "2")
        assert study.programs[1].command == command and study.programs[1].ranks == 1


def test_a_region_is_analysed_by_a_program(write, tmp_path):
    """Whatever the engine: a simulation that writes a region starts no analysis."""
    text = """
        programs:
          simulation: {command: [echo]}
          pictures: {analyze: "mesh:plate", pipelines: ["{here}/p.yaml"]}
        streams: {"*": {engine: insitu}}
    """
    study = study_of(write, tmp_path, text)
    assert [program.name for program in study.programs] == ["simulation", "pictures"] and study.coprocessing == {}
    with pytest.raises(StudyError, match="a stream is needed"):
        study_of(write, tmp_path, text.replace("mesh:plate", "mesh:"))


def test_a_study_that_is_not_there_names_its_neighbours(write, tmp_path):
    write("heat.yaml", "")
    with pytest.raises(StudyError, match=r"no such file; the folder has: heat\.yaml"):
        load_study(tmp_path / "haet.yaml")
    with pytest.raises(StudyError, match="is a folder"):
        load_study(tmp_path)


def test_the_output_folder_may_lie_beside_the_study(write, tmp_path):
    text = "name: x\noutput: '{here}/results/{name}'\nprograms: {a: {command: [echo, '{output}']}}"
    study = load_study(write("study.yaml", text))
    assert study.output == tmp_path / "results" / "x"
    assert study.programs[0].command == ("echo", str(study.output))


def test_stream_options_are_the_fields_of_the_header():
    header = Path(__file__).parents[2] / "include" / "penstock" / "options.hpp"
    body = header.read_text().partition("struct StreamOptions {")[2].partition("\n};")[0]
    lines = [line.partition("//")[0].strip() for line in body.splitlines()]
    fields = [line.rstrip(";").split("=")[0].split()[-1].removesuffix("{}") for line in lines if line.endswith(";")]
    assert sorted(fields) == sorted([*stream_options, "fixed", "given"])  # these two are about what code gives


def test_steps_that_no_program_is_given_are_refused(write):
    text = "programs: {a: {command: [sim, %s]}}\nsteps: 5"
    assert load_study(write("study.yaml", text % '"{steps}"'), steps=3).programs[0].command == ("sim", "3")
    with pytest.raises(StudyError, match=r"3 steps are asked for, but no program is given \{steps\}"):
        load_study(write("study.yaml", text % "fixed"), steps=3)


# --------------------------------------------------------------------------------------------------- finding programs


def test_programs_are_found_beside_the_study_in_the_build_tree_and_in_path(write, tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "gray-scott"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))  # no checkout's
    with pytest.raises(LaunchError, match="set PENSTOCK_BIN"):
        find_program("gray-scott-of-nobody", tmp_path)
    monkeypatch.setenv("PENSTOCK_BIN", str(folder))
    assert find_program("gray-scott", tmp_path) == str(program)
    assert find_program("bin/gray-scott", tmp_path) == str(program)
    assert find_program("python", tmp_path) == sys.executable
    assert os.path.isabs(find_program("sh", tmp_path))
    monkeypatch.setenv("PATH", str(folder))  # as after `.venv/bin/penstock run`
    assert find_program("penstock", tmp_path) == os.path.join(os.path.dirname(sys.executable), "penstock")
    with pytest.raises(LaunchError, match="did you mean 'gray-scott'"):
        find_program("grey-scott", tmp_path)
    write("analysis.py", "")
    with pytest.raises(LaunchError, match=r'write \[python, "\{here\}/analysis.py"\]'):
        find_program("analysis.py", tmp_path)
    with pytest.raises(LaunchError, match=r"not executable; start it with \[python"):
        find_program("./analysis.py", tmp_path)
    with pytest.raises(LaunchError, match="there is no program"):
        find_program("./nothing", tmp_path)


def test_programs_of_a_checkout_are_found_by_its_environment(tmp_path, monkeypatch):
    program = tmp_path / "build" / "bin" / "simulation-of-nobody"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert find_program("simulation-of-nobody", tmp_path / "elsewhere") == str(program)


def test_without_a_launcher_ranks_are_a_clear_error(write, tmp_path, monkeypatch):
    study = study_of(write, tmp_path, "programs: {a: {command: [python, -c, pass], ranks: 2}}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match=r"needs an MPI launcher.*apt install openmpi-bin"):
        run_study(study)
    assert not list((tmp_path / "out" / "logs").iterdir())
