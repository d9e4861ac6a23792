"""Where streams are: the registrations of living writers, then pools, then files in the working directory."""

from __future__ import annotations

import difflib
import functools
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ..workflow.registry import DIRECTORY, directory_is_known, where_streams_register
from .console import fail, messages

StreamName = Annotated[
    str, typer.Argument(help="The stream, its folder, or an address as penstock stream ls --address prints it.")
]
Variables = Annotated[
    list[str] | None,
    typer.Option("--variables", "--variable", "-v", metavar="A,B", help="Only these; may be given several times."),
]
CALL_S = 5.0
LOOK_AGAIN_S = 0.2
SILENT_S = 60.0  # a directory service that did not answer in time is not asked again for so long
_silent_until: dict[str, float] = {}


@dataclass(frozen=True)
class Place:
    """Where a stream is, and how it is opened there: penstock.open(place.name, **place.options)."""

    kind: str  # "writer": in its memory; "pool"; "files"; "address"; "configured": only the configuration says it
    where: str  # the writer's host, the pool, the folder, the engine
    name: str
    options: dict[str, str] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)  # state, writer, ranks, steps, bytes, readers, as far as known

    def __str__(self) -> str:
        return {"writer": "its writer's memory", "pool": f"pool {self.where}"}.get(self.kind, f"{self.where}")


# --------------------------------------------------------------------------------------------------------- listings


def registered() -> list[Place]:
    """The streams that writers have registered; about has their address, too."""
    import penstock

    found = []
    for entry in sorted(penstock.list_streams(), key=lambda entry: entry.name):
        about: dict[str, Any] = {"state": "alive" if entry.alive else "gone", "writer": f"{entry.host}:{entry.pid}"}
        about |= {"ranks": entry.ranks, "address": entry.address}
        if entry.name != DIRECTORY:
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
        _say_once(f"the directory service does not answer: {error}")
        return []


@functools.cache
def _say_once(text: str) -> None:
    messages().print(Text(text), soft_wrap=True)


def in_pools(pools: list[dict[str, Any]]) -> list[Place]:
    import penstock

    found = []
    for name in [pool["name"] for pool in pools]:
        try:
            with penstock.Pool(name, timeout=CALL_S) as there:
                found += [_in_pool(name, told) for told in there.streams()]
        except penstock.Error as error:
            _say_once(f"pool {name}: {error}")
    return found


def in_files() -> list[Place]:
    """The folders of streams in the working directory."""
    return [place for folder in sorted(Path().glob("*.steps")) if (place := _in_folder(str(folder)))]


def _in_pool(pool: str, told: dict[str, Any]) -> Place:
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
    """The stream of this name, wherever it is. Addresses and paths are taken on trust."""
    from ..context import _default_context

    if "://" in name:
        return Place("address", name.partition("?")[0], name)
    if "/" in name or name.endswith(".steps") or os.path.isfile(os.path.join(name, "stream.json")):
        folder = os.path.dirname(name) if os.path.isfile(name) else name
        return Place("files", folder, name, about=place.about if (place := _in_folder(folder)) else {})
    return next((place for place in _candidates(name, _default_context().options_for(name)) if place), None)


def _candidates(name: str, chosen: Mapping[str, str]) -> Iterator[Place | None]:
    yield next((place for place in registered() if place.name == name and place.about["state"] == "alive"), None)
    yield find_in_pools(name)
    yield _in_folder(chosen["folder"].strip('"') or f"{name}.steps")
    if chosen["engine"] == "space":  # its arrays say nothing of streams
        yield Place("configured", "engine space", name)


def find_in_pools(name: str, only: str = "", need_one: bool = False) -> Place | None:
    """only: in the pool of this name. need_one: ends the command where several pools have the stream."""
    import penstock

    found = []
    for pool in [pool["name"] for pool in known_pools() if only in ("", pool["name"])]:
        try:
            found.append(_in_pool(pool, penstock.inspect(name, CALL_S, engine="pool", pool=pool)))
        except penstock.NotFound:
            continue
        except penstock.Error as error:
            _say_once(f"pool {pool}: {error}")
    if len(found) > 1 and need_one:
        fail(f"pools {', '.join(place.where for place in found)} have a stream '{name}'", "Give --pool.", code=2)
    return found[0] if found else None


def wait_for(name: str, timeout: float | None) -> Place:
    """As find, and waits until the stream is there. timeout: seconds; None: the stream's open_timeout_ms."""
    from ..context import _default_context

    place = find(name)
    if place is None and timeout is None:
        timeout = int(_default_context().options_for(name)["open_timeout_ms"]) / 1000
    end = time.monotonic() + (timeout or 0)
    while place is None:
        if time.monotonic() >= end:
            fail(f"there is no stream '{name}' after {timeout:g} s", not_found_hint(name), code=124)
        time.sleep(LOOK_AGAIN_S)
        place = find(name)
    return place


def require(name: str) -> Place:
    """As find; ends the command when there is no such stream."""
    place = find(name)
    if place is None:
        fail(f"there is no stream '{name}' here now", not_found_hint(name))
    return place


def not_found_hint(name: str) -> str:
    """Where was looked, and the nearest name or what there is; "" when the stream is there."""
    import penstock

    if "://" in name:
        return "Addresses change with each start of a writer: penstock stream ls --address prints the present one."
    try:
        if find(name) is not None:
            return ""
        pools = known_pools()
        places = [place for place in registered() if place.about["state"] == "alive"] + in_pools(pools) + in_files()
    except penstock.Error:  # the first error says enough
        return ""
    looked = [f"registrations in {where_streams_register()}", *(f"pool {pool['name']}" for pool in pools)]
    looked += [] if pools else ["no pool, because no directory service is known or answers"]
    return f"Looked in: {', '.join(looked)}; files {name}.steps here. {_suggestion(name, places)}"


def _suggestion(name: str, places: list[Place]) -> str:
    where = {place.name.removesuffix(".steps"): place for place in reversed(places)}
    if near := difflib.get_close_matches(name, where, n=1, cutoff=0.6):
        return f"Did you mean '{near[0]}' ({where[near[0]]})?"
    if where:
        return f"There are: {', '.join(sorted(where))}"
    return "There is none. Start its writer, or give an address (penstock stream ls --address, where the writer runs)."


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
