"""Writes the temperature of a cooling plate as the stream "heat": 50 steps."""

import numpy as np
import penstock

T = np.zeros((64, 96))
T[24:40, 32:64] = 100.0  # a hot rectangle; the edge stays at 0

with penstock.create("heat") as stream:
    stream.attributes["T/units"] = "degC"
    for number in range(50):
        inner = T[1:-1, 1:-1]
        inner += 0.2 * (T[:-2, 1:-1] + T[2:, 1:-1] + T[1:-1, :-2] + T[1:-1, 2:] - 4 * inner)
        with stream.step() as step:
            step["T"] = T
            step.attributes["time"] = 0.2 * (number + 1)
