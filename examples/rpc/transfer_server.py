"""transfer_server.py CONTACT-FILE [ADDRESS]

The transfer service of transfer_server.cpp in Python: C++ and Python clients cannot tell them apart. Offers it until
its standard input ends. Writes how to reach it to CONTACT-FILE, then says "ready".
"""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from penstock import rpc

HERE = Path(__file__).resolve().parent
SCHEMA = rpc.Schema(HERE / "transfer.fbs", include=(HERE.parents[1] / "src",))
RECORD = SCHEMA.dtype("Record")
SOME = 1024  # records at both ends whose checksum is told: it must not be what is measured


def records_of(seed: int, count: int) -> np.ndarray:
    values = ((seed * 31 + np.arange(count)) & 0xFFFFFF).astype(np.int32)
    records = np.empty(count, RECORD)
    records["int_value"], records["float_value"], records["double_value"] = values, values * 0.5, values * 0.25
    return records


def checksum(records: np.ndarray) -> int:
    def one(part: np.ndarray) -> int:
        doubled = (part["float_value"] * 2).astype(np.uint64).sum()
        return int(
            part["int_value"].astype(np.uint64).sum() + doubled + (part["double_value"] * 4).astype(np.uint64).sum()
        )

    return one(records[:SOME]) + one(records[-SOME:])


class Transfer:
    """Methods take the call and the request, and return the reply: they run on threads of the server's."""

    def write_encode(self, call: rpc.Call, request: rpc.Message) -> dict[str, Any]:
        return {"count": len(request.records), "checksum": checksum(request.records)}

    def write_bulk(self, call: rpc.Call, request: rpc.Message) -> dict[str, Any]:
        records = rpc.allocate(request.count, RECORD)
        call.channel.pull(request.memory, records, timeout=call.remaining)
        return {"count": len(records), "checksum": checksum(records)}

    def read_encode(self, call: rpc.Call, request: rpc.Message) -> dict[str, Any]:
        return {"records": records_of(request.seed, request.count)}

    def read_bulk(self, call: rpc.Call, request: rpc.Message) -> dict[str, Any]:
        records = records_of(request.seed, request.count)
        call.channel.push(request.memory, records, timeout=call.remaining)
        return {"count": len(records), "checksum": checksum(records)}


def main() -> None:
    contact, address = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1"
    with rpc.Server({SCHEMA.service("Transfer"): Transfer()}, listen=address, realm_and_role="transfer/user") as server:
        draft = contact.with_name(contact.name + ".new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"{server.endpoint}\n{server.token}\n")
        draft.replace(contact)
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
