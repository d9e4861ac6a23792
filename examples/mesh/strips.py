"""Each rank writes a strip of the region "strips", and shares a row of nodes with each neighbour.

mpiexec -n 3 python strips.py
"""

import numpy as np
from mpi4py import MPI
from penstock import mesh

WIDTH, HEIGHT, STATES = 8, 4, 5  # elements of a strip


def main() -> None:
    rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    number = np.arange((HEIGHT + 1) * (WIDTH + 1), dtype=np.int32).reshape(
        HEIGHT + 1, WIDTH + 1
    )  # of nodes of this part
    rows = rank * HEIGHT + np.arange(HEIGHT + 1)
    shared = [(node, rank - 1) for node in number[0] if rank > 0]
    shared += [(node, rank + 1) for node in number[-1] if rank + 1 < ranks]

    nodes = mesh.Entity("node_block", "nodes", 1, number.size)
    nodes.fields = [
        mesh.Field("coordinates", storage="vector_2d", role="mesh"),
        mesh.Field("ids", "int64", role="mesh"),
        mesh.Field("height"),
    ]
    strip = mesh.Entity("element_block", "strip", 1, WIDTH * HEIGHT, topology="quad4")
    strip.fields = [mesh.Field("connectivity", "int32", "[4]", role="mesh"), mesh.Field("ids", "int64", role="mesh")]
    comm = mesh.Entity("comm_set", "commset_node", 1, len(shared))
    comm.fields = [mesh.Field("entity_processor", "int64", "[2]", role="communication")]
    model = mesh.Model("strips", 2, [mesh.Entity("region", "region"), nodes, strip, comm])

    with mesh.create("strips", model, comm=MPI.COMM_WORLD) as out:
        if shared:  # what belongs to communication comes first
            out["commset_node", "entity_processor"] = np.array(shared)
        x, y = np.meshgrid(np.arange(WIDTH + 1), rows)
        out["nodes", "coordinates"] = np.column_stack([x.ravel(), y.ravel()])
        out["nodes", "ids"] = (rows[:, None] * (WIDTH + 1) + np.arange(WIDTH + 1)).ravel() + 1  # the same in each part
        corners = [number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]]
        out["strip", "connectivity"] = np.column_stack([each.ravel() for each in corners])
        out["strip", "ids"] = rank * WIDTH * HEIGHT + np.arange(WIDTH * HEIGHT) + 1
        for time in range(STATES):
            with out.state(time) as state:
                state["nodes", "height"] = np.sin(x + 0.3 * time).ravel() * y.ravel()


if __name__ == "__main__":
    main()
