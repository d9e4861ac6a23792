"""Compares the model in the pool with one made afterwards: all snapshots as one matrix, decomposed at once.

    python check.py [--error 0.05]

Exits with 1 when the basis is another, or the model misses the runs held out.
"""

import argparse
import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a decomposition this small is not quicker on more

import numpy as np
import penstock

sys.path.insert(0, str(Path(__file__).resolve().parent))
from model import MODES, fetch

SAME = 1e-8  # of singular values, and the sine of the largest angle between the two bases


def rows_of(pool: penstock.Pool, pattern: str) -> list[str]:
    return sorted({str(info.row) for info in pool.list(pattern, "parameters")})


def compare(pool: penstock.Pool) -> tuple[int, float, float, float]:
    """Modes, the largest difference of a singular value (relative), the sine of the largest angle, the worst error."""
    matrix = np.hstack([fetch(pool, row)[1] for row in rows_of(pool, "member/*")])
    basis, values, _ = np.linalg.svd(matrix, full_matrices=False)
    used = int((values >= MODES * values[0]).sum())
    ours = pool.get("model", "basis").array()[:, :used]
    ours_values = pool.get("model", "values").array()[:used]
    basis = basis[:, :used]
    outside = ours - basis @ (basis.T @ ours)
    difference = float(np.abs(ours_values / values[:used] - 1).max())
    return used, difference, float(np.linalg.norm(outside, 2)), float(pool.get("model", "errors").array().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--error", type=float, default=0.05, help="of a run held out, at most, relative to its norm")
    options = parser.parse_args()
    with penstock.Pool() as pool:
        used, difference, angle, error = compare(pool)
        members = len(rows_of(pool, "member/*"))
    print(f"check: {members} members, {used} modes; beside one decomposition of everything: singular values differ by")
    print(f"check: {difference:.1e}, the bases by an angle of {angle:.1e}; runs held out: error at most {error:.1e}")
    if not (difference <= SAME and angle <= SAME and error <= options.error):
        raise SystemExit(f"check: more than {SAME:g}, or an error above {options.error:g}")


if __name__ == "__main__":
    main()
