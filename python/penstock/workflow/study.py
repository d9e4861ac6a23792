"""The study file: what `penstock run` reads.

    base: other.yaml                       # a study beside this one, of which only what is said here differs
    name: gray-scott                       # default: the file's name
    output: output/gray-scott              # default: output/<name>; relative to the working directory, or {here}/...
    programs:
      simulation: {command: [gray-scott, "{here}/settings.yaml"], ranks: 2}
      analysis: {command: [python, "{here}/analysis.py", "{output}"], after: simulation}   # started after it
      film: {command: [python, "{here}/film.py"], after_end: analysis}                     # once it has ended well
      pictures: {analyze: gray-scott, pipelines: ["{here}/pipeline.yaml"], ranks: 2}       # in situ with engine insitu
    check: [python, "{here}/check.py", "{output}"]   # run at the end; the run fails when it does
    streams: {gray-scott: {engine: pool, queue_steps: 4}}
    meshes: {results: {database: exodus}}  # path: {output}/results.e unless said otherwise
    pool: {servers: 2, memory: 1GiB, disk: "{output}/pool"}   # servers that the run starts, and ends with it
    steps: 50                              # what {steps} stands for, and the end of the progress bar
    timeout_s: 600                         # for everything together; default 3600

Strict: an unknown key, a wrong type or a key given twice is a StudyError that says what to write instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from .._core import mesh_options, stream_options
from ..analysis.channels import ChannelName
from ..errors import InvalidArgument
from ..names import nearest

DEFAULT_TIMEOUT_S = 3600.0
MAX_RANKS = 1 << 20

STUDY_KEYS = ("base", "name", "output", "programs", "check", "streams", "meshes", "pool", "steps", "timeout_s")
PROGRAM_KEYS = ("command", "analyze", "pipelines", "ranks", "after", "after_end", "environment")
POOL_KEYS = ("name", "servers", "memory", "replication", "disk", "tier", "options")
_MESH_FILES = ("exodus", "nemesis")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BRACES = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z_0-9]*)\}")


class StudyError(Exception):
    """The study file is wrong; the message names the file, the place in it, and what to write."""


@dataclass(frozen=True)
class Program:
    """One program of a study: a command line (placeholders already filled in) run as `ranks` processes."""

    name: str
    command: tuple[str, ...]
    ranks: int = 1
    after: tuple[str, ...] = ()  # started after these
    after_end: tuple[str, ...] = ()  # started once these have ended well
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PoolPlan:
    """Servers of a staging pool that are to be started. options: further keys of penstock-server, which its
    --print-config lists."""

    name: str = "default"
    servers: int = 1
    memory: str = "1GiB"
    replication: int = 1
    disk: Path | None = None  # a folder: what the servers keep outlives them; None: memory only
    tier: str = "disk"  # the kind of tier in it
    directory: str = "embedded"  # or etcd://..., or an address
    registration: Path | None = None  # where an embedded directory is registered; None: a folder of its own
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A study file, checked. `programs` is in starting order; paths are absolute."""

    file: Path
    name: str
    here: Path
    output: Path
    programs: tuple[Program, ...]
    check: Program | None = None
    streams: dict[str, dict[str, Any] | str] = field(default_factory=dict)
    coprocessing: dict[str, dict[str, Any]] = field(default_factory=dict)  # what simulations know of their analyses
    meshes: dict[str, dict[str, Any] | str] = field(default_factory=dict)
    pool: PoolPlan | None = None
    steps: int | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S


