"""Starting fault_peer programs and listening to what they say.

One event loop and no threads: the programs ask to be killed when the thread that started them ends.
"""

import asyncio
import contextlib
import os
import re
import signal
import time
from dataclasses import dataclass, field

STEPS = 6
# Seconds. Sanitizers stretch the deadlines.
deadlines = {"step": 0.5, "open": 1.0, "close": 4.0}
SLACK_S = 2.0  # late by no more than this on a loaded machine
HANG_S = 30.0  # no program may run longer


@dataclass(eq=False)
class Peer:
    """A running program: what it said so far, and whether it ended."""

    name: str
    process: asyncio.subprocess.Process
    changed: asyncio.Condition
    started: float = field(default_factory=time.monotonic)
    lines: list = field(default_factory=list)
    code: int | None = None

    def __post_init__(self):
        # Signals go through this: the process object's send_signal may reap the child before the event loop does.
        self.pidfd = None
        with contextlib.suppress(ProcessLookupError):  # it may have ended and been reaped already
            self.pidfd = os.pidfd_open(self.process.pid)

    @property
    def pid(self):
        return self.process.pid

    def said(self, prefix):
        return [line for line in self.lines if line.startswith(prefix)]

    @property
    def faulted(self):
        return "fault" in self.lines

    @property
    def over(self):
        return self.code is not None

    def go(self):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.process.stdin.write(b"go\n")

    def kill(self):
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    async def listen(self):
        while line := await self.process.stdout.readline():
            async with self.changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()
        self.code = await self.process.wait()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        async with self.changed:
            self.changed.notify_all()


class Stage:
    """The programs of one case, in a directory of their own; ends them all."""

    def __init__(self, program, directory, log):
        self.program, self.directory, self.log = program, directory, log
        self.changed = asyncio.Condition()
        self.peers, self.listeners = [], []
        self.hung = []

    async def start(self, name, role, pass_fds=(), **arguments):
        words = [f"{key}={value}" for key, value in arguments.items()]
        process = await asyncio.create_subprocess_exec(
            self.program,
            role,
            f"directory={self.directory}",
            f"steps={STEPS}",
            *words,
            pass_fds=pass_fds,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self.log,
        )
        peer = Peer(name, process, self.changed)
        self.peers.append(peer)
        self.listeners.append(asyncio.create_task(peer.listen()))
        return peer

    async def start_ranks(self, name, role, ranks, per_rank=None, **arguments):
        """A cohort of one or two programs; per_rank: further arguments of one rank."""
        per_rank = per_rank or {}
        if ranks == 1:
            return [await self.start(name, role, **arguments, **per_rank.get(0, {}))]
        ends = [os.pipe(), os.pipe()]
        peers = []
        for rank in range(2):
            read, write = ends[rank][0], ends[1 - rank][1]
            peers.append(
                await self.start(
                    f"{name} rank {rank}",
                    role,
                    pass_fds=(read, write),
                    rank=rank,
                    **{"from": read},
                    to=write,
                    **arguments,
                    **per_rank.get(rank, {}),
                )
            )
        for end in ends:
            os.close(end[0])
            os.close(end[1])
        return peers

    async def until(self, ready, seconds=HANG_S):
        """Waits until ready(); False when it takes too long (then whoever still runs is noted as hanging)."""
        try:
            async with asyncio.timeout(seconds):
                async with self.changed:
                    await self.changed.wait_for(ready)
            return True
        except TimeoutError:
            self.hung += [peer.name for peer in self.peers if not peer.over]
            return False

    async def end(self):
        for peer in self.peers:
            peer.kill()
        await asyncio.gather(*self.listeners)


def number_in(line, key):
    found = re.search(rf"\b{key}=(\d+)", line)
    return int(found.group(1)) if found else None


def stream_options(plane, **more):
    return {
        "data_plane": plane,
        "queue_steps": 2,
        "queue_bytes": "32MiB",
        "step_timeout_ms": int(deadlines["step"] * 1000),
        "open_timeout_ms": int(deadlines["open"] * 1000),
        "close_timeout_ms": int(deadlines["close"] * 1000),
        **more,
    }
