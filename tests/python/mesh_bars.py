"""A line of elements in pieces, one for each rank; run by mpiexec it writes them into one shared file."""

import os
import resource
import signal
import sys

import numpy as np
import penstock
from penstock import mesh

NODES, ELEMENTS = 4, 3  # of a rank's bar; the bars of neighbours share a node


def bar(rank, ranks, comm_set=False, ids=True):
    """A rank's piece of a line of elements: its model, and its fields."""
    first = rank * ELEMENTS
    x = np.arange(first, first + NODES, dtype=float)
    number = mesh.Field("ids", "int64", role="mesh")
    whole = mesh.Field("members", "int64", role="mesh")
    nodes = mesh.Entity("node_block", "nodes", 1, NODES, fields=[mesh.Field("T")])
    nodes.fields += [mesh.Field("coordinates", role="mesh"), *([number] if ids else [])]
    bars = mesh.Entity("element_block", "bars", 1, ELEMENTS, "bar2", fields=[mesh.Field("strain", storage="vector_2d")])
    bars.fields += [mesh.Field("connectivity", "int32", "[2]", "mesh"), number]
    # Rank 0 does not list the node that it shares with rank 1.
    members = [1, 2] if rank == 0 else [0, 3]
    tips = mesh.Entity("node_set", "some", 7, 2, fields=[whole, mesh.Field("distribution_factors", role="mesh")])
    entities = [mesh.Entity("region", "region", fields=[mesh.Field("work", role="reduction")]), nodes, bars, tips]
    values = {
        ("nodes", "coordinates"): x,
        ("bars", "connectivity"): np.column_stack([np.arange(3), np.arange(1, 4)]).astype(np.int32),
        ("bars", "ids"): np.arange(first, first + ELEMENTS) + 100,
        ("some", "members"): np.array(members),
        ("some", "distribution_factors"): x[members] / 2,
    }
    if ids:
        values["nodes", "ids"] = x.astype(np.int64) + 1
    if comm_set:
        shared = [(0, rank - 1)] * (rank > 0) + [(NODES - 1, rank + 1)] * (rank + 1 < ranks)
        its = mesh.Entity("comm_set", "commset_node", 1, len(shared))
        its.fields = [mesh.Field("entity_processor", "int64", "[2]", "communication")]
        entities.append(its)
        values = {("commset_node", "entity_processor"): np.array(shared), **values}
    return mesh.Model("bars", 1, entities), values


def write_states(writer, values, rank, states):
    for key, its in values.items():
        writer[key] = its
    x = values["nodes", "coordinates"]
    for time in states:
        with writer.state(time) as state:
            state["bars", "strain"] = np.column_stack([x[:-1] + time, x[:-1] - time])
            state["nodes", "T"] = 10 * x + time
            state["region", "work"] = 5.0 * time if rank == 0 else -1.0  # that of rank 0 counts
        yield time


def note(path, time):
    """Notes an ended state for a test that kills this rank: mpiexec may lose lines that a rank has printed."""
    with open(path + ".ended", "a") as file:
        file.write(f"{time}\n")


def main():
    from mpi4py import MPI

    path, mode = sys.argv[1:]
    rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    model, values = bar(rank, ranks, comm_set=True)
    try:
        writer = mesh.create(path, model, comm=MPI.COMM_WORLD, database="exodus", shared=True)
        for time in write_states(writer, values, rank, range(1_000_000)):
            if rank != 1:
                continue
            print(f"{os.getpid()} {time}\n", end="", flush=True)
            note(path, time)
            if mode == "full" and time == 2:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (4, resource.RLIM_INFINITY))
    except penstock.Error as error:
        print(f"error {rank} {error}\n", end="", flush=True)


if __name__ == "__main__":
    main()
