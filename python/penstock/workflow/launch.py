"""From a program of a study to a command line and an environment: finding programs and the MPI launcher."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..names import nearest
from .study import Program, Study

VERSION_TIMEOUT_S = 20.0
SESSION_FOLDER = "OMPI_MCA_orte_tmpdir_base"  # of Open MPI's launchers


class LaunchError(Exception):
    """A program or the MPI launcher cannot be found or started; the message says where was looked."""


@dataclass(frozen=True)
class Launch:
    """What to start: `command` with `environment` in `folder`, output to `log`."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str]
    folder: Path
    log: Path
    ranks: int = 1
    after_end: tuple[str, ...] = ()  # names of launches that must have ended well before


@dataclass(frozen=True)
class MpiLauncher:
    path: str
    version: str  # first line of --version
    is_open_mpi: bool

    def command(self, ranks: int, exported: Sequence[str] = ()) -> list[str]:
        words = [self.path, "-n", str(ranks)]
        if self.is_open_mpi:
            # Two launches do not know of each other: bound to cores, both would sit on the first ones.
            words += ["--oversubscribe", "--bind-to", "none"]
            for key in exported:
                words += ["-x", key]
        return words

    def environment(self, name: str, given: Mapping[str, str]) -> dict[str, str]:
        """What to add to the given environment of the launch of that name."""
        if not self.is_open_mpi:
            return {}
        # Launchers share a folder: one that ends removes it while another one begins, which fails (open-mpi/ompi#8510).
        more = {SESSION_FOLDER: os.path.join(given.get(SESSION_FOLDER) or _session_folder().name, name)}
        if os.geteuid() == 0:
            for prefix in ("OMPI", "PRTE"):
                more |= dict.fromkeys((f"{prefix}_ALLOW_RUN_AS_ROOT", f"{prefix}_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
        return more


def prepare(study: Study, program: Program, environment: dict[str, str], log: Path) -> Launch:
    """Finds everything that starting `program` needs. Throws LaunchError; starts only mpiexec --version."""
    environment = {**environment, **program.environment}
    command = [find_program(program.command[0], study.here), *program.command[1:]]
    if program.ranks > 1:
        launcher = find_mpi_launcher()
        exported = sorted(k for k in environment if k.startswith("PENSTOCK_")) + sorted(program.environment)
        command = launcher.command(program.ranks, list(dict.fromkeys(exported))) + command
        environment.update(launcher.environment(program.name, environment))
    return Launch(program.name, tuple(command), environment, study.here, log, program.ranks, program.after_end)


def with_environment(launch: Launch, more: dict[str, str]) -> Launch:
    """The launch with these variables too, which reach the ranks of other hosts as well."""
    command = launch.command
    if launch.ranks > 1 and "-x" in command:
        at = command.index("-x")
        command = command[:at] + tuple(word for key in more for word in ("-x", key)) + command[at:]
    return replace(launch, command=command, environment={**launch.environment, **more})


# ------------------------------------------------------------------------------------------------- finding programs


def program_folders() -> list[Path]:
    """Where programs of Penstock are looked for before PATH: $PENSTOCK_BIN (a build tree), the package's bin, and what
    `make` has built in the checkout whose .venv this is."""
    folders = [Path(p) for p in os.environ.get("PENSTOCK_BIN", "").split(os.pathsep) if p]
    spec = importlib.util.find_spec("penstock")
    folders += [Path(p) / "bin" for p in (spec.submodule_search_locations or [])] if spec else []
    if Path(sys.prefix).name == ".venv":
        folders.append(Path(sys.prefix).parent / "build" / "bin")
    return [p for p in folders if p.is_dir()]


def find_program(word: str, here: Path) -> str:
    """The absolute path of a command's first word. `python` is the interpreter that runs Penstock."""
    if word in ("python", "python3"):
        return sys.executable
    if "/" in word:
        path = (here / Path(word).expanduser()).absolute()
        if not path.is_file():
            raise LaunchError(f"there is no program {path}")
        if not os.access(path, os.X_OK):
            hint = "; start it with [python, ...]" if path.suffix == ".py" else f"; chmod +x {path}"
            raise LaunchError(f"{path} is not executable{hint}")
        return str(path)
    folders = program_folders()
    for folder in folders:
        if (folder / word).is_file() and os.access(folder / word, os.X_OK):
            return str((folder / word).absolute())
    # Beside the interpreter: `penstock` itself, where its environment is not in PATH.
    found = shutil.which(word) or shutil.which(word, path=os.path.dirname(sys.executable))
    if found:
        return os.path.abspath(found)
    raise LaunchError(_not_found(word, here, folders))


def _not_found(word: str, here: Path, folders: list[Path]) -> str:
    if (here / word).is_file():
        python = "python, " if word.endswith(".py") else ""
        return f"program '{word}' was not found; for the file beside the study write [{python}\"{{here}}/{word}\"]"
    ours = sorted({p.name for f in folders for p in f.iterdir() if p.is_file() and os.access(p, os.X_OK)})
    suggestion = nearest(word, ours) if ours else ""
    looked = ", ".join([str(f) for f in folders] + ["PATH"])
    hint = "" if "PENSTOCK_BIN" in os.environ else "; set PENSTOCK_BIN to their folder, such as build/bin of a checkout"
    return f"program '{word}' was not found in {looked}{suggestion}{'' if 'did you mean' in suggestion else hint}"


# ------------------------------------------------------------------------------------------------------------- MPI


def find_mpi_launcher() -> MpiLauncher:
    """$PENSTOCK_MPIEXEC, else mpiexec or mpirun in PATH. Throws LaunchError."""
    chosen = os.environ.get("PENSTOCK_MPIEXEC")
    names = [chosen] if chosen else ["mpiexec", "mpirun"]
    path = next((p for p in map(shutil.which, names) if p), None)
    if path is None:
        if chosen:
            raise LaunchError(f"PENSTOCK_MPIEXEC={chosen} is not a program")
        raise LaunchError(
            "a program with more than one rank needs an MPI launcher, and neither mpiexec nor mpirun is in PATH; "
            "install one (Debian: apt install openmpi-bin) or set PENSTOCK_MPIEXEC"
        )
    return _ask_version(path)


@functools.cache
def _session_folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="penstock-mpi-", ignore_cleanup_errors=True)


@functools.cache
def _ask_version(path: str) -> MpiLauncher:
    # Open MPI refuses even --version to root without these.
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    try:
        done = subprocess.run(
            [path, "--version"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LaunchError(f"{path} --version failed: {error}") from None
    text = (done.stdout + done.stderr).strip()
    lowered = text.lower()
    is_open_mpi = any(word in lowered for word in ("open mpi", "openrte", "prte"))
    return MpiLauncher(path, text.splitlines()[0] if text else "unknown version", is_open_mpi)
