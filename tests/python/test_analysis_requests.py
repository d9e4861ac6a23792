"""What an analysis asks of a simulation, on the stream that a coprocessor will read."""

import json

import penstock
import pytest
from penstock.analysis.requests import MAX_BYTES, Requests, requests_name

RULES = [{"fields": ["U"], "when": ["step", 10, "%", 0, "=="]}]


@pytest.fixture
def context(tmp_path):
    return penstock.Context(directory=tmp_path / "directory")


def newest(reader):
    """The last request that has come, waiting for one."""
    with reader.step(10) as step:
        number, text = step.number, step["request"].value
    while (step := reader.try_step()) is not None:
        with step:
            number, text = step.number, step["request"].value
    return number, json.loads(text)


def test_a_simulation_that_attaches_later_gets_the_newest(context):
    requests = Requests(context, "heat")
    requests.demand([])
    requests.demand(RULES)
    requests.steer({"F": 0.5, "on": True, "mode": "fast", "n": 3})
    with context.open(requests_name("heat")) as reader:
        _, request = newest(reader)
        assert request["rules"] == RULES and request["version"] == 1 and request["number"] == requests.number == 3
        assert request["steering"] == {"F": 0.5, "on": True, "mode": "fast", "n": 3}
        requests.close()
        with pytest.raises(penstock.EndOfStream):
            reader.step(10)


def test_what_was_sent_is_not_sent_again(context):
    requests = Requests(context, "heat")
    requests.demand(RULES)
    requests.demand(list(RULES))
    requests.steer({})
    assert requests.number == 1
    requests.close()


def test_a_simulation_that_does_not_read_stops_nobody_and_misses_nothing(context):
    requests = Requests(context, "heat")
    requests.demand(RULES)
    with context.open(requests_name("heat")) as reader:
        for i in range(100):
            requests.steer({"F": i})
        assert requests.number < 101  # the queue is full
        newest(reader)
        for _ in range(1000):
            requests.flush()
            if (step := reader.try_step(0.01)) is not None:
                with step:
                    request = json.loads(step["request"].value)
                if request["steering"] == {"F": 99}:
                    break
        else:
            pytest.fail("the newest value never came")
    requests.close()


def test_the_first_analysis_decides(context):
    first, second = Requests(context, "heat"), Requests(context, "heat")
    assert first.active and not second.active
    second.demand(RULES)
    second.steer({"F": 1})
    assert second.number == 0
    first.close()
    third = Requests(context, "heat")
    assert third.active
    third.close()
    second.close()


def test_wrong_values(context):
    requests = Requests(context, "heat")
    for value in (None, [1], b"x"):
        with pytest.raises(penstock.InvalidArgument, match="'F' is bool, int, float or str"):
            requests.steer({"F": value})
    with pytest.raises(penstock.InvalidArgument, match="longer than"):
        requests.demand([{"fields": ["x" * MAX_BYTES], "when": []}])
    requests.demand(RULES)  # what was refused is forgotten
    assert requests.number == 1
    requests.close()


def test_a_name_without_room_is_an_error(context):
    with pytest.raises(penstock.InvalidArgument, match="cannot name a stream"):
        Requests(context, "x" * 128)
