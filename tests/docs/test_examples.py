"""The examples of the documentation, built and run as a user does, in all pairs of languages.

The C and C++ ones are configured with find_package(Penstock) against the installed package, or against an installation
of the build folder that PENSTOCK_BUILD names.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from refusals import without_refusals

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TIMEOUT_S = 120
BUILD_TIMEOUT_S = 300

HAVE_MPI = shutil.which("mpiexec") and shutil.which("mpicxx") and importlib.util.find_spec("mpi4py")
MPI_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


# ------------------------------------------------------------------------------------------------------------ building


def quietly(command, timeout=BUILD_TIMEOUT_S):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"


def installed_prefix(folder):
    """Where find_package finds Penstock: in the Python package, which is a prefix of its own, or installed here."""
    import penstock

    package = Path(penstock.__file__).parent
    if list(package.glob("lib*/cmake/Penstock/PenstockConfig.cmake")):
        return package
    build = os.environ.get("PENSTOCK_BUILD")
    if not build:
        pytest.skip("no installed C++ library: install the package, or set PENSTOCK_BUILD to a build folder")
    for component in ("runtime", "development"):
        quietly(["cmake", "--install", build, "--prefix", folder, "--component", component])
    return folder


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The folder of the built examples."""
    folder = tmp_path_factory.mktemp("examples")
    prefix = installed_prefix(folder / "prefix")
    parts = ["first-stream", "concepts", "mesh", "services", *(["mpi"] if HAVE_MPI else [])]
    if shutil.which("gfortran") and list(prefix.glob("lib*/libpenstock_fortran.so")):
        parts.append("fortran")
    listing = "cmake_minimum_required(VERSION 3.25)\nproject(examples LANGUAGES C CXX)\n"
    listing += "set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)\n"
    listing += "add_compile_options(-Wall -Wextra -Werror)\n"
    listing += "".join(f"add_subdirectory({EXAMPLES / part} {part})\n" for part in parts)
    (folder / "CMakeLists.txt").write_text(listing, encoding="utf-8")
    command = ["cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    if shutil.which("ninja"):
        command += ["-G", "Ninja"]
    if shutil.which("ccache"):
        command += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DCMAKE_C_COMPILER_LAUNCHER=ccache"]
    quietly(command)
    quietly(["cmake", "--build", folder / "build"])
    return folder / "build" / "bin"


# ------------------------------------------------------------------------------------------------------------- running


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "streams").mkdir(mode=0o700)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return kept | MPI_ENVIRONMENT | {"PENSTOCK_DIRECTORY": str(tmp_path / "streams"), "PENSTOCK_LISTEN": "127.0.0.1"}


