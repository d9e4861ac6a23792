"""The commands that go with streams to their end: `stream save`, and `run` with writers and readers."""

import json
import signal

import numpy as np
import pytest
from stream_programs import FIVE_STEPS, PRELUDE, RETAINING, finish, next_line, streams_and_commands  # noqa: F401

pytest.importorskip("penstock._core")

# -------------------------------------------------------------------------------------------------------------- save


def test_save_refuses_an_option_without_effect_in_the_environment(processes):
    pytest.importorskip("h5py")
    writer, penstock = processes
    heat = writer(RETAINING)
    assert next_line(heat) == "ready"
    result = penstock("stream", "save", "heat", "out.h5", PENSTOCK_STREAM_HEAT="start=5")
    assert result.returncode == 1
    assert "PENSTOCK_STREAM_HEAT: start is an option of readers of engine pool" in result.stderr
    assert finish(heat, "\n")[0] == 0


def test_save_says_where_it_has_looked(processes):
    _, penstock = processes
    result = penstock("stream", "save", "heat", "out.h5", "--timeout", "0.5")
    assert result.returncode == 124
    assert "waiting for stream 'heat' to appear" in result.stderr
    assert "stream heat did not open within 500 ms: not found; looked in registrations in " in result.stderr


def test_save_keeps_a_stream_to_its_end(processes, tmp_path):
    h5py = pytest.importorskip("h5py")
    writer, penstock = processes
    heat = writer(FIVE_STEPS)
    result = penstock("stream", "save", "heat", "out.h5")
    assert result.returncode == 0, result.stderr
    assert "5 steps" in result.stdout
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["T"][...], np.arange(5.0)[:, None, None] * np.ones((4, 6)))
        assert list(file["n"]) == list(file["step"]) == [0, 1, 2, 3, 4]
        assert list(file["time"]) == [0, 0.5, 1, 1.5, 2]
        assert file["T"].attrs["units"] == "K"
        assert file.attrs["code"] == "test"
        assert file.attrs["penstock_complete"] == 1
    assert finish(heat)[0] == 0
    assert sorted(p.name for p in tmp_path.glob("*.h5")) == ["out.h5"]


def test_save_replaces_a_file_only_when_told(processes, tmp_path):
    pytest.importorskip("h5py")
    writer, penstock = processes
    (tmp_path / "out.h5").write_text("precious")
    result = penstock("stream", "save", "heat", "out.h5")
    assert result.returncode == 1
    assert "out.h5 exists already" in result.stderr
    assert "--force" in result.stderr
    assert (tmp_path / "out.h5").read_text() == "precious"
    heat = writer(FIVE_STEPS)
    assert penstock("stream", "save", "heat", "out.h5", "--force", "--quiet").returncode == 0
    assert (tmp_path / "out.h5").stat().st_size > 1000
    assert finish(heat)[0] == 0
    assert "there is no folder" in penstock("stream", "save", "heat", "nowhere/out.h5").stderr


def test_save_some_steps_of_some_variables(processes, tmp_path):
    h5py = pytest.importorskip("h5py")
    writer, penstock = processes
    heat = writer(FIVE_STEPS)
    result = penstock("stream", "save", "heat", "out.h5", "--steps", 2, "--variables", "n")
    assert result.returncode == 0, result.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert sorted(file) == ["n", "penstock", "step", "time"]
        assert list(file["n"]) == [0, 1]
    heat.kill()


def test_save_of_a_live_stream_skips_steps(processes, tmp_path):
    h5py = pytest.importorskip("h5py")
    writer, penstock = processes
    heat = writer(FIVE_STEPS)
    result = penstock("stream", "save", "heat", "out.h5", "--from", 1, "--every", 2, "--steps", 2)
    assert result.returncode == 0, result.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert list(file["n"]) == list(file["step"]) == [1, 3]
    heat.kill()
    heat = writer(FIVE_STEPS)
    result = penstock("stream", "save", "heat", "late.h5", "--from", 5)
    assert result.returncode == 1 and "ended before step 5" in result.stderr
    assert not list(tmp_path.glob("*late.h5*"))
    assert finish(heat)[0] == 0


def test_save_adds_to_a_file(processes, tmp_path):
    h5py = pytest.importorskip("h5py")
    writer, penstock = processes
    words = ("stream", "save", "heat", "out.h5", "--append", "--compression", 4)
    for added in (5, 0):
        heat = writer(FIVE_STEPS)
        result = penstock(*words)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith(f"{added} steps") and "added to out.h5" in result.stdout
        assert finish(heat)[0] == 0
    with h5py.File(tmp_path / "out.h5") as file:
        assert list(file["n"]) == [0, 1, 2, 3, 4] and file["T"].compression_opts == 4
    refused = penstock(*words, "--force")
    assert refused.returncode == 2 and "give one of them" in refused.stderr


