"""`penstock stream drop`: remove a stream from its pool."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from ..units import size
from .console import Yes, command, confirm, fail
from .objects import PoolName, Timeout, check_directory, open_pool
from .places import find, find_in_pools, known_pools, not_found_hint


@command
def drop(
    name: Annotated[str, typer.Argument(help="The stream.")],
    pool: PoolName = "",
    timeout: Timeout = 30.0,
    yes: Yes = False,
) -> None:
    """Remove a stream from its pool, with all its steps. Not while it is written. It says what is lost, and asks."""
    place = find_in_pools(name, pool, need_one=True)
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


def _say_why(name: str, pool: str) -> NoReturn:
    """Why no stream of this name was found in the pool, or in any."""
    pools = [each["name"] for each in known_pools()]
    if pools and pool and pool not in pools:
        fail(f"there is no pool '{pool}'", f"There are: {', '.join(sorted(pools))}")
    place = find(name)
    if not pool and place is not None and place.kind == "writer":
        fail(f"{name} is in its writer's memory; it ends with its writer", "Only streams in pools are dropped.")
    check_directory()
    hint = not_found_hint(name) or "It is not in that pool. It goes with its writer, or with its folder."
    fail(f"there is no stream '{name}' in {f'pool {pool}' if pool else 'a pool'}", hint)
