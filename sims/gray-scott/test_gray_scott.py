"""The physics against NumPy on 1, 2 and 4 ranks: without Penstock (raw files), and through a stream."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "examples" / "gray-scott"))
import reference  # noqa: E402

# Uneven over two and four ranks; the noise makes every cell and time step count.
SETTINGS = {"shape": [22, 21, 19], "F": 0.025, "k": 0.05, "dt": 1.5, "noise": 1e-3, "box": 6, "seed": 7,
            "steps": 30, "plot_every": 10}  # fmt: skip
DEADLINE_S = 60
TOLERANCE = 1e-12


def find_program(name):
    """In $PENSTOCK_BIN, the build folder ($PENSTOCK_BUILD, else build/) or PATH; a build without MPI has none."""
    build = Path(os.environ.get("PENSTOCK_BUILD", ROOT / "build"))
    folders = [os.environ.get("PENSTOCK_BIN"), str(build / "bin"), os.environ.get("PATH")]
    path = shutil.which(name, path=os.pathsep.join(filter(None, folders)))
    if not path or not shutil.which("mpiexec"):
        pytest.skip(f"{name} is not built (it needs MPI)")
    return path


@contextmanager
def running(ranks, *command, **options):
    """A program on some ranks, which ends with the block at the latest."""
    # Open MPI refuses root and more ranks than cores unless told otherwise.
    environment = os.environ | {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
    }
    environment |= options.pop("env", {})
    process = subprocess.Popen(
        ["mpiexec", "-n", str(ranks), *map(str, command)], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # mpiexec ends its ranks
        process.communicate(timeout=DEADLINE_S)


def finish(process):
    """The exit code and standard error of a program at its end."""
    _, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, err


def run(ranks, *command):
    with running(ranks, *command) as process:
        return finish(process)


def write_settings(folder, **changes):
    path = folder / "settings.yaml"
    path.write_text(yaml.safe_dump(SETTINGS | changes))
    return path


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    settings = reference.load_settings(write_settings(tmp_path_factory.mktemp("reference")))
    return {step: (U, V) for step, U, V in reference.run(settings)}


def assert_equal(fields, expected):
    assert sorted(fields) == [10, 20, 30]
    for step, (U, V) in fields.items():
        np.testing.assert_allclose(U, expected[step][0], rtol=0, atol=TOLERANCE, err_msg=f"U at {step}")
        np.testing.assert_allclose(V, expected[step][1], rtol=0, atol=TOLERANCE, err_msg=f"V at {step}")


def raw_fields(folder, shape):
    def load(name, step):
        return np.fromfile(folder / f"{name}.{step}.raw").reshape(shape)

    steps = {int(path.name.split(".")[1]) for path in folder.glob("U.*.raw")}
    return {step: (load("U", step), load("V", step)) for step in steps}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_physics_equals_the_reference(ranks, tmp_path, expected):
    program = find_program("gray-scott-fields")
    code, err = run(ranks, program, write_settings(tmp_path), tmp_path)
    assert code == 0, err
    assert_equal(raw_fields(tmp_path, SETTINGS["shape"]), expected)


def test_fields_do_not_depend_on_the_number_of_ranks(tmp_path):
    program = find_program("gray-scott-fields")
    results = []
    for ranks in (1, 3, 8):  # eight ranks divide every dimension
        folder = tmp_path / str(ranks)
        folder.mkdir()
        code, err = run(ranks, program, write_settings(folder), folder)
        assert code == 0, err
        results.append({path.name: path.read_bytes() for path in folder.glob("*.raw")})
    assert results[0] == results[1] == results[2]
    assert len(results[0]) == 6


def test_ranks_of_one_layer(tmp_path):
    program = find_program("gray-scott-fields")
    path = write_settings(tmp_path, shape=[4, 4, 4], box=2)
    code, err = run(3, program, path, tmp_path)  # 1, 1 and 2 layers of cells
    assert code == 0, err
    expected = {step: (U, V) for step, U, V in reference.run(reference.load_settings(path))}
    assert_equal(raw_fields(tmp_path, (4, 4, 4)), expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plot_evry": 3}, 'plot_evry: unknown key; did you mean "plot_every"?'),
        ({"F": 1.5}, "F: 1.5 is out of range: 0 to 1"),
        ({"F": "much"}, 'F: expected a number, got "much"'),
        ({"steps": 0}, "steps: 0 is out of range: 1 to 1e+09"),
        ({"steps": 2.5}, 'steps: expected an integer, got "2.5"'),
        ({"L": 32}, "give either L or shape, not both"),
        ({"shape": [8, 8]}, "shape: expected three integers, got 2"),
        ({"plot_every": 31}, "plot_every (31) is larger than steps (30)"),
        ({"box": 20}, "box (20) is larger than the smallest side of the grid"),
        ({"dt": 6.0}, "explicit Euler is stable only up to 1"),
        ({"noise": float("nan")}, "noise: nan is out of range: 0 to 1"),
    ],
)
def test_bad_parameters_are_named(changes, message, tmp_path):
    program = find_program("gray-scott-fields")
    code, err = run(1, program, write_settings(tmp_path, **changes), tmp_path)
    assert code != 0
    assert message in err
    assert "settings.yaml" in err


def test_more_ranks_than_cells(tmp_path):
    program = find_program("gray-scott-fields")
    code, err = run(5, program, write_settings(tmp_path, shape=[4, 4, 4], box=2), tmp_path)
    assert code != 0
    assert "the grid is too small: 5 ranks in a dimension of 4 cells" in err


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_stream_equals_the_reference(ranks, tmp_path, expected):
    penstock = pytest.importorskip("penstock")
    program = find_program("gray-scott")
    report = tmp_path / "report.json"
    context = penstock.Context(directory=str(tmp_path))
    environment = {"PENSTOCK_DIRECTORY": str(tmp_path)}
    command = [program, write_settings(tmp_path), "--report", report]
    fields = {}
    with running(ranks, *command, env=environment, cwd=tmp_path) as process:
        with context.open("gray-scott", timeout=DEADLINE_S) as stream:
            for step in stream:
                fields[step["sim_step"].value] = (step["U"][...], step["V"][...])
                assert step["time"].value == SETTINGS["dt"] * step["sim_step"].value
                assert step.attributes["F"] == SETTINGS["F"]
        code, err = finish(process)
    assert code == 0, err
    assert_equal(fields, expected)
    assert yaml.safe_load(report.read_text())["steps_written"] == 3


def ask(context, rules, **steering):
    """The requests of an analysis, as a stream to be closed."""
    options = {"rendezvous_readers": 0, "reserve_steps": 1, "when_full": "discard_newest"}
    stream = context.create("gray-scott.requests", timeout=DEADLINE_S, **options)
    with stream.step() as step:
        step["request"] = json.dumps({"version": 1, "number": 1, "rules": rules, "steering": steering})
    return stream


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_analysis_chooses_steps_and_fields_and_sets_rates(ranks, tmp_path, expected):
    penstock = pytest.importorskip("penstock")
    program = find_program("gray-scott")
    context = penstock.Context(directory=str(tmp_path))
    environment = {
        "PENSTOCK_DIRECTORY": str(tmp_path),
        # The first output waits for the analysis.
        "PENSTOCK_COPROCESSING_GRAY_SCOTT": "block,pipelines=elsewhere.yaml",
    }
    rules = [{"fields": ["V"], "when": ["step", 20, "%", 0, "=="]}, {"fields": ["U"], "when": ["time", 45, ">="]}]
    found = {}
    with ask(context, rules, F=0.03, k=2.0) as requests:
        command = [program, write_settings(tmp_path)]
        with running(ranks, *command, env=environment, cwd=tmp_path) as process:
            with context.open("gray-scott", timeout=DEADLINE_S) as stream:
                for step in stream:
                    fields = {name: step[name][...] for name in ("U", "V") if name in step}
                    found[step["sim_step"].value] = fields
                    answer = json.loads(step.attributes["coprocessing"])
                    assert step.attributes["F"] == 0.03 == answer["steering"]["F"]
                    assert step.attributes["k"] == SETTINGS["k"]
                    assert "2 is greater than 1" in answer["refused"]["k"]
                    assert json.loads(step.attributes["meshes"])["meshes"]["grid"]["shape"] == SETTINGS["shape"]
            code, err = finish(process)
        requests.close(timeout=0)
    assert code == 0, err
    assert {step: sorted(fields) for step, fields in found.items()} == {20: ["V"], 30: ["U"]}
    assert not np.allclose(found[20]["V"], expected[20][1], rtol=0, atol=TOLERANCE)  # F has changed at step 10


ANALYSIS = """
import json, sys
import penstock

