"""Subscriptions to the objects of a pool, over real servers."""

import contextlib
import itertools
import threading
import time

import penstock
import pytest

TIMEOUT_S = 20.0
SOON_S = 0.3  # within which what must not happen has not happened


@pytest.fixture
def other(two, open_pool, pool):
    """Another client, in the same namespace."""
    return open_pool(two, ns=pool._options["ns"])


def test_subscriptions(pool, other):
    pool.put("news", "before", b"")
    with other.subscribe("news", existing=True) as events, other.subscribe("news", "[bd]*") as fresh:
        first = events.next(TIMEOUT_S)
        assert (first.what, first.info.column) == ("put", "before")
        # Subscribing is known to a server once it has told of something, so this one is put until it is heard of.
        for number in itertools.count():
            pool.put("news", f"during {number}", b"12345")
            try:
                event = fresh.next(SOON_S)
                break
            except penstock.TimeoutError:
                assert number < 50
        assert (event.what, event.info.bytes) == ("put", 5)
        pool.drop("news", "before")
        seen = []
        while not seen or seen[-1].what == "put":
            seen.append(events.next(TIMEOUT_S))
        assert (seen[-1].what, seen[-1].info.column) == ("dropped", "before")
        assert events.lost == 0


@pytest.mark.parametrize("closes", ["subscription", "pool"])
def test_the_end_of_a_subscription_ends_its_iteration_in_another_thread(closes, pool):
    pool.put("row", "first", b"")
    events = pool.subscribe("row", existing=True)
    taken, seen = threading.Event(), []

    def take():
        for event in events:
            seen.append(event.info.column)
            taken.set()

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    assert taken.wait(TIMEOUT_S)
    (events if closes == "subscription" else pool).close()
    taker.join(TIMEOUT_S)
    assert not taker.is_alive() and seen == ["first"] and list(events) == []
    with pytest.raises(penstock.WrongState, match="the subscription is closed"):
        events.next(TIMEOUT_S)


def test_a_client_may_open_any_number_of_subscriptions_in_turn(pool_servers, open_pool):
    pool = open_pool(pool_servers(1, max_subscriptions=100))
    for number in range(1100):
        pool.put(f"k{number}", "c", b"x")
        with pool.subscribe(f"k{number}", existing=True) as events:
            assert events.next(TIMEOUT_S).info.row == f"k{number}"


def test_a_subscription_that_a_server_refuses_says_so_and_goes_on_later(pool_servers, open_pool):
    pool = open_pool(pool_servers(1, max_subscriptions=1))
    pool.put("row", "first", b"")
    with pool.subscribe("row", existing=True) as first:
        first.next(TIMEOUT_S)
        refused = pool.subscribe("row", existing=True)
        with pytest.raises(penstock.Overloaded, match="max_subscriptions"):
            refused.next(TIMEOUT_S)
        with pytest.raises(penstock.Overloaded):
            next(iter(refused))
        with pytest.raises(penstock.TimeoutError):
            first.next(0)
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(penstock.Overloaded):
            assert refused.next(TIMEOUT_S).info.column == "first"
            break
        pool.status()
    else:
        pytest.fail("it is still refused")


def test_a_subscription_counts_events_that_its_server_threw_away(pool_servers, open_pool):
    pool = open_pool(pool_servers(1, max_events=100))
    pool.put("many", "begins", b"")
    with pool.subscribe("many", existing=True) as events:
        events.next(TIMEOUT_S)  # from now on it is told of puts
        pool.put_many([(("many", str(number)), b"x") for number in range(5000)])
        taken = 0
        deadline = time.monotonic() + TIMEOUT_S
        while taken + events.lost < 5000 and time.monotonic() < deadline:
            with contextlib.suppress(penstock.TimeoutError):
                events.next(SOON_S)
                taken += 1
        assert events.lost > 0
        with pytest.raises(penstock.TimeoutError):
            events.next(SOON_S)
        assert taken + events.lost == 5000
        lost = events.lost
    assert events.lost == lost


def test_a_subscription_that_is_not_read_keeps_a_bounded_amount_of_metadata(pool_servers, open_pool):
    pool = open_pool(pool_servers(1))
    pool.put("many", "begins", b"")
    size, objects, kept = 64 << 10, 400, 1024  # kept: 64 MiB of metadata
    with pool.subscribe("many", existing=True) as idle, pool.subscribe("many", existing=True) as events:
        for each in (idle, events):
            each.next(TIMEOUT_S)
        for batch in range(4):
            pool.put_many([(("many", f"{batch} {number}"), b"x") for number in range(objects)], metadata="m" * size)
            for _ in range(objects):
                assert len(events.next(TIMEOUT_S).info.metadata) == size
        deadline = time.monotonic() + TIMEOUT_S
        while idle.lost < 4 * objects - kept and time.monotonic() < deadline:
            with contextlib.suppress(penstock.TimeoutError):
                events.next(SOON_S)  # nothing comes
        for _ in range(kept):
            idle.next(TIMEOUT_S)
        with pytest.raises(penstock.TimeoutError):
            idle.next(SOON_S)
        assert idle.lost == 4 * objects - kept
