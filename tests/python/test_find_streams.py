"""Readers find a stream by its name alone: among living writers, in pools, and in files."""

import signal
import threading

import numpy as np
import penstock
import pytest

TIMEOUT_S = 20.0
WORD = {"direct": {"rendezvous_readers": 0, "reserve_steps": 3}, "pool": {"engine": "pool"}, "file": {"engine": "file"}}
WORD["space"] = {"engine": "space"}
KEEPING = ["pool", "file", "space"]


@pytest.fixture
def here(tmp_path, monkeypatch, request):
    """A folder of its own, without a directory service. pool() starts one with a pool."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_DIRECTORY_SERVICE", raising=False)

    def pool():
        servers = request.getfixturevalue("pool_servers")(1, memory="256MiB", http="off")
        monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
        return servers

    return pool


@pytest.fixture(params=WORD)
def engine(request, here):
    if request.param in ("pool", "space"):
        here()
    if request.param == "file":
        request.getfixturevalue("file_engine")
    return request.param


def write(stream, *numbers):
    for number in numbers:
        with stream.step() as step:
            step["T"] = np.full(4, float(number))


def read(context, name, count=None, **options):
    """The engine and the values of so many steps, or of all."""
    values = []
    with context.open(name, timeout=TIMEOUT_S, **options) as stream:
        while len(values) != count:
            try:
                with stream.step() as step:
                    values.append(float(step["T"][0]))
            except penstock.EndOfStream:
                break
        return stream.options["engine"], values


def test_a_live_stream_is_found_wherever_it_is(context, engine):
    with context.create("heat", timeout=TIMEOUT_S, **WORD[engine]) as stream:
        write(stream, 0, 1)
        assert context.inspect("heat")["engine"] == stream.options["engine"] == engine
        assert read(context, "heat", 2) == (engine, [0.0, 1.0])


@pytest.mark.parametrize("engine", KEEPING, indirect=True)
def test_a_stream_that_has_ended_is_found_at_once_and_a_warning_says_so(context, engine, capfd):
    with context.create("heat", **WORD[engine]) as stream:
        write(stream, 0, 1, 2)
    assert context.inspect("heat")["state"] == "ended" and not capfd.readouterr().err
    assert read(context, "heat") == (engine, [0.0, 1.0, 2.0])
    said = capfd.readouterr().err
    assert "nobody writes this stream now" in said and "ended" in said
    assert read(context, "heat", engine=engine)[1] == [0.0, 1.0, 2.0]
    assert "nobody writes" not in capfd.readouterr().err


def test_a_reader_waits_for_the_writer_wherever_that_will_be(context, engine):
    found = []
    reader = threading.Thread(target=lambda: found.append(read(context, "heat", 2)))
    reader.start()
    with context.create("heat", timeout=TIMEOUT_S, **WORD[engine]) as stream:
        write(stream, 0, 1)
        reader.join(TIMEOUT_S)
    assert found == [(engine, [0.0, 1.0])]


def test_one_that_is_written_comes_before_one_that_has_ended(context, file_engine, here):
    here()
    for word in KEEPING:
        with context.create("heat", **WORD[word]) as stream:
            write(stream, 7)
    assert read(context, "heat")[0] == "pool"  # of those that have ended
    with context.create("heat", timeout=TIMEOUT_S, **WORD["direct"]) as stream:
        write(stream, 0)
        assert read(context, "heat", 1) == ("direct", [0.0])


def test_an_option_that_names_a_place_is_obeyed(context, file_engine, here, tmp_path):
    here()
    with context.create("heat", engine="file", folder="run1") as stream:
        write(stream, 1)
    with context.create("heat", engine="pool") as stream:
        write(stream, 2)
    assert read(context, "heat", folder="run1") == ("file", [1.0])
    assert read(context, "heat", pool="default") == ("pool", [2.0])


def test_a_name_that_is_nowhere(context, here, tmp_path):
    here()
    with context.create("heat", engine="pool") as stream:
        write(stream, 0)
    with pytest.raises(penstock.TimeoutError) as raised:
        context.open("haet", timeout=0.5)
    places = f"registrations in {tmp_path}/streams, pool default, files in {tmp_path}/haet.steps"
    assert f"did not open within 500 ms: not found; looked in {places}; did you mean 'heat'?" in str(raised.value)
    with pytest.raises(penstock.NotFound, match="did you mean 'heat'"):
        context.inspect("haet")


def test_a_pool_that_does_not_answer_is_named_and_holds_nobody(context, here, file_engine):
    servers = here()
    with context.create("heat", engine="file") as stream:
        write(stream, 0)
        for server in servers.servers:
            servers.stop_one(server, number=signal.SIGKILL)
        assert read(context, "heat", 1)[0] == "file"
    with pytest.raises(penstock.TimeoutError, match=r"does not answer: .*did you mean 'heat'"):
        context.open("haet", timeout=0.5)


def test_the_ranks_of_a_cohort_find_the_same(context, engine):
    with context.create("heat", timeout=TIMEOUT_S, **WORD[engine]) as stream:
        write(stream, 0)
        cohorts = penstock.thread_cohort(2)
        found = [None, None]

        def rank(number):
            found[number] = read(context, "heat", 1, comm=cohorts[number])

        ranks = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
        for each in ranks:
            each.start()
        for each in ranks:
            each.join(TIMEOUT_S)
        assert found == [(engine, [0.0])] * 2
