"""Array spaces through the C API, over real servers: what C puts Python gets, and the other way round."""

import ctypes
from pathlib import Path

import numpy as np
import penstock
import pytest

INT8, FLOAT32, FLOAT64, COLUMN = 2, 12, 13, 1
INVALID_ARGUMENT, NOT_FOUND, TIMEOUT, ALREADY_EXISTS = 1, 3, 40, 70
AUTOMATIC, AT_READER, ON_REQUEST, IN_ADVANCE = range(4)
number = ctypes.c_uint64
LONG = number(20000)  # ms


class Struct(ctypes.Structure):
    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class Array(Struct):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("dtype", ctypes.c_int), ("ndims", ctypes.c_size_t),
        ("shape", ctypes.c_uint64 * 8), ("parts", ctypes.c_uint32), ("keep", ctypes.c_uint32),
        ("keep_ms", ctypes.c_uint64), ("num_fields", ctypes.c_size_t),
    )  # fmt: skip


class Form(ctypes.Structure):
    _fields_ = (("dtype", ctypes.c_int), ("order", ctypes.c_int))


class Field(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("dtype", ctypes.c_int))


class Options(Struct):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("convert", ctypes.c_int),
        ("num_layouts", ctypes.c_size_t), ("layouts", ctypes.POINTER(Form)), ("keep", ctypes.c_uint32),
        ("num_readers", ctypes.c_size_t), ("readers", ctypes.POINTER(ctypes.c_char_p)),
        ("num_fields", ctypes.c_size_t), ("fields", ctypes.POINTER(Field)),
        ("keep_bytes", ctypes.c_uint64), ("keep_ms", ctypes.c_uint64),
    )  # fmt: skip


class NamedField(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char * 65), ("dtype", ctypes.c_int))


class Block(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_uint64 * 8), ("count", ctypes.c_uint64 * 8), ("writer", ctypes.c_char * 128),
        ("put_us", ctypes.c_int64),
    )  # fmt: skip


class Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("ndims", ctypes.c_size_t),
        ("shape", ctypes.c_uint64 * 8),
    )  # fmt: skip


class FieldMemory(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("offset", ctypes.c_int64),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )  # fmt: skip


class Memory(Struct):
    _fields_ = (
        ("struct_size", ctypes.c_size_t), ("dtype", ctypes.c_int), ("order", ctypes.c_int),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("check", ctypes.c_int),
        ("num_fields", ctypes.c_size_t), ("fields", ctypes.POINTER(FieldMemory)), ("structure_bytes", ctypes.c_uint64),
        ("layout", ctypes.c_char_p), ("layout_bytes", ctypes.c_uint64),
    )  # fmt: skip


def numbers(*values):
    return (ctypes.c_uint64 * len(values))(*values)


