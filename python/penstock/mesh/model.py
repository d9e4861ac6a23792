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


class Properties(dict[str, Property]):
    """By name. NaN equals NaN, so that a model with one equals itself."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict) or self.keys() != other.keys():
            return False
        return all(_same(value, other[name]) for name, value in self.items())

    def __ne__(self, other: object) -> bool:
        return not self == other


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_same, one, two))
    return bool(one == two or (one != one and two != two))


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


Ijk = tuple[int, int, int]
NodeRange = tuple[Ijk, Ijk]  # nodes of a structured block, the last one included: numbers in the whole block, from 0


def _ijk(numbers: Any) -> Ijk:
    i, j, k = (int(each) for each in numbers)
    return i, j, k


def _range(ends: Any) -> NodeRange:
    first, last = ends
    return _ijk(first), _ijk(last)


@dataclass(slots=True)
class ZoneConnectivity:
    """Nodes of this part that a structured block shares with another one, or with itself.

    transform: for each axis of this block the one of the donor, 1 to 3, that it runs along; negative: the other way.
    decomposition: the block continues in another part, and is its own donor.
    """

    name: str
    donor: str
    owner_range: NodeRange
    donor_range: NodeRange
    transform: Ijk = (1, 2, 3)
    decomposition: bool = False

    def __post_init__(self) -> None:
        self.owner_range, self.donor_range = _range(self.owner_range), _range(self.donor_range)
        self.transform = _ijk(self.transform)


@dataclass(slots=True)
class BoundaryCondition:
    """Nodes of this part on a face of a structured block. face: 0 to 2: least i, j, k; 3 to 5: greatest i, j, k."""

    name: str
    family: str
    range: NodeRange
    face: int

    def __post_init__(self) -> None:
        self.range = _range(self.range)


@dataclass(slots=True)
class Structured:
    """The cells of a structured block along i, j, k: of this part, of the whole, and where this part begins.

    0 along k, or j and k, that are not there. Its nodes are the node block of its name; cells and nodes have i fastest.
    """

    cells: Ijk
    whole: Ijk = ()  # type: ignore[assignment]
    offset: Ijk = (0, 0, 0)
    connectivities: list[ZoneConnectivity] = field(default_factory=list)
    boundaries: list[BoundaryCondition] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cells, self.offset = _ijk(self.cells), _ijk(self.offset)
        self.whole = _ijk(self.whole or self.cells)

    @property
    def nodes(self) -> Ijk:
        """Of this part."""
        return _ijk(each + 1 if self.cells[0] else 0 for each in self.cells)

    @staticmethod
    def of(plain: dict[str, Any]) -> Structured:
        return Structured(
            **{
                **plain,
                "connectivities": [ZoneConnectivity(**each) for each in plain["connectivities"]],
                "boundaries": [BoundaryCondition(**each) for each in plain["boundaries"]],
            }
        )


@dataclass(slots=True)
class Entity:
    """A block, a set, an assembly, a blob, or the region itself. structured: of a structured block."""

    type: str
    name: str
    id: int = 0
    count: int = 0
    topology: str = ""
    members: list[str] = field(default_factory=list)
    member_type: str = "element_block"
    properties: dict[str, Property] = field(default_factory=dict)
    fields: list[Field] = field(default_factory=list)
    structured: Structured | None = None

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
            raw["structured"] = Structured.of(raw["structured"]) if raw["structured"] else None
        plain["entities"] = [Entity(**raw) for raw in plain["entities"]]
        return Model(**plain)


def numpy_dtype(its: Field) -> Any:
    return dtypes.to_numpy(its.dtype)


def _bits(value: float) -> int:
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return bits


def _real(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value


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


def _from_json(properties: dict[str, Any]) -> Properties:
    out = Properties()
    for name, value in properties.items():
        if isinstance(value, dict):
            bits = value["bits"]
            out[name] = [_real(each) for each in bits] if isinstance(bits, list) else _real(bits)
        else:
            out[name] = value
    return out
