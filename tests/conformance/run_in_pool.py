"""Runs a program of scenarios with its streams in a pool: starts a server, makes `engine: pool` the default by
configuration, and passes on how the program ends.

  run_in_pool.py --server PENSTOCK_SERVER -- PROGRAM ARGUMENT...
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

READY_S = 30
PROGRAM_S = 100


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("program", nargs="+")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-pool-") as folder:
        configuration = Path(folder, "penstock.yaml")
        configuration.write_text('streams: {"*": {engine: pool}}\n')
        ready, told = os.pipe()
        options = [
            "pool=scenarios",
            f"registration={folder}",
            "listen=127.0.0.1",
            "memory=512MiB",
            "http=off",
            "log=warn",
        ]
        server = subprocess.Popen(
            [arguments.server, "--with-parent", "--ready-fd", str(told), *options], pass_fds=[told]
        )
        os.close(told)
        try:
            with os.fdopen(ready) as lines:
                line = lines.readline()
            if not line.startswith("ready "):
                sys.exit(f"the server did not start: {line!r}")
            directory = json.loads(line.removeprefix("ready "))["directory"]
            environment = os.environ | {
                "PENSTOCK_CONFIG": str(configuration),
                "PENSTOCK_SCENARIOS_IN_POOL": "1",
                "PENSTOCK_DIRECTORY_SERVICE": directory,
            }
            return subprocess.run(arguments.program, env=environment, timeout=PROGRAM_S, check=False).returncode
        finally:
            server.kill()
            server.wait(READY_S)


if __name__ == "__main__":
    sys.exit(main())
