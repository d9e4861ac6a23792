"""Runs a program of scenarios with another engine, which configuration makes the default; starts a server for engines
`pool` and `space`, and passes on how the program ends.

  run_in_engine.py --engine ENGINE --server PENSTOCK_SERVER [--option KEY=VALUE] -- PROGRAM ARGUMENT...
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

READY_S = 30
PROGRAM_S = 100


@contextlib.contextmanager
def run_server(program, folder, more):
    """A server of a pool; yields the environment of programs that use it."""
    ready, told = os.pipe()
    options = ["pool=scenarios", f"registration={folder}", "listen=127.0.0.1", "memory=512MiB", "http=off", "log=warn"]
    options += more
    server = subprocess.Popen([program, "--with-parent", "--ready-fd", str(told), *options], pass_fds=[told])
    os.close(told)
    try:
        with os.fdopen(ready) as lines:
            line = lines.readline()
        if not line.startswith("ready "):
            sys.exit(f"the server did not start: {line!r}")
        directory = json.loads(line.removeprefix("ready "))["directory"]
        yield {"PENSTOCK_DIRECTORY_SERVICE": directory, "PENSTOCK_SCENARIOS_SERVER": str(server.pid)}
    finally:
        server.kill()
        server.wait(READY_S)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--option", action="append", default=[], help="of the server")
    parser.add_argument("program", nargs="+")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-engine-"))
        configuration = Path(folder, "penstock.yaml")
        configuration.write_text(f'streams: {{"*": {{engine: {arguments.engine}}}}}\n')
        environment = os.environ | {
            "PENSTOCK_CONFIG": str(configuration),
            "PENSTOCK_SCENARIOS_ENGINE": arguments.engine,
        }
        if arguments.engine in ("pool", "space"):
            environment |= stack.enter_context(run_server(arguments.server, folder, arguments.option))
        return subprocess.run(arguments.program, env=environment, cwd=folder, timeout=PROGRAM_S, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
