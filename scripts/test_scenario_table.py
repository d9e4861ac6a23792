"""scripts/scenario_table notices failures, holes and strangers, and explains what it is told to."""

import subprocess
import sys
from pathlib import Path

import pytest

TABLE = Path(__file__).with_name("scenario_table")
ROWS = """
- section: The core
  rows:
    - {id: values, point: "values, of any kind"}
    - {id: views, point: views, not_in: {c: not there yet}}
"""
PLANES = ("shm", "tcp", "pool_shm", "pool_tcp", "insitu")
CASES = {
    "ctest": [
        "test_scenarios.planes/DataScenario.values/shm  # GetParam() = 1-byte object <01>",
        *(f"test_scenarios.planes/DataScenario.values/{plane}" for plane in PLANES[1:]),
        *(f"cpp.views.{plane}" for plane in PLANES),
        *(f"c.values.{plane}" for plane in PLANES),
        "test_model.Box.values",
    ],
    "pytest": [f"test_{name}[{plane}]" for name in ("values", "views") for plane in PLANES],
}


def file_of(test):
    return "test_fortran" if test.startswith("test_kinds") else "test_scenarios"


@pytest.fixture
def run(tmp_path):
    """run(rows, changes) gives the exit status and the output; changes: JUnit details by test, None to leave it out."""

    def run_table(rows=ROWS, changes=None, more=()):
        changes = changes or {}
        for tool, names in CASES.items():
            cases = [
                f'<testcase name="{name.replace("<", "&lt;")}" classname="tests.{file_of(name)}">'
                f"{changes.get(name, '')}</testcase>"
                for name in [*names, *(more if tool == "pytest" else ())]
                if changes.get(name, "") is not None
            ]
            (tmp_path / f"{tool}.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        (tmp_path / "rows.yaml").write_text(rows)
        command = [sys.executable, TABLE, tmp_path, "--rows", tmp_path / "rows.yaml"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr

    return run_table


def test_a_full_table(run, tmp_path):
    code, out = run()
    assert code == 0 and "2 points in 2 scenarios: 25 ok, 5 – of 30 cells" in out
    assert "| values, of any kind | `values` |" + " ok |" * 15 in (tmp_path / "scenario-table.md").read_text()
    assert "`views` is not in C: not there yet" in (tmp_path / "scenario-table.md").read_text()


def test_an_optional_plane_is_a_column_where_it_ran(run):
    names = [f"test_scenarios.planes/DataScenario.{name}/ucx" for name in ("values", "views")]
    code, out = run(more=names)
    assert code == 0 and "27 ok, 5 – of 32 cells" in out
    code, out = run(more=names[:1])
    assert code == 1 and "scenario table: views was not run in C++ over ucx" in out


def test_fortran_has_the_rows_that_name_a_test(run, tmp_path):
    rows = ROWS.replace('kind"}', 'kind", fortran: test_kinds}')
    names = [f"test_kinds[{place}]" for place in ("shm-C", "shm-F", "tcp", "pool_shm", "pool_tcp")]
    code, out = run(rows, more=names)
    assert code == 0 and "29 ok, 9 – of 38 cells" in out and "Fortran" in out
    code, out = run(rows, {"test_kinds[shm-F]": "<failure/>"}, more=names)
    assert code == 1 and "scenario table: values fails in Fortran over shm" in out
    code, out = run(rows.replace("test_kinds", "test_kind"), more=names)
    assert code == 1 and "scenario table: values was not run in Fortran over tcp" in out
    code, out = run(rows)
    assert code == 0 and "Fortran" not in out


@pytest.mark.parametrize(("change", "complaint"), [
    ({"c.values.tcp": None}, "values was not run in C over tcp"),
    ({"c.values.tcp": "<failure/>"}, "values fails in C over tcp"),
    ({"test_values[shm]": "<error/>"}, "values fails in Python over shm"),
])  # fmt: skip
def test_holes_and_failures(run, change, complaint):
    code, out = run(changes=change)
    assert code == 1 and f"scenario table: {complaint}" in out


def test_what_is_skipped_is_no_hole(run):
    code, out = run(changes={"test_values[shm]": "<skipped/>"})
    assert code == 0 and "1 skip" in out


def test_strangers_and_outdated_explanations(run):
    code, out = run(more=["test_new[shm]"], rows=ROWS.replace("{c: not there yet}", "{cpp: no}"))
    assert code == 1 and "new has no row" in out and "views runs in C++: its not_in is out of date" in out


def test_a_comma_that_was_not_quoted(run):
    code, out = run(rows=ROWS.replace('"', ""))
    assert code == 1 and "a row has no key 'of any kind'" in out
