"""The channels that one analysis reads, step by step: streams, and mesh regions (regions).

The first channel leads: each of its steps is a frame. Others go with it: match "cycle" takes the step with the frame's
cycle, if there is one; match "latest" the newest step there is. Rank 0 decides and tells the others, so that all ranks
have the same steps.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _core
from ..cohort import rank_of
from ..context import Context
from ..errors import EndOfStream, Error, InvalidArgument, TimeoutError, WriterLost
from ..reader import Reader
from ..stream import UNCHOSEN_MS
from .attribute import LackingMesh
from .channel import ATTRIBUTE, meshes_of, time_and_cycle
from .description import MeshDescription
from .meshes import Mesh
from .partition import Part

MATCHES = ("cycle", "latest")
REGION = "mesh:"  # before the name of a region
MAX_CHANNELS = 16
MAX_SKIPPED = 100  # steps that are passed over for the newest
_TELL_S = 5.0  # other ranks hear so often that there is no step yet
_SLICE_S = 0.5  # between two looks at whether the pipeline was edited
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class ChannelName:
    """What a channel is called in the analysis, its stream (or address or folder), and how its steps are matched.

    region: it is a mesh region, in any database; `stream` is its name.
    """

    name: str
    stream: str
    match: str = "cycle"
    region: bool = False

    @classmethod
    def parse(cls, text: str) -> ChannelName:
        """Of "[NAME=]STREAM[@latest]", or mesh:REGION for STREAM, where the ending does not say that. Raises
        InvalidArgument."""
        name, equals, stream = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            name, stream = "", text
        match = next((each for each in MATCHES if stream.endswith(f"@{each}")), "")
        stream = stream.removesuffix(f"@{match}")
        region = stream.startswith(REGION) or _core.mesh_name_of_file(stream)
        stream = stream.removeprefix(REGION)
        if not stream:
            raise InvalidArgument(
                f"channel '{text}': a stream is needed, as in heat, log=run/log or log=heat.log@latest"
            )
        return cls(name or stream, stream, match or "cycle", region)


class Channel:
    """An open channel, and what it gives for the frame. One matched by "latest" keeps copies of its newest step."""

    live = False  # somebody may hear requests
    step_timeout: float | None = None  # seconds; None: as configured

    def __init__(self, name: ChannelName, rank: int, size: int, method: str = "block"):
        self.name = name
        self.rank, self.size = rank, size  # of the analysis
        self.step: Any = None
        self.number: int | None = None  # of the step that the channel gives
        self.meshes: dict[str, MeshDescription] = {}
        self.lacking: dict[str, LackingMesh] = {}  # meshes that the step names and does not hold
        self.declared = True  # the step names all its meshes, with all fields that they may have
        self.empty = False  # the step says that it has no mesh
        self.time = 0.0
        self.cycle = 0
        self.ended = False
        self.missed = 0  # frames that went on without this channel
        self.values: dict[str, np.ndarray] = {}  # of the step, that belong to no mesh: arrays of one row
        self._method = method
        self._kept: dict[str, Mesh] = {}
        self._parts: dict[str, list[Part]] = {}  # of the ranks, by mesh

    @property
    def bytes(self) -> int:
        """Read so far."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _take(self, timeout: float | None) -> bool:
        """try_next(), but for what all channels do."""
        raise NotImplementedError

    def part(self, description: MeshDescription, rank: int | None = None) -> Part:
        """This rank's part of a mesh, or another rank's."""
        if description.name not in self._parts:
            self._parts[description.name] = description.parts(self.size, self._method)
        return self._parts[description.name][self.rank if rank is None else rank]

    def read(self, mesh: str, fields: Sequence[str]) -> Mesh:
        """This rank's part with these fields."""
        if self.step is None:
            return self._kept[mesh]
        description = self.meshes[mesh]
        return description.read(self.step, self.part(description), fields, views=True)

    def try_next(self, timeout: float | None) -> bool:
        """Takes the next step, and gives the last one back. False: none came within timeout seconds.

        At the end of the channel `ended` becomes true. Raises WriterLost, InvalidArgument (meshes).
        """
        self.release()
        if not self._take(timeout):
            return False
        self._parts = {}
        if self.name.match == "latest":
            self._kept = {
                name: each.read(self.step, self.part(each), list(each.fields)) for name, each in self.meshes.items()
            }
            self.release()
        return True

    def go_to(self, number: int | None) -> None:
        """Takes the steps up to this one, which rank 0 has (None: rank 0 has none). Raises what try_next() raises."""
        if number is None:
            self.release()
            return
        while self.number is None or self.number < number:
            if not self.try_next(math.inf):
                break
        if self.number != number:
            raise Error(f"stream {self.name.stream}: rank 0 has step {number}, which this rank did not get")

    def release(self) -> None:
        """Gives the step back."""
        self.step = None


