"""Messages say what the user did and can do; they name nothing of Penstock's inside."""

import json
import os
import subprocess
import sys

import numpy as np
import penstock
import pytest

INSIDE = ("json.exception", ".fb.", "std::")


def said(error):
    text = str(error.value)
    assert not [word for word in INSIDE if word in text], text
    return text


def test_a_damaged_folder_of_steps(context, file_engine, tmp_path):
    folder = tmp_path / "heat.steps"
    with context.create("heat", engine="file", folder=str(folder)) as writer, writer.step() as step:
        step["T"] = np.zeros(3)
    record = folder / "stream.json"
    for damaged in (record.read_text()[:30], "[]"):
        record.write_text(damaged)
        with pytest.raises(penstock.ProtocolError, match="is damaged") as error:
            context.open(str(folder))
        assert str(record) in said(error)


def test_a_damaged_registration(context, tmp_path):
    with context.create("heat", rendezvous_readers=0):
        registration = tmp_path / "streams" / "heat.json"
        text = registration.read_text()
        registration.write_text(text[:40])
        with pytest.raises(penstock.ProtocolError, match="remove it and start the writer again") as error:
            context.open("heat")
        assert str(registration) in said(error)
        registration.write_text(json.dumps(json.loads(text) | {"version": 99}))
        with pytest.raises(penstock.ProtocolError, match="another release") as error:
            context.open("heat")
        assert said(error).count("heat.json") == 1
        registration.write_text(text)


def test_a_wrong_token_is_said_once_for_all_addresses(context, tmp_path):
    with context.create("heat", rendezvous_readers=0):
        registration = tmp_path / "streams" / "heat.json"
        text = registration.read_text()
        registration.write_text(json.dumps(json.loads(text) | {"token": "0" * 64}))
        with pytest.raises(penstock.AuthenticationError) as error:
            context.open("heat")
        registration.write_text(text)
    assert said(error).count("wrong or out of date") == 1


def test_what_a_pool_refuses(pool_servers, monkeypatch, context):
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", pool_servers(1, memory="64MiB", http="off").directory)
    with context.create("heat", engine="pool"):
        with pytest.raises(penstock.WrongState, match="stream heat is being written already") as error:
            context.create("heat", engine="pool")
        said(error)
    with pytest.raises(penstock.TimeoutError, match="the pool has no stream nothing") as error:
        context.open("nothing", engine="pool", open_timeout_ms=300)
    said(error)


def test_the_folder_of_statistics_is_made(tmp_path):
    program = "import penstock; penstock.create('heat', rendezvous_readers=0, open_timeout_ms=1000).close()"
    environment = {"PENSTOCK_DIRECTORY": str(tmp_path / "streams"), "PENSTOCK_STATISTICS": str(tmp_path / "a" / "b")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert list((tmp_path / "a" / "b").glob("heat.writer.*.json"))
