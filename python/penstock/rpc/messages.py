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
from typing import Any

import numpy as np

from ..dtypes import require_no_mask
from ..errors import InvalidArgument, NotFound, ProtocolError, Unsupported

MOST_DEPTH = 64  # of tables within tables, as in C++
# reflection.fbs: BaseType, for numbers
NUMBERS = {1: "u1", 2: "?", 3: "i1", 4: "u1", 5: "<i2", 6: "<u2", 7: "<i4", 8: "<u4", 9: "<i8", 10: "<u8",
           11: "<f4", 12: "<f8"}  # fmt: skip
STRING, VECTOR, OBJECT, UNION, ARRAY = 13, 14, 15, 16, 17


class Message:
    """A table's value: an attribute for each of its fields."""

    def __init__(self, **fields: Any):
        self.__dict__.update(fields)

    def __repr__(self) -> str:
        return f"Message({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message) or self.__dict__.keys() != other.__dict__.keys():
            return False
        return all(np.array_equal(value, other.__dict__[name]) for name, value in self.__dict__.items())


# -------------------------------------------------------------------------------------------------------------- reading


class _Table:
    """A table in bytes, whose fields are asked for by number. Raises struct.error or ValueError out of bounds."""

    def __init__(self, bytes: memoryview, at: int):
        self.bytes = bytes
        self.at = at
        vtable = at - struct.unpack_from("<i", bytes, at)[0]
        if vtable < 0:
            raise ValueError("a table's fields lie before the message")
        size = struct.unpack_from("<H", bytes, vtable)[0]
        if size < 4 or size % 2:
            raise ValueError("a table without fields' places")
        self.places = struct.unpack_from(f"<{size // 2}H", bytes, vtable)[2:]

    def place(self, number: int) -> int:
        """Where the field is; 0: it is not."""
        offset = self.places[number] if number < len(self.places) else 0
        return self.at + offset if offset else 0

    def number(self, number: int, format: str, default: Any = 0) -> Any:
        place = self.place(number)
        return struct.unpack_from("<" + format, self.bytes, place)[0] if place else default

    def target(self, number: int) -> int:
        place = self.place(number)
        return place + struct.unpack_from("<I", self.bytes, place)[0] if place else 0

    def vector(self, number: int) -> tuple[int, int]:
        """Where its elements begin, and how many."""
        target = self.target(number)
        return (target + 4, struct.unpack_from("<I", self.bytes, target)[0]) if target else (0, 0)

    def text(self, number: int) -> str:
        at, length = self.vector(number)
        return _text(self.bytes, at, length) if at else ""

    def table(self, number: int) -> _Table | None:
        target = self.target(number)
        return _Table(self.bytes, target) if target else None

    def tables(self, number: int) -> list[_Table]:
        at, count = self.vector(number)
        return [_Table(self.bytes, target) for target in _targets(self.bytes, at, count)]


@dataclass
class _Limits:
    tables: int  # that may still come: one that is referred to again and again counts each time


def _text(bytes: memoryview, at: int, length: int) -> str:
    if at + length > len(bytes):
        raise ValueError("a text beyond the message")
    return str(bytes[at : at + length], "utf-8")


def _targets(bytes: memoryview, at: int, count: int) -> list[int]:
    offsets = np.frombuffer(bytes, "<u4", count, at) if count else ()
    return [at + 4 * i + int(offset) for i, offset in enumerate(offsets)]


# -------------------------------------------------------------------------------------------------------------- schemas


@dataclass(frozen=True)
class _Field:
    name: str
    number: int
    base: int
    element: int  # of a vector or array
    object: int  # index of the table or struct, or -1
    default: Any
    optional: bool


