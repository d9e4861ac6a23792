"""One Exodus file that the ranks of a cohort write together (option shared)."""

import os
import shutil
import signal
import subprocess
import sys

import mesh_bars
import numpy as np
import penstock
import pytest
from mesh_bars import ELEMENTS, bar, write_states
from mesh_models import everything, polygons, write
from netcdf_part import needs_netcdf
from penstock import mesh
from ranks import on_ranks

from .test_mesh import generated, same

pytestmark = needs_netcdf

DEADLINE_S = 60


def write_bar(path, cohort, states=(0, 1), comm_set=False, ids=True, **options):
    model, values = bar(cohort.rank, cohort.size, comm_set, ids)
    with mesh.create(path, model, comm=cohort, database="exodus", shared=True, **options) as writer:
        list(write_states(writer, values, cohort.rank, states))


def states_of_bar(path, ranks):
    """How many states there are; fails where a value is wrong."""
    with mesh.open(path) as region:
        x = region["nodes", "coordinates"]
        np.testing.assert_array_equal(x, np.arange(ranks * ELEMENTS + 1))
        np.testing.assert_array_equal(region["nodes", "ids"], x + 1)
        np.testing.assert_array_equal(region["bars", "ids"], np.arange(ranks * ELEMENTS) + 100)
        np.testing.assert_array_equal(region["bars", "connectivity"], np.column_stack([x[:-1], x[1:]]))
        members = region["some", "members"]
        assert members.tolist() == [1, 2, *range(ELEMENTS, ranks * ELEMENTS + 1, ELEMENTS)]  # each once
        np.testing.assert_array_equal(region["some", "distribution_factors"], x[members] / 2)
        count = 0
        for state in region:
            time = state.time
            np.testing.assert_array_equal(state["nodes", "T"], 10 * x + time)
            np.testing.assert_array_equal(state["bars", "strain"], np.column_stack([x[:-1] + time, x[:-1] - time]))
            assert time == count and state["region", "work"] == 5 * time
            count += 1
    return count


@pytest.mark.parametrize("format", ["offset64", "cdf5"])
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_one_file_of_several_ranks(tmp_path, parts, format):
    with generated() as source:
        options = {"format": format, "integers": 32 if format == "offset64" else 64}
        mesh.copy(source, tmp_path / "a.e", parts=parts, database="exodus", shared=True, **options)
    assert [each.name for each in tmp_path.iterdir()] == ["a.e"]
    assert (tmp_path / "a.e").read_bytes()[:4] == {"offset64": b"CDF\x02", "cdf5": b"CDF\x05"}[format]
    report = same(generated(), tmp_path / "a.e", records=True)
    assert report.same and report.states == 3, report.differences
    vtk_reads_the_same(tmp_path / "a.e")


def vtk_reads_the_same(path):
    exodus = pytest.importorskip("vtkmodules.vtkIOExodus", reason="needs VTK (pip install vtk)")
    from vtkmodules.util.numpy_support import vtk_to_numpy

    reader = exodus.vtkExodusIIReader()
    reader.SetFileName(str(path))
    reader.UpdateInformation()
    reader.SetAllArrayStatus(exodus.vtkExodusIIReader.NODAL, 1)
    assert reader.GetNumberOfTimeSteps() == 3
    for time in range(3):
        reader.UpdateTimeStep(time)
        block = reader.GetOutput().GetBlock(0).GetBlock(0)
        assert block.GetNumberOfCells() == 72
        x, y, z = vtk_to_numpy(block.GetPoints().GetData()).T
        values = vtk_to_numpy(block.GetPointData().GetArray("nodal0"))
        np.testing.assert_array_equal(values, x + 0.5 * y - 0.25 * z + 3 * time)


@pytest.mark.parametrize("make", [everything, polygons])
@pytest.mark.parametrize("parts", [2, 3])
def test_every_entity_of_exodus(tmp_path, make, parts):
    write(tmp_path / "one.e", *make())
    with mesh.open(tmp_path / "one.e") as source:
        mesh.copy(source, tmp_path / "shared.e", parts=parts, database="exodus", shared=True)
    report = same(tmp_path / "one.e", tmp_path / "shared.e", records=True)
    assert report.same and report.states == 3, report.differences


