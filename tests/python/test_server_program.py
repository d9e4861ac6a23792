"""The program penstock-server: its configuration, readiness, how it ends, and what it answers over HTTP."""

import contextlib
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import penstock
import pytest

DEADLINE_S = 60


@pytest.fixture
def program(pool_servers):
    """The program's path, as the fixture of pools finds it."""
    from penstock.workflow.launch import find_program

    return find_program("penstock-server", os.getcwd())


@pytest.fixture
def server(program, tmp_path):
    """server(*words, **environment) runs the program to its end."""

    def run(*words, **environment):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        return subprocess.run(
            [program, *map(str, words)],
            env=kept | {"PENSTOCK_DIRECTORY": str(tmp_path / "registration")} | environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )

    return run


def options_of(text):
    return dict(line.split(": ", 1) for line in text.splitlines())


# ------------------------------------------------------------------------------------------------------- configuration


def test_configuration_in_effect(server, tmp_path):
    (tmp_path / "server.yaml").write_text(
        "pool: stage\nmemory: 2GiB\nlease_ms: 700\nfolder: own\ntiers:\n  - disk:objects,limit=1GiB\n  - files:/slow\n"
    )
    result = server(
        "--config", "server.yaml", "--print-config", "lease_ms=900",
        PENSTOCK_SERVER_MEMORY="3GiB", PENSTOCK_SERVER_LEASE_MS="800",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    shown = options_of(result.stdout)
    assert (shown["pool"], shown["memory"], shown["lease_ms"]) == ("stage", "3GiB", "900")
    assert shown["tiers"] == "disk:objects,limit=1GiB;files:/slow"
    # What is printed can be read again.
    (tmp_path / "again.yaml").write_text(result.stdout)
    assert server("--config", "again.yaml", "--print-config").stdout == result.stdout


def test_every_key_is_explained(server):
    page = (Path(__file__).parents[2] / "docs" / "howto" / "serve.md").read_text()
    documented = {
        key for line in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for key in re.findall(r"`(\w+)`", line)
    }
    assert documented == set(options_of(server("--print-config").stdout))


@pytest.mark.parametrize(
    "words, message",
    [
        (["memroy=1GiB"], "did you mean 'memory'?"),
        (["memory=much"], "memory: 'much' is not a size"),
        (["servers"], "'servers' is not key=value"),
        (["servers=0"], "servers: "),
        (["servers=2", "replication=3"], "replication is more"),
        (["high_watermark=1.5"], "high_watermark: "),
        (["low_watermark=95%"], "low_watermark is above"),
        (["tiers=dsk:/x"], "did you mean 'disk'?"),
        (["tiers=disk:/x,limt=1"], "did you mean 'limit'?"),
        (["tiers=disk:/x"], "tiers need a folder"),
        (["directory=somewhere"], "'somewhere' is not embedded"),
        (["log=loud"], "log: "),
        (["compute_functions=f"], "name=file.py:function"),
        (["--confg", "x"], "did you mean '--config'?"),
        (["--config"], "--config needs a value"),
        (["--config", "absent.yaml"], "absent.yaml"),
    ],
)
def test_wrong_configuration_is_one_line_and_exit_code_2(server, words, message):
    result = server(*words)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1 and result.stderr.startswith("penstock-server: ")


def test_errors_name_their_place(server, tmp_path):
    (tmp_path / "server.yaml").write_text("pool: stage\nlisen: 127.0.0.1\n")
    assert "server.yaml:2: unknown option 'lisen'; did you mean 'listen'?" in server("--config", "server.yaml").stderr
    assert "PENSTOCK_SERVER_POOOL: unknown option" in server(PENSTOCK_SERVER_POOOL="x").stderr


def test_what_cannot_start_says_why(server, pool_servers, tmp_path):
    assert server("http=127.0.0.1:0", "directory=registered", "start_timeout_ms=300").returncode == 1
    servers = pool_servers(1, disk=True)
    folder = servers.plan.disk / "server-1"
    result = server(f"folder={folder}")
    assert result.returncode == 1
    assert "another server uses the folder" in result.stderr
    result = server(f"registration={servers.registration}", "http=off", "listen=127.0.0.1")
    assert result.returncode == 1  # there is a directory already
    assert "directory" in result.stderr


def test_bounds_of_a_client_can_be_chosen(pool_servers, open_pool, server, tmp_path):
    (tmp_path / "server.yaml").write_text("max_calls: 10\ncall_memory: 2MiB\n")
    shown = options_of(
        server("--config", "server.yaml", "--print-config", "max_events=3", PENSTOCK_SERVER_MAX_READERS="5").stdout
    )
    assert (shown["max_calls"], shown["call_memory"], shown["max_events"]) == ("10", "2MiB", "3")
    assert (shown["max_readers"], shown["max_waits"], shown["max_subscriptions"]) == ("5", "16384", "1024")
    assert "max_waits: " in server("max_waits=0", "--print-config").stderr

    servers = pool_servers(1, http="off", max_waits="1", max_leases="1")
    pool = open_pool(servers)
    waiting = pool.want("never", "1", timeout=DEADLINE_S)
    with pytest.raises(penstock.Overloaded, match=r"1 waiting calls at a server \(its max_waits\)"):
        pool.need("never", "2", timeout=5)
    pool.put("never", "1", b"x")
    assert waiting.wait().bytes() == b"x"
    for column in "ab":
        pool.put("large", column, bytes(300_000))
    held = pool.get("large", "a")
    with pytest.raises(penstock.Overloaded, match="max_leases"):
        pool.get("large", "b")
    assert len(held) == 300_000


# --------------------------------------------------------------------------------------------------- ready, and the end


def test_ready_line(pool_servers):
    servers = pool_servers(1, name="stage")
    (server,) = servers.servers
    ready = server.ready
    assert ready["pool"] == "stage" and ready["pid"] == server.process.pid
    assert re.fullmatch(r"tcp://127\.0\.0\.1:\d+/directory\?token=[0-9a-f]{64}", ready["directory"])
    assert "token=" not in server.log.read_text().replace("token=...", "")
    log = server.log.read_text()
    assert "configuration: pool: stage" in log and "ready pool=stage" in log


def test_ready_line_on_standard_output_holds_no_token(program, tmp_path):
    process = subprocess.Popen(
        [program, "listen=127.0.0.1", f"registration={tmp_path / 'registration'}", "log=warn"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        word, _, rest = process.stdout.readline().partition(" ")
        assert word == "ready" and json.loads(rest)["directory"].endswith("token=...")
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
        process.stdout.close()


def test_the_service_manager_is_told(program, tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(DEADLINE_S)
        process = subprocess.Popen(
            [program, "listen=127.0.0.1", f"registration={tmp_path / 'registration'}", "log=warn"],
            env=os.environ | {"NOTIFY_SOCKET": str(path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        try:
            assert manager.recv(100) == b"READY=1"
        finally:
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
        assert manager.recv(100) == b"STOPPING=1"


def test_the_end_waits_for_the_others_no_longer_than_it_may(pool_servers):
    """Alone, it just ends; a server whose directory does not answer ends, too."""
    servers = pool_servers(2, drain_timeout_ms="1500", lease_ms="500", stop_timeout_ms="5000")
    first, second = servers.servers
    (directory,) = directories(servers)
    os.kill(directory, signal.SIGSTOP)
    assert servers.stop_one(first, number=signal.SIGKILL) == -signal.SIGKILL
    second.process.terminate()
    assert second.process.wait(DEADLINE_S) in (0, 1)
    os.kill(directory, signal.SIGKILL)


def test_it_ends_with_its_parent(program, tmp_path):
    script = (
        "import os, subprocess, sys\n"
        "p = subprocess.Popen([sys.argv[1], '--with-parent', 'listen=127.0.0.1', 'registration=' + sys.argv[2]],"
        " stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)\n"
        "p.stdout.readline()\n"
        "print(p.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, program, str(tmp_path / "registration")],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    try:
        fd = os.pidfd_open(int(done.stdout))
    except ProcessLookupError:
        return  # it has ended already
    assert select.select([fd], [], [], DEADLINE_S)[0]
    os.close(fd)


# ---------------------------------------------------------------------------------------------- the directory's process


def directories(servers):
    """The numbers of the directory's processes for these servers."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if b"--directory" in words and f"registration={servers.registration}".encode() in words:
            found.append(int(process.name))
    return found


@contextlib.contextmanager
def ends(pid):
    """The process ends before the block does, or soon after."""
    fd = os.pidfd_open(pid)
    try:
        yield
        assert select.select([fd], [], [], DEADLINE_S)[0], "the directory's process does not end"
    finally:
        os.close(fd)


def test_the_directory_ends_after_the_last_server(pool_servers, open_pool):
    servers = pool_servers(2)
    (directory,) = directories(servers)
    with ends(directory):
        assert servers.stop_one(servers.servers[0]) == 0  # it had started the directory
        open_pool(servers).put("still", "there", b"x")
        assert directories(servers) == [directory]
        assert servers.stop_one(servers.servers[0]) == 0
        assert not directories(servers)  # the last server waits for it
    assert {entry.name for entry in servers.registration.iterdir()} == {"directory.lock", "directory.users"}


def test_the_directory_ends_when_all_servers_were_killed(pool_servers):
    servers = pool_servers(2, lease_ms="500")
    (directory,) = directories(servers)
    with ends(directory):
        for server in list(servers.servers):
            servers.stop_one(server, number=signal.SIGKILL)


def test_one_directory_is_started_again_by_any_server(pool_servers, open_pool):
    servers = pool_servers(3, lease_ms="500")
    address = servers.directory
    pool = open_pool(servers)
    while not (view := pool.status())["settled"]:
        threading.Event().wait(0.01)
    for server in (None, servers.servers[0]):
        if server:
            servers.stop_one(server, number=signal.SIGKILL)
        (dead,) = directories(servers)
        with ends(dead):
            os.kill(dead, signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE_S
        while (now := directories(servers)) in ([], [dead]):
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)
        assert len(now) == 1
        if server is None:
            open_pool(servers, directory=address).put("a", "b", b"x")
            assert pool.status()["view"] == view["view"]
    assert servers.directory == address


def test_a_server_that_comes_back_joins_the_directory_that_it_started(pool_servers, open_pool):
    servers = pool_servers(2, lease_ms="500")
    address, (directory,) = servers.directory, directories(servers)
    servers.stop_one(servers.servers[0], number=signal.SIGKILL)
    servers.start_one(1)
    servers.wait_ready(DEADLINE_S)
    assert servers.directory == address and directories(servers) == [directory]


def test_a_server_of_another_host_uses_the_directory_and_does_not_keep_it(program, pool_servers):
    """A host of another name is a namespace. The directory goes on for it without a server of its own host."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    elsewhere = ["unshare", *user, "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh"]
    paths = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
    tried = subprocess.run([*elsewhere, "true"], env=os.environ | paths, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"needs namespaces of users and host names: {tried.stderr.strip()}")
    servers = pool_servers(1)
    (directory,) = directories(servers)
    options = ["directory=registered", f"registration={servers.registration}", "listen=127.0.0.1", "http=off"]
    process = subprocess.Popen(
        [*elsewhere, program, *options, "log=warn"],
        env=os.environ | paths, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with ends(directory):
        try:
            assert json.loads(process.stdout.readline().removeprefix("ready "))["name"].startswith("elsewhere:")
            assert servers.stop_one(servers.servers[0]) == 0
            assert directories(servers) == [directory]
            opened = [os.readlink(link) for link in Path(f"/proc/{process.pid}/fd").iterdir()]
            assert str(servers.registration / "directory.users") not in opened
        finally:
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
            process.stdout.close()


def test_a_second_pool_does_not_start_where_one_runs(pool_servers):
    from penstock.workflow.launch import LaunchError

    servers = pool_servers(1)
    with pytest.raises(LaunchError, match="servers of a pool run here already"):
        pool_servers(1, registration=servers.registration)


# ---------------------------------------------------------------------------------------------------------------- HTTP


def fetch(server, path, *, method="GET", token=None):
    request = urllib.request.Request(f"http://{server.ready['http']}{path}", method=method)
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_http(pool_servers, open_pool):
    servers = pool_servers(1, disk=True)
    (server,) = servers.servers
    pool = open_pool(servers)
    pool.put("a", "b", bytes(5000), acknowledge="durable")
    pool.get("a", "b")
    code, text = fetch(server, "/status")
    status = json.loads(text)
    assert code == 200
    assert (status["objects"], status["bytes"], status["pool"]) == (1, 5000, "default")
    assert status["tiers"][0]["objects"] == 1
    code, text = fetch(server, "/metrics")
    figures = dict(re.findall(r"^(\w+)\{[^}]*\} (\S+)$", text, re.MULTILINE))
    assert figures["penstock_objects"] == "1" and figures["penstock_memory_limit_bytes"] == str(64 << 20)
    assert figures["penstock_puts_total"] == "1" and figures["penstock_view_settled"] in "01"
    assert int(figures["penstock_tier_written_bytes_total"]) >= 5000
    for name in figures:
        assert re.search(rf"^# TYPE {name} (gauge|counter)$", text, re.MULTILINE)
    code, text = fetch(server, "/")
    assert code == 200 and "pool default" in text
    assert fetch(server, "/nothing")[0] == 404


@pytest.mark.soak
def test_http_answers_after_minutes_without_a_request(pool_servers):
    (server,) = pool_servers(1).servers
    assert fetch(server, "/status")[0] == 200
    idle = threading.Event()
    idle.wait(8)  # longer than a connection may take for its request
    assert fetch(server, "/status")[0] == 200


def test_draining_over_http_needs_the_admin_token(pool_servers, open_pool):
    servers = pool_servers(2)
    first, server = servers.servers
    pool = open_pool(servers)
    pool.put_many(((f"row {n}", "x"), b"data") for n in range(100))
    assert fetch(server, "/drain", method="POST")[0] == 401
    assert fetch(server, "/drain", method="POST", token="0" * 64)[0] == 403
    assert fetch(server, "/drain", method="POST", token=pool.token("compute"))[0] == 403
    assert fetch(server, "/drain")[0] == 404
    token = pool.token("admin")
    assert json.loads(fetch(server, "/status")[1])["drain"]["state"] == "none"
    assert fetch(server, "/drain", method="POST", token=token)[0] == 202
    assert server.process.wait(DEADLINE_S) == 0
    assert all(found.bytes() == b"data" for found in pool.get_many([(f"row {n}", "x") for n in range(100)]))
    code, text = fetch(first, "/drain", method="POST", token=token)
    assert code == 409 and "the only active server" in text
    assert pool.get("row 1", "x").bytes() == b"data"


def test_idle_connections_take_neither_the_page_nor_the_server(pool_servers, open_pool):
    """More than the server may have descriptors, and replaced as soon as they are ended."""
    sys.path.append(str(Path(__file__).parents[1] / "fault"))
    from strangers import Flood, have_descriptors

    if not have_descriptors(3000):
        pytest.skip("needs a hard limit of 3000 open files (ulimit -Hn)")
    servers = pool_servers(1)
    (server,) = servers.servers
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    port = int(server.ready["http"].rpartition(":")[2])
    with Flood([("tcp", port)], 2000) as flood:
        assert flood.standing.wait(DEADLINE_S)
        for path in ("/status", "/metrics"):
            with urllib.request.urlopen(f"http://{server.ready['http']}{path}", timeout=10) as answer:
                assert answer.status == 200
        pool = open_pool(servers)
        pool.put("a", "b", bytes(5000))
        assert pool.get("a", "b").bytes() == bytes(5000)
        assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 512


def test_a_slow_request_is_ended(pool_servers):
    (server,) = pool_servers(1).servers
    host, _, port = server.ready["http"].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as slow:
        slow.sendall(b"GET /status HTTP/1.1\r\nHost: ")
        assert fetch(server, "/status")[0] == 200
        assert slow.recv(1) == b""
    with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as wrong:
        wrong.sendall(b"GET /status HTTP/1.1\r\nRange: bytes=99999999999999999999-\r\n\r\n")
        assert wrong.recv(8).startswith(b"HTTP/1.1")
    assert fetch(server, "/status")[0] == 200


def test_it_listens_on_loopback_unless_told_otherwise(pool_servers):
    assert pool_servers(1).servers[0].ready["http"].startswith("127.0.0.1:")
    assert pool_servers(1, http="off").servers[0].ready["http"] == ""
