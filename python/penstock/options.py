"""The keywords of create() and open(), for type checkers: the options of docs/reference/options.md.

A test compares them with the library's table. Sizes in bytes: a number, or text as "64MiB".
"""

from __future__ import annotations

import os
from typing import Literal, TypedDict


class StreamOptions(TypedDict, total=False):
    """Options of a stream."""

    engine: str
    data_plane: Literal["automatic", "shm", "tcp", "ucx"]
    queue_steps: int
    queue_bytes: int | str
    when_full: Literal["block", "discard_newest", "discard_oldest"]
    rendezvous_readers: int
    reserve_steps: int
    keep_first_step: bool
    min_max: bool
    step_bytes: int | str
    delivery: Literal["every", "latest"]
    pool: str
    acknowledge: Literal["memory", "replicated", "durable"]
    stripe_bytes: int | str
    retain_steps: int
    retain_bytes: int | str
    retain_age_ms: int
    retain_for: str
    resume: int | str
    group: str
    start: int | str
    folder: str | os.PathLike[str]
    compression: int
    sync: bool
    trace: str | os.PathLike[str]
    spin_us: int
    open_timeout_ms: int
    step_timeout_ms: int
    close_timeout_ms: int
    fixed: str  # of these, with commas between them: what penstock.yaml and the environment may not change


class CoprocessorOptions(StreamOptions, total=False):
    """Options of a channel: the stream's, and those of section `coprocessing`."""

    wait: Literal["block", "drop", "latest", "automatic"]
    every: int
    pipelines: str | os.PathLike[str] | list[str | os.PathLike[str]]


class MeshOptions(TypedDict, total=False):
    """Options of a mesh region."""

    database: str
    path: str | os.PathLike[str]
    format: Literal["auto", "offset64", "cdf5", "netcdf4", "netcdf4_classic"]
    integers: Literal["as_given", "32", "64", 32, 64]
    compression: int
    states_per_file: int
    shared: bool
    sync: bool
    resume: float | str
