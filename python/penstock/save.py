"""Keeping the steps of a stream in an HDF5 file that h5py, xarray and netCDF tools open.

    result = save_stream("heat", "heat.h5")
    xarray.open_dataset("heat.h5", engine="h5netcdf")

The layout of the file is that of penstock.archive. Needs h5py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .archive import Archive, LocalBlocks, Value, require_folder


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
    variables: Iterable[str] | None = None,
    force: bool = False,
    timeout: float | None = None,
    on_step: Callable[[int, int], None] = lambda steps, size: None,
    options: Mapping[str, Any] | None = None,
) -> SavedSteps:
    """Attaches to a stream as a reader and keeps its steps from now on, until it ends or `steps` are kept.

    on_step(steps, bytes) is called after each; options are those of penstock.open. When the writer dies, or the wait
    for a step passes its deadline, the steps so far are kept and the result's `problem` says what happened. Throws
    FileExistsError unless `force`, penstock.Error when the stream cannot be opened or its first step lacks one of
    `variables`.
    """
    import penstock

    path = Path(path)
    require_free(path, force)
    chosen = None if variables is None else list(variables)
    problem, size = "", 0
    with Archive(path) as archive, penstock.open(name, timeout=timeout, **(options or {})) as stream:
        archive.root.attrs["penstock_stream"] = stream.name
        try:
            for step in stream:
                names = list(step)
                if chosen is not None:  # the first step has all of them, or one is misspelt
                    names = [each for each in chosen if not archive.numbers or each in step]
                values = _values(step, names)
                size += archive.add_step(step.number, values, dict(step.attributes))
                on_step(len(archive.numbers), size)
                if steps is not None and len(archive.numbers) >= steps:
                    break
        except KeyboardInterrupt:
            problem = "interrupted"
        except penstock.Error as error:
            if not archive.numbers:
                raise
            problem = str(error)
        except (OSError, ValueError, TypeError, RuntimeError, KeyError) as error:  # of h5py: what HDF5 cannot hold
            if not archive.numbers:
                raise
            problem = f"step {step.number} cannot be kept in HDF5: {error}"
        dropped = stream.statistics.steps_dropped
        if steps is not None and len(archive.numbers) < steps and not problem:
            problem = f"the stream ended after {len(archive.numbers)} of {steps} steps"
        left_out = archive.finish(complete=not problem, steps_dropped=dropped)
        if left_out:
            problem = "; ".join(filter(None, [problem, f"attributes that HDF5 cannot hold: {', '.join(left_out)}"]))
    return SavedSteps(path, len(archive.numbers), size, dropped, problem)


def require_free(path: Path, force: bool) -> None:
    """Throws FileExistsError, IsADirectoryError, FileNotFoundError (of the folder)."""
    require_folder(path)
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it")


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
