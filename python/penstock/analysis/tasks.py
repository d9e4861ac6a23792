"""What an analysis does at each frame: a pipeline file (YAML), or a script (Python)."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..cohort import rank_of
from ..context import Context
from ..errors import InvalidArgument, NotFound, Unsupported
from .agreement import exchange, together
from .chain import Table, apply_chain
from .expressions import Expression, Values, compile_when, run_program
from .extracts import ExtractWriter
from .frame import Clock, Frame, Lacking
from .pipeline import Pipeline, the_mesh
from .records import Extract, Plot, Scene, fields_of, union
from .reductions import History, Reductions
from .schema import PipelineError
from .streams import StreamExtract

HISTORY = "history.json"
SETTLED_S = 0.2  # so long a file must have been left alone
MAX_SAID = 5  # names in one message


class Missed:
    """Steps that were left out as they lacked a field, a mesh or a channel: by the name of what could not be done,
    `counts`, and `first`, the first of them and what it lacked. used: names of what could be done at some step."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        self.used: set[str] = set()

    def add(self, name: str, frame: Frame, lacking: str) -> None:
        self.counts[name] += 1
        cycle = f" (cycle {frame.cycle})" if frame.cycle != frame.number else ""
        self.first.setdefault(name, f"step {frame.number}{cycle}: {lacking}")

    def check(self, program: str) -> None:
        """NotFound where something could use no step."""
        if never := self.counts.keys() - self.used:
            what = "; ".join(f"{name} first at {self.first[name]}" for name in sorted(never)[:MAX_SAID])
            raise NotFound(f"{program}: no step held what it needs; {what}")

    def keep(self, names: Collection[str]) -> None:
        """Forgets what an edit has removed."""
        for name in self.counts.keys() - set(names):
            del self.counts[name], self.first[name]


class Task(Protocol):
    """One program of an analysis. All calls but look() and demand() are collective."""

    path: Path
    problem: str  # why its newest content is not in force, or empty
    missed: Missed

    @property
    def keeps(self) -> frozenset[Any]:
        """Keys of what its filters keep from frame to frame."""

    def demand(self, text: str | None = None) -> list[dict[str, Any]]:
        """The rules of what it (or its text to be) wants to see: requests.Requests.demand()."""

    def look(self) -> str | None:
        """The program's text if it was edited since the last call, and is right. For rank 0, which gives it to
        replace() on all."""

    def replace(self, text: str) -> None: ...

    def run(self, frame: Frame) -> list[Path]:
        """Analyses one frame. The files that were written, of rank 0."""

    def close(self) -> None: ...


