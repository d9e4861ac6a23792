"""The Fortran API of co-processing and of mesh regions: its programs (tests/fortran) against Python."""

import json

import numpy as np
import pytest
from fortran_programs import DEADLINE_S, ended, needs_fortran, starter
from netcdf_part import needs_netcdf
from penstock import mesh
from ranks import on_ranks

pytestmark = needs_fortran


@pytest.fixture
def start(tmp_path):
    yield from starter(tmp_path)


def reported(process, errors):
    """Compares what a case `errors` printed with (case, stat, words of errmsg), in its order."""
    lines = [line.split("|") for line in ended(process).splitlines()]
    assert [(case, int(stat)) for case, stat, _ in lines] == [(case, stat) for case, stat, _ in errors]
    for (case, _, message), (_, _, words) in zip(lines, errors, strict=True):
        assert words in message, case


# ------------------------------------------------------------------------------------------------------ co-processing


@pytest.mark.parametrize("place", ["shm", "tcp"])
def test_fields(place, context, start):
    """Arrays have the same shape and indices on both sides; those with components first have them last here."""
    process = start("fortran_coprocess", "fields", data_plane=place)
    cycles = []
    with context.open("body", timeout=DEADLINE_S, data_plane=place) as stream:
        for step in stream:
            cycle = step.attributes["cycle"]
            cycles.append((cycle, step.attributes["time"]))
            meshes = json.loads(step.attributes["meshes"])["meshes"]
            assert meshes["grid"]["shape"] == [3, 2] and meshes["grid"]["spacing"] == [1, 2, 1]
            assert meshes["grid"]["fields"]["T"] == {"association": "node", "variables": ["T"], "units": "K"}
            assert meshes["grid"]["fields"]["parts"]["variables"] == ["P"] and meshes["rows"]["axes"] == "yx"
            T = step["T"]
            np.testing.assert_array_equal(T[...], 100 * cycle + np.array([[11, 12], [21, 22], [31, 32]]))
            assert T.order == "column" and T.min_max == (100 * cycle + 11, 100 * cycle + 32)
            assert step["v"].order == "column"
            np.testing.assert_array_equal(step["v"][...], [[[1, 3]], [[2, 4]]])
            assert step["first"].order == "row"
            np.testing.assert_array_equal(step["first"][...], [[[1, 2], [3, 4]]])
            np.testing.assert_array_equal(step["P"][...], [[1, -1], [2, -2], [3, -3]])
    assert cycles == [(0, 0.0), (2, 1.0)]
    ended(process)


def test_meshes(context, start):
    process = start("fortran_coprocess", "meshes")
    with context.open("body", timeout=DEADLINE_S) as stream, stream.step() as step:
        meshes = json.loads(step.attributes["meshes"])["meshes"]
        quads, more = meshes["solid"]["blocks"]
        assert (quads["name"], quads["id"], quads["topology"]) == ("quads", 1, "quad4")
        assert (more["connectivity"], more["offsets"], more["topologies"]) == ("mixed", "offsets", "kinds")
        assert meshes["dust"]["coordinates"] == ["px", "y", "long"] and meshes["all"]["blocks"] == ["solid", "dust"]
        assert meshes["tree"]["splits"] == "firsts" and meshes["tree"]["depth"] == 4
        np.testing.assert_array_equal(step["points"].block(0), np.arange(15.0).reshape(5, 3))
        assert step["corners"].block(0).tolist() == [[0, 1, 2, 3]]
        assert step["kinds"].dtype == np.uint8 and step["kinds"].block(0).tolist() == [5]
        assert step["mass"].block(0).tolist() == [1, 2, 3, 4, 5]
    ended(process)


def test_steering(context, start):
    process = start("fortran_coprocess", "steering")
    steering = {"F": 0.5, "n": 7, "wide": 2**40, "on": True, "name": "blue"}
    request = {"version": 1, "number": 1, "rules": [], "steering": steering}
    options = {"rendezvous_readers": 0, "reserve_steps": 1, "when_full": "discard_newest"}
    with context.create("body.requests", timeout=DEADLINE_S, **options) as stream:
        with stream.step() as step:
            step["request"] = json.dumps(request)
        ended(process)


COPROCESSOR_ERRORS = [
    ("not open", 1, "the coprocessor is not open: call create first"),
    ("option", 4, "evry"),
    ("type of mesh", 1, "a mesh's type cannot be 99"),
    ("shape", 1, "'grid': shape is not a vector of integers of 4 or 8 bytes"),
    ("spacing", 1, "spacing has a number for x, y and z each, and no more"),
    ("topology", 1, "hex9"),
    ("no mesh", 3, "gird"),
    ("components", 1, "field 'T' has at least one component, not 0"),
    ("bounds", 1, "'n': a parameter is a real, an integer, a logical or a text, and its bounds are of its type"),
    ("another type", 1, "name"),
    ("narrow", 1, "'name' has a longer text than there is room for"),
    ("no step", 2, "the coprocessor has no step open"),
    ("no field", 1, "the field is not defined: call field or structure first"),
    ("type", 1, "'T' has elements of float64; what was given has float32"),
    ("scalar", 1, "'T': a field is an array, not a scalar"),
    ("outside", 1, "T"),
    ("lost", 1, "the coprocessor is not open: call create first"),
]


