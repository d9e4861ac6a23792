"""Reading an AMR mesh from a step: whole domains, and the rows (blocks) that are chosen of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidArgument

if TYPE_CHECKING:
    from .description import AmrDescription, _Fetch

Domains = dict[int, dict[str, np.ndarray]]  # arrays by domain and variable


class AmrDomains:
    """Reads from one open step.

    counts: the rows of each domain whose levels and indices were read.
    """

    def __init__(self, mesh: AmrDescription, fetch: _Fetch):
        self.counts: dict[int, int] = {}
        self._mesh = mesh
        self._fetch = fetch

    def enqueue(self, domains: Iterable[int], variables: Mapping[str, tuple[int, ...]]) -> Callable[[], Domains]:
        """Levels and indices, unless the domain's were read before, and these variables. variables: with the dimensions
        behind the rows.

        The result gives the arrays once the step has waited. It raises InvalidArgument for those that make no mesh.
        """
        places = self._mesh.places
        pending: Domains = {}
        for domain in domains:
            names = [*(places if domain not in self.counts else ()), *variables]
            pending[domain] = {name: self._fetch.block(name, domain) for name in names}

        def checked() -> Domains:
            for domain, arrays in pending.items():
                with self._mesh._named(domain):
                    if domain not in self.counts:
                        levels, indices = (arrays[name] for name in places)
                        self._mesh._mesh(levels, indices)
                        self.counts[domain] = len(levels)
                    for name, shape in variables.items():
                        found, expected = arrays[name].shape, (self.counts[domain], *shape)
                        if found != expected:
                            raise InvalidArgument(f"'{name}' has the shape {found}, expected {expected}")
            return pending

        return checked

    def rows(self, domains: Domains, variable: str, shape: tuple[int, ...], rows: np.ndarray) -> np.ndarray:
        """The array of these rows. shape: of one row; rows: (n, 2), domain and row, sorted, each once.

        All rows of one domain are that domain's array, not a copy. InvalidArgument for a row that there is not.
        """
        pieces = []
        starts = np.nonzero(np.diff(rows[:, 0], prepend=-1))[0]
        for domain, chosen in zip(rows[starts, 0].tolist(), np.split(rows[:, 1], starts)[1:], strict=True):
            count = self.counts[domain]
            if chosen[-1] >= count:
                with self._mesh._named(domain):
                    raise InvalidArgument(f"there are {count} rows; the part asks for row {chosen[-1]}")
            array = domains[domain][variable]
            pieces.append(array if len(chosen) == count else array[chosen])
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty((0, *shape), self._fetch.step[variable].dtype)