def address(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def box(start, count):
    return ctypes.c_size_t(len(count)), start and numbers(*start), numbers(*count)


class CSpace:
    """call("put", ...) calls penstock_space_put with the space and an error, and returns the error's message."""

    def __init__(self, servers, folder):
        self.library = ctypes.CDLL(str(next((Path(penstock.__file__).parent / "lib").glob("libpenstock.so.*"))))
        for name in ("context", "space", "pending_put", "version_subscription"):
            getattr(self.library, f"penstock_{name}_destroy").restype = None
        self.library.penstock_array_entries_free.restype = None
        self.message = (ctypes.c_char * 516)()
        self.context, self.space = ctypes.c_void_p(), ctypes.c_void_p()
        self.any("context_create", f"directory={folder}".encode(), ctypes.byref(self.context))
        options = f"directory={servers.directory},timeout_ms=20000".encode()
        self.any("space_create", self.context, options, ctypes.byref(self.space))

    def any(self, name, *arguments, code=0):
        found = getattr(self.library, f"penstock_{name}")(*arguments, self.message)
        said = self.message.raw[4:].split(b"\0")[0].decode()
        assert found == code, f"{name}: {found} {said}"
        return said

    def call(self, name, *arguments, code=0):
        return self.any(f"space_{name}", self.space, *arguments, code=code)

    def close(self):
        self.library.penstock_space_destroy(self.space)
        self.library.penstock_context_destroy(self.context)


@pytest.fixture
def servers(pool_servers):
    return pool_servers(2)


@pytest.fixture
def c(servers, tmp_path):
    space = CSpace(servers, tmp_path)
    yield space
    space.close()


@pytest.fixture
def space(servers, open_space):
    return open_space(servers)


def test_the_same_arrays_in_c(c, space):
    T = space.define("T", "float64", (6, 8))
    c.call("define", b"T", FLOAT64, ctypes.c_size_t(2), numbers(6, 8), None)
    found = Array()
    c.call("array", b"T", LONG, ctypes.byref(found))
    assert (found.dtype, found.ndims, list(found.shape)) == (FLOAT64, 2, [6, 8, 0, 0, 0, 0, 0, 0])
    values = np.asfortranarray(np.arange(24, dtype=np.float32).reshape(3, 8))
    memory = Memory(dtype=FLOAT32, order=COLUMN)
    lower, whole = box((3, 0), (3, 8)), box(None, (6, 8))
    c.call("put", b"T", number(4), *lower, address(values), ctypes.byref(memory), LONG)
    T[4][:3] = 7
    np.testing.assert_array_equal(T[4][3:], values)
    out = np.zeros((6, 8))
    c.call("wait", b"T", number(4), *whole, LONG)
    c.call("get", b"T", number(4), *whole, address(out), None, LONG)
    np.testing.assert_array_equal(out, T[4][...])
    memory.struct_size = 0
    said = c.call("get", b"T", number(4), *whole, address(out), ctypes.byref(memory), LONG, code=INVALID_ARGUMENT)
    assert "struct_size" in said
    count, versions = ctypes.c_size_t(), numbers(0, 0)
    c.call("versions", b"T", ctypes.c_size_t(2), versions, ctypes.byref(count))
    assert (count.value, versions[0]) == (1, 4)
    found = ctypes.c_void_p()
    c.call("subscribe", b"T", *whole, number(0), number(0), number(0), LONG, ctypes.byref(found), code=INVALID_ARGUMENT)
    c.call("subscribe", b"T", *whole, number(2), number(2), number(0), LONG, ctypes.byref(found))
    version, more = number(), ctypes.c_int()
    next_version = ctypes.byref(version), ctypes.byref(more)
    c.any("version_subscription_next", found, LONG, *next_version)
    assert (version.value, more.value) == (4, 1)
    said = c.any("version_subscription_next", found, number(1000), *next_version, code=TIMEOUT)
    assert "no version after 4, in steps of 2, began" in said
    c.library.penstock_version_subscription_destroy(found)
    c.call("subscribe", b"T", *whole, number(4), number(1), number(5), LONG, ctypes.byref(found))
    for expected in ((4, 1), (4, 0), (4, 0)):
        c.any("version_subscription_next", found, LONG, *next_version)
        assert (version.value, more.value) == expected
    skipped = number(9)
    c.any("version_subscription_skipped", found, ctypes.byref(skipped))
    assert skipped.value == 0
    c.library.penstock_version_subscription_destroy(found)
    blocks = (Block * 1)()
    c.call("blocks", b"T", number(4), ctypes.c_size_t(1), blocks, ctypes.byref(count))
    there = T[4].blocks
    assert count.value == len(there) == 2
    one = next(one for one in there if one.start == tuple(blocks[0].start[:2]))
    assert tuple(blocks[0].count[:2]) == one.count and blocks[0].writer.decode() == one.writer
    assert blocks[0].put_us == round(1e6 * one.put_time)
    entries = ctypes.POINTER(Entry)()
    c.call("list", ctypes.byref(entries), ctypes.byref(count))
    assert [(entries[i].name, list(entries[i].shape[:3])) for i in range(count.value)] == [(b"T", [6, 8, 0])]
    c.library.penstock_array_entries_free(entries)
    dropped = ctypes.c_int()
    c.call("drop", b"T", number(4), ctypes.byref(dropped))
    assert dropped.value == 1
    assert "[0, 6) x [0, 8)" in c.call("wait", b"T", number(4), *whole, number(1000), code=TIMEOUT)
    c.call("drop_array", b"T", ctypes.byref(dropped))
    c.call("versions", b"T", ctypes.c_size_t(2), versions, ctypes.byref(count), code=NOT_FOUND)


def test_checked_in_c(c, space):
    T = space.define("T", "float64", (4,))
    T[1][...] = [0, 127.5, 128, -1]
    out, memory = np.zeros(4, np.int8), Memory(dtype=INT8, check=1)
    get = (b"T", number(1), *box(None, (4,)), address(out))
    assert "(2) is 128, outside" in c.call("get", *get, ctypes.byref(memory), LONG, code=INVALID_ARGUMENT)
    memory.check = 2
    assert "(1) is 127.5, which" in c.call("get", *get, ctypes.byref(memory), LONG, code=INVALID_ARGUMENT)
    memory.check = 3
    assert "a check" in c.call("get", *get, ctypes.byref(memory), LONG, code=INVALID_ARGUMENT)
    memory.check = 0
    c.call("get", *get, ctypes.byref(memory), LONG)
    for call in ("put", "get"):
        c.call(call, b"T", number(1), *box((2,), (0,)), None, None, LONG)
        assert "data is NULL" in c.call(
            call, b"T", number(1), *box((2,), (1,)), None, None, LONG, code=INVALID_ARGUMENT
        )
    np.testing.assert_array_equal(out, [0, 127, 127, -1])


def test_a_layout_of_a_plug_in_in_c(c, space, tiled_library):
    T = space.define("T", "float32", (6, 5))
    count = numbers(6, 5)
    size = number(0)
    path = str(tiled_library).encode()
    for _ in range(2):
        c.any("load_layouts", path)
    assert "missing.so" in c.any("load_layouts", b"missing.so", code=NOT_FOUND)
    c.any("layout_bytes", b"tiled4", ctypes.c_size_t(2), count, number(4), ctypes.byref(size))
    assert size.value == 6 * 5 * 4
    values = np.arange(30, dtype=np.float32).reshape(6, 5)
    tiles = np.concatenate([values[a : a + 4, b : b + 4].ravel() for a in (0, 4) for b in (0, 4)])
    memory = Memory(layout=b"tiled4", layout_bytes=size)
    c.call("put", b"T", number(1), *box(None, (6, 5)), address(tiles), ctypes.byref(memory), LONG)
    np.testing.assert_array_equal(T[1][...], values)
    out = np.zeros(30, np.float32)
    memory.layout_bytes = 100
    get = (b"T", number(1), *box(None, (6, 5)), address(out), ctypes.byref(memory), LONG)
    assert "100" in c.call("get", *get, code=INVALID_ARGUMENT)
    memory.layout_bytes = 0
    c.call("get", *get)
    np.testing.assert_array_equal(out, tiles)


def test_structures_in_c(c, space):
    fields = (Field * 2)(Field(b"x", FLOAT64), Field(b"id", INT8))
    options = Options(num_fields=2, fields=fields)
    c.call("define", b"p", 0, ctypes.c_size_t(1), numbers(5), ctypes.byref(options))
    said = c.call("define", b"p", FLOAT64, *box(None, (5,))[::2], ctypes.byref(options), code=INVALID_ARGUMENT)
    assert "PENSTOCK_NONE" in said
    found = Array()
    c.call("array", b"p", LONG, ctypes.byref(found))
    assert (found.dtype, found.ndims, found.num_fields) == (0, 1, 2)
    named, count = (NamedField * 2)(), ctypes.c_size_t()
    c.call("fields", b"p", ctypes.c_size_t(2), named, ctypes.byref(count))
    assert [(one.name, one.dtype) for one in named] == [(b"x", FLOAT64), (b"id", INT8)] and count.value == 2
    P = space["p"]
    values = np.array(
        [(0.5, 1), (1.5, 2), (2.5, 3), (3.5, 4), (4.5, 5)], np.dtype([("x", "f8"), ("id", "i1")], align=True)
    )
    where = (*box(None, (5,)), address(values))
    both = (FieldMemory * 2)(FieldMemory(b"x", 0, 0), FieldMemory(b"id", 0, values.dtype.fields["id"][1]))
    memory = Memory(num_fields=2, fields=both, structure_bytes=values.dtype.itemsize)
    c.call("put", b"p", number(1), *where, ctypes.byref(memory), LONG)
    np.testing.assert_array_equal(P[1][...], values.astype(P.dtype))
    out = np.zeros(10, np.float32)  # every second one
    strides = (ctypes.c_int64 * 1)(8)
    one = (FieldMemory * 1)(FieldMemory(b"id", FLOAT32, 4, strides))
    memory = Memory(num_fields=1, fields=one)
    c.call("get", b"p", number(1), *box(None, (5,)), address(out), ctypes.byref(memory), LONG)
    assert out.tolist() == [0, 1, 0, 2, 0, 3, 0, 4, 0, 5]


def test_options_of_a_definition_in_c(c, space):
    forms = (Form * 1)(Form(FLOAT32, COLUMN))
    readers = (ctypes.c_char_p * 2)(b"pictures", b"statistics")
    options = Options(convert=IN_ADVANCE, num_layouts=1, layouts=forms, keep=2, num_readers=2, readers=readers)
    shape = (ctypes.c_size_t(1), numbers(8))
    c.call("define", b"T", FLOAT64, *shape, ctypes.byref(options))
    same = {"convert": "in_advance", "layouts": [("float32", "F")], "keep": 2, "readers": ["pictures", "statistics"]}
    T = space.define("T", "float64", (8,), **same)  # other options raise
    with pytest.raises(penstock.AlreadyExists):
        space.define("T", "float64", (8,), **same | {"keep": 3})

    latest, found = number(9), ctypes.c_int(1)
    c.call("latest", b"T", ctypes.byref(latest), ctypes.byref(found))
    assert (latest.value, found.value) == (9, 0)
    values = np.arange(8.0)
    put = (*box(None, (8,)), address(values), None)
    for version in (3, 4):
        c.call("put", b"T", number(version), *put, LONG)
    c.call("latest", b"T", ctypes.byref(latest), ctypes.byref(found))
    assert (latest.value, found.value) == (4, 1)
    c.call("done", b"T", number(3), b"pictures", LONG)
    assert "statistics" in c.call("put", b"T", number(5), *put, number(1000), code=TIMEOUT)
    assert "no reader 'nobody'" in c.call("done", b"T", number(3), b"nobody", LONG, code=INVALID_ARGUMENT)
    c.call("done", b"T", number(3), b"statistics", LONG)
    c.call("put", b"T", number(5), *put, LONG)
    assert T.versions == [4, 5]
    text = ctypes.create_string_buffer(40)
    where, memory = box(None, (8,)), Memory(dtype=INT8)
    c.call("explain", b"T", number(4), *where, ctypes.byref(memory), ctypes.c_size_t(40), text)
    whole = space["T", 4].explain(dtype="int8")
    assert text.value.decode() == "\n".join(whole)[:39] != ""

    for wrong, said in (({"convert": 4}, "convert"), ({"num_readers": 1}, "readers"), ({"num_layouts": 17}, "layouts")):
        options = Options(**wrong)
        assert said in c.call("define", b"U", FLOAT64, *shape, ctypes.byref(options), code=INVALID_ARGUMENT)
    assert "U" not in space


def test_a_put_that_goes_on_in_c(c, space):
    T = space.define("T", "float64", (100,))
    values, pending = np.arange(60.0), ctypes.c_void_p()
    rest = (*box((40,), (60,)), address(values), None, LONG)
    c.call("start_put", b"T", number(1), *rest, ctypes.byref(pending))
    T[1][:40] = 0
    c.any("pending_put_wait", pending)
    c.any("pending_put_wait", pending)
    c.library.penstock_pending_put_destroy(pending)
    np.testing.assert_array_equal(T[1][...], np.r_[np.zeros(40), values])
    values += 1
    c.call("start_put", b"T", number(1), *rest, ctypes.byref(pending))
    assert "other values" in c.any("pending_put_wait", pending, code=ALREADY_EXISTS)
    c.any("pending_put_wait", pending)  # said once
    c.library.penstock_pending_put_destroy(pending)
    c.call("start_put", b"T", number(2), *rest, ctypes.byref(pending))
    c.library.penstock_pending_put_destroy(pending)  # waits
    assert sum(block.count[0] for block in T[2].blocks) == 60
    np.testing.assert_array_equal(T[2][40:], values)
