"""Scripts of ParaView's Catalyst, as its GUI exports them (version 2.0), on the steps of a channel.

    pvbatch catalyst.py CHANNEL SCRIPT.py [--output FOLDER] [--steps N] [--timeout SECONDS]

`penstock analyze --paraview` starts it so. It runs in ParaView's own Python, with ParaView's VTK, and drives the
scripts with ParaView's Catalyst adaptor. The names that a script gives its producers (registrationName) are those of
the channel's meshes. The simulation is asked for all fields at all cycles: what a script reads shows only when it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any


def find_penstock() -> None:
    """This package, without what lies beside it where that is in ParaView too: VTK and NumPy are ParaView's."""
    import vtkmodules  # noqa: F401
    from paraview import simple  # noqa: F401

    sys.path.append(str(Path(__file__).absolute().parents[2]))


def grid_of(frame: Any, name: str) -> Any:
    """A mesh of the frame for a producer: one dataset, or a multiblock of several."""
    from vtkmodules.vtkCommonDataModel import vtkMultiBlockDataSet

    parts = frame.vtk(name)
    if len(parts) == 1:
        return parts[0]
    blocks = vtkMultiBlockDataSet()
    for number, part in enumerate(parts):
        blocks.SetBlock(number, part)
    return blocks


class CatalystTask:
    """A script, run by ParaView at each frame."""

    problem = ""

    def __init__(self, script: Path, output: Path, *_: Any):
        from paraview.catalyst import bridge

        from penstock.analysis.tasks import Missed

        self.path = script
        self.missed = Missed()
        self.keeps: frozenset[Any] = frozenset()
        self._bridge = bridge
        if bridge.coprocessor is None:
            bridge.initialize()
        bridge.add_pipeline(str(script.absolute()), 2)
        output.mkdir(parents=True, exist_ok=True)
        os.chdir(output)  # scripts write beside where they run

    def demand(self, text: str | None = None) -> list[dict[str, Any]]:
        return [{"fields": None, "when": [1]}]

    def look(self) -> None:
        return None

    def replace(self, text: str) -> None:
        raise NotImplementedError("scripts are not read again")

    def run(self, frame: Any) -> list[Path]:
        from paraview.modules.vtkPVCatalyst import vtkCPDataDescription

        if lacking := frame.lacks_meshes:
            self.missed.add(self.path.name, frame, lacking)
            return []
        self.missed.used.add(self.path.name)
        description = vtkCPDataDescription()
        description.SetTimeData(frame.time, frame.cycle)
        for name in frame.meshes:
            description.AddInput(name)
        if not self._bridge.coprocessor.RequestDataDescription(description):
            return []
        for name in frame.meshes:
            description.GetInputDescriptionByName(name).SetGrid(grid_of(frame, name))
        if not self._bridge.coprocessor.CoProcess(description):
            raise RuntimeError(f"a script failed at cycle {frame.cycle}; ParaView says why above")
        return []

    def close(self) -> None:
        if self._bridge.coprocessor is not None:
            self._bridge.finalize()
            self._bridge.coprocessor = None


def main() -> int:
    parser = argparse.ArgumentParser(prog="pvbatch catalyst.py")
    parser.add_argument("channel")
    parser.add_argument("script", type=Path)
    parser.add_argument("--output", type=Path, default=Path("output"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--timeout", type=float)
    given = parser.parse_args()
    find_penstock()
    from penstock.analysis.run import Analysis, saying_what_is_left_out, text_of_missed
    from penstock.errors import Error

    def say(text: str) -> None:
        print(f"penstock: {text}", file=sys.stderr, flush=True)

    try:
        report = Analysis(
            [given.script],
            [given.channel],
            given.output.absolute(),
            timeout=given.timeout,
            frames=given.steps,
            observe=saying_what_is_left_out(say),
            load=CatalystTask,
        ).run()
    except (Error, OSError, RuntimeError) as error:
        say(str(error))
        return 1
    for name, count in report.missed.items():
        say(text_of_missed(name, count))
    print(json.dumps({"frames": report.frames}))
    return 0


if __name__ == "__main__":
    if status := main():
        sys.exit(status)  # otherwise pvbatch ends by itself, as it does after every script
