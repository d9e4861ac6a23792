"""Services: called and implemented in Python, with C++ on the other side where it matters; messages against flatc."""

import asyncio
import contextlib
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import penstock
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from penstock import rpc

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 60
SCHEMA = """
include "transport/bulk.fbs";
namespace t;
enum Colour:byte { red = 1, blue = 5 }
struct Inner { a:ubyte; b:double; }
struct Point { x:int; y:float; inner:Inner; f:[short:3]; }
table Child { name:string; n:int = 7; kids:[Child]; }
table All {
  b:bool; i8:byte; u16:ushort = 9; i64:long; f:float = 1.5; d:double; c:Colour = blue; s:string; v:[int]; w:[double];
  p:Point; ps:[Point]; names:[string]; child:Child; kids:[Child]; o:int = null; bytes:[ubyte]; flags:[bool];
}
table Text { text:string; }
table Number { number:long; }
table Memory { memory:penstock.transport.fb.Bulk; back:penstock.transport.fb.Bulk; }
rpc_service Things { Same(All):All; Fail(Text):Text; Block(Number):Text; WaitAsync(Number):Text; Sum(Memory):Number; }
rpc_service Listener { Hear(Text):Number; }
root_type All;
"""


@pytest.fixture(scope="session")
def schema_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("schema") / "things.fbs"
    file.write_text(SCHEMA)
    return file


@pytest.fixture(scope="session")
def schema(schema_file):
    if not shutil.which("flatc"):
        pytest.skip("needs flatc (Debian: flatbuffers-compiler)")
    return rpc.Schema(schema_file, include=[ROOT / "src"])


# ------------------------------------------------------------------------------------------------------------ messages


def children(depth=2):
    kids = st.none() | st.lists(children(depth - 1), max_size=2) if depth else st.none()
    return st.fixed_dictionaries({"name": st.none() | st.text(max_size=9), "n": st.integers(-9, 9), "kids": kids})


numbers = {"allow_nan": False, "allow_infinity": False}
messages = st.fixed_dictionaries(
    {
        "b": st.booleans(),
        "i8": st.integers(-128, 127),
        "u16": st.integers(0, 65535),
        "i64": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(width=32, **numbers),
        "d": st.floats(**numbers),
        "s": st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=9),
        "v": st.none() | arrays.arrays("<i4", st.integers(0, 5)),
        "w": st.none() | arrays.arrays("<f8", st.integers(0, 5), elements=st.floats(**numbers)),
        "names": st.none() | st.lists(st.text(max_size=5), max_size=3),
        "child": st.none() | children(),
        "kids": st.none() | st.lists(children(1), max_size=2),
        "o": st.none() | st.integers(-5, 5),
        "bytes": st.none() | st.binary(max_size=9),
        "flags": st.none() | st.lists(st.booleans(), max_size=4),
        "ps": st.none() | st.integers(0, 3),
    }
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(messages)
def test_messages_come_back_as_they_were(schema, value):
    if value["ps"] is not None:
        value["ps"] = np.ones(value["ps"], schema.dtype("Point"))
    back = schema.decode("t.All", bytes(schema.encode("t.All", value)))
    for name, one in value.items():
        found = getattr(back, name)
        if one is None:
            assert found is None
        elif isinstance(one, bytes):
            assert found.tobytes() == one
        elif name in ("child", "kids"):
            assert schema.encode("t.All", {name: found}) == schema.encode("t.All", {name: one})
        else:
            assert np.array_equal(found, one), name
    assert schema.decode("t.All", schema.encode("t.All", back)) == back


def test_flatc_reads_what_we_write_and_the_reverse(schema, schema_file, tmp_path):
    point = (1, 2.5, (3, 4.5), (7, 8, 9))
    value = {"b": True, "i8": -3, "i64": -(2**62), "f": 2.25, "d": 1e100, "c": 1, "s": "hé", "v": [1, 2], "p": point,
             "ps": np.array([point] * 3, schema.dtype("Point")), "names": ["a", ""], "bytes": b"abc",
             "child": {"name": "x", "kids": [{"name": "y"}, {"n": 3}]}, "w": np.arange(3.0)[::-1]}  # fmt: skip
    (tmp_path / "m.bin").write_bytes(schema.encode("t.All", value))
    flatc = ["flatc", "-I", ROOT / "src", "-o", tmp_path]
    options = ["--strict-json", "--defaults-json", "--raw-binary"]
    subprocess.run([*flatc, "--json", *options, schema_file, "--", tmp_path / "m.bin"], check=True, timeout=TIMEOUT_S)
    read = json.loads((tmp_path / "m.json").read_text())
    assert (read["i8"], read["u16"], read["c"], read["s"], read["v"]) == (-3, 9, "red", "hé", [1, 2])
    assert read["ps"][2] == {"x": 1, "y": 2.5, "inner": {"a": 3, "b": 4.5}, "f": [7, 8, 9]}
    assert [kid["n"] for kid in read["child"]["kids"]] == [7, 3] and read["w"] == [2, 1, 0]
    subprocess.run([*flatc, "-b", schema_file, tmp_path / "m.json"], check=True, timeout=TIMEOUT_S)
    ours = schema.decode("t.All", schema.encode("t.All", value))
    assert schema.decode("t.All", (tmp_path / "m.bin").read_bytes()) == ours


