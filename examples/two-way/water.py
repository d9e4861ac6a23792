"""The other half: the water under the air. It holds more heat, and so changes more slowly."""

import numpy as np
import penstock

water = np.full(64, 10.0)
with penstock.create("water") as written, penstock.open("air") as read:
    for _ in range(100):
        with written.step() as step:
            step["T"] = water
        with read.step() as step:
            air = step["T"][...]
        water += 0.02 * (air - water)
print(f"water: {water.min():.4f} to {water.max():.4f}, mean {water.mean():.4f}")
