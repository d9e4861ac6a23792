"""Where streams are: lists of them, and what the commands know of one. The library finds it (penstock.inspect)."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..workflow.registry import directory_is_known
from .console import fail, say

if TYPE_CHECKING:
    from ..pool import Pool

StreamName = Annotated[
    str, typer.Argument(help="The stream, its folder, or an address as penstock stream ls --address prints it.")
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--variables", "--variable", "-v", metavar="A,B", help="Only these; may be given several times."),
]
CALL_S = 5.0
LOOK_AGAIN_S = 0.2
SPACES_NAMESPACE = "penstock.array-streams"  # where writers of streams in a space put their records
SILENT_S = 60.0  # a directory service that did not answer in time is not asked again for so long
_silent_until: dict[str, float] = {}


@dataclass(frozen=True)
class Place:
    """Where a stream is, and how it is opened there: penstock.open(place.name, **place.options)."""

    kind: str  # "writer": in its memory; "pool"; "space": of a pool; "files"; "address"; "configured": not looked for
    where: str  # the writer's host, the pool, the folder, the engine
    name: str
    options: dict[str, str] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # state, writer, ranks, steps, bytes, readers, as far as known

    def __str__(self) -> str:
        words = {
            "writer": "its writer's memory",
            "pool": f"pool {self.where}",
            "space": f"the space of pool {self.where}",
        }
        return words.get(self.kind, self.where)


# --------------------------------------------------------------------------------------------------------- listings


def registered() -> list[Place]:
    """The streams that writers have registered; about has their address, too."""
    import penstock

    found = []
    for entry in sorted(penstock.list_streams(), key=lambda entry: entry.name):
        about: dict[str, Any] = {"state": "alive" if entry.alive else "gone", "writer": f"{entry.host}:{entry.pid}"}
        about |= {"ranks": entry.ranks, "address": entry.address}
        found.append(Place("writer", entry.host, entry.name, about=about))
    return found


def known_pools(timeout: float = CALL_S) -> list[dict[str, Any]]:
    """As penstock.known_pools; none where no directory service is known or it does not answer, which is said."""
    import penstock

    if not directory_is_known() or time.monotonic() < _silent_until.get("directory", 0.0):
        return []
    try:
        return penstock.known_pools(timeout=timeout)
    except (penstock.NotFound, penstock.PeerLost, penstock.TimeoutError) as error:
        if isinstance(error, penstock.TimeoutError):  # it hangs: no command shall wait for that at each look
            _silent_until["directory"] = time.monotonic() + SILENT_S
        say_once(f"the directory service does not answer: {error}")
        return []


say_once = functools.cache(say)


def in_pools(pools: list[dict[str, Any]]) -> list[Place]:
    import penstock

    found = []
    for name in [pool["name"] for pool in pools]:
        try:
            with penstock.Pool(name, timeout=CALL_S) as there:
                found += [in_pool(name, told) for told in there.streams()]
            with penstock.Pool(name, ns=SPACES_NAMESPACE, timeout=CALL_S, trace="off") as records:
                found += in_space(records)
        except penstock.Error as error:
            say_once(f"pool {name}: {error}")
    return found


def in_space(records: Pool) -> list[Place]:
    """The streams in the space of a pool. records: a client of it with the namespace of their records."""
    import penstock

    found = []
    for name in [str(info.row).removeprefix("stream/") for info in records.list("stream/*", "writer")]:
        with contextlib.suppress(penstock.NotFound):  # dropped meanwhile
            told = penstock.inspect(name, CALL_S, engine="space", pool=records.name)
            options = {"engine": "space", "pool": records.name}
            found.append(Place("space", records.name, name, options, told))
    return found


def in_files() -> list[Place]:
    """The folders of streams in the working directory."""
    return [place for folder in sorted(Path().glob("*.steps")) if (place := _in_folder(str(folder)))]


def in_pool(pool: str, told: dict[str, Any]) -> Place:
    return Place("pool", pool, told["stream"], {"engine": "pool", "pool": pool}, told)


def _in_folder(folder: str) -> Place | None:
    import penstock

    if not os.path.isfile(os.path.join(folder, "stream.json")):
        return None
    try:
        told = penstock.inspect(folder)
    except penstock.Error as error:
        told = {"state": "damaged", "why": str(error)}
    return Place("files", folder, folder, about=told)


# ---------------------------------------------------------------------------------------------------------- one name


def find(name: str) -> Place | None:
    """The stream of this name, wherever it is now. Addresses are taken on trust. Raises what is wrong with it."""
    import penstock

    try:
        return require(name)
    except penstock.NotFound:
        return None


def require(name: str) -> Place:
    """As find; raises NotFound, which says where was looked, when there is no such stream."""
    import penstock

    from ..context import _default_context

    if "://" in name:
        return Place("address", name.partition("?")[0], name)
    if _default_context().options_for(name)["engine"] == "space":  # its arrays say nothing of streams
        return Place("configured", "engine space", name)
    told = penstock.inspect(name)
    options: dict[str, str] = {key: told[key] for key in ("engine", "pool") if key in told}
    if told["engine"] == "pool":
        return in_pool(told["pool"], told)
    if told["engine"] == "space":
        return Place("space", told["pool"], name, options, told)
    if told["engine"] == "file":
        path = "/" in name or os.path.exists(name)  # which says it itself
        return Place("files", os.path.relpath(told["folder"]), name, {} if path else options, told)
    return next((place for place in registered() if place.name == name), Place("writer", "", name, options))


def hint_for(name: str) -> str:
    """What a program that cannot open a stream may have to know beyond its error."""
    if "://" in name:
        return "Addresses change with each start of a writer: penstock stream ls --address prints the present one."
    return ""


def await_first_step(place: Place, timeout: float) -> None:
    """Until the writer has written a step, so that a reader that only looks is not one that the writer waits for."""
    import penstock

    end = time.monotonic() + timeout
    while place.kind in ("writer", "address") and (told := penstock.inspect(place.name))["steps"] == 0:
        if time.monotonic() >= end:
            slow = "the writer is slower than that: try a larger --timeout"
            waits = "the writer waits for its first readers: start one, or set rendezvous_readers=0"
            fail(
                f"stream '{place.name.partition('?')[0]}' gave no step within {timeout:g} s",
                f"{len(told['peers'])} readers are attached. Either {waits}; or {slow}.",
                code=124,
            )
        time.sleep(LOOK_AGAIN_S)


def opened(place: Place, options: dict[str, Any], timeout: float) -> Any:
    """A reader of the stream. The file of one step is opened without options: it is that step."""
    import penstock

    options = place.options | ({} if os.path.isfile(place.name) else options)
    return penstock.open(place.name, timeout=timeout, **options)


def next_step(stream: Any, timeout: float) -> Any:
    import penstock

    try:
        return stream.step(timeout)
    except penstock.TimeoutError:
        hint = "The writer is there but slower than that, or waits for another reader; try a larger --timeout."
        fail(f"stream '{stream.name}' gave no step within {timeout:g} s", hint, code=124)


def variables_of(words: list[str] | None) -> list[str] | None:
    """The variables that --variable names; None: all."""
    return [word for given in words or [] for word in given.split(",") if word] or None
