"""What a region is made of, as values (include/penstock/region.hpp has the contract)."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import _core, dtypes
from ..errors import InvalidArgument, NotFound

Property = int | float | str | list[int] | list[float]


@functools.cache
def suffixes(storage: str) -> tuple[str, ...]:
    """Of the components of a storage: ("x", "y", "z") of vector_3d, none of a scalar. Raises InvalidArgument."""
    return tuple(_core.mesh_suffixes(storage))


@dataclass(slots=True)
class Field:
    """A field of an entity. storage: "scalar", "vector_3d", "sym_tensor_33" and the like, or "[7]"."""

    name: str
    dtype: str = "float64"
    storage: str = "scalar"
    role: str = "transient"
    count: int = 0  # rows, where there is not one for each member of the entity
    components: list[str] = field(default_factory=list)  # their names in files, where these are not the usual ones

    @property
    def width(self) -> int:
        """Components of a value."""
        return max(1, len(suffixes(self.storage)))

    @property
    def in_state(self) -> bool:
        return self.role in ("transient", "reduction")


@dataclass(slots=True)
class Entity:
    """A block, a set, an assembly, a blob, or the region itself."""

    type: str
    name: str
    id: int = 0
    count: int = 0
    topology: str = ""
    members: list[str] = field(default_factory=list)
    member_type: str = "element_block"
    properties: dict[str, Property] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)

    def find(self, name: str, role: str | None = None) -> Field | None:
        return next((each for each in self.fields if each.name == name and role in (None, each.role)), None)

    def rows(self, its: Field) -> int:
        """Rows of a field of this entity."""
        if its.role == "reduction":
            return 1
        if self.type == "region":
            return its.count or 1
        return its.count or self.count

    def shape(self, its: Field) -> tuple[int, ...]:
        rows = self.rows(its)
        return (rows,) if its.width == 1 else (rows, its.width)


@dataclass(slots=True)
class Model:
    """One part of a region, without data."""

    title: str = ""
    dimensions: int = 3
    entities: list[Entity] = field(default_factory=list)
    qa: list[list[str]] = field(default_factory=list)  # code, version, date, time
    information: list[str] = field(default_factory=list)
    properties: dict[str, Property] = field(default_factory=dict)

    def of(self, *types: str) -> Iterator[Entity]:
        """The entities of these types."""
        return (each for each in self.entities if each.type in types)

    def find(self, entity: str | tuple[str, str]) -> Entity:
        """By name, or by (type, name) where several types have one of the name. Raises NotFound, InvalidArgument."""
        kind, name = entity if isinstance(entity, tuple) else (None, entity)
        found = [each for each in self.entities if each.name == name and kind in (None, each.type)]
        if not found:
            names = ", ".join(dict.fromkeys(each.name for each in self.entities if kind in (None, each.type)))
            raise NotFound(f"the region has no {kind or 'entity'} {name!r}; there are: {names[:500]}")
        if len(found) > 1:
            kinds = " and ".join(each.type for each in found)
            raise InvalidArgument(f"{kinds} have the name {name!r}: name one by (type, name)")
        return found[0]

    def count(self, type: str) -> int:
        return sum(each.count for each in self.of(type))

    def to_text(self) -> str:
        plain = asdict(self)
        plain["properties"] = _as_json(self.properties)
        for raw, entity in zip(plain["entities"], self.entities, strict=True):
            raw["properties"] = _as_json(entity.properties)
        return json.dumps(plain)

    @staticmethod
    def from_text(text: str) -> Model:
        plain = json.loads(text)
        plain["properties"] = _from_json(plain["properties"])
        for raw in plain["entities"]:
            raw["properties"] = _from_json(raw["properties"])
            raw["fields"] = [Field(**each) for each in raw["fields"]]
        plain["entities"] = [Entity(**raw) for raw in plain["entities"]]
        return Model(**plain)


def numpy_dtype(its: Field) -> Any:
    return dtypes.to_numpy(its.dtype)


def _bits(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def _real(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def _as_json(properties: dict[str, Property]) -> dict[str, Any]:
    """Real numbers as their bits: JSON has no infinity and no NaN."""
    out: dict[str, Any] = {}
    for name, value in properties.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str | list | tuple):
            raise InvalidArgument(f"property {name!r} is a number, a text or a list of numbers, not {value!r}")
        if isinstance(value, float):
            out[name] = {"bits": _bits(value)}
        elif isinstance(value, list | tuple) and any(isinstance(each, float) for each in value):
            out[name] = {"bits": [_bits(float(each)) for each in value]}
        else:
            out[name] = value
    return out


def _from_json(properties: dict[str, Any]) -> dict[str, Property]:
    out: dict[str, Property] = {}
    for name, value in properties.items():
        if isinstance(value, dict):
            bits = value["bits"]
            out[name] = [_real(each) for each in bits] if isinstance(bits, list) else _real(bits)
        else:
            out[name] = value
    return out
