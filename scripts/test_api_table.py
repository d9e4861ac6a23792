"""The table of calls is up to date and complete, and scripts/api_table notices when it is not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("include/penstock", "python/penstock", "fortran")


def run_table(root, *options):
    command = [sys.executable, ROOT / "scripts/api_table", "--root", root, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_no_language_lacks_a_call_and_the_page_is_up_to_date():
    assert run_table(ROOT, "--check") == (0, "")


@pytest.fixture
def tree(tmp_path):
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.so", "lib", "__pycache__"))
    for name in ("scripts/api.yaml", "docs/reference/api.md"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def change(tree, name, old, new):
    text = (tree / name).read_text(encoding="utf-8")
    assert old in text
    (tree / name).write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "old", "new", "complaint"),
    [
        (
            "include/penstock/stream.hpp",
            "  void seek(std::uint64_t step);",
            "",
            "reader: C++ lacks seek: add it, or say in scripts/api.yaml why not",
        ),
        ("include/penstock/penstock.h", "int penstock_reader_seek(", "int other(", "reader: C lacks seek"),
        ("python/penstock/reader.py", "    def seek(", "    def _seek(", "reader: Python lacks seek"),
        ("fortran/penstock_writing.f90", "procedure :: lose", "procedure :: other", "writer: Fortran lacks lose"),
        (
            "include/penstock/pool.hpp",
            "  PoolStatus status();",
            "  void grow();\n  PoolStatus status();",
            "C lacks grow",
        ),
        ("fortran/penstock_reading.f90", "procedure :: get", "procedure :: get\n    procedure :: view", "take it out"),
        ("python/penstock/writer.py", "    def span(", "    def room(", "`same` calls put_span span in Python"),
        ("scripts/api.yaml", "calls: [on_step]", "calls: [on_step, on_stop]", "`missing` names on_stop of Fortran"),
        (
            "include/penstock/pool.h",
            "\nint penstock_pool_put(",
            "\nint penstock_fool_put(",
            "penstock_fool_put is in no",
        ),
        (
            "scripts/api.yaml",
            "libraries of Python",
            "Python's libraries",
            "is out of date: run scripts/api_table --write",
        ),
    ],
)
def test_a_change_of_one_language_is_noticed(tree, name, old, new, complaint):
    change(tree, name, old, new)
    code, errors = run_table(tree, "--check")
    assert code == 1 and complaint in errors
