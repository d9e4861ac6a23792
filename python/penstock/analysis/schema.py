"""From YAML to checked dataclasses, by one mechanism; every error of a file is reported, with its line.

A dataclass's field is an option when it is made by option(kind, default). A kind is a function of a value and its
Place; it gives the checked value, or raises Problem with what is wanted instead.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ..errors import InvalidArgument, NotFound
from ..names import nearest

T = TypeVar("T")
MAX_BYTES = 1 << 20
MAX_NODES = 20_000
MAX_DEPTH = 20
MAX_PROBLEMS = 50
Kind = Callable[[Any, "Place"], Any]


class Problem(ValueError):
    """One value is wrong; the text says what is wanted."""


class PipelineError(InvalidArgument):
    """A file is wrong; `problems` are lines "file:line: place: what"."""

    def __init__(self, *problems: str):
        super().__init__("\n".join(problems))
        self.problems = problems


class Source:
    """A YAML text: its plain data, the lines of its keys, and the errors found in it."""

    def __init__(self, text: str, name: str):
        self.name = name
        self.errors: list[str] = []
        self._lines: dict[tuple[Any, ...], int] = {}
        if len(text) > MAX_BYTES:
            raise PipelineError(f"{name}: the file has more than {MAX_BYTES} bytes")
        try:
            loader = yaml.SafeLoader(text)
            try:
                root = loader.get_single_node()
                self._walk(root)
                self.data = loader.construct_document(root) if root is not None else None
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            at = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
            raise PipelineError(f"{name}{at}: not valid YAML: {error.problem}") from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise PipelineError(f"{name}: not valid YAML: {error}") from None

    def _walk(self, root: yaml.Node | None) -> None:
        waiting: list[tuple[tuple[Any, ...], yaml.Node]] = [((), root)] if root is not None else []
        for _ in range(MAX_NODES):
            if not waiting:
                return
            path, node = waiting.pop()
            if len(path) > MAX_DEPTH:
                break
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    place = (*path, str(key.value) if isinstance(key, yaml.ScalarNode) else "?")
                    if place in self._lines:
                        self.report(place, "is given twice", key.start_mark.line + 1)
                    self._lines[place] = key.start_mark.line + 1
                    waiting.append((place, value))
            elif isinstance(node, yaml.SequenceNode):
                for number, value in enumerate(node.value):
                    self._lines[(*path, number)] = value.start_mark.line + 1
                    waiting.append(((*path, number), value))
        raise PipelineError(f"{self.name}: more than {MAX_NODES} values, or nested more than {MAX_DEPTH} deep")

    def report(self, path: tuple[Any, ...], text: str, line: int | None = None) -> None:
        near = next((path[:n] for n in range(len(path), 0, -1) if path[:n] in self._lines), None)
        line = line or (1 if near is None else self._lines[near])
        words = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
        self.errors.append(f"{self.name}:{line}: {words}: {text}" if words else f"{self.name}: {text}")

    def moved(self, old: tuple[Any, ...], new: tuple[Any, ...]) -> None:
        """What stands at one place is read at another: its lines go with it."""
        for path in [path for path in self._lines if path[: len(old)] == old]:
            self._lines[(*new, *path[len(old) :])] = self._lines[path]

    def check(self) -> None:
        """PipelineError with all errors reported so far."""
        if self.errors:
            hidden = len(self.errors) - MAX_PROBLEMS
            raise PipelineError(*self.errors[:MAX_PROBLEMS], *([f"and {hidden} more"] if hidden > 0 else []))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a value stands in a source. names: what values may refer to ("pipelines", "queries")."""

    source: Source
    path: tuple[Any, ...] = ()
    names: dict[str, Any] = dataclasses.field(default_factory=dict)

    def at(self, key: str | int) -> Place:
        return dataclasses.replace(self, path=(*self.path, key))

    def error(self, text: str) -> None:
        self.source.report(self.path, text)


