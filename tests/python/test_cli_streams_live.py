"""The commands that look at streams while they run: `stream ls`, `show`, `dump` and `top`, and `doctor`."""

import json
import os
import random
import re

import numpy as np
import penstock
import pytest
from penstock.cli import dump, places
from stream_programs import PRELUDE, RETAINING, finish, next_line, streams_and_commands  # noqa: F401

pytest.importorskip("penstock._core")

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


# --------------------------------------------------------------------------------------------------- top and doctor


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
