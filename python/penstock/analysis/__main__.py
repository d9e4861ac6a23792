"""python -m penstock.analysis: one rank of an analysis, as simulations and `penstock analyze --ranks` start it.

For people there is `penstock analyze`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path
from typing import Any


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m penstock.analysis", description="One rank of an analysis.")
    parser.add_argument("programs", nargs="+", help="pipelines (YAML) and scripts (.py)")
    parser.add_argument("--channel", action="append", required=True, metavar="[NAME=]STREAM[@latest]")
    parser.add_argument("--output", default="output", help="folder of the results")
    parser.add_argument("--rank", type=int, default=0, help="of this process in the analysis")
    parser.add_argument("--size", type=int, default=1, help="how many processes the analysis has")
    parser.add_argument("--cohort", default="", help="the same for all of them; default: CHANNEL.analysis")
    parser.add_argument("--partition", default="block")
    parser.add_argument("--timeout", type=float)
    parser.add_argument("--frames", type=int)
    return parser.parse_args(words)


def run(given: argparse.Namespace, observe: Any = None) -> Any:
    """Runs this rank; returns the Report. size 0: the ranks are those of MPI's COMM_WORLD, and given.rank is set to
    this one."""
    from ..cohort import StreamCohort
    from .channels import ChannelName
    from .run import Analysis

    def analysis(cohort: Any, alone: Any = None) -> Any:
        return Analysis(
            given.programs,
            given.channel,
            given.output,
            cohort,
            partition=given.partition,
            timeout=given.timeout,
            frames=given.frames,
            observe=observe,
            alone=alone,
        ).run()

    if given.size == 0:
        from mpi4py import MPI

        given.rank = MPI.COMM_WORLD.Get_rank()
        return analysis(MPI.COMM_WORLD, _abort)
    if given.size == 1:
        return analysis(None)
    name = given.cohort or f"{Path(ChannelName.parse(given.channel[0]).stream).name}.analysis"
    with StreamCohort(name, given.rank, given.size) as cohort:
        return analysis(cohort)


def _abort(error: BaseException) -> None:
    """Ends the job for what ends one rank alone: MPI's calls have no deadline, and the others would wait."""
    from mpi4py import MPI

    from ..errors import Error

    if MPI.COMM_WORLD.Get_size() == 1:
        return
    if isinstance(error, Error | OSError | ValueError):
        print(f"penstock analysis: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)


def main(words: list[str] | None = None) -> int:
    """The exit status: 0, or 1 with a message of what failed. Rank 0 says which steps are left out."""
    from ..errors import Error
    from .run import saying_what_is_left_out, text_of_missed

    def say(text: str) -> None:
        print(f"penstock analysis: {text}", file=sys.stderr, flush=True)

    try:
        given = arguments(sys.argv[1:] if words is None else words)
        report = run(given, saying_what_is_left_out(say))
        for name, count in report.missed.items() if given.rank == 0 else ():
            say(text_of_missed(name, count))
    except (Error, OSError, ValueError) as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
