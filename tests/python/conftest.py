"""Fixtures: a context of its own for each test, writers and readers that it closes, servers of pools that it ends."""

import gc
import itertools
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import penstock
import pytest
import yaml

TIMEOUT_S = 20.0
READY_S = 60.0


@pytest.fixture
def context(tmp_path, request):
    """A context with a directory of its own. The test fails when it leaves a stream open."""
    if "plane" in request.fixturenames:
        request.getfixturevalue("plane")  # it may choose the engine by configuration
    context = penstock.Context(directory=str(tmp_path / "streams"), listen="127.0.0.1")
    yield context
    left = _open_streams(context)
    if left:
        gc.collect()  # which takes long, and streams of tests that end well are closed
        left = _open_streams(context)
    context._shut_down()
    assert not left, f"left open: {left}"


@pytest.fixture
def file_engine():
    # Beside the library that this process has loaded: in the package, or in the build folder.
    maps = Path("/proc/self/maps").read_text().splitlines()
    library = next(Path(line.split(maxsplit=5)[5]) for line in maps if "/libpenstock.so" in line)
    if not library.with_name("libpenstock_file.so").exists():
        pytest.skip("Penstock was built without HDF5: there is no engine `file`")


def _open_streams(context):
    return [stream for stream in context._streams if not stream.closed]


# The engine and the data plane of each column of the scenario table; automatic for an engine without planes.
PLACES = {
    "shm": ("direct", "shm"),
    "tcp": ("direct", "tcp"),
    "pool_shm": ("pool", "shm"),
    "pool_tcp": ("pool", "tcp"),
    "insitu": ("insitu", "automatic"),
    "file": ("file", "automatic"),
    "space": ("space", "automatic"),
}


def _holes():
    """(test, engine) where the contract of an engine differs: tests/conformance/scenarios.yaml says why."""
    sections = yaml.safe_load((Path(__file__).parents[1] / "conformance" / "scenarios.yaml").read_text())
    rows = [row for section in sections for row in section["rows"]]
    return {(f"test_{row['id']}", engine) for row in rows for engine in row.get("not_in", ())}


def _engine_of(item):
    """The engine whose own scenarios the test's file has, else None."""
    engine = item.path.stem.removeprefix("test_scenarios_")
    return engine if engine in {engine for engine, _ in PLACES.values()} else None