class PipelineTask:
    """A pipeline file."""

    def __init__(self, path: Path, output: Path, cohort: Any, context: Context, clock: Clock):
        text = exchange(cohort, lambda: None, lambda _: Pipeline.load(path).text)
        self.pipeline = Pipeline(text, str(path))
        self.pipeline.path = self.path = path
        self.problem = ""
        self.missed = Missed()
        self._before = ""  # what was in force before an edit whose fields could not be checked yet
        self._file = Pipeline.load(path) if rank_of(cohort) == 0 else None  # as last looked at
        self._output, self._cohort, self._context, self._clock = output, cohort, context, clock
        # Of the last frame that named all; or, until a frame has named all, the fields seen so far.
        self._known: set[str] | None = None
        self._meshes: set[str] = set()
        self._checked = False  # what is in force names no other fields and meshes than a frame that named all
        self._first = True
        self._goes_on = False  # with what an analysis of the same run has left
        self._edited: set[str] = set()  # extracts that have begun before an edit
        self._history = History(self.pipeline.history_length)
        self._renderers: dict[str, Any] = {}
        self._writers: dict[str, ExtractWriter] = {}
        self._streams: dict[str, StreamExtract] = {}

    @property
    def keeps(self) -> frozenset[Any]:
        return self.pipeline.keeps

    def demand(self, text: str | None = None) -> list[dict[str, Any]]:
        return (self.pipeline if text is None else Pipeline(text)).demand()

    def look(self) -> str | None:
        file = self._file
        assert file is not None and file.path is not None  # of rank 0
        if _being_written(file.path):
            return None
        text = file.changed_text()
        if text is None:
            self.problem = str(file.error or self.problem)
            return None
        try:
            if not text.strip():
                raise PipelineError(f"{file.path} is empty")
            edited = Pipeline(text, str(file.path))
            edited.path = file.path
            if self._known is not None:
                edited.check_names(self._known, self._meshes)
        except PipelineError as error:
            self.problem = str(error)
            return None
        self.problem, file.error = "", None
        return text

    def replace(self, text: str) -> None:
        if not self._checked:
            self._before = self._before or self.pipeline.text
        self.pipeline.replace(text)
        self.missed.keep([one.name for one in self.pipeline.triggered])
        self._history.keep(["cycle", *self.pipeline.queries], self.pipeline.history_length)
        self._close_outputs()

    def run(self, frame: Frame) -> list[Path]:
        pipeline = self.pipeline
        if frame.names_all:
            self._check(frame.known_fields, frame.known_meshes)
        elif frame.complete and frame.held_fields:
            self._known = (self._known or set()) | frame.known_fields
        if self._first:
            self._go_on(frame)
        values = Values(frame.cycle, frame.time, frame.cycle, history=self._history)
        possible = [one for one in pipeline.triggered if self._may_hold(one.when, frame)]
        with self._clock("queries"):
            self._evaluate(frame, values, possible)
        written = []
        for one in possible:
            if lacking := self._lacks(one, frame):
                self.missed.add(one.name, frame, lacking)
                continue
            self.missed.used.add(one.name)
            if one.when.holds(values) and (path := self._do(one, frame, values)) is not None:
                written.append(path)
        self._steer(frame, values)
        whole = frame.whole_fields
        known = {n: v for n, v in values.queries.items() if fields_of(pipeline.queries[n], pipeline.queries) <= whole}
        self._history.record(known | {"cycle": frame.cycle})
        if rank_of(self._cohort) == 0 and self._goes_on_later:
            self._history.save(self._output / HISTORY)
        return written

    # ---------------------------------------------------------------------------------------------------- one frame

    def _check(self, fields: set[str], meshes: set[str]) -> None:
        """Raises PipelineError for fields and meshes that there are not. An edit that has some is taken back."""
        if not self._checked:
            try:
                self.pipeline.check_names(fields, meshes)
            except PipelineError as error:
                if not self._before:
                    raise
                self.problem = str(error)
                self.replace(self._before)
                self.pipeline.check_names(fields, meshes)
            self._checked, self._before = True, ""
        self._known, self._meshes = fields, meshes

    @property
    def _goes_on_later(self) -> bool:
        """An analysis that starts again needs to know of this one."""
        tables = any(one.values for one in self.pipeline.extracts.values())
        return tables or any(each.depth for each in self.pipeline.expressions())

    def _go_on(self, frame: Frame) -> None:
        """An analysis that was started again takes over the history and the tables of the one before."""
        self._first = False
        path = self._output / HISTORY

        def load(_: Any) -> History | None:
            history = History(self.pipeline.history_length)
            if not history.load(path):
                return None
            known = frame.writer != "" and history.writer != ""
            same = history.writer == frame.writer if known else history.previous("cycle") < frame.cycle
            history.writer = frame.writer
            return history if same and frame.live else None

        found = exchange(self._cohort, lambda: None, load)
        self._goes_on = found is not None
        self._history = found or self._history
        self._history.writer = frame.writer

    @staticmethod
    def _lacks(one: Scene | Extract, frame: Frame) -> str:
        """What the step lacks of what it needs; empty if nothing."""
        if isinstance(one, Extract) and one.values is not None:
            return frame.lacks_fields(one.fields or ())
        chains: Sequence[Plot | Extract] = one.plots if isinstance(one, Scene) else [one]
        lacking = (each for chain in chains if (each := frame.lacks(chain.mesh, chain.needs)))
        return next(lacking, "") or frame.lacks_fields(fields_of(one.when, one.queries))

    @staticmethod
    def _may_hold(when: Expression, frame: Frame) -> bool:
        return run_program(_program(when), frame.cycle, frame.time)

    def _evaluate(self, frame: Frame, values: Values, possible: Iterable[Scene | Extract]) -> None:
        """The reductions and queries of this step: those of what may happen, and all of the default trigger."""
        needed = [one.when for one in possible]
        needed += [e for one in possible if isinstance(one, Extract) for e in (one.values or {}).values()]
        queries = self.pipeline.queries
        if self._may_hold(self.pipeline.when, frame):
            needed += [*queries.values(), *self.pipeline.steering.values()]
        named = {name for each in needed for name in each.queries}
        while more := {name for query in named for name in queries[query].queries} - named:
            named |= more
        needed += [queries[name] for name in named]
        reductions = Reductions(needed, frame.whole_fields)
        if reductions.fields:
            from .parts import owned_fields

            parts = [
                owned_fields(part, reductions.fields)
                for mesh in frame.meshes
                if reductions.fields & set(frame.fields(mesh))
                for part in frame.vtk(mesh, sorted(reductions.fields))
            ]
            if rank_of(self._cohort) == 0:
                parts += [{name: frame.values[name]} for name in sorted(reductions.fields & frame.values.keys())]
            values.reduced |= reductions.compute(parts, values, self._cohort)
        self.pipeline.evaluate_queries(values)

    def _do(self, one: Scene | Extract, frame: Frame, values: Values) -> Path | None:
        section = "scenes" if isinstance(one, Scene) else "extracts"
        place = f"{self.pipeline.path}: {section}.{one.name}: "
        try:
            return self._make(one, frame, values)
        except (InvalidArgument, NotFound, Unsupported) as error:
            if place not in str(error):  # another rank may have failed with it
                error.args = (f"{place}{error}",)
            raise
        except OSError as error:
            if error.strerror and place not in error.strerror:
                raise type(error)(error.errno, f"{place}{error.strerror}", error.filename) from error
            raise

    def _make(self, one: Scene | Extract, frame: Frame, values: Values) -> Path | None:
        if isinstance(one, Scene):
            return self._draw(one, frame, values)
        result = None
        if one.values is None:
            with self._clock("filter"):
                result = together(self._cohort, lambda: self._result(one, one.selected, frame))
        with self._clock("write"):
            return self._writer(one).write(result, values)

    def _result(self, chain: Extract, also: Iterable[str] | None, frame: Frame) -> list[Any] | Table:
        name = the_mesh(chain.mesh, frame.meshes)
        fields = None if also is None and not chain.makes_table else chain.chain_fields(*(also or ()))
        parts = frame.parts(name, None if fields is None else sorted(fields))
        return apply_chain(chain.filters, parts, self._cohort, f"{self.path}: {chain.name}")

    def _draw(self, scene: Scene, frame: Frame, values: Values) -> Path | None:
        from .scene import SceneRenderer

        if scene.name not in self._renderers:
            self._renderers[scene.name] = SceneRenderer(scene, self._output, self._cohort, self._context)
        renderer = self._renderers[scene.name]
        names = {the_mesh(plot.mesh, frame.meshes) for plot in scene.plots}
        fields = {name: self._fields_of(scene, name, frame) for name in names}
        parts = {n: frame.parts(n, None if chosen is None else sorted(chosen)) for n, chosen in fields.items()}
        before = dict(renderer.seconds)
        path: Path | None = renderer.render(parts, values, {name: frame.boxes(name) for name in names})
        for what, seconds in renderer.seconds.items():
            self._clock.seconds[what] += seconds - before.get(what, 0.0)
        return path

    @staticmethod
    def _fields_of(scene: Scene, mesh: str, frame: Frame) -> frozenset[str] | None:
        wanted = [plot.fields for plot in scene.plots if the_mesh(plot.mesh, frame.meshes) == mesh]
        return union(wanted)

    def _writer(self, extract: Extract) -> ExtractWriter:
        if extract.name not in self._writers:
            goes_on = self._goes_on or extract.name in self._edited
            self._writers[extract.name] = ExtractWriter(extract, self._output, self._cohort, self._publish, goes_on)
        return self._writers[extract.name]

    def _publish(self, extract: Extract, result: list[Any] | Table, values: Values) -> None:
        if extract.name not in self._streams:
            self._streams[extract.name] = StreamExtract(extract, self._context, self._cohort)
        self._streams[extract.name].publish(result, int(values.cycle), float(values.time))

    def _steer(self, frame: Frame, values: Values) -> None:
        """Numbers that are not finite leave a parameter as it is."""
        if self.pipeline.when.holds(values):
            numbers: dict[str, float] = {name: each.evaluate(values) for name, each in self.pipeline.steering.items()}
            frame.steer(**{name: float(value) for name, value in numbers.items() if np.isfinite(value)})

    # ----------------------------------------------------------------------------------------------------------- end

    def _close_outputs(self) -> None:
        for renderer in self._renderers.values():
            renderer.close()
        for stream in self._streams.values():
            stream.close()
        self._edited |= self._writers.keys()
        self._renderers, self._writers, self._streams = {}, {}, {}

    def close(self) -> None:
        self._close_outputs()


