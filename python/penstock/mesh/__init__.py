"""Mesh regions: a simulation's mesh and its fields in IOSS's terms, in files, on streams, or nowhere.

    with penstock.mesh.open("results.e") as region:        # an Exodus file, files of several ranks, or a stream
        nodes = region["nodeblock_1", "coordinates"]       # NumPy; numbers of nodes count from 0
        for state in region:
            print(state.time, state["block_1", "stress"].max())

    with penstock.mesh.create("out.e", region.model) as out:
        out["nodeblock_1", "coordinates"] = nodes          # all fields of the model,
        with out.state(time=0.5) as state:                 # then states, each with all of its fields
            state["block_1", "stress"] = stress

Source: SAND2020-9451 (IOSS with FAODEL), SAND92-2137 (Exodus II).
"""

from __future__ import annotations

from .compare import Options, Report, Tolerance, compare
from .copy import Choice, Edit, copy
from .load_balance import Balance, read_balance, write_balance
from .model import BoundaryCondition, Entity, Field, Model, Structured, ZoneConnectivity
from .modify import modify
from .region import Region, RegionWriter, State, create, open

__all__ = [
    "Balance",
    "BoundaryCondition",
    "Choice",
    "Edit",
    "Entity",
    "Field",
    "Model",
    "Options",
    "Region",
    "RegionWriter",
    "Report",
    "State",
    "Structured",
    "Tolerance",
    "ZoneConnectivity",
    "compare",
    "copy",
    "create",
    "modify",
    "open",
    "read_balance",
    "write_balance",
]
