"""penstock.Coprocessor: fields of any layout, demands, steering, an analysis on a thread of this interpreter."""

import itertools
import json
import math
import random
import sys
import threading
import time
import types
from contextlib import closing

import numpy as np
import penstock
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.analysis.expressions import _WORDS, MAX_WORDS, run_program
from penstock.analysis.requests import Requests

TIMEOUT_S = 20.0


@pytest.fixture
def coprocessor(context):
    """coprocessor(**options): of the channel "heat", which nobody is waited for on; finalized with the test."""
    made = []

    def make(**options):
        options = {"engine": "insitu", "rendezvous_readers": 0, "timeout": TIMEOUT_S} | options
        made.append(penstock.Coprocessor("heat", context=context, **options))
        return made[-1]

    yield make
    for each in made:
        if not each.closed:
            each.finalize()


@pytest.fixture
def requests(context):
    """requests(rules, **steering) sends a request on heat.requests and returns its number."""
    options = {"rendezvous_readers": 0, "reserve_steps": 1, "queue_steps": 8, "when_full": "discard_newest"}
    numbers = []
    with context.create("heat.requests", timeout=TIMEOUT_S, **options) as stream:

        def send(rules, **steering):
            numbers.append(len(numbers) + 1)
            request = {"version": 1, "number": numbers[-1], "rules": rules, "steering": steering}
            with stream.step() as step:
                step["request"] = json.dumps(request)
            return numbers[-1]

        yield send


def watch(context, look):
    reader = context.open("heat", engine="insitu", timeout=TIMEOUT_S)
    reader.on_step(look, on_error="raise")
    return reader


def until_demand(coprocessor, number, cycle=1):
    end = time.monotonic() + TIMEOUT_S
    while coprocessor.statistics.demand_number != number:
        assert time.monotonic() < end
        step = coprocessor.request(cycle, 0.0)
        if step is not None:
            step.abandon()


def test_fields_reach_the_analysis_without_a_copy(coprocessor, context):
    c = coprocessor()
    whole = np.arange(6.0 * 5 * 4).reshape(6, 5, 4)
    T = whole[1:-1, 1:-1, 1:-1]
    v = np.asfortranarray(np.random.default_rng(1).random((3, 2, 1, 3), dtype=np.float32))
    c.mesh("grid", "uniform", shape=T.shape, axes="zyx", spacing=np.array([1, 2, 3]))
    c.field("grid", "T", units="K")
    c.field("grid", "v", np.float32, association="element", components=3)
    seen = []

    def look(step):
        view = step["T"].view()
        assert view.__array_interface__["data"][0] == T.__array_interface__["data"][0]
        assert np.array_equal(view, T)
        assert np.array_equal(step["v"][...], v)
        meshes = json.loads(step.attributes["meshes"])["meshes"]
        assert meshes["grid"]["spacing"] == [1, 2, 3]
        assert meshes["grid"]["fields"]["v"] == {"association": "element", "variables": ["v"], "components": 3}
        seen.append((step.attributes["cycle"], step.attributes["time"], step.attributes["title"]))

    with watch(context, look):
        c.attributes["title"] = "a test"
        for cycle in range(3):
            with c.request(cycle, cycle / 2) as step:
                assert step.wants("T") and step.wants("grid/v")
                step.put("T", T, lend=True)
                step["grid/v"] = v
        assert seen == [(0, 0.0, "a test"), (1, 0.5, "a test"), (2, 1.0, "a test")]
    assert c.statistics.steps == 3
    assert c.finalize() == 0
    with pytest.raises(penstock.WrongState):
        c.request(3, 1.5)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    steps=st.lists(st.sampled_from([1, 2, -1, -2]), min_size=3, max_size=3),
    order=st.permutations(range(3)),
    lend=st.booleans(),
    cut=st.integers(0, 5),
)
def test_arrays_of_any_layout(tmp_path_factory, shape, steps, order, lend, cut):
    """Against NumPy: transposed, reversed, strided arrays, in two blocks."""
    axes = [axis for axis in order if axis < len(shape)]
    grown = [shape[axis] * abs(steps[axis]) for axis in axes]
    base = np.random.default_rng(len(shape)).random(grown)
    array = base.transpose(np.argsort(axes))[tuple(slice(None, None, step) for step in steps[: len(shape)])]
    array = array[tuple(slice(size) for size in shape)]
    assert list(array.shape) == shape
    cut = min(cut, shape[0])
    context = penstock.Context(directory=str(tmp_path_factory.mktemp("streams")), listen="127.0.0.1")
    got = []
    with penstock.Coprocessor("heat", context=context, engine="insitu", rendezvous_readers=0) as c:
        c.mesh("grid", "uniform", shape=shape)
        c.field("grid", "T")
        with watch(context, lambda step: got.append(step["T"][...])), c.request(0, 0) as step:
            step.put("T", array[:cut], lend=lend)
            step.put("T", array[cut:], start=[cut] + [0] * (len(shape) - 1), lend=lend)
    assert np.array_equal(got[0], array)


