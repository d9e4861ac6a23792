"""Writers and readers as separate programs of one host: in either order, several of them, and killed at bad moments."""

import os
import signal
import subprocess

import pytest

STEPS = 8
TOTAL = sum(float(sum(range(100_000))) + 100_000 * t for t in range(STEPS))


def assert_read_all(reader, plane="shm"):
    assert reader.wait() == 0, reader.lines
    assert reader.said("end") == [f"end {plane} {STEPS} {TOTAL}"]
    assert not any("TORN" in line for line in reader.lines)


@pytest.mark.parametrize("plane", ["automatic", "shm", "tcp"])
def test_writer_first(start, plane):
    writer = start("write.py", "heat", STEPS, f"data_plane={plane}")
    writer.wait_line("address")
    assert_read_all(start("read.py", "heat"), "tcp" if plane == "tcp" else "shm")
    assert writer.wait() == 0, writer.lines


def test_reader_first(start):
    """A reader waits for a stream that nobody writes yet."""
    reader = start("read.py", "heat")
    with pytest.raises(TimeoutError):
        reader.wait_line("opened", seconds=0.5)
    writer = start("write.py", "heat", STEPS)
    assert_read_all(reader)
    assert writer.wait() == 0, writer.lines


def test_several_readers_and_streams(start):
    """Two streams at once; three readers of one of them, one of which came before its writer."""
    early = start("read.py", "heat")
    heat = start("write.py", "heat", STEPS, "rendezvous_readers=3")
    wind = start("write.py", "wind", STEPS)
    readers = [early, *(start("read.py", name) for name in ("heat", "heat", "wind"))]
    for reader in readers:
        assert_read_all(reader)
    assert (heat.wait(), wind.wait()) == (0, 0)


def test_a_reader_that_leaves_and_one_that_comes_late(start):
    writer = start("write.py", "heat", STEPS, "rendezvous_readers=2", "queue_steps=2")
    holder = start("hold.py", "heat", 2)
    reader = start("read.py", "heat")
    holder.wait_line("holding")
    # With two steps held and room for two, the writer waits; it goes on when the holder lets go.
    holder.tell()
    assert holder.wait() == 0, holder.lines
    assert_read_all(reader)
    assert writer.wait() == 0, writer.lines


def test_a_reader_that_is_stopped_is_waited_for_with_warnings(start, environment):
    environment["FIRST_WARNING_MS"] = "50"
    writer = start("write.py", "heat", STEPS, "queue_steps=2", stderr=subprocess.STDOUT)
    holder = start("hold.py", "heat", 2)
    holder.wait_line("holding")
    os.kill(holder.pid, signal.SIGSTOP)
    for _ in range(2):
        while f":{holder.pid} (2 held)" not in (line := writer.next_line()):
            pass
        assert "the writer waits for its readers stream=heat step=2 awaited=" in line and "since_s=0" in line
    os.kill(holder.pid, signal.SIGCONT)
    holder.tell()
    assert holder.wait() == 0, holder.lines
    assert writer.wait() == 0 and "closed" in writer.lines, writer.lines


# --------------------------------------------------------------------------------------------------------------- killed


def test_readers_killed_while_they_open(start):
    """Twenty readers die at as many moments of opening; the writer, its reader and the next one do not mind."""
    writer = start("write.py", "heat", STEPS, "queue_steps=2")
    holder = start("hold.py", "heat", 2)
    holder.wait_line("holding")  # so that the writer waits meanwhile
    for tens in range(2):
        dying = [start("die_opening.py", "heat", i / 20) for i in range(10 * tens, 10 * tens + 10)]
        for reader in dying:
            assert reader.wait() == -signal.SIGKILL, reader.lines
    last = start("read.py", "heat")
    last.wait_line("opened")
    holder.tell()
    assert_read_all(last)
    assert writer.wait() == 0, writer.lines


def test_writer_killed_in_the_middle(start):
    """The reader gets what was announced, then WriterLost; a new writer of the same name serves new readers."""
    writer = start("write.py", "heat", 1000, "queue_steps=2")
    reader = start("read.py", "heat")
    for _ in range(3):
        writer.wait_line("wrote")
    reader.wait_line("read")
    writer.kill()
    writer.wait()
    assert reader.wait() == 0, reader.lines
    assert len(reader.said("lost")) == 1 and "the last step read was" in reader.said("lost")[0]
    read = [int(line.split()[1]) for line in reader.said("read")]
    wrote = [int(line.split()[1]) for line in writer.said("wrote")]
    assert read == list(range(len(read))) and set(wrote) <= set(read)
    again = start("write.py", "heat", STEPS)
    assert_read_all(start("read.py", "heat"))
    assert again.wait() == 0, again.lines


def test_reader_killed_while_it_holds_views(start):
    """Its leases end with it: the writer goes on at once, long before any timeout."""
    writer = start("write.py", "heat", STEPS, "rendezvous_readers=2", "queue_steps=2", "step_timeout_ms=40000")
    holder = start("hold.py", "heat", 2)
    reader = start("read.py", "heat")
    holder.wait_line("holding")
    holder.kill()
    assert_read_all(reader)
    assert writer.wait(seconds=30) == 0, writer.lines


def test_views_outlive_the_writer(start):
    writer = start("write.py", "heat", 2, "queue_steps=2")
    holder = start("hold.py", "heat", 2)
    assert holder.wait_line("holding") == "holding 0.0 1.0"
    writer.kill()
    writer.wait()
    holder.tell()
    assert holder.wait_line("values") == f"values {sum(range(100_000)):.1f} {sum(range(100_000)) + 100_000:.1f}"
    holder.wait()
