"""Programs of `penstock bench mesh`: a writer of a region of several blocks and sets, and a reader of any region.

  mesh_peer.py write NAME SIDE BLOCKS STATES [GATE]
  mesh_peer.py read NAME [GATE]

Alone, or on several ranks (mpiexec); rank 0 prints a line of JSON. With a GATE, a file that the reader makes once it
has opened the region, the writer completes its first state only after that. Times are of CLOCK_MONOTONIC, which is one
for all processes of a host, and those of the slowest rank.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from .. import mesh

VARIABLES = 10  # of nodes, and as many of elements
FACES = "xXyYzZ"
LOOK_EVERY_S = 0.001


class Alone:
    """What a communicator of one rank does."""

    rank, size = 0, 1

    def allreduce(self, value: Any, op: Any = None) -> Any:
        return value

    def Barrier(self) -> None:
        pass


def communicator() -> tuple[Any, Any, Any]:
    """mpi4py's, where mpiexec has started this; what to give to `comm`; and the operation MAX."""
    if any(name in os.environ for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")):
        from mpi4py import MPI

        return MPI.COMM_WORLD, MPI.COMM_WORLD, MPI.MAX
    return Alone(), None, None


class Grid:
    """A rank's layers (in z) of a cube of hexahedra, whose blocks are slabs in x."""

    def __init__(self, side: int, blocks: int, rank: int, ranks: int):
        self.side, self.rank, self.ranks = side, rank, ranks
        self.first, last = side * rank // ranks, side * (rank + 1) // ranks
        self.layers = last - self.first
        self.shape = (self.layers + 1, side + 1, side + 1)  # of nodes: z, y, x
        self.cuts = [side * block // blocks for block in range(blocks + 1)]

    def block(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Places (z, y, x) of the lowest corners of its elements; their numbers in the whole mesh."""
        low, high = self.cuts[index : index + 2]
        places = np.stack(np.meshgrid(range(self.layers), range(self.side), range(low, high), indexing="ij"), -1)
        places = places.reshape(-1, 3)
        numbers = ((places[:, 0] + self.first) * self.side + places[:, 1]) * self.side + places[:, 2]
        return places, numbers

    def nodes_on(self, face: str) -> np.ndarray:
        numbers = np.arange(np.prod(self.shape)).reshape(self.shape)
        axis, at = 2 - "xyz".index(face.lower()), -1 if face.isupper() else 0
        if axis == 0 and self.rank != (self.ranks - 1 if at else 0):
            return np.empty(0, np.int64)
        return numbers.take(at, axis=axis).ravel()


CORNERS = ((0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 0), (1, 0, 0), (1, 0, 1), (1, 1, 1), (1, 1, 0))


def region_of(grid: Grid) -> tuple[mesh.Model, dict[Any, np.ndarray]]:
    """The model with one total, ten variables of nodes and ten of each block; the values of the model's fields."""
    integers: dict[str, Any] = {"dtype": "int64", "role": "mesh"}
    count = int(np.prod(grid.shape))
    numbers = np.arange(count)
    places = np.stack(np.unravel_index(numbers, grid.shape)[::-1], 1)
    values: dict[Any, np.ndarray] = {
        ("nodeblock_1", "coordinates"): (places + np.array([0, 0, grid.first])).astype(float),
        ("nodeblock_1", "ids"): numbers + grid.first * (grid.side + 1) ** 2 + 1,
    }
    nodes = [mesh.Field("coordinates", storage="vector_3d", role="mesh"), mesh.Field("ids", **integers)]
    nodes += [mesh.Field(f"nodal_{n}") for n in range(VARIABLES)]
    entities = [
        mesh.Entity("region", "region", count=1, fields=[mesh.Field("total", role="reduction")]),
        mesh.Entity("node_block", "nodeblock_1", 1, count, fields=nodes),
    ]
    for index in range(len(grid.cuts) - 1):
        name, (places, elements) = f"block_{index + 1}", grid.block(index)
        corners = [np.ravel_multi_index((places + corner).T, grid.shape) for corner in CORNERS]
        values[name, "connectivity"], values[name, "ids"] = np.stack(corners, 1), elements + 1
        fields = [mesh.Field("connectivity", storage="[8]", **integers), mesh.Field("ids", **integers)]
        fields += [mesh.Field(f"element_{n}") for n in range(VARIABLES)]
        entities.append(mesh.Entity("element_block", name, index + 1, len(elements), "hex8", fields=fields))
    for index, face in enumerate(FACES):
        name, members = f"nodelist_{index + 1}", grid.nodes_on(face)
        values[name, "members"] = members
        fields = [mesh.Field("members", **integers)]
        entities.append(mesh.Entity("node_set", name, index + 1, len(members), fields=fields))
    for index, side in enumerate((4, 2, 1, 3)):  # of hexahedra, in the planes x, X, y, Y: every rank has some
        name, elements = f"surface_{index + 1}", np.arange(grid.layers, dtype=np.int64)
        values[name, "element_side"] = np.stack([elements, np.full(grid.layers, side)], 1)
        fields = [mesh.Field("element_side", storage="[2]", **integers)]
        entities.append(mesh.Entity("side_set", name, index + 1, grid.layers, fields=fields))
    return mesh.Model("blocks and sets", entities=entities), values


def write(name: str, side: int, blocks: int, states: int, gate: Path | None) -> dict[str, float]:
    world, comm, most = communicator()
    model, values = region_of(Grid(side, blocks, world.rank, world.size))
    fields = [
        (entity.name, its.name, entity.shape(its)) for entity in model.entities for its in entity.fields if its.in_state
    ]
    ended = 0.0
    with mesh.create(name, model, comm=comm) as out:
        for (entity, field), each in values.items():
            out[entity, field] = each
        for number in range(states):
            with out.state(time=float(number)) as state:
                while number == 0 and gate is not None and not gate.exists():
                    time.sleep(LOOK_EVERY_S)
                for entity, field, shape in fields:
                    state[entity, field] = np.full(shape, number + 0.5)
                world.Barrier()
                now = time.monotonic()
            ended = ended or now
    return {"ended_s": world.allreduce(ended, op=most)}


def read(name: str, gate: Path | None) -> dict[str, float]:
    """All fields of all states. held_s: when the first state's were there."""
    world, comm, most = communicator()
    world.Barrier()
    begun, held = time.monotonic(), 0.0
    with mesh.open(name, comm=comm) as region:
        fields = [
            ((each.type, each.name), its.name) for each in region.model.entities for its in each.fields if its.in_state
        ]
        world.Barrier()
        if gate is not None:
            gate.touch()
        for state in region:
            for key in fields:
                state[key]
            held = held or time.monotonic()
    return {"begun_s": -world.allreduce(-begun, op=most), "held_s": world.allreduce(held, op=most)}


def main(words: list[str]) -> None:
    role, name, *more = words
    gate = next((Path(word) for word in more if not word.isdigit()), None)
    numbers = [int(word) for word in more if word.isdigit()]
    figures = write(name, numbers[0], numbers[1], numbers[2], gate) if role == "write" else read(name, gate)
    if communicator()[0].rank == 0:
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
