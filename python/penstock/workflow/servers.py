"""Servers of a staging pool, started and ended as one: for `penstock pool serve`, for studies, and for tests.

    with PoolServers(PoolPlan(servers=2, memory="1GiB")) as servers:
        servers.wait_ready(30)
        print(servers.environment())     # what programs need to find the pool

The first server starts the directory, a process of its own that ends after the last server; the others find it
registered in a folder of the pool's own. Each server is the leader of a session of its own, so that Ctrl-C reaches only
who started it, and ends when that one dies. Linux only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from .launch import LaunchError, find_program
from .study import PoolPlan

READY_S = 60.0
STOP_S = 30.0
KILL_S = 5.0
STATUS_S = 5.0
DIRECTORY_S = 5.0
TAIL_LINES = 5
LOOK_EVERY_S = 0.02


def _locks(path: Path, *operations: int) -> bool:
    """Whether all these locks (flock) of a file can be had, one after the other; they are given back. True: no file."""
    try:
        with open(path, "rb") as file:
            for operation in operations:
                fcntl.flock(file, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except FileNotFoundError:
        pass
    return True


@dataclass
class Server:
    number: int
    process: subprocess.Popen[Any]
    log: Path
    pidfd: int
    ready_pipe: BinaryIO | None
    received: bytes = b""
    ready: dict[str, Any] | None = None  # pool, id, name, pid, directory, http

    @property
    def running(self) -> bool:
        return self.process.poll() is None


class PoolServers:
    """Starts nothing by itself: start, wait_ready, stop; or a with block, which does the first and the last."""

    def __init__(self, plan: PoolPlan, *, logs: Path | None = None, folder: Path | None = None):
        """logs: where server-N.log go; folder: for what need not outlive the servers. None: temporary."""
        self.plan = plan
        self.servers: list[Server] = []
        self._temporary = tempfile.mkdtemp(prefix="penstock-pool-") if logs is None or folder is None else None
        self._folder = Path(folder if folder is not None else self._temporary or ".")
        self.logs = Path(logs if logs is not None else self._folder)
        self.registration = plan.registration or self._folder / "registration"

    def __enter__(self) -> PoolServers:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---------------------------------------------------------------------------------------------------------- start

    def start(self) -> None:
        """Starts all of them. Throws LaunchError when the program is not there, or when other servers use a directory
        in the registration folder."""
        self.prepare()
        if self.plan.directory == "embedded" and not self.wait_directory_gone(DIRECTORY_S):
            raise LaunchError(
                f"servers of a pool run here already: a directory is registered in {self.registration}; "
                "another pool can share it (directory registered)"
            )
        for number in range(1, self.plan.servers + 1):
            self.start_one(number)

    def prepare(self) -> None:
        """For start_one; start does it by itself. Throws LaunchError when the program is not there."""
        self.program = find_program("penstock-server", Path.cwd())
        self.logs.mkdir(parents=True, exist_ok=True)

    def start_one(self, number: int, **options: str) -> Server:
        """Starts server `number`, also one that has ended (with its disk folder it is the same server again)."""
        settings = self._words(number, options)
        words = [self.program, "--with-parent", "--ready-fd"]
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        log = self.logs / f"server-{number}.log"
        # What the environment says of servers is not for these.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_SERVER_")}
        try:
            with open(log, "ab") as file:
                process = subprocess.Popen(
                    [*words, str(write_end), *settings],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    pass_fds=[write_end],
                    start_new_session=True,
                )
        except OSError as error:
            os.close(read_end)
            raise LaunchError(f"{self.program} cannot be started: {error.strerror}") from None
        finally:
            os.close(write_end)
        server = Server(number, process, log, os.pidfd_open(process.pid), os.fdopen(read_end, "rb", buffering=0))
        self.servers = [s for s in self.servers if s.number != number] + [server]
        self.servers.sort(key=lambda s: s.number)
        return server

    def configuration(self) -> str:
        """What is in effect for the first server, as YAML; starts nothing. Throws LaunchError."""
        program = find_program("penstock-server", Path.cwd())
        words = [program, "--print-config", *self._words(1, {})]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_SERVER_")}
        shown = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if shown.returncode != 0:
            raise LaunchError(shown.stderr.strip())
        return shown.stdout

    def _words(self, number: int, options: dict[str, str]) -> list[str]:
        return [f"{key}={value}" for key, value in (self._settings(number) | self.plan.options | options).items()]

    def _settings(self, number: int) -> dict[str, str]:
        plan = self.plan
        directory = "registered" if plan.directory == "embedded" and number > 1 else plan.directory
        settings = {
            "pool": plan.name,
            "directory": directory,
            "registration": str(self.registration.absolute()),
            "servers": str(plan.servers),
            "replication": str(plan.replication),
            "memory": plan.memory,
            "drain_timeout_ms": "0",  # all end together: there is nobody to hand on to
        }
        if plan.disk is not None:
            settings |= {"folder": str((plan.disk / f"server-{number}").absolute()), "tiers": f"{plan.tier}:objects"}
        return settings

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Returns when every server is ready. Throws LaunchError when one ends, or after the timeout."""
        deadline = time.monotonic() + timeout_s
        while waiting := [s for s in self.servers if s.ready is None]:
            left = deadline - time.monotonic()
            if left <= 0:
                names = ", ".join(str(s.number) for s in waiting)
                raise LaunchError(f"server {names} not ready within {timeout_s:g} s{self.tail(waiting[0])}")
            pipes = [s.ready_pipe for s in waiting if s.ready_pipe]
            descriptors: list[Any] = [*pipes, *(s.pidfd for s in waiting)]
            readable, _, _ = select.select(descriptors, [], [], min(left, 0.1))
            for server in waiting:
                if server.ready_pipe in readable or server.pidfd in readable:
                    self._read_ready(server)

    def _read_ready(self, server: Server) -> None:
        pipe = server.ready_pipe
        part = pipe.read(65536) if pipe and select.select([pipe], [], [], 0)[0] else b""
        server.received += part or b""
        if server.received.endswith(b"\n"):
            word, _, rest = server.received.decode().partition(" ")
            if word == "ready":
                server.ready = json.loads(rest)
                self._close_pipe(server)
                return
        if not server.running:
            code = server.process.returncode
            raise LaunchError(f"server {server.number} ended with exit code {code}{self.tail(server)}")

    def tail(self, server: Server) -> str:
        """The last lines of its log, each on a line of its own; empty without one."""
        try:
            lines = server.log.read_text(errors="replace").strip().splitlines()[-TAIL_LINES:]
        except OSError:
            return ""
        return "".join(f"\n  | {line}" for line in lines)

    @staticmethod
    def _close_pipe(server: Server) -> None:
        if server.ready_pipe:
            server.ready_pipe.close()
            server.ready_pipe = None

    # ------------------------------------------------------------------------------------------------------------ use

    @property
    def directory(self) -> str:
        """The directory's address. Secret: it holds a token."""
        return next((s.ready["directory"] for s in self.servers if s.ready), self.plan.directory)

    def environment(self) -> dict[str, str]:
        """What programs need to find the pool."""
        return {"PENSTOCK_DIRECTORY_SERVICE": self.directory}

    def status(self) -> list[dict[str, Any]]:
        """What each says of itself (GET /status), of those that answer."""
        found = []
        for server in self.servers:
            if server.ready and server.ready["http"]:
                with contextlib.suppress(OSError, ValueError):
                    with urllib.request.urlopen(f"http://{server.ready['http']}/status", timeout=STATUS_S) as answer:
                        found.append(json.load(answer))
        return found

    def ended(self) -> list[Server]:
        """Those that ended although nobody asked them to."""
        return [s for s in self.servers if not s.running]

    # ----------------------------------------------------------------------------------------------------------- stop

    def stop(self, timeout_s: float = STOP_S) -> bool:
        """Ends all, the first one last. False when one had to be killed, or failed."""
        deadline = time.monotonic() + timeout_s
        well = True
        for group in ([s for s in self.servers if s.number > 1], [s for s in self.servers if s.number == 1]):
            for server in group:
                if server.running:
                    server.process.send_signal(signal.SIGTERM)
            for server in group:
                well &= self._wait(server, deadline)
        self.servers = []
        self.wait_directory_gone(DIRECTORY_S)
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)
        return well

    def wait_directory_gone(self, timeout_s: float) -> bool:
        """Waits until no directory's process runs for the registration folder. False: other servers use it (at once),
        or it has not ended in time. The files are explained in programs/penstock-server/directory_process.hpp."""
        deadline = time.monotonic() + timeout_s
        while not _locks(self.registration / "directory.lock", fcntl.LOCK_EX):
            others = not _locks(self.registration / "directory.users", fcntl.LOCK_SH, fcntl.LOCK_EX)
            if others and _locks(self.registration / "directory.users", fcntl.LOCK_SH):
                return False
            if time.monotonic() >= deadline:
                return False
            time.sleep(LOOK_EVERY_S)
        return True

    def stop_one(self, server: Server, number: int = signal.SIGTERM) -> int:
        """Ends one and returns its exit code."""
        if server.running:
            server.process.send_signal(number)
        self._wait(server, time.monotonic() + STOP_S)
        self.servers = [s for s in self.servers if s is not server]
        return server.process.returncode

    def _wait(self, server: Server, deadline: float) -> bool:
        try:
            code = server.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            server.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(KILL_S)
            code = -signal.SIGKILL
        self._close_pipe(server)
        if server.pidfd >= 0:
            os.close(server.pidfd)
            server.pidfd = -1
        return code == 0