def test_the_demand_and_steering(coprocessor, requests):
    c = coprocessor()
    c.mesh("grid", "uniform", shape=[4])
    c.field("grid", "T")
    c.field("grid", "p")
    c.declare("F", 0.5, 0, 1)
    c.declare("n", np.int32(3), least=1)
    c.declare("on", False)
    c.declare("name", "red")
    rule = {"fields": ["T"], "when": ["step", 10, "%", 0, "=="]}
    until_demand(c, requests([rule], F=0.25, n=0, on=True, name="blue", G=1))
    assert [c.value(name) for name in ("F", "n", "on", "name")] == [0.25, 3, True, "blue"]
    with pytest.raises(penstock.NotFound, match="did you mean 'name'"):
        c.value("nme")
    published = []
    for cycle in range(25):
        if step := c.request(cycle, 0.0):
            with step:
                assert step.wants("T") and not step.wants("p")
                step["p"] = "not even looked at"
                assert step.span("p", [4]) is None
                span = step.span("T", [4])
                span[:] = cycle
            published.append(cycle)
            with pytest.raises(ValueError):
                span[0] = 1  # the step is over
    assert published == [0, 10, 20]
    assert c.statistics.skipped_trigger >= 22
    assert c.statistics.demands_refused == 0


def test_what_an_analysis_steers_is_in_force_at_the_next_step_and_acknowledged(coprocessor, context):
    """Between the writer of requests of penstock.analysis and a simulation."""
    c = coprocessor(engine="direct")
    c.mesh("grid", "uniform", shape=[4])
    c.field("grid", "T")
    c.declare("F", 0.5, 0, 1)
    c.declare("n", 3, 1, 9)
    c.declare("on", False)
    c.declare("mode", "slow")
    values = lambda: {name: c.value(name) for name in ("F", "n", "on", "mode")}  # noqa: E731
    answers, initial = [], values()
    with closing(Requests(context, "heat")) as requests, context.open("heat", timeout=TIMEOUT_S) as reader:

        def after(ask):
            """The values that the simulation has once it applied the request, and the answer of that very step."""
            ask()
            end = time.monotonic() + TIMEOUT_S
            while True:
                before = values()
                with c.request(len(answers), 0.0) as step:
                    step["T"] = np.zeros(4)
                with reader.step() as step:
                    answers.append(json.loads(step.attributes["coprocessing"]))
                if answers[-1]["number"] == requests.number:
                    return values(), answers[-1]
                assert values() == before
                assert time.monotonic() < end

        steered = {"F": 0.25, "n": 7, "on": True, "mode": "fast"}
        now, answer = after(lambda: requests.demand([{"fields": None, "when": [1]}]) or requests.steer(steered))
        assert now == steered == answer["steering"] and "refused" not in answer
        assert answer["parameters"]["n"] == {"type": "integer", "default": initial["n"], "min": 1, "max": 9}
        now, answer = after(lambda: requests.steer({"F": 1.5, "n": 2.5, "on": "yes", "G": 1}))
        assert now == steered == answer["steering"]
        assert sorted(answer["refused"]) == ["F", "G", "n", "on"]
        assert answer["refused"]["F"] == "1.5 is greater than 1"
        now, answer = after(lambda: requests.steer({f"{i}" * 5000: i for i in range(40)} | {"F": 0.75}))
        assert now == steered | {"F": 0.75} and len(json.dumps(answer)) < 4000
        with pytest.raises(penstock.InvalidArgument, match="finite"):
            requests.steer({"F": math.nan})
        with pytest.raises(penstock.InvalidArgument, match="at most 256 rules"):
            requests.demand([{"fields": None, "when": [1]}] * 257)
    assert c.statistics.demands_refused == 0


