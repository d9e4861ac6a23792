"""Runs a set of processes to their end: all succeed, or all are ended.

Each child is the leader of a session of its own, so that everything it starts can be found and ended with it (an MPI
launcher puts its ranks into process groups of their own; the session still holds them). The wait is on pidfds: no
polling, no thread. What may happen, and what follows:

    a child fails       the others get `grace_s` to end by themselves, then SIGTERM, then after `term_s` SIGKILL
    deadline passes     SIGTERM at once, then SIGKILL
    Ctrl-C, SIGTERM,    the same; a second one: SIGKILL at once
    SIGHUP to us

Linux only. Used from the main thread (it takes the signals above while it runs, and gives them back).
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from .launch import Launch

GRACE_S = 10.0
TERM_S = 5.0
KILL_S = 5.0
TICK_S = 0.2
SAME_SIGNAL_S = 0.3  # a wrapper may pass on the Ctrl-C that the terminal has sent us already


class Verdict(Enum):
    succeeded = "succeeded"
    failed = "failed"
    timed_out = "timed out"
    interrupted = "interrupted"


@dataclass
class Child:
    launch: Launch
    started: float  # time.monotonic
    process: subprocess.Popen[Any] | None = None  # None: could not be started
    pidfd: int = -1
    ended: float | None = None
    exit_code: int | None = None  # negative: minus the signal that killed it
    start_error: str = ""
    stopped: bool = False  # we asked it to end before it ended

    @property
    def running(self) -> bool:
        return self.process is not None and self.ended is None

    @property
    def leader(self) -> subprocess.Popen[Any]:
        """The process of one that could be started."""
        assert self.process is not None
        return self.process

    @property
    def failed(self) -> bool:
        """By itself: not because we ended it."""
        return bool(self.start_error) or (self.exit_code not in (None, 0) and not self.stopped)

    def elapsed_s(self) -> float:
        end = self.ended if self.ended is not None else time.monotonic()
        return end - self.started

    def outcome(self) -> str:
        """ "running", "ok", "exit code 3", "killed by signal 11 (SIGSEGV)", "ended by the run", ..."""
        if self.start_error:
            return f"could not be started: {self.start_error}"
        if self.ended is None:
            return "running"
        if self.stopped:
            return "ended by the run"
        return "ok" if self.exit_code == 0 else describe_exit(self.exit_code or 0)


def describe_exit(code: int) -> str:
    number = -code if code < 0 else code - 128
    if code < 0 or 128 < code < 128 + 65:
        with contextlib.suppress(ValueError):
            verb = "killed by" if code < 0 else f"exit code {code},"
            return f"{verb} signal {number} ({signal.Signals(number).name})"
    return f"exit code {code}"


@dataclass
class Supervisor:
    deadline: float  # time.monotonic
    on_tick: Callable[[list[Child]], None] = lambda children: None
    grace_s: float = GRACE_S
    term_s: float = TERM_S
    children: list[Child] = field(default_factory=list)
    verdict: Verdict = Verdict.succeeded
    _waiting: list[Launch] = field(default_factory=list)
    _term_at: float = float("inf")
    _kill_at: float = float("inf")
    _give_up_at: float = float("inf")
    _terminated: bool = False
    _interrupted_at: float | None = None

    def run(self, launches: Iterable[Launch]) -> Verdict:
        """Starts them in order, each once those it names in after_end have ended well, and returns when all have ended.
        May be called again, for what comes after."""
        with selectors.DefaultSelector() as selector, signal_pipe() as signals:
            selector.register(signals, selectors.EVENT_READ, None)
            batch: list[Child] = []
            try:
                self._waiting = list(launches)
                self._start_ready(selector, batch)
                self._watch(selector, signals, batch)
            finally:  # also when on_tick raised: nothing we started outlives us
                for child in batch:
                    if child.running:
                        self._reap(child)
        return self.verdict

    # ----------------------------------------------------------------------------------------------------- inside

    def _start_ready(self, selector: selectors.BaseSelector, batch: list[Child]) -> None:
        while self.verdict is Verdict.succeeded:
            ended = {c.launch.name for c in self.children if c.ended is not None and not c.failed}
            launch = next((launch for launch in self._waiting if ended.issuperset(launch.after_end)), None)
            if launch is None:
                return
            self._waiting.remove(launch)
            child = self._start(launch)
            batch.append(child)
            self.children.append(child)
            if child.start_error:
                self._stop(Verdict.failed, time.monotonic())
                return
            selector.register(child.pidfd, selectors.EVENT_READ, child)

    def _start(self, launch: Launch) -> Child:
        child = Child(launch, started=time.monotonic())
        try:
            with open(launch.log, "wb") as log:
                child.process = subprocess.Popen(
                    launch.command,
                    env=launch.environment,
                    cwd=launch.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            child.pidfd = os.pidfd_open(child.process.pid)
        except OSError as error:
            if child.process:
                child.process.kill()
                child.process.wait()
            child.start_error = f"{error.strerror}: {error.filename or launch.command[0]}"
            child.ended = child.started
        return child

    def _watch(self, selector: selectors.BaseSelector, signals: int, batch: list[Child]) -> None:
        while any(child.running for child in batch):
            now = time.monotonic()
            next_event = min(now + TICK_S, self.deadline, self._term_at, self._kill_at, self._give_up_at)
            if self.verdict is not Verdict.succeeded:  # the deadline has done its work
                next_event = min(now + TICK_S, self._term_at, self._kill_at, self._give_up_at)
            for key, _ in selector.select(max(0.0, next_event - now)):
                if key.data is None:
                    os.read(signals, 64)
                    self._interrupted()
                else:
                    selector.unregister(key.fd)
                    self._reap(key.data)
            self._advance(time.monotonic(), batch)
            self._start_ready(selector, batch)
            if time.monotonic() >= self._give_up_at:
                break
            self.on_tick(self.children)

    def _reap(self, child: Child) -> None:
        """The leader has ended, or must: its session goes with it. Before wait, so that its number is not reused."""
        _kill_session(child)
        try:
            child.exit_code = child.leader.wait(timeout=KILL_S)
        except subprocess.TimeoutExpired:  # held by the kernel; nothing more can be done from here
            child.start_error = f"process {child.leader.pid} does not end, not even by SIGKILL"
        child.ended = time.monotonic()
        os.close(child.pidfd)

    def _advance(self, now: float, batch: list[Child]) -> None:
        if self.verdict is Verdict.succeeded:
            if any(child.failed for child in batch):
                self._stop(Verdict.failed, now + self.grace_s)
            elif now >= self.deadline and any(child.running for child in batch):
                self._stop(Verdict.timed_out, now)
        if now >= self._term_at:
            self._term_at = float("inf")
            self._terminated = True
            self._kill_at = min(self._kill_at, now + self.term_s)
            self._signal_all(batch, signal.SIGTERM)
        if now >= self._kill_at:
            self._kill_at = float("inf")
            self._give_up_at = now + KILL_S
            self._signal_all(batch, signal.SIGKILL)

    def _stop(self, verdict: Verdict, term_at: float) -> None:
        self.verdict = verdict
        self._term_at = term_at

    def _interrupted(self) -> None:
        now = time.monotonic()
        if self.verdict is Verdict.succeeded:
            self.verdict = Verdict.interrupted
        if self._interrupted_at is None:
            self._interrupted_at = now
            if not self._terminated:  # else SIGKILL follows soon anyway
                self._term_at = now
        elif now - self._interrupted_at > SAME_SIGNAL_S:
            self._kill_at = now

    def _signal_all(self, batch: list[Child], number: signal.Signals) -> None:
        for child in batch:
            if not child.running:
                continue
            child.stopped = True
            if number == signal.SIGKILL:
                _kill_session(child)
            else:  # an MPI launcher forwards it to its ranks
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.leader.pid, number)


def _kill_session(child: Child) -> None:
    for _ in range(3):  # one that was just forking is seen the next time
        members = _session_members(child.leader.pid)
        for pid in [*members, child.leader.pid]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not members:
            break


def _session_members(session: int) -> list[int]:
    """The living processes of a session, but not its leader."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == session:
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # pid (name) state ppid pgrp session ...; the name may hold anything, so count from its last ')'
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                members.append(int(entry.name))
    return members


@contextlib.contextmanager
def signal_pipe() -> Iterator[int]:
    """SIGINT, SIGTERM and SIGHUP (not under nohup) become bytes in a pipe. Gives the end to read; it does not block."""
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    under_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    caught = (signal.SIGINT, signal.SIGTERM, *(() if under_nohup else (signal.SIGHUP,)))

    def note(number: int, frame: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(write_end, b"!")

    previous = {number: signal.signal(number, note) for number in caught}
    try:
        yield read_end
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.close(read_end)
        os.close(write_end)