class StreamChannel(Channel):
    def __init__(self, name: ChannelName, reader: Reader, method: str):
        super().__init__(name, reader.rank, reader.size, method)
        self.live = reader.options["engine"] != "file"
        self.step_timeout = (int(reader.options["step_timeout_ms"]) or UNCHOSEN_MS) / 1000
        self._reader = reader

    @property
    def bytes(self) -> int:
        return self._reader.statistics.bytes

    def close(self) -> None:
        self._reader.close()

    def _take(self, timeout: float | None) -> bool:
        try:
            step = self._reader.try_step(timeout)
        except EndOfStream:
            self.ended = True
            return False
        if step is None:
            return False
        self.step, self.number = step, step.number
        if "mesh_model" in step:
            name = self.name.stream
            raise InvalidArgument(f"stream {name} holds a mesh region: name the channel {REGION}{name}")
        self.meshes, self.lacking = meshes_of(step)
        self.declared = ATTRIBUTE in step.attributes
        self.empty = self.declared and not self.meshes and not self.lacking
        self.time, self.cycle = time_and_cycle(step)
        return True

    def release(self) -> None:
        if self.step is not None:
            step, self.step = self.step, None
            step.end()


def open_channel(context: Context, name: ChannelName, cohort: Any, timeout: float | None, method: str) -> Channel:
    """Collective. Raises NotFound, TimeoutError, and what else opening a stream or region does."""
    if not name.region:
        return StreamChannel(name, context.open(name.stream, comm=cohort, timeout=timeout), method)
    from .regions import RegionChannel

    return RegionChannel(name, context, cohort)


