"""`penstock bench fragments`: its grids against brute force, its counts, its measure of surfaces; no times."""

import importlib.util

import numpy as np
import pytest
from penstock.bench import fragments as bench
from penstock.bench import fragments_data as data
from penstock.bench import fragments_exchange, fragments_validation, studies

has_vtk = pytest.mark.skipif(not importlib.util.find_spec("vtkmodules"), reason="needs VTK (pip install vtk)")


@pytest.fixture
def run(tmp_path):
    with studies.Run(tmp_path, tmp_path, 60) as made:
        yield made


@pytest.fixture(params=[1, 2, 3])
def balls(request):
    print("seed", request.param)
    return data.many(4, request.param)


@pytest.mark.parametrize("half", [False, True])
def test_blocks_fill_the_cube_in_the_curves_order_and_levels_differ_by_one(balls, half):
    tree = data.octree(balls, 5, half)
    assert tree.levels.max() == 5 and len(np.unique(tree.levels)) > 1
    starts, ends = tree.mortons(), tree.mortons() + (8 ** (5 - tree.levels)).astype(np.uint64)
    assert starts[0] == 0 and ends[-1] == 8**5 and (starts[1:] == ends[:-1]).all()
    levels = np.zeros((32, 32, 32), int)  # of the places of the smallest blocks
    for level, index in zip(tree.levels, tree.indices, strict=True):
        width = 2 ** (5 - level)
        levels[tuple(slice(i * width, (i + 1) * width) for i in index)] = level
    for x, y, z in np.ndindex(3, 3, 3):
        one, other = (
            tuple(slice(max(s, 0), 32 + min(s, 0)) for s in sign * np.array([x - 1, y - 1, z - 1])) for sign in (1, -1)
        )
        assert np.abs(levels[one] - levels[other]).max() <= 1


def test_ghost_cells_are_what_the_blocks_level_sees(balls):
    tree = data.octree(balls, 4)
    values = np.random.default_rng(1).random((len(tree), 8, 8, 8))
    side = 16 * 8
    fine = np.empty((side,) * 3)  # z, y, x: the values in cells of the least width
    for row, (level, index) in enumerate(zip(tree.levels, tree.indices, strict=True)):
        width = 2 ** (4 - level)
        place = tuple(slice(i * 8 * width, (i + 1) * 8 * width) for i in index[::-1])
        fine[place] = np.kron(values[row], np.ones((width,) * 3))
    padded = np.concatenate([some for _, some in data.with_ghosts(tree, values)])
    for row in np.random.default_rng(2).choice(len(tree), 40):
        width = 2 ** (4 - tree.levels[row])
        for cell in np.random.default_rng(row).integers(0, 10, (60, 3)):
            low = (tree.indices[row, ::-1] * 8 + cell - 1) * width
            if (low < 0).any() or (low >= side).any():
                assert padded[row][tuple(cell)] == -np.inf
            else:
                there = fine[tuple(slice(a, a + width) for a in low)]
                np.testing.assert_allclose(padded[row][tuple(cell)], there.mean(), rtol=1e-12)


def test_volume_fractions_give_the_volume(balls):
    tree = data.octree(balls, 5)
    cells = data.volume_fractions(balls, tree).sum(axis=(1, 2, 3)) * (tree.widths / 8) ** 3
    np.testing.assert_allclose(cells.sum(), balls.volume, rtol=2e-3)


@pytest.mark.parametrize("ranks", [2, 5, 0])
def test_both_algorithms_find_the_same_blocks(run, ranks):
    """Or exchange() fails."""
    all_of, few = (
        fragments_exchange.exchange(3, 4, ranks, algorithm, run) for algorithm in fragments_exchange.ALGORITHMS
    )
    ranks = all_of["ranks"]
    assert all_of["find_messages_most"] == ranks - 1 and all_of["splits_bytes"] == 0
    assert few["find_bytes_most"] <= all_of["find_bytes_most"] and few["splits_bytes"] == 8 * ranks
    assert few["value_messages_most"] <= few["find_messages_most"] <= ranks - 1


@pytest.mark.parametrize("algorithm", fragments_exchange.ALGORITHMS)
def test_a_stream_counts_what_is_computed(run, algorithm):
    assert fragments_exchange.streams(4, algorithm, run)["apart_most"] == 0


def test_holes_in_a_surface_are_seen():
    points = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]], float)
    triangles = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 4], [2, 0, 3]])  # 3 and 4 are one point
    closed = bench.surface_errors(points, triangles)
    assert (closed["open_edges"], closed["crossed_edges"], closed["euler"]) == (0, 0, 2)
    assert closed["volume_percent"] == pytest.approx(100 * (1 / 6 / data.THREE.volume - 1))
    assert bench.surface_errors(points, triangles[:3])["open_edges"] == 3


@has_vtk
def test_contours_of_single_blocks_fit_but_where_levels_meet(run):
    figures = bench.per_block(3, run)
    assert 0 < figures["open_edges"] < 0.05 * figures["triangles"] and abs(figures["volume_percent"]) < 3


@pytest.mark.parametrize("parts", [1, 5])
def test_our_surface_is_closed_and_the_table_right(run, parts):
    figures = bench.ours("", 3, True, parts, run)
    assert (figures["open_edges"], figures["crossed_edges"], figures["euler"]) == (0, 0, 6)
    assert (figures["fragments"], figures["mass_percent"]) == (3, 0)


@pytest.mark.parametrize("batch", [0, 100])
def test_memory_is_measured(run, batch):
    figures = bench.memory(3, batch, run)
    assert figures["fragments"] == 3 and figures["grown_kib"] > 0


def test_claims_are_about_rows_that_there_are():
    depths = bench.Sizes(quick=False).weak_depths
    keys = {row.key for row in [*fragments_exchange.rows_of(4, depths), *bench.speed_rows()[0]]}
    keys |= {row.key for row in bench.memory_rows(bench.MEMORY_DEPTHS)}
    keys |= {("speed", "paraview", name) for name in (*bench.PEERS, "many_AMRDualContour")}  # where there is one
    claims = [*fragments_exchange.claims(depths), *bench.claims()]
    assert all({claim.ours, *claim.theirs} <= keys for claim in claims)


@has_vtk
def test_the_validation_finds_nothing(run):
    for row in fragments_validation.rows():
        if row.variant == "noise":  # takes ten seconds; the module's own tests have it
            continue
        found = row.run(run)
        assert not any(found.get(name, 0) for name in ("bad_edges", "euler_off", "differ")), (row.label, found)
        assert found.get("lost", 0) < 1e-15 and found.get("order", 2) > 1.9
        assert found.get("apart", 0) < 1e-6 and found.get("fragments") == found.get("vtk_regions")
