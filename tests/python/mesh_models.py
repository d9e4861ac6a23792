"""Models that tests of meshes share, and their values."""

import numpy as np
from penstock import mesh

RESULTS = [
    mesh.Field("pressure"),
    mesh.Field("velocity", storage="vector_3d"),
    mesh.Field("flag", "int32"),
    mesh.Field("stress", "float32", "sym_tensor_33"),
    mesh.Field("history", storage="[12]"),
]
ENERGY = mesh.Field("energy", role="reduction")
MOMENTUM = mesh.Field("momentum", storage="vector_3d", role="reduction")


def numbers(name, storage="scalar", count=0):
    return mesh.Field(name, "int64", storage, "mesh", count)


def everything():
    """2 x 2 x 3 hexahedra in two blocks, their faces and edges, a polyhedron beside them, and sets of all of these."""
    x, y, z = np.meshgrid(np.arange(3), np.arange(3), np.arange(4), indexing="ij")
    grid = np.column_stack([each.ravel(order="F") for each in (x, y, z)]).astype(float)
    apart = np.array([[9, 0, 0], [10, 0, 0], [9, 1, 0], [9, 0, 1]], float)
    at = np.arange(36).reshape(4, 3, 3)  # [z][y][x]
    low = at[:-1, :-1, :-1].ravel()
    hexes = low[:, None] + np.array([0, 1, 4, 3, 9, 10, 13, 12])
    faces = np.concatenate([hexes[:, [0, 1, 2, 3]], hexes[-4:, [4, 5, 6, 7]]])
    edges = np.column_stack([at[:, 0, :-1].ravel(), at[:, 0, 1:].ravel()])
    triangles = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]) + 36
    E, arrays = mesh.Entity, {}
    entities = [
        E("region", "region", 0, 1, fields=[mesh.Field("step", role="reduction"), MOMENTUM]),
        E("node_block", "nodeblock_1", 1, 40),
        E("edge_block", "edges", 11, len(edges), "edge2"),
        E("face_block", "faces", 21, len(faces), "quad4"),
        E("face_block", "polygons", 22, 4, "nsided"),
        E("element_block", "lower", 10, 8, "hex8", properties={"material": 3, "density": 7.8, "kind": "steel"}),
        E("element_block", "upper", 20, 4, "hex8", properties={"material": 4}),
        E("element_block", "polyhedra", 30, 1, "nfaced", properties={"material": 5}),
        E("node_set", "bottom", 100, 9),
        E("edge_set", "some_edges", 200, 3),
        E("face_set", "some_faces", 300, 2),
        E("element_set", "some_elements", 400, 5),
        E("side_set", "loaded", 500, 4),
        E("assembly", "solids", 1000, 2, members=["lower", "upper"], fields=[MOMENTUM]),
        E("assembly", "all", 1001, 1, members=["solids"], member_type="assembly", properties={"colour": "red"}),
        E("blob", "table", 2000, 6, properties={"unit": "K"}, fields=[mesh.Field("temperature"), ENERGY]),
    ]
    model = mesh.Model("everything", 3, entities, [["penstock", "1", "2026/11/27", "12:00:00"]], ["first", "second"])
    model.properties = {"material_model": "elastic", "seed": 7, "scale": 1.5}

    def has(name, *fields):
        entity = model.find(name)
        for its, values in fields:
            entity.fields.append(its)
            arrays[entity.type, name, its.name] = np.asarray(values)

    factors = mesh.Field("distribution_factors", role="mesh")
    thickness = mesh.Field("thickness", role="attribute")
    order = mesh.Field("order", "int64", role="map")
    coordinates = mesh.Field("coordinates", storage="vector_3d", role="mesh")
    has(
        "nodeblock_1",
        (coordinates, np.concatenate([grid, apart])),
        (numbers("ids"), np.arange(40)[::-1] + 5),
        (order, np.arange(40)),
    )
    has(
        "edges",
        (numbers("connectivity", "[2]"), edges),
        (numbers("ids"), np.arange(8) + 1),
        (thickness, np.arange(8) / 8),
    )
    has("faces", (numbers("connectivity", "[4]"), faces))
    has(
        "polygons",
        (numbers("connectivity", count=12), triangles.ravel()),
        (mesh.Field("entity_counts", "int32", role="mesh"), [3] * 4),
    )
    has(
        "lower",
        (numbers("connectivity", "[8]"), hexes[:8]),
        (numbers("ids"), np.arange(8) * 3 + 50),
        (thickness, np.arange(8)),
    )
    has("upper", (numbers("connectivity", "[8]"), hexes[8:]), (numbers("ids"), np.arange(4) + 1))
    has(
        "polyhedra",
        (numbers("connectivity", count=4), np.arange(4) + len(faces)),
        (mesh.Field("entity_counts", "int32", role="mesh"), [4]),
        (numbers("ids"), [900]),
    )
    has("bottom", (numbers("members"), [4, 0, 1, 2, 3, 5, 8, 7, 6]), (factors, np.arange(9) / 9))
    has("some_edges", (numbers("members"), [0, 5, 7]), (numbers("orientations"), [1, -1, 1]))
    has("some_faces", (numbers("members"), [1, 13]), (numbers("orientations"), [-1, 1]))
    has("some_elements", (numbers("members"), [0, 3, 9, 11, 12]))
    per_side = mesh.Field("distribution_factors", role="mesh", count=16)
    has("loaded", (numbers("element_side", "[2]"), [[8, 6], [9, 6], [10, 6], [11, 6]]), (per_side, np.arange(16) / 16))
    for name in ("nodeblock_1", "edges", "faces", "lower", "bottom", "loaded"):
        model.find(name).fields += RESULTS
    for name in ("polygons", "upper", "polyhedra", "some_edges", "some_faces", "some_elements"):
        model.find(name).fields.append(mesh.Field("pressure"))
    model.find("lower").fields.append(ENERGY)
    return model, arrays


