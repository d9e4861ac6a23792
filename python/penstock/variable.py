"""One variable of a step being read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from . import _core, devices, dtypes
from .attributes import StepAttributes
from .errors import InvalidArgument
from .selection import Picked, pick, point_list

if TYPE_CHECKING:
    from ._core import Memory, Selection
    from ._core import Reader as CoreReader
    from .reader import ReadStep

# Above this many bytes it is worth asking whether blocks leave holes, rather than to clear the array in any case.
_LARGE = 1 << 16


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a variable: elements start .. start + count of it. Local arrays: start is all zeros."""

    number: int
    start: tuple[int, ...]
    count: tuple[int, ...]
    writer_rank: int


class Variable(NDArrayOperatorsMixin):
    """A variable of a step: step["T"]. Nothing is read before it is asked for.

    step["T"][...] reads all, step["T"][1:5, ::2, -1] a part; both are NumPy arrays of the caller's own. read() does the
    same into an array given, get() later, view() without a copy. Operators and NumPy's functions read all of it and
    work as on that array: step["n"] == 3, step["T"] - 273.15, np.sqrt(step["T"]). Reading raises TimeoutError,
    PeerLost, WriterLost, StepGone, and WrongState after the step has ended.
    """

    def __init__(self, step: ReadStep, info: _core.VariableInfo):
        self._step = step
        self._info = info
        self._id = info.id
        self._shape: tuple[int, ...] = info.shape

    # -------------------------------------------------------------------------------------------------- description

    @property
    def name(self) -> str:
        return self._info.name

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type; object for strings."""
        return dtypes.to_numpy(self._info.dtype)

    @property
    def kind(self) -> str:
        """ "global_array", "local_array", "global_value" or "local_value"."""
        return self._info.kind

    @property
    def order(self) -> str:
        """ "row" or "column": how the writer keeps it. Reading converts."""
        return self._info.order

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a global array; of local values: one for each writer rank; of a local array of one block: that block's.

        Local arrays of several blocks, and global values, have the shape ().
        """
        if self.kind == "local_array" and self._info.blocks == 1:
            return self.blocks[0].count
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=object))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def blocks(self) -> list[Block]:
        """The blocks as their writers put them, by writer rank, then by order of put."""
        found = self._core.blocks(self._id)
        return [Block(number, each.start, each.count, each.writer_rank) for number, each in enumerate(found)]

    @property
    def min_max(self) -> tuple[Any, Any] | None:
        """The least and greatest element, without reading; None when the writer did not compute them (min_max=True)."""
        return self._range(self._core.min_max(self._id))

    def block_min_max(self, number: int) -> tuple[Any, Any] | None:
        return self._range(self._core.min_max(self._id, number))

    @property
    def attributes(self) -> StepAttributes:
        """This variable's own: step["T"].attributes["units"] is step.attributes["T/units"]."""
        return StepAttributes(lambda: self._core, f"{self.name}/")

    # ------------------------------------------------------------------------------------------------------ reading

    def __getitem__(self, index: Any) -> Any:
        """NumPy's basic indexing: integers, slices of any step, ..., None. Elements that no block covers are zero.

        Of a global value: [()] gives it. Raises IndexError out of bounds.
        """
        if self._info.dtype == "string":
            strings = self._core.strings(self._id)
            return strings[0] if self.kind == "global_value" else np.array(strings, dtype=object)[index]
        if self.kind == "local_value":  # few: read all of them
            return self.read()[index]
        out = self.read(index)
        # As in NumPy: integers alone give a scalar, with ... an array of no dimensions.
        return out if index is Ellipsis or (isinstance(index, tuple) and Ellipsis in index) else out[()]

    @property
    def value(self) -> Any:
        """Of a global value: the Python scalar or str. Of local values: a list of them, by writer rank."""
        if self.kind not in ("global_value", "local_value"):
            raise InvalidArgument(f"'{self.name}' is a {self.kind}; read it with [...]")
        out = self[()]
        return out if isinstance(out, str) else out.tolist()

    def item(self) -> Any:
        """The one element, as a Python scalar."""
        out = self[()]
        return out if isinstance(out, str) else out.item()

    def read(
        self, index: Any = ..., *, out: np.ndarray | None = None, order: str = "row", timeout: float | None = None
    ) -> np.ndarray:
        """The part that index selects, as an array: a new one in `order`, or `out`, of any layout, which it returns.
        `out` may be an array on a CUDA device (CuPy, PyTorch, Numba).

        Elements that no block covers are zero in a new array and left as they were in `out`. Where blocks overlap, the
        one with the highest number wins. Raises InvalidArgument when the dtype or shape of out is another.
        """
        result = self.get(index, out=out, order=order)
        self._step.wait(timeout)
        return result

    def get(self, index: Any = ..., *, out: np.ndarray | None = None, order: str = "row") -> np.ndarray:
        """As read(), but the array is filled when step.wait() returns, or the step ends: several gets cost one wait."""
        self._no_strings()
        if self.kind == "local_array":
            return self._get_only_block(index, out, order)
        picked = pick(index, self._shape)
        if self.kind != "global_array" and picked.count != self._shape:
            raise InvalidArgument(f"'{self.name}' is a {self.kind}; read it whole")
        result = self._result(picked.shape, out, order, picked)
        target = result[picked.back]  # the same memory in the order of the selection
        if target.size > 0:
            self._core.get(self._id, self._selection(picked), dtypes.as_bits(target))
        return result if out is None else out

    def block(self, number: int, *, out: np.ndarray | None = None, order: str = "row") -> np.ndarray:
        """One block as its writer put it."""
        result = self.get_block(number, out=out, order=order)
        self._step.wait()
        return result

    def get_block(self, number: int, *, out: np.ndarray | None = None, order: str = "row") -> np.ndarray:
        """As block(), filled by step.wait()."""
        self._no_strings()
        selection = _core.Selection.block(number)
        shape = self._core.shape_of(self._id, selection)
        result = self._result(shape, out, order)
        if result.size > 0:
            self._core.get(self._id, selection, dtypes.as_bits(result))
        return result if out is None else out

    def points(self, coordinates: Any, *, out: np.ndarray | None = None) -> np.ndarray:
        """Single elements of a global array: coordinates of shape (n, ndim) give an array of shape (n,).

        Negative indices count from the end. Raises IndexError out of bounds.
        """
        self._no_strings()
        if self.kind != "global_array":
            raise InvalidArgument(f"'{self.name}' is a {self.kind}; points are of global arrays")
        points = point_list(coordinates, self._shape)
        result = self._result((len(points),), out, "row", clear=True)
        if len(points) > 0:
            selection = _core.Selection.points(points, len(self._shape))
            self._core.get(self._id, selection, dtypes.as_bits(result))
            self._step.wait()
        return result if out is None else out

    def view(self, index: Any = ...) -> np.ndarray | list[np.ndarray]:
        """Read-only memory without a copy: one array, or a list of them when the selection is not within one block.

        The arrays stay valid after the step has ended and keep it leased as long as they live: a writer that blocks
        when the queue is full waits for them. index: as in [...], without strides (slice the array instead).
        """
        arrays = self.views(index)
        picked = self._picked_for_view(index)
        if len(arrays) == 1 and (picked is None or arrays[0][1].shape == picked.count):
            # Integers in the index drop dimensions, as everywhere.
            return arrays[0][1] if picked is None else arrays[0][1][picked.forward]
        shape = self._shape if picked is None else picked.count
        if not arrays and 0 in shape:
            empty = np.empty(shape, self.dtype)
            empty.flags.writeable = False
            return empty if picked is None else empty[picked.forward]
        return [array for _, array in arrays]

    def views(self, index: Any = ...) -> list[tuple[Block, np.ndarray]]:
        """As view(), but always a list, with the part of the array that each one is (Block.number: of the list)."""
        picked = self._picked_for_view(index)
        if picked is None or 0 not in picked.count:
            selection = _core.Selection.all() if picked is None else picked.selection()
            pieces = self._core.view(self._id, selection)
        else:
            pieces = []
        return [(Block(n, p.start, p.count, -1), self._array_of(p)) for n, p in enumerate(pieces)]

    # ---------------------------------------------------------------------------------------------------- protocols

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("reading a variable copies it; view() does not")
        array = np.asarray(self[...])
        return array if dtype is None else array.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **how: Any) -> Any:
        in_place = method == "at" and inputs and isinstance(inputs[0], Variable)
        if in_place or any(isinstance(out, Variable) for out in how.get("out", ())):
            raise InvalidArgument(f"'{self.name}' is read-only; read it into an array with [...], and change that")
        arrays = (np.asarray(each) if isinstance(each, Variable) else each for each in inputs)
        return getattr(ufunc, method)(*arrays, **how)

    def __iter__(self) -> Iterator[Any]:
        """As over the array; a single value raises TypeError."""
        return iter(np.asarray(self))

    def __eq__(self, other: object) -> Any:
        """As of the array: element by element, and False for what cannot be compared. So a variable has no hash."""
        return np.asarray(self) == other

    def __ne__(self, other: object) -> Any:
        return np.asarray(self) != other

    def __dlpack__(self, **how: Any) -> Any:
        """A copy of the array, in host memory. view() gives arrays that do the same without a copy."""
        return np.asarray(self[...]).__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"'{self.name}' has no dimensions, and so no len()")
        return self.shape[0]

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __repr__(self) -> str:
        shape = f" {self._shape}" if self._shape else ""
        return f"<penstock.Variable '{self.name}': {self.kind}{shape} of {self._info.dtype}>"

    def _repr_html_(self) -> str | None:
        """In notebooks: a table of what is known without reading; of several blocks, each one."""
        from .tables import html_of_variable

        return html_of_variable(self) if self._step._stream._step is self._step else None

    # ------------------------------------------------------------------------------------------------------ helpers

    @property
    def _core(self) -> CoreReader:
        return self._step._core

    def _no_strings(self) -> None:
        if self._info.dtype == "string":
            raise InvalidArgument(f"'{self.name}' holds strings; read it with .value or [...]")

    def _range(self, raw: tuple[bytes, bytes] | None) -> tuple[Any, Any] | None:
        if raw is None:
            return None
        low, high = (np.frombuffer(each, self.dtype)[0] for each in raw)
        return low, high

    def _get_only_block(self, index: Any, out: np.ndarray | None, order: str) -> np.ndarray:
        if self._info.blocks != 1:
            raise InvalidArgument(
                f"'{self.name}' is a local array of {self._info.blocks} blocks; read each with block(number)"
            )
        if index is not Ellipsis and index != ():
            raise InvalidArgument(f"'{self.name}' is a local array; index what block(0) gives")
        return self.get_block(0, out=out, order=order)

    def _selection(self, picked: Picked) -> Selection:
        if self.kind != "global_array" or (picked.count == self._shape and not picked.strided):
            return _core.Selection.all()
        return picked.selection()

    def _result(
        self,
        shape: tuple[int, ...],
        out: np.ndarray | None,
        order: str,
        picked: Picked | None = None,
        clear: bool = False,
    ) -> np.ndarray:
        """The array to fill: out when given, else a new one, cleared when blocks may leave holes in it."""
        if out is not None:
            if not isinstance(out, np.ndarray) and (on_device := devices.writable_on_device(out)) is not None:
                out = on_device
            if not isinstance(out, np.ndarray) or out.dtype != self.dtype or out.shape != shape:
                is_what = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
                raise InvalidArgument(f"'{self.name}': out must be an array {self.dtype} {shape}, not {is_what}")
            dtypes.require_no_mask(f"'{self.name}': out", out)
            if not out.flags.writeable:
                raise InvalidArgument(f"'{self.name}': out is read-only")
            return out
        if order not in ("row", "column"):
            raise InvalidArgument(f"the order '{order}' is not one of 'row', 'column'")
        layout: Literal["C", "F"] = "C" if order == "row" else "F"
        if picked is not None and self.kind == "global_array":
            large = int(np.prod(shape, dtype=object)) * self.dtype.itemsize > _LARGE
            clear = not (large and self._core.covered(self._id, self._shape))
        return np.zeros(shape, self.dtype, layout) if clear else np.empty(shape, self.dtype, layout)

    def _picked_for_view(self, index: Any) -> Picked | None:
        """None: all of it."""
        self._no_strings()
        if index is Ellipsis or index == ():
            return None
        if self.kind != "global_array":
            raise InvalidArgument(f"'{self.name}' is a {self.kind}; view() it whole and index that")
        picked = pick(index, self._shape)
        if picked.strided or picked.reversed:
            raise InvalidArgument("a view has no strides; slice the array that it gives")
        return picked

    def _array_of(self, memory: Memory) -> np.ndarray:
        """An array that keeps the memory, and so the step's lease, alive."""
        if 0 in memory.count:
            return np.empty(memory.count, self.dtype)
        array = np.ndarray(memory.count, self.dtype, cast(Any, memory), 0, memory.strides)
        array.flags.writeable = False
        return array
