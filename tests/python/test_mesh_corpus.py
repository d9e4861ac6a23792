"""The corpus of generated meshes through every path, and what it says of files that are none."""

import mesh_corpus
import mesh_readers
import penstock
import pytest

from .test_mesh import pytestmark  # noqa: F401


@pytest.fixture
def shop(tmp_path, pool_servers):
    servers = pool_servers(1)
    context = penstock.Context(directory=servers.directory, listen="127.0.0.1")
    (tmp_path / "results").mkdir()
    with penstock.Pool("", context=context, directory=servers.directory) as pool:
        yield mesh_corpus.Workshop(context, pool, tmp_path / "results")
    context._shut_down()


def test_generated_meshes_come_back_from_every_path(shop, tmp_path):
    (tmp_path / "generated").mkdir()
    sources = mesh_corpus.generate(tmp_path / "generated")
    rows = mesh_corpus.run(sources, shop)
    assert len(rows) == 3 * len(sources) and all(row.identical for row in rows), mesh_corpus.as_table(rows)
    assert all(row.verdicts["compare"] == "identical" for row in rows)
    assert not any(shop.folder.iterdir())


def test_a_file_that_is_none_has_a_row_that_says_why(shop, tmp_path):
    whole = mesh_corpus.generate(tmp_path)[0].read_bytes()
    (tmp_path / "text.e").write_text("no mesh")
    (tmp_path / "cut.e").write_bytes(whole[: len(whole) // 2])
    rows = mesh_corpus.run([tmp_path / name for name in ("text.e", "cut.e", "absent.e")], shop)
    said = [row.verdicts["compare"] for row in rows]
    assert said[0] == "refused: is no netCDF file" and "cut off" in said[1] and "no such file" in said[2]
    assert not any(row.identical for row in rows)
    assert "3 files, 3 refused; 0 copies, 0 identical" in mesh_corpus.as_table(rows)


def test_a_difference_is_said():
    before = {"points": "f(3,) a", "cells": "i(2,) b"}
    assert mesh_readers.first_difference(before, dict(before)) == "identical"
    assert mesh_readers.first_difference(before, {"points": "f(3,) a"}) == "cells: i(2,) b and absent"
    assert mesh_readers.first_difference(before, {**before, "ns_names[0]": "nodelist_1"}) == "identical"


def test_files_of_ranks_are_one_sample(tmp_path):
    for name in ("a.e", "b.g.2.0", "b.g.2.1"):
        (tmp_path / name).touch()
    assert mesh_corpus.files_in([str(tmp_path)]) == [tmp_path / "a.e", tmp_path / "b.g"]