paths, options = sys.argv[1:-8], dict(zip(sys.argv[-8::2], sys.argv[-7::2]))
if options["--rank"] == "0":
    with penstock.create("gray-scott.requests", rendezvous_readers=0, reserve_steps=1) as requests:
        with requests.step() as step:
            rules = [{"fields": ["V"], "when": ["step", 10, ">"]}]
            step["request"] = json.dumps({"version": 1, "number": 1, "rules": rules})
        with penstock.open(options["--channel"], engine="insitu") as stream:
            seen = [[step.attributes["cycle"], float(step["V"][...].sum())] for step in stream]
        requests.close(timeout=0)
    with open("seen.json", "w") as file:
        json.dump({"paths": paths, "options": options, "seen": seen}, file)
    sys.exit(3)
"""
# The package, with an analysis of the test's own in place of penstock.analysis.
STAND_IN = """
from pathlib import Path

__path__ = [str(Path(__file__).parent), REAL]
exec(compile(Path(REAL, "__init__.py").read_text(), "penstock", "exec"))
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_configuration_alone_starts_an_analysis_in_the_process(ranks, tmp_path, expected):
    penstock = pytest.importorskip("penstock")
    program = find_program("gray-scott")
    if not list(Path(program).parents[1].rglob("libpenstock_python_program.so")):
        pytest.skip("built without the headers and library of Python (Debian: python3-dev)")
    package = tmp_path / "python" / "penstock"
    (package / "analysis").mkdir(parents=True)
    (package / "__init__.py").write_text(f"REAL = {os.path.dirname(penstock.__file__)!r}\n{STAND_IN}")
    (package / "analysis" / "__init__.py").touch()
    (package / "analysis" / "__main__.py").write_text(ANALYSIS)
    environment = {
        "PENSTOCK_DIRECTORY": str(tmp_path),
        "PENSTOCK_STREAM_GRAY_SCOTT": "insitu",
        "PENSTOCK_COPROCESSING_GRAY_SCOTT": "pipelines=a.yaml;b.yaml",
        "PENSTOCK_PYTHON": sys.executable,
        "PYTHONPATH": str(tmp_path / "python"),
    }
    command = [program, write_settings(tmp_path)]
    with running(ranks, *command, env=environment, cwd=tmp_path) as process:
        code, err = finish(process)
    assert (tmp_path / "seen.json").exists(), err
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert code == 3, err  # the analysis's
    assert seen["paths"] == ["a.yaml", "b.yaml"]
    expected_options = {"--channel": "gray-scott", "--output": "output", "--rank": "0", "--size": str(ranks)}
    assert seen["options"] == expected_options
    assert [cycle for cycle, _ in seen["seen"]] == [20, 30]
    np.testing.assert_allclose([total for _, total in seen["seen"]], [expected[20][1].sum(), expected[30][1].sum()])


def test_a_process_without_the_interpreter_says_so(tmp_path):
    program = find_program("gray-scott")
    environment = {
        "PENSTOCK_DIRECTORY": str(tmp_path),
        "PENSTOCK_STREAM_GRAY_SCOTT": "insitu",
        "PENSTOCK_COPROCESSING_GRAY_SCOTT": "pipelines=a.yaml",
        "PENSTOCK_PYTHON": "/nowhere/python3",
    }
    with running(1, program, write_settings(tmp_path), env=environment, cwd=tmp_path) as process:
        code, err = finish(process)
    assert code != 0
    assert "PENSTOCK_PYTHON=/nowhere/python3 is not a Python interpreter" in err or "libpenstock_python_program" in err
