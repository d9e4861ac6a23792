"""What a replay must keep of the recorded order, and replays on a pool that is a set of keys."""

import math
import os
import random
import threading
from collections import defaultdict

import pytest
from penstock import AlreadyExists, InvalidArgument, NotFound
from penstock.trace import file, timeline
from penstock.trace.plan import objects_before, plan_replay
from penstock.trace.replay import Control, Lanes, fill

SEED = int(os.environ.get("PENSTOCK_TEST_SEED", "1"))
ASYNCHRONOUS = 2


class Recorded:
    """One process; times are nanoseconds since it began."""

    def __init__(self):
        self.records = []

    def add(self, thread, verb, row, start, end, outcome="ok", **more):
        failed = int(outcome != "ok")
        words = {"start_ns": start, "duration_ns": end - start, "outcome": outcome, "failed": failed, "thread": thread}
        self.records.append(file.Record(verb, keys=[(row.encode(), b"")], **words | more))

    @property
    def timeline(self):
        return timeline.merge([file.Process(clients=["pool"] * 3, records=self.records)])

    @property
    def plan(self):
        return plan_replay(self.timeline)

    @property
    def after(self):
        """By the starts of the calls."""
        return [sorted(step.after) for step in self.plan.steps]


def test_reads_wait_for_the_change_before_them():
    recorded = Recorded()
    recorded.add(0, "put", "a", 0, 10)
    recorded.add(1, "get", "a", 20, 30)
    recorded.add(2, "get", "other", 20, 30)
    recorded.add(3, "drop", "a", 40, 50)
    recorded.add(4, "get", "a", 60, 70, "not_found")
    assert recorded.after == [[], [0], [], [0, 1], [3]]  # the drop waits for the put by way of the read, too


def test_what_overlapped_may_overlap():
    recorded = Recorded()
    recorded.add(0, "put", "a", 0, 100)
    recorded.add(1, "put", "a", 50, 150, "already_exists")
    recorded.add(2, "get", "a", 60, 160, "not_found")
    assert recorded.after == [[], [], []]


def test_a_read_that_found_what_was_being_put():
    recorded = Recorded()
    recorded.add(0, "get", "a", 0, 100)  # found it, though its put began later
    recorded.add(1, "put", "a", 50, 150)
    assert recorded.after == [[1], []]


def test_patterns_touch_every_key():
    recorded = Recorded()
    recorded.add(0, "put", "a", 0, 10)
    recorded.add(1, "put", "b", 0, 10)
    recorded.add(2, "list", "*", 20, 30)
    recorded.add(3, "put", "c", 40, 50)
    recorded.add(4, "drop_pattern", "*", 60, 70)
    recorded.add(5, "get", "c", 80, 90, "not_found")
    after = recorded.after
    assert after[2:4] == [[0, 1], [2]] and {2, 3} <= set(after[4]) and 4 in after[5]


def test_lanes_keep_their_order():
    recorded = Recorded()
    recorded.add(0, "put", "a", 0, 100, flags=ASYNCHRONOUS)
    recorded.add(0, "put", "b", 10, 20)
    recorded.add(0, "put", "c", 110, 120)  # after the end of the first
    recorded.add(0, "put", "d", 130, 200)  # said to block, yet the next began before its end
    recorded.add(0, "put", "e", 140, 150)
    plan = recorded.plan
    assert plan.lanes == 1
    assert [step.detached for step in plan.steps] == [True, False, False, True, False]
    assert recorded.after[1:3] == [[], [0]]


def test_streams_show_their_steps_in_order():
    """A look in vain comes before the step; a Writer's calls keep their order, whatever threads made them."""
    recorded = Recorded()
    recorded.add(0, "read_begin", "heat", 0, 10, "timeout")
    recorded.add(1, "write_put", "heat", 12, 14, client=1)
    recorded.add(2, "write_end", "heat", 20, 30, client=1)
    recorded.add(0, "read_begin", "heat", 25, 40)  # waited for the step by itself
    recorded.add(3, "read_begin", "other", 1, 2, "timeout", client=2)
    recorded.add(0, "read_begin", "heat", 50, 60, "end_of_stream")
    # by their starts: the look, that of the other stream, the put, the end, the step, the end of the stream
    assert recorded.after[2:] == [[], [0, 2], [0], [3, 4]]


def test_many_operations_stay_cheap():
    recorded = Recorded()
    recorded.add(3, "put", "hot", 0, 1)
    for i in range(1, 20_000):
        recorded.add(0, "put", f"key/{i}", 10 * i, 10 * i + 5)
        if i % 10 == 0:
            recorded.add(1, "list", "*", 10 * i + 6, 10 * i + 7)
        recorded.add(2, "get", "hot", 10 * i, 10 * i + 9)
    steps = recorded.plan.steps
    assert sum(len(step.after) for step in steps) < 3 * len(steps)


