"""Trace files, as the library writes them (src/trace/format.hpp has the layout). Decoding takes any bytes.

A file is "PNSTRACE", version (4 bytes), length (4), checksum (8, XXH3) and a header; then blocks: "PTB1", length,
checksum, entries. A process that is killed leaves at most one block unfinished: what is before it is read, the rest
is counted as lost.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

from .. import _core
from ..errors import NotFound, ProtocolError

VERSION = 1
MAX_BLOCK = 16 << 20
MAX_TEXT = 1 << 20
VERBS = (
    *("put", "get", "need", "want", "info", "list", "drop", "drop_pattern", "wait_row", "subscribe", "compute"),
    *("status", "write_open", "write_define", "write_attribute", "write_begin", "write_shape", "write_put"),
    *("write_end", "write_abandon", "write_close", "read_open", "read_seek", "read_steps", "read_begin", "read_get"),
    *("read_strings", "read_wait", "read_view", "read_end", "read_close"),
)  # by number
ACKNOWLEDGE = ("memory", "replicated", "durable")
IF_EXISTS = ("refuse", "overwrite", "add_version")
WHOLE = (1 << 64) - 1  # part_bytes: not a part

_MAGIC, _BLOCK_MAGIC = b"PNSTRACE", b"PTB1"
_PREFIX, _BLOCK_PREFIX = struct.Struct("<8sIIQ"), struct.Struct("<4sIQ")
_CLOCKS = struct.Struct("<qq")
_TEXT, _FORGET, _CLIENT, _RECORD = 1, 2, 3, 4
_BATCH, _ASYNCHRONOUS, _EXISTING, _WAIT, _TAG, _VERSION, _PART, _SIZES, _ONE_SIZE, _TEXTS, _LIMITS = (
    1 << bit for bit in range(11)
)
_IF_EXISTS_SHIFT, _ACKNOWLEDGE_SHIFT, _FLAG_BITS = 11, 13, 15


@dataclass(slots=True)
class Record:
    """One call. Times are nanoseconds of the process's steady clock."""

    verb: str
    flags: int = 0
    start_ns: int = 0
    duration_ns: int = 0
    outcome: str = "ok"  # of a batch: the first that is not ok
    failed: int = 0  # keys for which it was not ok
    client: int = 0
    thread: int = 0
    timeout_ms: int = 0
    namespace: bytes = b""
    count: int = 0  # list: limit; wait_row: objects; drop_pattern: dropped; compute: time limit in ms; *_open: ranks
    tag: int | None = None  # *_open: rank
    version: int | None = None  # of a stream: the step; *_open: the cohort's number
    offset: int = 0
    part_bytes: int = WHOLE
    memory_bytes: int = 0
    metadata: bytes = b""
    function: bytes = b""
    arguments: bytes = b""
    keys: list[tuple[bytes, bytes]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # bytes; empty, or one for each key

    @property
    def batch(self) -> bool:
        return bool(self.flags & _BATCH)

    @property
    def asynchronous(self) -> bool:
        return bool(self.flags & _ASYNCHRONOUS)

    @property
    def existing(self) -> bool:
        return bool(self.flags & _EXISTING)

    @property
    def waits(self) -> bool:
        return bool(self.flags & _WAIT)

    @property
    def if_exists(self) -> str:
        return IF_EXISTS[self.flags >> _IF_EXISTS_SHIFT & 3]

    @property
    def acknowledge(self) -> str:
        return ACKNOWLEDGE[self.flags >> _ACKNOWLEDGE_SHIFT & 3]

    @property
    def of_stream(self) -> bool:
        return self.verb.startswith(("write_", "read_"))

    @property
    def opens(self) -> bool:
        return self.verb in ("write_open", "read_open")


@dataclass(slots=True)
class Process:
    """What one file holds."""

    realtime_ns: int = 0  # since 1970, at monotonic_ns of the steady clock
    monotonic_ns: int = 0
    pid: int = 0
    host: str = ""
    boot: str = ""  # the same for all processes of a machine; "" where unknown
    program: str = ""
    clients: list[str] = field(default_factory=list)  # the pool of each; "" for a stream without one
    records: list[Record] = field(default_factory=list)  # in the order in which they ended, roughly
    lost_bytes: int = 0  # at the end of the file, not readable
    problem: str = ""  # why; "" when the file ends with a whole block


class _Damaged(Exception):
    pass


class _Cursor:
    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    def varint(self) -> int:
        data, at = self.data, self.at
        value = shift = 0
        while at < len(data):
            part = data[at]
            at += 1
            value |= (part & 0x7F) << shift
            if part < 0x80:
                if value >> 64:
                    break
                self.at = at
                return value
            shift += 7
            if shift == 70:
                break
        else:
            raise _Damaged("an entry that ends early")
        raise _Damaged("a number that is too long")

    def signed(self) -> int:
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise _Damaged("an entry that ends early")
        self.at += size
        return self.data[self.at - size : self.at]

    def byte(self) -> int:
        return self.take(1)[0]

    def text(self) -> bytes:
        size = self.varint()
        if size > MAX_TEXT:
            raise _Damaged("a text that is too long")
        return self.take(size)

    def count(self) -> int:
        """Of things of at least one byte each."""
        value = self.varint()
        if value > len(self.data) - self.at:
            raise _Damaged("more than there is")
        return value


class _Decoder:
    def __init__(self, process: Process):
        self.process = process
        self.texts: list[bytes] = [b""]  # since the table was last forgotten
        self.last_start = 0
        self.codes = _core.error_names()

    def block(self, data: bytes) -> None:
        """All entries of a block, or _Damaged and none of its records."""
        records = len(self.process.records)
        cursor = _Cursor(data)
        try:
            _, self.last_start = _CLOCKS.unpack(cursor.take(_CLOCKS.size))
            while cursor.at < len(data):
                self.entry(cursor)
        except _Damaged:
            del self.process.records[records:]
            raise

    def entry(self, cursor: _Cursor) -> None:
        kind = cursor.byte()
        if kind == _RECORD:
            self.process.records.append(self.record(cursor))
        elif kind == _TEXT:
            self.texts.append(cursor.text())
        elif kind == _FORGET:
            self.texts = [b""]
        elif kind == _CLIENT:
            self.process.clients.append(cursor.text().decode(errors="replace"))
        else:
            raise _Damaged("an entry of an unknown kind")

    def text(self, cursor: _Cursor) -> bytes:
        number = cursor.varint()
        if number >= len(self.texts):
            raise _Damaged("a text that was not given")
        return self.texts[number]

    def record(self, cursor: _Cursor) -> Record:
        verb = cursor.byte()
        if verb >= len(VERBS):
            raise _Damaged("a verb that does not exist")
        flags = cursor.varint()
        if (
            flags >> _FLAG_BITS
            or flags >> _IF_EXISTS_SHIFT & 3 >= len(IF_EXISTS)
            or flags >> _ACKNOWLEDGE_SHIFT & 3 >= len(ACKNOWLEDGE)
        ):
            raise _Damaged("options that do not exist")
        record = Record(VERBS[verb], flags)
        self.last_start += cursor.signed()
        record.start_ns = self.last_start
        record.duration_ns = cursor.varint()
        outcome = cursor.varint()
        record.outcome = self.codes.get(outcome, f"error {outcome}")
        if outcome:
            record.failed = cursor.varint()
        record.client = cursor.varint()
        if record.client >= len(self.process.clients):
            raise _Damaged("a client that was not given")
        record.thread = cursor.varint()
        record.timeout_ms = cursor.signed()
        record.namespace = self.text(cursor)
        record.count = cursor.varint()
        if flags & _TAG:
            record.tag = cursor.varint()
        if flags & _VERSION:
            record.version = cursor.varint()
        if flags & _PART:
            record.offset, record.part_bytes = cursor.varint(), cursor.varint()
        if flags & _LIMITS:
            record.memory_bytes = cursor.varint()
        if flags & _TEXTS:
            record.metadata, record.function, record.arguments = (self.text(cursor) for _ in range(3))
        count = cursor.count()
        record.keys = [(self.text(cursor), self.text(cursor)) for _ in range(count)]
        if flags & _ONE_SIZE:
            record.sizes = [cursor.varint()] * count
        elif flags & _SIZES:
            record.sizes = [cursor.varint() for _ in range(count)]
        return record


def _checked(data: bytes, at: int, length: int, checksum: int) -> bytes | None:
    """What follows a prefix, if all of it is there and undamaged."""
    body = data[at : at + length]
    whole = length <= MAX_BLOCK and len(body) == length and _core.checksum(body) == checksum
    return body if whole else None


def decode(data: bytes) -> Process:
    """Raises ProtocolError: no trace, or of another version. A damaged block ends it without an error."""
    if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
        raise ProtocolError("not a trace")
    _, version, length, checksum = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise ProtocolError(f"a trace of version {version}; this program reads version {VERSION}")
    header = _checked(data, _PREFIX.size, length, checksum)
    if header is None:
        raise ProtocolError("a trace without its header")
    process = Process()
    cursor = _Cursor(header)
    try:
        process.realtime_ns, process.monotonic_ns = _CLOCKS.unpack(cursor.take(_CLOCKS.size))
        process.pid = cursor.varint()
        process.host, process.boot, process.program = (cursor.text().decode(errors="replace") for _ in range(3))
    except _Damaged as error:
        raise ProtocolError(str(error)) from None
    decoder = _Decoder(process)
    at = _PREFIX.size + length
    while at < len(data):
        try:
            if len(data) - at < _BLOCK_PREFIX.size:
                raise _Damaged("a block that is damaged or not whole")
            magic, length, checksum = _BLOCK_PREFIX.unpack_from(data, at)
            body = _checked(data, at + _BLOCK_PREFIX.size, length, checksum) if magic == _BLOCK_MAGIC else None
            if body is None:
                raise _Damaged("a block that is damaged or not whole")
            decoder.block(body)
        except _Damaged as error:
            process.lost_bytes = len(data) - at
            process.problem = str(error)
            break
        at += _BLOCK_PREFIX.size + length
    return process


def read(path: Path) -> list[Process]:
    """The file, or all files *.trace of a folder, by name. Raises NotFound, ProtocolError."""
    if path.is_dir():
        files = sorted(path.glob("*.trace"))
        if not files:
            raise NotFound(f"there is no file *.trace in {path}")
    elif path.exists():
        files = [path]
    else:
        raise NotFound(f"there is no trace {path}")
    processes = []
    for file in files:
        try:
            processes.append(decode(file.read_bytes()))
        except ProtocolError as error:
            raise ProtocolError(f"{file}: {error}") from None
    return processes
