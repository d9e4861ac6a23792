"""The attribute `meshes`: parsing it, and verifying it against the variables of a step."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from reprlib import repr as shown  # of bounded length
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidArgument
from ..topologies import TOPOLOGIES
from .description import (
    AmrDescription,
    BlockInfo,
    DomainsDescription,
    FieldInfo,
    MeshDescription,
    MultiblockDescription,
    StructuredDescription,
)
from .meshes import ASSOCIATIONS, MAX_DEPTH, cells_of, check_amr, check_axes, check_spacing

if TYPE_CHECKING:
    from ..reader import ReadStep

MAX_BYTES = 1 << 20
MAX_MESHES = 1000
_MAX_EXTENT = 1 << 48  # of a mesh in nodes, and of ids
_MAX_BLOCK = 1 << 27  # cells of an AMR block
_ANY = "biuf"


def default_mesh(step: ReadStep) -> dict[str, MeshDescription]:
    """What a step without the attribute holds."""
    names = [n for n in step if step[n].kind == "global_array" and step[n].dtype.kind in _ANY]
    names = [n for n in names if 1 <= step[n].ndim <= 3 and 0 not in step[n].shape]
    if not names:
        return {}
    first = max(names, key=lambda n: step[n].size)
    shape = step[first].shape
    names = [n for n in names if step[n].shape == shape]
    units = {name: step.attributes.get(f"{name}/units", "") for name in names}
    fields = {n: FieldInfo("node", (n,), 1, unit if isinstance(unit, str) else "") for n, unit in units.items()}
    place: dict[str, Any] = {
        "origin": _point(step, first, "origin", 0.0),
        "spacing": _point(step, first, "spacing", 1.0),
    }
    try:
        check_spacing(place["spacing"])
    except InvalidArgument as error:
        raise InvalidArgument(f"'{first}': {error}") from None
    axes = "zyx"[3 - len(shape) :]
    return {"mesh": StructuredDescription(name="mesh", type="uniform", shape=shape, axes=axes, fields=fields, **place)}


def _point(step: ReadStep, name: str, key: str, missing: float) -> tuple[float, float, float]:
    """An attribute of the variable, or of the step: x, y, z, as far as it says."""
    found = step.attributes.get(f"{name}/{key}", step.attributes.get(key, []))
    values = np.atleast_1d(found)
    if values.dtype.kind not in "iuf" or len(values) > 3 or not np.isfinite(values).all():
        raise InvalidArgument(f"'{name}': the attribute '{key}' is at most three finite numbers, not {shown(found)}")
    return (*values.astype(float).tolist(), *(missing,) * (3 - len(values)))


class NotInStep(InvalidArgument):
    """A variable that a mesh needs is not in the step."""


@dataclass(frozen=True)
class LackingMesh:
    """A mesh that the attribute names, and of which the step lacks a variable. fields: those that it can have."""

    why: str
    fields: frozenset[str]


def parse(step: ReadStep, text: Any) -> tuple[dict[str, MeshDescription], dict[str, LackingMesh]]:
    """The meshes that the attribute's text describes, and those that the step lacks. Raises InvalidArgument naming mesh
    and key."""
    top = _Keys("the attribute 'meshes'", _decoded(text), ("version", "meshes"))
    if top["version"] != 1 or isinstance(top["version"], bool):
        raise top.error("version", f"this program reads version 1, not {shown(top['version'])}")
    meshes = top["meshes"]
    if not isinstance(meshes, dict) or len(meshes) > MAX_MESHES:
        raise top.error("meshes", f"expected an object of at most {MAX_MESHES} meshes")
    out: dict[str, MeshDescription] = {}
    lacking: dict[str, LackingMesh] = {}
    multiblocks = []
    for name, value in meshes.items():
        if not 0 < len(name) <= 200:
            raise top.error("meshes", f"the name of a mesh has 1 to 200 characters, not {shown(name)}")
        kind = value.get("type") if isinstance(value, dict) else None
        if not isinstance(kind, str) or kind not in _TYPES:
            known = ", ".join(_TYPES)
            raise InvalidArgument(f"mesh '{name}', key 'type': there is no type {shown(kind)}; there are {known}")
        required, optional, describe = _TYPES[kind]
        keys = _MeshKeys(name, value, ("type", *required), optional, step)
        if kind == "multiblock":
            multiblocks.append(keys)
            out[name] = None  # type: ignore[assignment]  # keeps the order
            continue
        try:
            out[name] = describe(keys)
        except NotInStep as error:
            fields = value.get("fields")
            lacking[name] = LackingMesh(str(error), frozenset(fields if isinstance(fields, dict) else ()))
    for keys in multiblocks:
        missing = sorted(set(keys.texts("blocks", 0)) & lacking.keys())
        if missing:
            lacking[keys.name] = lacking[missing[0]]
            del out[keys.name]
        else:
            out[keys.name] = _multiblock(keys, out)
    return out, lacking


def _decoded(text: Any) -> Any:
    if not isinstance(text, str) or len(text.encode(errors="replace")) > MAX_BYTES:
        raise InvalidArgument(f"the attribute 'meshes' is one text of at most {MAX_BYTES} bytes")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError(f"the keys {shown(sorted(key for key, _ in pairs))} are not all different")
        return found

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the attribute 'meshes' is no JSON: {error}") from None


class _Keys(dict[str, Any]):
    """An object of the attribute whose keys are known, and checks of its values."""

    def __init__(self, where: str, value: Any, required: tuple[str, ...], optional: tuple[str, ...] = ()):
        self._where = where
        if not isinstance(value, dict):
            raise InvalidArgument(f"{where}: expected an object, not {type(value).__name__}")
        super().__init__(value)
        for key in value:
            if key not in required and key not in optional:
                raise self.error(key, f"unknown; there are {', '.join((*required, *optional))}")
        for key in required:
            if key not in value:
                raise self.error(key, "missing")

    def error(self, key: str, what: str) -> InvalidArgument:
        return InvalidArgument(f"{self._where[:300]}, key '{key[:300]}': {what[:600]}")

    def inner(self, key: str, value: Any, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> _Keys:
        return _Keys(f"{self._where}, key '{key}'", value, required, optional)

    def checked(self, key: str, check: Callable[..., Any], *values: Any) -> Any:
        try:
            return check(*values)
        except InvalidArgument as error:
            raise self.error(key, str(error)) from None

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(key, f"expected an integer from {low} to {high}, not {shown(value)}")
        return value

    def extents(self, key: str, most: int) -> tuple[int, ...]:
        values = self[key]
        right = isinstance(values, list) and 1 <= len(values) <= 3
        if not right or any(type(each) is not int or each < 1 for each in values):
            raise self.error(key, f"expected 1 to 3 integers of at least 1, not {shown(values)}")
        if math.prod(values) > most:
            raise self.error(key, f"{shown(values)} are more than the {most} that there may be")
        return tuple(values)

    def point(self, key: str, default: float) -> tuple[float, float, float]:
        values = self.get(key, [default] * 3)
        numbers = isinstance(values, list) and all(type(each) in (int, float) and abs(each) < 1e300 for each in values)
        if not numbers or len(values) != 3:
            raise self.error(key, f"expected three finite numbers, for x, y, z, not {shown(values)}")
        x, y, z = (float(each) for each in values)
        return x, y, z

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str) or len(value) > 1000:
            raise self.error(key, f"expected text of at most 1000 characters, not {shown(value)}")
        return value

    def texts(self, key: str, least: int = 1) -> tuple[str, ...]:
        values = self[key]
        values = [values] if isinstance(values, str) else values
        if not isinstance(values, list) or len(values) < least or not all(isinstance(each, str) for each in values):
            raise self.error(key, f"expected a list of at least {least} names, not {shown(values)}")
        return tuple(values)


_KINDS = {_ANY: "real numbers", "iuf": "numbers", "iu": "integers", "u": "uint8", "u8": "uint64", "i": "int64"}
# The exact type where the kind alone is not enough.
_EXACT = {"u": np.dtype(np.uint8), "u8": np.dtype(np.uint64), "i": np.dtype(np.int64)}
_COMMON = ("fields", "ghosts", "ids")


class _MeshKeys(_Keys):
    """The object of one mesh, and checks of its variables.

    associations: those there are. shapes: of global arrays, by association; None: its arrays are local, and each has as
    many blocks as the first.
    """

    def __init__(self, name: str, value: Any, required: tuple[str, ...], optional: tuple[str, ...], step: ReadStep):
        super().__init__(f"mesh '{name}'", value, required, optional)
        self.name = name
        self.step = step
        self.associations: tuple[str, ...] = ASSOCIATIONS
        self.shapes: Mapping[str, tuple[int, ...]] | None = None
        self._domains: tuple[str, int] | None = None

    def check(self, key: str, name: str, dtypes: str, association: str = "node", more: tuple[int, ...] = ()) -> None:
        self.check_variable(key, name, dtypes, None if self.shapes is None else (*self.shapes[association], *more))

    def check_variable(self, key: str, name: str, dtypes: str, shape: tuple[int, ...] | None) -> None:
        """Checks that the step has the variable, and as it is to be. shape: of a global array; None: it is local."""
        if name not in self.step:
            raise NotInStep(str(self.error(key, f"the step has no variable '{name}'")))
        found, kind = self.step[name], "local_array" if shape is None else "global_array"
        if found.kind != kind:
            raise self.error(key, f"the variable '{name}' is a {found.kind}, expected a {kind}")
        if found.dtype.kind not in dtypes or found.dtype != _EXACT.get(dtypes, found.dtype):
            raise self.error(key, f"the variable '{name}' is of {found.dtype}, expected {_KINDS[dtypes]}")
        if shape is not None:
            if found.shape != shape:
                raise self.error(key, f"the variable '{name}' has the shape {found.shape}, expected {shape}")
            return
        blocks = found._info.blocks
        first, expected = self._domains = self._domains or (name, blocks)
        if blocks != expected:
            raise self.error(key, f"'{name}' has {blocks} blocks, '{first}' {expected}")

    @property
    def domains(self) -> int:
        """Of local arrays, once one was checked."""
        return self._domains[1] if self._domains else 0

    def coordinates(self) -> tuple[str, ...]:
        names = self.texts("coordinates")
        if len(names) not in (1, 3):
            raise self.error("coordinates", f"expected one variable, or three, not {len(names)}")
        for name in names:
            self.check("coordinates", name, "iuf", more=(3,) if len(names) == 1 else ())
        return names

    def common(self) -> dict[str, Any]:
        """name, type, fields, absent, ghosts, ids."""
        fields, absent = {}, []
        values = self.get("fields", {})
        if not isinstance(values, dict):
            raise self.error("fields", "expected an object of fields")
        for name, value in values.items():
            info = self._field_info(f"fields/{name}", value)
            if not any(each in self.step for each in info.variables):
                absent.append(name)  # nobody asked for it
                continue
            self._check_field(f"fields/{name}", info, _ANY)
            fields[name] = info
        ghosts = None
        if "ghosts" in self:
            ghosts = self._field_info("ghosts", self["ghosts"])
            if len(ghosts.variables) != 1 or ghosts.components != 1:
                raise self.error("ghosts", "expected one variable of one component")
            self._check_field("ghosts", ghosts, "u")
        found = self.inner("ids", self.get("ids", {}), (), self.associations)
        ids = {each: found.text(each) for each in self.associations if each in found}
        for association, name in ids.items():
            self.check(f"ids/{association}", name, "i", association)
        common = {"fields": fields, "absent": tuple(absent), "ghosts": ghosts, "ids": ids}
        return {"name": self.name, "type": self["type"], **common}

    def _field_info(self, key: str, value: Any) -> FieldInfo:
        keys = self.inner(key, value, ("association", "variables"), ("components", "units"))
        association = keys.text("association")
        if association not in self.associations:
            raise keys.error("association", f"expected one of {self.associations}, not {shown(association)}")
        variables = keys.texts("variables")
        components = keys.integer("components", 1, 1000, len(variables))
        if len(variables) > 1 and components != len(variables):
            raise keys.error("components", f"{len(variables)} variables are so many components, not {components}")
        return FieldInfo(association, variables, components, keys.text("units", ""))

    def _check_field(self, key: str, info: FieldInfo, dtypes: str) -> None:
        for name in info.variables:
            self.check(key, name, dtypes, info.association, info.interleaved)


def _structured(keys: _MeshKeys) -> MeshDescription:
    shape = keys.extents("shape", _MAX_EXTENT)
    axes = keys.checked("axes", check_axes, keys.text("axes"), len(shape))
    keys.shapes = {"node": shape, "element": cells_of(shape)}
    place: dict[str, Any] = {"shape": shape, "axes": axes}
    if keys["type"] == "uniform":
        place["origin"] = keys.point("origin", 0.0)
        place["spacing"] = keys.checked("spacing", check_spacing, keys.point("spacing", 1.0))
    elif keys["type"] == "rectilinear":
        inner = keys.inner("coordinates", keys["coordinates"], tuple(axes))
        place["coordinates"] = {axis: inner.text(axis) for axis in axes}
        for n, axis in zip(shape, axes, strict=True):
            keys.check_variable(f"coordinates/{axis}", inner[axis], "iuf", (n,))
    else:
        place["coordinates"] = keys.coordinates()
    return StructuredDescription(**place, **keys.common())


def _particles(keys: _MeshKeys) -> MeshDescription:
    keys.associations = ("element",)
    return DomainsDescription(step=keys.step, coordinates=keys.coordinates(), **keys.common())


def _unstructured(keys: _MeshKeys) -> MeshDescription:
    coordinates = keys.coordinates()
    if not isinstance(keys["blocks"], list):
        raise keys.error("blocks", "expected a list of element blocks")
    blocks = tuple(_block(keys, n, value) for n, value in enumerate(keys["blocks"]))
    if len({block.name for block in blocks}) != len(blocks):
        raise keys.error("blocks", "each element block has a name of its own")
    return DomainsDescription(step=keys.step, coordinates=coordinates, blocks=blocks, **keys.common())


def _block(keys: _MeshKeys, number: int, value: Any) -> BlockInfo:
    key = f"blocks/{number}"
    mixed = isinstance(value, dict) and value.get("topology") == "mixed"
    arrays = ("connectivity", "offsets", "topologies") if mixed else ("connectivity",)
    inner = keys.inner(key, value, ("name", "topology", *arrays), ("id",))
    topology = inner.text("topology")
    if topology != "mixed" and topology not in TOPOLOGIES:
        raise inner.error("topology", f"there is no topology '{topology}'; there are {', '.join(TOPOLOGIES)} and mixed")
    names = {each: inner.text(each) for each in arrays}
    for each, name in names.items():
        keys.check(f"{key}/{each}", name, "u" if each == "topologies" else "iu")
    return BlockInfo(inner.text("name"), inner.integer("id", -_MAX_EXTENT, _MAX_EXTENT, 0), topology, names)


def _amr(keys: _MeshKeys) -> MeshDescription:
    keys.associations = ("element",)
    cells, axes = keys.extents("cells", _MAX_BLOCK), keys.text("axes")
    layers = keys.integer("ghost_layers", 0, 1000, 0)
    refinement = keys.integer("refinement", 2, 16, 2)
    keys.checked("cells", check_amr, cells, axes, layers, refinement)
    levels, indices = keys.text("levels"), keys.text("indices")
    for each, name in (("levels", levels), ("indices", indices)):
        keys.check(each, name, "iu")
    spacing = keys.checked("spacing", check_spacing, keys.point("spacing", 1.0))
    grid: dict[str, Any] = {"cells": cells, "axes": axes, "ghost_layers": layers, "refinement": refinement}
    place: dict[str, Any] = {"origin": keys.point("origin", 0.0), "spacing": spacing, "step": keys.step}
    place |= _splits(keys, refinement)
    return AmrDescription(**grid, **place, levels=levels, indices=indices, **keys.common())


def _splits(keys: _MeshKeys, refinement: int) -> dict[str, Any]:
    if ("splits" in keys) != ("depth" in keys):
        raise keys.error("splits", "splits and depth are given together")
    if "splits" not in keys:
        return {}
    if refinement != 2:
        raise keys.error("splits", f"splits need the refinement 2, not {refinement}")
    splits, depth = keys.text("splits"), keys.integer("depth", 0, MAX_DEPTH)
    keys.check_variable("splits", splits, "u8", (keys.domains,))
    return {"splits": splits, "depth": depth}


def _multiblock(keys: _MeshKeys, meshes: Mapping[str, MeshDescription]) -> MeshDescription:
    names = keys.texts("blocks", 0)
    for name in names:
        if not isinstance(meshes.get(name), MeshDescription) or meshes[name].type == "multiblock":
            raise keys.error("blocks", f"'{name}' is no other mesh of the channel that is no multiblock")
    if len(set(names)) != len(names):
        raise keys.error("blocks", f"the names {shown(names)} are not all different")
    blocks = {name: meshes[name] for name in names}
    # A field that one block names and does not hold is absent: the others alone are not the whole.
    absent = {key for block in blocks.values() for key in block.absent}
    fields = {k: info for block in reversed(blocks.values()) for k, info in block.fields.items() if k not in absent}
    return MultiblockDescription(
        name=keys.name, type="multiblock", blocks=blocks, fields=fields, absent=tuple(sorted(absent))
    )


_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...], Callable[[_MeshKeys], MeshDescription]]] = {
    "uniform": (("shape", "axes"), ("origin", "spacing", *_COMMON), _structured),
    "rectilinear": (("shape", "axes", "coordinates"), _COMMON, _structured),
    "curvilinear": (("shape", "axes", "coordinates"), _COMMON, _structured),
    "unstructured": (("coordinates", "blocks"), _COMMON, _unstructured),
    "particles": (("coordinates",), _COMMON, _particles),
    "amr": (
        ("cells", "axes", "levels", "indices"),
        ("ghost_layers", "origin", "spacing", "refinement", "splits", "depth", *_COMMON),
        _amr,
    ),
    "multiblock": (("blocks",), (), None),  # type: ignore[dict-item]  # after all others
}
