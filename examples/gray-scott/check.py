"""Compares statistics.csv of a run of this example at three steps with the NumPy reference of the simulation.

    python check.py output/gray-scott [--settings settings.yaml]

The reference is slow, so the steps are early ones: outputs 1, 4 and 8. Exits with 1 when a figure differs.
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import reference  # noqa: E402

from analysis import statistics  # noqa: E402

OUTPUTS = (1, 4, 8)
TOLERANCE = 1e-12  # of concentrations between 0 and 1; the two should agree to the last bit


def read_rows(path: Path) -> dict[int, dict[str, str]]:
    """The rows of statistics.csv by time step of the simulation."""
    with open(path, newline="", encoding="utf-8") as file:
        return {int(row["sim_step"]): row for row in csv.DictReader(file)}


def compare(rows: dict[int, dict[str, str]], settings: reference.Settings) -> Iterator[tuple[int, float]]:
    """Yields (sim_step, largest difference of any figure) at the steps that both have."""
    wanted = {output * settings.plot_every for output in OUTPUTS} & set(rows)
    if not wanted:
        raise SystemExit(f"check: none of the outputs {OUTPUTS} was analysed (did the analysis attach late?)")
    settings.steps = max(wanted)
    for sim_step, U, V in reference.run(settings):
        if sim_step in wanted:
            expected = statistics(U, V)
            yield sim_step, max(abs(float(rows[sim_step][name]) - value) for name, value in expected.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder with statistics.csv")
    parser.add_argument("--settings", type=Path, default=HERE / "settings.yaml")
    arguments = parser.parse_args()
    rows = read_rows(arguments.output / "statistics.csv")
    worst = 0.0
    for sim_step, difference in compare(rows, reference.load_settings(arguments.settings)):
        print(f"check: time step {sim_step}: largest difference from the NumPy reference {difference:.1e}", flush=True)
        worst = max(worst, difference)
    if not worst <= TOLERANCE:
        raise SystemExit(f"check: the statistics differ from the reference by more than {TOLERANCE:g}")


if __name__ == "__main__":
    main()
