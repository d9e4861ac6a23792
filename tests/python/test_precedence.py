"""Where options and settings come from: code, penstock.yaml, the environment."""

import threading
import time

import penstock
import pytest

DEADLINE_S = 60


def test_options_say_where_they_came_from(tmp_path, monkeypatch, capfd):
    (tmp_path / "penstock.yaml").write_text("streams:\n  heat: {min_max: true, queue_steps: 7}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STREAMS", "spin_us=3")
    context = penstock.Context(directory=str(tmp_path / "streams"))
    with context.create("heat", queue_steps=2, rendezvous_readers=0, fixed="queue_steps") as stream:
        assert stream.options["queue_steps"] == "2"
        origins = {"queue_steps": "fixed in code", "rendezvous_readers": "code", "min_max": "penstock.yaml:2"}
        origins |= {"spin_us": "PENSTOCK_STREAMS", "when_full": "default"}
        assert {name: stream.options.origin(name) for name in origins} == origins
        assert "spin_us" in repr(stream.options) and "PENSTOCK_STREAMS" in repr(stream.options)
    assert "option=queue_steps ignored=penstock.yaml:2" in capfd.readouterr().err
    with pytest.raises(penstock.UnknownOption, match="did you mean 'queue_steps'"):
        context.create("heat", fixed="queue_step")


def test_what_code_gives_has_its_origin_whatever_the_value(tmp_path):
    context = penstock.Context(directory=str(tmp_path / "streams"))
    given = {"queue_steps": 4, "open_timeout_ms": 60_000}
    with context.create("heat", rendezvous_readers=0, **given) as stream:
        assert {name: stream.options.origin(name) for name in given} == dict.fromkeys(given, "code")
        assert stream.options.origin("when_full") == "default"


def test_the_file_is_found_once(tmp_path, monkeypatch):
    """A relative name is one in the folder where the context was made, wherever the program goes."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "penstock.yaml").write_text("streams: {heat: {queue_steps: 7}}\n")
    monkeypatch.chdir(tmp_path)
    context = penstock.Context(directory=str(tmp_path / "streams"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    with context.create("heat", rendezvous_readers=0) as stream:
        assert stream.options["queue_steps"] == "7"
        assert stream.options.origin("queue_steps") == f"{tmp_path}/penstock.yaml:1"


@pytest.mark.parametrize("listen", ["*", "10.0.0.1:80", "http://here", "all of them"])
def test_nonsense_to_listen_on_is_refused_at_once(tmp_path, monkeypatch, listen):
    monkeypatch.setenv("PENSTOCK_LISTEN", listen)
    with pytest.raises(penstock.InvalidArgument, match=r"PENSTOCK_LISTEN.*'::' for every interface"):
        penstock.Context(directory=str(tmp_path / "streams"))


def test_an_address_of_another_host_is_refused_by_the_writer(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_LISTEN", "192.0.2.1")  # of nobody
    context = penstock.Context(directory=str(tmp_path / "streams"))
    with pytest.raises(penstock.InvalidArgument, match=r"no interface of this host has it.*'::' for every interface"):
        context.create("heat", rendezvous_readers=0)


def test_what_streams_do_not_take_of_a_pool_is_named(tmp_path, monkeypatch, capfd, pool_servers):
    servers = pool_servers(1)
    (tmp_path / "penstock.yaml").write_text(
        f"pools:\n  default: {{timeout_ms: 7000, data_plane: tcp, directory: '{servers.directory}'}}\n"
    )
    monkeypatch.chdir(tmp_path)
    context = penstock.Context(directory=str(tmp_path / "streams"))
    of_clients = context.options_for_pool("default")
    assert (of_clients["timeout_ms"], of_clients.origin("timeout_ms")) == ("7000", "penstock.yaml:2")
    with context.create("heat", engine="pool", pool="default", timeout=DEADLINE_S):
        pass
    assert "pool=default options=timeout_ms,data_plane" in capfd.readouterr().err


def test_the_environment_wins_over_code(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "environment"))
    context = penstock.Context(directory=str(tmp_path / "code"))
    assert context.settings["directory"] == str(tmp_path / "environment")
    assert context.settings.origin("directory") == "PENSTOCK_DIRECTORY"
    fixed = penstock.Context(directory=str(tmp_path / "code"), fixed="directory")
    with fixed.create("heat", rendezvous_readers=0), pytest.raises(penstock.NotFound):
        context.inspect("heat")


def test_a_file_without_streams(tmp_path, monkeypatch):
    (tmp_path / "penstock.yaml").write_text("listen: 127.0.0.1\n")
    monkeypatch.chdir(tmp_path)
    context = penstock.Context(directory=str(tmp_path / "streams"))
    with context.create("heat", rendezvous_readers=0) as stream, stream.step() as step:
        step["n"] = 1


def test_a_rank_that_waits_for_rank_0_says_so(tmp_path, capfd):
    context = penstock.Context(directory=str(tmp_path / "streams"))
    begin = threading.Event()

    def write(cohort):
        with context.create("heat", comm=cohort, rendezvous_readers=0) as stream:
            if cohort.rank == 0:
                begin.wait()
            with stream.step() as step:
                step.put("T", [1.0], start=[cohort.rank], shape=[2])

    penstock._core.set_first_warning(50)
    ranks = [threading.Thread(target=write, args=(cohort,)) for cohort in penstock.thread_cohort(2)]
    try:
        for rank in ranks:
            rank.start()
        end, said = time.monotonic() + DEADLINE_S, ""
        while "waits for rank 0" not in said:
            assert time.monotonic() < end
            said += capfd.readouterr().err
    finally:
        penstock._core.set_first_warning(10_000)
        begin.set()
        for rank in ranks:
            rank.join()


def test_a_stream_that_lies_on_this_host_listens_there_only(tmp_path, monkeypatch):
    monkeypatch.delenv("PENSTOCK_LISTEN", raising=False)

    def address(**settings):
        with penstock.Context(directory=str(tmp_path / "streams"), **settings).create(
            "heat", rendezvous_readers=0
        ) as s:
            return s.address

    assert address().startswith("tcp://127.0.0.1:")
    assert address(listen="127.0.0.2").startswith("tcp://127.0.0.2:")
