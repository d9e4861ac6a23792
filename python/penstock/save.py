"""Keeping the steps of a stream in an HDF5 file that h5py, xarray and netCDF tools open, or in a Zarr store.

    result = save_stream("heat", "heat.h5")
    xarray.open_dataset("heat.h5", engine="h5netcdf")

The layout of the file is that of penstock.archive, which needs h5py. A name that ends in .zarr is that of a store
(penstock.zarr_archive), which needs zarr.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .archive import Archive, LocalBlocks, Value, full_disk, require_folder
from .errors import EndOfStream, InvalidArgument, SystemFailure, Unsupported
from .zarr_archive import ZarrArchive, is_store, is_store_name

if TYPE_CHECKING:
    from .reader import Reader, ReadStep


@dataclass(frozen=True)
class SavedSteps:
    """What was kept. `problem` is empty when the file holds all that was asked for."""

    path: Path
    steps: int
    bytes: int
    steps_dropped: int = 0
    problem: str = ""


def save_stream(
    name: str,
    path: str | Path,
    *,
    steps: int | None = None,
    first: int | None = None,
    every: int = 1,
    variables: Iterable[str] | None = None,
    force: bool = False,
    append: bool = False,
    compression: int = 0,
    timeout: float | None = None,
    on_step: Callable[[int, int], None] = lambda steps, size: None,
    options: Mapping[str, Any] | None = None,
) -> SavedSteps:
    """Attaches to a stream as a reader and keeps its steps from now on, until it ends or `steps` are kept.

    first: the number of the first step; earlier ones are skipped. every: keeps the first step and every so many-th
    after it; if that one is missing, the next one that is there. Where steps are kept, those in between are not read.
    append: adds to the file if it is there: the variables that it has, of steps after its last one; steps that it has
    are skipped, and `every` counts from its first step. A copy is written, which replaces the file in the end.
    compression: 0 (none) to 9 (smallest), of HDF5 (deflate), for what the file does not have yet, or Zarr (zstd).
    on_step(steps, bytes) is called after each; options are those of penstock.open.

    When the writer dies, the wait for a step passes its deadline, or on Ctrl-C, the steps so far are kept and the
    result's `problem` says what happened; Ctrl-C never leaves half a step. Raises InvalidArgument, also when a variable
    is not as in the file to append to; FileExistsError unless `force` or `append`; SystemFailure when the disk is full;
    penstock.Error when the stream cannot be opened, ends before `first`, or its first step lacks one of `variables`.
    The file is then as it was.
    """
    import penstock

    _require_natural(steps=(steps, 1), first=(first, 0), every=(every, 1), compression=(compression, 0))
    if compression > 9:
        raise InvalidArgument(f"compression is at most 9, not {compression}")
    path = Path(path)
    if append and force:
        raise InvalidArgument("a file is either replaced (force) or appended to (append)")
    if append and is_store_name(path):
        raise InvalidArgument(f"{path}: only HDF5 files are appended to")
    require_free(path, force or append)
    append = append and path.exists()
    chosen = None if variables is None else list(variables)
    with (
        _room_for(path),
        ZarrArchive(path, compression) if is_store_name(path) else Archive(path, compression, append) as archive,
        penstock.open(name, timeout=timeout, **(options or {})) as stream,
        _Interrupts() as interrupts,
    ):
        earlier = list(archive.numbers)  # of the file that is appended to
        if earlier and (of := archive.root.attrs["penstock_stream"]) != stream.name:
            raise InvalidArgument(f"{path} cannot be appended to: it has steps of stream '{of}', not '{stream.name}'")
        archive.root.attrs["penstock_stream"] = stream.name
        chosen = _same_variables(archive, chosen) if earlier else chosen
        after = earlier[-1] if earlier else -1
        wanted = _wanted(stream, earlier[0] if earlier and first is None else first, every, after)
        kept, size, problem = _keep(archive, wanted, chosen, steps, interrupts, on_step)
        dropped = stream.statistics.steps_dropped
        if first is not None and not kept and first > after:
            raise penstock.NotFound(f"stream '{stream.name}' ended before step {first}")
        if steps is not None and kept < steps and not problem:
            problem = f"the stream ended after {kept} of {steps} steps"
        if earlier and not kept:
            return SavedSteps(path, 0, 0, dropped, problem)
        left_out = archive.finish(complete=not problem, steps_dropped=dropped)
        if left_out:
            problem = "; ".join(
                filter(None, [problem, f"attributes that {_format(path)} cannot hold: {', '.join(left_out)}"])
            )
    return SavedSteps(path, kept, size, dropped, problem)


def _keep(
    archive: Archive | ZarrArchive,
    wanted: Iterator[ReadStep],
    chosen: list[str] | None,
    steps: int | None,
    interrupts: _Interrupts,
    on_step: Callable[[int, int], None],
) -> tuple[int, int, str]:
    """Steps and bytes that were kept, and what ended it early. Raises what comes before the first step is kept."""
    kept = size = 0
    appended = bool(archive.numbers)
    try:
        while steps is None or kept < steps:
            with interrupts.allowed():
                step = next(wanted, None)
                if step is None:
                    break
                values = _values(step, _names(step, chosen, must=kept == 0 and not appended))
                attributes = dict(step.attributes)
            if appended and kept == 0:
                archive.require_same(values)
            try:
                size += archive.add_step(step.number, values, attributes)
            except (OSError, ValueError, TypeError, RuntimeError, KeyError) as error:  # as h5py raises them
                if full_disk(error):
                    raise
                raise Unsupported(f"step {step.number} cannot be kept in {_format(archive.path)}: {error}") from error
            kept += 1
            on_step(kept, size)
    except KeyboardInterrupt:
        if not kept:
            raise
        return kept, size, "interrupted"
    except Exception as error:  # whatever it is, what was kept is not lost
        if not kept or full_disk(error):
            raise
        return kept, size, str(error) or type(error).__name__
    return kept, size, ""


@contextlib.contextmanager
def _room_for(path: Path) -> Iterator[None]:
    """Says it clearly when the file cannot grow: HDF5 cannot complete it then, so no step is kept."""
    try:
        yield
    except Exception as error:
        if full := full_disk(error):
            raise SystemFailure(f"{path} cannot grow ({full}); nothing was kept") from error
        raise


def _format(path: Path) -> str:
    return "Zarr" if is_store_name(path) else "HDF5"


def require_free(path: Path, force: bool) -> None:
    """Throws FileExistsError, IsADirectoryError, FileNotFoundError (of the folder)."""
    require_folder(path)
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already")
    if path.is_dir() and not is_store(path):
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it")


def _require_natural(**numbers: tuple[int | None, int]) -> None:
    """numbers: each with the least that it may be."""
    for name, (number, least) in numbers.items():
        if number is not None and (not hasattr(number, "__index__") or number < least):
            raise InvalidArgument(f"{name} is a whole number from {least} on, not {number!r}")


def _same_variables(archive: Archive | ZarrArchive, chosen: list[str] | None) -> list[str]:
    """Those of the file that is appended to."""
    there = archive.variables
    if chosen is not None and set(chosen) != set(there):
        raise InvalidArgument(f"{archive.path} has the variables {', '.join(there)}, not {', '.join(chosen)}")
    return there


def _wanted(stream: Reader, first: int | None, every: int, after: int) -> Iterator[ReadStep]:
    """The step `first`, or the next one, and every so many-th after it; of what is missing there the next step. Only
    steps after `after`."""
    wanted, reached = first or 0, 0
    if first is not None and first <= after:
        wanted = first + ((after - first) // every + 1) * every
    while True:
        if wanted > reached:
            _skip_to(stream, wanted, reached)
        try:
            step = stream.step()
        except EndOfStream:
            return
        with step:
            reached = step.number + 1
            if step.number < wanted:
                continue
            first = step.number if first is None else first
            wanted = first + ((step.number - first) // every + 1) * every
            yield step


def _skip_to(stream: Reader, wanted: int, reached: int) -> None:
    """Where steps are kept, those before the wanted one are not read; one that is not there yet is not waited for."""
    with contextlib.suppress(Unsupported):
        kept = stream.steps
        if kept and kept[-1] >= reached:
            stream.seek(min(wanted, kept[-1]))


def _names(step: ReadStep, chosen: list[str] | None, must: bool) -> list[str]:
    """must: the step has all that were chosen, or one is misspelt."""
    return list(step) if chosen is None else [each for each in chosen if must or each in step]


class _Interrupts:
    """Ctrl-C (and SIGTERM where it raises KeyboardInterrupt, too) inside allowed() only: elsewhere it waits for that.

    So neither a step nor the end of the file is left half written, however often a signal comes. A context manager.
    """

    def __init__(self) -> None:
        self._allowed = False
        self._came = False
        self._replaced: list[int] = []

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(number) is signal.default_int_handler:
                    self._replaced.append(number)
                    signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._replaced:
            signal.signal(number, signal.default_int_handler)

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        self._allowed = True
        try:
            if self._came:
                raise KeyboardInterrupt
            yield
        finally:
            self._allowed = False

    def _handle(self, *_: object) -> None:
        self._came = True
        if self._allowed:
            self._allowed = False
            raise KeyboardInterrupt


def _values(step: Any, names: list[str]) -> dict[str, Value]:
    """All of them at once: what get() enqueues is fetched together."""
    values = {name: _enqueue(step[name]) for name in names}
    step.wait()
    return values


def _enqueue(variable: Any) -> Value:
    if variable.kind == "local_array":
        return Value(LocalBlocks(variable.get_block(block.number) for block in variable.blocks))
    if variable.kind in ("global_value", "local_value"):
        return Value(variable[...])
    dimensions = variable.attributes.get("dims", ())
    return Value(variable.get(), (dimensions,) if isinstance(dimensions, str) else tuple(dimensions))
