"""Mesh regions in a pool whose writer is killed at its sends, or whose servers are killed.

A state is safe once the pool has acknowledged it, which its writer knows no later than when it begins the state that
needs the same slot of the queue. States that were ended and not acknowledged may be lost with their writer.
"""

import importlib.util
import os
import random
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mesh_peer
import penstock
import pytest
from penstock import mesh

PEER = Path(mesh_peer.__file__)
BUILD = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build")) / "tests/unsynced"
STATES = 5
POINTS = 14  # of all sends of a run
DEADLINE_S = 20.0
HAS_VTK = importlib.util.find_spec("vtkmodules") is not None


def environment(name, options):
    return {**os.environ, f"PENSTOCK_STREAM_{name.upper()}": "pool," + options}


def seen_by_a_reader(context, name):
    """How many states there are, and how the region ends; fails where a value is wrong."""
    count = 0
    try:
        with mesh.open(name, context=context, timeout=DEADLINE_S) as region:
            mesh_peer.check(region, mesh_peer.of_model())
            for state in region:
                assert state.time == 0.25 * count
                mesh_peer.check(state, mesh_peer.of_state(count))
                assert not HAS_VTK or region.to_vtk(["stress"]).GetNumberOfCells() == mesh_peer.SIDE**3
                count += 1
    except penstock.WriterLost:
        return count, "lost"
    return count, "end"


@pytest.mark.parametrize("plane, queue_steps", [("tcp", 1), ("shm", 2)])
def test_a_writer_killed_at_its_sends(pool_servers, open_pool, tmp_path, monkeypatch, plane, queue_steps):
    preload = next(BUILD.glob("*kill_preload*.so"), None)
    if preload is None:
        pytest.skip("kill_preload is not built (it is left out of builds with sanitizers)")
    servers = pool_servers(1, memory="256MiB", http="off")
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)

    def run(name, send):
        more = {"LD_PRELOAD": str(preload), "PENSTOCK_KILL_SEND": str(send)}
        its = environment(name, f"data_plane={plane},queue_steps={queue_steps}")
        words = [sys.executable, PEER, name, str(STATES)]
        return subprocess.run(words, env=its | more, capture_output=True, text=True, timeout=60)

    whole = run("whole", 0)
    sends = int(re.search(r"(\d+) sends", whole.stderr)[1])
    seed = random.randrange(1 << 32)
    points = [1, *sorted(random.Random(seed).sample(range(2, sends), min(POINTS, sends) - 2)), sends]
    print(f"seed {seed}: killed at the sends {points} of about {sends}")
    children = {f"r{point}": run(f"r{point}", point) for point in points} | {"whole": whole}

    there = {stream["stream"] for stream in open_pool(servers).streams()}
    streams = tmp_path / "streams.yaml"
    streams.write_text('streams: {"*": {engine: pool}}\n')
    context = penstock.Context(config_file=str(streams), directory=servers.directory)
    names = [name for name in children if name in there]
    with ThreadPoolExecutor(len(names)) as readers:  # a pool waits for a lost writer's return: for all of them at once
        found = dict(zip(names, readers.map(lambda name: seen_by_a_reader(context, name), names), strict=True))
    killed = 0
    for name, child in children.items():
        said = child.stdout
        begun, ended = said.count("begun"), said.count("ended")
        seen, last = found.get(name, (0, "lost"))
        what = f"{name}: begun {begun}, ended {ended}, seen {seen}, {last}; {child.stderr[-500:]}"
        print(what)
        if child.returncode == 0:
            assert (seen, last) == (STATES, "end"), what
            continue
        killed += 1
        assert child.returncode == -signal.SIGKILL, what
        # The model is a step, too: begun + 1 steps were begun, and the pool has all but those that the queue holds.
        assert begun - queue_steps <= seen <= min(STATES, ended + 1), what
        assert last == "lost" or seen == STATES, what
    assert killed > POINTS // 2


def test_a_server_killed_with_two_replicas(pool_servers, monkeypatch, context):
    """While the region is written: the writer goes on; and both states before and after are read from what is left."""
    servers = pool_servers(2, memory="256MiB", replication=2, http="off", lease_ms=2000)
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    monkeypatch.setenv("PENSTOCK_STREAM_BLAST", "pool,acknowledge=replicated,queue_steps=2")
    out = mesh.create("blast", mesh_peer.model(), context=context)
    for key, values in mesh_peer.of_model().items():
        out[key] = values
    for number in range(2 * STATES):
        if number == STATES:
            servers.stop_one(servers.servers[1], number=signal.SIGKILL)
        with out.state(time=0.25 * number) as state:
            for key, values in mesh_peer.of_state(number).items():
                state[key] = values
    out.close()
    assert seen_by_a_reader(penstock.Context(directory=servers.directory), "blast") == (2 * STATES, "end")