def random_program(random, depth):
    """Words that leave one value."""
    if depth == 0 or random.random() < 0.15:
        numbers = [0, 1, 2, 3, 7, 10, -2, -3, 0.1, 0.5, -0.7, 1e300, random.randint(-50, 50)]
        return [random.choice(["step", "time", "step", "maybe", random.choice(numbers)])]
    word = random.choice(sorted(_WORDS))
    operands = (random_program(random, depth - 1) for _ in range(_WORDS[word][1]))
    return [*itertools.chain.from_iterable(operands), word]


def test_the_coprocessor_evaluates_programs_as_the_analysis_does(coprocessor, context):
    """Each program is the rule of a field of its own."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)
    programs = [random_program(source, source.randint(1, 5)) for _ in range(250)]
    programs = [program for program in programs if len(program) <= MAX_WORDS]
    c = coprocessor()
    c.mesh("grid", "uniform", shape=[1])
    for i in range(len(programs)):
        c.field("grid", f"f{i}")
    with closing(Requests(context, "heat")) as requests:
        requests.demand([{"fields": [f"f{i}"], "when": program} for i, program in enumerate(programs)])
        until_demand(c, requests.number)
    for _ in range(100):
        step = source.choice([0, 1, 10, source.randrange(1000), -source.randrange(1000), 2**53])
        now = source.choice([0.0, 0.1 * source.randrange(100), -2.5, 1e-300, 1e200])
        published = c.request(step, now)
        held = [published is not None and published.wants(f"f{i}") for i in range(len(programs))]
        assert held == [run_program(program, step, now) for program in programs], (step, now)
        if published is not None:
            published.abandon()


def test_wrong_calls_are_named(coprocessor):
    c = coprocessor()
    with pytest.raises(penstock.InvalidArgument, match="has no 'shap'"):
        c.mesh("grid", "uniform", shap=[4])
    with pytest.raises(penstock.InvalidArgument, match="no type of meshes"):
        c.mesh("grid", "unifrom", shape=[4])
    with pytest.raises(penstock.InvalidArgument, match="wrong type"):
        c.mesh("grid", "uniform", shape="much")
    with pytest.raises(penstock.NotFound):
        c.field("grid", "T")
    c.mesh("grid", "uniform", shape=[4])
    c.field("grid", "T")
    for wrong in ({"association": "cell"}, {"order": "C"}, {"components": 0}):
        with pytest.raises((penstock.InvalidArgument, TypeError)):
            c.field("grid", "q", **wrong)
    with pytest.raises(penstock.InvalidArgument, match="only numbers have bounds"):
        c.declare("on", True, 0, 1)
    with pytest.raises(penstock.InvalidArgument, match="not list"):
        c.declare("list", [1])
    with pytest.raises(penstock.InvalidArgument):
        c.declare("x", 5, 6, 7)
    step = c.request(0, 0.0)
    with pytest.raises(penstock.InvalidArgument, match="is of float64, not of float32"):
        step.put("T", np.zeros(4, np.float32))
    with pytest.raises(penstock.NotFound, match="no field 't'; it has T, grid/T"):
        step.put("t", np.zeros(4))
    with pytest.raises(penstock.InvalidArgument):
        step.put("T", np.zeros(5))
    with pytest.raises(penstock.WrongState):
        c.request(1, 0.0)
    step.abandon()
    with pytest.raises(penstock.WrongState):
        step.put("T", np.zeros(4))
    with pytest.raises(penstock.UnknownOption):
        coprocessor(evry=3)
    with pytest.raises(penstock.InvalidArgument):
        coprocessor(wait="sometimes")


def test_an_exception_tells_readers_that_the_writer_is_lost(context):
    reader = None
    with pytest.raises(ZeroDivisionError), penstock.Coprocessor("heat", context=context, timeout=TIMEOUT_S) as c:
        reader = context.open("heat", timeout=TIMEOUT_S)
        c.mesh("grid", "uniform", shape=[4])
        c.field("grid", "T")
        with c.request(0, 0.0) as step:
            step["T"] = np.zeros(4)
        with c.request(1, 0.0):
            raise ZeroDivisionError
    with reader:
        assert reader.step().attributes["cycle"] == 0
        with pytest.raises(penstock.WriterLost):
            reader.step()


@pytest.fixture
def stand_in(monkeypatch):
    """stand_in(main): what penstock.analysis.__main__ has for main."""

    def put(main):
        package, module = types.ModuleType("penstock.analysis"), types.ModuleType("penstock.analysis.__main__")
        package.__path__ = []
        module.main = main
        monkeypatch.setitem(sys.modules, package.__name__, package)
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return put


def test_an_analysis_on_a_thread_of_this_interpreter(context, stand_in):
    given_to, seen = [], []

    def main(words):
        given_to.extend(words)
        options = {"rendezvous_readers": 0, "reserve_steps": 1, "when_full": "discard_newest"}
        with context.create("heat.requests", **options) as requests:
            with requests.step() as step:
                rules = [{"fields": ["T"], "when": ["step", 2, "%", 0, "=="]}]
                step["request"] = json.dumps({"version": 1, "number": 1, "rules": rules})
            with context.open("heat", engine="insitu", timeout=TIMEOUT_S) as stream:
                for step in stream:
                    assert threading.current_thread() is not threading.main_thread()
                    seen.append((step.attributes["cycle"], step["T"][...].tolist()))
        return 5

    stand_in(main)
    with penstock.Coprocessor(
        "heat", context=context, engine="insitu", timeout=TIMEOUT_S, pipelines=["a.yaml", "b c.yaml"]
    ) as c:
        c.mesh("grid", "uniform", shape=[2])
        c.field("grid", "T")
        for cycle in range(5):
            if step := c.request(cycle, 0.0):  # the first one waits for the analysis
                step.put("T", np.full(2, float(cycle)), lend=True)
                step.coprocess()
        assert c.finalize() == 5
    assert given_to == ["a.yaml", "b c.yaml", "--channel", "heat", "--output", "output", "--rank", "0", "--size", "1"]
    assert seen == [(0, [0.0, 0.0]), (2, [2.0, 2.0]), (4, [4.0, 4.0])]


def test_an_analysis_that_fails_is_named(context, stand_in, capsys):
    def main(words):
        raise ValueError("no such pipeline")

    stand_in(main)
    with penstock.Coprocessor("heat", context=context, engine="insitu", timeout=TIMEOUT_S) as c:
        c.add_pipeline("a.yaml")
        c.mesh("grid", "uniform", shape=[2])
        with pytest.raises(penstock.PeerLost, match="ended with status 1 before its first request"):
            c.request(0, 0.0)
        assert "no such pipeline" in capsys.readouterr().err
        assert c.finalize() == 1


def test_ranks_decide_alike(context, requests):
    """Threads as ranks; rank 0 hears the requests."""
    ranks = 3
    published = [[] for _ in range(ranks)]
    requests([{"fields": None, "when": ["step", 3, "%", 1, "=="]}])

    def run(cohort):
        with penstock.Coprocessor(
            "heat", comm=cohort, context=context, rendezvous_readers=0, timeout=TIMEOUT_S, wait="drop"
        ) as c:
            c.mesh("grid", "uniform", shape=[ranks, 4])
            c.field("grid", "T")
            until_demand(c, 1, cycle=0)
            for cycle in range(12):
                if step := c.request(cycle, 0.0):
                    with step:
                        step.put("T", np.full((1, 4), cohort.rank, float), start=[cohort.rank, 0])
                    published[cohort.rank].append(cycle)

    threads = [threading.Thread(target=run, args=(cohort,)) for cohort in penstock.thread_cohort(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert published == [[1, 4, 7, 10]] * ranks
