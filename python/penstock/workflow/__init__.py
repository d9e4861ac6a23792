"""Workflows: several programs, joined by streams, started and ended as one run.

A study file (YAML) names the programs; `run_study` starts each in a session of its own, watches them under one
deadline, ends them all, and leaves logs and a `summary.json` in the output folder:

    study = load_study("gray-scott.yaml")
    result = run_study(study)
    print(result.status, result.summary["programs"]["simulation"]["steps"])

The runner never attaches to a stream: progress comes from the statistics files that the library writes where the
environment variable PENSTOCK_STATISTICS points, so watching a run does not change it.
"""

from .launch import LaunchError
from .run import RunResult, Status, run_study
from .study import PoolPlan, Program, Study, StudyError, load_study

__all__ = [
    "LaunchError",
    "PoolPlan",
    "Program",
    "RunResult",
    "Status",
    "Study",
    "StudyError",
    "load_study",
    "run_study",
]
