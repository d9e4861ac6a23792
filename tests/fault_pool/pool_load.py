"""Every verb against a pool from several threads, and a history of what was acknowledged, kept outside the pool.

As a program (on another host): pool_load.py SEED TIMEOUT_S, with $PENSTOCK_DIRECTORY_SERVICE. Told "until N" on its
standard input it says "at N" once so much more was acknowledged, told "failures N" once so many more calls failed, and
told "end" it reads all back and says "done {...}".
"""

import hashlib
import json
import os
import random
import sys
import threading
import time
from contextlib import suppress

import penstock

SLACK_S = 5.0  # beyond a call's own deadline: a busy machine
SIZES, OFTEN = (100, 5_000, 100_000, 1_500_000), (50, 30, 18, 2)
WAIT_S = 60.0
ROWS = 12  # of each putter


def seeds(few):
    """So many seeds for a test's parameter; 20 with PENSTOCK_SOAK=1."""
    return range(1, 1 + (20 if os.environ.get("PENSTOCK_SOAK") else few))


def checksum(data):
    return hashlib.sha256(data).hexdigest()


class Change:
    """One try to give a key another value (its checksum; None: to drop it)."""

    def __init__(self, level, value):
        self.level, self.value, self.begun, self.ended = level, value, time.monotonic(), None  # ended: acknowledged


class History:
    """Key -> its changes in order, and what was seen that must not be. Threads may share it; a key's changes are made
    one after the other, and none follows one that failed: that one may happen at any time, or never. levels: what was
    acknowledged at others may be lost."""

    def __init__(self, levels=("memory", "replicated", "durable")):
        self.levels, self.changes = levels, {}
        self.acknowledged = 0
        self.failed, self.wrong = [], []  # a call that ended with an error; a thing that must not be
        self.slowest_s = 0.0
        self._keys = []
        self._changed = threading.Condition()

    def begin(self, key, level, value):
        change = Change(level, value)
        with self._changed:
            self.changes.setdefault(key, []).append(change)
        return change

    def acknowledge(self, key, change):
        with self._changed:
            change.ended = time.monotonic()
            self.acknowledged += 1
            if len(self.changes[key]) == 1:
                self._keys.append(key)
            self._changed.notify_all()

    def fail(self, key, error):
        with self._changed:
            self.failed.append(f"{key}: {type(error).__name__}: {error}")
            self._changed.notify_all()

    def must_not_be(self, text):
        with self._changed:
            self.wrong.append(text)

    def took(self, key, seconds, limit_s):
        with self._changed:
            self.slowest_s = max(self.slowest_s, seconds)
            if seconds > limit_s + SLACK_S:
                self.wrong.append(f"{key}: {seconds:.1f} s, its deadline was {limit_s:g} s")

    def wait(self, enough, what):
        with self._changed:
            if not self._changed.wait_for(enough, WAIT_S):
                raise TimeoutError(f"no {what} in {WAIT_S:g} s; {self.summary()}; {self.failed[-3:]}; {self.wrong[:3]}")

    def until(self, count):
        self.wait(lambda: self.acknowledged >= count, f"{count} acknowledgements")

    def more(self, count):
        self.until(self.acknowledged + count)

    def any_key(self, chance):
        with self._changed:
            return chance.choice(self._keys) if self._keys else None

    def check(self, key, value, begun, ended):
        """A read (value None: it was not found) between these times. Returns what is wrong with it, or None."""
        with self._changed:
            changes = [None, *self.changes.get(key, [])]
            # Anything from the last change that was acknowledged before the read began, to the last one begun.
            kept = [i for i, c in enumerate(changes) if c and c.ended and c.ended <= begun and c.level in self.levels]
            begun_too = [c for c in changes[kept[-1] if kept else 0 :] if not c or c.begun <= ended]
            if value in [c and c.value for c in begun_too]:
                return None
            told = " ".join(
                f"{c.value and c.value[:6]}@{c.level}:{c.begun - begun:+.3f}..{c.ended and f'{c.ended - begun:+.3f}'}"
                for c in changes[1:]
            )
        return f"{key} is {'not there' if value is None else value[:6]} at 0..{ended - begun:.3f}; changes: {told}"

    def summary(self):
        return {
            "acknowledged": self.acknowledged,
            "calls failed": len(self.failed),
            "slowest call": f"{self.slowest_s:.2f} s",
        }

    def verify(self, pool, before=None):
        """Reads everything back; what is not as it was. before: only what was acknowledged until then must be there."""
        keys, wrong = list(self.changes), []
        for at in range(0, len(keys), 200):
            part, begun = keys[at : at + 200], time.monotonic()
            for key, found in zip(part, pool.get_many(part), strict=True):
                if isinstance(found, Exception) and not isinstance(found, penstock.NotFound):
                    wrong.append(f"{key}: {type(found).__name__}: {found}")
                    continue
                value = None if isinstance(found, Exception) else checksum(found.bytes())
                problem = self.check(key, value, before or begun, time.monotonic())
                wrong += [problem] if problem else []
        return wrong