def test_damaged_messages_are_refused(schema):
    whole = schema.encode("t.All", {"s": "text", "kids": [{"name": "a"}] * 3, "v": range(9), "names": ["x", "y"]})
    random = np.random.default_rng(7)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(whole[: random.integers(0, len(whole) + 1)]) if random.random() < 0.3 else bytearray(whole)
        for place in random.integers(0, len(damaged), 3) if damaged else ():
            damaged[place] = random.integers(0, 256)
        try:
            schema.decode("t.All", bytes(damaged))
        except penstock.ProtocolError:
            refused += 1
    assert refused > 1000


@pytest.mark.parametrize("count, accepted", [(1234, True), (12345, False)])
def test_shared_texts_have_a_limit(schema, count, accepted):
    content = schema.encode("t.All", {"names": ["x" * 2000] + [""] * (count - 1)})
    first = content.index(struct.pack("<I", count)) + 4
    text = first + struct.unpack_from("<I", content, first)[0]
    for place in range(first, first + 4 * count, 4):
        struct.pack_into("<I", content, place, text - place)
    if accepted:
        assert schema.decode("t.All", content).names == ["x" * 2000] * count
        return
    with pytest.raises(penstock.ProtocolError, match="too often"):
        schema.decode("t.All", content)


def test_tables_within_tables_have_a_limit(schema):
    value = {"name": "inmost"}
    for _ in range(63):
        value = {"kids": [value]}
    found = schema.decode("t.Child", schema.encode("t.Child", value))
    while found.kids:
        found = found.kids[0]
    assert found.name == "inmost"
    with pytest.raises(penstock.InvalidArgument, match="too deep"):
        schema.encode("t.Child", {"kids": [value]})


@pytest.mark.parametrize(
    "value, message",
    [
        ({"nmaes": []}, "did you mean 'names'"),
        ({"i8": 300}, "does not fit"),
        ({"v": [1.5]}, "does not fit"),
        ({"s": 3}, "is a str"),
        ({"names": "ab"}, "a list"),
        ({"w": [[1.0]]}, "2 dimensions"),
        ({"i8": "x"}, "takes numbers"),
        ({"child": 3}, "a mapping"),
        (7, "a mapping"),
    ],
)
def test_wrong_values(schema, value, message):
    with pytest.raises(penstock.InvalidArgument, match=message):
        schema.encode("t.All", value)


def test_wrong_schemas(schema, tmp_path):
    with pytest.raises(penstock.NotFound, match="no schema"):
        rpc.Schema(tmp_path / "none.bfbs")
    (tmp_path / "bad.bfbs").write_bytes(b"\x08\0\0\0BFBS" + bytes(range(64)))
    with pytest.raises(penstock.ProtocolError, match="no binary schema"):
        rpc.Schema(tmp_path / "bad.bfbs")
    (tmp_path / "bad.fbs").write_text("tabel X {}")
    with pytest.raises(penstock.ProtocolError, match=r"bad\.fbs"):
        rpc.Schema(tmp_path / "bad.fbs")
    with pytest.raises(penstock.NotFound, match=r"t\.Things"):
        schema.service("Nothing")


def test_damaged_schemas_are_refused(schema, schema_file, tmp_path):
    command = ["flatc", "-b", "--schema", "-I", ROOT / "src", "-o", tmp_path, schema_file]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    file = tmp_path / "things.bfbs"
    whole = file.read_bytes()
    random = np.random.default_rng(7)
    refused = 0
    for _ in range(500):
        damaged = bytearray(whole)
        for place in random.integers(0, len(damaged), 3):
            damaged[place] = random.integers(0, 256)
        file.write_bytes(damaged)
        try:
            rpc.Schema(file)
        except penstock.ProtocolError:
            refused += 1
    assert refused > 100


def test_fields_that_were_not_sent(schema):
    found = schema.decode("t.All", schema.encode("t.All", {}))
    assert (found.b, found.u16, found.f, found.c, found.s, found.v, found.o) == (False, 9, 1.5, 5, None, None, None)
    assert type(found.b) is bool and type(found.d) is float and type(found.i64) is int


# --------------------------------------------------------------------------------------------------------------- calls