def pytest_collection_modifyitems(config, items):
    """Only scenarios run over other engines than direct: those of test_scenarios_ENGINE.py over that engine, instead of
    others of the same name; and the others where scenarios.yaml does not exclude them."""
    holes = _holes()
    own = {(item.originalname, engine) for item in items if (engine := _engine_of(item))}

    def leave_out(item):
        place = getattr(item, "callspec", None) and item.callspec.params.get("plane")
        if place not in PLACES:  # no scenario: some tests name planes themselves
            return False
        engine = PLACES[place][0]
        if mine := _engine_of(item):
            return engine != mine
        if engine == "direct":
            return False
        return not item.path.name.startswith("test_scenarios") or (item.originalname, engine) in holes | own

    left_out = [item for item in items if leave_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(params=PLACES)
def plane(request, tmp_path, monkeypatch):
    """The data plane to run over. Configuration chooses the engine of the test's streams; a pool has a server of its
    own."""
    engine, plane = PLACES[request.param]
    if engine != "direct":
        configuration = tmp_path / "engine.yaml"
        configuration.write_text(f'streams: {{"*": {{engine: {engine}}}}}\n')
        monkeypatch.setenv("PENSTOCK_CONFIG", str(configuration))
    if engine == "file":
        monkeypatch.chdir(tmp_path)  # where folders of steps are made
    if engine in ("pool", "space"):
        monkeypatch.setenv("PENSTOCK_DIRECTORY_SERVICE", request.getfixturevalue("engine_servers").directory)
    return plane


@pytest.fixture
def engine_servers(pool_servers):
    """The servers of the pool of a test of engine `pool` or `space`."""
    return pool_servers(1, memory="512MiB", http="off")


@pytest.fixture
def engine(request):
    """The engine of this test's streams."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    return PLACES[params["plane"]][0] if "plane" in params else "direct"  # some files have a plane of their own


@pytest.fixture
def readers(context, engine, tmp_path):
    """The context of readers to whom nobody says the engine: they find the stream. That of a space has to be told."""
    if engine == "space":
        yield context
        return
    nothing = tmp_path / "readers.yaml"
    nothing.write_text("streams: {}\n")
    readers = penstock.Context(directory=str(tmp_path / "streams"), listen="127.0.0.1", config_file=str(nothing))
    yield readers
    readers._shut_down()


@pytest.fixture
def pair(context, plane, readers):
    """pair(**options) opens a writer and a reader of it over the data plane, each with the options that it takes; both
    are closed with the test."""
    opened = []

    def open_pair(name="heat", **options):
        of_readers = {key: options.pop(key) for key in ("delivery", "group", "start") if key in options}
        writer = context.create(name, timeout=TIMEOUT_S, **options)
        opened.append(writer)
        reader = readers.open(name, timeout=TIMEOUT_S, data_plane=plane, **of_readers)
        opened.append(reader)
        return writer, reader

    yield open_pair
    for stream in reversed(opened):
        stream.close()


@pytest.fixture
def hand_over(pair):
    """hand_over(fill) writes one step, which fill(step) fills, and returns it as its reader sees it."""
    streams = []

    def send(fill, **options):
        if not streams:
            streams.extend(pair(**options))
        writer, reader = streams
        if reader._step is not None:
            reader._step.end()
        with writer.step() as step:
            fill(step)
        received = reader.step()
        assert received.number == step.number
        return received

    yield send


@pytest.fixture
def cohorts(context, plane, readers):
    """cohorts(m, n, write, read): write(stream) on each of m threads, the ranks of a writer, read(stream) on n."""

    numbers = itertools.count()

    def run(m, n, write, read, **options):
        name = f"s{next(numbers)}"  # another each time: a pool would give the readers the last one

        def rank_of_writer(cohort):
            with context.create(name, comm=cohort, timeout=TIMEOUT_S, data_plane=plane, **options) as stream:
                write(stream)

        def rank_of_reader(cohort):
            with readers.open(name, comm=cohort, timeout=TIMEOUT_S, data_plane=plane) as stream:
                read(stream)

        def team(size):
            return penstock.thread_cohort(size) if size > 1 else [None]

        with ThreadPoolExecutor(m + n) as pool:
            tasks = [pool.submit(rank_of_writer, cohort) for cohort in team(m)]
            tasks += [pool.submit(rank_of_reader, cohort) for cohort in team(n)]
            for task in tasks:
                task.result(3 * TIMEOUT_S)

    return run


def _use_built_programs(patch):
    if "PENSTOCK_BIN" not in os.environ:
        build = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build"))
        patch.setenv("PENSTOCK_BIN", str(build / "bin"))


@pytest.fixture
def pool_servers(tmp_path_factory, monkeypatch):
    """pool_servers(n, **options) starts n penstock-server processes, waits until they are ready, and returns a running
    pool (PoolServers); exactly these processes are ended with the test. start=False: the test starts each (start_one).
    disk=True gives them folders that outlive them; `name`, `memory`, `replication`, `tier`, `directory`, `registration`
    are PoolPlan's, anything else is a key of penstock-server.
    """
    from penstock.workflow.servers import PoolServers
    from penstock.workflow.study import PoolPlan

    _use_built_programs(monkeypatch)
    running = []

    def start(n=1, *, disk=False, start=True, wait=True, **options):
        folder = tmp_path_factory.mktemp("pool")
        plan = {key: options.pop(key) for key in list(options) if key in PoolPlan.__dataclass_fields__}
        chosen = {"listen": "127.0.0.1", "log": "info", **{key: str(value) for key, value in options.items()}}
        if disk is not False:
            plan["disk"] = folder / "disk" if disk is True else Path(disk)
        plan.setdefault("memory", "64MiB")
        servers = PoolServers(PoolPlan(servers=n, options=chosen, **plan), logs=folder, folder=folder / "own")
        running.append(servers)
        if not start:
            servers.prepare()
            return servers
        servers.start()
        if wait:
            servers.wait_ready(READY_S)
        return servers

    yield start
    for servers in running:
        servers.stop()


@pytest.fixture
def open_pool(context):
    """open_pool(servers, **options) opens a client of a running pool; it is closed with the test."""
    opened = []

    def open_client(servers, name="", **options):
        options.setdefault("timeout", TIMEOUT_S)
        options.setdefault("directory", servers.directory)
        pool = penstock.Pool(name, context=context, **options)
        opened.append(pool)
        return pool

    yield open_client
    for pool in opened:
        pool.close()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two servers for the tests that break nothing; each test has a namespace of its own."""
    from penstock.workflow.servers import PoolServers
    from penstock.workflow.study import PoolPlan

    folder = tmp_path_factory.mktemp("two")
    plan = PoolPlan(servers=2, memory="64MiB", replication=2, options={"listen": "127.0.0.1", "log": "info"})
    with pytest.MonkeyPatch.context() as patch:
        _use_built_programs(patch)
        with PoolServers(plan, logs=folder, folder=folder / "own") as servers:
            servers.wait_ready(READY_S)
            yield servers
            assert not servers.ended()


_namespaces = itertools.count()


@pytest.fixture
def pool(two, open_pool):
    return open_pool(two, ns=f"test {next(_namespaces)}")


@pytest.fixture
def open_space(context):
    """open_space(servers, **options) opens a client of the arrays in a running pool; it is closed with the test."""
    opened = []

    def open_client(servers, **options):
        space = penstock.Space(context=context, directory=servers.directory, **{"timeout": TIMEOUT_S} | options)
        opened.append(space)
        return space

    yield open_client
    for space in opened:
        space.close()


@pytest.fixture
def space(pool_servers, open_space):
    return open_space(pool_servers(2))


@pytest.fixture(scope="session")
def tiled_library(tmp_path_factory):
    """The example of a plug-in for layouts, built with the header alone."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or pytest.skip("needs a C compiler")
    root = Path(__file__).parents[2]
    library = tmp_path_factory.mktemp("layouts") / "layout_tiled.so"
    source = root / "examples" / "layouts" / "tiled.c"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-I", root / "include", source, "-o", library], check=True, timeout=60
    )
    return library
