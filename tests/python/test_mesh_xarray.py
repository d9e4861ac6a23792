"""A state of a region as an xarray.Dataset, which netCDF tools can keep."""

import numpy as np
import penstock
import pytest
from penstock import mesh

from .test_mesh import pytestmark, written  # noqa: F401
from .test_mesh_analysis import two_blocks
from .test_mesh_entities import everything, values_of, write

xarray = pytest.importorskip("xarray")


def test_a_state_is_a_dataset(tmp_path):
    with mesh.open(two_blocks(tmp_path / "a.e")) as region:
        before = region.to_xarray()
        assert "pressure" not in before and "time" not in before.coords and before["order"].dims == ("node",)
        region.next_state()
        data = region.to_xarray()
        assert data.attrs["state"] == 0 and data["time"] == 2.5
        assert data["pressure"].dims == ("node",) and data["quads_pressure"].dims == ("quads",)
        assert data["velocity"].dims == ("node", "vector_2d") and data["vector_2d"].values.tolist() == ["x", "y"]
        assert data["polygons_strain"].dims == ("polygons", "component_2")
        np.testing.assert_array_equal(data["velocity"].sel(vector_2d="y"), [1, 3, 5, 7, 9, 11])
        assert data["momentum"].values.tolist() == [1, 2, 3] and data["quads_energy"].item() == 11
        np.testing.assert_array_equal(data["x"], [0, 1, 1, 0, 2, 2])
        assert set(region.to_xarray(["strain"]).data_vars) == set(before.data_vars) | {"polygons_strain"}
        with pytest.raises(penstock.NotFound, match="did you mean 'strain'"):
            region.to_xarray(["strian"])


def test_connectivity_follows_ugrid(tmp_path):
    with mesh.open(two_blocks(tmp_path / "a.e")) as region:
        region.next_state()
        data = region.to_xarray()
    described = data["quads_mesh"].attrs
    assert described["cf_role"] == "mesh_topology" and described["topology_dimension"] == 2
    assert described["node_coordinates"] == "x y" and {"x", "y"} <= set(data.coords)
    corners = data[described["face_node_connectivity"]]
    assert corners.dims == ("quads", "quads_corner") and corners.attrs == {
        "cf_role": "face_node_connectivity", "start_index": 0}  # fmt: skip
    assert data["quads_pressure"].attrs == {"mesh": "quads_mesh", "location": "face"}
    assert data["pressure"].attrs == {"mesh": "quads_mesh", "location": "node"}
    middle = data["x"].values[corners].mean(axis=1)
    assert middle.tolist() == [0.5]
    assert "polygons_mesh" not in data and data["polygons_connectivity"].dims == ("polygons_connectivity_entries",)


def test_ids_are_coordinates(tmp_path):
    with mesh.open(written(tmp_path / "a.e")) as region:
        region.seek(2)
        region.next_state()
        data = region.to_xarray()
        ids = region["block_1", "ids"]
        np.testing.assert_array_equal(data["block_1"], ids)
        assert data["block_1_element0"].sel(block_1=ids[5]) == region["block_1", "element0"][5]
        assert data["block_1_mesh"].attrs["volume_node_connectivity"] == "block_1_connectivity"


def test_every_kind_of_entity(tmp_path):
    write(tmp_path / "a.e", *everything())
    with mesh.open(tmp_path / "a.e") as region:
        state = region.next_state()
        data = region.to_xarray()
        for name in ("lower", "edges", "loaded", "bottom"):
            entity = region.model.find(name)
            its = entity.find("stress")
            found = data[f"{name}_stress"]
            assert found.dims == (name, "sym_tensor_33") and found.sel(sym_tensor_33="zx").size == entity.count
            np.testing.assert_array_equal(found, values_of(entity, its, state.number))
        assert data["loaded_element_side"].dims == ("loaded", "component_2")


def test_netcdf_keeps_it(tmp_path):
    pytest.importorskip("h5netcdf")
    write(tmp_path / "a.e", *everything())
    with mesh.open(tmp_path / "a.e") as region:
        region.next_state()
        data = region.to_xarray()
    data.to_netcdf(tmp_path / "state.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "state.nc", engine="h5netcdf", decode_times=False) as again:
        xarray.testing.assert_equal(again.load(), data)
