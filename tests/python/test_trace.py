"""Traces: two programs record every verb over real servers; the commands show, merge and convert what they left, and
do it again at several speeds and as several clients, with the same outcomes. The results are written as a table,
trace-table.md in the build folder."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import penstock
import pytest

TIMEOUT_S = 120
VERBS = {
    "put", "get", "need", "want", "info", "list", "drop", "drop_pattern", "wait_row", "subscribe", "compute", "status",
}  # fmt: skip

# Every verb, alone and in batches, with outcomes of all kinds. The second program reads what the first puts.
FIRST = """
import contextlib
import numpy as np
import penstock

with penstock.Pool(ns="recorded") as pool:
    pool.put("run", "a", b"hello")
    with contextlib.suppress(penstock.AlreadyExists):
        pool.put("run", "a", b"again")
    pool.put("run", "a", b"newer", if_exists="overwrite", acknowledge="replicated")
    pool.put("run", "versions", b"1", if_exists="add_version")
    pool.put("run", "versions", b"22", if_exists="add_version")
    pool.put("tagged", "", b"by rank", tag=7)
    pool.start_put("run", "later", bytes(1 << 20)).wait()
    pool.put_many([(("many", str(i)), bytes(i)) for i in range(100)])
    pool.put_many([(("many", "0"), b"refused"), (("many", "new"), b"taken")])
    pool.put("array", "T", np.arange(10.0))
    pool.get("run", "a"), pool.get("run", "versions", version=1), pool.get("tagged", "", tag=7)
    pool.get("run", "later", offset=10, size=100)
    pool.get_many([("many", "1"), ("many", "none"), ("many", "2")])
    pool.get_many([("many", "1"), ("many", "2")], wait=True)
    for call in (pool.get, pool.info):
        with contextlib.suppress(penstock.NotFound):
            call("run", "none")
    with contextlib.suppress(penstock.TimeoutError):
        pool.need("run", "none", timeout=0.05)
    pool.info("run", "a"), pool.info_many([("run", "a"), ("run", "none")])
    list(pool.list("many*")), pool.wait_row("many", 50), pool.status()
    pool.compute("sum", [("array", "T")])
    with contextlib.suppress(penstock.NotFound):
        pool.compute("no such function", [("array", "T")])
    with pool.subscribe("run", "*", existing=True) as events:
        events.next()
        wanted = pool.want("answer", "")
        pool.put("question", "", b"?")
        wanted.wait()
"""
SECOND = """
import penstock

with penstock.Pool(ns="recorded") as pool:
    pool.need("question")
    pool.put("answer", "", b"!")
    pool.drop("run", "a"), pool.drop("run", "none"), pool.drop_many([("run", "versions"), ("run", "none")])
    pool.get("old", "one"), pool.info("old", "two", tag=3)  # there before anybody recorded
    assert pool.drop_matching("many") == 101
    try:
        pool.get("many", "1")
    except penstock.NotFound:
        pass