def read_text(path: str | Path) -> str:
    """A pipeline's file. PipelineError: none, too large, or no text."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise PipelineError(f"{path} is no file")
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


# ---------------------------------------------------------------------------------------------------------- records


def option(kind: Kind, default: Any = dataclasses.MISSING, key: str | None = None) -> Any:
    """A field of a dataclass that YAML sets; key: its name there, where Python cannot use it."""
    return dataclasses.field(default=default, metadata={"kind": kind, "key": key})


def options_of(cls: type) -> dict[str, dataclasses.Field[Any]]:
    """The options of a dataclass by their key in YAML."""
    return {f.metadata["key"] or f.name: f for f in dataclasses.fields(cls) if "kind" in f.metadata}


def record(cls: type, short: str | None = None) -> Kind:
    """A mapping of the options of a dataclass; a value that is no mapping is that of the option `short`."""

    def read(value: Any, place: Place) -> Any:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            if short is None:
                raise Problem(f"a mapping is needed ({', '.join(options_of(cls))}), not {value!r}")
            value = {short: value}
        return build(cls, value, place)

    return read


def build(cls: type[T], value: dict[str, Any], place: Place, also: Iterable[str] = (), **more: Any) -> T | None:
    """The dataclass of a mapping, None after an error, which is reported. also: other keys to suggest for one that is
    unknown. more: fields that are no options."""
    options, before = options_of(cls), len(place.source.errors)
    for key in value:
        if key not in options:
            place.at(str(key)).error(f"unknown key{nearest(str(key), [*options, *also])}")
    given = {}
    for key, field in options.items():
        if key in value:
            given[field.name] = read_kind(field.metadata["kind"], value[key], place.at(key))
        elif field.default is dataclasses.MISSING:
            place.error(f"'{key}' is missing")
    if len(place.source.errors) > before:
        return None
    try:
        return cls(**given, **more)
    except Problem as problem:
        place.error(str(problem))
        return None


def read_kind(kind: Kind, value: Any, place: Place) -> Any:
    """The checked value; None after an error, which is reported."""
    try:
        return kind(value, place)
    except (Problem, InvalidArgument, NotFound) as error:
        place.error(str(error))
        return None


def plain(value: Any) -> Any:
    """What YAML holds of a checked value: the inverse of reading, with all defaults. `key`: a filter's name."""
    if dataclasses.is_dataclass(value):
        pairs = ((key, getattr(value, field.name)) for key, field in options_of(type(value)).items())
        mapping = {key: plain(item) for key, item in pairs if item is not None}
        return {value.key: mapping} if hasattr(value, "key") else mapping
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value if isinstance(value, bool | int | float | str) else str(value)


# ------------------------------------------------------------------------------------------------------------ kinds


def number(minimum: float = -math.inf, maximum: float = math.inf, above: float = -math.inf) -> Kind:
    def read(value: Any, place: Place) -> float:
        # YAML 1.1 takes 1e-3 for text.
        if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300 or value != value:
            raise Problem(f"a number is needed, not {value!r}")
        if not (minimum <= value <= maximum and value > above):
            limits = {"more than": above, "at least": minimum, "at most": maximum}
            words = (f"{word} {limit:g}" for word, limit in limits.items() if math.isfinite(limit))
            raise Problem(f"{value:g} is out of range; {' and '.join(words)}")
        return float(value)

    return read


def whole(minimum: int, maximum: int) -> Kind:
    def read(value: Any, place: Place) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Problem(f"a whole number is needed, not {value!r}")
        if not minimum <= value <= maximum:
            raise Problem(f"{value} is out of range; from {minimum} to {maximum}")
        return value

    return read


def text(value: Any, place: Place) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 1000 or "\0" in value:
        raise Problem(f"text of 1 to 1000 characters is needed, not {str(value)[:80]!r}")
    return value


def boolean(value: Any, place: Place) -> bool:
    if not isinstance(value, bool):
        raise Problem(f"true or false is needed, not {value!r}")
    return value


def choice(*names: str) -> Kind:
    def read(value: Any, place: Place) -> str:
        if value not in names:
            raise Problem(f"one of {', '.join(names)} is needed, not {value!r}{nearest(str(value), names)}")
        return str(value)

    return read


def listing(kind: Kind, minimum: int, maximum: int) -> Kind:
    """A list; a single value that is no list is a list of one, where one is allowed."""

    def read(value: Any, place: Place) -> tuple[Any, ...]:
        if not isinstance(value, list):
            if minimum > 1:
                raise Problem(f"a list of at least {minimum} values is needed, not {value!r}")
            value = [value]
        if not minimum <= len(value) <= maximum:
            wanted = str(minimum) if minimum == maximum else f"{minimum} to {maximum}"
            raise Problem(f"a list of {wanted} values is needed, not of {len(value)}")
        return tuple(read_kind(kind, item, place.at(n)) for n, item in enumerate(value))

    return read


vector = listing(number(), 3, 3)
points = listing(vector, 1, 100_000)
names = listing(text, 1, 1000)
_AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


def direction(value: Any, place: Place) -> tuple[float, float, float]:
    """x, y, z, -x, -y, -z, or a vector that is not 0."""
    if isinstance(value, str) and value.removeprefix("-") in _AXES:
        x, y, z = _AXES[value.removeprefix("-")]
        return (-x if x else 0.0, -y if y else 0.0, -z if z else 0.0) if value[0] == "-" else (x, y, z)
    if not isinstance(value, list):
        raise Problem(f"x, y, z, -x, -y, -z or a vector such as [1, 0, 0] is needed, not {value!r}")
    result: tuple[float, float, float] = vector(value, place)
    if not any(result):
        raise Problem("a direction is not [0, 0, 0]")
    return result


def interval(value: Any, place: Place) -> tuple[float, float]:
    result: tuple[float, float] = listing(number(), 2, 2)(value, place)
    if None not in result and not result[0] < result[1]:
        raise Problem(f"[low, high] with low < high is needed, not {value!r}")
    return result


def only_one(of: Any, *names: str, needed: bool = True) -> None:
    """For __post_init__: exactly (or at most) one of these options is given."""
    given = [name for name in names if getattr(of, name) is not None]
    if len(given) > 1 or (needed and not given):
        what = "one" if needed else "at most one"
        raise Problem(f"{what} of {', '.join(names)} is needed" + (f", not {' and '.join(given)}" if given else ""))
