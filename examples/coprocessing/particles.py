"""Particles carried by the ABC flow (Arnold, Beltrami, Childress), offered to analyses once.

    python particles.py [--count N] [--steps N]

Channel `particles`: the mesh `cloud` with the fields `velocity` and `age`. An analysis may set the flow's parameter A.
"""

import argparse

import numpy as np
import penstock

parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=20_000)
parser.add_argument("--steps", type=int, default=200)
arguments = parser.parse_args()


def flow(position: np.ndarray, A: float, B: float = 2**0.5, C: float = 1.0) -> np.ndarray:
    x, y, z = position.T
    return np.column_stack(
        [A * np.sin(z) + C * np.cos(y), B * np.sin(x) + A * np.cos(z), C * np.sin(y) + B * np.cos(x)]
    )


random = np.random.default_rng(1)
position = random.uniform(0, 2 * np.pi, (arguments.count, 3))
age = np.zeros(arguments.count)
dt = 0.02

with penstock.Coprocessor("particles") as coprocessor:
    coprocessor.mesh("cloud", "particles", coordinates="position")
    coprocessor.structure("cloud", "position", position.dtype)
    coprocessor.field("cloud", "velocity", position.dtype, association="element", components=3)
    coprocessor.field("cloud", "age", age.dtype, association="element", units="s")
    coprocessor.declare("A", 3**0.5, least=0.0, greatest=4.0)
    for cycle in range(arguments.steps):
        A = coprocessor.value("A")
        velocity = flow(position + 0.5 * dt * flow(position, A), A)
        position = (position + dt * velocity) % (2 * np.pi)
        age += dt
        if step := coprocessor.request(cycle, cycle * dt):
            with step:
                step.put("position", position, lend=True)
                step.put("velocity", velocity, lend=True)
                step.put("age", age, lend=True)