@pytest.mark.parametrize("comm_set", [False, True])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_shared_nodes_are_written_once(tmp_path, ranks, comm_set):
    path = tmp_path / "bar.e"
    on_ranks(ranks, lambda cohort: write_bar(path, cohort, comm_set=comm_set))
    assert states_of_bar(path, ranks) == 2
    on_ranks(2, lambda cohort: write_bar(path, cohort, range(3)))  # in its place
    assert states_of_bar(path, 2) == 3 and [each.name for each in tmp_path.iterdir()] == ["bar.e"]


def test_files_go_on_in_a_series(tmp_path):
    path = tmp_path / "bar.e"
    on_ranks(3, lambda cohort: write_bar(path, cohort, range(5), states_per_file=2))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bar.e", "bar.e-s0002", "bar.e-s0003"]
    assert states_of_bar(path, 3) == 5

    def change(cohort):
        model, values = bar(cohort.rank, 2)
        with mesh.create(path, model, comm=cohort, database="exodus", shared=True) as writer:
            list(write_states(writer, values, cohort.rank, [0]))
            writer.define(bar(cohort.rank, 2, comm_set=True)[0])
            list(write_states(writer, bar(cohort.rank, 2, comm_set=True)[1], cohort.rank, [1]))

    on_ranks(2, change)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["bar.e", "bar.e-s0002"]
    with mesh.open(path) as region:
        assert [state.time for state in region] == [0, 1]


