"""What the studies of `penstock bench pool` run against: the servers of a pool, and Redis."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..workflow.launch import LaunchError
from ..workflow.servers import PoolServers
from ..workflow.study import PoolPlan
from .runner import RunFailed
from .studies import Run

START_S = 30.0
SAMPLE_S = 0.1
SEGMENT_BYTES = 64 << 20  # slab_segment_bytes (src/pool/object_memory.hpp): mapped beyond the limit at most
ROCKSDB_BYTES = 32 << 20  # TierOptions::rocksdb_cache_bytes (src/storage/tier.hpp)


@contextlib.contextmanager
def pool(run: Run, servers: int = 1, memory: str = "1GiB", disk: bool = False, **options: str) -> Iterator[PoolServers]:
    """Servers of a pool, ready; ended afterwards. options: more of penstock-server's."""
    folder = run.folder / "pool"
    plan = PoolPlan(
        name="bench",
        servers=servers,
        memory=memory,
        disk=run.disk / "tiers" if disk else None,
        options={"http": "off", "listen": "127.0.0.1"} | options,
    )
    try:
        with PoolServers(plan, logs=folder, folder=folder) as started:
            started.wait_ready(START_S)
            yield started
            ended = started.ended()
            if ended:
                raise RunFailed(f"server {ended[0].number} ended: {last_line(ended[0].log)}")
    except LaunchError as error:
        raise RunFailed(str(error)) from None
    finally:
        shutil.rmtree(run.disk / "tiers", ignore_errors=True)


def wait_idle(servers: PoolServers) -> None:
    """Until the servers have the memory that they make ahead: theirs has not grown for two samples."""
    pages, quiet = 0, 0
    end = time.monotonic() + START_S
    while quiet < 2 and time.monotonic() < end:
        time.sleep(SAMPLE_S)
        now = sum(int(Path(f"/proc/{s.process.pid}/statm").read_text().split()[1]) for s in servers.servers)
        quiet = quiet + 1 if now == pages else 0
        pages = now


def cpu_seconds(servers: PoolServers) -> float:
    """Of all servers together, user and system time."""
    ticks = 0
    for server in servers.servers:
        fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


class Memory:
    """The largest memory of a process while the block runs, sampled: its proportional share (PSS) and all that it maps
    (RSS), in MiB."""

    def __init__(self, pid: int):
        self.path = Path(f"/proc/{pid}/smaps_rollup")
        self.pss = self.rss = 0.0
        self.first_pss = self.sample()[0]
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self) -> Memory:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def sample(self) -> tuple[float, float]:
        with contextlib.suppress(OSError):
            fields = dict(line.split(":", 1) for line in self.path.read_text().splitlines()[1:] if ":" in line)
            pss, rss = (float(fields[name].split()[0]) / 1024 for name in ("Pss", "Rss"))
            self.pss, self.rss = max(self.pss, pss), max(self.rss, rss)
            return pss, rss
        return 0.0, 0.0

    def watch(self) -> None:
        while not self.done.wait(SAMPLE_S):
            self.sample()


def redis_program() -> str | None:
    return shutil.which("redis-server")


@contextlib.contextmanager
def redis(run: Run, fsync: str = "") -> Iterator[Path]:
    """A Redis server on a Unix socket, ready; ended afterwards. fsync: of its log, "always" (writes are synced before
    they are answered) or "everysec"; "": nothing is written."""
    folder = run.disk / "redis"
    folder.mkdir()
    path = run.folder / "redis.sock"
    settings = {
        "port": "0",
        "unixsocket": str(path),
        "save": "",
        "appendonly": "yes" if fsync else "no",
        "appendfsync": fsync or "no",
        "dir": str(folder),
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    with open(run.folder / "redis.log", "wb") as log:
        process = subprocess.Popen(
            [redis_program() or "redis-server", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_for_socket(path, process)
        yield path
    finally:
        process.terminate()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_socket(path: Path, process: subprocess.Popen[Any]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RunFailed(f"redis-server ended with {process.returncode}")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.connect(os.fspath(path))
            return
        time.sleep(0.02)
    raise RunFailed("redis-server did not begin to listen")


def disk_rates(folder: Path, total: int) -> tuple[float, float]:
    """What the disk does without a pool, GB/s: one file written block by block and synced, and read back from it."""
    path, block = folder / "plain", 4 << 20
    data = os.urandom(block)
    blocks = max(1, total // block)
    try:
        start = time.perf_counter()
        with open(path, "wb", buffering=0) as file:
            for _ in range(blocks):
                file.write(data)
            os.fsync(file.fileno())
            written = time.perf_counter() - start
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        with open(path, "rb", buffering=0) as file:
            while file.read(block):
                pass
        return blocks * block / written / 1e9, blocks * block / (time.perf_counter() - start) / 1e9
    finally:
        path.unlink(missing_ok=True)
