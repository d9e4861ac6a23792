"""Messages of services: FlatBuffers, as a schema describes them, to Python values and back.

A schema is read as flatc writes it for programs (`flatc -b --schema`: .bfbs). Nothing is generated: a table is a
Message, with an attribute for each field. Vectors of numbers and of structs are NumPy arrays (structs: structured
ones), read in place; strings are str, vectors of strings and of tables lists, a struct is one element of a structured
array. A field that was not sent has its default; a table, string, vector or struct that was not sent is None.

Format: https://flatbuffers.dev/internals. What comes from elsewhere is checked: bytes that are no such message raise
ProtocolError. Unions are not supported. Values; any thread.
"""

from __future__ import annotations

import difflib
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import require_no_mask
from ..errors import InvalidArgument, NotFound, ProtocolError, Unsupported

HEADERS = Path(__file__).parents[1] / "include"
MOST_DEPTH = 64  # of tables within tables, as in C++
SHARED_BYTES = 4 << 20  # by which the values of a message may be longer than it, where they refer to the same bytes
REFERENCE_BYTES = 4
# reflection.fbs: BaseType, for numbers
NUMBERS = {1: "u1", 2: "?", 3: "i1", 4: "u1", 5: "<i2", 6: "<u2", 7: "<i4", 8: "<u4", 9: "<i8", 10: "<u8",
           11: "<f4", 12: "<f8"}  # fmt: skip
STRING, VECTOR, OBJECT, ARRAY = 13, 14, 15, 17


class Message:
    """A table's value: an attribute for each of its fields."""

    def __init__(self, **fields: Any):
        self.__dict__.update(fields)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message) or self.__dict__.keys() != other.__dict__.keys():
            return False
        return all(np.array_equal(value, other.__dict__[name]) for name, value in self.__dict__.items())


# -------------------------------------------------------------------------------------------------------------- reading


class _Table:
    """A table in bytes, whose fields are asked for by number. Raises struct.error or ValueError out of bounds.

    left: [bytes that the values may still have]. What is referred to again and again counts each time.
    """

    def __init__(self, bytes: memoryview, at: int, left: list[int] | None = None, depth: int = 1):
        self.bytes = bytes
        self.at = at
        self.left = left or [len(bytes) + SHARED_BYTES]
        self.depth = depth
        self.spend(REFERENCE_BYTES)
        if depth > MOST_DEPTH:
            raise ValueError("too many tables within tables")
        vtable = at - struct.unpack_from("<i", bytes, at)[0]
        if vtable < 0:
            raise ValueError("a table's fields lie before the message")
        size = struct.unpack_from("<H", bytes, vtable)[0]
        if size < 4 or size % 2:
            raise ValueError("a table without fields' places")
        self.places = struct.unpack_from(f"<{size // 2}H", bytes, vtable)[2:]

    def spend(self, bytes: int) -> None:
        self.left[0] -= bytes
        if self.left[0] < 0:
            raise ValueError("it refers to the same bytes too often")

    def place(self, number: int) -> int:
        """Where the field is; 0: it is not."""
        offset = self.places[number] if number < len(self.places) else 0
        return self.at + offset if offset else 0

    def number(self, number: int, format: str, default: Any = 0) -> Any:
        place = self.place(number)
        return struct.unpack_from("<" + format, self.bytes, place)[0] if place else default

    def vector_at(self, place: int) -> tuple[int, int]:
        """Where its elements begin, and how many."""
        at = place + struct.unpack_from("<I", self.bytes, place)[0]
        return at + 4, struct.unpack_from("<I", self.bytes, at)[0]

    def text_at(self, place: int) -> str:
        at, length = self.vector_at(place)
        self.spend(REFERENCE_BYTES + length)
        return str(struct.unpack_from(f"{length}s", self.bytes, at)[0], "utf-8")

    def table_at(self, place: int) -> _Table:
        at = place + struct.unpack_from("<I", self.bytes, place)[0]
        return _Table(self.bytes, at, self.left, self.depth + 1)

    def text(self, number: int) -> str:
        place = self.place(number)
        return self.text_at(place) if place else ""

    def table(self, number: int) -> _Table:
        place = self.place(number)
        if not place:
            raise ValueError("a table is missing")
        return self.table_at(place)

    def tables(self, number: int) -> list[_Table]:
        place = self.place(number)
        at, count = self.vector_at(place) if place else (0, 0)
        return [self.table_at(at + 4 * i) for i in range(count)]