class Things:
    def __init__(self, schema):
        self.schema = schema
        self.blocked = threading.Event()
        self.go_on = threading.Event()
        self.seen_cancelled = threading.Event()

    def same(self, call, request):
        return request

    def fail(self, call, request):
        if request.text == "plain":
            raise KeyError("a defect")
        raise penstock.PoolFull(f"no room for {request.text}")

    def block(self, call, request):
        self.blocked.set()
        assert self.go_on.wait(TIMEOUT_S)
        until = time.monotonic() + TIMEOUT_S / 4
        while not call.cancelled and time.monotonic() < until:  # who calls knows first
            threading.Event().wait(0.01)
        if call.cancelled:
            self.seen_cancelled.set()
        return {"text": "late"}

    async def wait_async(self, call, request):
        await asyncio.to_thread(str)  # it is away for a turn
        if request.number < 0:
            raise penstock.InvalidArgument("negative")
        return rpc.Message(text=f"waited for {request.number}")

    def sum(self, call, request):
        count = int(request.memory["bytes"]) // 8
        mine = np.empty(count)
        call.channel.pull(request.memory, mine)
        call.channel.push(request.back, np.ascontiguousarray(mine[::-1]))
        call.channel.push(request.back, np.array([-1.0]), offset=8)
        return {"number": int(mine.sum())}


@pytest.fixture
def things(schema):
    return Things(schema)


@pytest.fixture
def server(schema, things):
    with rpc.Server({schema.service("Things"): things}, listen="127.0.0.1") as server:
        yield server
        things.go_on.set()


@pytest.fixture(params=["automatic", "tcp"])
def channel(server, request):
    with rpc.connect(server.endpoint, server.token, over=request.param, timeout=TIMEOUT_S) as channel:
        yield channel


@pytest.fixture
def client(channel, schema):
    return channel.client(schema.service("Things"))


def test_calls(client, schema):
    reply = client.same(i64=7, s="text", w=np.arange(5.0), timeout=TIMEOUT_S)
    assert (reply.i64, reply.s, reply.u16) == (7, "text", 9) and reply.w.tolist() == [0, 1, 2, 3, 4]
    large = np.random.default_rng(1).random(1 << 20)  # in two phases
    assert np.array_equal(client.same({"w": large}, timeout=TIMEOUT_S).w, large)
    assert client.same(rpc.Message(s="as a message")).s == "as a message"
    pending = [client.same.start(i64=n) for n in range(100)]
    assert [one.wait().i64 for one in pending] == list(range(100))
    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(lambda n: client.same(i64=n).i64, range(100))) == list(range(100))
    assert "same" in dir(client)
    with pytest.raises(AttributeError, match="has no method 'smae'"):
        client.smae()


def test_errors_cross_with_code_and_place(client):
    with pytest.raises(penstock.PoolFull, match=rf":{os.getpid()} t\.Things\.fail: no room for it"):
        client.fail(text="it")
    with pytest.raises(penstock.InternalError, match="KeyError: 'a defect'"):
        client.fail(text="plain")
    with pytest.raises(penstock.InvalidArgument, match=r"wait_async: negative"):
        client.wait_async(number=-1)
    assert client.wait_async(number=3).text == "waited for 3"


def test_deadlines_and_cancelling(client, things):
    with pytest.raises(penstock.TimeoutError):
        client.block(number=1, timeout=0.2)
    assert things.blocked.wait(TIMEOUT_S)
    things.go_on.set()
    assert things.seen_cancelled.wait(TIMEOUT_S)
    things.go_on.clear()
    things.blocked.clear()
    pending = client.block.start(number=2, timeout=math.inf)
    assert things.blocked.wait(TIMEOUT_S) and not pending.done()
    pending.cancel()
    with pytest.raises(penstock.Cancelled):
        pending.wait()
    things.go_on.set()
    assert client.same(i64=1).i64 == 1  # the channel goes on


def test_asyncio(client, things):
    async def use():
        replies = await asyncio.gather(*(client.wait_async.start(number=n) for n in range(50)))
        assert [reply.text for reply in replies] == [f"waited for {n}" for n in range(50)]
        with pytest.raises(penstock.PoolFull):
            await client.fail.start(text="it")
        with pytest.raises(TimeoutError):
            await client.block.start(number=1, timeout=0.2)
        task = asyncio.ensure_future(client.block.start(number=2, timeout=TIMEOUT_S)._finish())
        await asyncio.get_running_loop().run_in_executor(None, things.blocked.wait, TIMEOUT_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())


