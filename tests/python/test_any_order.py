"""Servers of a pool and the programs that use it start in any order: whoever is early waits for the others."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest

TIMEOUT_S = 30.0
STEPS = 3
ORDERS = list(itertools.permutations(["first", "second", "writer", "reader"]))


def write(context):
    with context.create("heat", timeout=TIMEOUT_S, engine="pool") as stream:
        for number in range(STEPS):
            with stream.step() as step:
                step["T"] = np.full(100, number)


def read(context):
    with context.open("heat", timeout=TIMEOUT_S, engine="pool") as stream:
        return [int(step["T"][...].sum()) for step in stream]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_servers_and_programs_start_in_any_order(pool_servers, tmp_path, monkeypatch, order):
    """The first server runs the directory; the second one and the programs find it registered in a folder."""
    registration = tmp_path / "registration"
    monkeypatch.delenv("PENSTOCK_DIRECTORY_SERVICE", raising=False)
    context = penstock.Context(directory=str(registration), listen="127.0.0.1")
    servers = pool_servers(2, start=False, http="off", registration=registration)
    with ThreadPoolExecutor(2) as programs:
        running = {}
        for what in order:
            if what in ("first", "second"):
                servers.start_one(1 if what == "first" else 2)
            else:
                running[what] = programs.submit({"writer": write, "reader": read}[what], context)
        servers.wait_ready(TIMEOUT_S)
        running["writer"].result(TIMEOUT_S)
        assert running["reader"].result(TIMEOUT_S) == [0, 100, 200]
    context._shut_down()
