"""Running an analysis: frames in, pictures, tables and streams out.

One program for all engines: it reads channels as any reader does. The simulation's process runs it too (engine insitu).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ..cohort import as_cohort, rank_of
from ..context import Context, _default_context
from ..errors import InvalidArgument
from .agreement import together
from .channels import ChannelName, Channels
from .files import whole_file
from .frame import Clock, Frame
from .requests import Requests
from .tasks import Task, load

Value = TypeVar("Value")
REPORT = "report.json"
MAX_FILES = 10_000  # named in a report
MAX_REFUSED = 100


@dataclass
class Report:
    """What an analysis did. seconds: of rank 0, by what they were spent on (wait: for the simulation). skipped: cycles
    that the simulation did not publish, by reason, as it counted them. bytes: read by rank 0."""

    frames: int = 0
    files: list[str] = field(default_factory=list)  # the first MAX_FILES
    files_written: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # why the simulation did not take a value, or a request
    missed: dict[str, int] = field(default_factory=dict)  # frames without a channel, or what a scene or extract needs
    lacked: dict[str, str] = field(default_factory=dict)  # of scenes and extracts: the first of these frames, and why
    edits: int = 0  # of pipelines, that took effect
    bytes: int = 0
    error: str = ""  # why it ended before its time


@dataclass
class Progress:
    """What observers are told. waiting: seconds since a step was last there, 0 with a frame."""

    cycle: int = 0
    frames: int = 0
    waiting: float = 0.0
    files: Sequence[Path] = ()
    problem: str = ""  # that an edited pipeline is not in force, and why; or that another analysis decides
    lacked: Mapping[str, str] = field(default_factory=dict)  # Report.lacked, of rank 0


def text_of_lacked(name: str, why: str) -> str:
    """An entry of Report.lacked, for people."""
    return f"{name}: left out at {why}; further such steps are only counted"


def text_of_missed(name: str, count: int) -> str:
    """An entry of Report.missed, for people."""
    return f"{name}: {count} {'step' if count == 1 else 'steps'} did not hold what it needs"


def saying_what_is_left_out(say: Callable[[str], None]) -> Callable[[Progress], None]:
    """An observer that says, once of each scene or extract, that steps lack what it needs."""
    said: set[str] = set()

    def observe(progress: Progress) -> None:
        for name, why in progress.lacked.items():
            if name not in said:
                say(text_of_lacked(name, why))
        said.update(progress.lacked)

    return observe


class Analysis:
    """Pipelines and scripts run over channels. Collective: all ranks make it, and call run() once.

    programs: files, YAML pipelines or scripts (.py). channels: "[NAME=]STREAM[@latest]", the first one leads; a STREAM
    may be mesh:REGION, or an Exodus file. comm: an mpi4py communicator, a cohort, or None. partition: how meshes are
    parted over ranks: block, planar or morton (regions: by runs of elements).
    timeout: seconds for a channel to appear, and for each step; None: as configured to appear, and for ever as long as
    the writer lives. frames: end after so many. alone: called with what ends this rank and not the others, before it
    closes its channels, which waits for them.
    """

    def __init__(
        self,
        programs: Sequence[str | os.PathLike[str]],
        channels: Sequence[str],
        output: str | os.PathLike[str] = "output",
        comm: Any = None,
        *,
        context: Context | None = None,
        partition: str = "block",
        timeout: float | None = None,
        frames: int | None = None,
        observe: Callable[[Progress], None] | None = None,
        load: Callable[..., Task] = load,
        alone: Callable[[BaseException], None] | None = None,
    ):
        if not programs:
            raise InvalidArgument("an analysis needs a pipeline or a script")
        self._context = context or _default_context()
        self._output = Path(output)
        self._names = [ChannelName.parse(text) for text in channels]
        self._partition, self._timeout, self._frames = partition, timeout, frames
        self._observe = observe or (lambda progress: None)
        self._alone = alone
        self._cohort = as_cohort(comm)
        self._clock = Clock()
        self._requests: Requests | None = None
        self._opened: Channels | None = None
        self.report = Report()
        self._listed: set[str] = set()
        self._edited: dict[str, str] = {}  # texts by the number of the task, not yet in force
        self._tasks: list[Task] = []
        self._open_tasks: list[Task] = []
        together(self._cohort, lambda: self._load(load, programs))

    def _load(self, load: Callable[..., Task], programs: Sequence[str | os.PathLike[str]]) -> None:
        for each in programs:
            self._tasks.append(load(Path(each), self._output, self._cohort, self._context, self._clock))
        self._open_tasks = list(self._tasks)

    @property
    def _first(self) -> bool:
        return rank_of(self._cohort) == 0

    def run(self) -> Report:
        """Runs until the leading channel ends, and returns the report, which is also in report.json.

        Raises WriterLost when the simulation dies, TimeoutError, PipelineError and NotFound for what the simulation
        does not have (a pipeline that could use no step), OSError for files; what fails on one rank, on all. What was
        written until then stays.
        """
        begun = time.perf_counter()
        try:
            with self._clock("wait"):
                together(self._cohort, self._open_channels)
            together(self._cohort, self._begin_requests)
            while self._frames is None or self.report.frames < self._frames:
                if not self._next():
                    break
            together(self._cohort, self._check_missed)
            while self._open_tasks:  # one on all ranks before the next
                together(self._cohort, self._open_tasks.pop(0).close)
        except BaseException as error:
            self.report.error = f"{type(error).__name__}: {error}"
            if self._first:  # now, and again at the end: what follows may wait, or end the process
                self._write_report()
            if self._alone is not None and not getattr(error, "on_all_ranks", False):
                self._alone(error)
            raise
        finally:
            self._close()
            self.report.seconds = dict(self._clock.seconds) | {"total": time.perf_counter() - begun}
            if self._first:
                self._write_report()
        return self.report

    def _check_missed(self) -> None:
        for task in self._tasks:
            task.missed.check(str(task.path))

    def _open_channels(self) -> None:
        self._opened = Channels(self._context, self._names, self._cohort, self._timeout, self._partition)

    def _write_report(self) -> None:
        """Where that is not possible either, the error that ended the analysis is the one to raise."""
        try:
            with whole_file(self._output / REPORT) as path:
                path.write_text(json.dumps(vars(self.report), indent=1) + "\n", encoding="utf-8")
        except OSError:
            if not self.report.error:
                raise

    @property
    def _channels(self) -> Channels:
        """Once they are open."""
        assert self._opened is not None
        return self._opened

    def _begin_requests(self) -> None:
        if self._first and self._channels.lead.live:
            self._requests = Requests(self._context, self._channels.lead.name.stream)
            self._demand()

    def _next(self) -> bool:
        with self._clock("wait"):
            more, edited = self._channels.next_frame(self._look, self._waiting)
        together(self._cohort, lambda: self._analyse(more, edited))
        return more

    @property
    def _keeps(self) -> frozenset[Any]:
        return frozenset().union(*(task.keeps for task in self._tasks))

    def _analyse(self, more: bool, edited: dict[str, str]) -> None:
        before = self._keeps if edited else frozenset()
        for number, text in edited.items():
            self._tasks[int(number)].replace(text)
            self.report.edits += 1
        self._edited = {}
        if not more:
            return
        with self._clock("wait"):
            self._channels.follow()
        frame = Frame(self._channels, self._cohort, self._output, self._clock)
        self._note(frame.answer)
        files = [path for task in self._tasks for path in task.run(frame)]
        frame.close()
        if edited:  # and not taken back
            self._channels.forget(before - self._keeps)
        self._channels.release()
        self.report.frames += 1
        self.report.files_written += len(files)
        for path in map(str, files):
            if path not in self._listed and len(self._listed) < MAX_FILES:
                self._listed.add(path)
                self.report.files.append(path)
        for task in self._tasks:
            self.report.lacked |= self._by_file(task, task.missed.first)
        self._tell(frame)
        self._observe(Progress(frame.cycle, self.report.frames, 0.0, files, self._problem, self._lacked))

    def _note(self, answer: dict[str, Any]) -> None:
        """What the simulation has said of cycles and requests."""
        skipped, refused = answer.get("skipped"), answer.get("refused")
        if isinstance(skipped, dict):
            self.report.skipped = {str(reason): count for reason, count in skipped.items() if count}
        if isinstance(refused, dict):
            self.report.refused |= {str(name): str(why) for name, why in list(refused.items())[:MAX_REFUSED]}
        if "refused_request" in answer:
            self.report.refused["request"] = str(answer["refused_request"])

    def _tell(self, frame: Frame) -> None:
        if self._requests is not None:
            if frame.steering:
                self._requests.steer(frame.steering)
            self._requests.flush()

    def _by_file(self, task: Task, by_name: Mapping[str, Value]) -> dict[str, Value]:
        """Of several programs, the path of each stands before its scenes and extracts, whose names may repeat."""
        if len(self._tasks) == 1:
            return dict(by_name)
        return {str(task.path) if n == task.path.name else f"{task.path}: {n}": value for n, value in by_name.items()}

    # ---------------------------------------------------------------------------------------------------------- edits

    def _look(self) -> dict[str, str]:
        """Rank 0: the programs edited since the last frame. What they ask for now is asked for at once."""
        texts = {str(n): text for n, task in enumerate(self._tasks) if (text := task.look()) is not None}
        self._edited |= texts
        if texts and self._requests is not None:
            self._demand()
        return self._edited

    def _demand(self) -> None:
        rules = [rule for n, task in enumerate(self._tasks) for rule in task.demand(self._edited.get(str(n)))]
        if self._requests is not None:
            self._requests.demand(rules)

    @property
    def _problem(self) -> str:
        problems = [f"the edited pipeline is not in force: {task.problem}" for task in self._tasks if task.problem]
        if self._requests is not None and not self._requests.active:
            problems.append("another analysis of this channel decides what is published; this one sees only that")
        return "; ".join(problems)

    @property
    def _lacked(self) -> dict[str, str]:
        return dict(self.report.lacked) if self._first else {}

    def _waiting(self, seconds: float) -> None:
        if self._requests is not None:
            self._requests.flush()
        self._observe(Progress(self._channels.lead.cycle, self.report.frames, seconds, (), self._problem, self._lacked))

    # ------------------------------------------------------------------------------------------------------------ end

    def _close(self) -> None:
        if self._opened is not None:
            self.report.missed = {each.name.name: each.missed for each in self._channels.all[1:] if each.missed}
            self.report.bytes = sum(each.bytes for each in self._channels.all)
        for task in self._tasks:
            self.report.missed |= self._by_file(task, task.missed.counts)
        with contextlib.ExitStack() as all_are_closed:
            if self._opened is not None:
                all_are_closed.callback(self._channels.close)
            if self._requests is not None:
                all_are_closed.callback(self._requests.close)
            for task in self._open_tasks:  # after an error, which is the one to raise
                with contextlib.suppress(Exception, SystemExit):
                    task.close()
