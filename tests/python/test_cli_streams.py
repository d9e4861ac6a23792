"""The commands that attach to streams, with writers in processes of their own."""

import contextlib
import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import textwrap

import numpy as np
import penstock
import pytest
from penstock.cli import dump, places

pytest.importorskip("penstock._core")

TIMEOUT_S = 120

# Says what happens on its standard output, and goes on when a line comes in.
PRELUDE = """
import os, signal, sys
import numpy as np
import penstock

def say(word):
    print(word, flush=True)

def wait():
    sys.stdin.readline()

def write(stream, n):
    with stream.step() as step:
        step["T"] = np.full((4, 6), float(n))
        step["n"] = np.int64(n)
        step.attributes["time"] = n / 2
        step.attributes["code"] = "test"
        step.attributes["T/units"] = "K"
"""


@pytest.fixture
def processes(tmp_path):
    """writer(script) starts a Python program; penstock(*words) runs the command, start=True only starts it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    environment |= {"PENSTOCK_DIRECTORY": str(tmp_path / "runtime" / "penstock"), "COLUMNS": "160"}
    options = {"cwd": tmp_path, "env": environment, "text": True}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with contextlib.ExitStack() as stack:

        def start(command, **more):
            process = subprocess.Popen(command, **options, **pipes, **more)
            stack.callback(end, process)
            return process

        def writer(script):
            return start([sys.executable, "-c", PRELUDE + textwrap.dedent(script)])

        def penstock(*words, only_start=False, **more):
            command = [sys.executable, "-m", "penstock.cli.main", *map(str, words)]
            if only_start:
                return start(command)
            return subprocess.run(
                command, **{**options, "env": {**environment, **more}}, capture_output=True, timeout=TIMEOUT_S
            )

        yield writer, penstock


def end(process):
    process.kill()
    process.communicate()


def next_line(process):
    ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
    assert ready, "nothing was said in time"
    line = process.stdout.readline().strip()
    assert line, process.stderr.read()
    return line


def finish(process, say=""):
    out, errors = process.communicate(say, timeout=TIMEOUT_S)
    return process.returncode, out, errors


# An own stream that retains its newest step for whoever comes, and waits.
RETAINING = """
with penstock.create("heat", rendezvous_readers=0, reserve_steps=1, min_max=True) as stream:
    for n in range(3):
        write(stream, n)
    say("ready")
    wait()
    write(stream, 3)
