"""Array spaces: versioned arrays in a pool, put and got box by box, each in its own layout and type.

    space = penstock.Space("stage")
    T = space.define("T", "float64", (512, 512, 512))
    T[7][0:256] = lower                   # one program puts some of version 7,
    T[7][256:] = upper                    # another one the rest;
    plane = space["T", 7][:, 100]         # a third gets any box: once all of it is there

    p = space.define("p", [("x", "float64"), ("id", "int8")], (1000,))
    p[0][...] = particles                 # a structured array, or {"x": ..., "id": ...}
    x = p[0].get(fields="x")              # one field; all of them as structures, or fields=[...] as an array each

Elements are written once: the same values may be put again, others raise AlreadyExists. Memory order and type of what
is put and got are the caller's; the space converts. Unless checked, integers wrap and floats become the nearest integer
towards zero within the range; real and complex numbers do not convert to each other.
Source: SAND2021-10271 (the Kokkos staging space on DataSpaces), with cover, immutability and deadlines added.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from . import _core, dtypes
from ._core import Space as CoreSpace
from .errors import InvalidArgument, NotFound, Unsupported
from .pool import _timeout
from .selection import Picked, pick
from .stream import to_ms

if TYPE_CHECKING:
    from .context import Context


class Block(NamedTuple):
    """Elements that one put has brought."""

    start: tuple[int, ...]
    count: tuple[int, ...]  # type: ignore[assignment]  # the method that a tuple has is not needed
    writer: str  # "host:process number" of the program that put them
    put_time: float  # seconds since 1970


def _in_columns(order: str) -> bool:
    if order not in ("C", "F"):
        raise InvalidArgument(f"a memory order is 'C' or 'F', not {order!r}")
    return order == "F"


def _check(checked: bool | str) -> str:
    """The extension's name of a check."""
    names = {False: "none", True: "range", "exact": "exact"}
    if not isinstance(checked, bool | str) or checked not in names:
        raise InvalidArgument(f"checked is False, True (ranges) or 'exact', not {checked!r}")
    return names[checked]


def _arrays(array: np.ndarray, name: str = "") -> list[tuple[str, str, np.ndarray]]:
    """As the extension moves them: (field, Penstock's type, array) of each field, or of elements, the field `name`."""
    fields = dtypes.fields_of(array.dtype)
    if not fields:
        return [(name, dtypes.from_numpy(array.dtype), dtypes.as_bits(array))]
    return [(field, kind, dtypes.as_bits(array[field])) for field, kind in fields]


def _spanned(picked: Picked) -> list[int]:
    """The counts of the box without steps around what was picked."""
    return [(count - 1) * stride + 1 if count else 0 for count, stride in zip(picked.count, picked.stride, strict=True)]