def test_errors_of_a_coprocessor(start):
    reported(start("fortran_coprocess", "errors"), COPROCESSOR_ERRORS)


# ------------------------------------------------------------------------------------------------------- mesh regions


@pytest.fixture(params=["stream", pytest.param("exodus", marks=needs_netcdf)])
def database(request, tmp_path, monkeypatch):
    """Where the region "bar" of the test is, by configuration."""
    options = {"stream": "stream", "exodus": f"exodus,path={tmp_path / 'bar.e'}"}
    monkeypatch.setenv("PENSTOCK_MESH_BAR", options[request.param])
    return request.param


def test_a_region_is_written(database, context, start):
    process = start("fortran_regions", "write")
    if database == "exodus":
        ended(process)
    with mesh.open("bar", context=context, timeout=DEADLINE_S) as region:
        assert region.model.title == "a bar" and region.model.dimensions == 2
        assert region.model.find("bar").topology == "quad4" and region.model.find("end").id == 100
        x = np.array([[1, 10], [2, 10], [3, 10], [1, 20], [2, 20], [3, 20]])
        np.testing.assert_array_equal(region["nodes", "coordinates"], x)
        assert region["bar", "connectivity"].tolist() == [[0, 1, 4, 3], [1, 2, 5, 4]]
        assert region["end", "members"].tolist() == [0, 3]
        assert region["end", "distribution_factors"].tolist() == [1, 0.5]
        assert region["side", "element_side"].tolist() == [[1, 2]]
        assert region["side", "distribution_factors"].tolist() == [3, 4]
        times = []
        for state in region:
            times.append(state.time)
            np.testing.assert_array_equal(state["nodes", "T"], 20 * state.time + np.arange(1, 7))
            np.testing.assert_array_equal(state["nodes", "velocity"], x + 200 * state.time)
            assert state["region", "energy"] == 7 + 2 * state.time
        assert times == [0, 1]
    ended(process)


def write_two_parts(cohort, context):
    first = cohort.rank
    ids = mesh.Field("ids", "int64", role="mesh")
    nodes = mesh.Entity(
        "node_block", "nodes", 1, 4, fields=[mesh.Field("coordinates", storage="vector_2d", role="mesh")]
    )
    nodes.fields += [ids, mesh.Field("T")]
    bar = mesh.Entity("element_block", "bar", 10, 1, topology="quad4")
    bar.fields = [mesh.Field("connectivity", "int64", "[4]", role="mesh")]
    model = mesh.Model("two parts", 2, [mesh.Entity("region", "region"), nodes, bar])
    with mesh.create("bar", model, comm=cohort, context=context) as out:
        out["nodes", "coordinates"] = np.array([[first + i, j] for j in (0, 1) for i in (0, 1)], float)
        out["nodes", "ids"] = np.array([1 + first, 2 + first, 11 + first, 12 + first])
        out["bar", "connectivity"] = np.array([[0, 1, 3, 2]])
        for number in range(2):
            with out.state(0.25 * number) as state:
                state["nodes", "T"] = np.full(4, float(number))


def test_a_region_is_read(database, context, start):
    if database == "exodus":
        on_ranks(2, lambda cohort: write_two_parts(cohort, context))
        ended(start("fortran_regions", "read", "file"))
    else:
        process = start("fortran_regions", "read")
        on_ranks(2, lambda cohort: write_two_parts(cohort, context))
        ended(process)


REGION_ERRORS = [
    ("no model", 1, "the model is not there: call create first"),
    ("dimensions", 1, "a mesh has at most 3 dimensions"),
    ("count", 1, "'more': count is less than 0"),
    ("entity 0", 1, "entity"),
    ("storage", 1, "vektor"),
    ("no entity", 3, "and"),
    ("no sink", 1, "the region is not open: call create first"),
    ("no source", 1, "the region is not open: call open first"),
    ("option", 4, "databse"),
    ("no define", 2, "define"),
    ("no field", 1, "field"),
    ("type", 1, "'coordinates' has values of float64; the array has float32"),
    (
        "components last",
        1,
        "'coordinates' has 2 components, which are the first dimension of its array; this one is (6, 2)",
    ),
    ("rows", 1, "'coordinates' has 6 rows of 2 components; the array is (2, 2, 2)"),
    ("never allocated", 1, "'coordinates': the array is not allocated"),
    ("fields not written", 2, "connectivity"),
]


def test_errors_of_regions(start):
    reported(start("fortran_regions", "errors"), REGION_ERRORS)
