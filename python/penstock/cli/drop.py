"""`penstock stream drop`: remove a stream from its pool."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from ..units import size
from .console import Yes, command, confirm, fail
from .objects import PoolName, Timeout, check_directory, open_pool
from .places import CALL_S, Place, in_pool, known_pools, require, say_once


@command
def drop(
    name: Annotated[str, typer.Argument(help="The stream.")],
    pool: PoolName = "",
    timeout: Timeout = 30.0,
    yes: Yes = False,
) -> None:
    """Remove a stream from its pool, with all its steps. Not while it is written. It says what is lost, and asks."""
    place = _find(name, pool)
    if place is None:
        _say_why(name, pool)
    about = place.about
    if about["state"] == "open":
        fail(f"stream '{name}' is being written by {about['writer']}", "End its writer first.")
    readers = f"; {about['readers']} readers lose it" if about["readers"] else ""
    lost = f"{about['steps']} steps ({size(about['bytes'])}){readers}"
    confirm(f"This removes stream {name} from pool {place.where}: {lost}. The pool keeps no other copy.", yes)
    with open_pool(place.where, "", timeout) as there:
        there.drop_stream(name)


def _find(name: str, only: str) -> Place | None:
    """only: in the pool of this name. Ends the command where several pools have the stream."""
    import penstock

    found = []
    for pool in [pool["name"] for pool in known_pools() if only in ("", pool["name"])]:
        try:
            found.append(in_pool(pool, penstock.inspect(name, CALL_S, engine="pool", pool=pool)))
        except penstock.NotFound:
            continue
        except penstock.Error as error:
            say_once(f"pool {pool}: {error}")
    if len(found) > 1:
        fail(f"pools {', '.join(place.where for place in found)} have a stream '{name}'", "Give --pool.", code=2)
    return found[0] if found else None


def _say_why(name: str, pool: str) -> NoReturn:
    """Why no stream of this name was found in the pool, or in any."""
    import penstock

    pools = [each["name"] for each in known_pools()]
    if pools and pool and pool not in pools:
        fail(f"there is no pool '{pool}'", f"There are: {', '.join(sorted(pools))}")
    try:
        place = require(name)
    except penstock.NotFound as error:
        hint = str(error)
    else:
        if not pool and place.kind == "writer":
            fail(f"{name} is in its writer's memory; it ends with its writer", "Only streams in pools are dropped.")
        hint = f"It is in {place}: it goes with its writer, or with its folder."
        if place.kind == "space":
            hint = f"It is in {place}: drop its arrays with penstock.Space."
    check_directory()
    fail(f"there is no stream '{name}' in {f'pool {pool}' if pool else 'a pool'}", hint)