def load_study(
    file: str | Path, *, output: str | Path | None = None, steps: int | None = None, timeout_s: float | None = None
) -> Study:
    """Reads and checks a study file. The arguments override what the file says; nothing is created or started.

    `steps` reaches the programs as {steps}: a StudyError says so where none of them is given it.
    """
    path = Path(file)
    raw = _read_with_base(path)
    place = str(path)

    name = _text(place, raw, "name", default=path.stem)
    if not _NAME.fullmatch(name):
        raise StudyError(f"{place}: name: {name!r} must be letters, digits, '.', '_' and '-', such as 'gray-scott'")
    here = path.resolve().parent
    if output is None:
        text = _text(place, raw, "output", default=f"output/{name}")
        output = _fill(f"{place}: output", text, {"here": str(here), "name": name})
    output = Path(output)
    if steps is None:
        steps = _number(place, raw, "steps", int, minimum=1)
    elif not any(match[1] == "steps" for match in _BRACES.finditer(str(raw.get("programs")))):
        raise StudyError(
            f"{place}: {steps} steps are asked for, but no program is given {{steps}}; give it to the one that writes, "
            f'such as command: [simulation, --steps, "{{steps}}"]'
        )
    timeout_s = timeout_s if timeout_s is not None else _number(place, raw, "timeout_s", float, minimum=0.001)

    words = {"here": str(here), "output": str(output.resolve()), "name": name}
    if steps is not None:
        words["steps"] = str(steps)
    streams = _streams(place, raw, words)
    programs, coprocessing = _programs(place, raw, words, streams)
    check = raw.get("check")
    return Study(
        file=path.resolve(),
        name=name,
        here=here,
        output=output.resolve(),
        programs=programs,
        check=Program("check", _command(f"{place}: check", check, words)) if check is not None else None,
        streams=streams,
        coprocessing=coprocessing,
        meshes=_meshes(place, raw, words),
        pool=_pool(place, raw, words),
        steps=steps,
        timeout_s=DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s,
    )


# ------------------------------------------------------------------------------------------------------------ parts


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Safe YAML in which a key given twice is an error; PyYAML alone would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=deep)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"'{key}' is given twice", key_node.start_mark)
            if isinstance(key, str):
                seen.add(key)
        mapping: dict[str, Any] = super().construct_mapping(node, deep=deep)
        return mapping


