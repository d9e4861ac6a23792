"""`penstock stream drop`: remove a stream from its pool."""

from __future__ import annotations

from typing import Annotated

import typer

from ..units import size
from .console import Yes, command, confirm, fail
from .objects import PoolName, Timeout, check_directory, open_pool
from .places import find_in_pools, not_found_hint


@command
def drop(
    name: Annotated[str, typer.Argument(help="The stream.")],
    pool: PoolName = "",
    timeout: Timeout = 30.0,
    yes: Yes = False,
) -> None:
    """Remove a stream from its pool, with all its steps. Not while it is written. It says what is lost, and asks."""
    check_directory()
    place = find_in_pools(name, pool, need_one=True)
    if place is None:
        hint = not_found_hint(name) or "It is not in a pool. It goes with its writer, or with its folder."
        fail(f"there is no stream '{name}' in {f'pool {pool}' if pool else 'a pool'}", hint)
    about = place.about
    if about["state"] == "open":
        fail(f"stream '{name}' is being written by {about['writer']}", "End its writer first.")
    readers = f"; {about['readers']} readers lose it" if about["readers"] else ""
    lost = f"{about['steps']} steps ({size(about['bytes'])}){readers}"
    confirm(f"This removes stream {name} from pool {place.where}: {lost}. The pool keeps no other copy.", yes)
    with open_pool(place.where, "", timeout) as there:
        there.drop_stream(name)
