"""Extracts of type `stream`: results of chains as steps of a stream of their own, a channel for the next analysis."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ..cohort import rank_of
from ..context import Context
from ..errors import Error, InvalidArgument
from .agreement import exchange
from .chain import Table
from .channel import publish
from .meshes import ElementBlock, Field, Mesh, ParticleMesh, UnstructuredMesh
from .records import Extract


class StreamExtract:
    """Writes the results of one extract. All ranks make it, and call publish() together.

    The stream's options are those of penstock.yaml and the environment; unless these say otherwise, no reader is waited
    for, and steps that find no room are dropped: an analysis does not wait for the next one.
    """

    def __init__(self, extract: Extract, context: Context, cohort: Any):
        self._extract = extract
        self._cohort = cohort
        self._writer = context.create(
            str(extract.stream), comm=cohort, rendezvous_readers=0, when_full="discard_oldest", queue_steps=4
        )

    def publish(self, result: list[Any] | Table, cycle: int, time: float) -> None:
        """A step: the columns of a table as arrays, or the datasets as one mesh with the extract's name.

        A step without a mesh says that nothing was found.
        """
        mesh = None if isinstance(result, Table) else self._mesh(result)
        with self._writer.step() as step:
            if rank_of(self._cohort) == 0:
                step["cycle"] = np.int64(cycle)
                step["time"] = time
            if isinstance(result, Table):
                self._put_table(step, result)
            else:
                publish(step, {self._extract.name: mesh} if mesh is not None else {})

    def _put_table(self, step: Any, table: Table) -> None:
        for name, column in table.columns.items():
            if rank_of(self._cohort) == 0:
                step.put(name, column, start=(0,), shape=column.shape)

    def _mesh(self, parts: list[Any]) -> Mesh | None:
        """This rank's datasets as one mesh, like those of all other ranks; None where no rank has any. Collective."""

        def whole(kinds: list[Any]) -> Any:
            known = sorted({kind for kind in kinds if kind is not None})
            if len(known) > 1:
                raise InvalidArgument(f"datasets of different kinds do not go into one stream: {known[:2]}")
            return known[0] if known else None

        own = _joined(parts) if parts else None
        kind = exchange(self._cohort, lambda: _kind(own), whole)
        return own if own is not None or kind is None else _empty(*kind)

    def close(self) -> None:
        with suppress(Error):
            self._writer.close()


def _joined(parts: list[Any]) -> Mesh:
    """One mesh: particles where all is vertices, otherwise elements of mixed topology."""
    from vtkmodules.vtkFiltersCore import vtkAppendFilter, vtkAppendPolyData

    from .vtk import from_vtk

    poly = all(part.IsA("vtkPolyData") for part in parts)
    append = vtkAppendPolyData() if poly else vtkAppendFilter()
    for part in parts:
        append.AddInputData(part)
    append.Update()
    mesh = from_vtk(append.GetOutput())
    return replace(mesh, blocks=(_mixed(mesh.blocks),)) if isinstance(mesh, UnstructuredMesh) else mesh


def _mixed(blocks: Sequence[ElementBlock]) -> ElementBlock:
    if not blocks:
        return ElementBlock("cells", "mixed", np.empty(0, np.int64), 0, np.zeros(1, np.int64), np.empty(0, np.uint8))
    (block,) = blocks
    kinds, offsets, connectivity = block.cells()
    return ElementBlock("cells", "mixed", connectivity.astype(np.int64), 0, offsets.astype(np.int64), kinds)


def _kind(mesh: Any) -> Any:
    """What an empty part must have: its type, and of each field the name, association, type, and further dimensions."""
    if mesh is None:
        return None
    coordinates = mesh.coordinates[0] if isinstance(mesh.coordinates, tuple) else mesh.coordinates
    fields = tuple((n, f.association, f.arrays[0].dtype.str, f.arrays[0].shape[1:]) for n, f in mesh.fields.items())
    return mesh.type, coordinates.dtype.str, tuple(sorted(fields))


def _empty(kind: str, coordinates: str, fields: Sequence[tuple[str, str, str, tuple[int, ...]]]) -> Mesh:
    made = {name: Field(where, np.empty((0, *more), dtype)) for name, where, dtype, more in fields}
    common: dict[str, Any] = {"coordinates": np.empty((0, 3), coordinates), "fields": made}
    return ParticleMesh(**common) if kind == "particles" else UnstructuredMesh(blocks=[_mixed(())], **common)
