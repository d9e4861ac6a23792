#!/usr/bin/env python3
"""Runs a writer program under one mpiexec and a reader program under another, over one plane; fails when one fails.

run_mpi_scenarios.py --mpiexec mpiexec --writer mpi_scenarios --reader mpi_scenarios --plane shm
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 100


def start(mpiexec, ranks, command, directory):
    environment = {
        **os.environ,
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",  # more ranks than cores
        "OMPI_MCA_orte_tmpdir_base": directory,  # one launcher removes a shared one while another begins
    }
    return subprocess.Popen([mpiexec, "-n", str(ranks), *command], env=environment, start_new_session=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--writer", required=True)
    parser.add_argument("--reader", required=True)
    parser.add_argument("--plane", choices=["shm", "tcp", "ucx"], required=True)
    parser.add_argument("--ranks", type=int, nargs=2, default=[3, 2], help="of the writer and of the reader")
    arguments = parser.parse_args()
    deadline = time.monotonic() + DEADLINE_S
    with (
        tempfile.TemporaryDirectory(prefix="penstock-test-") as directory,
        tempfile.TemporaryDirectory(prefix="penstock-mpi-", ignore_cleanup_errors=True) as sessions,
    ):
        programs = [(arguments.writer, "write"), (arguments.reader, "read")]
        sides = [
            start(arguments.mpiexec, ranks, [program, role, arguments.plane, directory], f"{sessions}/{role}")
            for ranks, (program, role) in zip(arguments.ranks, programs, strict=True)
        ]
        try:
            codes = [side.wait(max(deadline - time.monotonic(), 0)) for side in sides]
        except subprocess.TimeoutExpired:
            sys.exit(f"not done within {DEADLINE_S} s")
        finally:
            for side in sides:
                if side.poll() is None:
                    os.killpg(side.pid, signal.SIGKILL)
                    side.wait()
        left = os.listdir(directory)
    if any(codes) or left:
        sys.exit(f"the writer ended with {codes[0]}, the reader with {codes[1]}; left behind: {left}")


if __name__ == "__main__":
    main()