class Space:
    """The arrays of a pool. Safe to share between threads.

    name, directory, role, token, timeout, data_plane, context: as for Pool. Raises NotFound (no such pool), PeerLost
    (no directory that can be reached), TimeoutError, AuthenticationError.
    """

    def __init__(
        self,
        name: str = "",
        *,
        directory: str = "",
        role: str = "",
        token: str = "",
        timeout: float = 30.0,
        data_plane: str = "automatic",
        fixed: str = "",
        context: Context | None = None,
    ):
        from .context import _default_context

        chosen = context if context is not None else _default_context()
        options = {
            "pool": name,
            "directory": directory,
            "role": role,
            "token": token,
            "data_plane": data_plane,
            "timeout_ms": str(min(to_ms(timeout), 2**32 - 1)),
            "fixed": fixed,
        }
        self._core = chosen._core.open_space(options)
        chosen._pools.add(self)

    def define(
        self,
        name: str,
        dtype: Any,
        shape: Sequence[int],
        *,
        convert: str = "automatic",
        layouts: Sequence[tuple[Any, str]] = (),
        keep: int = 0,
        keep_bytes: int = 0,
        keep_seconds: float = 0.0,
        readers: Sequence[str] = (),
    ) -> Array:
        """Defines an array of 1 to 8 dimensions. The same definition again, also without options, gives the same array.

        A structured dtype, as [("x", "float64"), ("id", "int8")], makes an array of structures of at most 64 fields
        with names of at most 64 bytes. Servers do not convert it: convert is "at_reader" or "automatic".

        convert says where elements are converted that are got in another order or type: "at_reader", "on_request" (by
        the server, which keeps the result), "in_advance" (when they are put, into `layouts`: (dtype or None, "C" or
        "F") each, at most 16), or "automatic" (chosen for each request from measured costs).
        keep: how many versions are there at most (0: as many as fit). A new one begins when the lowest one has been
        dropped: once every group of programs that `readers` names has read it (Version.done). Puts wait for that.
        keep_bytes: as keep, as many whole versions as fit, at least one. keep_seconds: a version that began longer ago
        goes when another one begins, once all readers have read it; puts do not wait for that.
        Raises AlreadyExists (it has another dtype or shape, or other options), InvalidArgument (no elements; strings).
        """
        sizes = tuple(operator.index(size) for size in shape)
        fields = dtypes.fields_of(dtype)
        kind_of = "" if fields else dtypes.from_numpy(dtype)
        forms = [(dtypes.from_numpy(dtype if kind is None else kind), _in_columns(order)) for kind, order in layouts]
        bounds = keep, keep_bytes, math.ceil(1e3 * keep_seconds)
        if min(bounds) < 0:
            raise InvalidArgument(f"array '{name}': keep, keep_bytes and keep_seconds are not negative")
        return Array(self, *self._core.define(name, kind_of, fields, sizes, convert, forms, *bounds, list(readers)))

    @property
    def status(self) -> list[dict[str, Any]]:
        """What each server has done for arrays since it started: conversions, bytes, replicas in memory."""
        status: list[dict[str, Any]] = self._core.status()
        return status

    @overload
    def __getitem__(self, key: str) -> Array: ...
    @overload
    def __getitem__(self, key: tuple[str, int]) -> Version: ...
    def __getitem__(self, key: str | tuple[str, int]) -> Array | Version:
        """space["T"], an array, or space["T", 7], a version of it. Raises NotFound for an array that is not defined."""
        if isinstance(key, tuple):
            name, version = key
            return Array(self, *self._core.info(name))[version]
        return Array(self, *self._core.info(key))

    def wait(self, name: str, *, timeout: float | None = None) -> Array:
        """The array, once it is defined. Raises TimeoutError."""
        return Array(self, *self._core.wait_defined(name, _timeout(timeout)))

    def __contains__(self, name: str) -> bool:
        try:
            self._core.info(name)
        except NotFound:
            return False
        return True

    def __iter__(self) -> Iterator[Array]:
        return (Array(self, *found) for found in self._core.list_arrays())

    def drop(self, name: str) -> bool:
        """Removes an array with all its versions. False when there was none."""
        return self._core.drop(name, None)

    def close(self) -> None:
        self._core.close()

    def __enter__(self) -> Space:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Array:
    """An array of a space: name, dtype (NumPy's), shape, and its versions by number: T[7]."""

    def __init__(
        self,
        space: Space,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        parts: int,
        convert: str,
        fields: list[tuple[str, str]],
    ):
        self.space = space
        self.name = name
        self.dtype = (
            np.dtype([(field, dtypes.to_numpy(kind)) for field, kind in fields]) if fields else dtypes.to_numpy(dtype)
        )
        self.shape = tuple(shape)
        self.parts = parts  # pieces that lie on a server each
        self.convert = convert
        self._dtype = f"{{{', '.join(map(': '.join, fields))}}}" if fields else dtype

    def __getitem__(self, version: int) -> Version:
        if not isinstance(version, int | np.integer) or not 0 <= version < 1 << 64:
            raise InvalidArgument(f"array '{self.name}': a version is a number from 0, not {version!r}")
        return Version(self, int(version))

    @property
    def versions(self) -> list[int]:
        """Those of which something was put, ascending."""
        return self.space._core.versions(self.name)

    @property
    def latest(self) -> int | None:
        """The highest version."""
        versions = self.versions
        return versions[-1] if versions else None

    def subscribe(
        self, index: Any = ..., *, start: int = 0, step: int = 1, stop: int | None = None, timeout: float | None = None
    ) -> Versions:
        """Iterates over versions start, start + step, ... below stop, ascending, each once its elements are there.

        It ends after version stop - 1, or when the elements of one from stop on are there: then no lower one comes.
        index: which elements, as in T[7][index]. timeout: seconds to wait for each version. Raises InvalidArgument.
        """
        for name, number, least in (("start", start, 0), ("step", step, 1), ("stop", stop, 0)):
            if number is not None and not least <= operator.index(number) < 1 << 64:
                raise InvalidArgument(f"array '{self.name}': {name} is a number from {least}, not {number!r}")
        picked = pick(index, self.shape)
        ends = _timeout(timeout)
        core = self.space._core.subscribe(self.name, picked.start, _spanned(picked), start, step, stop, ends)
        return Versions(self, core, timeout)

    def __repr__(self) -> str:
        return f"<Array {self.name!r} of {self._dtype}, shape {self.shape}>"