class Load:
    """A with block: threads that put, overwrite, drop, list, get and need, until it ends."""

    def __init__(
        self, open_pool, history, seed, timeout_s, levels=("replicated", "durable"), putters=3, getters=2, needs=True
    ):
        self.history, self.seed, self.timeout_s, self.levels = history, seed, timeout_s, levels
        self._stop, self._stop_needs = threading.Event(), threading.Event()
        self._pools = [open_pool() for _ in range(2)]
        self._at = [0] * putters  # how many keys each has begun
        self._needers = [
            threading.Thread(target=self._run, args=(self._need, putters + getters, self._stop_needs))
        ] * needs
        self._threads = [threading.Thread(target=self._run, args=(self._put, n, self._stop)) for n in range(putters)]
        self._threads += [
            threading.Thread(target=self._run, args=(self._get, putters + n, self._stop)) for n in range(getters)
        ]

    def __enter__(self):
        for thread in [*self._threads, *self._needers]:
            thread.start()
        return self

    def stop(self):
        self._stop_needs.set()
        for thread in self._needers:  # they wait for what is still being put
            self._join(thread)
        self._stop.set()
        for thread in self._threads:
            self._join(thread)

    def _join(self, thread):
        thread.join(self.timeout_s + 2 * SLACK_S)
        if thread.is_alive():
            self.history.must_not_be("a call does not end")

    def __exit__(self, *_):
        self.stop()
        for pool in self._pools:
            pool.close()

    def _run(self, work, number, stop):
        chance, pool = random.Random(f"{self.seed}/{number}"), self._pools[number % 2]
        mine = {}  # key -> level, of those that may be changed
        while not stop.is_set():
            work(chance, pool, number, mine)

    def _timed(self, what, call, *arguments, **options):
        begun = time.monotonic()
        try:
            return call(*arguments, timeout=self.timeout_s, **options)
        finally:
            self.history.took(what, time.monotonic() - begun, self.timeout_s)

    # ------------------------------------------------------------------------------------------------------- changes

    def _put(self, chance, pool, number, mine):
        what = chance.choices(("one", "many", "overwrite", "drop", "list"), (60, 8, 14, 14, 4))[0]
        if what in ("one", "many"):
            self._put_new(chance, pool, number, mine, 1 if what == "one" else chance.randrange(2, 20))
        elif what == "list":
            self._list(chance, pool, number)
        elif mine:
            key = chance.choice(list(mine))
            level = mine.pop(key)
            data = None if what == "drop" else self._data(chance)
            # A drop is on disk when it is acknowledged.
            change = self.history.begin(key, level if data else "durable", data and checksum(data))
            try:
                if data is None:
                    self._timed(("drop", *key), pool.drop, *key)
                else:
                    self._timed(("put", *key), pool.put, *key, data, acknowledge=level, if_exists="overwrite")
            except penstock.Error as error:
                self.history.fail((what, *key), error)
            else:
                self.history.acknowledge(key, change)
                if data is not None:
                    mine[key] = level

    @staticmethod
    def _data(chance):
        return chance.randbytes(chance.choices(SIZES, OFTEN)[0])

    @staticmethod
    def _key(number, count):
        return f"row {number}-{count % ROWS}", f"{count}"

    def _put_new(self, chance, pool, number, mine, count):
        level, items, changes = chance.choice(self.levels), [], []
        for _ in range(count):
            key, data = self._key(number, self._at[number]), self._data(chance) if count == 1 else chance.randbytes(700)
            items.append((key, data))
            changes.append(self.history.begin(key, level, checksum(data)))
            self._at[number] += 1
        try:
            if count == 1:
                (key, data) = items[0]
                results = [self._timed(("put", *key), pool.put, *key, data, acknowledge=level)]
            else:
                results = self._timed(f"put_many {items[0][0]}...", pool.put_many, items, acknowledge=level)
        except penstock.Error as error:
            results = [error] * count
        for (key, _), change, result in zip(items, changes, results, strict=True):
            if isinstance(result, Exception):
                self.history.fail(("put", *key), result)
                continue
            self.history.acknowledge(key, change)
            if int(key[1]) % 3:  # the others stay as they are, for _need
                mine[key] = level

    # --------------------------------------------------------------------------------------------------------- reads

    def _list(self, chance, pool, number):
        """A row of this putter's own: nobody changes it meanwhile."""
        row, begun = f"row {number}-{chance.randrange(ROWS)}", time.monotonic()
        try:
            found = {info.column for info in pool.list(row)}
        except penstock.Error as error:
            self.history.fail(("list", row), error)
            return
        ended = time.monotonic()
        for count in range(self._at[number]):
            key = self._key(number, count)
            if key[0] != row:
                continue
            last = self.history.changes[key][-1]
            if last.ended and last.level in self.history.levels and (last.value is not None) != (key[1] in found):
                problem = "is listed, but was dropped" if key[1] in found else "is not listed"
                self.history.must_not_be(f"{key} ({last.level}) {problem} at 0..{ended - begun:.3f}")

    def _get(self, chance, pool, *_):
        key = self.history.any_key(chance)
        if key is None:
            self._stop.wait(0.001)
            return
        begun = time.monotonic()
        try:
            value = checksum(self._timed(("get", *key), pool.get, *key).bytes())
        except penstock.NotFound:
            value = None
        except penstock.Error as error:
            self.history.fail(("get", *key), error)
            return
        if problem := self.history.check(key, value, begun, time.monotonic()):
            self.history.must_not_be(f"get: {problem}")

    def _need(self, chance, pool, *_):
        """Waits for a key that a putter has not begun yet."""
        putter = chance.randrange(len(self._at))
        count = self._at[putter] + chance.randrange(3, 12)
        key = self._key(putter, count - count % 3)
        begun = time.monotonic()
        try:
            value = checksum(self._timed(("need", *key), pool.need, *key).bytes())
        except penstock.Error as error:
            self.history.fail(("need", *key), error)
            return
        if problem := self.history.check(key, value, begun, time.monotonic()):
            self.history.must_not_be(f"need: {problem}")


def main():
    seed, timeout_s = int(sys.argv[1]), float(sys.argv[2])
    history = History()
    with Load(lambda: penstock.Pool(timeout=timeout_s), history, seed, timeout_s, levels=("replicated",)) as load:
        for line in sys.stdin:
            word, _, number = line.strip().partition(" ")
            if word == "until":
                history.more(int(number))
            elif word == "failures":
                wanted = len(history.failed) + int(number)
                history.wait(lambda: len(history.failed) >= wanted, "failures")  # noqa: B023
            else:
                break
            print("at", history.acknowledged, flush=True)
        load.stop()
    with penstock.Pool(timeout=30.0) as pool:
        wrong = history.wrong + history.verify(pool)
    print("done", json.dumps({"wrong": wrong, "summary": history.summary(), "failed": history.failed[:3]}), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
