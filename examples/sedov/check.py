"""Whether the blast was right: the shock within 2 % of Sedov's, the energy constant, a picture for each state."""

import csv
import json
import sys
from pathlib import Path

output = Path(sys.argv[1])
rows = list(csv.DictReader((output / "statistics.csv").read_text().splitlines()))
said = json.loads((output / "simulation.json").read_text())
assert len(rows) == len(said["states"]) == len(list((output / "frames").glob("*.png")))
for row, line in zip(rows, said["states"], strict=True):
    assert abs(float(row["shock_radius"]) / line["exact"] - 1) < 0.02, row
    assert abs(float(row["total_energy"]) / float(rows[0]["total_energy"]) - 1) < 1e-6, row
print(f"ok: {len(rows)} states, shock within 2 % of Sedov's radius, energy constant")