def test_bulk_memory(client, channel):
    for make in (np.empty, rpc.allocate):
        data, back = make(100_000, np.float64), make(100_000, np.float64)
        data[:] = np.arange(100_000)
        back[:] = 0
        with channel.expose(data) as memory, channel.expose(back, writable=True) as target:
            assert client.sum(memory=memory, back=target, timeout=TIMEOUT_S).number == int(data.sum())
        expected = data[::-1].copy()
        expected[1] = -1
        assert np.array_equal(back, expected)
    with channel.expose(bytes(8)) as memory, pytest.raises(penstock.InvalidArgument):
        client.sum(memory=memory, back=memory)  # it is for reading only
    with pytest.raises((ValueError, BufferError, penstock.Error)):
        channel.expose(np.zeros((4, 4))[:, ::2])


def test_both_sides_offer(schema, things):
    heard = []

    class Listener:
        def hear(self, call, request):
            heard.append(request.text)
            return {"number": len(heard)}

    class Telling(Things):
        def fail(self, call, request):
            answer = call.channel.client(schema.service("Listener")).hear(text=request.text)
            counter = call.channel
            assert counter.role == "user"
            return {"text": str(answer.number)}

    offers = {schema.service("Listener"): Listener()}
    with rpc.Server({schema.service("Things"): Telling(schema)}, listen="127.0.0.1") as server:
        with rpc.connect(server.endpoint, server.token, offers=offers) as channel:
            client = channel.client(schema.service("Things"))
            assert [client.fail(text=word).text for word in ("a", "b")] == ["1", "2"]
    assert heard == ["a", "b"]


def test_atomics(schema):
    class Counting(Things):
        def sum(self, call, request):
            for _ in range(10):
                call.channel.fetch_add(request.memory, 2)
            return {"number": call.channel.compare_swap(request.memory, 20, 7, offset=0)}

    with rpc.Server({schema.service("Things"): Counting(schema)}, listen="127.0.0.1") as server:
        with rpc.connect(server.endpoint, server.token) as channel:
            counter = rpc.allocate(1, np.uint64)
            counter[:] = 0
            with channel.expose(counter, writable=True) as memory:
                assert channel.client(schema.service("Things")).sum(memory=memory).number == 20
            assert counter[0] == 7


def test_nobody_and_a_wrong_token(schema, things):
    with rpc.Server({schema.service("Things"): things}, listen="127.0.0.1") as server:
        endpoint, token = server.endpoint, server.token
        with pytest.raises(penstock.AuthenticationError):
            rpc.connect(endpoint, "0" * len(token))
        channel = rpc.connect(endpoint, token)
    with pytest.raises(penstock.PeerLost):
        channel.client(schema.service("Things")).same(timeout=TIMEOUT_S)
    assert channel.closed
    with pytest.raises((penstock.PeerLost, penstock.TimeoutError)):
        rpc.connect(endpoint, token, timeout=2)
    with pytest.raises(penstock.InvalidArgument, match="has no method same"):
        rpc.Server({schema.service("Things"): object()})


# ----------------------------------------------------------------------------------------- C++ on one side, or neither


def programs():
    build = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "examples" / "rpc"
    here = ROOT / "examples" / "rpc"
    return {
        "C++": ([build / "transfer_server"], [build / "transfer_client"]),
        "Python": ([sys.executable, here / "transfer_server.py"], [sys.executable, here / "transfer_client.py"]),
    }


@contextlib.contextmanager
def transfer_server(language, contact):
    command = programs()[language][0]
    if not all(Path(program[0]).exists() for pair in programs().values() for program in pair):
        pytest.skip("transfer_server and transfer_client are not built, or PENSTOCK_BUILD names another folder")
    with subprocess.Popen([*command, contact], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert ThreadPoolExecutor(1).submit(process.stdout.readline).result(TIMEOUT_S) == "ready\n"
            yield process
            process.stdin.close()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("way", ["automatic", "unix", "tcp"])
@pytest.mark.parametrize("client, server", [("C++", "Python"), ("Python", "C++"), ("Python", "Python")])
def test_the_transfer_service(schema, tmp_path, client, server, way):
    contact = tmp_path / "contact"
    with transfer_server(server, contact):
        command = [*programs()[client][1], contact, "20000", "2", way]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        for method in ("write-encode", "write-bulk", "read-encode", "read-bulk"):
            assert method in done.stdout


def test_a_python_client_outlives_its_cpp_server(schema, tmp_path):
    contact = tmp_path / "contact"
    here = ROOT / "examples" / "rpc"
    transfer = rpc.Schema(here / "transfer.fbs", include=[ROOT / "src"]).service("Transfer")
    with contextlib.suppress(AssertionError), transfer_server("C++", contact) as process:
        endpoint, token = contact.read_text().split()
        channel = rpc.connect(endpoint, token, "transfer/user")
        assert len(channel.client(transfer).read_encode(count=3, seed=1).records) == 3
        process.kill()
        process.wait(TIMEOUT_S)
        with pytest.raises(penstock.PeerLost):
            channel.client(transfer).read_encode(count=3, seed=1, timeout=TIMEOUT_S)
        channel.close()
