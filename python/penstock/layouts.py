"""Layouts of arrays that shared objects supply: elements in tiles, along a curve, or as a library wants them.

    penstock.layouts.load("build/lib/layout_tiled.so")   # ["tiled16", "tiled4"]
    tiles = space["T", 7].get(layout="tiled16")

The interface of such a shared object is the C header penstock/layout_plugin.h; examples/layouts/tiled.c is an example.
"""

from __future__ import annotations

import os

from . import _core


def load(path: str | os.PathLike[str]) -> list[str]:
    """Loads the layouts of a shared object for all of the process, and returns their names.

    Raises NotFound (it cannot be loaded), Unsupported (it is no plug-in of this version), AlreadyExists (another one
    has a layout of the same name).
    """
    return _core.load_layouts(os.fspath(path))
