"""Puts two blocks of a wave into a pool and has the servers compute on them. Only the results come back."""

import numpy as np
import penstock

x = np.linspace(0, 2 * np.pi, 1000)
with penstock.Pool() as pool:
    pool.put("wave", "left", np.sin(x[:500]), if_exists="overwrite")
    pool.put("wave", "right", np.sin(x[500:]), if_exists="overwrite")
    blocks = [("wave", "left"), ("wave", "right")]
    print("largest", pool.compute("max", blocks))
    print("histogram", pool.compute("histogram", blocks, bins=4, range=[-1, 1]))
    print("every 250th", pool.compute("downsample", blocks[:1], factor=250))
    print("energy", pool.compute("energy", blocks, scale=0.5))