class Versions:
    """Versions of an array, one after the other: `for version in T.subscribe(...)`. For one thread at a time.

    A version that is dropped before its elements are there is skipped, and one that begins below a version already
    given is not given. next() raises TimeoutError (names the boxes that are not there, or says that no version began;
    the next call goes on), NotFound (the array was dropped), WrongState (the space is closed).
    """

    def __init__(self, array: Array, core: _core.Versions, timeout: float | None):
        self.array = array
        self.timeout = timeout
        self._versions = core

    def __iter__(self) -> Versions:
        return self

    def __next__(self) -> Version:
        number = self._versions.next(_timeout(self.timeout))
        if number is None:
            raise StopIteration
        return Version(self.array, number)

    @property
    def skipped(self) -> int:
        """Versions that had begun, were waited for, and were dropped."""
        return self._versions.skipped


class PendingArrayPut:
    """A put under way. Its values must not change before wait() has returned, or this object is gone, which waits."""

    def __init__(self, core: _core.SpacePut):
        self._core = core

    def wait(self) -> None:
        """Until the elements are there. Raises what put raises, once."""
        self._core.wait()


class Version:
    """One version of an array. Indexed as NumPy's arrays are: with slices, integers, Ellipsis and None."""

    def __init__(self, array: Array, number: int):
        self.array = array
        self.number = number

    def __getitem__(self, index: Any) -> np.ndarray:
        """The elements, once all of them are there. Raises TimeoutError, which names the boxes that are not."""
        return self.get(index)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("getting an array copies it")
        return self.get(dtype=dtype)

    @overload
    def get(
        self,
        index: Any = ...,
        *,
        fields: str | None = None,
        dtype: Any = None,
        order: Literal["C", "F"] = "C",
        out: np.ndarray | None = None,
        layout: str = "",
        checked: bool | str = False,
        timeout: float | None = None,
    ) -> np.ndarray: ...
    @overload
    def get(
        self,
        index: Any = ...,
        *,
        fields: list[str] | tuple[str, ...],
        dtype: Any = None,
        order: Literal["C", "F"] = "C",
        out: np.ndarray | None = None,
        checked: bool | str = False,
        timeout: float | None = None,
    ) -> dict[str, np.ndarray]: ...
    def get(
        self,
        index: Any = ...,
        *,
        fields: str | Sequence[str] | None = None,
        dtype: Any = None,
        order: Literal["C", "F"] = "C",
        out: np.ndarray | None = None,
        layout: str = "",
        checked: bool | str = False,
        timeout: float | None = None,
    ) -> np.ndarray | dict[str, np.ndarray]:
        """The elements in another type or memory order ("C" or "F"), or into `out`: of their shape and any type.

        Of structures: an array of structures, with the fields and padding of `dtype` or out, which share no bytes; with
        fields="x" an array of that field; with fields=["x", "id"] an array of each, by name.
        In a layout that penstock.layouts.load has loaded: the elements as they lie there, padding included, in one
        dimension. The box has no steps.
        checked refuses elements outside the range of the type, "exact" also those that it does not hold exactly:
        InvalidArgument names the first one; what `out` then holds is unspecified.
        Raises TimeoutError (names the boxes that are not there), NotFound (the version was dropped meanwhile),
        Unsupported (types that do not convert).
        """
        picked, check = pick(index, self.array.shape), _check(checked)
        if layout:
            if order != "C" or fields is not None or out is not None:
                raise InvalidArgument(f"layout {layout!r} leaves no order, fields or out to choose")
            return self._get_in_layout(picked, layout, dtype, check, _timeout(timeout))
        names = [fields] if isinstance(fields, str) else None if fields is None else list(fields)
        if checked and picked.strided:
            raise InvalidArgument(f"array '{self.array.name}': a get with steps between elements cannot be checked")
        if out is not None and (out.shape != picked.shape or dtype is not None or not out.dtype.isnative):
            raise InvalidArgument(
                f"out has shape {out.shape}, the elements have {picked.shape}; its type, of native byte order, "
                "is what they are converted to"
            )
        if out is not None and names is not None and len(names) != 1:
            raise InvalidArgument("out takes one field, or structures: several fields have an array each")
        kinds = self._kinds(names, dtype if out is None else out.dtype)
        if out is not None and not picked.strided:
            targets = [out[picked.back]]
        else:
            targets = [np.empty(_spanned(picked), kind, order=order) for kind in kinds]
        arrays = _arrays(targets[0]) if names is None else list(itertools.chain(*map(_arrays, targets, names)))
        self._core.get(self.array.name, self.number, picked.start, arrays, check, _timeout(timeout))
        if out is not None and not picked.strided:
            return out
        steps = tuple(slice(None, None, stride) for stride in picked.stride)
        found = [target[steps][picked.forward] for target in targets]
        if out is not None:
            out[...] = found[0]
            return out
        return found[0] if names is None or isinstance(fields, str) else dict(zip(names, found, strict=True))

    def _layout_type(self, dtype: Any) -> tuple[np.dtype, str, list[tuple[str, str]]]:
        """NumPy's type of elements in a layout, and Penstock's: their name, or their fields."""
        kind = dtypes.native(self.array.dtype if dtype is None else dtype)
        if kind.names is None:
            return kind, dtypes.from_numpy(kind), []
        if kind != self.array.dtype:
            raise InvalidArgument(f"structures lie in a layout as {self.array.dtype}, not as {kind}")
        return kind, "", dtypes.fields_of(kind)

    def _require_box(self, picked: Picked) -> None:
        if picked.strided or picked.reversed:
            raise InvalidArgument(f"array '{self.array.name}': a box in a layout has no steps")

    def _layout_bytes(self, picked: Picked, layout: str, kind: np.dtype) -> int:
        needed = _core.layout_bytes(layout, picked.count, kind.itemsize)
        if needed % kind.itemsize:
            raise Unsupported(f"layout {layout!r} takes {needed} bytes, which are no whole elements of {kind}")
        return needed

    def _get_in_layout(self, picked: Picked, layout: str, dtype: Any, check: str, timeout: int) -> np.ndarray:
        self._require_box(picked)
        kind, element, fields = self._layout_type(dtype)
        found = np.zeros(self._layout_bytes(picked, layout, kind), np.uint8)
        where = self.array.name, self.number, picked.start, picked.count
        self._core.get_in_layout(*where, element, fields, layout, found, check, timeout)
        return found.view(kind)

    def _put_in_layout(self, picked: Picked, layout: str, values: Any, check: str, timeout: int) -> None:
        self._require_box(picked)
        array = np.ascontiguousarray(dtypes.to_array(values))
        kind, element, fields = self._layout_type(array.dtype)
        needed = self._layout_bytes(picked, layout, kind)
        if array.nbytes != needed:
            raise InvalidArgument(f"the box takes {needed} bytes in layout {layout!r}, the values have {array.nbytes}")
        where = self.array.name, self.number, picked.start, picked.count
        self._core.put_in_layout(*where, element, fields, layout, array.reshape(-1).view(np.uint8), check, timeout)

    def _kinds(self, names: list[str] | None, dtype: Any) -> list[np.dtype]:
        """NumPy's type of the array of each field, or of the elements."""
        if names is None:
            kind = dtypes.native(self.array.dtype if dtype is None else dtype)
            dtypes.require_apart(f"array '{self.array.name}'", kind)
            return [kind]
        if dtype is not None and dtypes.fields_of(dtype):
            raise InvalidArgument(
                f"array '{self.array.name}': fields={names} names the fields, and so does the type {np.dtype(dtype)}; "
                "leave fields out for structures, or give the type of the field's elements"
            )
        own = self.array.dtype.names or ()
        unknown = next((name for name in names if name not in own), None)
        if unknown is not None:
            raise InvalidArgument(f"{self.array!r} has no field {unknown!r}")
        return [dtypes.native(self.array.dtype[name] if dtype is None else dtype) for name in names]

    def explain(self, index: Any = ..., *, dtype: Any = None, order: str = "C") -> list[str]:
        """Where such a get would be converted now, and why: a line for each server that has some of it."""
        picked = pick(index, self.array.shape)
        kind = "" if self.array.dtype.names else dtypes.from_numpy(dtype if dtype is not None else self.array.dtype)
        return self._core.explain(
            self.array.name, self.number, picked.start, _spanned(picked), kind, _in_columns(order)
        )

    def __setitem__(self, index: Any, values: Any) -> None:
        """Puts the values, which may be broadcast.

        Raises AlreadyExists (other values are there), TimeoutError (names the readers of a version that must go first),
        WrongState (the version is lower than those that are kept).
        """
        self.put(values, index)

    def put(
        self,
        values: Any,
        index: Any = ...,
        *,
        layout: str = "",
        checked: bool | str = False,
        timeout: float | None = None,
    ) -> None:
        """As T[7][index] = values. Slices have no steps beyond 1 and -1.

        Structures are put from a structured array or from a mapping: an array of each field, by name.
        layout: the values are the elements of the box as they lie in that layout, in one dimension; as for get.
        checked, as for get: nothing is put when an element is refused.
        """
        if layout:
            return self._put_in_layout(self._put_box(index), layout, values, _check(checked), _timeout(timeout))
        self._core.put(*self._parts(values, index), _check(checked), _timeout(timeout))

    def start_put(
        self, values: Any, index: Any = ..., *, checked: bool | str = False, timeout: float | None = None
    ) -> PendingArrayPut:
        """As put, without waiting: it returns once the version has begun. The values stay unchanged until wait()."""
        return PendingArrayPut(self._core.start_put(*self._parts(values, index), _check(checked), _timeout(timeout)))

    def _put_box(self, index: Any) -> Picked:
        picked = pick(index, self.array.shape)
        if picked.strided:
            raise InvalidArgument(f"array '{self.array.name}': elements are put as a box, without steps between them")
        return picked

    def _parts(self, values: Any, index: Any) -> tuple[str, int, tuple[int, ...], list[tuple[str, str, np.ndarray]]]:
        picked = self._put_box(index)
        what = f"what is put into array '{self.array.name}'"
        if isinstance(values, Mapping):
            parts = {name: dtypes.to_array(part, what) for name, part in values.items()}
        else:
            if self.array.dtype.names and not isinstance(values, np.ndarray):
                values = np.array(values, self.array.dtype)  # of tuples
            parts = {"": dtypes.to_array(values, what)}
        boxes = [_arrays(np.broadcast_to(part, picked.shape)[picked.back], name) for name, part in parts.items()]
        return self.array.name, self.number, picked.start, list(itertools.chain(*boxes))

    def wait(self, index: Any = ..., *, timeout: float | None = None) -> None:
        """Until the elements are there. Raises TimeoutError, which names the boxes that are not."""
        picked = pick(index, self.array.shape)
        self._core.wait(self.array.name, self.number, picked.start, _spanned(picked), _timeout(timeout))

    def done(self, reader: str, *, timeout: float | None = None) -> None:
        """The reader, a group of programs that define named, has read this version and all before it: they may go."""
        self._core.done(self.array.name, self.number, reader, _timeout(timeout))

    @property
    def blocks(self) -> list[Block]:
        """The boxes that are there, and who put them: disjoint, in no order."""
        found = self._core.blocks(self.array.name, self.number)
        return [Block(start, count, writer, 1e-6 * put_us) for start, count, writer, put_us in found]

    def drop(self) -> bool:
        """Removes the version. False when there was none."""
        return self._core.drop(self.array.name, self.number)

    @property
    def _core(self) -> CoreSpace:
        return self.array.space._core

    def __repr__(self) -> str:
        return f"<Version {self.number} of array {self.array.name!r}>"
