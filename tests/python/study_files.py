"""Of tests of studies: their files, and a runtime directory of their own."""

import textwrap

import pytest
from penstock.workflow import load_study


@pytest.fixture(autouse=True)
def own_runtime_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "runtime" / "penstock"))
    for name in ("PENSTOCK_BIN", "PENSTOCK_CONFIG", "PENSTOCK_STATISTICS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(name="write")  # the name that tests ask for is not the one that they import
def writer_of_files(tmp_path):
    """write("study.yaml", text) -> path"""

    def write(name, text):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


def study_of(write, tmp_path, text):
    return load_study(write("study.yaml", text), output=tmp_path / "out")
