"""Where the benchmark programs are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def find_programs(name: str = "limit_streams") -> Path | None:
    """The newest build of the benchmark programs: $PENSTOCK_BENCH_PROGRAMS, or a build folder of the source tree."""
    chosen = os.environ.get("PENSTOCK_BENCH_PROGRAMS")
    if chosen:
        return Path(chosen)
    tree = Path(__file__).resolve().parents[3]
    patterns = (f"build*/bench/{name}", f"build/*/bench/{name}")
    found = [path for start in (tree, Path.cwd()) for pattern in patterns for path in start.glob(pattern)]
    return max(found, key=lambda path: path.stat().st_mtime).parent if found else None


def mpi(ranks: int, *words: object) -> list[str]:
    """The command of a program with so many ranks."""
    return [shutil.which("mpiexec") or "mpiexec", "-n", str(ranks), "--bind-to", "none", *map(str, words)]


def has_ucx(programs: Path) -> bool:
    """Whether the library beside these programs was built with the data plane ucx."""
    return (programs.parent / "libpenstock_ucx.so").exists()
