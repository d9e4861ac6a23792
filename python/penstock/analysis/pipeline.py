"""The pipeline file: what an analysis does at which steps.

    when: cycle % 10 == 0                 # default trigger of everything below; default: every step
    queries: {top: max(V)}                # expressions by name, for triggers and tables
    pipelines:                            # chains of filters by name
      surface: [{contour: {field: V, value: 0.2}}]
    scenes:                               # pictures: of a pipeline, of filters given inline, or of several `plots`
      surface: {pipeline: surface, color: U, range: [0.33, 0.66], label: "step {cycle}"}
      both: {plots: [{pipeline: surface, opacity: 0.5}, {slice: z, color: V}], when: top > 0.3}
    extracts:                             # files: csv (values or a chain), vtk, vtkhdf, blueprint; or a stream
      table: {type: csv, values: {top: top, mean_U: mean(U)}}
      data: {type: vtk, pipeline: surface, fields: [U, V]}

    steering:                             # values of the simulation's parameters, from the next step on
      F: 0.03 + 0.01 * (top > 0.5)

`mesh: NAME` where a chain starts; default: the only mesh there is. Importing this module does not import VTK.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..errors import InvalidArgument, NotFound
from ..names import nearest
from . import schema
from .expressions import Expression, Values, compile_when
from .records import WORD, Extract, Scene, by_name, chain, expression, extract, fields_of, scene, union
from .schema import Kind, Place, Source, plain, read_text

# ------------------------------------------------------------------------------------------------------- the whole file


def _ordered(queries: dict[str, Expression], source: Source) -> dict[str, Expression]:
    """Each after those whose value it takes; an error when there is no such order."""
    ordered: dict[str, Expression] = {}
    for _ in queries:
        ready = [n for n in queries if n not in ordered and queries[n].current <= ordered.keys()]
        ordered |= {name: queries[name] for name in ready}
    for name in queries.keys() - ordered.keys():
        source.report(("queries", name), "depends on itself; previous() takes the value of the step before")
    return ordered


_KEYS = ("when", "queries", "pipelines", "scenes", "extracts", "steering")


class Pipeline:
    """A pipeline file, checked: `when`, and by name `queries` (in the order to evaluate them), `pipelines`, `scenes`
    and `extracts`. error: why the file's newest content is not in force, else None."""

    def __init__(self, text: str, name: str = "pipeline"):
        """PipelineError with all that is wrong in the text; the name stands in it."""
        self.path: Path | None = None
        self.error: InvalidArgument | None = None
        self._seen: tuple[Any, ...] = ()
        self._read(text, name)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Pipeline:
        """PipelineError: no such file, or what is wrong in it."""
        text = read_text(Path(path))
        pipeline = cls(text, str(path))
        pipeline.path = Path(path)
        pipeline._seen = (_state_of(pipeline.path), _digest(text))
        return pipeline

    def _read(self, text: str, name: str) -> None:
        source = Source(text, name)
        data = source.data if source.data is not None else {}
        if not isinstance(data, dict):
            raise schema.PipelineError(f"{name}: a mapping is needed, with {', '.join(_KEYS)}")
        for key in data:
            if key not in _KEYS:
                source.report((str(key),), f"unknown key{nearest(str(key), _KEYS)}")
        given = data.get("queries")
        names: dict[str, Any] = {"queries": given if isinstance(given, dict) else {}, "pipelines": {}}
        place = Place(source, (), names)

        def read(key: str, kind: Kind, default: Any) -> Any:
            return schema.read_kind(kind, data.get(key, default), place.at(key))

        queries = read("queries", by_name(expression, WORD), {}) or {}
        when = read("when", expression, "1")
        names["when"] = when or Expression("1")
        if None not in queries.values():
            names["queries"] = _ordered(queries, source)
        pipelines = names["pipelines"] = read("pipelines", by_name(chain), {}) or {}
        scenes, extracts = read("scenes", by_name(scene), {}), read("extracts", by_name(extract), {})
        self.steering: dict[str, Expression] = read("steering", by_name(expression), {}) or {}
        source.check()
        self.text, self.when, self.queries, self.pipelines = text, when, names["queries"], pipelines
        self.scenes, self.extracts = scenes, extracts

    # ------------------------------------------------------------------------------------------------------ reloading

    def changed_text(self) -> str | None:
        """The file's content if it is another one than at the last call or load; None otherwise, and after an error,
        which `error` then holds. For one rank, which gives it to replace() on all."""
        state = _state_of(self.path) if self.path is not None else None
        if self.path is None or (self._seen and state == self._seen[0]):
            return None
        try:
            text = read_text(self.path)
        except schema.PipelineError as error:
            self.error, self._seen = error, (state, None)
            return None
        digest = _digest(text)
        same, self._seen = digest == self._seen[1], (state, digest)
        return None if same else text

    def replace(self, text: str) -> bool:
        """Puts another text in force; False when it is wrong: `error` says why, and what was in force stays so."""
        try:
            self._read(text, str(self.path or "pipeline"))
            self.error = None
        except schema.PipelineError as error:
            self.error = error
        return self.error is None

    # ------------------------------------------------------------------------------------------------- what it needs

    @property
    def triggered(self) -> list[Scene | Extract]:
        return [*self.scenes.values(), *self.extracts.values()]

    def expressions(self) -> list[Expression]:
        """All that a step may evaluate: queries, triggers, values of tables."""
        tables = [e for x in self.extracts.values() for e in (x.values or {}).values()]
        return [*self.queries.values(), *(one.when for one in self.triggered), *tables, *self.steering.values()]

    @property
    def keeps(self) -> frozenset[Any]:
        """Keys of what its filters keep from frame to frame."""
        chains = [*self.extracts.values(), *(plot for each in self.scenes.values() for plot in each.plots)]
        return frozenset().union(*(link.keeps() for each in chains for link in each.filters))

    @property
    def history_length(self) -> int:
        """How many steps back previous() looks; at least 1."""
        return max([1, *(e.depth for e in self.expressions())])

    def evaluate_queries(self, values: Values) -> None:
        """Adds to values.queries those queries whose reductions and queries are there."""
        for name, query in self.queries.items():
            if all(r.text in values.reduced for r in query.reductions) and query.current <= values.queries.keys():
                values.queries[name] = query.evaluate(values)

    def demand(self) -> list[dict[str, Any]]:
        """The rules {"fields": names or None for all, "when": program} for the coprocessor; one for each program.

        Queries and steering are asked for at the steps of the default trigger, queries also with whatever names them.
        """
        never = [0]
        rules: dict[Any, Any] = {}
        wanted = [(compile_when(one.when), one.fields) for one in self.triggered]
        wanted += [
            (compile_when(self.when), fields_of(each, self.queries))
            for each in (*self.queries.values(), *self.steering.values())
        ]
        for program, fields in wanted:
            if program != never:
                rules.setdefault(tuple(program), []).append(fields)
        merged = ((list(program), union(fields)) for program, fields in rules.items())
        return [{"fields": None if f is None else sorted(f), "when": program} for program, f in merged]

    def check_names(self, known: Collection[str], meshes: Collection[str] = ()) -> None:
        """PipelineError with every field that is not among those known, and every mesh (without meshes: no mesh)."""
        outputs = [(kind, n, one) for kind in ("scenes", "extracts") for n, one in getattr(self, kind).items()]
        where = {f"{kind}.{n}": (one.fields, one.made | set(known)) for kind, n, one in outputs}
        expressions = [("queries", n, each) for n, each in self.queries.items()]
        expressions += [("steering", n, each) for n, each in self.steering.items()]
        where |= {f"{kind}.{n}": (each.fields, frozenset(known)) for kind, n, each in expressions}
        none = "" if known else ": the steps have no mesh with fields; the simulation has to publish one"
        problems = [
            f"{self.path or 'pipeline'}: {place}: there is no field '{name}'{none or nearest(name, sorted(near))}"
            for place, (fields, near) in where.items()
            for name in sorted((fields or frozenset()) - set(known))
        ]
        problems += [
            f"{self.path or 'pipeline'}: {kind}.{n}: there is no mesh '{mesh}'{nearest(mesh, sorted(meshes))}"
            for kind, n, one in outputs
            for mesh in sorted({each.mesh for each in one.chains if each.mesh is not None} - set(meshes))
            if meshes
        ]
        if problems:
            raise schema.PipelineError(*problems)

    def to_yaml(self) -> str:
        """The pipeline in force, with all defaults; Pipeline() reads it again."""
        parts = {key: plain(getattr(self, key)) for key in _KEYS}
        return str(yaml.safe_dump(parts, sort_keys=False, allow_unicode=True))


def the_mesh(wanted: str | None, known: Sequence[str]) -> str:
    """The mesh that a chain starts from. NotFound: none of that name; InvalidArgument: none named of several."""
    if wanted is None and len(known) == 1:
        return known[0]
    if wanted is None:
        raise InvalidArgument(f"mesh: one of {', '.join(known)} is needed" if known else "there is no mesh")
    if wanted not in known:
        raise NotFound(f"there is no mesh '{wanted}'{nearest(wanted, known)}")
    return wanted


def _state_of(path: Path) -> tuple[int, ...] | None:
    try:
        state = path.stat()
    except OSError:
        return None
    return (state.st_mtime_ns, state.st_size, state.st_ino)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
