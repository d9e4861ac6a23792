"""Load-balance files: read as nem_slice writes them, written as nem_spread reads them, and copies that follow them.

nem_slice cannot be had here: its files are made with netCDF4, after the arrays that SEACAS's test of the format writes.
"""

import netCDF4
import numpy as np
import penstock
import pytest
from mesh_models import everything, write
from netcdf_part import needs_netcdf
from penstock import mesh
from penstock.cli.main import app
from typer.testing import CliRunner

pytestmark = needs_netcdf


@pytest.fixture
def brick(tmp_path):
    """2x2x4 elements in a file."""
    path = tmp_path / "brick.e"
    mesh.copy(mesh.open("2x2x4|times:2|nodal:1|element:1", database="generated"), path)
    return path


def elements_of(region):
    return sum(each.count for each in region.model.of("element_block"))


def nem_slice(path, owners, base=0, border=(), **changes):
    """A file of the part of each element; those named in `border` are listed as at the border. changes: of arrays."""
    parts, inner, outer = max(owners) + 1, [], []
    inner_ends, outer_ends = [], []
    for part in range(parts):
        mine = [e for e, owner in enumerate(owners) if owner == part]
        inner += [e + base for e in mine if e not in border]
        outer += [e + base for e in mine if e in border]
        inner_ends.append(len(inner))
        outer_ends.append(len(outer))
    arrays = {
        "elem_mapi": ("num_int_elem", inner),
        "elem_mapi_idx": ("num_procs_file", inner_ends),
        "elem_mapb": ("num_bor_elem", outer),
        "elem_mapb_idx": ("num_procs_file", outer_ends),
        **changes,
    }
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as file:
        file.createDimension("num_processors", changes.get("parts", parts))
        file.createDimension("num_procs_file", parts)
        file.createDimension("num_elems_global", changes.get("elements", len(owners)))
        for name, entry in arrays.items():
            if not isinstance(entry, tuple) or not len(entry[1]):
                continue
            if entry[0] not in file.dimensions:
                file.createDimension(entry[0], len(entry[1]))
            file.createVariable(name, "i4", (entry[0],))[:] = entry[1]
    return path


@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("border", [(), (3, 4, 15), range(16)])
def test_a_copy_follows_the_file(tmp_path, brick, base, border):
    owners = [(3 * e) % 5 % 3 for e in range(16)]
    balance = mesh.read_balance(nem_slice(tmp_path / "b.nem", owners, base, border))
    assert balance.parts == 3 and balance.assignment.tolist() == owners
    mesh.copy(mesh.open(brick), tmp_path / "spread.e", parts=balance, database="nemesis")
    for part in range(3):
        with mesh.open(tmp_path / "spread.e", part=part) as region:
            mine = np.concatenate([region[each.name, "ids"] for each in region.model.of("element_block")])
            assert mine.tolist() == [e + 1 for e, owner in enumerate(owners) if owner == part]
    assert mesh.compare(mesh.open(brick), mesh.open(tmp_path / "spread.e")).same


def test_what_is_written_is_what_spreading_makes(tmp_path, brick):
    """Nodes of each part, and those that it shares, are the ones of the parts that a copy writes."""
    owners = np.arange(16) % 3
    mesh.write_balance(tmp_path / "b.nem", mesh.open(brick), mesh.Balance(owners))
    mesh.copy(mesh.open(brick), tmp_path / "spread.e", parts=mesh.read_balance(tmp_path / "b.nem"))
    assert mesh.read_balance(tmp_path / "b.nem").assignment.tolist() == owners.tolist()
    with netCDF4.Dataset(tmp_path / "b.nem") as file:
        of = {name: np.asarray(variable[...]) for name, variable in file.variables.items()}
        sizes = {name: len(dimension) for name, dimension in file.dimensions.items()}
    assert (sizes["num_processors"], sizes["num_procs_file"], sizes["num_nodes_global"]) == (3, 3, 45)
    assert of["nem_ftype"] == 1 and of["el_blk_cnt_global"].tolist() == [16]
    ends = {name: [0, *of[name]] for name in of if name.endswith("_idx")}
    for part in range(3):
        mine = {
            name: of[name][ends[f"{name}_idx"][part] : ends[f"{name}_idx"][part + 1]]
            for name in ("node_mapi", "node_mapb", "elem_mapi")
        }
        with netCDF4.Dataset(f"{tmp_path}/spread.e.3.{part}") as file:
            nodes, elements = (file[name][...] - 1 for name in ("node_num_map", "elem_num_map"))
            for name, whole in (("node_mapi", nodes), ("node_mapb", nodes)):
                assert mine[name].tolist() == whole[file[name][...] - 1].tolist()
            assert mine["elem_mapi"].tolist() == elements.tolist()
            shared = {
                (int(nodes[n - 1]), int(p)) for n, p in zip(file["n_comm_nids"][:], file["n_comm_proc"][:], strict=True)
            }
        first, last = (ends["n_comm_data_idx"][ends["n_comm_info_idx"][part + i]] for i in (0, 1))
        assert shared == set(
            zip(of["n_comm_nids"][first:last].tolist(), of["n_comm_proc"][first:last].tolist(), strict=True)
        )
        assert mine["node_mapb"].tolist() == sorted({node for node, _ in shared})