_program = functools.lru_cache(1024)(compile_when)  # triggers are looked at in every frame


def _being_written(path: Path) -> bool:
    """An editor may not have written all of it yet."""
    try:
        return 0 <= time.time() - path.stat().st_mtime < SETTLED_S
    except OSError:
        return False


class ScriptTask:
    """A Python file with a function analyze(step), called with each Frame; what it returns, if a path or several, is
    listed among the results.

    FIELDS in it: names of the fields that it reads; without it, all. Steps that lack one of them, or a mesh or field
    that analyze() asks the frame for on any rank, are left out. WHEN: an expression over cycle and time; without
    it, every step. finish(), if there, is called after the last step.
    """

    def __init__(self, path: Path):
        self.path = path
        self.problem = ""
        self.missed = Missed()
        self.keeps: frozenset[Any] = frozenset()  # not known
        spec = spec_from_file_location(f"penstock_analysis_{path.stem}", path)
        assert spec is not None and spec.loader is not None  # of a file *.py
        self.module = module_from_spec(spec)
        try:
            spec.loader.exec_module(self.module)
        except SyntaxError as error:
            raise PipelineError(f"{path}: {error}") from None
        if not callable(getattr(self.module, "analyze", None)):
            raise PipelineError(f"{path}: a function analyze(step) is needed")
        self.fields = getattr(self.module, "FIELDS", None)
        self.when = Expression(getattr(self.module, "WHEN", "1"))
        if self.when.reductions or self.when.queries:
            raise InvalidArgument(f"{path}: WHEN is over cycle and time, not '{self.when}'; test the data in analyze()")

    def demand(self, text: str | None = None) -> list[dict[str, Any]]:
        fields = None if self.fields is None else sorted(self.fields)
        return [{"fields": fields, "when": compile_when(self.when)}]

    def look(self) -> None:
        return None

    def replace(self, text: str) -> None:
        raise NotImplementedError("scripts are not read again")

    def run(self, frame: Frame) -> list[Path]:
        if not self.when.holds(Values(frame.cycle, frame.time, frame.cycle)):
            return []
        try:
            if lacking := frame.lacks_fields(self.fields or (), of_any_mesh=True):
                raise Lacking(lacking)
            made = together(frame.cohort, lambda: self.module.analyze(frame))
        except Lacking as error:
            self.missed.add(self.path.name, frame, str(error))
            return []
        self.missed.used.add(self.path.name)
        made = [made] if isinstance(made, str | Path) else made or []
        return [Path(path) for path in made]

    def close(self) -> None:
        if callable(getattr(self.module, "finish", None)):
            self.module.finish()


def load(path: Path, output: Path, cohort: Any, context: Context, clock: Clock) -> Task:
    """The task of a file: .py is a script, anything else a pipeline. Collective."""
    return ScriptTask(path) if path.suffix == ".py" else PipelineTask(path, output, cohort, context, clock)
