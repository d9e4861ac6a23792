"""Heat spreads in a plate. The mesh and its states go to the region "plate": into a file, to a stream, or nowhere."""

import argparse

import numpy as np
from penstock import mesh

N = 40  # elements along each edge


def model() -> mesh.Model:
    nodes = mesh.Entity("node_block", "nodeblock_1", 1, (N + 1) ** 2)
    nodes.fields = [mesh.Field("coordinates", storage="vector_2d", role="mesh"), mesh.Field("temperature")]
    plate = mesh.Entity("element_block", "plate", 10, N**2, topology="quad4")
    plate.fields = [
        mesh.Field("connectivity", "int32", "[4]", role="mesh"),
        mesh.Field("flux", storage="vector_2d"),
    ]
    hot = mesh.Entity("node_set", "hot", 100, N + 1, fields=[mesh.Field("members", "int32", role="mesh")])
    return mesh.Model("a plate that is heated at one edge", 2, [mesh.Entity("region", "region"), nodes, plate, hot])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=10)
    run = parser.parse_args()

    axis = np.linspace(0, 1, N + 1)
    x, y = np.meshgrid(axis, axis)
    number = np.arange((N + 1) ** 2, dtype=np.int32).reshape(N + 1, N + 1)
    corners = [number[:-1, :-1], number[:-1, 1:], number[1:, 1:], number[1:, :-1]]
    T = np.zeros((N + 1, N + 1))
    T[:, 0] = 1
    with mesh.create("plate", model()) as out:  # where it goes is configuration
        out["nodeblock_1", "coordinates"] = np.column_stack([x.ravel(), y.ravel()])
        out["plate", "connectivity"] = np.column_stack([each.ravel() for each in corners])
        out["hot", "members"] = number[:, 0]
        for step in range(run.states):
            for _ in range(50):
                T[1:-1, 1:-1] += 0.2 * (T[2:, 1:-1] + T[:-2, 1:-1] + T[1:-1, 2:] + T[1:-1, :-2] - 4 * T[1:-1, 1:-1])
            T[0], T[-1] = T[1], T[-2]
            slope = np.gradient(T, axis, axis)
            middle = [-0.25 * (s[:-1, :-1] + s[:-1, 1:] + s[1:, 1:] + s[1:, :-1]) for s in reversed(slope)]
            with out.state(time=0.01 * step) as state:
                state["nodeblock_1", "temperature"] = T.ravel()
                state["plate", "flux"] = np.column_stack([each.ravel() for each in middle])


if __name__ == "__main__":
    main()
