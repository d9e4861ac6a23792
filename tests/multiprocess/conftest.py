"""Programs that tests start, listen to, and end."""

import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

HERE = pathlib.Path(__file__).parent
DEADLINE_S = 60


class Program:
    """A started program. What it says is a list of lines; wait for one, or for the end. Ends with the test."""

    def __init__(self, command, **options):
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )
        self.lines = []
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def pid(self):
        return self.process.pid

    def _listen(self):
        for line in self.process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def next_line(self, seconds=DEADLINE_S):
        """What it says next; also kept in lines."""
        try:
            line = self._queue.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError(f"{self.process.args} said nothing for {seconds} s after {self.lines}") from None
        if line is None:
            self._queue.put(None)
            raise EOFError(f"{self.process.args} ended; it said {self.lines}")
        self.lines.append(line)
        return line

    def wait_line(self, word, seconds=DEADLINE_S):
        """The next line that begins with the word, from those not waited for yet."""
        deadline = time.monotonic() + seconds
        while (line := self.next_line(deadline - time.monotonic())).split(" ")[0] != word:
            pass
        return line

    def wait(self, seconds=DEADLINE_S):
        """Its exit status; all that it said is in lines then."""
        code = self.process.wait(timeout=seconds)
        self._thread.join(timeout=seconds)
        while not self._queue.empty():
            line = self._queue.get()
            if line is not None:
                self.lines.append(line)
        self._queue.put(None)
        return code

    def said(self, word):
        return [line for line in self.lines if line.split(" ")[0] == word]

    def tell(self, line=""):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)

    def end(self):
        # The whole session: mpiexec and namespaces have children.
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self._thread.join()
        self.process.stdout.close()


@pytest.fixture
def environment(tmp_path):
    """Of every program: a directory of its own, and no settings of the person who tests."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}
    return {**kept, "PENSTOCK_DIRECTORY": str(tmp_path / "directory"), "PENSTOCK_LISTEN": "127.0.0.1"}


@pytest.fixture
def start(environment):
    """start("read.py", "heat", prefix=[...]): a script of this folder, or any command as a list."""
    programs = []

    def begin(script, *words, prefix=(), **options):
        command = script if isinstance(script, list) else [sys.executable, HERE / script]
        programs.append(Program([*prefix, *command, *words], **{"env": environment, **options}))
        return programs[-1]

    yield begin
    for program in reversed(programs):
        program.end()
