"""Streams recorded, and written and read again with the same outcomes: every call, cohorts, writers that are lost."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import penstock
import pytest

ROWS, COLUMNS, STEPS = 64, 32, 5
PATIENCE_S = 60


@pytest.fixture(params=["direct", "pool"])
def engine(request):
    return request.param


of_direct_streams = pytest.mark.parametrize("engine", ["direct"], indirect=True)


@pytest.fixture
def traces(tmp_path):
    return tmp_path / "traces"


@pytest.fixture
def streams(context, traces, engine, pool_servers, monkeypatch):
    """create and open with trace=, and again(): the recording replayed, which must end as it was recorded."""
    if engine == "pool":
        servers = pool_servers(1, memory="256MiB", http="off")
        monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    return Streams(context, traces, engine)


class Streams:
    def __init__(self, context, traces, engine):
        self.context, self.traces = context, traces
        self.options = {"engine": engine, "timeout": PATIENCE_S, "trace": str(traces)}

    def create(self, name="heat", **more):
        return self.context.create(name, **self.options | more)

    def open(self, name="heat", **more):
        return self.context.open(name, **self.options | more)

    @property
    def recording(self):
        return penstock.Recording(self.traces)

    def errors(self):
        return {verb["verb"]: verb["errors"] for verb in self.recording.summary()["verbs"]}

    def operations(self):
        return {verb["verb"]: verb["operations"] for verb in self.recording.summary()["verbs"]}

    def again(self, speed=0.0, clients=1, **more):
        recording = self.recording
        report = recording.replay(speed=speed, clients=clients, context=self.context, **more)
        assert report["same"] == report["operations"] == len(recording) * clients, report["differences"]
        return report


def side_by_side(*sides):
    with ThreadPoolExecutor(len(sides)) as threads:
        for task in [threads.submit(side) for side in sides]:
            task.result(3 * PATIENCE_S)


def ranks(size, rank):
    """What the threads of a cohort do: rank(cohort) each."""
    return [lambda cohort=cohort: rank(cohort) for cohort in penstock.thread_cohort(size)]


def write_vectors(stream, steps=2):
    for number in range(steps):
        with stream.step() as step:
            step["x"] = np.full(1000, float(number))


def read_vectors(stream):
    numbers = []
    for step in stream:
        assert step["x"][:].shape == (1000,)
        numbers.append(step.number)
    return numbers


def write_everything(streams, cohort):
    rank = cohort.rank
    with streams.create(comm=cohort) as stream:
        stream.define("T", float, (ROWS, COLUMNS))
        stream.define("U", np.float32, (ROWS, COLUMNS), min_max=True)
        with pytest.raises(penstock.InvalidArgument):
            stream.define("T", int, (1,))
        stream.attributes["title"] = "a run"
        for number in range(STEPS):
            with stream.step() as step:
                start = (rank * ROWS // 2, 0)
                step.put("T", np.full((ROWS // 2, COLUMNS), float(rank)), start=start, shape=(ROWS, COLUMNS))
                columns = COLUMNS if number < 3 else COLUMNS // 2
                if number == 3:
                    step.set_shape("U", (ROWS, columns))
                step.put("U", np.ones((ROWS // 2, columns), np.float32), start=start)
                step.put_local("particles", np.full(number + rank, 7))
                if rank == 0:
                    step["value"] = 2.5
                    step["name"] = f"step {number}"
                step.attributes["t"] = 0.1 * number


def read_everything(streams):
    with streams.open() as stream:
        for step in stream:
            variable = step["T"]
            assert variable[:][ROWS // 2, 0] == 1
            assert variable[30:34].shape == (4, COLUMNS) and variable[::2, 3:9].shape == (ROWS // 2, 6)
            assert variable.points([(0, 0), (1, 1), (63, 31)]).tolist() == [0, 0, 1]
            assert len(step["U"].views()) == 2
            assert str(step["name"][...]) == f"step {step.number}"


def test_writers_and_readers(streams, engine):
    side_by_side(*ranks(2, lambda cohort: write_everything(streams, cohort)), lambda: read_everything(streams))
    operations, errors = streams.operations(), streams.errors()
    assert operations["write_end"] == 2 * STEPS and operations["read_end"] == STEPS
    assert errors["write_define"] == {"invalid_argument": 2} and errors["read_begin"]["end_of_stream"] == 1
    (cohort,) = {line["cohort"] for line in streams.recording if line["verb"] == "write_open"}
    assert {line["cohort"] for line in streams.recording if line["verb"] == "read_open"} != {cohort}
    for speed, clients in ((0, 1), (1, 1), (0, 3)):
        streams.again(speed, clients)
    report = streams.again(keep=True)
    assert len(report["streams"]) == (engine == "pool")
    for name in report["streams"]:
        with streams.context.open(name, engine="pool", trace="off") as stream:
            assert len(stream.steps) == STEPS


def test_a_writer_that_is_lost(streams):
    begun, failed = threading.Event(), threading.Event()

    def write():
        with pytest.raises(RuntimeError), streams.create() as stream:
            write_vectors(stream)
            begun.wait(PATIENCE_S)
            raise RuntimeError("the simulation fails")
        failed.set()

    def read():
        with streams.open() as stream:
            for _ in range(2):
                stream.step().end()
            begun.set()
            failed.wait(PATIENCE_S)
            with pytest.raises(penstock.WriterLost):
                stream.step()

    side_by_side(write, read)
    assert streams.errors()["read_begin"] == {"writer_lost": 1}
    streams.again()


def test_what_is_not_asked_for_is_not_recorded(streams, traces, tmp_path):
    def hand_over(**more):
        def read():
            with streams.open(**more) as stream:
                assert read_vectors(stream) == [0, 1]

        def write():
            with streams.create(**more) as stream:
                write_vectors(stream)

        side_by_side(write, read)

    hand_over(trace="off")
    assert not traces.exists()
    (tmp_path / "file").write_text("no folder")
    hand_over(name="other", trace=str(tmp_path / "file" / "one.trace"))  # logged; the stream goes on


@of_direct_streams  # one in a pool is opened by its name
def test_a_stream_found_by_its_address(streams, tmp_path):
    """What is recorded of it does not tell its token."""
    elsewhere = penstock.Context(directory=str(tmp_path / "elsewhere"), listen="127.0.0.1")
    addresses, found = [], threading.Event()

    def write():
        with streams.create() as stream:
            addresses.append(stream.address)
            found.set()
            write_vectors(stream)

    def read():
        found.wait(PATIENCE_S)
        with elsewhere.open(addresses[0], **streams.options) as stream:
            assert read_vectors(stream) == [0, 1]

    side_by_side(write, read)
    elsewhere._shut_down()
    token = addresses[0].partition("token=")[2]
    assert token and not any(token.encode() in path.read_bytes() for path in streams.traces.iterdir())
    streams.again()


@of_direct_streams  # of one in a pool: below
def test_a_stream_whose_writer_was_not_recorded(streams):
    def read():
        with streams.open() as stream:
            read_vectors(stream)

    def write():
        with streams.create(trace="off") as stream:
            write_vectors(stream)

    side_by_side(write, read)
    with pytest.raises(penstock.InvalidArgument, match="reads stream heat, and nobody has recorded its writer"):
        streams.recording.replay(speed=0, context=streams.context)


# ------------------------------------------------------------------------------------------------- in pools only


@pytest.fixture
def kept(request, context, traces, pool_servers, monkeypatch):
    servers = pool_servers(1, memory="256MiB", http="off")
    monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", servers.directory)
    return Streams(context, traces, "pool")


def test_looks_in_vain_and_steps_again(kept):
    writer = kept.create()
    with kept.open() as reader:
        assert reader.try_step() is None and reader.try_step() is None  # two at once are one
        assert reader.steps == []
        write_vectors(writer)
        writer.close()
        assert read_vectors(reader) == [0, 1] and reader.steps == [0, 1]
        with reader[1] as step:
            assert step["x"][0] == 1
    assert kept.errors()["read_begin"]["timeout"] == 1
    kept.again()


def test_a_stream_that_was_there_before(kept):
    """It is written first: the steps that were read."""
    with kept.create(trace="off") as stream:
        write_vectors(stream, 4)
    with kept.open(start="1") as stream:
        assert read_vectors(stream) == [1, 2, 3]
    kept.again()


class Telling:
    """A rank that says when its first collective call is under way."""

    def __init__(self, cohort, began):
        self.rank, self.size = cohort.rank, cohort.size
        self._cohort, self._began = cohort, began

    def broadcast(self, data, root):
        self._began.set()
        return self._cohort.broadcast(data, root)

    def gather(self, data, root):
        self._began.set()
        return self._cohort.gather(data, root)


def test_cohorts_that_open_at_once_are_not_mixed(kept):
    """Of two cohorts of equal size: rank 0 of the first opens, then both of the second, then rank 1 of the first."""
    with kept.create() as stream:
        write_vectors(stream, 5)
    began, opened = threading.Event(), threading.Barrier(3, timeout=PATIENCE_S)

    def first(cohort):
        if cohort.rank == 1:
            opened.wait()
        with kept.open(comm=Telling(cohort, began) if cohort.rank == 0 else cohort) as stream:
            assert read_vectors(stream) == list(range(5))

    def second(cohort):
        began.wait(PATIENCE_S)
        with kept.open(comm=cohort, start="3") as stream:
            opened.wait()
            assert read_vectors(stream) == [3, 4]

    side_by_side(*ranks(2, first), *ranks(2, second))
    assert kept.operations()["read_end"] == 2 * 5 + 2 * 2
    kept.again()


def test_names_of_copies_have_a_bound(kept):
    for last in "ab":
        with kept.create("n" * 127 + last) as stream:
            write_vectors(stream)
    assert len(kept.again(keep=True)["streams"]) == 2


def far_reader(kept, monkeypatch, last):
    """The recording of one who read steps 0 and `last` of a stream that nobody wrote."""
    with kept.create(trace="off") as stream:
        write_vectors(stream)
    with kept.open() as stream:
        read_vectors(stream)
    recording = kept.recording
    for item in recording._timeline.items:
        if item.record.version == 1 and not item.record.opens:
            item.record.version = last
    return recording


def test_what_is_written_first_has_a_bound(kept, monkeypatch):
    recording = far_reader(kept, monkeypatch, 1_000_000_000)
    with pytest.raises(penstock.InvalidArgument, match="100000 at most"):
        recording.replay(speed=0, context=kept.context)


def test_what_is_written_first_ends_with_the_deadline(kept, monkeypatch):
    recording = far_reader(kept, monkeypatch, 99_999)
    report = recording.replay(speed=0, context=kept.context, timeout=0.2)
    assert report["stopped"] and report["operations"] == 0