def _read_with_base(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The study, laid over the one it names as its base: mappings are joined key by key, anything else is replaced."""
    raw = _read(path)
    _known_keys(str(path), raw, STUDY_KEYS)
    if "base" not in raw:
        return raw
    base = path.parent / _text(str(path), raw, "base", default="")
    if base.resolve() in (path.resolve(), *above):
        raise StudyError(f"{path}: base: {base} goes in a circle")
    below = _read_with_base(base, (path.resolve(), *above))
    joined: dict[str, Any] = _joined(below, {key: value for key, value in raw.items() if key != "base"})
    return joined


def _joined(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return {**below, **{key: _joined(below.get(key), value) for key, value in above.items()}}


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        near = sorted(p.name for p in path.parent.glob("*.y*ml")) if path.parent.is_dir() else []
        hint = f"; the folder has: {', '.join(near[:8])}" if near else ""
        raise StudyError(f"{path}: no such file{hint}") from None
    except IsADirectoryError:
        raise StudyError(f"{path} is a folder; give the study file in it, such as {path}/study.yaml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path}: {error}") from None
    try:
        raw = yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        hint = ""
        if re.search(r"[\[,]\s*\{(here|output|steps|name)\}", text):
            hint = '\nWords with {here} or {output} need quotes: [python, "{here}/analysis.py"]'
        at, why = "", str(error)
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
            at, why = f":{error.problem_mark.line + 1}", str(error.problem)
        raise StudyError(f"{path}{at}: not valid YAML: {why}{hint}") from None
    if not isinstance(raw, dict):
        raise StudyError(f"{path}: a study is a mapping that has at least 'programs:'; this file holds {_kind(raw)}")
    return raw


def _kind(value: Any) -> str:
    names = {type(None): "nothing", str: "text", bool: "true/false", list: "a list", dict: "a mapping"}
    return names.get(type(value), f"a {type(value).__name__}")


def _known_keys(place: str, raw: dict[str, Any], known: Iterable[str]) -> None:
    for key in raw:
        if key not in known:
            raise StudyError(f"{place}: unknown key '{key}'{nearest(key, known)}")


def _text(place: str, raw: dict[str, Any], key: str, default: str) -> str:
    value = raw.get(key, default)
    if not isinstance(value, str) or not value:
        raise StudyError(f"{place}: {key}: text is needed, not {_kind(value)}")
    return value


def _number(place: str, raw: dict[str, Any], key: str, kind: type, minimum: float, default: Any = None) -> Any:
    value = raw.get(key, default)
    if value is None and key not in raw:
        return default
    allowed = (int, float) if kind is float else (int,)
    if isinstance(value, bool) or not isinstance(value, allowed):
        what = "a number" if kind is float else "a whole number"
        raise StudyError(f"{place}: {key}: {what} is needed, not {value!r}")
    if not minimum <= value < float("inf"):
        raise StudyError(f"{place}: {key}: {value} is out of range; at least {minimum:g}")
    return kind(value)


def engine_of(options: dict[str, Any] | str | None) -> str:
    """The engine that a stream's options name; empty where they name none."""
    if isinstance(options, str):
        return options.partition(",")[0].strip().removeprefix("engine=")
    return str((options or {}).get("engine", ""))


def engine_in_effect(streams: dict[str, dict[str, Any] | str], stream: str) -> str:
    """The engine of a stream of a study: the environment's word, or the study's, for this stream or for all."""
    variables = ("PENSTOCK_STREAM_" + re.sub(r"[^A-Za-z0-9]", "_", stream).upper(), "PENSTOCK_STREAMS")
    words = [os.environ.get(variable, "") for variable in variables]
    named = [word for word in words if "=" not in word.split(",")[0] or word.startswith("engine=")]
    found = (engine_of(options) for options in (*named, streams.get(stream), streams.get("*")))
    return next((engine for engine in found if engine), "")


def _programs(
    place: str, raw: dict[str, Any], words: dict[str, str], streams: dict[str, dict[str, Any] | str]
) -> tuple[tuple[Program, ...], dict[str, dict[str, Any]]]:
    """The programs to start, and what the simulations are told of their analyses, which they run with engine insitu."""
    section = raw.get("programs")
    if not isinstance(section, dict) or not section:
        raise StudyError(
            f"{place}: 'programs' is needed: a mapping of names to programs, such as\n"
            f'  programs:\n    simulation: {{command: [gray-scott, "{{here}}/settings.yaml"], ranks: 2}}'
        )
    programs: dict[str, Program] = {}
    announced: dict[str, dict[str, Any]] = {}
    for name, entry in section.items():
        at = f"{place}: programs.{name}"
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "check":
            raise StudyError(f"{at}: a program's name is letters, digits, '.', '_' and '-', and not 'check'")
        if not isinstance(entry, dict):
            raise StudyError(f"{at}: {{command: [...]}} is needed, not {_kind(entry)}")
        _known_keys(at, entry, PROGRAM_KEYS)
        if "command" not in entry and "analyze" not in entry:
            raise StudyError(f"{at}: 'command' is missing, such as command: [{name}, --steps, 50]")
        if "command" in entry and "analyze" in entry:
            raise StudyError(f"{at}: 'command' or 'analyze' is needed, not both")
        ranks = _number(at, entry, "ranks", int, minimum=1, default=1)
        if not ranks <= MAX_RANKS:
            raise StudyError(f"{at}: ranks: {ranks} is out of range; at most {MAX_RANKS}")
        if "analyze" in entry:
            channel = _text(at, entry, "analyze", default="")
            pipelines = _command(f"{at}.pipelines", entry.get("pipelines"), words)
            try:
                of_region = ChannelName.parse(channel).region
            except InvalidArgument as error:
                raise StudyError(f"{at}: analyze: {error}") from None
            if not of_region:
                # With other engines this says that an analysis is to be expected.
                told = announced.setdefault(channel, {"pipelines": [], "output": words["output"]})
                told["pipelines"] += pipelines
                if engine_in_effect(streams, channel) == "insitu":
                    continue
            command: tuple[str, ...] = ("penstock", "analyze", channel, *pipelines, "--output", words["output"])
            command, ranks = (*command, "--ranks", str(ranks)), 1
        else:
            command = _command(f"{at}.command", entry["command"], words)
        programs[name] = Program(
            name=name,
            command=command,
            ranks=ranks,
            after=_after(f"{at}: after", entry.get("after", []), section),
            after_end=_after(f"{at}: after_end", entry.get("after_end", []), section),
            environment=_environment(f"{at}.environment", entry.get("environment", {}), words),
        )
    for name, program in programs.items():
        for other in program.after_end:
            if other not in programs:
                raise StudyError(
                    f"{place}: programs.{name}: after_end: "
                    f"engine insitu makes '{other}' a part of the simulation: name it"
                )
        programs[name] = replace(program, after=tuple(other for other in program.after if other in programs))
    return _in_order(place, programs), announced


def _after(at: str, value: Any, section: dict[str, Any]) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise StudyError(f"{at}: the name of a program, or a list of names")
    for name in names:
        if name not in section:
            raise StudyError(f"{at}: there is no program '{name}'{nearest(name, section)}")
    return tuple(names)


def _in_order(place: str, programs: dict[str, Program]) -> tuple[Program, ...]:
    """As listed, except that a program comes after those it names."""
    ordered: list[Program] = []
    waiting = list(programs.values())
    while waiting:
        started = {p.name for p in ordered}
        ready = next((p for p in waiting if started.issuperset(p.after + p.after_end)), None)
        if ready is None:
            raise StudyError(f"{place}: programs wait for one another in 'after': {', '.join(p.name for p in waiting)}")
        ordered.append(ready)
        waiting.remove(ready)
    return tuple(ordered)


def _command(at: str, value: Any, words: dict[str, str]) -> tuple[str, ...]:
    if isinstance(value, str):
        as_list = "[" + ", ".join(value.split()) + "]"
        raise StudyError(f"{at}: a list of words is needed, not one text: {as_list}")
    if not isinstance(value, list) or not value:
        raise StudyError(f"{at}: a list of words is needed, such as [python, analysis.py], not {_kind(value)}")
    return tuple(_fill(at, word, words) for word in value)


def _environment(at: str, value: Any, words: dict[str, str]) -> dict[str, str]:
    if not isinstance(value, dict):
        raise StudyError(f"{at}: a mapping of variables to values is needed, not {_kind(value)}")
    for key in value:
        if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", key):
            raise StudyError(f"{at}: {key!r} is not the name of an environment variable")
    return {key: _fill(f"{at}.{key}", word, words) for key, word in value.items()}


def _fill(at: str, word: Any, words: dict[str, str]) -> str:
    """The word as text, {here} and the like replaced; {{ and }} stand for the braces themselves."""
    if isinstance(word, bool) or not isinstance(word, str | int | float):
        raise StudyError(f"{at}: {word!r} ({_kind(word)}) must be text; put it in quotes")

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        if match[1] in words:
            return words[match[1]]
        if match[1] == "steps" and "output" in words:
            raise StudyError(f"{at}: {{steps}} is used but the study has no 'steps:'")
        raise StudyError(f"{at}: unknown placeholder {{{match[1]}}}{nearest(match[1], words)} (a brace itself: {{{{)")

    return _BRACES.sub(replace, str(word))


def _pool(place: str, raw: dict[str, Any], words: dict[str, str]) -> PoolPlan | None:
    if "pool" not in raw:
        return None
    section = raw["pool"] if raw["pool"] is not None else {}
    at = f"{place}: pool"
    if not isinstance(section, dict):
        raise StudyError(f"{at}: options are needed, such as {{servers: 2, memory: 1GiB}}, not {_kind(section)}")
    _known_keys(at, section, POOL_KEYS)
    options = section.get("options", {})
    if not isinstance(options, dict) or not all(isinstance(v, str | int | float | bool) for v in options.values()):
        raise StudyError(f"{at}.options: a mapping of keys of penstock-server to values is needed")
    servers = _number(at, section, "servers", int, minimum=1, default=2)
    replication = _number(at, section, "replication", int, minimum=1, default=1)
    if replication > servers:
        raise StudyError(f"{at}: replication: {replication} replicas need at least as many servers")
    memory = section.get("memory", PoolPlan.memory)
    if isinstance(memory, bool) or not isinstance(memory, str | int):
        raise StudyError(f"{at}: memory: a size is needed, such as 1GiB, not {_kind(memory)}")
    disk = section.get("disk")
    return PoolPlan(
        name=_text(at, section, "name", default=PoolPlan.name),
        servers=servers,
        memory=str(memory),
        replication=replication,
        disk=Path(_fill(f"{at}.disk", disk, words)).resolve() if disk is not None else None,
        tier=_text(at, section, "tier", default=PoolPlan.tier),
        options={str(k): _fill(f"{at}.options.{k}", _word(v), words) for k, v in options.items()},
    )


def _word(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value


def _streams(place: str, raw: dict[str, Any], words: dict[str, str]) -> dict[str, dict[str, Any] | str]:
    """The streams' options. Steps of engine file are a result: without a folder they go to the output."""
    streams = _options_by_name(place, raw, words, "streams", stream_options)
    for name, options in streams.items():
        folder = f"{words['output']}/{name}.steps"
        if isinstance(options, str):
            in_files = options.split(",")[0].strip() == "file" and "folder=" not in options
            streams[name] = f"{options},folder={folder}" if in_files and name != "*" else options
        elif options.get("engine") == "file" and name != "*":
            options.setdefault("folder", folder)
    return streams


def _meshes(place: str, raw: dict[str, Any], words: dict[str, str]) -> dict[str, dict[str, Any] | str]:
    """The mesh regions' options. Files are a result: without a path they go to the output."""
    meshes = _options_by_name(place, raw, words, "meshes", mesh_options)
    for name, options in meshes.items():
        file = f"{words['output']}/{name}.e"
        if isinstance(options, str):
            in_files = options.split(",")[0].strip() in _MESH_FILES and "path=" not in options
            meshes[name] = f"{options},path={file}" if in_files and name != "*" else options
        elif options.get("database") in _MESH_FILES and name != "*":
            options.setdefault("path", file)
    return meshes


def _options_by_name(
    place: str, raw: dict[str, Any], words: dict[str, str], section: str, known: Iterable[str]
) -> dict[str, dict[str, Any] | str]:
    """A section of options: a mapping for each name, or the short form as text, which the library checks."""
    found: dict[str, dict[str, Any] | str] = {}
    given = raw.get(section, {})
    if not isinstance(given, dict):
        raise StudyError(f"{place}: {section}: a mapping of names to options is needed, not {_kind(given)}")
    for name, options in given.items():
        at = f"{place}: {section}.{name}"
        if not isinstance(name, str):
            raise StudyError(f"{at}: a name must be text; put it in quotes")
        if isinstance(options, str):
            found[name] = options
            continue
        if not isinstance(options, dict):
            example = "{queue_steps: 4}" if section == "streams" else "{database: exodus}"
            raise StudyError(f"{at}: options are needed, such as {example}, not {_kind(options)}")
        _known_keys(at, options, known)
        for key, value in options.items():
            if not isinstance(value, str | int | float | bool):
                raise StudyError(f"{at}.{key}: one value is needed, not {_kind(value)}")
        found[name] = {k: _fill(f"{at}.{k}", v, words) if isinstance(v, str) else v for k, v in options.items()}
    return found
