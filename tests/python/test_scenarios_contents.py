"""What a step contains and what it does not, scenario by scenario, over every data plane (see test_scenarios.py)."""

import numpy as np
import penstock
import pytest

TIMEOUT_S = 20.0


def numbered(count, t=0):
    return np.arange(float(count)) + 1000 * t


def test_variables_that_a_step_lacks(pair):
    writer, reader = pair()
    writer.define("never", float, (8,))
    for t in range(4):
        with writer.step() as step:
            step["T"] = numbered(8, t)
            if t != 2:
                step["U"] = numbered(8, t)
            if t == 0:
                step["label"] = "first"
        with reader.step() as step:
            assert list(step) == [["T", "U", "label"], ["T", "U"], ["T"], ["T", "U"]][t]
            assert len(step) == [3, 2, 1, 2][t]
            np.testing.assert_array_equal(step["T"], numbered(8, t))
            if t == 0:
                kept = step["label"]
                with pytest.raises(penstock.NotFound, match="'never'; no step that this reader has seen"):
                    step["never"]
            else:
                assert "label" not in step and step.get("label") is None
                with pytest.raises(KeyError, match=r"'label'; the last step with it .* is step 0"):
                    step["label"]
                with pytest.raises(penstock.WrongState):
                    assert kept.value
            if t == 2:
                assert "U" not in step
                with pytest.raises(penstock.NotFound, match=r"step 2 has no variable 'U'; the last step with it .* 1"):
                    step["U"]
            else:
                np.testing.assert_array_equal(step["U"], numbered(8, t))


def test_variables_that_some_ranks_put(cohorts):
    def write(stream):
        stream.define("v", float, (8,) if stream.rank == 0 else (4,))
        for t in range(3):
            with stream.step() as step:
                if stream.rank == 0 and t < 2:
                    step.put("v", numbered(3, t), start=(2,))
                if stream.rank == 1 and t == 1:
                    step.put_value("n", np.int32(7), local=True)

    def read(stream):
        for t, step in enumerate(stream):
            assert ("n" in step, "v" in step) == (t == 1, t < 2)
            if t < 2:
                assert step["v"].shape == (8,)
                out = step["v"].read(out=np.full(8, -1.0))
                assert out.tolist() == [-1, -1, *numbered(3, t), -1, -1, -1]
                assert step["v"][6:].tolist() == [0, 0], "no block is there"
        assert t == 2

    cohorts(2, 1, write, read)


def test_an_abandoned_step_leaves_nothing(pair):
    writer, reader = pair()
    writer.attributes["kept"] = 1
    for t in range(5):
        if t in (1, 3):  # given up by an exception, and by a call
            try:
                with writer.step() as step:
                    step.attributes["kept"] = 2
                    step.attributes["own"] = f"of step {t}"
                    step["v"] = numbered(4)
                    writer.attributes["title"] = f"from {t}"
                    if t == 3:
                        step.abandon()
                    else:
                        raise RuntimeError
            except RuntimeError:
                pass
            assert writer.attributes["kept"] == 1 and "own" not in writer.attributes
            continue
        with writer.step() as step:
            step["v"] = numbered(8, t)
        with reader.step() as step:
            assert step.number == t
            np.testing.assert_array_equal(step["v"], numbered(8, t))
            expected = {"kept": 1} | ({"title": f"from {t - 1}"} if t else {})
            assert dict(step.attributes) == expected


def test_a_rank_abandons_a_step_with_a_new_shape(cohorts):
    def write(stream):
        for t in range(3):
            shape = (4 if t == 0 else 8,)
            try:
                with stream.step() as step:
                    step.put("v", numbered(2, t), start=(2 * stream.rank,), shape=shape)
                    if t == 1 and stream.rank == 0:
                        raise RuntimeError
            except RuntimeError:
                pass

    def read(stream):
        assert [(step.number, step["v"].shape) for step in stream] == [(0, (4,)), (2, (8,))]

    cohorts(2, 1, write, read)


