"""Meshes in files of Conduit Blueprint, for VisIt, Ascent and others that read these. Needs h5py.

As Conduit's relay writes them with the protocol "hdf5": NAME.root has the index of the mesh, "mesh", and of one rank
all domains, /domain_000000 and so on; several ranks write each to a file, NAME/domain_000000.hdf5. A domain is a part
of a mesh, or a block of an AMR mesh. Layers of ghosts are left out, other marks are the field "ghosts".
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..cohort import Cohort
from ..errors import InvalidArgument
from .agreement import exchange
from .channel import owned
from .files import whole_file
from .meshes import Field, Mesh, ParticleMesh, StructuredMesh

Tree = dict[str, Any]  # of trees, arrays, numbers and texts

# By VTK's number. Blueprint has no other elements; the order of nodes is VTK's.
_SHAPES = {1: "point", 3: "line", 5: "tri", 7: "polygonal", 9: "quad", 10: "tet", 12: "hex", 13: "wedge", 14: "pyramid"}
_TREE = "domain_%06d"


def write_blueprint(
    path: Path, meshes: Iterable[Mesh], cycle: int = 0, time: float = 0.0, cohort: Cohort | None = None
) -> Path:
    """Writes this rank's parts of one mesh; gives the path of the root file. Collective.

    Parts without elements are left out. InvalidArgument, on all ranks, for elements that Blueprint does not have;
    OSError, with the path, when a file cannot be written: the root file is a whole one then, of before, or none.
    """
    rank, size = (cohort.rank, cohort.size) if cohort is not None else (0, 1)
    root = path if path.suffix == ".root" else Path(f"{path}.root")
    domains: list[Tree] = []

    def describe() -> tuple[int, Tree]:
        domains.extend(_domain(part, level) for mesh in meshes for part, level in _parts(mesh))
        return len(domains), _index(domains)

    def number(everything: list[tuple[int, Tree]]) -> tuple[list[int], Tree]:
        counts = [count for count, _ in everything]
        found = [each for _, each in everything] if any(counts) else [_index([_nothing()])]
        counts[0] += not any(counts)
        index = {"state": {"cycle": cycle, "time": time, "number_of_domains": sum(counts), "path": "state"}}
        for each in reversed(found):  # the first domain that has an entry counts
            index |= {kind: index.get(kind, {}) | entries for kind, entries in each.items()}
        return np.cumsum([0, *counts]).tolist(), index

    firsts, index = exchange(cohort, describe, number)
    mine = domains or [_nothing()] * (firsts[rank + 1] - firsts[rank])
    trees = {_TREE % n: {**each, "state": {"cycle": cycle, "time": time, "domain_id": n, **each.get("state", {})}}
             for n, each in enumerate(mine, firsts[rank])}  # fmt: skip

    def write() -> None:
        for name, tree in trees.items() if size > 1 else ():
            _write(root.with_suffix("") / f"{name}.hdf5", {name: tree})

    def finish(_: Any) -> Path:
        contents: dict[str, Any] = {
            "blueprint_index": {"mesh": index},
            "protocol": {"name": "hdf5", "version": "0.4.0"},
        }
        contents |= {"number_of_trees": firsts[-1], "tree_pattern": f"{_TREE}/"}
        files, pattern = (1, root.name) if size == 1 else (firsts[-1], f"{root.stem}/{_TREE}.hdf5")
        _write(root, contents | {"number_of_files": files, "file_pattern": pattern} | (trees if size == 1 else {}))
        return root

    return exchange(cohort, write, finish)


def _parts(mesh: Any) -> Iterable[tuple[Mesh, int | None]]:
    """The parts of a mesh that are domains, and the levels of those of AMR."""
    if mesh.type == "multiblock":
        for block in mesh.blocks.values():
            yield from _parts(block)
    elif mesh.type == "amr":
        fields = _all_fields(mesh)
        for row, level in enumerate(mesh.levels.tolist()):
            own = {name: each[row] for name, each in fields.items()}
            yield owned(replace(mesh.block(row), fields=own, ghosts={"element": mesh.layers()})), level
    else:
        part = owned(mesh) if isinstance(mesh, StructuredMesh) else mesh
        yield from [(part, None)] if part.size_of("element") else ()


def _all_fields(mesh: Mesh) -> dict[str, Field]:
    marks = {"ghosts" if key == "element" else "node_ghosts": Field(key, each) for key, each in mesh.ghosts.items()}
    return {**mesh.fields, **marks, **{f"{key}_ids": Field(key, each) for key, each in mesh.ids.items()}}


def _domain(mesh: Mesh, level: int | None) -> Tree:
    coordset, topology = _structured(mesh) if isinstance(mesh, StructuredMesh) else _explicit(mesh)
    tree: Tree = {"coordsets": {"coords": coordset}, "topologies": {"mesh": {"coordset": "coords", **topology}}}
    for given, each in _all_fields(mesh).items():
        name, fields = given.replace("/", "_"), tree.setdefault("fields", {})  # a path otherwise
        if name in fields or name == ".":
            raise InvalidArgument(f"names of fields are not different in Blueprint, or '.': {[*_all_fields(mesh)]}")
        at = "vertex" if each.association == "node" or mesh.type == "particles" else "element"
        more = {"topology": "mesh", "volume_dependent": "false", "values": _values(mesh, each)}
        fields[name] = {"association": at, **more}
    return tree | ({"state": {"level_id": level}} if level is not None else {})


def _nothing() -> Tree:
    return _domain(ParticleMesh(coordinates=np.zeros((0, 3))), None)


def _values(mesh: Mesh, field: Field) -> Any:
    """An array, x fastest, or one for each component."""
    arrays = mesh.upright(field.values)
    if arrays[0].ndim > len(mesh.shape_of(field.association)):
        arrays = tuple(arrays[0][..., c] for c in range(arrays[0].shape[-1]))
    names = "xyz" if len(arrays) <= 3 else [f"c{c}" for c in range(len(arrays))]
    return dict(zip(names, map(np.ravel, arrays), strict=False)) if len(arrays) > 1 else arrays[0].ravel()


def _structured(mesh: Any) -> tuple[Tree, Tree]:
    """Coordset and topology. An axis with one node is no dimension: if it has a place, coordinates are explicit."""
    extent = {axis: (mesh.start[d], mesh.shape[d]) for d, axis in enumerate(mesh.axes)}
    kept = [axis for axis in "xyz" if extent.get(axis, (0, 1))[1] > 1]
    dims = {key: extent[axis][1] for key, axis in zip("ijk", kept, strict=False)}
    elements = {"dims": {key: n - 1 for key, n in dims.items()}}
    topology: Tree = {"type": "structured", "elements": elements} if kept else {"type": "points"}
    if mesh.type == "curvilinear":
        return {"type": "explicit", "values": _values(mesh, Field("node", mesh.coordinates))}, topology
    if mesh.type == "uniform":
        spans = [extent.get(axis, (0, 1)) for axis in "xyz"]
        place = zip("xyz", mesh.origin, mesh.spacing, spans, strict=True)
        lines = {axis: o + s * np.arange(a, a + n) for axis, o, s, (a, n) in place}
    else:
        lines = {axis: mesh.coordinates.get(axis, np.zeros(1)) for axis in "xyz"}
    if not kept or kept != [*"xyz"][: len(kept)] or any(lines[axis][0] for axis in "xyz" if axis not in kept):
        grids = np.meshgrid(lines["z"], lines["y"], lines["x"], indexing="ij")[::-1]
        return {"type": "explicit", "values": dict(zip("xyz", map(np.ravel, grids), strict=True))}, topology
    if mesh.type == "rectilinear":
        return {"type": "rectilinear", "values": {axis: lines[axis] for axis in kept}}, {"type": "rectilinear"}
    spacing = {f"d{axis}": each for axis, each in zip("xyz", mesh.spacing, strict=True) if axis in kept}
    where = {"origin": {axis: lines[axis][0] for axis in kept}, "spacing": spacing}
    return {"type": "uniform", "dims": dims, **where}, {"type": "uniform"}


def _explicit(mesh: Any) -> tuple[Tree, Tree]:
    coordset = {"type": "explicit", "values": _values(mesh, Field(mesh.associations[0], mesh.coordinates))}
    blocks = [block for block in getattr(mesh, "blocks", ()) if len(block)]
    if not blocks:
        return coordset, {"type": "points"}
    kinds, offsets, nodes = zip(*(block.cells() for block in blocks), strict=True)
    all_kinds, all_sizes = (np.concatenate([*each]).astype(np.int64) for each in (kinds, map(np.diff, offsets)))
    found = np.unique(all_kinds).tolist()
    if not set(found) <= set(_SHAPES):
        raise InvalidArgument(f"Blueprint has no elements of VTK's types {sorted(set(found) - set(_SHAPES))}; use vtk")
    elements: Tree = {"shape": _SHAPES[found[0]] if len(found) == 1 else "mixed"}
    elements["connectivity"] = np.concatenate(nodes).astype(np.int64)
    if elements["shape"] in ("mixed", "polygonal"):
        elements |= {"sizes": all_sizes, "offsets": np.cumsum(all_sizes) - all_sizes}
    if elements["shape"] == "mixed":
        elements |= {"shapes": all_kinds, "shape_map": {_SHAPES[kind]: kind for kind in found}}
    return coordset, {"type": "unstructured", "elements": elements}


def _index(domains: Sequence[Tree]) -> Tree:
    """What the root file says of the coordset, topology and fields of domains."""
    out: Tree = {}
    for domain in reversed(domains):
        coords, kind = domain["coordsets"]["coords"], domain["topologies"]["mesh"]["type"]
        system = {"type": "cartesian", "axes": {axis: {} for axis in coords.get("values", coords.get("origin"))}}
        out["coordsets"] = {"coords": {"type": coords["type"], "coord_system": system, "path": "coordsets/coords"}}
        out["topologies"] = {"mesh": {"type": kind, "coordset": "coords", "path": "topologies/mesh"}}
        for name, field in domain.get("fields", {}).items():
            components = len(field["values"]) if isinstance(field["values"], dict) else 1
            more = {"association": field["association"], "topology": "mesh", "path": f"fields/{name}"}
            out.setdefault("fields", {})[name] = {"number_of_components": components, **more}
    return out


def _write(path: Path, tree: Tree) -> None:
    """In memory first: HDF5 does not get over a full disk."""
    import h5py

    def put(group: Any, tree: Tree) -> None:
        for name, value in tree.items():
            if isinstance(value, dict):
                put(group.create_group(name), value)
            elif isinstance(value, str):  # ends with a 0, as Conduit's do
                group.create_dataset(name, data=np.array([value.encode()], f"S{len(value.encode()) + 1}"))
            else:
                array = np.atleast_1d(value)
                kind = {"?": "u1", "e": "f4"}.get(array.dtype.char, array.dtype)
                group.create_dataset(name, data=array.astype(kind, copy=False))

    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        put(file, tree)
    with whole_file(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())
