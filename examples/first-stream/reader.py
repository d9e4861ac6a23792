"""Reads the stream "heat" while it is written, and prints two figures of each step."""

import penstock

with penstock.open("heat") as stream:
    for step in stream:
        row = step["T"][24, :]  # only this row is read
        time = step.attributes["time"]
        print(f"step {step.number}  time {time:.1f}  row 24: mean {row.mean():.3f}  max {row.max():.3f}")
