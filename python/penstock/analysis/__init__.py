"""Analyses that run inside a simulation, beside it or later: meshes on streams, and what is made of them.

Names are imported when they are used: importing this package imports no VTK.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "agreement": ("exchange",),
    "meshes": (
        "AmrMesh", "CurvilinearMesh", "ElementBlock", "Field", "Mesh", "Multiblock", "ParticleMesh", "RectilinearMesh",
        "StructuredMesh", "UniformMesh", "UnstructuredMesh",
    ),
    "blueprint": ("write_blueprint",),
    "channel": ("describe", "publish", "time_and_cycle"),
    "description": ("FieldInfo", "MeshDescription"),
    "visibility": ("visibility_order",),
    "vtk": ("from_vtk", "to_vtk"),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