# -------------------------------------------------------------------------------------------------------------- schemas


@dataclass(frozen=True)
class _Field:
    name: str
    number: int
    is_vector: bool
    kind: int  # BaseType; of a vector, of its elements
    object: int  # index of the table or struct, or -1
    dtype: np.dtype | None  # of a number or struct
    align: int  # of these
    default: Any

    @property
    def width(self) -> tuple[int, int]:
        """Bytes in the table, and their alignment."""
        return (4, 4) if self.dtype is None or self.is_vector else (self.dtype.itemsize, self.align)


@dataclass(frozen=True)
class _Object:
    name: str
    fields: dict[str, _Field]  # in the order of their numbers
    dtype: np.dtype | None  # of a struct


@dataclass(frozen=True)
class Method:
    """name: in the schema; python_name: as one calls it (snake_case)."""

    name: str
    number: int
    request: str
    reply: str

    @property
    def python_name(self) -> str:
        out = ""
        for i, c in enumerate(self.name):
            upper = c.isupper() and i > 0 and self.name[i - 1] != "_"
            before_lower = i + 1 < len(self.name) and self.name[i + 1].islower()
            if upper and (not self.name[i - 1].isupper() or before_lower):
                out += "_"
            out += c.lower()
        return out


@dataclass(frozen=True, eq=False)
class Service:
    """A service that a schema declares. name: fully qualified. methods: by Python name."""

    name: str
    methods: dict[str, Method]
    schema: Schema = field(repr=False)


