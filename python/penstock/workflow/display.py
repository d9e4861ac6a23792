"""What a run shows while it goes: a bar for each stream on a terminal, now and then a plain line elsewhere."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..units import duration, rate_of_bytes
from .statistics import Endpoint, Flow, Flows, read_endpoints
from .study import Program, Study
from .supervisor import Child

PLAIN_EVERY_S = 2.0


class Display:
    """Follows the children and their statistics files; `tick` is called a few times a second and at the end."""

    def __init__(self, study: Study, console: Console, statistics: Path):
        self.study = study
        self.console = console
        self.statistics = statistics
        self.flows = Flows()
        self.started = time.monotonic()
        self._outcomes: dict[str, str] = {}
        self._next_plain = self.started + PLAIN_EVERY_S
        self._programs: dict[int, Program] = {}  # by the process of their rank 0
        self._last_steps: dict[str, int] = {}
        # No refresh thread: the supervisor's ticks draw.
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> Display:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def tick(self, children: list[Child]) -> None:
        now = time.monotonic()
        flows = self.flows.update(self._endpoints(), now)
        self._report_changes(children)
        if self._live:
            self._live.update(self._picture(children, flows, now), refresh=True)
        elif now >= self._next_plain:
            self._next_plain = now + PLAIN_EVERY_S
            self._plain(flows, now)

    def finish(self, children: list[Child]) -> None:
        self._next_plain = 0.0
        self.tick(children)

    # ----------------------------------------------------------------------------------------------------- inside

    def _endpoints(self) -> list[Endpoint]:
        found = []
        for program in self.study.programs:
            for endpoint in read_endpoints(self.statistics / program.name):
                self._programs[endpoint.pid] = program
                found.append(endpoint)
        return found

    def _report_changes(self, children: list[Child]) -> None:
        for child in children:
            name, outcome = child.launch.name, child.outcome()
            if self._outcomes.get(name) == outcome:
                continue
            if name not in self._outcomes and not child.start_error:
                ranks = f", {child.launch.ranks} ranks" if child.launch.ranks > 1 else ""
                self.console.print(f"{escape(name)}: started (pid {child.leader.pid}{ranks})")
            if outcome != "running":
                colour = "green" if outcome == "ok" else "yellow" if child.stopped else "red"
                after = "" if child.start_error else f" after {duration(child.elapsed_s())}"
                self.console.print(f"{escape(name)}: [{colour}]{escape(outcome)}[/]{after}")
            self._outcomes[name] = outcome

    def _plain(self, flows: list[Flow], now: float) -> None:
        for flow in flows:
            steps = self._steps(flow.leading) if flow.leading else 0
            if self._last_steps.get(flow.stream, 0) != steps:
                self._last_steps[flow.stream] = steps
                line = ", ".join([*self._figures(flow, now), f"{duration(now - self.started)} elapsed"])
                self.console.print(f"{escape(flow.stream)}: {line}", soft_wrap=True)

    def _steps(self, side: Endpoint) -> int:
        """Those that the study counts: the first step of a mesh region is its model, and no state."""
        return max(0, side.count("steps") - (side.stream in self.study.meshes))

    def _figures(self, flow: Flow, now: float) -> list[str]:
        side = flow.leading
        if side is None:
            return []
        steps = self._steps(side)
        figures = [f"step {steps}/{self.study.steps}" if self.study.steps else f"{steps} steps"]
        program = self._programs[side.pid]
        if self._outcomes.get(program.name) == "running":
            if rate := flow.rate.per_second(now):
                # Statistics are those of rank 0.
                where = " on rank 0" if program.ranks > 1 else ""
                figures += [f"{rate[0]:.1f} steps/s", f"{rate_of_bytes(rate[1])}{where}"]
            figures.append(f"queue {side.count('queue_depth')}")
        if side.count("steps_dropped"):
            figures.append(f"{side.count('steps_dropped')} dropped")
        return figures

    def _picture(self, children: list[Child], flows: list[Flow], now: float) -> Group:
        grid = Table.grid(padding=(0, 2))
        for flow in flows:
            side = flow.leading
            if side is None:
                continue
            total = self.study.steps
            width = max(8, min(30, self.console.width - 72))
            done = min(self._steps(side), total or 0)
            bar = ProgressBar(total=total, completed=done, width=width, pulse=not total)
            grid.add_row(Text(flow.stream, style="bold"), bar, *self._figures(flow, now))
        running = ", ".join(c.launch.name for c in children if c.running)
        foot = Text(f"{duration(now - self.started)}  running: {running or 'nothing'}", style="dim")
        return Group(grid, foot) if grid.row_count else Group(foot)
