"""`penstock mesh join`: the parts of several ranks, in files and on streams, become one."""

import threading

import penstock
import pytest
from penstock import mesh

from .test_mesh import generated, penstock_mesh, pytestmark, same, written  # noqa: F401


@pytest.mark.parametrize("parts", [2, 5])
def test_files_of_several_ranks(tmp_path, parts):
    written(tmp_path / "parts.e", parts=parts, database="nemesis")
    said = penstock_mesh("join", tmp_path / "parts.e", tmp_path / "one.e")
    assert said.startswith(str(tmp_path / "one.e")) and "3 states" in said
    report = same(generated(), tmp_path / "one.e", records=True)
    assert report.same and report.states == 3, report.differences
    assert sorted(each.name for each in tmp_path.iterdir() if "parts" not in each.name) == ["one.e"]


def test_the_parts_of_a_stream(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DIRECTORY", str(tmp_path / "streams"))
    simulation = threading.Thread(target=lambda: mesh.copy(generated(), "plate", parts=3, database="stream"))
    simulation.start()
    penstock_mesh("join", "plate", tmp_path / "one.e", "--timeout", 30, "--quiet")
    simulation.join()
    assert same(generated(), tmp_path / "one.e").same


def test_what_is_there_stays(tmp_path):
    written(tmp_path / "parts.e", parts=2, database="nemesis")
    written(tmp_path / "one.e", "2x2x2")
    before = (tmp_path / "one.e").read_bytes()
    penstock_mesh("join", tmp_path / "parts.e", tmp_path / "one.e", code=2)
    penstock_mesh("join", tmp_path / "parts.e", tmp_path / "parts.e.2.1", "--force", code=2)
    penstock_mesh("join", tmp_path / "absent.e", tmp_path / "new.e", code=1)
    assert (tmp_path / "one.e").read_bytes() == before and not (tmp_path / "new.e").exists()
    penstock_mesh("join", tmp_path / "parts.e", tmp_path / "one.e", "--force")
    assert same(generated(), tmp_path / "one.e").same


def test_a_share_is_copied_by_itself(tmp_path):
    path = written(tmp_path / "a.e")
    with mesh.open(path, share=(1, 3)) as region:
        mesh.copy(region, tmp_path / "share.e")
        with pytest.raises(penstock.InvalidArgument, match="copied as it is"):
            mesh.copy(region, tmp_path / "b.e", parts=2)
    with mesh.open(path, share=(1, 3)) as region:
        report = same(region, tmp_path / "share.e")
    assert report.same and report.states == 3, report.differences
