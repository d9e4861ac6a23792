"""A mesh region as a channel: each state is a step, which has one mesh, `mesh`, and the reduction fields as values.

Each rank of the analysis has a share of the elements, whatever ranks wrote the region. The cycle is the state's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..context import Context
from ..errors import TimeoutError, WrongState
from ..mesh import Region, State, open
from .channels import Channel, ChannelName
from .description import FieldInfo, MeshDescription
from .meshes import Mesh, UnstructuredMesh
from .partition import DomainsPart, Part
from .region_meshes import fields_of, to_skeleton, values_of, with_fields

MESH = "mesh"


@dataclass(frozen=True, eq=False, kw_only=True)
class RegionDescription(MeshDescription):
    region: Region
    skeleton: UnstructuredMesh

    def parts(self, size: int, method: str = "block") -> list[Part]:
        """The shares that the ranks have. Any method."""
        return [DomainsPart((rank,)) for rank in range(size)]

    def read(
        self,
        step: Any,
        part: Part,
        fields: Sequence[str] | None = None,
        ghost_layers: int = 1,
        views: bool = False,
    ) -> Mesh:
        """This rank's share, as copies. Raises WrongState where the region has gone on."""
        if self.region.state is not step:
            raise WrongState("the region has gone on to another state")
        return with_fields(self.region, self.skeleton, self._chosen(fields))


class RegionChannel(Channel):
    """Made by all ranks together. Raises what mesh.open() does."""

    def __init__(self, name: ChannelName, context: Context, cohort: Any):
        size = 1 if cohort is None else cohort.size
        super().__init__(name, 0 if cohort is None else cohort.rank, size)
        self._region = open(name.stream, comm=cohort, context=context)
        self._skeleton: UnstructuredMesh | None = None
        self._model: Any = None  # of which the skeleton is
        self._ahead: tuple[State | None, Exception | None] | None = None
        self._go_on()

    @property
    def bytes(self) -> int:
        return self._region.bytes

    def close(self) -> None:
        self._region.close()

    def _take(self, timeout: float | None) -> bool:
        region = self._region
        (state, error) = self._ahead or self._next(timeout)
        self._ahead = None
        if isinstance(error, TimeoutError):
            return False
        if error is not None:
            raise error
        if state is None:
            self.ended = True
            return False
        if self._model is not region.model:
            self._model, self._skeleton = region.model, to_skeleton(region)
        assert self._skeleton is not None
        infos = {
            name: FieldInfo(place.association, (name,), place.components)
            for name, place in fields_of(region.model).items()
        }
        description = RegionDescription(
            name=MESH, type="unstructured", fields=infos, region=region, skeleton=self._skeleton
        )
        self.step, self.number, self.meshes = state, state.number, {MESH: description}
        self.time, self.cycle = state.time, state.number
        self.values = values_of(region)
        return True

    def _next(self, timeout: float | None) -> tuple[State | None, Exception | None]:
        try:
            return self._region.next_state(timeout), None
        except Exception as error:
            return None, error

    def _go_on(self) -> None:
        """Gives the state back, which a region does when it goes on. What is there already is for the next _take()."""
        found = self._next(0)
        self._ahead = None if isinstance(found[1], TimeoutError) else found

    def release(self) -> None:
        if self.step is not None:
            self.step = None
            self._go_on()
