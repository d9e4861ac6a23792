"""The commands that concern pools, as a user runs them, over real servers."""

import io
import json
import os
import re
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from penstock.cli.pool import FIGURES, status_tables
from rich.console import Console

TIMEOUT_S = 90


@pytest.fixture
def environment(tmp_path, pool_servers):
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_") or k in ("PENSTOCK_BIN", "PENSTOCK_BUILD")
    }
    return {**kept, "PENSTOCK_DIRECTORY": str(tmp_path / "runtime" / "penstock"), "COLUMNS": "160"}


@pytest.fixture
def penstock(tmp_path, environment):
    """penstock("object", "put", "row", "column", stdin=b"...") -> CompletedProcess, its outputs as bytes."""

    def call(*words, stdin=b"", **more):
        return subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", *map(str, words)],
            cwd=tmp_path,
            env=environment | more,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
        )

    return call


@pytest.fixture
def served(environment, tmp_path):
    """`penstock pool serve` with two servers, found by everybody who shares the environment; ended by Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "pool", "serve", "--servers", "2", "--memory", "64MiB", "--json",
         "--replication", "2", "--name", "stage", "-o", "listen=127.0.0.1", "--disk", str(tmp_path / "disk")],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        lines = ThreadPoolExecutor(1).submit(lambda: list(takewhile("}\n".__ne__, process.stdout))).result(TIMEOUT_S)
        yield json.loads("".join(lines) + "}")
    finally:
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, messages


def test_serve_prints_the_configuration_in_effect(penstock):
    shown = penstock("pool", "serve", "--memory", "64MiB", "-o", "max_waits=7", "--print-config")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.decode().splitlines()
    assert {"memory: 64MiB", "max_waits: 7", "max_leases: 262144", "log: warn"} <= set(lines)
    wrong = penstock("pool", "serve", "-o", "max_wait=7", "--print-config")
    assert wrong.returncode == 1 and b"did you mean 'max_waits'?" in wrong.stderr


def words_of(result):
    return re.sub(r"\s+", " ", (result.stdout + result.stderr).decode())


def test_nothing_survives_serve_that_was_killed(environment, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.main", "pool", "serve", "--servers", "2", "--memory", "64MiB", "--json",
         "-o", "listen=127.0.0.1"],
        env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    lines = ThreadPoolExecutor(1).submit(lambda: list(takewhile("}\n".__ne__, process.stdout))).result(TIMEOUT_S)
    pids = [server["pid"] for server in json.loads("".join(lines) + "}")["servers"]]
    registration = Path(environment["PENSTOCK_DIRECTORY"]) / "directory.json"
    waiting = [os.pidfd_open(pid) for pid in (*pids, json.loads(registration.read_text())["pid"])]
    process.kill()
    process.communicate(timeout=TIMEOUT_S)
    for fd in waiting:
        assert select.select([fd], [], [], TIMEOUT_S)[0]
        os.close(fd)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_serve_while_it_starts(environment, tmp_path, number):
    command = [sys.executable, "-m", "penstock.cli.main", "pool", "serve", "--memory", "64MiB", "-o", "servers=2"]
    environment |= {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    ended = os.pidfd_open(process.pid)
    try:
        while not list(tmp_path.glob("penstock-pool-*/*.log")):  # the second server never comes
            assert not select.select([ended], [], [], 0.02)[0], process.communicate()
        process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
        os.close(ended)
    assert process.returncode == 130 and said == "interrupted\n"
    assert not list(tmp_path.glob("penstock-pool-*"))


def test_objects_from_the_command_line(penstock, served, tmp_path):
    assert served["pool"] == "stage" and len(served["servers"]) == 2
    (tmp_path / "data.bin").write_bytes(bytes(range(256)))
    done = penstock("object", "put", "run 7", "bytes", "data.bin")
    assert done.returncode == 0 and "run 7/bytes: version 1, 256 B" in words_of(done)
    assert penstock("object", "put", "run 7", "stdin", "-", stdin=b"from stdin").returncode == 0
    assert penstock("object", "put", "run 7", "text", "--text", "a text", "--acknowledge", "durable").returncode == 0
    assert penstock("object", "get", "run 7", "bytes").stdout == bytes(range(256))
    assert penstock("object", "get", "run 7", "stdin", "--wait", "30", "--output", "out.bin").returncode == 0
    assert (tmp_path / "out.bin").read_bytes() == b"from stdin"

    again = penstock("object", "put", "run 7", "text", "--text", "b")
    assert again.returncode == 1 and "Error: " in words_of(again)
    assert penstock("object", "put", "run 7", "text", "--text", "b", "--if-exists", "overwrite").returncode == 0
    info = json.loads(penstock("object", "info", "run 7", "text", "--json").stdout)
    assert (info["bytes"], info["version"], info["row"]) == (1, 2, "run 7")
    assert "version" in words_of(penstock("object", "info", "run 7", "text"))

    listed = json.loads(penstock("object", "list", "run*", "--json").stdout)
    assert [one["column"] for one in listed] == ["bytes", "stdin", "text"]
    assert "256 B" in words_of(penstock("object", "list"))
    asked = penstock("object", "drop", "run 7", "stdin")
    assert asked.returncode == 2 and "no terminal to ask on Give --yes" in words_of(asked)
    assert "removes run 7/stdin (10 B, version 1, and all earlier ones)" in words_of(asked)
    assert penstock("object", "drop", "run 7", "stdin", "--yes").returncode == 0
    assert penstock("object", "drop", "run 7", "stdin", "--yes").returncode == 1
    asked = penstock("object", "drop", "run*", "--matching")
    assert asked.returncode == 2 and "removes 2 objects (257 B)" in words_of(asked)
    assert "2 dropped" in words_of(penstock("object", "drop", "run*", "--matching", "--yes"))
    nothing = penstock("object", "drop", "run*", "--matching")
    assert nothing.returncode == 0 and words_of(nothing).strip() == "no such objects"
    assert "no such objects" in words_of(penstock("object", "list"))
    missing = penstock("object", "get", "run 7", "text")
    assert missing.returncode == 1 and b"Traceback" not in missing.stderr
    assert penstock("object", "put", "run 7", "text", "--text", "abc").returncode == 0
    assert "object run 7/text: no such version" in words_of(
        penstock("object", "get", "run 7", "text", "--version", "99")
    )
    assert "Error: absent.dat: no such file" in words_of(penstock("object", "put", "run 7", "file", "absent.dat"))
    assert penstock("object", "get", "run 7", "never", "--wait", "0.5").returncode == 124


def test_compute_and_operators_from_the_command_line(penstock, served, tmp_path):
    np.arange(10.0).tofile(tmp_path / "a.bin")
    described = json.dumps({"dtype": "float64", "shape": [10]})
    assert penstock("object", "put", "a", "T", "a.bin", "--metadata", described).returncode == 0
    assert penstock("object", "compute", "sum", "a/T").stdout == b"45.0\n"
    assert penstock("object", "compute", "sum", "a:T", "--separator", ":").stdout == b"45.0\n"
    histogram = penstock("object", "compute", "histogram", "a/T", "-a", "bins=2", "-a", "range=[0, 10]")
    assert histogram.stdout == b"[5, 5]\n"
    assert penstock("object", "compute", "sum", "a/T", "-a", "bins").returncode == 2

    status = json.loads(penstock("pool", "status", "--json").stdout)
    assert [server["state"] for server in status["servers"]] == ["active", "active"]
    narrow = words_of(penstock("pool", "status", COLUMNS="80"))
    assert "pool stage: view" in narrow and "recalled" in narrow and "…" not in narrow
    shown = words_of(penstock("stream", "ls"))
    assert "stage" in shown and "directory" not in shown.replace("the directory", "")
    known = json.loads(penstock("stream", "ls", "--json").stdout)
    assert known["streams"] == [] and known["pools"][0]["name"] == "stage"

    token = penstock("pool", "token", "--role", "read").stdout.decode().strip()
    assert re.fullmatch("[0-9a-f]{64}", token)
    assert penstock("pool", "token", "--role", "king").returncode == 1
    wrong = penstock("pool", "drain", "nobody", "--yes")
    assert wrong.returncode == 1 and "has no server nobody" in words_of(wrong)


def test_the_status_of_many_servers_fits_a_terminal():
    alive = {key: 0 for _, key, _ in FIGURES} | {
        "state": "active",
        "memory_bytes": 345 << 20,
        "memory_limit": 512 << 20,
    }
    servers = [alive | {"name": f"node{i:04}:12345"} for i in range(11)] + [{"name": "node0011:12345", "state": "lost"}]
    now = {"name": "stage", "view": 3, "settled": True, "replication": 2, "servers": servers}
    console = Console(file=io.StringIO(), width=80)
    console.print(status_tables(now, console.width))
    shown = console.file.getvalue()
    assert "…" not in shown and shown.count("345 MiB") == 11 and shown.count("lost") == 1
    assert "evicted" not in shown  # nobody has a disk


def test_a_server_is_drained_from_the_command_line(penstock, pool_servers):
    servers = pool_servers(2)
    name = servers.servers[1].ready["name"]
    where = {"PENSTOCK_DIRECTORY_SERVICE": servers.directory}
    for words in (["drain", name], ["stop", name, "--force"]):
        asked = penstock("pool", *words, **where)
        assert asked.returncode == 2 and "no terminal to ask on" in words_of(asked)
        assert "0 objects (0 B in memory)" in words_of(asked)
    status = json.loads(penstock("pool", "status", "--json", **where).stdout)
    assert [server["state"] for server in status["servers"]] == ["active", "active"]
    done = penstock("pool", "drain", name, "--yes", **where)
    assert done.returncode == 0 and "has left the pool" in words_of(done)
    assert servers.servers[1].process.wait(TIMEOUT_S) == 0


def test_without_a_pool(penstock):
    for words in (("object", "get", "a"), ("object", "list"), ("pool", "status")):
        result = penstock(*words)
        assert result.returncode == 1
        assert "Start one with penstock pool serve" in words_of(result)


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["pool", "serve", "--replication", "2"], 2, "--servers 2"),
        (["pool", "serve", "-o", "memory"], 2, "'memory' is not KEY=VALUE"),
        (["pool", "serve", "-o", "memroy=1GiB"], 1, "did you mean 'memory'?"),
        (["object", "put", "a", "b", "file", "--text", "x"], 2, "not both"),
        (["object", "drop", "a*", "--matching", "--version", "1"], 2, "takes neither --version nor --tag"),
        (["object", "drop", "a*", "--matching", "--tag", "0"], 2, "takes neither --version nor --tag"),
        (["pool", "drain", "a", "--no-wait", "--timeout", "3"], 2, "--timeout is for a drain that is waited for"),
        (["pool"], 2, "Usage"),
    ],
)
def test_wrong_words(penstock, words, code, message):
    result = penstock(*words)
    assert result.returncode == code
    assert message in words_of(result)
    assert b"Traceback" not in result.stderr


WRITES = """
import sys
import numpy as np
import penstock

