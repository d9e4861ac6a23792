"""Blocks of adaptive grids and those that touch them, against brute force over all blocks."""

import itertools
import json

import numpy as np
import penstock
import pytest
from penstock.analysis import AmrMesh, Field, describe, publish
from penstock.analysis.amr import Neighbourhood
from penstock.analysis.partition import RowsPart, morton_numbers

END = 2**64 - 1
AXES = ("zyx", "xyz", "yzx")


@pytest.fixture
def plane():
    return "shm"


def touching(blocks, depth):
    """Of blocks (n, 4), level and index: a matrix that says whose closed boxes meet."""
    widths = 1 << (depth - blocks[:, :1])
    low, high = blocks[:, 1:] * widths, (blocks[:, 1:] + 1) * widths
    return ((low[:, None] <= high) & (low <= high[:, None])).all(axis=2)


def tree(rng, depth, flat):
    """A random octree (flat: quadtree) in which neighbours differ by one level at most, along the Z curve."""
    blocks = {(0, x, y, 0) for x in range(2) for y in range(3)}

    def refine(block):
        level, x, y, z = block
        blocks.remove(block)
        for i, j, k in itertools.product((0, 1), (0, 1), (0,) if flat else (0, 1)):
            blocks.add((level + 1, 2 * x + i, 2 * y + j, 2 * z + k))

    for level in range(depth):
        for block in sorted(each for each in blocks if each[0] == level):
            if rng.random() < 0.4:
                refine(block)
    while True:
        rows = np.array(sorted(blocks))
        coarse = touching(rows, depth) & (rows[:, 0] > rows[:, :1] + 1)
        if not coarse.any():
            break
        for block in rows[coarse.any(axis=1)].tolist():
            refine(tuple(block))
    return rows[np.argsort(morton_numbers(rows[:, 0], rows[:, 1:], depth))]


def values(blocks, cells, layers, axes):
    """Of each cell a number that is that of its place and level, ghost layers included: (blocks, *cells)."""
    out = []
    for level, *index in blocks.tolist():
        places = []
        for axis, n in zip(axes, cells, strict=True):
            places.append(np.arange(n) - layers + index["xyz".index(axis)] * (n - 2 * layers))
        weights = [{"x": 1, "y": 1000, "z": 10**6}[axis] for axis in axes]
        grid = np.meshgrid(*[w * place for w, place in zip(weights, places, strict=True)], indexing="ij")
        out.append(sum(grid) + 10**9 * level)
    return np.array(out, float).reshape(len(blocks), *cells)


def rows_of(runs):
    return [array[row] for array, rows in runs for row in rows]


