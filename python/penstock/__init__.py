"""Penstock: streams of steps from a running simulation to whatever uses them.

    import penstock

    with penstock.create("heat") as stream:         # a writer
        for t in range(100):
            with stream.step() as step:
                step["T"] = T                       # NumPy
                step.attributes["time"] = t

    with penstock.open("heat") as stream:           # a reader, in another program
        for step in stream:
            plane = step["T"][:, :, 10]             # NumPy; step["T"].view() reads in place

See create() and open(), the Writer, Reader and Variable they lead to, and penstock.errors.
"""

from __future__ import annotations

from . import errors, layouts
from ._core import version as __version__
from .cohort import Cohort, MpiCohort, StreamCohort, ThreadCohort, thread_cohort
from .context import Context, config, create, inspect, list_streams, open
from .coprocessor import Coprocessor, CoprocessorStatistics, CoprocessStep
from .errors import (
    AlreadyExists,
    AuthenticationError,
    Cancelled,
    EndOfStream,
    Error,
    Forbidden,
    InternalError,
    InvalidArgument,
    NotFound,
    OutOfMemory,
    Overloaded,
    PeerLost,
    PoolFull,
    ProtocolError,
    StaleView,
    StepGone,
    StepTooLarge,
    StepVoided,
    StreamClosed,
    SystemFailure,
    TimeoutError,
    UnknownOption,
    Unsupported,
    WriterLost,
    WrongState,
)
from .pool import Object, ObjectEvent, ObjectInfo, Pool, Subscription, known_pools
from .reader import Reader, ReadStep
from .space import Space
from .statistics import PeerStatistics, Statistics
from .trace import Recording
from .variable import Block, Variable
from .writer import Writer, WriteStep

__all__ = [
    "AlreadyExists",
    "AuthenticationError",
    "Block",
    "Cancelled",
    "Cohort",
    "Context",
    "CoprocessStep",
    "Coprocessor",
    "CoprocessorStatistics",
    "EndOfStream",
    "Error",
    "Forbidden",
    "InternalError",
    "InvalidArgument",
    "MpiCohort",
    "NotFound",
    "Object",
    "ObjectEvent",
    "ObjectInfo",
    "OutOfMemory",
    "Overloaded",
    "PeerLost",
    "PeerStatistics",
    "Pool",
    "PoolFull",
    "ProtocolError",
    "ReadStep",
    "Reader",
    "Recording",
    "Space",
    "StaleView",
    "Statistics",
    "StepGone",
    "StepTooLarge",
    "StepVoided",
    "StreamClosed",
    "StreamCohort",
    "Subscription",
    "SystemFailure",
    "ThreadCohort",
    "TimeoutError",
    "UnknownOption",
    "Unsupported",
    "Variable",
    "WriteStep",
    "Writer",
    "WriterLost",
    "WrongState",
    "__version__",
    "config",
    "create",
    "errors",
    "inspect",
    "known_pools",
    "layouts",
    "list_streams",
    "open",
    "thread_cohort",
]
