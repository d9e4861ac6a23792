"""The network between a client's host and the servers' host cut and healed under load. Hosts are namespaces."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HOSTS = HERE.parent / "multiprocess" / "hosts.py"
DEADLINE_S = 60
CALL_S = 3.0
USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


class Program:
    """A started program whose lines are waited for with a deadline; it is killed when it lets one pass."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip

    def line(self, word):
        guard = threading.Timer(DEADLINE_S, self.process.kill)
        guard.start()
        try:
            for line in self.process.stdout:
                if line.startswith(word):
                    return line.removeprefix(word).strip()
        finally:
            guard.cancel()
        raise AssertionError(f"{self.process.args} did not say {word} within {DEADLINE_S} s")

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, ask):
        if ask:
            self.process.terminate()
        self.process.stdin.close()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def environment():
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    return {**kept, "PATH": kept["PATH"] + ":/usr/sbin:/sbin", "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def start(environment):
    """start(command): runs it to the end of the test; ask: it ends by SIGTERM, else when its input ends."""
    running = []

    def begin(command, ask=False):
        running.append((Program(command, environment), ask))
        return running[-1][0]

    yield begin
    for program, ask in reversed(running):
        program.end(ask)


@pytest.fixture
def hosts(start, environment):
    """What to put before a command on host A, on host B, and before one in host B's network."""
    for tool in ("unshare", "nsenter", "ip", "mount", "hostname"):
        if shutil.which(tool, path=environment["PATH"]) is None:
            pytest.skip(f"needs {tool}")
    script = "ip link add cable1 type veth peer name cable2 && mount -t tmpfs tmpfs /mnt"
    words = ["unshare", *USER, "--net", "--mount", "--uts", "--ipc", "sh", "-c", script]
    tried = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=DEADLINE_S)
    if tried.returncode:
        pytest.skip(f"needs namespaces of users, networks and mounts: {tried.stderr.strip()}")
    import penstock

    came_from = [os.environ.get(name, "") for name in ("PYTHONPATH", "PENSTOCK_BUILD", "PENSTOCK_BIN")]
    keep = {HERE.parents[1], Path(penstock.__file__).parents[1], sys.prefix, sys.base_prefix}
    keep = {str(Path(p).resolve()) for p in [*keep, *(p for paths in came_from for p in paths.split(":") if p)]}
    keep |= {str(Path(p).parent) for p in keep if p.endswith("/bin")}
    keep = sorted(p for p in keep if p != "/usr" and not any(p.startswith(q + "/") for q in keep))
    manager = start(["unshare", *USER, "--net", "--mount", sys.executable, HOSTS, *keep])
    pids = manager.line("ready").split()
    enter = ["nsenter", *(["--user", "--preserve-credentials"] if USER else []), "--net", "--mount", "--uts", "--ipc"]
    return [[*enter, "--target", pid] for pid in pids]


def test_the_network_is_cut_and_healed(start, hosts, environment, report):
    here, there = hosts
    build = Path(os.environ.get("PENSTOCK_BUILD", HERE.parents[1] / "build"))
    server = (Path(os.environ.get("PENSTOCK_BIN", build / "bin")) / "penstock-server").resolve()
    script = 'exec "$@" 3>&1 1>&2'  # the address that standard output gets has no token
    common = ["pool=stage", "servers=2", "replication=2", "http=off", "log=warn", "registration=/tmp/penstock"]
    common += ["memory=256MiB", "drain_timeout_ms=0"]
    begin = [*here, "sh", "-c", script, "sh", server, "--with-parent", "--ready-fd", "3", *common]
    first = start([*begin, "directory=embedded"], ask=True)
    second = start([*begin, "directory=registered"], ask=True)
    directory = json.loads(first.line("ready"))["directory"]
    second.line("ready")
    set_up = ["env", f"PENSTOCK_DIRECTORY_SERVICE={directory}", sys.executable, HERE / "pool_load.py", "1", str(CALL_S)]
    client = start([*there, *set_up])

    def cable(state):
        command = [*there, "ip", "link", "set", "cable", state]
        subprocess.run(command, check=True, env=environment, timeout=DEADLINE_S)

    for _ in range(2):
        client.tell("until 50")
        client.line("at")
        cable("down")
        client.tell("failures 3")
        client.line("at")
        cable("up")
        client.tell("until 50")
        client.line("at")
    client.tell("end")
    done = json.loads(client.line("done"))
    report("the network is cut and healed, twice", 1, done["wrong"], done["summary"] | {"e.g.": done["failed"][:1]})
