"""The studies "workflow" and "consumer" of `penstock bench pool`: Gray-Scott with an analysis of every output, through
a pool, directly, through files, and inside the simulation's process; and how much memory the analysis takes."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from .programs import mpi
from .restart import ENVIRONMENT
from .runner import RunFailed, run_programs
from .stores import pool
from .studies import Claim, Column, Figures, Panel, Row, Run, Sheet

STUDIES = {
    "workflow": "Gray-Scott on 2 ranks and an analysis of every output on 2, from launch to the end of both; beside "
    "files, and beside the analysis inside the simulation",
    "consumer": "the most memory of an analysis on one rank; beside the same one on files",
}
RANKS = 2
SERVERS = (1, 2, 4)


class Plan:
    """How much is computed."""

    def __init__(self, quick: bool):
        self.side = 48 if quick else 128
        self.every = 5 if quick else 15
        self.outputs = 6 if quick else 40
        self.levels = {"workflow": 24, "consumer": 4}
        self.memory_side = 64 if quick else 192
        self.memory_outputs = 4 if quick else 10
        self.memory_every = 4  # so that the analysis keeps up
        self.crossings: dict[str, float] = {}  # what the analysis found, the same in all rows of a study

    def settings(self, run: Run, study: str) -> Path:
        side, outputs = (self.side, self.outputs) if study == "workflow" else (self.memory_side, self.memory_outputs)
        every = self.every if study == "workflow" else self.memory_every
        values = {"L": side, "F": 0.025, "k": 0.0595, "dt": 2.0, "noise": 0.01, "box": 12}
        values |= {"steps": every * outputs, "plot_every": every}
        path = run.folder / "settings.yaml"
        path.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
        return path

    def check(self, study: str, figures: Figures) -> None:
        if "crossings" in figures and self.crossings.setdefault(study, figures["crossings"]) != figures["crossings"]:
            raise RunFailed(f"the analysis found {figures['crossings']:.0f}, and {self.crossings[study]:.0f} elsewhere")


def commands_of(plan: Plan, study: str, run: Run, ranks: int, *more: object) -> Any:
    """command(program, role, options...) of a row."""
    settings = plan.settings(run, study)

    def command(program: str, role: str, *options: object) -> list[str]:
        words = ("--role", role, "--settings", settings, "--levels", plan.levels[study], *more, *options)
        return mpi(ranks, *run.program(program, *words))

    return command


def together(run: Run, environment: dict[str, str], *stages: list[list[str]]) -> Figures:
    """Programs of one stage run at once, stages one after the other. The clock runs from the first launch to the last
    end; times of a later stage are from its own launch."""
    figures: Figures = {}
    began = time.monotonic()
    for stage in stages:
        launch = ("--origin", str(time.monotonic()))
        lines = run_programs(
            [[*command, *launch] for command in stage], ENVIRONMENT | environment, run.folder, run.deadline_s
        )
        for line in lines:
            figures |= json.loads(line)
    return figures | {"whole_s": time.monotonic() - began}


def bound_by(figures: Figures) -> str:
    """Who is waited for: the simulation when the analysis waits for outputs; else the way out of the simulation, or the
    analysis, whichever takes longer."""
    if "analysis_steady_s" not in figures:
        return "simulation" if figures["computing_s"] >= figures["writing_s"] else "analysis"
    if figures["waiting_s"] > 0.1 * figures["analysis_steady_s"]:
        stalled = figures["stall_s"] > 0.1 * figures["simulation_steady_s"]
        return "pool" if stalled else "simulation"
    return "reading" if figures["taking_s"] > figures["analysing_s"] else "analysis"


def finish(plan: Plan, study: str, figures: Figures) -> Figures:
    plan.check(study, figures)
    figures["stall_percent"] = 100 * figures["stall_s"] / figures["simulation_steady_s"]
    return figures | {"bound_by": bound_by(figures)}


@contextlib.contextmanager
def started(run: Run, servers: int) -> Iterator[dict[str, str]]:
    """The environment of programs, with a pool of so many servers; 0: none."""
    if not servers:
        yield {"PENSTOCK_DIRECTORY": str(run.folder)}
        return
    with pool(run, servers, "4GiB") as one:
        yield one.environment()


def through_stream(plan: Plan, servers: int, run: Run) -> Figures:
    command = commands_of(plan, "workflow", run, RANKS)
    engine = ("--engine", "pool" if servers else "direct", "--queue", 4)
    with started(run, servers) as environment:
        stage = [command("workflow_stream", role, *engine) for role in ("simulation", "analysis")]
        return finish(plan, "workflow", together(run, environment, stage))


def through_files(plan: Plan, synced: bool, at_once: bool, run: Run) -> Figures:
    command = commands_of(plan, "workflow", run, RANKS, "--data", run.disk)
    simulation = command("workflow_files", "simulation", "--way", "files", "--fsync", int(synced))
    analysis = command("workflow_files", "analysis")
    stages = [[simulation, analysis]] if at_once else [[simulation], [analysis]]
    return finish(plan, "workflow", together(run, {}, *stages))


def alone(plan: Plan, way: str, run: Run) -> Figures:
    command = commands_of(plan, "workflow", run, RANKS)
    figures = together(run, {}, [command("workflow_files", "simulation", "--way", way)])
    return finish(plan, "workflow", figures) if way == "insitu" else figures


def consumer_of_stream(plan: Plan, stripe_bytes: int, run: Run) -> Figures:
    command = commands_of(plan, "consumer", run, 1, "--memory", 1)
    with started(run, 1) as environment:
        stripes = ("--stripe-bytes", stripe_bytes)
        stage = [command("workflow_stream", role, *stripes) for role in ("simulation", "analysis")]
        return finish(plan, "consumer", together(run, environment, stage))


def consumer_of_files(plan: Plan, run: Run) -> Figures:
    command = commands_of(plan, "consumer", run, 1, "--memory", 1, "--data", run.disk)
    stage = [command("workflow_files", role) for role in ("simulation", "analysis")]
    return finish(plan, "consumer", together(run, {}, stage))


def consumer_inside(plan: Plan, run: Run) -> Figures:
    """The process of both: what the simulation takes, with the analysis."""
    command = commands_of(plan, "consumer", run, 1, "--memory", 1)
    return finish(plan, "consumer", together(run, {}, [command("workflow_files", "simulation", "--way", "insitu")]))


def rows_of(programs: Path, quick: bool) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    left_out: list[str] = []
    if not shutil.which("mpiexec"):
        return [], ["workflow, consumer: there is no mpiexec"]
    plan = Plan(quick)
    if (programs / "workflow_stream").exists():
        for servers in SERVERS:
            words = f"in transit, {servers} server{'s' if servers > 1 else ''}"
            rows.append(Row("workflow", "penstock", f"pool_{servers}", words, partial(through_stream, plan, servers)))
        rows.append(Row("workflow", "penstock", "direct", "direct", partial(through_stream, plan, 0)))
        for name, stripe_bytes, words in (
            ("stripes", 4 << 20, "views, blocks cut into stripes of 4 MiB"),
            ("whole", 1 << 30, "views, blocks whole (stripe_bytes: 1GiB)"),
        ):
            rows.append(Row("consumer", "penstock", name, words, partial(consumer_of_stream, plan, stripe_bytes)))
    else:
        left_out.append("workflow, consumer: workflow_stream was not built (no MPI)")
    if (programs / "workflow_files").exists():
        for synced, words in ((False, "no fsync"), (True, "fsync")):
            name = "fsync" if synced else "plain"
            run = partial(through_files, plan, synced, False)
            rows.append(Row("workflow", "hdf5 files", name, f"{words}, analysed when all is there", run))
            run = partial(through_files, plan, synced, True)
            rows.append(Row("workflow", "hdf5 files", f"{name}_at_once", f"{words}, analysed file by file", run))
        rows.append(Row("workflow", "one process", "insitu", "in situ", partial(alone, plan, "insitu")))
        rows.append(Row("workflow", "one process", "nothing", "no output at all", partial(alone, plan, "nothing")))
        rows.append(Row("consumer", "hdf5 files", "files", "into its own arrays", partial(consumer_of_files, plan)))
        rows.append(Row("consumer", "one process", "insitu", "simulation and analysis", partial(consumer_inside, plan)))
    else:
        left_out.append("workflow, consumer: workflow_files was not built (no parallel HDF5)")
    return rows, left_out


def claims_of() -> list[Claim]:
    def less(text: str, ours: str, figure: str, *theirs: tuple[str, str], bound: float = 1.0, answers: str) -> Claim:
        keys = tuple(("workflow", *key) for key in theirs)
        return Claim(
            text,
            ("workflow", "penstock", ours),
            (figure,),
            bound,
            theirs=keys,
            sense="at_most",
            theirs_lower=True,
            answers=answers,
        )

    after, during = ("hdf5 files", "plain"), ("hdf5 files", "plain_at_once")
    synced, inside = ("hdf5 files", "fsync"), ("one process", "insitu")
    whole = (
        (
            "simulation and analysis in transit (1 server) end before the same through files (no fsync) that are "
            "analysed when all are there",
            after,
        ),
        ("the same, files with fsync", synced),
        ("no later than through files that are analysed one by one as they appear, no fsync", during),
        ("before the analysis inside the simulation", inside),
    )
    claims = [
        *(less(text, "pool_1", "whole_s", theirs, answers="end to end") for text, theirs in whole),
        less(
            "the simulation alone takes no longer than one that writes files without fsync",
            "pool_1",
            "simulation_s",
            after,
            answers="end to end",
        ),
        *(
            Claim(
                f"the simulation waits for a pool of {servers} for at most 1 % of its time",
                ("workflow", "penstock", f"pool_{servers}"),
                ("stall_percent",),
                1,
                sense="at_most",
                unit=" %",
                answers="plateau",
            )
            for servers in SERVERS
        ),
        less(
            "in the steady state the simulation is at most 1.1× one that has no output",
            "pool_1",
            "simulation_steady_s",
            ("one process", "nothing"),
            bound=1.1,
            answers="phases",
        ),
    ]
    for variant, words in (("whole", "whole blocks"), ("stripes", "blocks cut into stripes")):
        for figure, what in (("pss", "PSS"), ("rss", "RSS"), ("own", "its own only")):
            claims.append(
                Claim(
                    f"an analysis on views of {words} takes at most 1.2× the memory of the same one on files: {what}",
                    ("consumer", "penstock", variant),
                    (f"analysis_{figure}_mib",),
                    1.2,
                    theirs=(("consumer", "hdf5 files", "files"),),
                    sense="at_most",
                    theirs_lower=True,
                    answers="consumer memory",
                )
            )
    return claims


def sheets(quick: bool) -> list[Sheet]:
    plan = Plan(quick)
    megabytes = 2 * 8 * plan.side**3 / 1e6
    return [
        Sheet(
            "workflow",
            f"workflow: {plan.outputs} outputs of {megabytes:.0f} MB; {STUDIES['workflow']}; seconds",
            (
                Column("whole_s", "whole"),
                Column("simulation_s", "simu-\nlation"),
                Column("simulation_init_s", "of which\ninit"),
                Column("simulation_steady_s", "steady"),
                Column("simulation_drain_s", "drain"),
                Column("analysis_init_s", "analysis:\ninit"),
                Column("analysis_steady_s", "steady"),
                Column("analysis_drain_s", "drain"),
            ),
        ),
        Sheet(
            "workflow",
            "workflow: who waited, seconds in the steady state",
            (
                Column("computing_s", "simulation\ncomputes"),
                Column("writing_s", "writes (in situ:\nanalyses)"),
                Column("stall_s", "of which waits\nfor room"),
                Column("waiting_s", "analysis waits\nfor an output"),
                Column("taking_s", "takes\nit"),
                Column("analysing_s", "works\non it"),
                Column("bound_by", "bound by"),
            ),
        ),
        Sheet(
            "consumer",
            f"consumer: outputs of {2 * 8 * plan.memory_side**3 / 2**20:.0f} MiB; {STUDIES['consumer']}; MiB",
            (
                Column("analysis_pss_mib", "analysis:\nPSS"),
                Column("analysis_rss_mib", "RSS"),
                Column("analysis_own_mib", "its own\nonly"),
                Column("simulation_pss_mib", "simulation:\nPSS"),
                Column("simulation_rss_mib", "RSS"),
            ),
        ),
    ]


PANELS = (
    Panel("workflow", "simulation and analysis, from launch to the end of both, s", (("whole_s", 0),)),
    Panel("workflow", "the simulation, s", (("simulation_s", 0),)),
    Panel("consumer", "the analysis, PSS, MiB", (("analysis_pss_mib", 0),)),
)
