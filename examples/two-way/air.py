"""Half of a coupled pair: the air over a lake. Writes its temperature and reads that of the water, step by step."""

import numpy as np
import penstock

air = np.linspace(0.0, 30.0, 64)
# Create first, then open: each program waits in open for the other one's stream.
with penstock.create("air") as written, penstock.open("water") as read:
    for _ in range(100):
        with written.step() as step:
            step["T"] = air
        with read.step() as step:
            water = step["T"][...]
        air += 0.1 * (water - air)
print(f"air: {air.min():.4f} to {air.max():.4f}, mean {air.mean():.4f}")