with penstock.create("heat", engine="pool", timeout=60) as stream:
    for n in range(3):
        with stream.step() as step:
            step["T"] = np.full((4, 6), float(n))
            step.attributes["time"] = n / 2
    print("written", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def pooled(environment, tmp_path, pool_servers):
    """A writer of the stream heat in a pool, which waits for a line, and the environment in which it is found."""
    found = environment | {"PENSTOCK_DIRECTORY_SERVICE": pool_servers(1).directory}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    writer = subprocess.Popen([sys.executable, "-c", WRITES], env=found, cwd=tmp_path, text=True, **pipes)
    try:
        assert select.select([writer.stdout], [], [], TIMEOUT_S)[0] and writer.stdout.readline() == "written\n"
        yield writer, {"PENSTOCK_DIRECTORY_SERVICE": found["PENSTOCK_DIRECTORY_SERVICE"]}
    finally:
        writer.kill()
        writer.communicate()


def test_top_keeps_its_clients_of_pools(pooled, monkeypatch, tmp_path):
    import penstock
    from penstock.cli.top import View

    _, where = pooled
    monkeypatch.chdir(tmp_path)
    for name, value in where.items():
        monkeypatch.setenv(name, value)
    opened = []
    make = penstock.Pool
    monkeypatch.setattr(penstock, "Pool", lambda *args, **how: opened.append(make(*args, **how)) or opened[-1])
    view = View([], set())
    for _ in range(2):
        assert [endpoint.count("steps") for _, _, endpoint in view.endpoints()] == [3] and len(view.pools()) == 1
    assert len(opened) == 2  # of the pool, and of its space
    opened[0].close()  # as if it had failed
    assert view.pools() == [] and len(view.pools()) == 1 and len(opened) == 3
    for client in opened[1:]:
        client.close()


def test_streams_in_a_space_and_in_files_are_listed(penstock, file_engine, tmp_path, pool_servers, monkeypatch):
    from penstock import create

    where = {"PENSTOCK_DIRECTORY_SERVICE": pool_servers(1).directory}
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", where["PENSTOCK_DIRECTORY_SERVICE"])
    streams = [create("arrays", engine="space"), create("kept", engine="file", folder=tmp_path / "kept.steps")]
    for stream in streams:
        for number in range(2):
            with stream.step() as step:
                step["T"] = np.full((4, 6), float(number))
    for state, followed in (("open", [("arrays", "space default", 2), ("kept", "files", 2)]), ("ended", None)):
        listed = json.loads(penstock("stream", "ls", "--json", **where).stdout)["streams"]
        assert [(one["name"], one["kind"], one["where"], one["state"], one["steps"]) for one in listed] == [
            ("arrays", "space", "default", state, 2),
            ("kept.steps", "files", "kept.steps", state, 2),
        ]
        top = json.loads(penstock("stream", "top", "--json", **where).stdout)["streams"]
        assert [(row["stream"], row["role"], row["steps"]) for row in top] == (
            followed or [("arrays", "space default", 2)]
        )
        assert all(row["newest"] == 1 for row in top)
        for stream in streams:
            stream.close()
    assert "the space of pool default" in words_of(penstock("stream", "ls", **where))
    kept = penstock("stream", "drop", "arrays", "--yes", **where)
    assert kept.returncode == 1 and "drop its arrays with penstock.Space" in words_of(kept)


def test_a_stream_in_a_pool_is_found_without_a_word(penstock, pooled, tmp_path):
    h5py = pytest.importorskip("h5py")
    writer, where = pooled
    for state in ("open", "ended"):
        listed = json.loads(penstock("stream", "ls", "--json", **where).stdout)
        (one,) = listed["streams"]
        assert (one["name"], one["kind"], one["where"], one["state"]) == ("heat", "pool", "default", state)
        assert (one["steps"], one["ranks"], len(listed["pools"][0]["servers"])) == (3, 1, 1)
        shown = json.loads(penstock("stream", "show", "heat", "--json", **where).stdout)
        assert (shown["kind"], shown["state"], shown["step"], shown["pid"]) == ("pool", state, 2, writer.pid)
        assert shown["attributes"] == {"time": 1.0}
        assert f"{state}, 3 steps in pool default" in words_of(penstock("stream", "show", "heat", **where))
        dumped = json.loads(
            penstock(
                "stream", "dump", "heat", "--slice", "0,:2", "--from", "1", "--steps", "2", "--json", **where
            ).stdout
        )
        assert [(one["step"], one["variables"][0]["values"]) for one in dumped["steps"]] == [(1, [1, 1]), (2, [2, 2])]
        top = json.loads(penstock("stream", "top", "--json", **where).stdout)
        assert [(row["stream"], row["role"], row["steps"]) for row in top["streams"]] == [("heat", "pool default", 3)]
        assert top["streams"][0]["queue_depth"] is None  # pools do not know it
        assert [server["state"] for server in top["pools"][0]["servers"]] == ["active"]
        assert "pool default: view" in words_of(penstock("stream", "top", "--once", **where))
        if state == "open":
            writer.communicate("\n", timeout=TIMEOUT_S)
    saved = penstock("stream", "save", "heat", "heat.h5", "--timeout", "20", **where)
    assert saved.returncode == 0 and "stream 'heat' is in pool default: ended, 3 steps\n" in saved.stderr.decode()
    with h5py.File(tmp_path / "heat.h5") as file:
        assert list(file["step"]) == [0, 1, 2]
    saved = penstock("stream", "save", "heat", "some.h5", "--from", "1", "--every", "2", "--timeout", "20", **where)
    assert saved.returncode == 0, saved.stderr
    with h5py.File(tmp_path / "some.h5") as file:
        assert list(file["step"]) == [1]
    wrong = penstock("stream", "show", "haet", **where)
    assert wrong.returncode == 1 and "did you mean 'heat'?" in words_of(wrong)
    assert "pool default, files in " in words_of(wrong)


def test_a_stream_is_dropped_when_the_question_is_answered(penstock, pooled, environment, tmp_path):
    writer, where = pooled
    wrong = penstock("stream", "drop", "heat", "--pool", "wrong", "--yes", **where)
    assert wrong.returncode == 1 and "there is no pool 'wrong' There are: default" in words_of(wrong)
    written = penstock("stream", "drop", "heat", "--yes", **where)
    assert written.returncode == 1 and "is being written by" in words_of(written)
    writer.communicate("\n", timeout=TIMEOUT_S)
    refused = penstock("stream", "drop", "heat", **where)
    assert refused.returncode == 2 and "removes stream heat from pool default: 3 steps" in words_of(refused)
    command = [sys.executable, "-m", "penstock.cli.main", "stream", "drop", "heat"]
    terminal, side = os.openpty()
    pipes = {"stdin": side, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    asking = subprocess.Popen(command, env=environment | where, cwd=tmp_path, **pipes)
    said = b""
    while b"Go on?" not in said:
        assert select.select([asking.stderr], [], [], TIMEOUT_S)[0]
        said += (more := os.read(asking.stderr.fileno(), 4096))
        assert more, said
    asking.send_signal(signal.SIGINT)
    assert b"nothing was done" in asking.communicate(timeout=TIMEOUT_S)[1] and asking.returncode == 130
    os.close(side)
    os.close(terminal)
    for answer, code, left in (("n", 1, ["heat"]), ("y", 0, [])):
        terminal, side = os.openpty()
        os.write(terminal, f"{answer}\n".encode())
        done = subprocess.run(
            command, env=environment | where, cwd=tmp_path, stdin=side, capture_output=True, timeout=TIMEOUT_S
        )
        os.close(side)
        os.close(terminal)
        assert done.returncode == code and "Go on?" in words_of(done), words_of(done)
        listed = json.loads(penstock("stream", "ls", "--json", **where).stdout)
        assert [one["name"] for one in listed["streams"]] == left
    gone = penstock("stream", "drop", "heat", "--yes", **where)
    assert gone.returncode == 1 and "there is no stream 'heat' in a pool" in words_of(gone)


def test_puts_are_watched_as_they_come(penstock, environment, tmp_path, pool_servers):
    where = {"PENSTOCK_DIRECTORY_SERVICE": pool_servers(1).directory}
    assert penstock("object", "put", "run 1", "first", "--text", "a", **where).returncode == 0
    command = [sys.executable, "-m", "penstock.cli.main", "object", "watch", "run*", "--existing", "--count", "3"]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    watch = subprocess.Popen([*command, "--json"], env=environment | where, cwd=tmp_path, text=True, **pipes)
    try:
        assert select.select([watch.stderr], [], [], TIMEOUT_S)[0]
        assert watch.stderr.readline() == "watching run*/* in pool default\n"
        assert penstock("object", "put", "other", "x", "--text", "no", **where).returncode == 0
        assert penstock("object", "put", "run 1", "second", "--text", "bc", **where).returncode == 0
        assert penstock("object", "drop", "run 1", "first", "--yes", **where).returncode == 0
        out, errors = watch.communicate(timeout=TIMEOUT_S)
    finally:
        watch.kill()
        watch.communicate()
    assert watch.returncode == 0, errors
    events = [json.loads(line) for line in out.splitlines()]
    told = [(one["event"], one["column"]) for one in events]
    assert told == [("put", "first"), ("put", "second"), ("dropped", "first")]
    assert events[1]["bytes"] == 2 and re.search(r"[+-]\d\d:\d\d$", events[1]["put"])
    late = penstock("object", "watch", "run*", "--existing", "--timeout", "0.5", **where)
    assert late.returncode == 124 and "no event within 0.5 s" in words_of(late)
    assert b"put run 1/second: 2 B, version 1" in late.stdout


def test_pools_of_the_directory_in_the_file_are_listed(penstock, environment, tmp_path, pool_servers):
    (tmp_path / "penstock.yaml").write_text(f"directory: {pool_servers(1).directory}\n")
    del environment["PENSTOCK_DIRECTORY"]
    (pool,) = json.loads(penstock("stream", "ls", "--json").stdout)["pools"]
    assert pool["name"] == "default"


def test_addresses_of_status_pages_stay_in_one_line(monkeypatch, capsys):
    from penstock.cli import serve

    monkeypatch.setenv("COLUMNS", "40")
    ready = {
        "name": "a-host-with-a-name:123456",
        "id": "17734808264057437472",
        "pid": 123456,
        "http": "127.0.0.1:45678",
    }
    running = SimpleNamespace(plan=SimpleNamespace(name="stage"), servers=[SimpleNamespace(ready=ready)])
    serve._show(running, as_json=False)
    assert "status page of a-host-with-a-name:123456: http://127.0.0.1:45678/\n" in capsys.readouterr().out