"""


# ---------------------------------------------------------------------------------------------------- ls and inspect


def test_ls_lists_streams_and_hides_addresses(processes):
    writer, penstock = processes
    assert "no streams in" in penstock("stream", "ls").stderr
    assert json.loads(penstock("stream", "ls", "--json").stdout) == {"streams": [], "pools": []}
    heat = writer(RETAINING)
    assert next_line(heat) == "ready"

    shown = penstock("stream", "ls").stdout
    assert re.search(r"heat +│ its writer's memory +│ alive", shown)
    assert "token" not in shown
    (entry,) = json.loads(penstock("stream", "ls", "--json").stdout)["streams"]
    assert (entry["name"], entry["kind"], entry["ranks"], entry["state"]) == ("heat", "writer", 1, "alive")
    assert entry["writer"].endswith(f":{heat.pid}") and entry["steps"] is None
    assert "address" not in entry
    (entry,) = json.loads(penstock("stream", "ls", "--address", "--json").stdout)["streams"]
    assert entry["address"].startswith("tcp://")
    assert entry["address"] in penstock("stream", "ls", "--address").stdout.splitlines()
    assert finish(heat, "\n")[0] == 0


def test_inspect_shows_what_a_step_holds_and_leaves(processes):
    writer, penstock = processes
    heat = writer(RETAINING)
    assert next_line(heat) == "ready"

    result = penstock("stream", "show", "heat", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["stream"], found["step"], found["pid"], found["data_plane"]) == ("heat", 2, heat.pid, "shm")
    n, T = sorted(found["variables"], key=lambda v: v["name"], reverse=True)
    assert (T["dtype"], T["kind"], T["shape"], T["bytes"]) == ("float64", "global_array", [4, 6], 192)
    assert (T["min"], T["max"]) == (2.0, 2.0)
    assert T["blocks"] == [{"start": [0, 0], "count": [4, 6], "rank": 0}]
    assert (n["kind"], n["value"]) == ("global_value", 2)
    assert found["attributes"] == {"time": 1.0, "code": "test", "T/units": "K"}

    table = penstock("stream", "show", "heat", "--blocks")
    assert re.search(r"T +│ float64 +│ global array +│ 4 × 6 +│ +1 │ +192 B │ +2 │ +2 │", table.stdout)
    assert "T block 0: start [0, 0] count [4, 6], rank 0" in table.stdout
    assert finish(heat, "\n")[0] == 0


def test_inspect_reads_ranges_when_asked_and_gives_up_in_time(processes):
    writer, penstock = processes
    quiet = writer(
        """
        with penstock.create("heat", rendezvous_readers=0, reserve_steps=1) as stream:
            stream.define("U", float, (3,))
            say("ready")
            wait()
            with stream.step() as step:
                step["U"] = np.array([3.0, -1.0, 2.0])
            say("written")
            wait()
        """
    )
    assert next_line(quiet) == "ready"
    result = penstock("stream", "show", "heat", "--timeout", "0.1")
    assert result.returncode == 124
    assert "gave no step within 0.1 s" in result.stderr
    quiet.stdin.write("\n")
    quiet.stdin.flush()
    assert next_line(quiet) == "written"
    (U,) = json.loads(penstock("stream", "show", "heat", "--json").stdout)["variables"]
    assert U["min"] is None
    (U,) = json.loads(penstock("stream", "show", "heat", "--json", "--minmax").stdout)["variables"]
    assert (U["min"], U["max"]) == (-1.0, 3.0)
    assert finish(quiet, "\n")[0] == 0


def test_inspect_of_a_name_that_nobody_has(processes):
    writer, penstock = processes
    result = penstock("stream", "show", "heat")
    assert result.returncode == 1
    assert "Error: stream heat: not found; looked in registrations in " in result.stderr
    assert "pools (no directory service is known), files in " in result.stderr
    heat = writer(RETAINING)
    assert next_line(heat) == "ready"
    assert "did you mean 'heat'?" in penstock("stream", "show", "haet").stderr
    assert "there are: heat" in penstock("stream", "show", "wake").stderr
    gone = penstock("stream", "show", "tcp://127.0.0.1:1/heat?token=00", "--timeout", "0.5")
    assert "Addresses change" in gone.stderr
    assert finish(heat, "\n")[0] == 0


def test_dump_prints_values_of_a_live_stream(processes):
    writer, penstock = processes
    heat = writer(
        """
        with penstock.create("heat", rendezvous_readers=0, reserve_steps=3) as stream:
            for n in range(3):
                with stream.step() as step:
                    step["T"] = np.arange(24.0).reshape(4, 6) + 100 * n
                    step["n"] = np.int64(n)
                    step["title"] = "a text"
                    for size in (2, 3, 4):
                        step.put_local("P", np.full(size, size))
                    step.attributes["code"] = "test"
                    step.attributes["time"] = n / 2
            say("ready")
            wait()
        """
    )
    assert next_line(heat) == "ready"
    values = np.arange(24.0).reshape(4, 6)

    found = json.loads(penstock("stream", "dump", "heat", "--json", "--limit", "5").stdout)
    assert (found["stream"], found["kind"], [step["step"] for step in found["steps"]]) == ("heat", "writer", [2])
    variables = {each["name"]: each for each in found["steps"][0]["variables"]}
    assert variables["T"]["values"] == [200, 201, 202, 203, 204] and variables["T"]["left_out"] == 19
    blocks = [each for each in found["steps"][0]["variables"] if each["name"] == "P"]
    assert [(each["block"], each["values"]) for each in blocks] == [(0, [2, 2]), (1, [3, 3, 3])]
    assert [each["left_out"] for each in blocks] == [0, 4]
    assert (variables["T"]["shape"], variables["T"]["selected"]) == ([4, 6], [4, 6])
    assert (variables["n"]["values"], variables["title"]["values"]) == ([2], ["a text"])
    assert found["steps"][0]["attributes"] == {"code": "test", "time": 1.0}

    part = json.loads(
        penstock("stream", "dump", "heat", "-v", "T", "--slice", "::-2,-1", "--json", "--steps", 2).stdout
    )
    assert [step["step"] for step in part["steps"]] == [0, 1]
    for step in part["steps"]:
        (T,) = step["variables"]
        assert T["values"] == list(values[::-2, -1] + 100 * step["step"]) and T["left_out"] == 0

    text = penstock("stream", "dump", "heat", "--from", 1, "--steps", 2, "--slice", "1:3,:", "-v", "T").stdout
    assert text.splitlines() == [
        "stream heat, step 1",
        "T: float64, global array 4 × 6",
        "  (1, 0)  106 107 108 109 110 111",
        "  (2, 0)  112 113 114 115 116 117",
        "attribute code = test",
        "attribute time = 0.5",
        "stream heat, step 2",
        "T: float64, global array 4 × 6",
        "  (1, 0)  206 207 208 209 210 211",
        "  (2, 0)  212 213 214 215 216 217",
        "attribute time = 1.0",
    ]
    assert "4 more values are left out" in penstock("stream", "dump", "heat", "--limit", 20, "-v", "T").stdout
    for words, message in [
        (("--slice", "0", "-v", "T"), "--slice has 1 axes, and 'T' has 2"),
        (("--slice", "0,6", "-v", "T"), "6 is outside an axis of 6 elements of 'T'"),
        (("--slice", "a,:"), "'a' is not a number"),
    ]:
        wrong = penstock("stream", "dump", "heat", *words)
        assert wrong.returncode == 2 and message in wrong.stderr
    assert "'T'" in penstock("stream", "dump", "heat", "-v", "TT").stderr
    assert finish(heat, "\n")[0] == 0


def test_dump_from_a_step_far_ahead_ends_at_its_deadline(processes):
    writer, penstock = processes
    heat = writer(
        """
        with penstock.create("heat", rendezvous_readers=0, reserve_steps=1) as stream:
            write(stream, 0)
            say("ready")
            n = 1
            while True:
                write(stream, n)
                n += 1
        """
    )
    assert next_line(heat) == "ready"
    result = penstock("stream", "dump", "heat", "--from", 10**12, "--timeout", "1")
    assert result.returncode == 124, result.stderr
    assert re.search(r"has reached step \d+, not 1000000000000, within 1 s", result.stderr)
    heat.kill()


def test_control_characters_and_nan_are_printed_safely(processes):
    writer, penstock = processes
    heat = writer(
        r"""
        with penstock.create("heat", rendezvous_readers=0, reserve_steps=1) as stream:
            with stream.step() as step:
                step["a"] = np.array([np.nan, np.inf, -np.inf, 1.5])
                step["t"] = "red\x1b[31m\nnext\x9b"
                step.attributes["x"] = "bell\x1b]0;title"
                step.attributes["limits"] = [float("nan"), 2.0]
            say("ready")
            wait()
        """
    )
    assert next_line(heat) == "ready"

    def no_constant(word):
        raise ValueError(word)

    dumped = penstock("stream", "dump", "heat", "--json")
    (step,) = json.loads(dumped.stdout, parse_constant=no_constant)["steps"]
    assert {one["name"]: one["values"] for one in step["variables"]}["a"] == ["nan", "inf", "-inf", 1.5]
    assert step["attributes"]["limits"] == ["nan", 2.0]
    shown = penstock("stream", "show", "heat", "--json", "--minmax")
    assert json.loads(shown.stdout, parse_constant=no_constant)["attributes"]["limits"] == ["nan", 2.0]
    for command in ("show", "dump"):
        text = penstock("stream", command, "heat").stdout
        assert '"bell\\u001b]0;title"' in text and "\\u001b[31m\\nnext\\u009b" in text
        assert "\x1b" not in text and "\x9b" not in text
    assert finish(heat, "\n")[0] == 0


def test_a_directory_that_hangs_is_asked_once(monkeypatch):
    asked = []

    def hangs(**_):
        asked.append(1)
        raise penstock.TimeoutError("no answer")

    monkeypatch.setattr(places, "directory_is_known", lambda: True)
    monkeypatch.setattr(places, "_silent_until", {})
    monkeypatch.setattr(penstock, "known_pools", hangs)
    assert [places.known_pools() for _ in range(3)] == [[], [], []]
    assert len(asked) == 1


def test_the_first_values_of_a_selection_are_those_of_numpy():
    chance = random.Random(7)
    for _ in range(300):
        shape = tuple(chance.randrange(0, 6) for _ in range(chance.randrange(1, 4)))
        limit = chance.randrange(0, 30)
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        slices = [slice(*(chance.choice((None, -7, -2, 1, 3)) for _ in range(3))) for _ in shape]
        axes = dump._axes("T", shape, slices)
        read = array[tuple(map(dump._slice_of, dump._leading(axes, limit)))]
        entry = dump._entry(shape, axes, read, limit)
        whole = array[tuple(slices)].reshape(-1)
        assert entry["values"] == whole[: limit or None].tolist(), (shape, slices, limit)
        assert entry["left_out"] == whole.size - len(entry["values"])
        assert not limit or read.size <= 2 * limit, "it reads much more than it prints"


def test_looking_at_a_stream_is_no_reader_that_its_writer_waits_for(processes):
    writer, penstock = processes
    heat = writer(
        """
        with penstock.create("heat", rendezvous_readers=1, reserve_steps=1) as stream:
            say("created")
            write(stream, 0)
            say("written")
            wait()
        """
    )
    assert next_line(heat) == "created"
    result = penstock("stream", "show", "heat", "--timeout", "0.5")
    assert result.returncode == 124 and "gave no step within 0.5 s" in result.stderr
    assert "waits for its first readers: start one, or set rendezvous_readers=0" in result.stderr
    dropped = penstock("stream", "drop", "heat", "--yes")
    assert dropped.returncode == 1 and "heat is in its writer's memory; it ends with its writer" in dropped.stderr
    (row,) = json.loads(penstock("stream", "top", "--json").stdout)["streams"]
    assert (row["stream"], row["steps"], row["peers"], row["pid"]) == ("heat", 0, [], heat.pid)
    reader = writer("with penstock.open('heat') as stream:\n    say(stream.step().number)\n    wait()")
    assert next_line(reader) == "0" and next_line(heat) == "written"
    assert json.loads(penstock("stream", "show", "heat", "--json").stdout)["step"] == 0
    assert finish(reader, "\n")[0] == 0 and finish(heat, "\n")[0] == 0


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


FIVE_STEPS = """
with penstock.create("heat", queue_steps=2) as stream:
    for n in range(5):
        write(stream, n)
"""


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


def test_top_shows_a_running_study(processes, tmp_path):
    _, penstock = processes
    os.mkfifo(tmp_path / "ready")
    os.mkfifo(tmp_path / "go")
    (tmp_path / "writer.py").write_text(
        PRELUDE
        + "with penstock.create('heat', rendezvous_readers=0) as stream:\n"
        + "    write(stream, 0)\n"
        + "    open('ready', 'w').close()\n"
        + "    open('go').close()\n"
    )
    (tmp_path / "study.yaml").write_text("name: pipes\nprograms: {simulation: {command: [python, writer.py]}}")
    run = penstock("run", "study.yaml", only_start=True)
    with open(tmp_path / "ready"):  # until the writer is there
        rows = json.loads(penstock("stream", "top", "--json").stdout)["streams"]
        with open(tmp_path / "go", "w"):
            pass
    assert finish(run)[0] == 0
    assert [(row["stream"], row["role"], row["program"]) for row in rows] == [("heat", "writer", "simulation")]


def test_doctor_sends_a_step_to_itself(processes):
    _, penstock = processes
    findings = {finding["check"]: finding for finding in json.loads(penstock("doctor", "--quick", "--json").stdout)}
    assert findings["stream"]["state"] == "ok", findings["stream"]