"""

_results: list[tuple[str, str]] = []


@pytest.fixture(scope="module", autouse=True)
def table():
    yield
    build = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build"))
    if _results and build.is_dir():
        lines = ["| scenario | result |", "|---|---|", *(f"| {name} | {result} |" for name, result in _results)]
        (build / "trace-table.md").write_text("\n".join(lines) + "\n")


@pytest.fixture
def run(tmp_path, pool_servers):
    """Starts two servers; run(words, trace=None) is what a program then prints, and servers what it runs against."""
    servers = pool_servers(2, replication=2, http="off")
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_") or key == "PENSTOCK_BIN"
    }
    environment |= {"PENSTOCK_DIRECTORY_SERVICE": servers.directory, "PENSTOCK_LISTEN": "127.0.0.1", "COLUMNS": "160"}

    def call(*words, trace="", code=0):
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            cwd=tmp_path,
            env=environment | ({"PENSTOCK_TRACE": str(trace)} if trace else {}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    call.servers = servers
    call.penstock = lambda *words, **more: call("-m", "penstock.cli.main", *words, **more)
    return call


@pytest.fixture
def recorded(run, tmp_path, open_pool):
    """The folder of what two programs and a command recorded."""
    pool = open_pool(run.servers, ns="recorded")
    pool.put("old", "one", bytes(1000))
    pool.put("old", "two", b"tagged", tag=3)
    traces = tmp_path / "traces"
    programs = [subprocess_of(run, code, traces) for code in (FIRST, SECOND)]
    for program in programs:
        program.result(TIMEOUT_S)
    run.penstock("object", "put", "command", "line", "--text", "too", "--namespace", "recorded", trace=traces)
    return traces


def subprocess_of(run, code, traces):
    return ThreadPoolExecutor(1).submit(run, "-c", code, trace=traces)


def test_recorded_and_replayed(run, recorded, tmp_path, open_pool):
    files = sorted(recorded.glob("*.trace"))
    assert len(files) == 3
    summary = json.loads(run.penstock("trace", "show", recorded, "--json"))
    verbs = {verb["verb"]: verb for verb in summary["verbs"]}
    assert set(verbs) == VERBS
    assert verbs["put"]["errors"] == {"already_exists": 2} and verbs["put"]["bytes"] > 1 << 20
    assert len(summary["processes"]) == 3 and not any(one["lost_bytes"] for one in summary["processes"])
    total, size = summary["operations"], sum(file.stat().st_size for file in files)
    _results.append(("every verb recorded by three processes", f"{len(VERBS)} verbs, {total} operations, {size} bytes"))

    status = open_pool(run.servers, trace="off")
    objects = sum(server["objects"] for server in status.status()["servers"])
    scenarios = [("as recorded", "1", 1), ("max", "max", 1), ("max again", "max", 1), ("10 times, 4 clients", "10", 4)]
    for name, speed, clients in scenarios:
        report = json.loads(
            run.penstock("replay", recorded, "--speed", speed, "--clients", clients, "--json", trace=recorded)
        )
        assert report["operations"] == report["same"] == total * clients, report["differences"]
        assert {verb["verb"] for verb in report["verbs"]} == VERBS
        assert report["prepared_objects"] == 2
        for verb in report["verbs"]:
            assert all(count["recorded"] == count["replayed"] for count in verb["outcomes"].values())
        _results.append((f"replayed {name}", f"{report['same']} of {report['operations']} outcomes the same"))
    assert sum(server["objects"] for server in status.status()["servers"]) == objects  # it leaves nothing
    assert len(list(recorded.glob("*.trace"))) == 3  # and records nothing of itself


def test_what_the_commands_show(run, recorded, tmp_path):
    words = re.sub(r"\s+", " ", run.penstock("trace", "show", recorded))
    assert "p99" in words and "drop_pattern" in words and "not_found" in words

    run.penstock("trace", "merge", recorded, "-o", "all.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert lines == [json.loads(line) for line in run.penstock("trace", "merge", recorded).splitlines()]
    assert [line["at_s"] for line in lines] == sorted(line["at_s"] for line in lines)
    started = {(line["verb"], *line["keys"][0]): line for line in lines if line["keys"]}
    question, needed = started["put", "question", ""], started["want", "question", ""]
    assert question["process"] != needed["process"]
    ended = needed["at_s"] + needed["us"] / 1e6
    assert question["at_s"] < ended  # one clock: an effect comes after its cause

    run.penstock("trace", "convert", recorded, "--output", "chrome.json")
    events = json.loads((tmp_path / "chrome.json").read_text())["traceEvents"]
    assert {event["name"] for event in events} == VERBS | {"process_name"}
    assert sum(event["ph"] in "Xb" for event in events) == len(lines)
    _results.append(("merged, converted to Chrome's format", f"{len(lines)} lines, {len(events)} events"))

    shown = re.sub(r"\s+", " ", run.penstock("replay", recorded, "--speed", "max"))
    assert f"{len(lines)} as recorded, 0 not" in shown


def test_differences_are_told(run, tmp_path, open_pool):
    run.penstock("object", "put", "a", "b", "--text", "c", trace=tmp_path / "one.trace")
    recording = penstock.Recording(tmp_path / "one.trace")
    assert len(recording) == 1 and [line["verb"] for line in recording] == ["put"]
    run.penstock("replay", "one.trace")
    # A pool that is too small for what was recorded.
    big = open_pool(run.servers, ns="big", trace=str(tmp_path / "big"))
    big.put("big", "", bytes(40 << 20), timeout=3)  # so long its copies wait, too
    big.close()
    report = json.loads(run.penstock("replay", "big", "--clients", "3", "--speed", "max", "--json", code=1))
    assert "pool_full" in [difference["replayed"] for difference in report["differences"]]
    _results.append(("a pool too small for three copies", f"exit code 1: {report['different']} of 3 pool_full"))


def test_recording_by_the_configuration_file(run, tmp_path):
    (tmp_path / "penstock.yaml").write_text("trace: from-file\n")
    run.penstock("object", "put", "a", "b", "--text", "c")
    assert len(penstock.Recording(tmp_path / "from-file")) == 1


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["trace", "show", "nowhere"], 1, "there is no trace nowhere"),
        (["replay", "nowhere", "--speed", "fast"], 2, "is no speed"),
        (["replay", "nowhere", "--speed", "0"], 2, "is no speed"),
        (["trace", "show", "empty"], 1, "no file *.trace in empty"),
        (["trace", "show", "text.trace"], 1, "not a trace"),
    ],
)
def test_wrong_words(tmp_path, words, code, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.trace").write_text("some text, long enough to be one")
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli.main", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    said = re.sub(r"\s+", " ", done.stderr)
    assert (done.returncode, "Traceback" in said) == (code, False), said
    assert message in said


# ------------------------------------------------------------------------------------------------------- streams

# A small simulation, and an analysis of it: once beside it and once after it.
SIMULATION = """
import numpy as np
import penstock

