"""Pools to be broken, and the report of what happened."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # pool_load
CALL_S = 20.0
READY_S = 60.0
LEASE_MS = "2000"


def build_folder():
    return Path(os.environ.get("PENSTOCK_BUILD", HERE.parents[1] / "build"))


class Pools:
    """The servers of the pool "stage". They use the directory that a server of another pool, "names", has started; with
    directory="embedded" the first of them starts it and there is no other pool."""

    def __init__(self, folder, context, **options):
        from penstock.workflow.servers import PoolServers
        from penstock.workflow.study import PoolPlan

        self.context, self.opened = context, []
        self.hurry = "drain_timeout_ms" in options  # all of them at once could hand on to nobody
        plan = {key: options.pop(key) for key in list(options) if key in PoolPlan.__dataclass_fields__}
        common = {"listen": "127.0.0.1", "log": "info", "lease_ms": LEASE_MS, "http": "off", "compute_workers": "1"}
        registration = folder / "registration"
        plan = {"name": "stage", "memory": "512MiB", "disk": folder / "disk", "directory": "registered"} | plan
        self.stage = PoolServers(
            PoolPlan(registration=registration, options=common | {k: str(v) for k, v in options.items()}, **plan),
            logs=folder / "log", folder=folder / "own",
        )  # fmt: skip
        self.groups = [self.stage]
        if self.stage.plan.directory != "embedded":
            plan = PoolPlan(
                name="names", memory="16MiB", disk=folder / "names", registration=registration, options=common
            )
            self.names = PoolServers(plan, logs=folder / "log names", folder=folder / "own")
            self.groups = [self.names, self.stage]

    def prepare(self):
        """For who starts the servers one by one."""
        from penstock.workflow.launch import find_program

        for group in self.groups:
            group.program = find_program("penstock-server", Path.cwd())
            group.logs.mkdir(parents=True, exist_ok=True)

    def start(self):
        for group in self.groups:
            group.start()
            group.wait_ready(READY_S)

    def open(self, timeout=CALL_S, directory="embedded", **options):
        import penstock

        pool = penstock.Pool("stage", context=self.context, directory=directory, timeout=timeout, **options)
        self.opened.append(pool)
        return pool

    def server(self, number):
        return next(s for s in self.stage.servers if s.number == number)

    def kill(self, number):
        server = self.server(number)
        assert self.stage.stop_one(server, number=signal.SIGKILL) == -signal.SIGKILL

    def directory_pid(self):
        return json.loads((self.stage.registration / "directory.json").read_text())["pid"]

    def kill_directory(self):
        os.kill(self.directory_pid(), signal.SIGKILL)

    def drain(self, number):
        with self.open() as admin:
            admin.administer(self.server(number).ready["id"], "drain")

    def drained(self, number):
        """The exit code of a server that was told to drain."""
        server = self.server(number)
        code = server.process.wait(READY_S)
        self.stage.stop_one(server)
        return code

    def members(self):
        return {s.ready["id"] for s in self.stage.servers if s.ready}

    def named(self, pool, members, settled=False):
        """The status when the client's view names these servers; a server is ready before each client hears of it."""
        deadline = time.monotonic() + READY_S
        while True:
            status = pool.status()
            if {server["id"] for server in status["servers"]} == set(members) and (status["settled"] or not settled):
                return status
            assert time.monotonic() < deadline, f"the view is not that of {members}, settled={settled}: {status}"
            threading.Event().wait(0.02)  # a status has no waiting form

    def settled(self, pool, members):
        """Waits until the view names these servers and has settled."""
        return self.named(pool, members, settled=True)

    def close(self):
        for pool in self.opened:
            pool.close()
        if self.hurry:
            for server in self.stage.servers:
                server.process.kill()
        for group in reversed(self.groups):
            group.stop()
        assert self.stage.wait_directory_gone(READY_S), "the directory's process survives its servers"


@pytest.fixture
def context(tmp_path):
    import penstock

    made = penstock.Context(directory=str(tmp_path / "registration"), listen="127.0.0.1")
    yield made
    made._shut_down()


@pytest.fixture
def pools(tmp_path, context, monkeypatch):
    """pools(servers=3, replication=2, key=value of penstock-server...) runs a pool that ends with the test."""
    if "PENSTOCK_BIN" not in os.environ:
        monkeypatch.setenv("PENSTOCK_BIN", str(build_folder() / "bin"))
    running = []

    def start(begin=True, **options):
        running.append(Pools(tmp_path, context, **options))
        if begin:
            running[-1].start()
        return running[-1]

    yield start
    for pool in running:
        pool.close()


@pytest.fixture(scope="session")
def _rows():
    rows = {}
    yield rows
    lines = ["# Pools under faults", "", "| scenario | seeds | ok | slowest |", "|---|---|---|---|"]
    for scenario, results in rows.items():
        good = sum(text.startswith("ok") for text, _ in results.values())
        slowest = max(seconds for _, seconds in results.values())
        lines.append(f"| {scenario} | {len(results)} | {good} | {slowest:.1f} s |")
    for scenario, results in rows.items():
        lines += ["", f"## {scenario}", "", "| seed | result | time |", "|---|---|---|"]
        lines += [f"| {seed} | {text} | {seconds:.1f} s |" for seed, (text, seconds) in sorted(results.items())]
    folder = build_folder()
    if folder.is_dir():
        (folder / "pool-fault-report.md").write_text("\n".join(lines) + "\n")


@pytest.fixture
def report(_rows):
    """report(scenario, seed, wrong, figures) writes a line of the report, and fails the test when anything is wrong."""
    begun = time.monotonic()

    def tell(scenario, seed, wrong, figures):
        text = f"{len(wrong)} wrong, e.g. {wrong[0]}" if wrong else "ok"
        shown = ", ".join(f"{key} {value}" for key, value in figures.items())
        print(f"{scenario}: seed {seed}: {text} ({shown})")
        line = f"{text} ({shown})".replace("|", "/").replace("\n", " ")
        _rows.setdefault(scenario, {})[seed] = line, time.monotonic() - begun
        assert not wrong, f"{scenario}, seed {seed}: " + "\n".join(wrong[:20])

    return tell