class Schema:
    """Tables, structs and services, read from a file of flatc's: .bfbs, or .fbs where the program flatc is there.

    include: folders of schemas that an .fbs includes, beside its own and Penstock's headers ("penstock/rpc/bulk.fbs").
    Raises NotFound (no file, no flatc), ProtocolError.
    """

    def __init__(self, path: str | os.PathLike[str], include: tuple[str | os.PathLike[str], ...] = ()):
        path = Path(path)
        if not path.is_file():
            raise NotFound(f"there is no schema {path}")
        content = _compiled(path, include) if path.suffix == ".fbs" else path.read_bytes()
        try:
            self._read(memoryview(content))
        except (struct.error, ValueError, KeyError, IndexError, RecursionError) as error:
            raise ProtocolError(f"{path} is no binary schema: {error}") from None

    def _read(self, content: memoryview) -> None:
        if bytes(content[4:8]) != b"BFBS":
            raise ValueError("its first bytes are others")
        root = _Table(content, struct.unpack_from("<I", content)[0])
        raw = root.tables(0)
        self._objects: list[_Object | None] = [None] * len(raw)
        for number in range(len(raw)):
            self._object(raw, number)
        self._by_name = {one.name: one for one in self._objects if one}
        self.services = {service.name: service for service in map(self._service, root.tables(5))}

    def _service(self, raw: _Table) -> Service:
        methods = [
            Method(call.text(0), number, call.table(1).text(0), call.table(2).text(0))
            for number, call in enumerate(raw.tables(1))
        ]
        return Service(raw.text(0), {method.python_name: method for method in methods}, self)

    def _object(self, all: list[_Table], number: int) -> _Object:
        known = self._objects[number]
        if known:
            return known
        raw = all[number]
        fields, formats, offsets = {}, [], []
        for one in sorted(raw.tables(1), key=lambda one: one.number(2, "H")):
            made, count = self._field(all, one)
            fields[made.name] = made
            formats.append((made.dtype, (count,)) if count else made.dtype)
            offsets.append(one.number(3, "H"))
        dtype = None
        if raw.number(2, "?"):
            size = raw.number(4, "i")
            dtype = np.dtype({"names": list(fields), "formats": formats, "offsets": offsets, "itemsize": size})
        known = self._objects[number] = _Object(raw.text(0), fields, dtype)
        return known

    def _field(self, all: list[_Table], raw: _Table) -> tuple[_Field, int]:
        """Also how many elements it has, where it is an array."""
        type = raw.table(1)
        base, index = type.number(0, "b"), type.number(2, "i", -1)
        kind = type.number(1, "b") if base in (VECTOR, ARRAY) else base
        dtype, align, default = None, 4, None
        if kind in NUMBERS:
            dtype = np.dtype(NUMBERS[kind])
            align = dtype.itemsize
        elif kind == OBJECT and all[index].number(2, "?"):
            dtype, align = self._object(all, index).dtype, all[index].number(3, "i")
        if base in NUMBERS and not raw.number(11, "?"):
            default = raw.number(5, "d", 0.0) if base in (11, 12) else raw.number(4, "q")
            default = bool(default) if base == 2 else default
        made = _Field(raw.text(0), raw.number(2, "H"), base == VECTOR, kind, index, dtype, align, default)
        return made, type.number(3, "H") if base == ARRAY else 0

    def service(self, name: str = "") -> Service:
        """By full or plain name; "": the only one."""
        found = [one for full, one in self.services.items() if not name or name in (full, full.rpartition(".")[2])]
        if len(found) != 1:
            raise NotFound(f"the schema has {len(found) or 'no'} such service '{name}', but {', '.join(self.services)}")
        return found[0]

    def dtype(self, name: str) -> np.dtype:
        """Of a struct, by full or plain name: for arrays that are sent as vectors of it."""
        for full, one in self._by_name.items():
            if one.dtype is not None and name in (full, full.rpartition(".")[2]):
                return one.dtype
        raise NotFound(f"the schema has no struct '{name}'")

    # ------------------------------------------------------------------------------------------------- bytes to values

    def decode(self, table: str, content: Any) -> Message:
        """content: anything with a buffer; arrays of the result lie in it."""
        view = memoryview(content).cast("B")
        try:
            return self._decode(self._by_name[table], _Table(view, struct.unpack_from("<I", view)[0]))
        except (struct.error, ValueError) as error:
            raise ProtocolError(f"a malformed {table}: {error}") from None

    def _decode(self, kind: _Object, table: _Table) -> Message:
        return Message(**{name: self._decode_field(one, table) for name, one in kind.fields.items()})

    def _decode_field(self, one: _Field, table: _Table) -> Any:
        place = table.place(one.number)
        if not place:
            return one.default
        if not one.is_vector and one.dtype is not None:
            value = np.frombuffer(table.bytes, one.dtype, 1, place)[0]
            return value if one.kind == OBJECT else value.item()
        if not one.is_vector:
            return self._decode_target(one, table, place)
        at, count = table.vector_at(place)
        if one.dtype is not None:
            array = np.frombuffer(table.bytes, one.dtype, count, at) if count else np.empty(0, one.dtype)
            if array.flags.aligned:
                return array
            table.spend(array.nbytes)
            return array.copy()
        return [self._decode_target(one, table, at + 4 * i) for i in range(count)]

    def _decode_target(self, one: _Field, table: _Table, place: int) -> Any:
        if one.kind == STRING:
            return table.text_at(place)
        return self._decode(self._table(one), table.table_at(place))

    def _table(self, one: _Field) -> _Object:
        kind = self._objects[one.object] if one.kind == OBJECT else None
        if kind is None:
            raise Unsupported(f"field {one.name}: unions are not supported")
        return kind

    # ------------------------------------------------------------------------------------------------- values to bytes

    def encode(self, table: str, value: Any) -> bytearray:
        """value: a Message, or a mapping of field names. Raises InvalidArgument."""
        out = bytearray(4)
        struct.pack_into("<I", out, 0, self._encode(out, self._by_name[table], value, 1))
        return out

    def _encode(self, out: bytearray, kind: _Object, value: Any, depth: int) -> int:
        if depth > MOST_DEPTH:
            raise InvalidArgument("tables within tables, too deep")
        # The largest first: no padding between fields.
        given = sorted(self._present(kind, value), key=lambda item: (-item[0].width[1], item[0].number))
        slots = [0] * (1 + max((one.number for one, _ in given), default=-1))
        end = 4
        for one, _ in given:
            size, align = one.width
            slots[one.number] = end = -(-end // align) * align
            end += size
        vtable = _append(out, struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), end, *slots), 2)
        at = _append(out, bytes(end), max([4, *(one.width[1] for one, _ in given)]))
        struct.pack_into("<i", out, at, at - vtable)
        for one, item in given:
            self._encode_field(out, one, item, at + slots[one.number], depth)
        return at

    def _present(self, kind: _Object, value: Any) -> list[tuple[_Field, Any]]:
        fields = value.__dict__ if isinstance(value, Message) else value
        if not isinstance(fields, Mapping):
            raise InvalidArgument(f"a {kind.name} is a Message or a mapping, not {type(value).__name__}")
        for name in fields:
            if name not in kind.fields:
                near = difflib.get_close_matches(name, kind.fields, 1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                raise InvalidArgument(f"{kind.name} has no field '{name}'{hint}")
        return [(kind.fields[name], one) for name, one in fields.items() if one is not None]

    def _encode_field(self, out: bytearray, one: _Field, value: Any, place: int, depth: int) -> None:
        if one.dtype is not None and not one.is_vector:
            out[place : place + one.dtype.itemsize] = _array(one, value, one.dtype, 0).tobytes()
            return
        encode = self._encode_vector if one.is_vector else self._encode_target
        struct.pack_into("<I", out, place, encode(out, one, value, depth) - place)

    def _encode_vector(self, out: bytearray, one: _Field, value: Any, depth: int) -> int:
        if one.dtype is not None:
            array = _array(one, value, one.dtype, 1)
            return _append_vector(out, len(array), array.view(np.uint8).data if len(array) else b"", one.align)
        if isinstance(value, str | bytes | Mapping):
            raise InvalidArgument(f"field {one.name}: a list, not {type(value).__name__}")
        items = list(value)
        at = _append_vector(out, len(items), bytes(4 * len(items)))
        for place, item in enumerate(items, at // 4 + 1):
            struct.pack_into("<I", out, 4 * place, self._encode_target(out, one, item, depth) - 4 * place)
        return at

    def _encode_target(self, out: bytearray, one: _Field, value: Any, depth: int) -> int:
        if one.kind != STRING:
            return self._encode(out, self._table(one), value, depth + 1)
        if not isinstance(value, str):
            raise InvalidArgument(f"field {one.name}: text is a str, not {type(value).__name__}")
        text = value.encode()
        return _append_vector(out, len(text), text + b"\0")


def _append(out: bytearray, content: bytes, align: int) -> int:
    """Returns where it begins: at a multiple of `align`."""
    out += bytes(-len(out) % align)
    out += content
    return len(out) - len(content)


def _append_vector(out: bytearray, count: int, content: Any, align: int = 4) -> int:
    """Returns where its length is; its elements follow, at a multiple of `align`."""
    out += bytes(-(len(out) + 4) % max(4, align))
    at = len(out)
    out += struct.pack("<I", count)
    out += content
    return at


def _array(one: _Field, value: Any, dtype: np.dtype, dimensions: int) -> np.ndarray:
    """As this type, where that changes no value (but for a float's last digits)."""
    require_no_mask(f"field {one.name}", value)
    if isinstance(value, bytes | bytearray | memoryview) and dtype == np.uint8:
        value = np.frombuffer(value, np.uint8)
    if hasattr(value, "descriptor"):  # of exposed memory
        value = value.descriptor
    try:
        if dtype.names is not None:
            array = np.asarray(value, dtype, order="C")
        else:
            given = np.asarray(value)
            if given.dtype.kind not in "biuf":
                raise ValueError("it takes numbers")
            array = given.astype(dtype, order="C", copy=False)
            if dtype.kind != "f" and not np.array_equal(array, given):
                raise ValueError(f"the value does not fit into {dtype}")
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(f"field {one.name}: {error}") from None
    if array.ndim != dimensions:
        raise InvalidArgument(f"field {one.name}: {array.ndim} dimensions instead of {dimensions}")
    return array


def _compiled(path: Path, include: tuple[str | os.PathLike[str], ...]) -> bytes:
    flatc = shutil.which("flatc")
    if not flatc:
        raise NotFound(
            f"to read {path} needs the program flatc (Debian: flatbuffers-compiler); or give the .bfbs of the same "
            "schema, which penstock_rpc_service in CMake and flatc -b --schema make"
        )
    with tempfile.TemporaryDirectory() as folder:
        folders = [word for one in (*include, HEADERS) for word in ("-I", os.fspath(one))]
        command = [flatc, "-b", "--schema", *folders, "-o", folder, os.fspath(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise ProtocolError(f"{path}: {(done.stdout + done.stderr).strip()}")
        return (Path(folder) / (path.stem + ".bfbs")).read_bytes()