def test_what_was_there_before():
    recorded = Recorded()
    recorded.add(0, "get", "read", 0, 10, sizes=[100])
    recorded.add(0, "get", "read", 20, 30, sizes=[40], offset=80)
    recorded.add(0, "put", "refused", 40, 50, "already_exists")
    recorded.add(0, "get", "missing", 60, 70, "not_found")
    recorded.add(0, "put", "put", 80, 90)
    recorded.add(0, "get", "put", 100, 110, sizes=[7])
    recorded.add(0, "need", "waited for", 120, 200, sizes=[8])
    recorded.add(1, "put", "waited for", 150, 160)
    recorded.add(0, "get", "replaced", 210, 220, sizes=[9])
    recorded.add(0, "put", "replaced", 230, 240)
    recorded.add(0, "info", "tagged", 250, 260, tag=7)
    before = objects_before(recorded.timeline)
    assert {one.key[0]: one.bytes for one in before} == {b"read": 120, b"refused": 0, b"replaced": 9, b"tagged": 0}
    assert before[-1].tag == 7


# ------------------------------------------------------------------------------------------------------------ replays


class Keys:
    """A pool of no more than what a replay needs: its start() is what lanes call."""

    def __init__(self):
        self.lock = threading.Lock()
        self.there = set()
        self.begun = defaultdict(list)  # by thread

    def start(self, item):
        record = item.record
        with self.lock:
            self.begun[record.thread].append(item.start_ns)
            failed = self.do(record.verb, record.keys[0][0])

        def finish(outcome):
            if failed:
                raise failed

        return finish

    def do(self, verb, key):
        if verb == "put" and key in self.there:
            return AlreadyExists("it is there")
        if verb == "put":
            self.there.add(key)
        elif verb == "drop":
            self.there.discard(key)
        elif verb == "drop_pattern":
            self.there.clear()
        elif verb == "get" and key not in self.there:
            return NotFound("none")
        return None


def replayed(recorded, speed=0.0, control=None):
    keys = Keys()
    done = Lanes(recorded.plan, speed, keys.start, control or Control()).run()
    return keys, done


@pytest.mark.parametrize("seed", range(SEED, SEED + 20))
def test_the_same_outcomes_at_any_speed(seed):
    """Threads take turns, so that each outcome follows from those before."""
    chance, recorded, there = random.Random(seed), Recorded(), set()
    for i in range(300):
        thread, key, what = chance.randrange(8), chance.choice("abcde"), chance.randrange(21)
        flags = ASYNCHRONOUS if chance.random() < 0.2 else 0
        if what < 9:
            verb, outcome = "put", "already_exists" if key in there else "ok"
            there.add(key)
        elif what < 16:
            verb, outcome = "get", "ok" if key in there else "not_found"
        elif what < 20:
            verb, outcome = "drop", "ok"
            there.discard(key)
        else:
            verb, outcome, key = "drop_pattern", "ok", "*"
            there.clear()
        recorded.add(thread, verb, key, 10 * i, 10 * i + 5, outcome, flags=flags)
    keys, done = replayed(recorded)
    assert not done.stopped
    assert [one.code for one in done.outcomes] == [record.outcome for record in recorded.records]
    assert all(begun == sorted(begun) for begun in keys.begun.values())


def test_the_recorded_pace():
    recorded = Recorded()
    for i in range(5):
        recorded.add(i % 2, "put", str(i), i * 10_000_000, i * 10_000_000 + 10)
    keys, done = replayed(recorded, speed=2)
    assert done.seconds >= 0.02 and sorted(map(len, keys.begun.values())) == [2, 3]


def far_apart():
    recorded = Recorded()
    recorded.add(0, "put", "a", 0, 10)
    recorded.add(1, "put", "b", 3_600_000_000_000, 3_600_000_000_010)
    return recorded


def test_a_replay_can_be_stopped():
    control = Control()

    def stop():
        while control.ended == 0:
            threading.Event().wait(0.001)
        control.stop = True

    other = threading.Thread(target=stop)
    other.start()
    _, done = replayed(far_apart(), speed=1, control=control)
    other.join()
    assert done.stopped and done.outcomes[0].code == "ok" and done.outcomes[1] is None


def test_the_deadline_stops_it():
    control = Control(deadline=0)
    _, done = replayed(far_apart(), speed=1, control=control)
    assert done.stopped and done.outcomes == [None, None] and control.ended == 0


def test_bytes_follow_from_the_key():
    assert fill((b"row", b"column"), 100) == fill((b"row", b"column"), 100) != fill((b"row", b"other"), 100)


@pytest.mark.parametrize(
    "words", [{"speed": -1}, {"speed": math.nan}, {"speed": math.inf}, {"clients": 0}, {"clients": 9000}]
)
def test_what_a_replay_refuses(words):
    from penstock.trace.replay import replay

    how = {"speed": 1.0, "clients": 1} | words
    with pytest.raises(InvalidArgument):
        replay(far_apart().timeline, None, {"pool": ""}, **how, keep=False, timeout=1, on_progress=None)