def test_empty_blocks_have_numbers(cohorts, tmp_path):
    def write(stream):
        stream.define("g", float, (8,), min_max=True)
        for t in range(2):
            values = numbered(8, t)
            with stream.step() as step:
                if stream.rank == 0:
                    step.put_local("p", values[:2])
                    step.put_local("p", np.zeros((0, 3)))
                    step.put_local("lone", np.zeros(0))
                step.put_local("p", values[4 : 5 + stream.rank])
                step.put("g", values[4:4] if stream.rank == 0 else values[4:], start=(4,))

    def read(stream):
        for t, step in enumerate(stream):
            values = numbered(8, t)
            assert [block.count for block in step["p"].blocks] == [(2,), (0, 3), (1,), (2,)]
            assert step["p"].block(1).shape == (0, 3)
            assert step["p"].block(2).tolist() == [values[4]]
            assert step["p"].block(3).tolist() == values[4:6].tolist()
            assert step["lone"].shape == (0,) and step["lone"][...].shape == (0,)
            assert step["lone"].block(0).shape == (0,) and step["lone"].view().shape == (0,)
            assert [block.count for block in step["g"].blocks] == [(0,), (4,)]
            assert step["g"].block_min_max(0) is None and step["g"].block_min_max(1)[0] == values[4]
            assert step["g"][4:].tolist() == values[4:].tolist()
        assert t == 1

    cohorts(2, 1, write, read)


def test_empty_blocks_have_numbers_in_a_saved_file(pair, tmp_path):
    h5py = pytest.importorskip("h5py")
    from penstock.save import Archive, _values

    writer, reader = pair()
    with writer.step() as step:
        step.put_local("p", np.zeros(0))
        step.put_local("p", numbered(2))
        step.put_local("lone", np.zeros((0, 3)))
    with reader.step() as step, Archive(tmp_path / "kept.h5") as archive:
        archive.add_step(step.number, _values(step, list(step)), {})
        archive.finish(complete=True)
    with h5py.File(tmp_path / "kept.h5") as file:
        assert file["steps/00000000/p/0"].shape == (0,)
        assert file["steps/00000000/p/1"][...].tolist() == [0, 1]
        assert file["steps/00000000/lone/0"].shape == (0, 3)


def says_both(text):
    return all(each in text for each in ("'v'", "rank 0", "10x8", "rank 1", "11x8"))


def test_ranks_disagree_on_a_shape(cohorts):
    def write(stream):
        with pytest.raises(penstock.InvalidArgument) as caught:
            for t in range(2):
                shape = (10 + t * stream.rank, 8)
                with stream.step() as step:
                    step.put("v", np.zeros((5, 8)), start=(0, 0), shape=shape)
            stream.close()
        assert says_both(str(caught.value)), caught.value
        stream._lose()

    def read(stream):
        with stream.step() as step:
            assert step.number == 0
        with pytest.raises(penstock.WriterLost) as caught:
            stream.step()
        assert says_both(str(caught.value)), caught.value

    cohorts(2, 1, write, read, queue_steps=1)  # the second step begins when the first was read, or is in the pool


def test_a_forgotten_communicator(context, plane, monkeypatch):
    def create_as(rank, name):
        monkeypatch.setenv("PMIX_NAMESPACE", "scenario")
        monkeypatch.setenv("PMIX_RANK", str(rank))
        return context.create(name, timeout=TIMEOUT_S, data_plane=plane)

    with create_as(1, "another"), create_as(0, "s") as first:
        reader = context.open("s", timeout=TIMEOUT_S, data_plane=plane)
        with pytest.raises(penstock.WrongState, match=r"ranks 0 and 1 .* comm="):
            create_as(1, "s")

        def write_on():
            while True:
                with first.step() as step:
                    step["v"] = numbered(8)

        with pytest.raises(penstock.Error, match=r"ranks 0 and 1 .* comm="):
            write_on()
        first._lose()
        with pytest.raises(penstock.WriterLost, match="ranks 0 and 1"):
            for _ in reader:
                pass
        reader.close()
