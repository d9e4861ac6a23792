"""Trace files: what the library writes is what Python reads, and any other bytes do no harm."""

import json
import os
import random
import signal
import subprocess
from collections import defaultdict
from dataclasses import fields
from pathlib import Path

import pytest
from penstock import NotFound, ProtocolError
from penstock.trace import describe, file, timeline

SEED = int(os.environ.get("PENSTOCK_TEST_SEED", "1"))
TEXTS = ("metadata", "function", "arguments", "namespace")
CHOICES = {"if_exists": file.IF_EXISTS, "acknowledge": file.ACKNOWLEDGE, "verb": file.VERBS}


@pytest.fixture
def written(tmp_path):
    """What a program leaves that writes a trace, and what it prints."""
    child = (
        Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build")) / "tests" / "trace" / "trace_child"
    )
    path = tmp_path / "one.trace"

    def write(*words, code=0):
        done = subprocess.run([child, path, *map(str, words)], capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return path.read_bytes(), done.stdout

    return write


def as_said(record):
    """A record as the writing program prints one."""
    said = {name.name: getattr(record, name.name) for name in fields(record) if name.name != "flags"}
    said |= {name: getattr(record, name) for name in ("batch", "asynchronous", "existing", "waits", *CHOICES)}
    said |= {name: said[name].hex() for name in TEXTS} | {name: CHOICES[name].index(said[name]) for name in CHOICES}
    said["outcome"] = said["outcome"].encode().hex()
    said["keys"] = [[row.hex(), column.hex()] for row, column in record.keys]
    return said


@pytest.mark.parametrize("seed", range(SEED, SEED + 5))
def test_what_is_written_is_read(written, seed):
    data, said = written("random", seed, 3000)
    process = file.decode(data)
    assert process.problem == "" and process.lost_bytes == 0
    assert process.clients == ["pool 0", "pool 1", "pool 2"] and process.program == "trace_child"
    expected = [json.loads(line) for line in said.splitlines()]
    assert len(process.records) == len(expected) == 3000
    for record, one in zip(process.records, expected, strict=True):
        one["sizes"] = one["sizes"] if len(one["sizes"]) == len(one["keys"]) else []
        if one["outcome"] == b"ok".hex():
            one["failed"] = 0
        assert as_said(record) == one


def test_numbers_of_texts_begin_again(written):
    data, _ = written("texts", 200_000)
    records = file.decode(data).records
    assert [record.keys for record in records] == [[(f"row/{i}".encode(), b"T")] for i in range(200_000)]


def test_a_trace_that_is_cut_is_read_up_to_its_last_block(written):
    data, _ = written("blocks", 4, 5)
    seen = set()
    for size in range(len(data) + 1):
        try:
            process = file.decode(data[:size])
        except ProtocolError:
            assert size < 200  # not even the header
            continue
        seen.add(len(process.records))
        assert bool(process.problem) == bool(process.lost_bytes)
    assert seen == {0, 5, 10, 15, 20}


def test_a_damaged_byte_is_found(written):
    chance = random.Random(SEED)
    data, _ = written("blocks", 4, 5)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= chance.randrange(1, 256)
        try:
            process = file.decode(bytes(damaged))
        except ProtocolError:
            continue
        assert len(process.records) < 20 and process.problem, at


def test_any_bytes_do_no_harm(written, monkeypatch):
    """With checksums that are always right: what damaged entries say reaches the decoder."""
    chance = random.Random(SEED)
    data, _ = written("random", SEED, 30)
    right = file._core.checksum
    assert right(b"") == 0x2D06800538D394C2  # of XXH3's specification

    def any_sum(data, at, length, checksum):
        body = data[at : at + length]
        return body if len(body) == length else None

    monkeypatch.setattr(file, "_checked", any_sum)
    whole = 0
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(chance.randrange(1, 8)):
            at = chance.randrange(len(damaged))
            if chance.random() < 0.8:
                damaged[at] = chance.randrange(256)
            else:
                del damaged[at : at + chance.randrange(9)]
        try:
            process = file.decode(bytes(damaged))
        except ProtocolError:
            continue
        whole += not process.problem
        merged = timeline.merge([process])
        for _ in timeline.chrome_events(merged):
            pass
    assert whole > 0


def test_a_killed_process_loses_its_last_block(written):
    data, _ = written("killed", code=-signal.SIGKILL)
    process = file.decode(data)
    assert len(process.records) == 100 and not process.problem


def test_a_forked_child_writes_nothing(written):
    data, _ = written("forked")
    process = file.decode(data)
    assert [record.verb for record in process.records] == ["put"] * 22 and not process.problem


def test_threads_keep_their_order(written):
    data, _ = written("threads", 4, 20_000)
    counts = defaultdict(list)
    for record in file.decode(data).records:
        assert record.keys[0][0] == f"thread/{record.thread}".encode()
        counts[record.thread].append(record.count)
    assert sorted(counts.values()) == [list(range(20_000))] * 4


def test_which_files_are_read(written, tmp_path):
    written("blocks", 1, 1)
    (tmp_path / "two.trace").write_bytes((tmp_path / "one.trace").read_bytes())
    assert len(file.read(tmp_path)) == 2 and len(file.read(tmp_path / "two.trace")) == 1
    with pytest.raises(NotFound):
        file.read(tmp_path / "none")
    (tmp_path / "three.trace").write_text("something else, long enough to be one")
    with pytest.raises(ProtocolError, match=r"three.trace: not a trace"):
        file.read(tmp_path)
    version = bytearray((tmp_path / "one.trace").read_bytes())
    version[8] = 7
    (tmp_path / "three.trace").write_bytes(version)
    with pytest.raises(ProtocolError, match="version 7"):
        file.read(tmp_path)


# ------------------------------------------------------------------------------------------------------- timelines

SECOND = 1_000_000_000


def process(host, boot, realtime_s, monotonic_s, starts_s):
    records = [
        file.Record("put", start_ns=s * SECOND, duration_ns=1000, keys=[(b"row \xff", b"T")], sizes=[100])
        for s in starts_s
    ]
    return file.Process(realtime_s * SECOND, monotonic_s * SECOND, 17, host, boot, "sim", ["heat"], records)


def order(merged):
    return [item.process for item in merged.items]


def test_processes_of_a_machine_share_its_clock():
    """However the real-time clock was set between the starts of the processes."""
    node = process("node", "boot", 1000, 10, [20, 40]), process("container", "boot", 1005, 11, [30])
    merged = timeline.merge([*node, process("node", "boot", 1000, 10, [35])])
    assert order(merged) == [0, 1, 2, 0]
    assert [merged.items[i].start_ns for i in (0, 1, 3)] == [0, 10 * SECOND, 20 * SECOND]
    assert merged.begin_ns == 1010 * SECOND


@pytest.mark.parametrize("boots", [("boot-a", "boot-b"), ("", "")])
def test_machines_are_aligned_by_real_time(boots):
    merged = timeline.merge([process("a", boots[0], 1000, 5, [6, 8]), process("b", boots[1], 1000, 777, [779])])
    assert order(merged) == [0, 1, 0] and merged.items[1].start_ns == SECOND
    assert timeline.merge([]).items == []


def test_chrome_events():
    one = process("node", "boot", 0, 0, [0, 0, 0])
    for record, start in zip(one.records, (1000, 1500, 5000), strict=True):
        record.start_ns = start
    one.records[2] = file.Record("want", flags=2, start_ns=5000, duration_ns=1000, outcome="timeout")
    events = list(timeline.chrome_events(timeline.merge([one])))
    assert "".join(event["ph"] for event in events) == "MXbebe"  # the second began before the first had ended
    put, want = events[1], events[4]
    assert (put["name"], put["ts"], put["dur"], put["args"]["column"], put["args"]["bytes"]) == ("put", 0, 1, "T", 100)
    assert (want["name"], want["ts"], want["args"]["outcome"]) == ("want", 4, "timeout")


# ------------------------------------------------------------------------------------------------------- descriptions


@pytest.mark.parametrize(
    "parse, text, found",
    [
        (describe.box, "0,1+64,2", ((0, 1), (64, 2))),
        (describe.box, "+", ((), ())),
        (describe.shape, "64,2", (64, 2)),
        (describe.shape, "", ()),
        (
            describe.variable,
            "float64 global_array row 64,2 min_max",
            describe.Variable("float64", "global_array", "row", (64, 2), True),
        ),
        (describe.variable, "string global_value row ", describe.Variable("string", "global_value", "row", (), False)),
    ],
)
def test_descriptions(parse, text, found):
    assert parse(text) == found


@pytest.mark.parametrize(
    "parse, text",
    [
        *((describe.box, text) for text in ("", "1,2", "1+", "1,+1", ",1+1", "-1+1", "1+1,2", "a+b", "1 +1")),
        (describe.box, "1+18446744073709551616"),
        (describe.box, "1,1,1,1,1,1,1,1,1+1,1,1,1,1,1,1,1,1"),
        *((describe.selection, text) for text in ("", "al", "all x", "box", "box 1", "box 1+1/0", "box 1+1/1,1")),
        *(
            (describe.selection, text)
            for text in ("block", "block x", "points 1", "points 1x0", "points 1x9", "points x1")
        ),
        *((describe.variable, text) for text in ("", "float64", "float65 global_array row 1", "float64 array row 1")),
        *((describe.variable, text) for text in ("none global_array row 1", "float64 global_array diagonal 1")),
        *((describe.variable, text) for text in ("float64 global_array row x", "float64 global_array row 1 max")),
        *((describe.attribute, text) for text in ("", "float64", "float64 x", "none 1", "float64 99999999999")),
    ],
)
def test_other_texts_are_refused(parse, text):
    with pytest.raises(ProtocolError):
        parse(text)