# IOSS refuses polygons, and VTK's Exodus reader crashes over faces that are not polygons (VTK 9.7).
FACES = ("polygons", "polyhedra", "faces", "some_faces")


def without_faces():
    """The same without faces and the polyhedron."""
    model, arrays = everything()
    model.entities = [each for each in model.entities if each.name not in FACES]
    arrays = {key: values for key, values in arrays.items() if key[1] not in FACES}
    arrays["element_set", "some_elements", "members"] = np.array([0, 3, 9, 11, 10])
    return model, arrays


TOPOLOGIES = {
    "sphere": 1,
    "bar2": 2,
    "bar3": 3,
    "tri3": 3,
    "tri6": 6,
    "quad4": 4,
    "quad8": 8,
    "quad9": 9,
    "shell4": 4,
    "tet4": 4,
    "tet10": 10,
    "pyramid5": 5,
    "pyramid13": 13,
    "wedge6": 6,
    "wedge15": 15,
    "hex8": 8,
    "hex20": 20,
    "hex27": 27,
}


def topologies():
    """A block of two elements of each topology, in nodes at random, without ids."""
    random = np.random.default_rng(1)
    model, arrays = mesh.Model("topologies"), {}
    coordinates = mesh.Field("coordinates", storage="vector_3d", role="mesh")
    model.entities = [mesh.Entity("node_block", "nodeblock_1", 1, 100, fields=[coordinates, mesh.Field("pressure")])]
    arrays["node_block", "nodeblock_1", "coordinates"] = random.random((100, 3))
    for number, (name, width) in enumerate(TOPOLOGIES.items()):
        nodes = np.stack([random.permutation(100)[:width] for _ in range(2)])
        its = numbers("connectivity", f"[{width}]")
        model.entities.append(mesh.Entity("element_block", name, number + 1, 2, name, fields=[its, mesh.Field("flag")]))
        arrays["element_block", name, "connectivity"] = nodes if width > 1 else nodes[:, 0]
    return model, arrays


def polygons():
    """A pentagon and a quadrilateral in a plane, with two of their edges as a side set, whose ends have factors."""
    nodes = mesh.Entity("node_block", "nodeblock_1", 1, 7)
    nodes.fields = [mesh.Field("coordinates", storage="vector_2d", role="mesh"), mesh.Field("pressure")]
    faces = mesh.Entity("element_block", "faces", 1, 2, "nsided")
    faces.fields = [numbers("connectivity", count=9), mesh.Field("entity_counts", "int32", role="mesh")]
    rim = mesh.Entity("side_set", "rim", 1, 2)
    factors = mesh.Field("distribution_factors", role="mesh", count=4)
    rim.fields = [numbers("element_side", "[2]"), factors]
    arrays = {
        ("node_block", "nodeblock_1", "coordinates"): [[0, 0], [2, 0], [3, 1], [2, 2], [0, 2], [5, 1], [5, 2]],
        ("element_block", "faces", "connectivity"): [0, 1, 2, 3, 4, 2, 5, 6, 3],
        ("element_block", "faces", "entity_counts"): [5, 4],
        ("side_set", "rim", "element_side"): [[0, 5], [1, 2]],
        ("side_set", "rim", "distribution_factors"): [0.5, 1.0, 1.5, 2.0],
    }
    return mesh.Model("polygons", 2, [nodes, faces, rim]), {key: np.array(each) for key, each in arrays.items()}


def values_of(entity, its, state):
    """Of a result: numbers that are nowhere else."""
    shape = entity.shape(its)
    base = 1000 * state + 7 * len(entity.name) + entity.id
    return (base + np.arange(np.prod(shape)).reshape(shape)).astype(its.dtype)


def write(path, model, arrays, states=3, **options):
    with mesh.create(path, model, **options) as out:
        for (kind, name, field), values in arrays.items():
            out.write((kind, name), field, values)
        for number in range(states):
            with out.state(number / 4) as state:
                for entity in model.entities:
                    for its in entity.fields:
                        if its.in_state:
                            state[(entity.type, entity.name), its.name] = values_of(entity, its, number)