@dataclass(frozen=True)
class _Object:
    name: str
    is_struct: bool
    align: int
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

    include: folders of schemas that an .fbs includes. Raises NotFound (no file, no flatc), ProtocolError.
    """

    def __init__(self, path: str | os.PathLike[str], include: tuple[str | os.PathLike[str], ...] = ()):
        path = Path(path)
        if not path.is_file():
            raise NotFound(f"there is no schema {path}")
        content = _compiled(path, include) if path.suffix == ".fbs" else path.read_bytes()
        try:
            self._read(memoryview(content))
        except (struct.error, ValueError, KeyError, IndexError) as error:
            raise ProtocolError(f"{path} is no binary schema: {error}") from None

    def _read(self, content: memoryview) -> None:
        if content[4:8] != b"BFBS":
            raise ValueError("its first bytes are others")
        root = _Table(content, struct.unpack_from("<I", content, 0)[0])
        self._raw = root.tables(0)
        self._objects: list[_Object | None] = [None] * len(self._raw)
        for number in range(len(self._raw)):
            self._object(number)
        self._by_name = {one.name: one for one in self._objects if one}
        self.services = {service.name: service for service in map(self._service, root.tables(5))}
        del self._raw

    def _service(self, raw: _Table) -> Service:
        methods = [
            Method(call.text(0), number, call.table(1).text(0), call.table(2).text(0))  # type: ignore[union-attr]
            for number, call in enumerate(raw.tables(1))
        ]
        return Service(raw.text(0), {method.python_name: method for method in methods}, self)

    def _object(self, number: int) -> _Object:
        known = self._objects[number]
        if known:
            return known
        raw = self._raw[number]
        fields, offsets = {}, {}
        for one in sorted(raw.tables(1), key=lambda one: one.number(2, "H")):
            kind = one.table(1)
            assert kind is not None
            base, element, index = kind.number(0, "b"), kind.number(1, "b"), kind.number(2, "i", -1)
            default = one.number(5, "d", 0.0) if base in (11, 12) else one.number(4, "q")
            default = bool(default) if base == 2 else default
            optional = bool(one.number(11, "?", False))
            name = one.text(0)
            fields[name] = _Field(name, one.number(2, "H"), base, element, index, default, optional)
            offsets[name] = (one.number(3, "H"), kind.number(3, "H"))
        is_struct = bool(raw.number(2, "?", False))
        dtype = self._dtype(fields, offsets, raw.number(4, "i")) if is_struct else None
        made = _Object(raw.text(0), is_struct, raw.number(3, "i"), fields, dtype)
        self._objects[number] = made
        return made

    def _dtype(self, fields: dict[str, _Field], offsets: dict[str, tuple[int, int]], size: int) -> np.dtype:
        formats: list[Any] = []
        for name, one in fields.items():
            kind = one.element if one.base == ARRAY else one.base
            plain = self._object(one.object).dtype if kind == OBJECT else NUMBERS[kind]
            formats.append((plain, (offsets[name][1],)) if one.base == ARRAY else plain)
        places = [offsets[name][0] for name in fields]
        return np.dtype({"names": list(fields), "formats": formats, "offsets": places, "itemsize": size})

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
        try:
            view = memoryview(content).cast("B")
            root = _Table(view, struct.unpack_from("<I", view, 0)[0])
            return self._decode(self._by_name[table], root, _Limits(len(view) // 4 + 1), 0)
        except (struct.error, ValueError) as error:
            raise ProtocolError(f"a malformed {table}: {error}") from None

    def _decode(self, kind: _Object, table: _Table, limits: _Limits, depth: int) -> Message:
        limits.tables -= 1
        if depth > MOST_DEPTH or limits.tables < 0:
            raise ValueError("too many tables within tables")
        return Message(**{name: self._decode_field(one, table, limits, depth) for name, one in kind.fields.items()})

    def _decode_field(self, one: _Field, table: _Table, limits: _Limits, depth: int) -> Any:
        place = table.place(one.number)
        if one.base in NUMBERS:
            if not place:
                return None if one.optional else one.default
            return np.frombuffer(table.bytes, NUMBERS[one.base], 1, place)[0].item()
        if not place:
            return None
        if one.base == STRING:
            return table.text(one.number)
        if one.base == OBJECT:
            kind = self._objects[one.object]
            assert kind is not None
            if kind.dtype is not None:
                return np.frombuffer(table.bytes, kind.dtype, 1, place)[0]
            return self._decode(kind, _Table(table.bytes, table.target(one.number)), limits, depth + 1)
        if one.base == VECTOR:
            return self._decode_vector(one, table, limits, depth)
        raise Unsupported(f"field {one.name}: unions are not supported")

    def _decode_vector(self, one: _Field, table: _Table, limits: _Limits, depth: int) -> Any:
        at, count = table.vector(one.number)
        kind = self._objects[one.object] if one.element == OBJECT else None
        plain = kind.dtype if kind else NUMBERS.get(one.element)
        if plain is not None:
            array = np.frombuffer(table.bytes, plain, count, at) if count else np.empty(0, plain)
            return array if array.flags.aligned else array.copy()
        targets = _targets(table.bytes, at, count)
        if kind:
            return [self._decode(kind, _Table(table.bytes, target), limits, depth + 1) for target in targets]
        if one.element == STRING:
            lengths = [struct.unpack_from("<I", table.bytes, target)[0] for target in targets]
            return [_text(table.bytes, target + 4, length) for target, length in zip(targets, lengths, strict=True)]
        raise Unsupported(f"field {one.name}: vectors of unions are not supported")

    # ------------------------------------------------------------------------------------------------- values to bytes

    def encode(self, table: str, value: Any) -> bytearray:
        """value: a Message, or a mapping of field names. Raises InvalidArgument."""
        out = bytearray(4)
        at = self._encode(out, self._by_name[table], value, 0)
        struct.pack_into("<I", out, 0, at)
        return out

    def _encode(self, out: bytearray, kind: _Object, value: Any, depth: int) -> int:
        if depth > MOST_DEPTH:
            raise InvalidArgument("tables within tables, too deep")
        given = self._present(kind, value)
        inline = {name: self._inline_dtype(kind.fields[name]) for name in given}
        places, end = {}, 4
        for name, dtype in sorted(inline.items(), key=lambda item: (-item[1][1], kind.fields[item[0]].number)):
            end = -(-end // dtype[1]) * dtype[1]
            places[name] = end
            end += dtype[0].itemsize
        slots = [0] * (1 + max((kind.fields[name].number for name in given), default=-1))
        for name, place in places.items():
            slots[kind.fields[name].number] = place
        _align(out, 2)
        vtable = len(out)
        out += struct.pack(f"<{2 + len(slots)}H", 4 + 2 * len(slots), end, *slots)
        _align(out, max([4, *(align for _, align in inline.values())]))
        at = len(out)
        out += bytes(end)
        struct.pack_into("<i", out, at, at - vtable)
        for name, place in places.items():
            self._encode_field(out, kind.fields[name], given[name], at + place, inline[name][0], depth)
        return at

    def _present(self, kind: _Object, value: Any) -> dict[str, Any]:
        fields = value.__dict__ if isinstance(value, Message) else value
        if not isinstance(fields, Mapping):
            raise InvalidArgument(f"a {kind.name} is a Message or a mapping, not {type(value).__name__}")
        for name in fields:
            if name not in kind.fields:
                near = difflib.get_close_matches(name, kind.fields, 1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                raise InvalidArgument(f"{kind.name} has no field '{name}'{hint}")
        return {name: one for name, one in fields.items() if one is not None}

    def _inline_dtype(self, one: _Field) -> tuple[np.dtype, int]:
        if one.base in NUMBERS:
            dtype = np.dtype(NUMBERS[one.base])
            return dtype, dtype.itemsize
        kind = self._objects[one.object] if one.base == OBJECT else None
        if kind and kind.dtype is not None:
            return kind.dtype, kind.align
        if one.base in (STRING, VECTOR, OBJECT):
            return np.dtype("<u4"), 4
        raise Unsupported(f"field {one.name}: unions are not supported")

    def _encode_field(self, out: bytearray, one: _Field, value: Any, at: int, dtype: np.dtype, depth: int) -> None:
        kind = self._objects[one.object] if one.base == OBJECT else None
        if one.base in NUMBERS or (kind and kind.dtype is not None):
            out[at : at + dtype.itemsize] = _array(one, value, dtype, 0).tobytes()
            return
        if one.base == STRING:
            target = _append_text(out, _checked_text(one, value))
        elif kind:
            target = self._encode(out, kind, value, depth + 1)
        else:
            target = self._encode_vector(out, one, value, depth)
        struct.pack_into("<I", out, at, target - at)

    def _encode_vector(self, out: bytearray, one: _Field, value: Any, depth: int) -> int:
        kind = self._objects[one.object] if one.element == OBJECT else None
        plain = kind.dtype if kind else NUMBERS.get(one.element)
        if plain is not None:
            array = _array(one, value, np.dtype(plain), 1)
            align = kind.align if kind else array.itemsize
            _align(out, max(4, align), 4)
            at = len(out)
            out += struct.pack("<I", len(array))
            out += array.view(np.uint8).data if len(array) else b""
            return at
        if one.element not in (OBJECT, STRING):
            raise Unsupported(f"field {one.name}: vectors of unions are not supported")
        if isinstance(value, str | bytes | Mapping):
            raise InvalidArgument(f"field {one.name}: a list, not {type(value).__name__}")
        items = list(value)
        _align(out, 4)
        at = len(out)
        out += struct.pack("<I", len(items)) + bytes(4 * len(items))
        for i, item in enumerate(items):
            target = self._encode(out, kind, item, depth + 1) if kind else _append_text(out, _checked_text(one, item))
            place = at + 4 + 4 * i
            struct.pack_into("<I", out, place, target - place)
        return at


def _align(out: bytearray, align: int, before: int = 0) -> None:
    """Pads so that what comes `before` bytes later begins at a multiple."""
    out += bytes(-(len(out) + before) % align)


def _append_text(out: bytearray, text: bytes) -> int:
    _align(out, 4)
    at = len(out)
    out += struct.pack("<I", len(text)) + text + b"\0"
    return at


def _checked_text(one: _Field, value: Any) -> bytes:
    if not isinstance(value, str):
        raise InvalidArgument(f"field {one.name}: text is a str, not {type(value).__name__}")
    return value.encode()


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
        raise NotFound(f"to read {path} as it is needs flatc; give the .bfbs that flatc -b --schema makes of it")
    with tempfile.TemporaryDirectory() as folder:
        folders = [word for one in include for word in ("-I", os.fspath(one))]
        command = [flatc, "-b", "--schema", *folders, "-o", folder, os.fspath(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise ProtocolError(f"{path}: {(done.stdout + done.stderr).strip()}")
        return (Path(folder) / (path.stem + ".bfbs")).read_bytes()
