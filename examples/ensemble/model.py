"""Builds a reduced-order model of the ensemble while its members run, and tests it on runs that it does not see.

    python model.py --members 48 --held-out 8

Each member that is complete in the pool is added to a basis of modes by incremental singular value decomposition;
between the members' coefficients the model interpolates in the parameters. Nothing is kept of a member but its
coefficients. The finished model goes into the pool, row "model". No file is opened.

Sources: M. Brand, "Incremental singular value decomposition of uncertain data with missing values", ECCV 2002 (the
update); M. Guo, J. S. Hesthaven, "Reduced order modeling for nonlinear structural analysis using Gaussian process
regression", CMAME 341 (2018) (modes and regression of their coefficients; here with radial basis functions).
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator

import numpy as np
import penstock

Parameters = dict[str, float]
RANGES = np.log([0.02, 0.08]), np.array([0.25, 0.75])  # of ln(diffusivity) and of x; scale the parameters to [0, 1]
FEWEST = 6  # members before the model is tested: a plane and a little more
MODES = 1e-4  # of the model: those whose singular value is at least so many times the first


class Modes:
    """The singular value decomposition of a matrix whose columns come in blocks: basis, values, and the coefficients of
    all columns in the basis (values times right vectors). Modes below `tolerance` times the first are let go."""

    def __init__(self, tolerance: float = 1e-9):
        self.tolerance = tolerance
        self.basis: np.ndarray = np.zeros((0, 0))
        self.values, self.coefficients = np.zeros(0), np.zeros((0, 0))

    def add(self, block: np.ndarray) -> None:
        if self.basis.size == 0:
            self.basis = np.zeros((len(block), 0))
        inside = self.basis.T @ block
        new, triangle = np.linalg.qr(block - self.basis @ inside)
        # Columns that were nearly in the basis already leave a direction of rounding errors, which may point anywhere.
        along = self.basis.T @ new
        new, again = np.linalg.qr(new - self.basis @ along)
        inside, triangle = inside + along @ triangle, again @ triangle

        def joined(before: np.ndarray) -> np.ndarray:
            """`before` in the old basis, and then the block, in the basis of both."""
            return np.block([[before, inside], [np.zeros((len(triangle), before.shape[1])), triangle]])

        rotation, values, _ = np.linalg.svd(joined(np.diag(self.values)), full_matrices=False)
        kept = values > self.tolerance * values[0]
        self.values = values[kept]
        self.coefficients = rotation[:, kept].T @ joined(self.coefficients)
        self.basis = np.hstack([self.basis, new]) @ rotation[:, kept]


def scaled(parameters: list[Parameters]) -> np.ndarray:
    """A row for each member, its parameters from 0 to 1."""
    raw = np.array([[np.log(p["diffusivity"]), p["x"]] for p in parameters])
    return np.column_stack([(raw[:, d] - low) / (high - low) for d, (low, high) in enumerate(RANGES)])


def weights(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """How much each known point counts at the wanted one: radial basis functions r³ and a linear polynomial."""

    def row(points: np.ndarray, at: np.ndarray) -> np.ndarray:
        distances: np.ndarray = np.linalg.norm(points[:, None] - at[None], axis=2)
        return distances**3

    def linear(points: np.ndarray) -> np.ndarray:
        return np.column_stack([np.ones(len(points)), points])

    plane = linear(known)
    matrix = np.block([[row(known, known), plane], [plane.T, np.zeros((3, 3))]])
    return np.linalg.solve(matrix, np.vstack([row(known, wanted), linear(wanted).T]))[: len(known)]


class Model:
    """Modes, and between whose coefficients to interpolate."""

    def __init__(self) -> None:
        self.modes = Modes()
        self.parameters: list[Parameters] = []

    def add(self, parameters: Parameters, snapshots: np.ndarray) -> None:
        """snapshots: one a column."""
        self.parameters.append(parameters)
        self.modes.add(snapshots)

    def predict(self, parameters: Parameters) -> tuple[np.ndarray, int]:
        """The snapshots of a run with these parameters, one a column; and how many modes they are made of."""
        modes = self.modes
        used = int((modes.values >= MODES * modes.values[0]).sum())
        each = modes.coefficients[:used].reshape(used, len(self.parameters), -1)
        share = weights(scaled(self.parameters), scaled([parameters]))[:, 0]
        return modes.basis[:, :used] @ np.einsum("rmt,m->rt", each, share), used


def fetch(pool: penstock.Pool, row: str) -> tuple[Parameters, np.ndarray]:
    """A run that is complete in the pool: its parameters, and its snapshots, one a column, in order of time."""
    keys = [(info.row, info.column) for info in pool.list(row, "T/*")]
    found = [each for each in pool.get_many(keys) if isinstance(each, penstock.Object)]
    snapshots = [each.array().ravel() for each in found]
    return json.loads(pool.get(row, "parameters").text()), np.column_stack(snapshots)


def complete(pool: penstock.Pool, members: int, snapshots: int) -> Iterator[str]:
    """Yields the members' rows, each once all its snapshots are in the pool, in whatever order that happens."""
    seen: Counter[str] = Counter()
    done = 0
    with pool.subscribe("member/*", "T/*", existing=True) as events:
        while done < members:
            row = str(events.next(timeout=120).info.row)
            seen[row] += 1
            if seen[row] == snapshots:
                done += 1
                yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=48)
    parser.add_argument("--held-out", type=int, default=8)
    parser.add_argument("--snapshots", type=int, default=20)
    options = parser.parse_args()
    model, history = Model(), []
    with penstock.Pool(timeout=120) as pool:
        for number in range(options.held_out):
            pool.wait_row(f"held-out/{number:03}", options.snapshots, "T/*")
        truth = [fetch(pool, f"held-out/{number:03}") for number in range(options.held_out)]
        for count, row in enumerate(complete(pool, options.members, options.snapshots), 1):
            model.add(*fetch(pool, row))
            if count < FEWEST:
                continue
            errors = []
            for parameters, snapshots in truth:
                guess, used = model.predict(parameters)
                errors.append(np.linalg.norm(guess - snapshots) / np.linalg.norm(snapshots))
            history.append((count, used, np.median(errors), max(errors)))
            middle, worst = np.median(errors), max(errors)
            print(f"{row}: {count} members, {used} modes; runs held out: error {middle:.1e}, worst {worst:.1e}")

        modes = model.modes
        pool.put("model", "basis", modes.basis)
        pool.put("model", "values", modes.values)
        pool.put("model", "history", np.array(history))
        pool.put("model", "errors", np.array(errors))
        for number, (parameters, _) in enumerate(truth):
            pool.put("model", f"prediction/{number:03}", model.predict(parameters)[0])


if __name__ == "__main__":
    main()
