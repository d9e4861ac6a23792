"""Streams that register with a directory service: that of a real staging server, found by PENSTOCK_DIRECTORY alone."""

import os
import subprocess
import sys

import numpy as np
import penstock
import pytest

DEADLINE_S = 60

WRITE_AND_DIE = """
import os, sys, penstock
writer = penstock.create("flow", rendezvous_readers=0)
print("registered", flush=True)
sys.stdin.read()
os._exit(9)
"""


@pytest.fixture
def directory(pool_servers):
    return pool_servers(1).directory


@pytest.fixture
def in_directory():
    """in_directory(where) makes a context whose streams register there."""
    contexts = []

    def make(where):
        contexts.append(penstock.Context(directory=where, listen="127.0.0.1"))
        return contexts[-1]

    yield make
    for context in contexts:
        context._shut_down()


@pytest.fixture
def elsewhere(directory, tmp_path):
    """Runs Python as on another host: no common folder, only the service."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_") and k != "XDG_RUNTIME_DIR"}
    environment = kept | {"PENSTOCK_DIRECTORY": directory}

    def start(*words, **options):
        return subprocess.Popen(
            [sys.executable, *words], env=environment, cwd=tmp_path, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
        )  # fmt: skip

    return start


def finish(process, **options):
    try:
        return process.communicate(timeout=DEADLINE_S, **options)
    finally:
        process.kill()
        process.wait()


def test_a_stream_is_found_through_the_service(directory, in_directory, elsewhere):
    context = in_directory(directory)
    with context.create("flow") as writer:
        reader = elsewhere(
            "-c",
            "import penstock\n"
            "with penstock.open('flow') as reader:\n"
            "    print([float(step['u'][...].sum()) for step in reader])\n",
        )
        for n in range(3):
            with writer.step() as step:
                step["u"] = np.full(4, float(n))
    out, err = finish(reader)
    assert out == "[0.0, 4.0, 8.0]\n", err
    assert [entry.name for entry in context.list_streams()] == []


def test_ls_shows_streams_and_pools_of_the_service_and_no_token(directory, in_directory, elsewhere):
    with in_directory(directory).create("flow", rendezvous_readers=0):
        out, err = finish(elsewhere("-m", "penstock.cli.main", "stream", "ls"))
    assert "flow" in out and "alive" in out and "default" in out, err
    assert directory.partition("token=")[2] not in out + err
    out, err = finish(elsewhere("-m", "penstock.cli.main", "stream", "ls"))
    assert "no streams in tcp://" in out + err
    assert directory.partition("token=")[2] not in out + err


def test_a_name_has_one_live_writer_and_outlives_a_dead_one(directory, in_directory, elsewhere):
    writer = elsewhere("-c", WRITE_AND_DIE)
    try:
        assert writer.stdout.readline() == "registered\n", writer.stderr.read()
        context = in_directory(directory)
        with pytest.raises(penstock.WrongState, match="already being written"):
            context.create("flow", rendezvous_readers=0)
        finish(writer)
        assert writer.returncode == 9
        with context.create("flow", rendezvous_readers=0):  # the dead one's lease may not have ended yet
            assert [(entry.name, entry.alive) for entry in context.list_streams()] == [("flow", True)]
    finally:
        writer.kill()
        writer.wait()


def test_a_service_that_does_not_answer_is_named(in_directory):
    token = "0" * 64
    context = in_directory(f"tcp://127.0.0.1:1/directory?token={token}")
    with pytest.raises(penstock.TimeoutError, match=r"127\.0\.0\.1:1") as caught:
        context.open("flow", timeout=0.3)
    assert token not in str(caught.value)


def test_the_registration_of_the_service_is_no_stream(pool_servers):
    context = penstock.Context(directory=pool_servers(1).registration)
    assert context.list_streams() == []
    with pytest.raises(penstock.InvalidArgument, match="'directory' cannot name a stream"):
        context.create("directory")
    with pytest.raises(penstock.TimeoutError, match="not found"):
        context.open("directory", timeout=0.1)
    with pytest.raises(penstock.NotFound, match="not found"):
        context.inspect("directory")
