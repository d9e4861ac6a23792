"""Streams in a pool whose writer, reader or servers are killed: no step that is seen is partial, none that the pool has
acknowledged is lost. Points are drawn from the seed, as steps and places in a step. PENSTOCK_SOAK=1: 20 seeds."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import penstock
import pytest
from pool_load import History, Load, seeds
from stream_peer import BLOCKS, whole

DEADLINE_S = 60.0
CALL_S = 20.0
PEER = Path(__file__).parent / "stream_peer.py"
RANK = Path(__file__).parent / "rank_peer.py"


class Peers:
    """Programs (stream_peer.py) and what they said, line by line; killed when they outlast the deadline."""

    def __init__(self, pool):
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        self.environment["PENSTOCK_DIRECTORY"] = str(pool.stage.registration)
        self.started = []

    def start(self, *words):
        self.started.append(Peer([sys.executable, str(PEER), *map(str, words)], self.environment))
        return self.started[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for peer in self.started:
            peer.process.kill()
            peer.end()


class Peer:
    def __init__(self, command, environment, told=False):
        stdin = subprocess.PIPE if told else None
        self.process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, env=environment, text=True)
        self.lines = []
        self._said = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self):
        for line in self.process.stdout:
            with self._said:
                self.lines.append(line.strip())
                self._said.notify_all()
        with self._said:
            self._ended = True
            self._said.notify_all()

    def numbers(self, word):
        return [int(line.split()[1]) for line in self.lines if line.startswith(word + " ")]

    def until(self, word, count):
        """Waits until it has said that word so often, or has ended."""
        with self._said:
            enough = self._said.wait_for(lambda: self._ended or len(self.numbers(word)) >= count, DEADLINE_S)
        assert enough, f"{self.process.args} said {self.lines[-3:]}"

    def end(self):
        """Waits for its end."""
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.lines.append("error it did not end in time")
        self._thread.join(DEADLINE_S)
        self.process.stdout.close()
        if self.process.stdin:
            self.process.stdin.close()
        return self


def acknowledged(writer, queue_steps):
    """How many steps the pool has given back to the writer: it may hold so many at most, that in hand included."""
    if "closed" in writer.lines:
        return len(writer.numbers("ended"))
    return max(0, len(writer.numbers("begun")) - queue_steps)


def check_reader(reader, least, most, end):
    """What is wrong with what a reader said: every step from the first, once, in order, whole; then the end."""
    read = reader.numbers("read")
    wrong = [f"{line}" for line in reader.lines if "PARTIAL" in line or line.startswith("error")]
    if read != list(range(len(read))):
        wrong.append(f"steps were left out or came twice: {read}")
    if not least <= len(read) <= most:
        wrong.append(f"{len(read)} steps were read, not {least} to {most}")
    if not reader.lines or not reader.lines[-1].startswith(end):
        wrong.append(f"the stream did not end with '{end}': {reader.lines[-1:]}")
    return wrong


def check_kept(context, least, most, end, name="heat"):
    """As check_reader, for one that comes after all the others, in this process."""
    read, wrong, last = [], [], "end"
    try:
        with context.open(name, engine="pool", pool="stage", timeout=CALL_S) as stream:
            for step in stream:
                read.append(step.number)
                if not whole(step):
                    wrong.append(f"step {step.number} is partial for a late reader")
    except penstock.WriterLost:
        last = "lost"
    except penstock.Error as error:
        wrong.append(f"late reader: {type(error).__name__}: {error}")
    if read != list(range(len(read))) or not least <= len(read) <= most or last != end:
        wrong.append(f"a late reader got {read} ({last}), not {least} to {most} ({end})")
    return wrong


@pytest.mark.parametrize("seed", seeds(2))
def test_a_writer_is_killed(pools, report, context, seed):
    chance = random.Random(seed)
    where = ("begin", "put", "end", "ended")[(seed - 1) % 4]
    queue_steps, last, filled = chance.randrange(1, 5), chance.randrange(5, 50), chance.randrange(BLOCKS)
    pool = pools(servers=2, replication=2)
    with Peers(pool) as peers:
        writer = peers.start("write", "heat", 100_000, queue_steps, "replicated", where, last, filled)
        reader = peers.start("read", "heat", "plots")
        writer.end()
        reader.end()
    least = acknowledged(writer, queue_steps)
    most = last + (where in ("end", "ended"))  # committed, perhaps: then it is whole
    wrong = check_reader(reader, least, most, "lost") + check_kept(context, least, most, "lost")
    if writer.process.returncode != -signal.SIGKILL or not writer.numbers("begun"):
        wrong.append(f"the writer ended otherwise: {writer.lines[-2:]}")
    figures = {"killed": f"{where} of step {last}", "acknowledged": least, "read": len(reader.numbers("read"))}
    report("a writer is killed in a step", seed, wrong, figures)


@pytest.mark.parametrize("seed", seeds(1))
def test_a_reader_is_killed(pools, report, context, seed):
    chance = random.Random(seed)
    steps, dies = 40, chance.randrange(30)
    pool = pools(servers=2, replication=2)
    with Peers(pool) as peers:
        writer = peers.start("write", "heat", steps, 3, "replicated")
        dying, other = peers.start("read", "heat", "plots", dies), peers.start("read", "heat", "films")
        dying.end()
        again = peers.start("read", "heat", "plots")
        for peer in (writer, other, again):
            peer.end()
    wrong = check_reader(other, steps, steps, "end") + check_kept(context, steps, steps, "end")
    wrong += [line for line in dying.lines + again.lines if "PARTIAL" in line or line.startswith("error")]
    # The group goes on where it stopped; what was said to have been read just before may not have arrived.
    first = again.numbers("read")[:1]
    if again.numbers("read") != list(range(*first, steps)) or not first or first[0] > dies:
        wrong.append(f"the next reader of the group read {again.numbers('read')}, {dies} had been read")
    if writer.lines[-1] != "closed":
        wrong.append(f"the writer ended otherwise: {writer.lines[-1:]}")
    figures = {
        "killed": f"in step {dies}",
        "its group went on at": first,
        "read by the other": len(other.numbers("read")),
    }
    report("a reader is killed with a step in its hands", seed, wrong, figures)


@pytest.mark.parametrize("seed", seeds(1))
def test_a_server_is_killed_under_a_stream(pools, report, context, seed):
    chance = random.Random(seed)
    steps, after, dying = 60, chance.randrange(1, 30), chance.randrange(1, 4)
    pool = pools(servers=3, replication=2)
    with Peers(pool) as peers:
        writer = peers.start("write", "heat", steps, 3, "replicated")
        readers = [peers.start("read", "heat", group) for group in ("plots", "films")]
        readers[0].until("read", after)
        pool.kill(dying)
        for peer in (writer, *readers):
            peer.end()
    wrong = [text for reader in readers for text in check_reader(reader, steps, steps, "end")]
    wrong += check_kept(context, steps, steps, "end")
    if writer.lines[-1] != "closed":
        wrong.append(f"the writer ended otherwise: {writer.lines[-1:]}")
    figures = {
        "killed": f"server {dying} after step {after} was read",
        "read": [len(r.numbers("read")) for r in readers],
    }
    report("a server of three is killed under a stream", seed, wrong, figures)


# ------------------------------------------------------------------------------------------------- ranks of one reader


class Ranks:
    """A writer in this process and two reader ranks (rank_peer.py) of a stream of which they want the latest step."""

    def __init__(self, peers, context, client, phase, victim, folder):
        for count in range(100):  # whose home is the victim: the name says which server that is
            self.name = f"{phase}-{count}"
            self.writer = context.create(
                self.name, engine="pool", pool="stage", queue_steps=8, timeout=CALL_S, acknowledge="memory"
            )
            self.client = client
            if self.info()["home"] == victim:
                break
            self.writer.close()
        self.write(2)
        self.peers = []
        for rank in (0, 1):
            place = folder / self.name
            place.mkdir(parents=True, exist_ok=True)
            peer = Peer([sys.executable, str(RANK), self.name, str(rank), "2", str(place)], peers.environment, True)
            peers.started.append(peer)
            self.peers.append(peer)

    def info(self):
        return next(stream for stream in self.client.streams() if stream["stream"] == self.name)

    def write(self, count=1):
        for _ in range(count):
            with self.writer.step() as step:
                step["T"] = np.full(1000, float(step.number))
            self.last = step.number

    def kept(self):
        """Waits until the pool has what was written."""
        until = time.monotonic() + DEADLINE_S
        while self.info()["steps"] <= self.last:
            assert time.monotonic() < until, f"{self.name}: {self.info()}, step {self.last} was written"
            threading.Event().wait(0.01)  # no call waits for that

    def tell(self, rank, *words):
        for word in words:
            self.peers[rank].process.stdin.write(word + "\n")
        self.peers[rank].process.stdin.flush()

    def given(self, rank, count):
        """Waits until it was given so many."""
        self.peers[rank].until("given", count)
        return self.peers[rank].numbers("given")


def reads(ranks):
    ranks.tell(0, "take")
    ranks.given(0, 2)


def has_read(ranks):
    reads(ranks)
    ranks.tell(0, "end")
    ranks.peers[0].until("ended", 2)


def is_ahead(ranks):
    for count in (2, 3, 4):
        ranks.tell(0, "take", "end")
        ranks.peers[0].until("ended", count)
        ranks.write()
        ranks.kept()


def is_stopped(ranks):
    reads(ranks)
    ranks.peers[0].process.send_signal(signal.SIGSTOP)


# What rank 0 is doing when the home dies; rank 1 has not yet asked for that step.
PHASES = {"untouched": lambda ranks: None, "read": reads, "over": has_read, "ahead": is_ahead, "stopped": is_stopped}


@pytest.mark.parametrize("seed", seeds(1))
def test_ranks_are_given_the_same_by_the_next_home(pools, report, context, tmp_path, seed):
    pool = pools(servers=2, replication=2)
    client, dying = pool.open(), 1 + seed % 2
    victim = pool.server(dying).ready["name"]
    with Peers(pool) as peers, contextlib.ExitStack() as closing:
        all_ranks = {}
        for phase in PHASES:
            ranks = all_ranks[phase] = Ranks(peers, context, client, phase, victim, tmp_path / "cohorts")
            closing.callback(ranks.writer.close)
        for phase, ranks in all_ranks.items():
            for rank in (0, 1):
                ranks.tell(rank, "take", "end")
                ranks.peers[rank].until("ended", 1)
            ranks.write()
            ranks.kept()
            PHASES[phase](ranks)
            ranks.write()  # so that the latest is another one now
            ranks.kept()
        pool.kill(dying)
        for ranks in all_ranks.values():
            ranks.tell(1, "take", "end")
        until = time.monotonic() + DEADLINE_S
        while {ranks.info()["home"] for ranks in all_ranks.values()} & {victim}:
            assert time.monotonic() < until
            threading.Event().wait(0.01)
        for ranks in all_ranks.values():
            ranks.write()
        # Rank 1 asks the new home again and again meanwhile, which waits for rank 0 for five seconds.
        until = time.monotonic() + 1
        while time.monotonic() < until:
            all_ranks["stopped"].write()
            all_ranks["stopped"].kept()
        all_ranks["stopped"].peers[0].process.send_signal(signal.SIGCONT)
        for ranks in all_ranks.values():
            ranks.given(1, 2)
            if ranks.peers[0].numbers("given")[1:] and len(ranks.peers[0].numbers("ended")) < 2:
                ranks.tell(0, "end")
            for rank in (0, 1):
                ranks.tell(rank, "rest")
            for _ in range(3):
                ranks.write()
            ranks.writer.close()
        for peer in peers.started:
            peer.end()
    wrong, figures = [], {}
    for phase, ranks in all_ranks.items():
        first, second = (peer.numbers("given") for peer in ranks.peers)
        figures[phase] = second
        wrong += [f"{phase}: {line}" for peer in ranks.peers for line in peer.lines if line.startswith("error")]
        if first != second:
            wrong.append(f"{phase}: one rank was given {first}, the other {second}")
        if not second or second[-1] != ranks.last:
            wrong.append(f"{phase}: the last step, {ranks.last}, was not given: {second}")
    report("the home dies while ranks take the latest step", seed, wrong, figures)


@pytest.mark.parametrize("seed", seeds(1))
def test_all_of_it_at_once(pools, report, context, seed):
    """Objects and two streams, while a server is killed, one added, one drained, a reader and a writer are killed."""
    chance, history = random.Random(seed), History()
    where, last, dies = chance.choice(("begin", "put", "end", "ended")), chance.randrange(5, 40), chance.randrange(20)
    pool = pools(servers=3, replication=2, drain_timeout_ms=30_000)
    leaving, dying = chance.sample([1, 2, 3], 2)
    events = ["add", "drain", "kill"]
    chance.shuffle(events)
    steps = 80
    with Peers(pool) as peers, Load(pool.open, history, seed, CALL_S, putters=2, getters=1):
        writer, lost = (
            peers.start("write", "heat", steps, 3, "replicated"),
            peers.start("write", "wake", 100_000, 2, "replicated", where, last, 2),
        )
        reader, other = peers.start("read", "heat", "plots"), peers.start("read", "wake", "plots")
        peers.start("read", "heat", "films", dies)
        for event in events:
            history.more(chance.randrange(20, 100))
            if event == "add":
                pool.stage.start_one(4)
            elif event == "drain":
                pool.drain(leaving)
            else:
                pool.kill(dying)
        for peer in peers.started:
            peer.end()
        history.more(20)
        pool.stage.wait_ready(DEADLINE_S)
        code = pool.drained(leaving)
    client = pool.open()
    pool.settled(client, pool.members())
    wrong = history.wrong + history.failed + history.verify(client)
    wrong += check_reader(reader, steps, steps, "end") + check_kept(context, steps, steps, "end")
    wrong += check_reader(other, acknowledged(lost, 2), last + (where in ("end", "ended")), "lost")
    wrong += [line for peer in peers.started for line in peer.lines if "PARTIAL" in line or line.startswith("error")]
    if writer.lines[-1] != "closed":
        wrong.append(f"the writer ended otherwise: {writer.lines[-1:]}")
    if code != 0:
        wrong.append(f"the drained server ended with {code}")
    figures = {"order": "-".join(events), "writer killed": f"{where} of step {last}"} | history.summary()
    report("all of it at once", seed, wrong, figures)
