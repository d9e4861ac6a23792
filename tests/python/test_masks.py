"""Masked arrays (numpy.ma): there are no masks in Penstock, and what is masked is never put as if it were data."""

import numpy as np
import penstock
import pytest

TIMEOUT_S = 20.0
MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
WHOLE = np.ma.array([1.0, 2.0, 3.0], mask=False)


@pytest.fixture
def step(context):
    with context.create("heat", timeout=TIMEOUT_S, rendezvous_readers=0) as writer:
        step = writer.step()
        yield step
        step.abandon()


@pytest.mark.parametrize("put", [
    lambda step, value: step.__setitem__("T", value),
    lambda step, value: step.put("T", value),
    lambda step, value: step.put("T", value, lend=True),
    lambda step, value: step.put_local("T", value),
    lambda step, value: step.attributes.__setitem__("T", value),
    lambda step, value: step.put("T", [value, value.data]),
    lambda step, value: step.put_value("t", value[1]),
    lambda step, value: step.__setitem__("t", [0.0, value[1]]),
])  # fmt: skip
def test_what_is_masked_is_refused(step, put):
    with pytest.raises(penstock.InvalidArgument, match=r"'[Tt]'.* masked elements.*filled"):
        put(step, MASKED)


def test_an_array_without_masked_elements_is_an_array(context):
    with context.create("heat", timeout=TIMEOUT_S) as writer, context.open("heat", timeout=TIMEOUT_S) as reader:
        with writer.step() as step:
            step["T"] = WHOLE
            step["filled"] = MASKED.filled(-1)
            step.attributes["a"] = WHOLE
        with reader.step() as step:
            assert step["T"][:].tolist() == [1, 2, 3] and step["filled"][:].tolist() == [1, -1, 3]
            with pytest.raises(penstock.InvalidArgument, match="masked elements"):
                step["T"].read(out=MASKED.copy())


def test_an_object_of_a_pool(pool_servers, open_pool):
    pool = open_pool(pool_servers(1, http="off"))
    records = np.ma.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")], mask=[(False, True)])
    for masked in (MASKED, records):
        with pytest.raises(penstock.InvalidArgument, match="1 masked element"):
            pool.put("row", "x", masked)
        with pytest.raises(penstock.InvalidArgument, match="1 masked element"):
            pool.put_many([(("row", "x"), masked)])
    pool.put("row", "x", WHOLE)
    assert pool.get("row", "x").array().tolist() == [1, 2, 3]
