"""Connections without a token to every listening socket of a pool's servers, renewed all the time: clients work."""

import http.client
import sys
import urllib.request
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "fault"))
from strangers import Flood, have_descriptors, listening

CALL_S = 6.0  # less than the ten seconds of a handshake
READY_S = 60.0


def page_status(url, tries=5):
    """A connection that is slow to ask may be the one that the flood displaces: then it asks again."""
    for left in reversed(range(tries)):
        try:
            with urllib.request.urlopen(url, timeout=CALL_S) as answer:
                return answer.status
        except (http.client.RemoteDisconnected, ConnectionResetError):
            if left == 0:
                raise


@pytest.mark.parametrize("count", [300, 2000])
def test_connections_without_a_token_keep_nobody_out(pools, context, count):
    if not have_descriptors(4 * count + 2000):
        pytest.skip(f"needs a hard limit of {4 * count + 2000} open files (ulimit -Hn)")
    pool = pools(servers=1, replication=1, http="127.0.0.1:0")
    (server,), (names,) = pool.stage.servers, pool.names.servers
    attacked = [server.process.pid]
    if count == 300:
        attacked += [names.process.pid, pool.directory_pid()]
    with Flood([address for pid in attacked for address in listening(pid)], count) as flood:
        assert flood.standing.wait(READY_S)
        for row, directory in (("unix", "embedded"), ("tcp", names.ready["directory"])):
            client = pool.open(timeout=CALL_S, directory=directory)
            client.put(row, "b", bytes(5000))
            assert client.get(row, "b").bytes() == bytes(5000)
            assert len(client.status()["servers"]) == 1
            client.close()
        assert page_status(f"http://{server.ready['http']}/status") == 200
