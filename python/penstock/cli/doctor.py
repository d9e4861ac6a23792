"""`penstock doctor`: is this machine fit for Penstock, and which optional parts are there?"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from ..units import size
from ..workflow import LaunchError
from ..workflow.launch import find_mpi_launcher, program_folders
from ..workflow.registry import runtime_directory
from .console import command, output, print_json

TEST_TIMEOUT_S = 60.0
FEW_FILES = 1024
LITTLE_MEMORY = 2 << 30  # StreamOptions::queue_bytes by default

PARTS = {
    "numpy": ("", "arrays"),
    "xarray": ("xarray", "step.to_xarray()"),
    "h5py": ("h5py", "penstock stream save"),
    "h5netcdf": ("h5netcdf", "opening saved files with xarray"),
    "zarr": ("zarr", "penstock stream save to Zarr stores"),
    "vtk": ("vtk", "pictures"),
    "mpi4py": ("mpi4py", "Python programs of several ranks"),
    "matplotlib": ("matplotlib", "plots"),
    "adios2": ("adios2", "comparison in penstock bench"),
    "zmq": ("pyzmq", "comparison in penstock bench"),
}


@dataclass(frozen=True)
class Finding:
    state: str  # "ok", "note" (something optional is missing), "warning", "error"
    check: str
    found: str
    advice: str = ""


@command
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out what starts programs (MPI, VTK).")] = False,
) -> None:
    """Check versions, optional parts, memory, limits, the runtime directory, MPI and off-screen pictures.

    Exit code 1 when something that Penstock needs is broken; missing optional parts are no error.
    """
    checks = [_versions, _library, _memory, _limits, _runtime_directory, _cores, _programs]
    checks += [] if quick else [_mpi, _vtk]
    findings = [finding for check in (*checks, _parts) for finding in check()]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    if any(finding.state == "error" for finding in findings):
        raise typer.Exit(1)


def version() -> str:
    import penstock

    own = getattr(penstock, "__version__", None)
    try:
        return own or importlib.metadata.version("penstock")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (not installed)"


def _print(findings: list[Finding]) -> None:
    signs = {"ok": ("ok", "green"), "note": ("–", "dim"), "warning": ("warning", "yellow"), "error": ("error", "red")}
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        sign, style = signs[finding.state]
        text = Text(finding.found, overflow="fold")
        if finding.advice:
            text.append(f"\n{finding.advice}", style="dim")
        table.add_row(Text(sign, style=style), Text(finding.check), text)
    output().print(table)
    counts = {state: sum(f.state == state for f in findings) for state in ("error", "warning")}
    verdict = ", ".join(f"{n} {state}{'s' if n != 1 else ''}" for state, n in counts.items() if n)
    output().print(Text(verdict or "all well", style="bold"))


# ---------------------------------------------------------------------------------------------------------- checks


def _versions() -> Iterator[Finding]:
    yield Finding("ok", "penstock", version())
    system = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield Finding("ok", "system", f"Python {platform.python_version()}, {system}")
    if sys.platform != "linux":
        yield Finding("error", "system", f"{sys.platform}", "Penstock needs Linux (memory files, pidfds, futexes).")


def _library() -> Iterator[Finding]:
    """A stream from this process to itself: memory files, sockets, rings and the registration all have to work."""
    import penstock

    if not hasattr(penstock, "create"):
        yield Finding("error", "library", "the compiled module is not there", "Install the package: pip install .")
        return
    yield _guarded("stream", lambda: _loopback(penstock))


def _loopback(penstock: ModuleType) -> Finding:
    import numpy as np

    name = f"doctor-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    with penstock.create(name, rendezvous_readers=0, reserve_steps=1) as writer:
        with writer.step() as step:
            step["x"] = np.arange(1000.0)
        with penstock.open(name, timeout=10) as reader:
            with reader.step(timeout=10) as step:
                total = float(np.sum(step["x"][...]))
    if total != 499500.0:
        return Finding("error", "stream", f"wrong data came through: {total}", "This is a defect; please report it.")
    return Finding("ok", "stream", "a step went from this process to itself")


def _memory() -> Iterator[Finding]:
    available = _meminfo().get("MemAvailable", 0)
    limit, where = _cgroup_memory()
    room = min(available, limit) if limit else available
    text = f"{size(available)} available" + (f", limited to {size(limit)} more by {where}" if limit else "")
    if room < LITTLE_MEMORY:
        advice = "Set queue_bytes in penstock.yaml: a stream may hold 2 GiB per rank by default."
        yield Finding("warning", "memory", text, advice)
    else:
        yield Finding("ok", "memory", text)
    yield _guarded("memory files", _memory_file)
    try:
        shm = shutil.disk_usage("/dev/shm")
        text = f"{size(shm.free)} free of {size(shm.total)}"
        small = shm.free < 64 << 20
        advice = "MPI launchers keep their own shared memory there (containers: --shm-size=1g). Penstock does not."
        yield Finding("warning" if small else "ok", "/dev/shm", text, advice if small else "")
    except OSError as error:
        yield Finding("warning", "/dev/shm", f"{error.strerror}", "MPI launchers may need it. Penstock does not.")


def _memory_file() -> Finding:
    """What a stream's memory is made of: a memory file, filled, mapped and sealed."""
    import fcntl
    import mmap

    length = 16 << 20
    descriptor = os.memfd_create("penstock-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(descriptor, 0, length)
        with mmap.mmap(descriptor, length):
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    finally:
        os.close(descriptor)
    huge = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")
    mode = huge.read_text().partition("[")[2].partition("]")[0] if huge.exists() else "unknown"
    return Finding("ok", "memory files", f"made and sealed; huge pages for shared memory: {mode}")


def _limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "unlimited" if hard == resource.RLIM_INFINITY else str(hard)
    advice = "Many streams of many ranks need more: ulimit -n 65536" if soft < FEW_FILES else ""
    yield Finding("warning" if advice else "ok", "open files", f"{soft} (at most {shown})", advice)
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        advice = "Streams are mapped whole: ulimit -v unlimited"
        yield Finding("warning", "address space", f"limited to {size(address_space)}", advice)


def _runtime_directory() -> Iterator[Finding]:
    directory = runtime_directory()
    try:
        status = directory.lstat()
    except FileNotFoundError:
        parent = next(p for p in directory.absolute().parents if p.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding("ok", "runtime directory", f"{directory} (made with the first stream)")
        else:
            advice = "Set PENSTOCK_DIRECTORY to a folder of yours."
            yield Finding("error", "runtime directory", f"{directory} cannot be made: {parent} is not writable", advice)
        return
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode):
        yield Finding("error", "runtime directory", f"{directory} is not a folder", "Set PENSTOCK_DIRECTORY.")
    elif status.st_uid != os.getuid():
        advice = "Streams registered there would not be yours alone: set PENSTOCK_DIRECTORY to a folder of yours."
        yield Finding("error", "runtime directory", f"{directory} belongs to user {status.st_uid}", advice)
    elif mode & 0o077:
        advice = f"It holds the streams' tokens: chmod 700 {directory}"
        yield Finding("error", "runtime directory", f"{directory} is open to others (mode {mode:o})", advice)
    else:
        yield Finding("ok", "runtime directory", f"{directory} (mode {mode:o})")


def _cores() -> Iterator[Finding]:
    usable, present = len(os.sched_getaffinity(0)), os.cpu_count() or 1
    text = f"{usable} of {present} usable" if usable != present else f"{usable}"
    advice = "Writer and reader share one core: expect them to take turns; spin_us: 0 helps." if usable == 1 else ""
    yield Finding("warning" if advice else "ok", "cores", text, advice)


def _programs() -> Iterator[Finding]:
    folders = program_folders()
    names = sorted({p.name for f in folders for p in f.iterdir() if p.is_file() and os.access(p, os.X_OK)})
    if names:
        yield Finding("ok", "programs", f"{', '.join(names)} (in {', '.join(map(str, folders))})")
    else:
        advice = "For those of a build tree set PENSTOCK_BIN to its folder of programs."
        yield Finding("note", "programs", "no example programs in the package", advice)


def _mpi() -> Iterator[Finding]:
    try:
        launcher = find_mpi_launcher()
    except LaunchError as error:
        yield Finding("note", "MPI launcher", "not found", str(error))
        return
    environment = {**os.environ, **launcher.environment("doctor", os.environ)}
    try:
        done = subprocess.run(
            [*launcher.command(2), "true"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TEST_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        yield Finding("warning", "MPI launcher", f"{launcher.path} did not start two processes within a minute")
        return
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-6:]
        yield Finding("warning", "MPI launcher", f"{launcher.path} cannot start two processes", "\n".join(last))
    else:
        yield Finding("ok", "MPI launcher", f"{launcher.path} ({launcher.version})")


# In a process of its own: a VTK without a usable driver may end the process it is in.
_VTK_TEST = """
import vtk
from vtk.util.numpy_support import vtk_to_numpy
window = vtk.vtkRenderWindow(); window.SetOffScreenRendering(1); window.SetSize(32, 32)
renderer = vtk.vtkRenderer(); window.AddRenderer(renderer)
source = vtk.vtkSphereSource(); mapper = vtk.vtkPolyDataMapper(); mapper.SetInputConnection(source.GetOutputPort())
actor = vtk.vtkActor(); actor.SetMapper(mapper); renderer.AddActor(actor); window.Render()
grab = vtk.vtkWindowToImageFilter(); grab.SetInput(window); grab.ReadFrontBufferOff(); grab.Update()
pixels = vtk_to_numpy(grab.GetOutput().GetPointData().GetScalars())
assert pixels.max() > pixels.min(), "the picture is empty"
print(window.GetClassName())
"""


def _vtk() -> Iterator[Finding]:
    if importlib.util.find_spec("vtk") is None:
        return
    advice = "Without a graphics driver install a software one (Debian: apt install libegl1 libgl1-mesa-dri)."
    try:
        done = subprocess.run(
            [sys.executable, "-c", _VTK_TEST],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TEST_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        yield Finding("warning", "VTK pictures", "no picture within a minute", advice)
        return
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
        yield Finding("warning", "VTK pictures", f"off-screen rendering failed: {last[0]}", advice)
    else:
        yield Finding("ok", "VTK pictures", f"drawn off screen ({done.stdout.strip()})")


def _parts() -> Iterator[Finding]:
    for module, (package, purpose) in PARTS.items():
        if importlib.util.find_spec(module) is None:
            state = "note" if package else "error"
            yield Finding(state, module, f"not installed (for {purpose})", f"pip install {package or module}")
            continue
        try:
            found = importlib.metadata.version(package or module)
        except importlib.metadata.PackageNotFoundError:
            found = "version unknown"
        yield Finding("ok", module, found)


# ----------------------------------------------------------------------------------------------------------- parts


def _guarded(check: str, test: Callable[[], Finding]) -> Finding:
    try:
        return test()
    except Exception as error:  # whatever it is, it is the finding
        return Finding("error", check, f"{type(error).__name__}: {error}")


def _meminfo() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}


def _cgroup_memory() -> tuple[int, str]:
    """Bytes that this container or job may still take, and what says so; (0, "") without a limit."""
    folder = Path("/sys/fs/cgroup")
    try:
        own = Path("/proc/self/cgroup").read_text().strip().splitlines()[-1].rpartition(":")[2].lstrip("/")
        for place in (folder / own, folder):
            limit = place / "memory.max"
            if limit.exists() and limit.read_text().strip() != "max":
                used = int((place / "memory.current").read_text())
                return max(0, int(limit.read_text()) - used), str(limit)
    except (OSError, ValueError, IndexError):
        pass
    return 0, ""
