"""Puts and gets against a pool from several threads, and a history of what was acknowledged, kept outside the pool.

As a program (on another host): pool_load.py SEED TIMEOUT_S, with $PENSTOCK_DIRECTORY_SERVICE. Told "until N" on its
standard input it says "at N" once so much more was acknowledged, told "failures N" once so many more calls failed, and
told "end" it reads all back and says "done {...}".
"""

import hashlib
import json
import random
import sys
import threading
import time
from contextlib import suppress

import penstock

SLACK_S = 5.0  # beyond a call's own deadline: a busy machine
SIZES = (100, 5_000, 100_000)
WAIT_S = 60.0


class History:
    """Key -> level and SHA-256 of what was acknowledged; failures the slowest call. Threads may share it."""

    def __init__(self):
        self.acknowledged = {}
        self.failed, self.wrong = [], []  # a call that ended with an error; a thing that must not be
        self.slowest_s = 0.0
        self._changed = threading.Condition()

    def acknowledge(self, key, level, data):
        with self._changed:
            self.acknowledged[key] = (level, hashlib.sha256(data).hexdigest())
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
        self.wait(lambda: len(self.acknowledged) >= count, f"{count} acknowledgements")

    def any_key(self, chance):
        with self._changed:
            return chance.choice(list(self.acknowledged.items())) if self.acknowledged else (None, None)

    def holds(self, key, data):
        return hashlib.sha256(data).hexdigest() == self.acknowledged[key][1]

    def summary(self):
        return {
            "acknowledged": len(self.acknowledged),
            "calls failed": len(self.failed),
            "slowest call": f"{self.slowest_s:.2f} s",
        }

    def verify(self, pool, levels=("memory", "replicated", "durable")):
        """Reads back what was acknowledged at these levels; what is not as it was."""
        keys = [key for key, (level, _) in self.acknowledged.items() if level in levels]
        wrong = []
        for at in range(0, len(keys), 200):
            part = keys[at : at + 200]
            for key, found in zip(part, pool.get_many(part), strict=True):
                if isinstance(found, Exception):
                    wrong.append(f"{key} ({self.acknowledged[key][0]}) lost: {type(found).__name__}: {found}")
                elif not self.holds(key, found.bytes()):
                    wrong.append(f"{key} ({self.acknowledged[key][0]}) has other bytes")
        return wrong


class Load:
    """A with block: putters and getters until it ends."""

    def __init__(self, open_pool, history, seed, timeout_s, levels=("replicated", "durable"), putters=3, getters=2):
        self.history, self.seed, self.timeout_s, self.levels = history, seed, timeout_s, levels
        self._stop = threading.Event()
        self._pools = [open_pool() for _ in range(2)]
        self._threads = [threading.Thread(target=self._put, args=(n,)) for n in range(putters)]
        self._threads += [threading.Thread(target=self._get, args=(putters + n,)) for n in range(getters)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(self.timeout_s + 2 * SLACK_S)
            if thread.is_alive():
                self.history.must_not_be("a call does not end")
        for pool in self._pools:
            pool.close()

    def _timed(self, key, call, *arguments, **options):
        begun = time.monotonic()
        try:
            return call(*arguments, timeout=self.timeout_s, **options)
        finally:
            self.history.took(key, time.monotonic() - begun, self.timeout_s)

    def _put(self, number):
        chance, pool, count = random.Random(f"{self.seed}/{number}"), self._pools[number % 2], 0
        while not self._stop.is_set():
            key, level = (f"row {chance.randrange(50)}", f"{number}/{count}"), chance.choice(self.levels)
            data = chance.randbytes(chance.choice(SIZES))
            count += 1
            try:
                self._timed(key, pool.put, *key, data, acknowledge=level)
            except penstock.Error as error:
                self.history.fail(("put", *key), error)
            else:
                self.history.acknowledge(key, level, data)

    def _get(self, number):
        chance, pool = random.Random(f"{self.seed}/{number}"), self._pools[number % 2]
        while not self._stop.is_set():
            key, _ = self.history.any_key(chance)
            if key is None:
                self._stop.wait(0.001)
                continue
            try:
                if not self.history.holds(key, self._timed(key, pool.get, *key).bytes()):
                    self.history.must_not_be(f"{key} read with other bytes")
            except penstock.NotFound as error:
                self.history.must_not_be(f"{key} was acknowledged, but: {error}")
            except penstock.Error as error:
                self.history.fail(("get", *key), error)


def main():
    seed, timeout_s = int(sys.argv[1]), float(sys.argv[2])
    history = History()
    with Load(lambda: penstock.Pool(timeout=timeout_s), history, seed, timeout_s, levels=("replicated",)) as load:
        for line in sys.stdin:
            word, _, number = line.strip().partition(" ")
            if word == "until":
                history.until(len(history.acknowledged) + int(number))
            elif word == "failures":
                wanted = len(history.failed) + int(number)
                history.wait(lambda: len(history.failed) >= wanted, "failures")  # noqa: B023
            else:
                break
            print("at", len(history.acknowledged), flush=True)
        load._stop.set()
    with penstock.Pool(timeout=30.0) as pool:
        wrong = history.wrong + history.verify(pool)
    print("done", json.dumps({"wrong": wrong, "summary": history.summary(), "failed": history.failed[:3]}), flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
