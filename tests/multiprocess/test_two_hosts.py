"""One reading script, unchanged, beside its writer and on another host. Hosts are namespaces (hosts.py)."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
STEPS = 8
TOTAL = sum(float(sum(range(100_000))) + 100_000 * t for t in range(STEPS))

# A namespace of users first, where we are not root in this one.
USER = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


def why_not():
    """Why hosts cannot be made here; empty when they can."""
    for tool in ("unshare", "nsenter", "ip", "mount", "hostname"):
        if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None:
            return f"needs {tool}"
    script = "ip link add cable1 type veth peer name cable2 && mount -t tmpfs tmpfs /mnt"
    tried = subprocess.run(
        ["unshare", *USER, "--net", "--mount", "--uts", "--ipc", "sh", "-c", script],
        capture_output=True,
        text=True,
        env=with_sbin(os.environ),
        timeout=30,
    )
    return f"needs namespaces of users, networks and mounts: {tried.stderr.strip()}" if tried.returncode else ""


def with_sbin(environment):
    return {**environment, "PATH": environment["PATH"] + ":/usr/sbin:/sbin"}


@pytest.fixture
def hosts(start, environment):
    """(prefix of commands on host A, the same for host B)."""
    if reason := why_not():
        pytest.skip(reason)
    environment.update(with_sbin(environment), PENSTOCK_DIRECTORY="/tmp/penstock", PYTHONDONTWRITEBYTECODE="1")
    environment["PENSTOCK_LISTEN"] = "::"
    # What the programs are made of: this tree, Python, and the folders that the package and the library came from.
    came_from = [environment.get("PYTHONPATH", ""), os.environ.get("PENSTOCK_BUILD", "")]
    keep = {HERE.parents[1], sys.prefix, sys.base_prefix, *(p for paths in came_from for p in paths.split(":") if p)}
    keep = {str(pathlib.Path(p).resolve()) for p in keep}
    keep = sorted(p for p in keep if p != "/usr" and not any(p.startswith(q + "/") for q in keep))
    manager = start(["unshare", *USER, "--net", "--mount", sys.executable, HERE / "hosts.py", *keep])
    _, *pids = manager.wait_line("ready").split()
    enter = ["nsenter", *(["--user", "--preserve-credentials"] if USER else []), "--net", "--mount", "--uts", "--ipc"]
    yield [[*enter, "--target", pid] for pid in pids]


def test_the_same_script_here_and_there(start, hosts):
    here, there = hosts
    writer = start("write.py", "heat", STEPS, "rendezvous_readers=2", prefix=here, cwd=HERE)
    address = writer.wait_line("address").split()[1]
    assert address.startswith("tcp://10.77.0.1:")
    near = start("read.py", "heat", prefix=here, cwd=HERE)
    far = start("read.py", address, prefix=there, cwd=HERE)
    assert near.wait() == 0, near.lines
    assert far.wait() == 0, far.lines
    assert near.said("end") == [f"end shm {STEPS} {TOTAL}"]
    assert far.said("end") == [f"end tcp {STEPS} {TOTAL}"]
    assert writer.wait() == 0, writer.lines


def test_a_name_does_not_reach_the_other_host(start, hosts):
    """What is not shared between hosts is not found: an error in time that says what to do."""
    here, there = hosts
    writer = start("write.py", "heat", STEPS, "rendezvous_readers=0", "reserve_steps=2", prefix=here, cwd=HERE)
    writer.wait_line("address")
    environment = {"PENSTOCK_STREAM_HEAT": "direct,open_timeout_ms=300"}
    far = start(
        ["env", *(f"{k}={v}" for k, v in environment.items()), sys.executable, HERE / "read.py"],
        "heat",
        prefix=there,
        cwd=HERE,
    )
    assert far.wait() == 1
    assert "not registered in /tmp/penstock" in far.said("error")[0]


def test_a_reader_on_the_other_host_is_killed(start, hosts):
    here, there = hosts
    writer = start("write.py", "heat", STEPS, "rendezvous_readers=2", "queue_steps=2", prefix=here, cwd=HERE)
    address = writer.wait_line("address").split()[1]
    holder = start("hold.py", address, 2, prefix=there, cwd=HERE)
    near = start("read.py", "heat", prefix=here, cwd=HERE)
    holder.wait_line("holding")
    holder.kill()  # nsenter runs the program in its own place
    assert near.wait() == 0, near.lines
    assert near.said("end") == [f"end shm {STEPS} {TOTAL}"]
    assert writer.wait() == 0, writer.lines


def test_the_writer_on_the_other_host_is_killed(start, hosts):
    here, there = hosts
    writer = start("write.py", "heat", 1000, "queue_steps=2", prefix=here, cwd=HERE)
    address = writer.wait_line("address").split()[1]
    far = start("read.py", address, prefix=there, cwd=HERE)
    far.wait_line("read")
    writer.kill()
    assert far.wait() in (0, 1), far.lines  # lost between steps, or within one
    assert far.said("lost") or "error PeerLost" in far.said("error")[0] or "error WriterLost" in far.said("error")[0]
    assert not any("TORN" in line for line in far.lines)


def test_the_cable_is_cut(start, hosts):
    """Nothing comes through, and nothing says so: whoever waits gives up at its deadline and names whom it awaited."""
    here, there = hosts
    deadline = "step_timeout_ms=10000"  # the writer also waits so long for the reader to start
    writer = start(
        "write.py",
        "heat",
        1000,
        "queue_steps=2",
        deadline,
        "close_timeout_ms=1000",
        prefix=here,
        cwd=HERE,
    )
    address = writer.wait_line("address").split()[1]
    far = start(
        ["env", f"PENSTOCK_STREAM_HEAT=direct,{deadline}", sys.executable, HERE / "read.py"],
        address,
        prefix=there,
        cwd=HERE,
    )
    far.wait_line("read")
    cut = start(["ip", "link", "set", "cable", "down"], prefix=there)
    assert cut.wait() == 0
    assert far.wait() == 1 and far.said("error")[0].startswith("error Timeout"), far.lines
    assert writer.wait() == 1 and "host-b:" in writer.said("error")[0], writer.lines
