"""Writes a mesh region whose values say which state they are of, for tests that kill it: mesh_peer.py NAME STATES.

It prints "begun N" and "ended N" for each state, and "closed".
"""

import sys

import numpy as np
from penstock import mesh

SIDE = 12  # elements along each axis: 0.1 MiB a state
NODES = (SIDE + 1) ** 3


def model():
    nodes = [mesh.Field("coordinates", storage="vector_3d", role="mesh"), mesh.Field("displ", storage="vector_3d")]
    fields = [mesh.Field("connectivity", "int64", "[8]", "mesh"), mesh.Field("stress"), mesh.Field("energy")]
    entities = [
        mesh.Entity("region", "region", count=1, fields=[mesh.Field("total", role="reduction")]),
        mesh.Entity("node_block", "nodeblock_1", 1, NODES, fields=nodes),
        mesh.Entity("element_block", "block_1", 1, SIDE**3, "hex8", fields=fields),
    ]
    return mesh.Model("states", entities=entities)


def of_model():
    numbers = np.arange(NODES).reshape((SIDE + 1,) * 3)
    corners = [(0, 0, 0), (0, 0, 1), (0, 1, 1), (0, 1, 0), (1, 0, 0), (1, 0, 1), (1, 1, 1), (1, 1, 0)]
    hexes = [numbers[z : z + SIDE, y : y + SIDE, x : x + SIDE].ravel() for z, y, x in corners]
    coordinates = np.stack(np.unravel_index(np.arange(NODES), numbers.shape), axis=1)[:, ::-1].astype(float)
    return {("nodeblock_1", "coordinates"): coordinates, ("block_1", "connectivity"): np.stack(hexes, axis=1)}


def of_state(number):
    return {
        ("region", "total"): np.array([number + 0.5]),
        ("nodeblock_1", "displ"): np.arange(3.0 * NODES).reshape(NODES, 3) + 1e6 * number,
        ("block_1", "stress"): np.arange(SIDE**3) - 1000.0 * number,
        ("block_1", "energy"): np.full(SIDE**3, float(number)),
    }


def check(region, expected):
    """Fails where a value is another."""
    for key, values in expected.items():
        np.testing.assert_array_equal(region[key], values)


def write(name, states):
    with mesh.create(name, model(), database="stream") as out:
        for key, values in of_model().items():
            out[key] = values
        for number in range(states):
            with out.state(time=0.25 * number) as state:
                print("begun", number, flush=True)
                for key, values in of_state(number).items():
                    state[key] = values
            print("ended", number, flush=True)
    print("closed", flush=True)


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]))
