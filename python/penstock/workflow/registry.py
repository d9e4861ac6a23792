"""Which studies run on this machine now: one small file each in the runtime directory, for `penstock stream top`.

The file names the run's folder of statistics; it goes with the run. One left by a run that was killed is recognised by
its process being gone, and removed by whoever sees it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .study import Study


@dataclass(frozen=True)
class Run:
    name: str
    pid: int
    output: Path
    steps: int | None = None

    @property
    def statistics(self) -> Path:
        return self.output / ".statistics"


def runtime_directory() -> Path:
    """The folder where streams register: the rule of penstock::ContextOptions::directory."""
    chosen = os.environ.get("PENSTOCK_DIRECTORY")
    if chosen and "://" not in chosen:
        return Path(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "penstock" if runtime else Path(f"/tmp/penstock-{os.getuid()}")


def directory_service() -> str | None:
    """The directory service that the environment names, without its token."""
    where = os.environ.get("PENSTOCK_DIRECTORY_SERVICE") or os.environ.get("PENSTOCK_DIRECTORY", "")
    return where.partition("?")[0] if "://" in where else None


def where_streams_register() -> str:
    """A folder or a service, for messages."""
    chosen = os.environ.get("PENSTOCK_DIRECTORY", "")
    return chosen.partition("?")[0] if "://" in chosen else str(runtime_directory())


def directory_is_known() -> bool:
    """Whether something says where a directory service is; it may be gone."""
    from ..context import _default_context

    if directory_service():
        return True
    where = _default_context().settings["directory"]
    return "://" in where or Path(where, "directory.json").exists()  # how a service registers beside the streams


def runs_directory() -> Path:
    """Beside the streams' directory, not in it: that one belongs to the library."""
    directory = runtime_directory()
    return directory.with_name(directory.name + "-runs")


@contextlib.contextmanager
def registered(study: Study) -> Iterator[None]:
    """While it lasts, `list_runs` shows the study. Failing to register is no reason not to run."""
    path = runs_directory() / f"{os.getpid()}.json"
    entry = {"name": study.name, "pid": os.getpid(), "output": str(study.output), "steps": study.steps}
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.parent.stat().st_uid == os.getuid():
            temporary = path.with_suffix(".new")
            temporary.write_text(json.dumps(entry), encoding="utf-8")
            temporary.replace(path)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            path.parent.rmdir()  # when it was the last


def list_runs() -> list[Run]:
    runs = []
    folder = runs_directory()
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            run = Run(str(entry["name"]), int(entry["pid"]), Path(entry["output"]), entry.get("steps"))
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if _alive(run.pid):
            runs.append(run)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    return runs


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
