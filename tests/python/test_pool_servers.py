"""Servers of pools: what they say, who may do what, and what holds when they are full, killed, drained or added."""

import os
import random
import signal
import threading
import time
from pathlib import Path

import penstock
import pytest

TIMEOUT_S = 20.0

# -------------------------------------------------------------------------------------------------- status, operators


def test_status(pool):
    pool.put("status", "x", bytes(1000))
    status = pool.status()
    assert status["name"] == "default" and status["replication"] == 2
    assert [server["state"] for server in status["servers"]] == ["active", "active"]
    assert sum(server["puts"] for server in status["servers"]) >= 1
    assert all(server["memory_limit"] == 64 << 20 for server in status["servers"])


def test_what_a_directory_knows(two, context):
    (known,) = penstock.known_pools(two.directory, context=context)
    assert known["name"] == "default" and len(known["servers"]) == 2
    with pytest.raises(penstock.NotFound, match="it knows default"):
        penstock.Pool("other", context=context, directory=two.directory, timeout=TIMEOUT_S)
    with pytest.raises(penstock.PeerLost, match="no directory is registered"):
        penstock.known_pools(context=context, timeout=0.3)  # nothing is registered in this context's folder


def test_administer(pool, two):
    name = two.servers[0].ready["name"]
    assert "pool: default" in pool.administer(name, "config")["config"]
    with pytest.raises(penstock.NotFound, match=name.partition(":")[0]):
        pool.administer("nobody", "config")
    with pytest.raises(penstock.UnknownOption, match="did you mean 'drain'"):
        pool.administer(name, "drian")


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", "3", "{", "[" * 100_000])
def test_what_a_server_says_that_is_no_object(text):
    with pytest.raises(penstock.ProtocolError):
        penstock.pool._said(text)
    assert penstock.pool._said('{"state": "open"}') == {"state": "open"}


def test_status_says_how_large_journals_are(two, open_pool, tmp_path):
    servers = open_pool(two, "default").status()["servers"]
    assert [s["journal_bytes"] for s in servers] == [0, 0]  # no disks


CALLS = {
    "get": ("read", lambda p: p.get("role", "x")),
    "need": ("read", lambda p: p.need("role", "x")),
    "info": ("read", lambda p: p.info("role", "x")),
    "list": ("read", lambda p: list(p.list("role"))),
    "wait_row": ("read", lambda p: p.wait_row("role", 1)),
    "status": ("read", lambda p: p.status()["servers"][0]["puts"] + 0),
    "put": ("write", lambda p: p.put("role", "x", b"", if_exists="overwrite")),
    "drop": ("write", lambda p: p.drop("role", "absent")),
    "drop matching": ("write", lambda p: p.drop_matching("role", "absent*")),
    "compute": ("compute", lambda p: p.compute("first", [("role", "x")])),
    "administer": ("admin", lambda p: p.administer(p.status()["servers"][0]["name"], "config")),
}


def test_roles_and_tokens(two, open_pool, pool):
    """Each role with its own token may do what it should and nothing above it; the table is written for people."""
    ns = pool._options["ns"]
    pool.put("role", "x", b"")
    roles = ["read", "write", "compute", "admin"]
    directory = pool.directory_for_roles()
    lines = ["| call | " + " | ".join(roles) + " |", "|---" * (len(roles) + 1) + "|"]
    for name, (least, call) in CALLS.items():
        cells = []
        for role in roles:
            client = open_pool(two, "default", ns=ns, role=role, token=pool.token(role), directory=directory)
            try:
                call(client)
                allowed = True
            except penstock.Forbidden:
                allowed = False
            assert allowed == (roles.index(role) >= roles.index(least)), (name, role)
            cells.append("yes" if allowed else "forbidden")
            client.close()
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    # A token opens no other role's door, nor does a wrong one any.
    for role, token in (("admin", pool.token("read")), ("write", pool.token("read")), ("read", "0" * 64)):
        with pytest.raises((penstock.AuthenticationError, penstock.Forbidden, penstock.TimeoutError)):
            open_pool(two, "default", ns=ns, role=role, token=token, timeout=3).get("role", "x")
        lines.append(f"| any, as {role} with another token | " + " | ".join(["refused"] * len(roles)) + " |")
    with pytest.raises(penstock.Forbidden):
        open_pool(two, "default", ns=ns, role="read", token=pool.token("read")).token("admin")
    # Where they find the servers they find no secret, from which every token is made.
    assert two.directory.partition("token=")[2] not in directory
    with pytest.raises(penstock.Forbidden, match="a role and its token"):
        open_pool(two, "default", ns=ns, directory=directory, timeout=0.5)
    lines.append("| the pool's secret, from the directory for roles | " + " | ".join(["refused"] * len(roles)) + " |")
    with pytest.raises(penstock.InvalidArgument, match="role server"):
        pool.token("server")
    build = os.environ.get("PENSTOCK_BUILD", str(Path(__file__).parents[2] / "build"))
    if os.path.isdir(build):
        Path(build, "roles-table.md").write_text("\n".join(lines) + "\n")


# ---------------------------------------------------------------------------------------------------------- servers go


def test_disk_lets_more_in_than_memory_holds(pool_servers, open_pool):
    servers = pool_servers(1, memory="8MiB", disk=True)
    pool = open_pool(servers)
    contents = {str(i): random.Random(i).randbytes(1 << 20) for i in range(32)}
    for key, data in contents.items():
        pool.put("spill", key, data)
    for key, data in contents.items():
        assert pool.get("spill", key).bytes() == data
    (server,) = pool.status()["servers"]
    assert server["evictions"] >= 24 and server["recalls"] >= 24 and server["memory_bytes"] <= 8 << 20


def test_what_is_durable_survives_kill_and_restart(pool_servers, open_pool):
    servers = pool_servers(1, disk=True)
    pool = open_pool(servers)
    pool.put("kept", "x", b"durable", acknowledge="durable")
    name = servers.servers[0].ready["id"]
    servers.stop_one(servers.servers[0], number=signal.SIGKILL)
    servers.start_one(1)
    servers.wait_ready(60)
    assert servers.servers[0].ready["id"] == name
    assert open_pool(servers).get("kept", "x").bytes() == b"durable"


def test_a_clean_stop_writes_what_only_memory_had(pool_servers, open_pool):
    servers = pool_servers(1, disk=True, write_behind="off")
    open_pool(servers).put("kept", "x", b"at the end")
    assert servers.stop_one(servers.servers[0]) == 0
    servers.start_one(1)
    servers.wait_ready(60)
    assert open_pool(servers).get("kept", "x").bytes() == b"at the end"


def test_replicas_answer_when_a_server_is_killed(pool_servers, open_pool):
    servers = pool_servers(3, replication=2, lease_ms="500")
    pool = open_pool(servers)
    keys = [("replicated", str(i)) for i in range(200)] + [(f"row {i}", "x") for i in range(200)]
    assert set(pool.put_many(((key, str(key)) for key in keys), acknowledge="replicated")) == {1}
    servers.stop_one(servers.servers[2], number=signal.SIGKILL)
    found = pool.get_many(keys)
    assert [one.bytes().decode() for one in found] == [str(key) for key in keys]
    pool.put("after", "x", b"goes on", acknowledge="replicated")


def test_draining_hands_everything_on(pool_servers, open_pool):
    servers = pool_servers(3)
    pool = open_pool(servers)
    keys = [(f"row {i}", "x") for i in range(300)]
    assert set(pool.put_many((key, str(key)) for key in keys)) == {1}
    leaving = servers.servers[1]
    status = pool.administer(leaving.ready["name"], "drain")
    assert status["state"] == "handing_on" and 0 < status["objects"] < 300
    states = [status["state"]]
    while states[-1] in ("handing_on", "handed_on"):
        status = pool.administer(leaving.ready["name"], "drain_status")
        states += [status["state"]] if status["state"] != states[-1] else []
    assert states[-1] == "left" and status["objects"] == 0
    assert leaving.process.wait(TIMEOUT_S) == 0
    assert [one.bytes().decode() for one in pool.get_many(keys)] == [str(key) for key in keys]
    assert len(pool.status()["servers"]) == 2


def test_a_server_joins(pool_servers, open_pool):
    servers = pool_servers(1)
    pool = open_pool(servers)
    keys = [(f"row {i}", "x") for i in range(300)]
    pool.put_many((key, str(key)) for key in keys)
    servers.start_one(2)
    servers.wait_ready(60)
    assert [one.bytes().decode() for one in pool.get_many(keys)] == [str(key) for key in keys]
    deadline = time.monotonic() + TIMEOUT_S
    while not (status := pool.status())["settled"] or len(status["servers"]) < 2:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    assert [one.bytes().decode() for one in pool.get_many(keys)] == [str(key) for key in keys]
    assert all(server["objects"] > 50 for server in status["servers"])
