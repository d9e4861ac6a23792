"""Partitions: every cell, domain and row has one owner; and the order in which boxes are seen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock import InvalidArgument
from penstock.analysis import partition, visibility_order

SHAPES = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)
SIZES = st.integers(1, 40)
METHODS = st.sampled_from(partition.METHODS)


@given(SHAPES, SIZES, METHODS)
@settings(deadline=None)
def test_every_cell_has_one_owner(cells, size, method):
    parts = partition.boxes(cells, size, method)
    assert len(parts) == size
    owners = np.zeros(cells, int)
    for part in parts:
        owners[tuple(slice(a, b) for a, b in zip(part.low, part.high, strict=True))] += 1
        assert part.empty == (np.prod(part.shape) == 0)
    assert (owners == 1).all()
    if method != "planar":
        assert sum(not part.empty for part in parts) == min(size, np.prod(cells)) or max(cells) > 1
        full = [np.prod(part.shape) for part in parts if not part.empty]
        assert max(full) <= 8 * max(np.prod(cells) / size, 1)


@given(st.lists(st.integers(0, 1000), max_size=30), SIZES, METHODS)
@settings(deadline=None)
def test_every_domain_has_one_owner(weights, size, method):
    parts = partition.domains(weights, size, method)
    assert len(parts) == size
    assert [number for part in parts for number in part.domains] == list(range(len(weights)))
    loads = [sum(weights[number] for number in part.domains) for part in parts]
    assert max(loads) <= sum(weights) / size + max(weights, default=0)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6), st.integers(1, 20), st.sampled_from(partition.METHODS))
@settings(deadline=None)
def test_every_row_has_one_owner(counts, size, method):
    rng = np.random.default_rng(sum(counts))
    levels = [rng.integers(0, 4, n) for n in counts]
    indices = [rng.integers(0, 1 << 4, (n, 3)) for n in counts]
    if method == "morton":
        parts = partition.rows_by_morton(levels, indices, 2, size)
    else:
        parts = partition.rows(counts, size, method)
        assert [tuple(row) for part in parts for row in part.rows.tolist()] == [
            (d, r) for d, n in enumerate(counts) for r in range(n)
        ]
    found = sorted(tuple(row) for part in parts for row in part.rows.tolist())
    assert found == [(d, r) for d, n in enumerate(counts) for r in range(n)]
    sizes = [len(part.rows) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_the_rows_of_a_tree_follow_its_morton_curve():
    """A block refined once: its children come one after another, and octants in the order of the curve."""
    children = [(i, j, k) for i in range(4) for j in range(4) for k in range(4)]
    rng = np.random.default_rng(3)
    rng.shuffle(children)
    (parts,) = ([p.rows[:, 1] for p in partition.rows_by_morton([np.ones(64, int)], [np.array(children)], 2, 8)],)
    for octant, rows in enumerate(parts):
        expected = ((octant >> 2) & 1, (octant >> 1) & 1, octant & 1)
        assert {tuple(np.array(children[row]) // 2) for row in rows} == {expected}


@pytest.mark.parametrize("bad", [(0, "block"), (2, "random")])
def test_a_partition_that_cannot_be(bad):
    with pytest.raises(InvalidArgument):
        partition.boxes((3, 3), *bad)


@given(
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.integers(1, 14),
    METHODS,
    st.lists(st.integers(-3, 3), min_size=3, max_size=3).filter(any),
    st.integers(0, 2**31),
    st.booleans(),
)
@settings(deadline=None, max_examples=200)
def test_visibility(cells, size, method, direction, seed, perspective):
    """Along rays, boxes are passed in the order that is the reverse of back to front."""
    corners = [(part.low, part.high) for part in partition.boxes(cells, size, method)]
    rng = np.random.default_rng(seed)
    eye = rng.uniform(-10, 16, 3) if perspective else None
    order = visibility_order(corners, direction, eye)
    assert sorted(order) == list(range(size))
    place = {box: n for n, box in enumerate(order)}
    for _ in range(40):
        start = rng.uniform(0, cells) - 100 * np.array(direction, float)
        ray = np.array(direction, float)
        if perspective:
            start, ray = eye, rng.uniform(0, cells) - eye
        passed = sorted((enters(low, high, start, ray), n) for n, (low, high) in enumerate(corners))
        places = [place[n] for at, n in passed if np.isfinite(at)]
        assert places == sorted(places, reverse=True)


def enters(low, high, start, ray):
    """Where the ray enters the box's inside; inf if it does not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        at = np.sort([(np.array(low) - start) / ray, (np.array(high) - start) / ray], axis=0)
    outside = (ray == 0) & ((start <= low) | (start >= high))
    first, last = np.nanmax(np.where(ray == 0, -np.inf, at[0])), np.nanmin(np.where(ray == 0, np.inf, at[1]))
    first = max(first, 0)
    return first if first < last - 1e-9 and not outside.any() else np.inf


def test_boxes_that_interlock_have_no_order():
    with pytest.raises(InvalidArgument, match="no plane separates"):
        visibility_order(
            [((0, 0), (2, 1)), ((2, 0), (3, 2)), ((1, 2), (3, 3)), ((0, 1), (1, 3)), ((1, 1), (2, 2))], (1, 0)
        )