def test_files_of_single_ranks_go(tmp_path):
    path = tmp_path / "bar.e"
    with generated() as source:
        mesh.copy(source, path, parts=3, database="nemesis")
    on_ranks(2, lambda cohort: write_bar(path, cohort))
    assert [each.name for each in tmp_path.iterdir()] == ["bar.e"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"format": "netcdf4"}, penstock.Unsupported, "format: offset64 or cdf5"),
        ({"resume": "append"}, penstock.Unsupported, "cannot resume a shared file"),
        ({"ids": False}, penstock.InvalidArgument, "rank 0: the nodes have no ids"),
    ],
)
def test_what_is_refused(tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        on_ranks(2, lambda cohort: write_bar(tmp_path / "bar.e", cohort, **options))
    assert not (tmp_path / "bar.e").exists()


def test_parts_that_differ_are_refused_on_all_ranks(tmp_path):
    def work(cohort):
        model, values = bar(cohort.rank, 2)
        if cohort.rank == 1:
            model.find("bars").name = "rods"
            values = {(name.replace("bars", "rods"), its): each for (name, its), each in values.items()}
        writer = mesh.create(tmp_path / "bar.e", model, comm=cohort, database="exodus", shared=True)
        for key, its in values.items():
            writer[key] = its
        words = "not element_block 'bars' in one part and element_block 'rods' in another"
        with pytest.raises(penstock.InvalidArgument, match=words):
            writer.close()

    on_ranks(2, work)


def test_nemesis_is_not_shared(tmp_path):
    with pytest.raises(penstock.InvalidArgument, match="option of database exodus"), generated() as source:
        mesh.copy(source, tmp_path / "a.e", parts=2, database="nemesis", shared=True)


def test_values_for_an_entity_are_those_of_the_lowest_rank_that_has_it(tmp_path):
    """As in a join: here rank 0 has nothing of a block, not even its fields."""

    def put(cohort):
        model, values = bar(cohort.rank, cohort.size)
        bars = model.find("bars")
        bars.fields.append(mesh.Field("energy", role="reduction"))
        model.entities.append(mesh.Entity("assembly", "all", 9, 1, members=["bars"], member_type="element_block"))
        if cohort.rank == 0:
            bars.count, bars.fields = 0, []
            values = {key: its for key, its in values.items() if key[0] != "bars"}
        with mesh.create(tmp_path / "bar.e", model, comm=cohort, database="exodus", shared=True) as writer:
            for key, its in values.items():
                writer[key] = its
            for time in range(3):
                with writer.state(time) as state:
                    state["nodes", "T"] = np.zeros(len(values["nodes", "ids"]))
                    state["region", "work"] = 1.0
                    if cohort.rank > 0:
                        state["bars", "strain"] = np.zeros((ELEMENTS, 2))
                        state["bars", "energy"] = 10.0 * cohort.rank + time

    on_ranks(3, put)
    with mesh.open(tmp_path / "bar.e") as region:
        assert region.model.find("all").members == ["bars"]
        assert [state["bars", "energy"].item() for state in region] == [10, 11, 12]


def test_shared_nodes_that_only_one_rank_knows_are_refused(tmp_path):
    def put(cohort):
        model, values = bar(cohort.rank, cohort.size, comm_set=True)
        values["nodes", "ids"] += 1000 * cohort.rank
        writer = mesh.create(tmp_path / "bar.e", model, comm=cohort, database="exodus", shared=True)
        for key, its in values.items():
            writer[key] = its
        with pytest.raises(penstock.InvalidArgument, match=r"rank 0 shares the node with id 4, .* no other rank"):
            writer.close()

    on_ranks(2, put)
    assert not (tmp_path / "bar.e").exists()


@pytest.mark.parametrize("times", [(0, 1, 2), (0, 0, 0), (0, 0)])
def test_ranks_that_end_different_states_are_told(tmp_path, times):
    """One gives a state up; none waits for ever, and no state has values of two."""

    class GivenUp(Exception):
        pass

    def put(cohort):
        model, values = bar(cohort.rank, cohort.size)
        writer = mesh.create(tmp_path / "bar.e", model, comm=cohort, database="exodus", shared=True)
        for key, its in values.items():
            writer[key] = its
        said = []
        for number, time in enumerate(times):
            try:
                with writer.state(time) as state:
                    state["bars", "strain"] = np.full((ELEMENTS, 2), number)
                    state["nodes", "T"] = np.full(len(values["nodes", "ids"]), number)
                    state["region", "work"] = number
                    if number == 1 and cohort.rank == 1:
                        raise GivenUp
            except GivenUp:
                pass
            except penstock.Error as error:
                said.append(str(error))
        try:
            writer.close()
        except penstock.Error as error:
            said.append(str(error))
        return said

    for said in on_ranks(3, put):
        assert f"rank 0 ends state 2 (time {times[1]}), and rank 1 gives up state 2" in said[0]
    with mesh.open(tmp_path / "bar.e") as region:
        assert [float(state["nodes", "T"].max()) for state in region] == [0]


def start_ranks(tmp_path, ranks, mode):
    pytest.importorskip("mpi4py")
    if not shutil.which("mpiexec"):
        pytest.skip("mpiexec is not installed")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }
    command = ["mpiexec", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", sys.executable, mesh_bars.__file__]
    return subprocess.Popen(
        [*command, str(tmp_path / "bar.e"), mode],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def test_a_rank_is_killed(tmp_path):
    """What the ranks have ended is there, while they write and after they were killed."""
    process = start_ranks(tmp_path, 3, "on")
    try:
        pid, ended = map(int, process.stdout.readline().split())
        while ended < 4:
            _, ended = map(int, process.stdout.readline().split())
        assert states_of_bar(tmp_path / "bar.e", 3) > ended  # while it is written
        os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    ended = int((tmp_path / "bar.e.ended").read_text().split()[-1])
    assert process.returncode != 0
    assert ended + 1 <= states_of_bar(tmp_path / "bar.e", 3) <= ended + 2


def test_all_ranks_fail_where_one_cannot_write(tmp_path):
    process = start_ranks(tmp_path, 3, "full")
    try:
        said = process.communicate(timeout=DEADLINE_S)[0]
    finally:
        process.kill()
    errors = [line for line in said.split("\n") if line.startswith("error")]
    assert sorted(line.split()[1] for line in errors) == ["0", "1", "2"], said
    assert all("rank 1" in line and "bar.e.writing: File too large" in line for line in errors), said
    assert states_of_bar(tmp_path / "bar.e", 3) == 3
