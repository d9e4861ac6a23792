"""transfer_client.py CONTACT-FILE [RECORDS [REPEATS [automatic|unix|tcp]]]

Moves an array of records to the transfer service (in C++ or Python) and back in its four ways, checks it, and prints
the bandwidth of each. "unix": over the Unix socket, with memory that is not shared.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from penstock import rpc
from transfer_server import RECORD, SCHEMA, checksum, records_of


def measure(name: str, size: int, repeats: int, once: Callable[[], None]) -> None:
    best = min(timed(once) for _ in range(repeats))
    print(f"{name:14}{best * 1e6:12.1f} us{size / best / 1e6:12.1f} MB/s", flush=True)


def timed(once: Callable[[], None]) -> float:
    begin = time.perf_counter()
    once()
    return time.perf_counter() - begin


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"transfer_client: {what} did not carry the records over")


def main() -> None:
    endpoint, token = Path(sys.argv[1]).read_text().split()
    count, repeats = int((sys.argv[2:] or ["65536"])[0]), int((sys.argv[3:] or ["5"])[0])
    way = (sys.argv[4:] or ["automatic"])[0]
    over = "tcp" if way == "tcp" else "automatic"
    with rpc.connect(endpoint, token, "transfer/user", over=over) as channel:
        client = channel.client(SCHEMA.service("Transfer"))
        print(
            f"{count} records of {RECORD.itemsize} bytes over {'unix' if way == 'unix' else channel.plane}", flush=True
        )
        records = np.empty(count, RECORD) if way == "unix" else rpc.allocate(count, RECORD)
        records[:] = sent = records_of(1, count)
        wanted = records_of(2, count)
        size = records.nbytes

        def right(result: rpc.Message, what: str, expected: np.ndarray) -> None:
            expect(result.count == count and result.checksum == checksum(expected), what)

        def write_encode() -> None:
            right(client.write_encode(records=records, timeout=60), "write-encode", sent)

        def write_bulk() -> None:
            with channel.expose(records) as memory:
                right(client.write_bulk(memory=memory, count=count, timeout=60), "write-bulk", sent)

        def read_encode() -> None:
            expect(np.array_equal(client.read_encode(count=count, seed=2, timeout=60).records, wanted), "read-encode")

        def read_bulk() -> None:
            with channel.expose(records, writable=True) as memory:
                right(client.read_bulk(memory=memory, count=count, seed=2, timeout=60), "read-bulk", wanted)
            expect(np.array_equal(records, wanted), "read-bulk")

        for once in (write_encode, write_bulk, read_encode, read_bulk):
            measure(once.__name__.replace("_", "-"), size, repeats, once)


if __name__ == "__main__":
    main()
