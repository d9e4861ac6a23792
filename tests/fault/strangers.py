"""Connections without a token, in numbers, to everything that a process listens on."""

import contextlib
import errno
import os
import resource
import select
import socket
import struct
import threading
from pathlib import Path

LISTENING = {"tcp": "0A", "unix": "01"}
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing leaves no TIME_WAIT, which would use up the ports


def have_descriptors(count):
    """Raises this process's soft limit; False when it may not have so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    return count <= hard


def inodes_of(pid):
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            name = os.readlink(entry)
            if name.startswith("socket:["):
                yield name[len("socket:[") : -1]


def listening(pid):
    """The addresses of a process's listening sockets: ("unix", name) and ("tcp", port), on this host."""
    own = set(inodes_of(pid))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING["tcp"] and words[9] in own:
                found.append(("tcp", int(words[1].rpartition(":")[2], 16)))
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if words[5] == LISTENING["unix"] and words[6] in own and len(words) > 7 and words[7].startswith("@"):
            found.append(("unix", words[7]))
    return found


class Flood:
    """Holds `count` connections that say nothing to each address, and replaces those that are ended."""

    def __init__(self, addresses, count):
        self.addresses, self.count = addresses, count
        self.standing = threading.Event()  # all were made, or as many as are taken
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.held = {}

    def connect(self, kind, where):
        tcp = kind == "tcp"
        made = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        if tcp:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        made.setblocking(False)
        code = made.connect_ex(("127.0.0.1", where) if tcp else "\0" + where[1:])
        if code in (0, errno.EINPROGRESS):
            return made
        made.close()
        return None

    def run(self):
        ended = select.epoll()
        missing = dict.fromkeys(self.addresses, self.count)
        while not self.stop.is_set():
            refused = False
            for address in self.addresses:
                while missing[address] and (made := self.connect(*address)):
                    self.held[made.fileno()] = made, address
                    ended.register(made, select.EPOLLIN)
                    missing[address] -= 1
                refused |= missing[address] > 0  # the backlog is full
            if refused or not any(missing.values()):
                self.standing.set()
            for descriptor, _ in ended.poll(0.002):
                ended.unregister(descriptor)  # closing does not, while a child just forked has it too
                made, address = self.held.pop(descriptor)
                made.close()
                missing[address] += 1
        ended.close()
        for made, _ in self.held.values():
            made.close()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *failure):
        self.stop.set()
        self.thread.join()
