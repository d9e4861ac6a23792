"""What a stream has counted since it was opened."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class PeerStatistics:
    """One reader cohort, as the writer sees it (or the writer, as a reader sees it)."""

    name: str  # host:pid of the cohort's rank 0
    ranks: int
    data_plane: str
    steps_delivered: int
    steps_released: int
    steps_dropped: int  # by policy, before this reader saw them
    steps_held: int  # leased by it now


@dataclasses.dataclass(frozen=True, slots=True)
class Statistics:
    """Times in seconds, sizes in bytes."""

    steps: int  # committed (writer) or delivered (reader)
    steps_dropped: int
    steps_voided: int
    analysis_errors: int  # steps at which the reader's on_step function failed
    bytes: int  # put, or got and viewed
    bytes_copied: int
    copies: int
    copy_s: float
    wait_s: float  # waiting for the other side, in begin_step
    announcement_bytes: int  # control bytes for steps in a known epoch
    epochs: int
    plans_built: int
    plans_reused: int
    queue_depth: int  # steps held now
    memory_bytes: int
    data_plane: str
    peers: list[PeerStatistics]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as for JSON."""
        return dataclasses.asdict(self)


def statistics_of(values: dict[str, Any]) -> Statistics:
    return Statistics(**{**values, "peers": [PeerStatistics(**peer) for peer in values["peers"]]})
