"""gRPC from PyPI on the same calls, where the C++ program grpc_calls was not built: both sides are Python.

python -m penstock.bench.grpc_peer --study calls|bulk --way unix|tcp [--directory FOLDER] [--calls N] [--sizes A,B,...]
Prints the figures that grpc_calls prints, as a line of JSON. Messages are bytes (nothing to encode), not encrypted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from statistics import median, quantiles
from typing import Any

CALL_BYTES = 64
BULK_UNDER_WAY = 4
UNDER_WAY = (1, 16, 256)
PATIENCE_S = 300
OPTIONS = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))


def serve(address: str) -> None:
    import grpc

    kept: dict[int, bytes] = {}

    def give(request: bytes, context: Any) -> bytes:
        size = int.from_bytes(request, "little")
        return kept.setdefault(size, bytes(size))

    methods = {"Echo": lambda request, context: request, "Take": lambda request, context: b"", "Give": give}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server = grpc.server(ThreadPoolExecutor(4), options=OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Calls", handlers),))
    port = server.add_insecure_port(address)
    server.start()
    print(address if address.startswith("unix:") else f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(None)


def call_many(method: Any, request: bytes, count: int, under_way: int) -> float:
    """Seconds for `count` calls, `under_way` at once."""
    begin = time.perf_counter()
    running: deque[Any] = deque()
    for _ in range(count):
        if len(running) == under_way:
            running.popleft().result(PATIENCE_S)
        running.append(method.future(request))
    for one in running:
        one.result(PATIENCE_S)
    return time.perf_counter() - begin


def measure_calls(channel: Any, calls: int) -> dict[str, float]:
    echo, message = channel.unary_unary("/bench.Calls/Echo"), bytes(CALL_BYTES)
    call_many(echo, message, calls // 20 + 1, 1)
    times = []
    for _ in range(calls // 4 + 2):
        begin = time.perf_counter()
        echo(message)
        times.append(time.perf_counter() - begin)
    figures = {"latency_us": 1e6 * median(times), "latency_p99_us": 1e6 * quantiles(times, n=100)[98]}
    for under_way in UNDER_WAY:
        count = calls // 4 if under_way == 1 else calls
        figures[f"calls_per_s_{under_way}"] = count / call_many(echo, message, count, under_way)
    return figures


def measure_bulk(channel: Any, sizes: list[int], total: int) -> dict[str, float]:
    """Pull: the request is large; push: the reply is."""
    take, give = channel.unary_unary("/bench.Calls/Take"), channel.unary_unary("/bench.Calls/Give")
    figures = {}
    for size in sizes:
        times = min(max(total // size, 4), 4000)
        for name, method, request in (("pull", take, bytes(size)), ("push", give, size.to_bytes(8, "little"))):
            call_many(method, request, BULK_UNDER_WAY, BULK_UNDER_WAY)
            figures[f"{name}_{size}"] = size * times / 1e9 / call_many(method, request, times, BULK_UNDER_WAY)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    parser.add_argument("--study", default="calls", choices=("calls", "bulk"))
    parser.add_argument("--way", default="unix", choices=("unix", "tcp"))
    parser.add_argument("--directory", default=".")
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--total", type=int, default=512 << 20)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    import grpc

    address = f"unix:{options.directory}/grpc" if options.way == "unix" else "127.0.0.1:0"
    command = [sys.executable, "-m", "penstock.bench.grpc_peer", "--serve", address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        with grpc.insecure_channel(server.stdout.readline().strip(), options=OPTIONS) as channel:
            grpc.channel_ready_future(channel).result(PATIENCE_S)
            sizes = [int(size) for size in options.sizes.split(",") if size]
            if options.study == "bulk":
                figures = measure_bulk(channel, sizes, options.total)
            else:
                figures = measure_calls(channel, options.calls)
        server.kill()  # what gRPC does to shut down is not measured
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
