"""The exceptions of Penstock: one class for each code of the C++ library, all of them an Error.

What broke: the call (InvalidArgument, WrongState, NotFound, UnknownOption, Unsupported), the step (StepTooLarge,
StepVoided, StepGone), the stream (TimeoutError, EndOfStream, WriterLost, StreamClosed), a peer (PeerLost,
AuthenticationError, ProtocolError), a pool or service that refused (AlreadyExists, Overloaded, PoolFull, StaleView,
Cancelled, Forbidden), or the machine (SystemFailure, OutOfMemory, InternalError).
Where Python has an exception that means the same, ours is that one as well: `except KeyError` catches NotFound.
"""

from __future__ import annotations

import builtins

__all__ = [
    "AlreadyExists",
    "AuthenticationError",
    "Cancelled",
    "EndOfStream",
    "Error",
    "Forbidden",
    "InternalError",
    "InvalidArgument",
    "NotFound",
    "OutOfMemory",
    "Overloaded",
    "PeerLost",
    "PoolFull",
    "ProtocolError",
    "StaleView",
    "StepGone",
    "StepTooLarge",
    "StepVoided",
    "StreamClosed",
    "SystemFailure",
    "TimeoutError",
    "UnknownOption",
    "Unsupported",
    "WriterLost",
    "WrongState",
]


class Error(Exception):
    """What every error of Penstock is. `code` names it, as in C and C++ ("step_too_large")."""

    code = "internal"

    def __str__(self) -> str:
        # KeyError would show the message as a repr.
        return str(self.args[0]) if self.args else ""


class InvalidArgument(Error, ValueError):
    """A value out of range, or a wrong type or shape. Nothing changed."""

    code = "invalid_argument"


class WrongState(Error, RuntimeError):
    """A call that does not fit here: a put after the step has ended, use after close."""

    code = "wrong_state"


class NotFound(Error, KeyError):
    """No such variable, attribute or stream. The message suggests the nearest name."""

    code = "not_found"


class UnknownOption(Error, ValueError):
    """A misspelt option. The message suggests the nearest name."""

    code = "unknown_option"


class Unsupported(Error, NotImplementedError):
    """Not built in, or not defined for this type."""

    code = "unsupported"


class StepTooLarge(Error):
    """The step outgrew the stream's memory bound. It is void on every rank; the stream goes on."""

    code = "step_too_large"


class StepVoided(Error):
    """This step of this rank was given up: an earlier call said why. The stream goes on."""

    code = "step_voided"


class StepGone(Error):
    """The step's memory was taken back. The stream goes on."""

    code = "step_gone"


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed. The message names who was awaited."""

    code = "timeout"


class EndOfStream(Error, EOFError):
    """The writer closed the stream and every step was read. A loop over the reader ends instead."""

    code = "end_of_stream"


class WriterLost(Error, ConnectionError):
    """The writer died. The message names the steps that are lost."""

    code = "writer_lost"


class StreamClosed(Error):
    """The stream was closed."""

    code = "stream_closed"


class PeerLost(Error, ConnectionError):
    """One peer broke; others are unharmed."""

    code = "peer_lost"


class AuthenticationError(Error, PermissionError):
    """A peer did not prove that it knows the stream's token."""

    code = "authentication"


class ProtocolError(Error):
    """A peer sent what the protocol does not allow."""

    code = "protocol"


class AlreadyExists(Error, FileExistsError):
    """A write-once object or name is there already."""

    code = "already_exists"


class Overloaded(Error):
    """Too many calls are under way; try again."""

    code = "overloaded"


class PoolFull(Error):
    """No memory or disk of the pool came free within the deadline."""

    code = "pool_full"


class StaleView(Error):
    """The pool's membership changed since the caller looked; clients ask again by themselves."""

    code = "stale_view"


class Cancelled(Error):
    """The call was cancelled."""

    code = "cancelled"


class Forbidden(Error, PermissionError):
    """The caller's role does not allow the call."""

    code = "forbidden"


class SystemFailure(Error, OSError):
    """The operating system refused. The message carries its text."""

    code = "system"


class OutOfMemory(Error, MemoryError):
    """No memory is left."""

    code = "memory"


class InternalError(Error):
    """A defect in Penstock."""

    code = "internal"


_classes = {c.code: c for c in list(globals().values()) if isinstance(c, type) and issubclass(c, Error)}


def error_of(code: str, message: str) -> Error:
    """The exception for a code of the library."""
    return _classes.get(code, InternalError)(message)
