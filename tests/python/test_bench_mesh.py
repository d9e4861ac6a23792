"""`penstock bench mesh`: FAODEL's key rule, the region that is written, and small runs. No time is asserted."""

import importlib.util
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from penstock import mesh
from penstock.bench import mesh as bench
from penstock.bench import mesh_peer, programs, studies
from rich.console import Console

BUILD = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build"))
BIN = Path(os.environ.get("PENSTOCK_BIN", BUILD / "bin"))
SEDOV = BIN / "sedov"

runs = pytest.mark.skipif(not SEDOV.exists() or not shutil.which("mpiexec"), reason="sedov is not built (it needs MPI)")
of_ranks = pytest.mark.skipif(not importlib.util.find_spec("mpi4py"), reason="needs mpi4py")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_BIN", str(BIN))
    with studies.Run(BUILD, tmp_path, 60) as made:
        yield made


def test_the_key_rule():
    nodes = mesh.Entity("node_block", "nodes", 1, 8, fields=[mesh.Field("ids", "int64", role="mesh"), mesh.Field("T")])
    block = mesh.Entity("element_block", "gas", 1, 1, "hex8", fields=[mesh.Field("p"), mesh.Field("rho")])
    whole = mesh.Entity("region", "r", count=1, fields=[mesh.Field("energy", role="reduction")])
    model = mesh.Model(entities=[whole, nodes, block])
    state = bench.faodel_keys(model, 3, 7)
    assert len(state) == 4
    start = "3/State/7/Entity/ElementBlock/Name/gas"
    assert f"{start}/Field/RoleType/TRANSIENT/BasicType/REAL/Name/p" in state
    assert "3/State/7/Entity/Region/Field/RoleType/REDUCTION/BasicType/REAL/Name/energy" in state
    once = bench.faodel_keys(model, 3, -1)
    assert len(once) == 1 + 3 * 3 + 1  # ids; name, id and entity_count of each; the block's topology_type
    assert f"{start.replace('/7/', '/-1/')}/Property/BasicType/STRING/Name/topology_type" in once


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_parts_of_the_region_fit(ranks):
    """Every element is in one part and block; its corners are where it is."""
    side, blocks, seen = 6, 4, []
    for rank in range(ranks):
        model, values = mesh_peer.region_of(mesh_peer.Grid(side, blocks, rank, ranks))
        for (name, field), each in values.items():
            its = model.find(name)
            assert each.shape == its.shape(its.find(field)), (name, field)
        for block in model.of("element_block"):
            ids = values[block.name, "ids"] - 1
            corners = values["nodeblock_1", "coordinates"][values[block.name, "connectivity"]]
            place = np.stack(np.unravel_index(ids, (side,) * 3)[::-1], 1)
            np.testing.assert_array_equal(corners.mean(axis=1), place + 0.5)
            seen.extend(ids)
    assert sorted(seen) == list(range(side**3))


def test_claims_and_ratios_are_about_rows_that_there_are():
    for quick in (False, True):
        sizes = bench.Sizes(quick)
        keys = {row.key for row in bench.rows_of("sedov", sizes)[0]}
        if importlib.util.find_spec("mpi4py"):
            assert all({claim.ours, *claim.theirs} <= keys for claim in bench.claims_of(sizes))
        assert {column.over for sheet in bench.sheets_of(sizes) for column in sheet.columns if column.over} <= keys


def test_ratios_are_those_within_a_round():
    ours, theirs = ("s", "penstock", "a"), ("s", "files", "b")
    rows = {
        key: studies.Measured(studies.Row(*key, label=key[1], run=lambda run: {}), [{"x": value} for value in values])
        for key, values in ((ours, [1, 20, 4]), (theirs, [2, 10, 2]))
    }
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 closed below
    studies.print_sheet(console, studies.Sheet("s", "t", (studies.Column("x", "ratio", over=theirs),)), rows)
    console.file.close()
    assert "2 0.5–2" in console.export_text()


@runs
@pytest.mark.parametrize("place", ["null", "direct", "pool_1"])
def test_a_state_is_measured(run, place):
    figures = bench.cost(str(SEDOV), bench.Sizes(quick=True), place, run)
    assert 0 < figures["median_ms"] <= figures["worst_ms"] and figures["compute_ms"] > 0


@runs
@of_ranks
def test_puts_are_counted(run):
    def command(name, states, run):
        return programs.mpi(bench.RANKS, *bench.PEER, "write", name, 8, 4, states)

    figures = bench.keys(bench.Sizes(quick=True), command, run)
    assert figures["puts"] == figures["objects"] == 1.5  # a stripe, and a record of both ranks
    assert figures["their_puts"] == 1 + 10 + 4 * 10


@runs
@of_ranks
def test_the_first_state_is_timed(run):
    figures = bench.first(bench.Sizes(quick=True), 1, 2, "pool", run)
    assert figures["late_ms"] > 0 and figures["live_ms"] > 0