with penstock.create("gray-scott", engine="pool", min_max=True) as stream:
    stream.attributes["F"] = 0.02
    U, V = np.ones((32, 32)), np.zeros((32, 32))
    V[12:20, 12:20] = 0.5
    for t in range(6):
        with stream.step() as step:
            step["U"] = U
            step.put("V", V[:16], start=(0, 0), shape=(32, 32))
            step.put("V", V[16:], start=(16, 0), shape=(32, 32))
            step["time"] = float(t)
        laplacian = sum(np.roll(V, s, a) for s in (1, -1) for a in (0, 1)) - 4 * V
        U, V = U - U * V * V + 0.02 * (1 - U), V + 0.1 * laplacian + U * V * V - 0.07 * V
"""
ANALYSIS = """
import penstock

with penstock.open("gray-scott", engine="pool") as stream:
    for step in stream:
        whole, half = step["V"][:], step["U"][::2, 3:9]
        view = step["U"].view()
        print(step.number, float(whole.max()) > 0, half.shape, float(step["time"][...]))
"""
STREAM_VERBS = {
    "write_open", "write_define", "write_attribute", "write_begin", "write_put", "write_end", "write_close",
    "read_open", "read_begin", "read_get", "read_wait", "read_view", "read_end", "read_close",
}  # fmt: skip


def test_streams_recorded_and_replayed(run, tmp_path, pool_servers, open_pool):
    traces = tmp_path / "traces"
    beside = subprocess_of(run, ANALYSIS, traces)
    run("-c", SIMULATION, trace=traces)
    later = run("-c", ANALYSIS, trace=traces)
    assert beside.result(TIMEOUT_S) == later and len(later.splitlines()) == 6
    recording = penstock.Recording(traces)
    verbs = {verb["verb"]: verb for verb in recording.summary()["verbs"]}
    assert set(verbs) == STREAM_VERBS
    assert verbs["write_put"]["bytes"] == 6 * (2 * 32 * 32 + 1) * 8
    assert verbs["read_begin"]["errors"]["end_of_stream"] == 2
    words = re.sub(r"\s+", " ", run.penstock("trace", "show", traces))
    assert "write_put" in words and "read_view" in words
    puts = [line for line in recording if line["verb"] == "write_put" and line["keys"] == [["gray-scott", "V"]]]
    assert [put["what"] for put in puts[:2]] == ["0,0+16,32", "16,0+16,32"]
    run.penstock("trace", "convert", traces, "--output", "chrome.json")
    events = json.loads((tmp_path / "chrome.json").read_text())["traceEvents"]
    assert {event["name"] for event in events if event.get("cat") == "stream"} == STREAM_VERBS

    # On the servers that were recorded, and on fresh ones.
    fresh = pool_servers(2, replication=2, http="off")
    for servers in (run.servers, fresh):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
            for speed, clients in ((1, 1), (0, 1), (0, 3)):
                report = recording.replay(speed=speed, clients=clients)
                assert report["same"] == report["operations"] == len(recording) * clients, report["differences"]
                for verb in report["verbs"]:
                    assert all(count["recorded"] == count["replayed"] for count in verb["outcomes"].values())
            left = open_pool(servers, ns=penstock.pool.STREAMS_NAMESPACE, trace="off").list("replay-*")
            assert not list(left)  # it leaves nothing
    counted = f"{len(STREAM_VERBS)} verbs, {len(recording)} operations"
    _results.append(("a stream written, read beside and later", counted))
    counted = f"{report['same']} of {report['operations']} outcomes the same"
    _results.append(("its replay on fresh servers, three copies", counted))