def test_save_of_an_unknown_variable_leaves_no_file(processes, tmp_path):
    pytest.importorskip("h5py")
    writer, penstock = processes
    heat = writer(FIVE_STEPS)
    result = penstock("stream", "save", "heat", "out.h5", "--variables", "n,TT")
    assert result.returncode == 1
    assert "'T'" in result.stderr
    assert not list(tmp_path.glob("*out.h5*"))
    heat.kill()


def test_save_keeps_what_came_before_the_writer_died(processes, tmp_path):
    h5py = pytest.importorskip("h5py")
    writer, penstock = processes
    # With room for one step, the fourth begins when the reader has given the third back.
    heat = writer(
        """
        stream = penstock.create("heat", queue_steps=1)
        for n in range(3):
            write(stream, n)
        step = stream.step().__enter__()
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    result = penstock("stream", "save", "heat", "out.h5")
    assert result.returncode == 1
    assert "Error: " in result.stderr
    assert "3 steps were kept in out.h5" in result.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert list(file["n"]) == [0, 1, 2]
        assert file.attrs["penstock_complete"] == 0
    assert finish(heat)[0] == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_save_keeps_what_came_before_a_signal(processes, tmp_path, number):
    h5py = pytest.importorskip("h5py")
    writer, penstock = processes
    heat = writer(
        """
        stream = penstock.create("heat", queue_steps=1)
        for n in range(2):
            write(stream, n)
        with stream.step() as step:
            say("two were read")
            wait()
        stream.close()
        """
    )
    save = penstock("stream", "save", "heat", "out.h5", only_start=True)
    assert next_line(heat) == "two were read"
    save.send_signal(number)
    code, _, errors = finish(save)
    assert code == 130, errors
    assert "interrupted" in errors
    with h5py.File(tmp_path / "out.h5") as file:
        assert list(file["n"]) == [0, 1]
    assert finish(heat, "\n")[0] == 0


# --------------------------------------------------------------------------------------------------------------- run


def test_run_joins_two_programs(processes, tmp_path):
    _, penstock = processes
    steps = FIVE_STEPS.replace(", queue_steps=2", "")
    (tmp_path / "writer.py").write_text(PRELUDE + steps + "say(dict(stream.options))\n")
    (tmp_path / "reader.py").write_text(
        "import penstock\n"
        "with penstock.open('heat') as stream:\n"
        "    print(sum(int(step['n'][()]) for step in stream))\n"
    )
    (tmp_path / "study.yaml").write_text(
        "programs:\n"
        '  simulation: {command: [python, "{here}/writer.py"]}\n'
        '  analysis: {command: [python, "{here}/reader.py"], after: simulation}\n'
        "streams: {heat: {queue_steps: 3}}\n"
    )
    result = penstock("run", "study.yaml", "--output", "out")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out/logs/analysis.log").read_text().strip() == "10"
    assert "'queue_steps': '3'" in (tmp_path / "out/logs/simulation.log").read_text()
    programs = json.loads((tmp_path / "out/summary.json").read_text())["programs"]
    assert (programs["simulation"]["steps"], programs["analysis"]["steps"]) == (5, 5)
    assert programs["simulation"]["put_s"] is not None
    assert programs["simulation"]["bytes"] == 5 * (4 * 6 + 1) * 8
    assert programs["analysis"]["transfer_s"] > 0
    assert programs["analysis"]["bytes"] == 5 * 8
    (endpoint,) = programs["simulation"]["streams"]
    assert (endpoint["stream"], endpoint["role"]) == ("heat", "writer")

    again = penstock("run", "study.yaml", "--output", "out", "-q", PENSTOCK_STREAM_HEAT="queue_steps=1")
    assert again.returncode == 0, again.stderr
    assert "'queue_steps': '1'" in (tmp_path / "out/logs/simulation.log").read_text()


def test_run_shows_why_a_writer_failed_and_what_it_did_to_the_reader(processes, tmp_path):
    _, penstock = processes
    (tmp_path / "writer.py").write_text(
        PRELUDE
        + "stream = penstock.create('heat', queue_steps=1)\n"
        + "write(stream, 0)\n"
        + "stream.step().__enter__()\n"
        + "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    (tmp_path / "reader.py").write_text("import penstock\nfor step in penstock.open('heat'):\n    print(step.number)\n")
    (tmp_path / "study.yaml").write_text(
        "programs:\n"
        '  simulation: {command: [python, "{here}/writer.py"]}\n'
        '  analysis: {command: [python, "{here}/reader.py"]}\n'
    )
    result = penstock("run", "study.yaml")
    assert result.returncode == 1
    assert "Error: simulation: killed by signal 11 (SIGSEGV)" in result.stderr
    assert "Error: analysis: exit code 1" in result.stderr
    assert "WriterLost" in result.stderr