@contextlib.contextmanager
def running(command, environment, folder):
    process = subprocess.Popen(
        command,
        env=environment | {"OMPI_MCA_orte_tmpdir_base": tempfile.mkdtemp(dir=folder)},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # mpiexec takes its ranks along
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        process.stdout.close()
        process.wait()


def run_together(writer, reader, environment, folder):
    """What the reader printed."""
    with running(writer, environment, folder) as writing, running(reader, environment, folder) as reading:
        output, _ = reading.communicate(timeout=TIMEOUT_S)
        errors, _ = writing.communicate(timeout=TIMEOUT_S)
    assert (reading.returncode, writing.returncode) == (0, 0), f"writer: {errors}\nreader: {output}"
    assert without_refusals(errors) == ""
    return output


def command_of(side, language, programs):
    if language == "py":
        return [sys.executable, EXAMPLES / "first-stream" / f"{side}.py"]
    program = programs / {"cpp": side, "c": f"{side}_c", "f90": f"{side}_f90"}[language]
    if language == "f90" and not program.exists():
        pytest.skip("Penstock was built without a Fortran compiler")
    return [program]


def expected_lines():
    """What every reader of examples/first-stream is to print, by the heat equation written down once more."""
    T = np.zeros((64, 96))
    T[24:40, 32:64] = 100.0
    lines = []
    for number in range(50):
        neighbours = np.roll(T, 1, 0) + np.roll(T, -1, 0) + np.roll(T, 1, 1) + np.roll(T, -1, 1)
        T = T + 0.2 * (neighbours - 4 * T)
        T[[0, -1], :] = T[:, [0, -1]] = 0.0
        row = T[24]
        figures = f"mean {row.mean():.3f}  max {row.max():.3f}"
        lines.append(f"step {number}  time {0.2 * (number + 1):.1f}  row 24: {figures}")
    return lines


@pytest.mark.parametrize("reader", ["py", "cpp", "c", "f90"])
@pytest.mark.parametrize("writer", ["py", "cpp", "c", "f90"])
def test_first_stream(writer, reader, programs, environment, tmp_path):
    commands = command_of("writer", writer, programs), command_of("reader", reader, programs)
    assert run_together(*commands, environment, tmp_path).splitlines() == expected_lines()


def test_order_of_fortran_arrays(programs, environment, tmp_path):
    """docs/howto/use-fortran.md"""
    import penstock

    context = penstock.Context(directory=environment["PENSTOCK_DIRECTORY"], listen="127.0.0.1")
    with running(command_of("writer", "f90", programs), environment, tmp_path) as writing:
        with context.open("heat", timeout=TIMEOUT_S) as stream, stream.step() as step:
            T = step["T"]
            assert T.shape == (64, 96)  # declared as T(64, 96)
            assert T[31, 47] == T[...].max()  # T(32, 48)
            assert T.order == "column" and T.view().flags.f_contiguous  # the writer's memory, without a copy
        assert writing.communicate(timeout=TIMEOUT_S)[0] == ""
    assert writing.returncode == 0


def test_first_stream_in_pages():
    """What the pages show of the output is part of it."""
    shown = 0
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        pattern = r"^<!-- output: examples/first-stream/reader\.py -->\n```text\n(.*?)^```"
        for block in re.findall(pattern, text, re.MULTILINE | re.DOTALL):
            assert block in "\n".join(expected_lines()) + "\n", page
            shown += 1
    assert shown > 0


def shown_output(page, program):
    """What a page shows of a program's output."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.search(rf"^<!-- output: {program} -->\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1]


@pytest.mark.parametrize("client", ["py", "cpp"])
@pytest.mark.parametrize("server", ["py", "cpp"])
def test_services(server, client, programs, environment, tmp_path):
    """docs/howto/services.md: built outside of the checkout, called from either language."""

    def command(side, language):
        if language == "py":
            return [sys.executable, EXAMPLES / "services" / f"thermo_{side}.py", "contact"]
        return [programs / f"thermo_{side}", "contact"]

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command("server", server), env=environment, cwd=tmp_path, **pipes) as serving:
        try:
            assert serving.stdout.readline() == "ready\n"
            with running(command("client", client), environment, tmp_path) as calling:
                output, _ = calling.communicate(timeout=TIMEOUT_S)
            serving.communicate(timeout=TIMEOUT_S)  # the end of its standard input
        finally:
            serving.kill()
    assert output == shown_output("docs/howto/services.md", "examples/services/thermo_client.py")
    assert (calling.returncode, serving.returncode) == (0, 0)


@pytest.mark.parametrize("name", ["selections", "ownership", "in_situ", "coprocess", "coprocess_c"])
def test_concepts(name, programs, environment, tmp_path):
    with running([programs / name], environment, tmp_path) as program:
        output, _ = program.communicate(timeout=TIMEOUT_S)
    assert (program.returncode, output) == (0, f"{name}: as expected\n")


def test_objects(programs, environment, tmp_path):
    from penstock.workflow.servers import PoolServers
    from penstock.workflow.study import PoolPlan

    plan = PoolPlan(servers=1, memory="64MiB", options={"listen": "127.0.0.1"})
    with PoolServers(plan, logs=tmp_path, folder=tmp_path / "own") as servers:
        servers.wait_ready(TIMEOUT_S)
        here = environment | {"PENSTOCK_DIRECTORY_SERVICE": servers.directory}
        with running([programs / "objects"], here, tmp_path) as program:
            output, _ = program.communicate(timeout=TIMEOUT_S)
    assert (program.returncode, output) == (0, "objects: as expected\n")


@pytest.mark.parametrize("plate", ["plate", "plate_f90"])
def test_mesh_in_c_and_fortran(plate, programs, environment, tmp_path):
    """They write what plate.py does, to a stream and to a file. More: examples/mesh/test_mesh_example.py."""
    if not (programs / plate).exists():
        pytest.skip("Penstock was built without a Fortran compiler")
    analysis = [sys.executable, EXAMPLES / "mesh" / "warmest.py"]
    expected = run_together([sys.executable, EXAMPLES / "mesh" / "plate.py"], analysis, environment, tmp_path)
    assert "time 0.09: mean" in expected
    assert run_together([programs / plate], analysis, environment, tmp_path) == expected
    to_file = environment | {"PENSTOCK_MESH_PLATE": "exodus,path=plate.e"}
    with running([programs / plate], to_file, tmp_path) as program:
        assert (program.communicate(timeout=TIMEOUT_S)[0], program.returncode) == ("", 0)
    with running([*analysis, "plate.e"], environment, tmp_path) as program:
        assert program.communicate(timeout=TIMEOUT_S)[0] == expected


def test_coprocessor_in_fortran(programs, environment, tmp_path):
    """docs/howto/use-fortran.md"""
    pytest.importorskip("vtkmodules", reason="needs VTK (pip install vtk)")
    if not (programs / "coprocess_f90").exists():
        pytest.skip("Penstock was built without a Fortran compiler")
    analysis = [sys.executable, "-m", "penstock.cli.main", "analyze", "heat", EXAMPLES / "coprocessing" / "cool.py"]
    with running([programs / "coprocess_f90"], environment, tmp_path) as simulation:
        with running(analysis, environment, tmp_path) as analysing:
            output, _ = analysing.communicate(timeout=TIMEOUT_S)
        printed, _ = simulation.communicate(timeout=TIMEOUT_S)
    assert (analysing.returncode, simulation.returncode) == (0, 0), output + printed
    cycles = [int(line.split()[1].rstrip(":")) for line in output.splitlines() if line.startswith("cycle ")]
    assert cycles == list(range(0, 100, 10)) and "cycle 0: 1000.0 K in 6241 cells" in output
    assert printed == "coprocess: the source ended at .0\n"


@pytest.mark.skipif(not HAVE_MPI, reason="needs mpiexec, mpicxx and mpi4py")
@pytest.mark.parametrize("writer", ["mpi_writer", "mpi_writer_f90"])
def test_mpi(writer, programs, environment, tmp_path):
    if not (programs / writer).exists():
        pytest.skip("Penstock was built without a Fortran compiler, or without MPI for Fortran")
    output = run_together(
        ["mpiexec", "-n", "2", programs / writer],
        ["mpiexec", "-n", "3", sys.executable, EXAMPLES / "mpi" / "reader.py"],
        environment,
        tmp_path,
    )
    assert output.splitlines() == [f"step {number}: mean {10 * number + 0.5:.2f}" for number in range(10)]


@pytest.mark.skipif(not HAVE_MPI, reason="needs mpiexec, mpicxx and mpi4py")
def test_mpi_in_one_launch(programs, environment, tmp_path):
    """docs/howto/mpmd.md"""
    import penstock

    folders = [Path(penstock.__file__).parent / "lib", Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build")) / "lib"]
    splitter = next((file for file in (folder / "libpenstock_mpmd.so" for folder in folders) if file.exists()), None)
    if splitter is None:
        pytest.skip("libpenstock_mpmd.so is not built (it needs MPI)")
    preload = ["-x", f"LD_PRELOAD={splitter}"]
    reader = [sys.executable, EXAMPLES / "mpi" / "reader.py"]
    command = ["mpiexec", *preload, "-n", "2", programs / "mpi_writer", ":", *preload, "-n", "3", *reader]
    with running(command, environment, tmp_path) as both:
        output, _ = both.communicate(timeout=TIMEOUT_S)
    assert both.returncode == 0, output
    assert output.splitlines() == [f"step {number}: mean {10 * number + 0.5:.2f}" for number in range(10)]


def test_examples_are_all_here():
    """Each program of these folders is built and run above."""
    folders = ("first-stream", "concepts", "mpi", "fortran", "services")
    found = {str(file.relative_to(EXAMPLES)) for part in folders for file in (EXAMPLES / part).glob("*.*")}
    programs = {f"first-stream/{side}.{language}" for side in ("writer", "reader") for language in ("py", "cpp", "c")}
    programs |= {f"concepts/{name}.cpp" for name in ("selections", "ownership", "in_situ", "coprocess")}
    programs |= {"concepts/coprocess.c", "concepts/objects.c"}
    programs |= {"mpi/writer.cpp", "mpi/reader.py", "services/thermo.fbs"}
    programs |= {f"services/thermo_{side}.{language}" for side in ("server", "client") for language in ("py", "cpp")}
    programs |= {"fortran/writer.f90", "fortran/reader.f90", "fortran/mpi_writer.f90"}
    programs |= {"fortran/coprocess.f90", "fortran/plate.f90"}
    assert found == programs | {f"{part}/CMakeLists.txt" for part in folders}