class Channels:
    """All channels of one analysis; each rank of the cohort opens them in the same order."""

    def __init__(
        self, context: Context, names: Sequence[ChannelName], cohort: Any, timeout: float | None, method: str = "block"
    ):
        if not 1 <= len(names) <= MAX_CHANNELS or len({each.name for each in names}) < len(names):
            raise InvalidArgument(f"an analysis has 1 to {MAX_CHANNELS} channels, each with its own name")
        self._cohort = cohort
        self._timeout = timeout
        self._heard: list[int | None] = []  # of the steps of rank 0, on the others
        self.kept: dict[Any, Any] = {}  # what chains keep from frame to frame, by mesh and key
        self.all: list[Channel] = []
        try:
            for each in names:
                self.all.append(open_channel(context, each, cohort, timeout, method))
        except BaseException:
            self.close()
            raise
        self.writer = self._find_writer(context) if rank_of(cohort) == 0 else ""

    def _find_writer(self, context: Context) -> str:
        """Tells one run of a simulation from another; empty where that is not known."""
        if self.lead.name.region:
            return ""
        try:
            found = context.inspect(self.lead.name.stream, 2.0)
        except (Error, OSError, ValueError):
            return ""
        return json.dumps({key: found[key] for key in ("host", "pid", "writer") if key in found})

    @property
    def lead(self) -> Channel:
        return self.all[0]

    @property
    def present(self) -> list[Channel]:
        """Those that have a step in this frame."""
        return [each for each in self.all if self._belongs(each)]

    def _belongs(self, channel: Channel) -> bool:
        if channel.name.match == "latest":
            return channel.number is not None
        return channel.step is not None and channel.cycle == self.lead.cycle

    def next_frame(self, look: Callable[[], Any], waiting: Callable[[float], None]) -> tuple[bool, Any]:
        """Takes the steps of the next frame, on rank 0; the others follow(). False after the last. Collective.

        look(), of rank 0, is called at least twice a second; what it gives last is the second result, on all ranks.
        waiting(seconds) is called as often while no step comes. Raises WriterLost, TimeoutError.
        """
        if rank_of(self._cohort) == 0:
            try:
                found = self._first_rank(look, waiting)
            except Exception as error:
                self._tell({"failed": f"{type(error).__name__}: {error}"})
                error.on_all_ranks = True  # type: ignore[attr-defined]
                raise
            self._tell(found)
            return found["more"], found["news"]
        while (heard := json.loads(self._cohort.broadcast(b"", 0))).get("waiting"):
            pass
        if "failed" in heard:
            failure = Error(f"rank 0: {heard['failed']}")
            failure.on_all_ranks = True  # type: ignore[attr-defined]
            raise failure
        self._heard = heard["steps"]
        return heard["more"], heard["news"]

    def follow(self) -> None:
        """Takes the steps that rank 0 has. Not collective; raises what Channel.go_to() raises."""
        for channel, number in zip(self.all, self._heard, strict=False):  # of rank 0 itself there are none
            channel.go_to(number)

    def _tell(self, found: dict[str, Any]) -> None:
        if self._cohort is not None and self._cohort.size > 1:
            self._cohort.broadcast(json.dumps(found).encode(), 0)

    def _first_rank(self, look: Callable[[], Any], waiting: Callable[[float], None]) -> dict[str, Any]:
        begun, told = time.monotonic(), 0.0
        while True:
            news = look()
            if self.lead.try_next(_SLICE_S) or self.lead.ended:
                break
            waited = time.monotonic() - begun
            if waited > told + _TELL_S:  # the cohort's own patience ends before the simulation's next step may come
                told = waited
                self._tell({"waiting": True})
            if self._timeout is not None and waited > self._timeout:
                raise TimeoutError(f"channel '{self.lead.name.stream}' gave no step within {self._timeout:g} s")
            waiting(waited)
        if not self.lead.ended:
            for channel in self.all[1:]:
                self._follow(channel)
        steps = [each.number if each.step is not None or each.name.match == "latest" else None for each in self.all]
        return {"more": not self.lead.ended, "news": news, "steps": steps}

    def _follow(self, channel: Channel) -> None:
        """Takes the step that goes with the lead's cycle. One of a later cycle stays for its own frame."""
        try:
            if channel.name.match == "latest":
                if channel.number is None and not channel.ended:  # the first one is worth a wait
                    self._require_next(channel)
                for _ in range(MAX_SKIPPED):  # a writer that is faster than this loop would keep it for ever
                    if channel.ended or not channel.try_next(0):
                        break
            else:
                while not channel.ended and (channel.step is None or channel.cycle < self.lead.cycle):
                    self._require_next(channel)
        except WriterLost:
            channel.release()
            channel.ended = True
        channel.missed += not self._belongs(channel)

    def _require_next(self, channel: Channel) -> None:
        timeout = self._timeout if self._timeout is not None else channel.step_timeout
        if not channel.try_next(timeout) and not channel.ended:
            within = f" within {timeout:g} s" if timeout is not None else ""
            raise TimeoutError(
                f"channel '{channel.name.stream}' gave no step{within} for cycle {self.lead.cycle} of "
                f"'{self.lead.name.stream}'; @latest would take the newest step there is"
            )

    def forget(self, keys: Collection[Any]) -> None:
        """Of what chains keep."""
        for mesh, key in [each for each in self.kept if each[1] in keys]:
            del self.kept[mesh, key]

    def release(self) -> None:
        """Gives back the steps of this frame; one that is ahead of it stays."""
        for each in self.all:
            if each.cycle <= self.lead.cycle:
                each.release()

    def close(self) -> None:
        for each in self.all:
            with suppress(Error):
                each.release()
            with suppress(Error):
                each.close()