class Case:
    """A tree in domains, some of them empty, and what a step says of it."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.axes = AXES[seed % 3] if seed % 4 else "yx"
        self.layers = seed % 2
        self.depth = 3
        self.cells = tuple(int(n) + 2 * self.layers for n in rng.integers(2, 4, len(self.axes)))
        self.blocks = tree(rng, self.depth, len(self.axes) == 2)
        ends = np.sort(rng.integers(0, len(self.blocks) + 1, 5))
        ends[1] = ends[2]  # nobody between
        self.domains = np.split(self.blocks, ends)
        self.values = values(self.blocks, self.cells, self.layers, self.axes)
        self.touching = touching(self.blocks, self.depth)
        self.places = {tuple(block): number for number, block in enumerate(self.blocks.tolist())}
        numbers = [*morton_numbers(self.blocks[:, 0], self.blocks[:, 1:], self.depth).tolist(), END]
        self.splits = np.array([numbers[first] for first in (0, *ends.tolist())], np.uint64)

    def put(self, step, **more):
        for domain in self.domains:
            step.put_local("l", domain[:, 0].astype(np.int32))
            step.put_local("i", domain[:, 1:].astype(np.int16))
            f = values(domain, self.cells, self.layers, self.axes)
            step.put_local("f", f)
            step.put_local("a", f.astype(np.float32))
            step.put_local("b", np.stack([f, -f], axis=-1))
        step["s"] = self.splits
        fields = {
            "f": {"association": "element", "variables": ["f"]},
            "split": {"association": "element", "variables": ["a", "f"]},
            "both": {"association": "element", "variables": ["b"], "components": 2},
        }
        mesh = {"type": "amr", "cells": self.cells, "axes": self.axes, "ghost_layers": self.layers, "levels": "l"}
        mesh |= {"indices": "i", "splits": "s", "depth": self.depth, "fields": fields} | more
        mesh = {key: value for key, value in mesh.items() if value is not None}
        step.attributes["meshes"] = json.dumps({"version": 1, "meshes": {"m": mesh}})

    def expected(self, own):
        """The numbers of blocks that touch the own ones."""
        found = self.touching[own].any(axis=0)
        found[own] = False
        return np.nonzero(found)[0].tolist()

    def numbers(self, near):
        return [self.places[tuple(key)] for key in np.column_stack([near.levels, near.indices]).tolist()]


@pytest.mark.parametrize("seed", range(12))
def test_both_algorithms_find_the_blocks_that_touch(hand_over, seed):
    case = Case(seed)
    found = describe(hand_over(case.put))["m"]
    starts = np.cumsum([0, *map(len, case.domains)])
    for size, method in ((1, "block"), (3, "block"), (5, "morton"), (len(case.blocks) + 2, "block")):
        for part in found.parts(size, method)[:: max(size // 10, 1)]:
            own = starts[part.rows[:, 0]] + part.rows[:, 1]
            both = [Neighbourhood(found, part, algorithm) for algorithm in ("refined", "baseline")]
            for near in both:
                numbers = case.numbers(near)
                assert numbers[: near.own] == own.tolist()
                assert sorted(numbers[near.own :]) == case.expected(own)
            assert np.array_equal(both[0].rows, both[1].rows)
            assert both[0].messages <= both[1].messages + 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("batch", [None, 1, 7])
def test_batches_hold_the_cells_of_blocks(hand_over, seed, batch):
    case = Case(seed)
    found = describe(hand_over(case.put))["m"]
    inner = values(case.blocks, tuple(n - 2 * case.layers for n in case.cells), 0, case.axes)
    order = [1 + case.axes.index(axis) for axis in "zyx" if axis in case.axes]
    upright = inner.transpose(0, *order)
    upright = upright if upright.ndim == 4 else upright[:, None]
    for part in found.parts(3):
        near, owned = Neighbourhood(found, part), []
        for each in near.batches(["f", "split", "both"], batch):
            numbers = case.numbers(each)
            own = numbers[: each.own]
            assert each.own <= (batch or near.own) and sorted(numbers[each.own :]) == case.expected(own)
            owned += own
            for row, number in enumerate(numbers):
                expected = upright[number]
                assert np.array_equal(rows_of(each.fields["f"])[row], expected)
                assert np.array_equal(rows_of(each.fields["split"][0])[row], expected.astype(np.float32))
                assert np.array_equal(rows_of(each.fields["split"][1])[row], expected)
                assert np.array_equal(rows_of(each.fields["both"])[row], np.stack([expected, -expected], axis=-1))
        assert owned == case.numbers(near)[: near.own]


def test_refined_reads_from_neighbours_alone(hand_over):
    """A row of 64 domains: a reader of one asks the two beside it, and for the splits."""
    blocks = np.array([[6, x, 0, 0] for x in range(64)])

    def fill(step):
        for block in blocks:
            step.put_local("l", block[:1])
            step.put_local("i", block[None, 1:])
            step.put_local("f", np.zeros((1, 2)))
        step["s"] = morton_numbers(blocks[:, 0], blocks[:, 1:], 6)
        fields = {"f": {"association": "element", "variables": ["f"]}}
        mesh = {"type": "amr", "cells": [2], "axes": "x", "levels": "l", "indices": "i", "splits": "s", "depth": 6}
        step.attributes["meshes"] = json.dumps({"version": 1, "meshes": {"m": mesh | {"fields": fields}}})

    found = describe(hand_over(fill))["m"]
    part = found.parts(64)[31]
    refined, baseline = (Neighbourhood(found, part, each) for each in ("refined", "baseline"))
    assert refined.rows[:, 0].tolist() == baseline.rows[:, 0].tolist() == [31, 30, 32]
    asked = (refined.messages - 1) // 2  # the curve may bring it to one that does not touch
    assert 2 <= asked <= 4 and refined.bytes == 64 * 8 + asked * 4 * 8
    assert (baseline.messages, baseline.bytes) == (2 * 63, 63 * 4 * 8)
    list(refined.batches(["f"]))
    assert (refined.messages, refined.bytes) == (1 + 2 * asked + 2, 64 * 8 + asked * 4 * 8 + 2 * 2 * 8)


def test_a_lent_field_is_not_copied(context):
    """Arrays with ghost layers, in the process of the simulation."""
    case = Case(1)
    f = case.values
    splits = np.zeros(1, np.uint64)
    where = {"cells": case.cells, "axes": case.axes, "ghost_layers": case.layers, "splits": splits, "depth": case.depth}
    place = {"levels": case.blocks[:, 0].copy(), "indices": case.blocks[:, 1:].copy()}
    mesh = AmrMesh(**where, **place, fields={"f": Field("element", f)})

    def look(step):
        found = describe(step)["grid"]
        (batch,) = Neighbourhood(found, found.parts(1)[0]).batches(["f"])
        assert len(rows_of(batch.fields["f"])) == len(case.blocks)
        assert all(np.shares_memory(each, f[row]) for row, each in enumerate(rows_of(batch.fields["f"])))

    writer = context.create("s", engine="insitu", timeout=20.0)
    with context.open("s", engine="insitu", timeout=20.0) as reader, writer:
        reader.on_step(look, on_error="raise")
        with writer.step() as step:
            publish(step, {"grid": mesh}, lend=True)


def wrong(case, kind):
    """What a simulation may have done to fields with ghost layers."""
    for domain in case.domains:
        f = values(domain, case.cells, case.layers, case.axes)
        if kind == "not filled":
            inside = (slice(None), *(slice(1, n - 1) for n in case.cells))
            filled, f = f, np.zeros_like(f)
            f[inside] = filled[inside]
        elif kind == "turned":
            f = np.ascontiguousarray(f.transpose(0, 3, 2, 1)).reshape(f.shape)
        yield f


@pytest.mark.parametrize("kind", ["not filled", "turned"])
def test_other_ghost_layers_are_refused(hand_over, kind):
    case = Case(5)

    def fill(step):
        case.put(step, fields={"w": {"association": "element", "variables": ["w"]}})
        for array in wrong(case, kind):
            step.put_local("w", array)

    found = describe(hand_over(fill))["m"]
    near = Neighbourhood(found, found.parts(1)[0])
    with pytest.raises(penstock.InvalidArgument, match=r"'w': in none of 16 pairs.*Expected: cells.*1 ghost layers"):
        list(near.batches(["w"]))


def test_what_cannot_be_read(hand_over):
    case = Case(7)
    part = describe(hand_over(case.put))["m"].parts(2)[1]

    def found(**more):
        return describe(hand_over(lambda step: case.put(step, **more)))["m"]

    none = {"splits": None, "depth": None}
    assert Neighbourhood(found(**none), part).algorithm == "baseline"
    for changed, algorithm, why in (
        (none, "refined", "has no splits, which the algorithm 'refined' needs"),
        ({}, "fast", "no algorithm 'fast'"),
        (none | {"refinement": 3}, None, "has the refinement 3, expected 2"),
        ({"depth": 1}, None, "domain [0-9]+: blocks have levels .*; depth says 0 to 1"),
        ({"depth": 4}, None, "domain [0-9]+: blocks have the Morton numbers .* and splits say"),
    ):
        with pytest.raises(penstock.InvalidArgument, match=why):
            Neighbourhood(found(**changed), part, algorithm)
    with pytest.raises(penstock.InvalidArgument, match="the part asks for row 1000"):
        Neighbourhood(found(), RowsPart(np.array([[0, 1000, 1001]])))
    case.splits = case.splits[::-1].copy()
    with pytest.raises(penstock.InvalidArgument, match="splits fall"):
        Neighbourhood(found(), part)