def test_numbers_are_those_of_the_file_whatever_the_ids(tmp_path, brick):
    """Ids in another order, some twice, none of a block, a block without elements."""

    def change(edit):
        block = next(edit.model.of("element_block"))
        edit.model.entities.append(mesh.Entity("element_block", "none", 77, 0, block.topology))
        edit[block.name, "ids"] = np.asarray([7, 7, *range(100, 86, -1)], np.int32)

    mesh.modify(brick, change)
    for owners in ([0] * 16, [e % 3 for e in range(16)]):
        mesh.write_balance(tmp_path / "b.nem", mesh.open(brick), mesh.Balance(owners))
        assert mesh.read_balance(tmp_path / "b.nem").assignment.tolist() == owners
        with netCDF4.Dataset(tmp_path / "b.nem") as file:
            listed = [file[name][:] for name in ("node_mapi", "node_mapb") if name in file.variables]
            assert set(np.concatenate(listed).tolist()) == set(range(45))


def test_strided_and_other_arrays_are_taken(tmp_path, brick):
    owners = np.arange(32, dtype=np.int64)[::-2] % 4
    mesh.write_balance(tmp_path / "b.nem", mesh.open(brick), mesh.Balance(owners))
    assert mesh.read_balance(tmp_path / "b.nem").assignment.tolist() == owners.tolist()


def test_of_every_kind_of_entity(tmp_path):
    """Polyhedra, blocks of many topologies: written, read, and followed."""
    write(tmp_path / "a.e", *everything())
    region = mesh.open(tmp_path / "a.e")
    count = elements_of(region)
    owners = np.arange(count) % 4
    mesh.write_balance(tmp_path / "b.nem", region, mesh.Balance(owners, parts=5))
    balance = mesh.read_balance(tmp_path / "b.nem")
    assert balance.parts == 5 and balance.assignment.tolist() == owners.tolist()
    mesh.copy(region, tmp_path / "spread.e", parts=balance, database="nemesis")
    report = mesh.compare(mesh.open(tmp_path / "a.e"), mesh.open(tmp_path / "spread.e"))
    assert report.same, report


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"elem_mapi": ("num_int_elem", [*range(15), 14])}, "element 15 is in part 1 and in part 1"),
        ({"elem_mapi": ("num_int_elem", [*range(15), 99])}, "part 1 has element 100 of 16"),
        ({"elem_mapi": ("num_int_elem", [*range(15), -7])}, "part 1 has element"),
        ({"elem_mapi_idx": ("num_procs_file", [9, 7])}, "index of elements of part 1 is damaged"),
        ({"elem_mapi_idx": ("num_procs_file", [8, 17])}, "index of elements of part 1 is damaged"),
        ({"elem_mapi_idx": ("two", [8, 16, 16])}, "its index of elements is not of all parts"),
        ({"elem_mapi_idx": ("num_procs_file", [6, 12])}, "the index of elements names 12 of 16"),
        ({"elements": 17}, "its parts have 16 elements of 17"),
        ({"parts": 3}, "it describes 2 of 3 parts"),
        ({"elem_mapi": None}, "it is no load-balance file"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, changes, message):
    nem_slice(tmp_path / "b.nem", [0] * 8 + [1] * 8, **changes)
    with pytest.raises(penstock.InvalidArgument, match=message):
        mesh.read_balance(tmp_path / "b.nem")


