"""What an analysis asks of the simulation: the demand (which fields, when) and steering values.

The stream NAME.requests carries them, written by rank 0 of the analysis; docs/internals/coprocessing.md has its format.
"""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from typing import Any

import numpy as np

from ..context import Context
from ..errors import Error, InvalidArgument, WrongState
from ..options import StreamOptions

MAX_BYTES = 1 << 20
RETRY_S = 1.0
MAX_RULES = 256
MAX_WORDS = 4096  # of the rules' programs, which the simulation runs at each cycle
# The newest request waits for a simulation that attaches later. Nothing waits for one that does not read: what finds no
# room is sent again by flush(). A request holds all that is asked for, so only the newest counts.
_OPTIONS: StreamOptions = {
    "engine": "direct",
    "rendezvous_readers": 0,
    "queue_steps": 8,
    "reserve_steps": 1,
    "when_full": "discard_newest",
    "queue_bytes": 16 * MAX_BYTES,
    "trace": "off",
}


def requests_name(channel: str) -> str:
    """The stream on which the analyses of a channel send their requests."""
    return f"{channel}.requests"


def _as_json(number: int, rules: list[dict[str, Any]], steering: dict[str, Any]) -> str:
    return json.dumps({"version": 1, "number": number, "rules": rules, "steering": steering})


def steering_value(name: str, value: Any) -> bool | int | float | str:
    """The value as it is sent; NumPy's numbers will do. Raises InvalidArgument: it is none, or not finite."""
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, (bool, int, float, str)):
        raise InvalidArgument(f"the steering value '{name}' is bool, int, float or str, not {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(f"the steering value '{name}' is {value}: simulations take finite numbers")
    return value


class Requests:
    """Sends requests to the writer of one channel.

    The first analysis of a channel decides what is published. For a second one `active` is False: it sends nothing,
    sees what the first one has asked for, and takes over when that has left. Raises InvalidArgument when the channel's
    name has no room for ".requests". A demand or value that is refused leaves in force what was asked for before.
    """

    def __init__(self, context: Context, channel: str):
        self._number = 0
        self._rules: list[dict[str, Any]] = []
        self._steering: dict[str, Any] = {}
        self._sent: tuple[str, str] | None = None
        self._context, self._channel = context, channel
        self._stream: Any = None
        self._tried = 0.0
        self._closed = False
        self._open()

    def _open(self) -> None:
        self._tried = time.monotonic()
        with suppress(WrongState):  # another analysis writes it
            self._stream = self._context.create(requests_name(self._channel), **_OPTIONS)

    @property
    def active(self) -> bool:
        return self._stream is not None

    @property
    def number(self) -> int:
        """Of the newest request sent; 0 before the first."""
        return self._number

    def demand(self, rules: list[dict[str, Any]]) -> None:
        """Asks for these rules from now on: {"fields": [...] or None for all, "when": program}."""
        self._ask(rules, self._steering)

    def steer(self, values: dict[str, Any]) -> None:
        """Asks for these values of parameters, by name, beside those asked for before: steering_value() of each."""
        plain = {name: steering_value(name, value) for name, value in values.items()}
        self._ask(self._rules, self._steering | plain)

    def _ask(self, rules: list[dict[str, Any]], steering: dict[str, Any]) -> None:
        """Takes what fits into a request, and sends it."""
        if len(rules) > MAX_RULES:
            raise InvalidArgument(f"a request has at most {MAX_RULES} rules, not {len(rules)}: merge some")
        if (words := sum(len(rule["when"]) for rule in rules)) > MAX_WORDS:
            raise InvalidArgument(
                f"the triggers of a request have at most {MAX_WORDS} words, not {words}: ask for less"
            )
        size = len(_as_json(self._number + 1, rules, steering).encode())
        if size > MAX_BYTES:
            raise InvalidArgument(f"a request of {size} bytes is longer than {MAX_BYTES}: ask for less")
        self._rules, self._steering = rules, steering
        self.flush()

    def flush(self) -> None:
        """Sends what is asked for, unless it was sent already; call it at every step."""
        if self._stream is None and not self._closed and time.monotonic() > self._tried + RETRY_S:
            self._open()  # the first analysis may have left
        if self._stream is None:
            return
        what = json.dumps(self._rules), json.dumps(self._steering)
        if what == self._sent:
            return
        with self._stream.step() as step:
            if step.dropped:
                return
            step["request"] = _as_json(self._number + 1, self._rules, self._steering)
        self._number += 1
        self._sent = what

    def close(self) -> None:
        self._closed = True
        if self._stream is not None:
            with suppress(Error):
                self._stream.close(timeout=0)
            self._stream = None
