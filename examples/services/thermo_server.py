"""thermo_server.py CONTACT-FILE: offers the service thermo.Thermo until its standard input ends."""

import os
import sys
from pathlib import Path

import numpy as np
import penstock
from penstock import rpc

SCHEMA = rpc.Schema(Path(__file__).with_name("thermo.fbs"))


class Summaries:
    """Methods take the call and the request and return the reply. They run on threads of the server."""

    def summarize(self, call: rpc.Call, request: rpc.Message) -> dict[str, float]:
        return summary_of(request.kelvin)

    def summarize_exposed(self, call: rpc.Call, request: rpc.Message) -> dict[str, float]:
        kelvin = rpc.allocate(int(request.kelvin["bytes"]) // 8, np.float64)
        call.channel.pull(request.kelvin, kelvin, timeout=call.remaining)
        return summary_of(kelvin)


def summary_of(kelvin: np.ndarray | None) -> dict[str, float]:
    if kelvin is None or len(kelvin) == 0:
        raise penstock.InvalidArgument("the field is empty")
    return {"mean": float(kelvin.mean()), "maximum": float(kelvin.max())}


def write_contact(file: Path, endpoint: str, token: str) -> None:
    """Where the server is and its secret, for clients that may read the file. Complete when it has its name."""
    os.umask(0o077)
    draft = file.with_name(file.name + ".new")
    draft.write_text(f"{endpoint}\n{token}\n")
    draft.replace(file)


def main() -> None:
    offers = {SCHEMA.service("Thermo"): Summaries()}
    with rpc.Server(offers, listen="127.0.0.1", realm_and_role="thermo/user") as server:
        write_contact(Path(sys.argv[1]), server.endpoint, server.token)
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