def test_what_does_not_fit_is_refused(tmp_path, brick):
    short = mesh.read_balance(nem_slice(tmp_path / "b.nem", [0] * 8 + [1] * 7))
    with pytest.raises(penstock.InvalidArgument, match="there are 16 elements, and parts of 15"):
        mesh.copy(mesh.open(brick), tmp_path / "out.e", parts=short, database="nemesis")
    with pytest.raises(penstock.InvalidArgument, match="there are 16 elements, and parts of 15"):
        mesh.write_balance(tmp_path / "other.nem", mesh.open(brick), short)
    with pytest.raises(penstock.InvalidArgument, match="a balance is of all elements"):
        choice = mesh.Choice(blocks=("block_1",))
        mesh.copy(mesh.open(brick), tmp_path / "out.e", parts=mesh.Balance([0] * 16), choice=choice)
    mesh.write_balance(tmp_path / "b.nem", mesh.open("1x1x16", database="generated"), 2)
    with pytest.raises(penstock.InvalidArgument, match="is for a mesh with 68 nodes, and there are 45"):
        mesh.copy(mesh.open(brick), tmp_path / "out.e", parts=mesh.read_balance(tmp_path / "b.nem"))
    for wrong in (0, -1, 2.5, np.zeros(16, int), 2**32):
        with pytest.raises(penstock.InvalidArgument, match="parts are a number from 1 to"):
            mesh.write_balance(tmp_path / "other.nem", mesh.open(brick), wrong)
        with pytest.raises(penstock.InvalidArgument, match="parts are a number from 1 to"):
            mesh.copy(mesh.open(brick), tmp_path / "out.e", parts=wrong)
    for wrong in ([0.5] * 16, [-1] * 16, [[0]], [2**20]):
        with pytest.raises(penstock.InvalidArgument, match="the part of each element is a whole number"):
            mesh.Balance(wrong)
    with pytest.raises(penstock.NotFound):
        mesh.read_balance(tmp_path / "no.nem")
    with pytest.raises(penstock.InvalidArgument, match="it is no load-balance file"):
        mesh.read_balance(brick)
    with pytest.raises(penstock.InvalidArgument, match="there is a file of another kind"):
        mesh.write_balance(brick, mesh.open(brick), 2)
    with pytest.raises(penstock.InvalidArgument, match="there are 16 elements, and parts of 3"):
        mesh.copy(mesh.open(brick), tmp_path / "out.e", parts=mesh.Balance([0, 0, 0]))
    with pytest.raises(penstock.InvalidArgument, match="elements go to 3 parts, and there are 2"):
        mesh.Balance([0, 2], parts=2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["b.nem", "brick.e"]


def test_commands(tmp_path, brick):
    run = CliRunner().invoke
    made = run(app, ["mesh", "balance", str(brick), str(tmp_path / "b.nem"), "--parts", "3"])
    assert made.exit_code == 0 and "16 elements in 3 parts" in made.output
    again = run(app, ["mesh", "balance", str(brick), str(tmp_path / "b.nem"), "--parts", "3"])
    assert again.exit_code == 2
    out = ["mesh", "copy", str(brick), str(tmp_path / "out.e"), "--balance", str(tmp_path / "b.nem")]
    assert run(app, [*out, "--parts", "2"]).exit_code == 2
    done = run(app, out)
    assert done.exit_code == 0 and "in 3 parts" in done.output
    assert mesh.compare(mesh.open(brick), mesh.open(tmp_path / "out.e")).same


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    """netCDF reads what is missing as zeros, and some damaged headers crash it."""
    whole = nem_slice(tmp_path / "b.nem", [0] * 8 + [1] * 8).read_bytes()
    for size in range(0, len(whole), 7):
        (tmp_path / "cut.nem").write_bytes(whole[:size])
        with pytest.raises(penstock.Error, match=r"cut\.nem"):
            mesh.read_balance(tmp_path / "cut.nem")
    seen = set()
    for at in range(len(whole)):
        for value in (0, 1, 0x7F, 0xFF):
            (tmp_path / "cut.nem").write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                seen.add(mesh.read_balance(tmp_path / "cut.nem").parts)
            except penstock.Error:
                seen.add(0)
    assert seen == {0, 2}


def test_what_is_not_written_leaves_nothing(tmp_path, brick):
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "folder", tmp_path / "no" / "b.nem", "/dev/null"):
        with pytest.raises(penstock.Error):
            mesh.write_balance(target, mesh.open(brick), 2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["brick.e", "folder"]


@pytest.mark.parametrize("name", [b"num_procs_file", b"elem_mapi", b"num_dim", b"coordx"])
def test_a_damaged_length_of_a_name_is_refused(tmp_path, brick, name):
    """netCDF would copy the name over what lies beside the room for it."""
    nem_slice(tmp_path / "b.nem", [0] * 8 + [1] * 8)
    for path, read in ((tmp_path / "b.nem", mesh.read_balance), (brick, mesh.open)):
        whole = path.read_bytes()
        if (at := whole.find(len(name).to_bytes(4, "big") + name)) < 0:
            continue
        path.write_bytes(whole[:at] + (300).to_bytes(4, "big") + whole[at + 4 :])
        with pytest.raises(penstock.InvalidArgument, match="its header is damaged"):
            read(path)
        return
    pytest.fail("neither file has the name")
