"""The language of `when:`, queries and tables: Python's expressions, cut down to arithmetic on numbers.

    cycle % 10 == 0 and max(V) > 1.1 * previous(top)

Names are `step`, `time`, `cycle` (the simulation's counter: the same number as `step`) and the pipeline's queries.
Fields stand inside reductions, min max mean sum std count, of a field or of arithmetic on fields: count(U > 0.2) counts
where that is true, count(U) counts the values. field("odd name") is a field whose name is no word; of a vector field
`velocity` is the length, `velocity.x` a component. min and max of two or more arguments choose among those that are not
NaN: max(previous(total), 0) begins with 0. Also: abs
sqrt exp log floor, + - * / // % **, comparisons (chained too), and or not, previous(query, k=1), the value at the k-th
analysed step before, and changed(query), whether it differs from that.

Numbers are float64 and follow IEEE 754: 1/0 is inf; previous() is NaN as long as there is no such step, so that every
comparison with it except != is false. changed() is false then. `and`, `or` and `not` give 0 or 1. A condition whose
result is NaN does not hold. Nothing is evaluated that is not in this list.
"""

from __future__ import annotations

import ast
import functools
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeGuard, cast

import numpy as np

from ..errors import InvalidArgument, NotFound
from ..names import nearest

MAX_LENGTH = 2000
MAX_NODES = 400
MAX_DEPTH = 40
MAX_WORDS = 256  # of a compiled condition
MAX_PREVIOUS = 1000

REDUCTIONS = ("min", "max", "mean", "sum", "std", "count")
COUNTERS = ("step", "time", "cycle")
_BINARY = {
    ast.Add: ("+", np.add),
    ast.Sub: ("-", np.subtract),
    ast.Mult: ("*", np.multiply),
    ast.Div: ("/", np.divide),
    ast.FloorDiv: ("//", np.floor_divide),
    ast.Mod: ("%", np.mod),
    ast.Pow: ("**", np.power),
}
_COMPARE = {
    ast.Eq: ("==", np.equal),
    ast.NotEq: ("!=", np.not_equal),
    ast.Lt: ("<", np.less),
    ast.LtE: ("<=", np.less_equal),
    ast.Gt: (">", np.greater),
    ast.GtE: (">=", np.greater_equal),
}
_UNARY = {"abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "floor": np.floor}
_CHOICE = {"min": np.fmin, "max": np.fmax}
FUNCTIONS = (*REDUCTIONS, *_UNARY, "previous", "changed", "field")
# CPython 3.11 and 3.12 count the depth of a parse for all threads together (python/cpython#106905): where a finalizer
# lets another thread parse in between, ast.parse() raises SystemError.
_PARSING = threading.Lock()

RESERVED = frozenset((*COUNTERS, *FUNCTIONS, "and", "or", "not", "True", "False", "None"))


class Earlier(Protocol):
    """The values of queries at steps before this one."""

    def previous(self, query: str, k: int) -> float: ...


@dataclass
class Values:
    """What an expression is evaluated on: the step, its reductions by their text, the queries evaluated so far.

    What is missing (a reduction whose fields this step does not hold, a query not evaluated) counts as NaN.
    """

    step: float
    time: float
    cycle: float
    reduced: dict[str, float] = field(default_factory=dict)
    queries: dict[str, float] = field(default_factory=dict)
    history: Earlier | None = None


@dataclass(frozen=True)
class Reduction:
    """A reduction of an expression over fields. `text` identifies it, `argument` what is reduced."""

    kind: str
    argument: str
    text: str
    counts_truth: bool
    fields: frozenset[str]
    tree: ast.expr = field(compare=False, repr=False)

    def of(self, arrays: Mapping[str, np.ndarray], values: Values) -> np.ndarray:
        """The argument's value where the fields' values are these arrays (n, or n × components)."""
        with np.errstate(all="ignore"):
            return np.asarray(_evaluate(self.tree, lambda node: _field_values(node, arrays, values)))


def _fields_read(reductions: tuple[Reduction, ...]) -> frozenset[str]:
    return frozenset(name for each in reductions for name in each.fields)


class Expression:
    """A checked expression. InvalidArgument: not of this language; NotFound: a name that is no query.

    fields, queries: names of the fields and queries that the text itself mentions; current: those whose value
    at this step counts. depth: the largest k of previous(query, k). queries (argument): the names there are.
    """

    def __init__(self, text: str | float, queries: Collection[str] | None = None):
        self.text = str(text).strip()
        self.tree = _parse(self.text)
        self.reductions: tuple[Reduction, ...] = ()
        self.queries: frozenset[str] = frozenset()
        self.current: frozenset[str] = frozenset()
        self.depth = 0
        _Check(self, queries).outside(self.tree)
        self.fields = _fields_read(self.reductions)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def evaluate(self, values: Values) -> float:
        with np.errstate(all="ignore"):
            return float(_evaluate(self.tree, lambda node: _scalar(node, values)))

    def holds(self, values: Values) -> bool:
        """Whether it is true: neither 0 nor NaN."""
        value = self.evaluate(values)
        return value != 0 and not math.isnan(value)


# --------------------------------------------------------------------------------------------------------- checking


def _parse(text: str) -> ast.expr:
    if not text:
        raise InvalidArgument("the expression is empty")
    if len(text) > MAX_LENGTH:
        raise InvalidArgument(f"the expression has {len(text)} characters; at most {MAX_LENGTH}")
    try:
        with _PARSING:
            tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise InvalidArgument(f"'{text}' is no expression: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):
        raise InvalidArgument(f"'{text[:40]}' is no expression, or is nested too deeply") from None
    level: list[ast.AST] = [tree]
    nodes = 0
    for _ in range(MAX_DEPTH):
        nodes += len(level)
        level = [child for node in level for child in ast.iter_child_nodes(node) if child._fields]  # no Add(), Load()
        if nodes + len(level) > MAX_NODES:
            raise InvalidArgument(f"the expression has more than {MAX_NODES} parts")
        if not level:
            return tree
    raise InvalidArgument(f"the expression is nested more than {MAX_DEPTH} deep")


class _Check:
    """Walks an expression once: refuses what is not of the language, notes the fields, queries and reductions."""

    def __init__(self, expression: Expression, queries: Collection[str] | None):
        self.expression = expression
        self.known = queries

    def outside(self, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            if node.id not in COUNTERS:
                self.query(node, current=True)
        elif _is_reduction(node):
            self.reduction(node)
        elif _calls(node, "previous", "changed"):
            self.earlier(node)
        else:
            self.common(node, self.outside)

    def inside(self, node: ast.expr) -> None:
        if _field_of(node) is None and not (isinstance(node, ast.Name) and node.id in COUNTERS):
            if _is_reduction(node) or _calls(node, "previous", "changed"):
                raise InvalidArgument(f"'{ast.unparse(node)}' cannot stand inside a reduction")
            self.common(node, self.inside)

    def common(self, node: ast.expr, visit: Callable[[ast.expr], None]) -> None:
        for child in _operands(node):
            visit(child)

    def query(self, node: ast.expr, current: bool) -> None:
        if not isinstance(node, ast.Name) or node.id in RESERVED:
            raise InvalidArgument(f"'{ast.unparse(node)}': the name of a query is needed")
        if self.known is not None and node.id not in self.known:
            hint = nearest(node.id, [*COUNTERS, *self.known])
            raise NotFound(f"'{node.id}' is no query{hint} (a field stands in a reduction, such as max({node.id}))")
        self.expression.queries |= {node.id}
        if current:
            self.expression.current |= {node.id}

    def earlier(self, node: ast.Call) -> None:
        words = [*node.args, *(keyword.value for keyword in node.keywords)]
        keywords = [keyword.arg for keyword in node.keywords]
        most = 2 if _function(node) == "previous" else 1
        if not node.args or len(words) > most or keywords not in ([], ["k"]):
            raise InvalidArgument(f"'{ast.unparse(node)}': write previous(query), previous(query, k) or changed(query)")
        k = _previous_k(node)
        if k is None:
            raise InvalidArgument(f"'{ast.unparse(node)}': k is a whole number from 1 to {MAX_PREVIOUS}")
        self.query(node.args[0], current=_function(node) == "changed")
        self.expression.depth = max(self.expression.depth, k)

    def reduction(self, node: ast.Call) -> None:
        self.inside(node.args[0])
        fields = frozenset(name for name in map(_field_of, ast.walk(node.args[0])) if name is not None)
        if not fields:
            raise InvalidArgument(f"'{ast.unparse(node)}' names no field")
        tree = node.args[0]
        truth = isinstance(tree, ast.Compare | ast.BoolOp) or _is_not(tree)
        new = Reduction(_function(node), ast.unparse(tree), ast.unparse(node), truth, fields, tree)
        if new not in self.expression.reductions:
            self.expression.reductions += (new,)


def _operands(node: ast.expr) -> list[ast.expr]:
    """The operands of an operator or function of the language; InvalidArgument for anything else."""
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            if (isinstance(value, int) and value.bit_length() > 1000) or not math.isfinite(value):
                raise InvalidArgument("a number of the expression is too large")
            return []
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.UAdd()):
            return [node.operand]
        case ast.BinOp() if type(node.op) in _BINARY:
            return [node.left, node.right]
        case ast.BoolOp():
            return list(node.values)
        case ast.Compare() if all(type(op) in _COMPARE for op in node.ops):
            return [node.left, *node.comparators]
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            if (name in _UNARY and len(node.args) == 1) or (name in _CHOICE and len(node.args) > 1):
                return list(node.args)
            if name in FUNCTIONS:
                raise InvalidArgument(f"'{ast.unparse(node)}': {name}() takes other arguments or stands elsewhere")
            raise InvalidArgument(f"there is no function {name}(){nearest(name, FUNCTIONS)}")
    raise InvalidArgument(f"'{ast.unparse(node)[:80]}' is not part of the language of conditions")


def _function(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _calls(node: ast.AST, *names: str) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and _function(node) in names


def _is_reduction(node: ast.AST) -> TypeGuard[ast.Call]:
    return _calls(node, *REDUCTIONS) and len(node.args) == 1 and not node.keywords


def _is_not(node: ast.AST) -> TypeGuard[ast.UnaryOp]:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _field_of(node: ast.AST) -> str | None:
    """The field that a node inside a reduction names, or None."""
    if isinstance(node, ast.Attribute) and node.attr in ("x", "y", "z"):
        node = node.value
    if isinstance(node, ast.Name):
        return None if node.id in RESERVED else node.id
    if _calls(node, "field") and len(node.args) == 1 and not node.keywords:
        name = node.args[0]
        return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
    return None


def _previous_k(node: ast.Call) -> int | None:
    words = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
    k = words[0].value if words and isinstance(words[0], ast.Constant) else None if words else 1
    return k if type(k) is int and 1 <= k <= MAX_PREVIOUS else None


# ------------------------------------------------------------------------------------------------------- evaluation


def _evaluate(node: ast.expr, leaf: Callable[[ast.expr], Any]) -> Any:
    """float64 or bool, scalar or array. leaf() gives the values of names, and of functions that _operands lacks."""
    match node:
        case ast.Constant():
            return np.float64(cast(float, node.value))  # checked
        case ast.UnaryOp():
            value = _evaluate(node.operand, leaf)
            if _is_not(node):
                return np.logical_not(value)
            return np.negative(_number(value)) if isinstance(node.op, ast.USub) else _number(value)
        case ast.BinOp():
            return _BINARY[type(node.op)][1](_number(_evaluate(node.left, leaf)), _number(_evaluate(node.right, leaf)))
        case ast.BoolOp():
            join = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return functools.reduce(join, (_evaluate(value, leaf) for value in node.values))
        case ast.Compare():
            values = [_evaluate(value, leaf) for value in (node.left, *node.comparators)]
            pairs = zip(node.ops, values, values[1:], strict=False)
            return functools.reduce(np.logical_and, (_COMPARE[type(op)][1](a, b) for op, a, b in pairs))
        case ast.Call(func=ast.Name(id=name)) if name in _UNARY:
            return _UNARY[name](_number(_evaluate(node.args[0], leaf)))
        case ast.Call(func=ast.Name(id=name)) if name in _CHOICE and len(node.args) > 1:
            return functools.reduce(_CHOICE[name], (_number(_evaluate(value, leaf)) for value in node.args))
    return leaf(node)


def _number(value: Any) -> Any:
    # NumPy's arithmetic on truth values is logic.
    return value.astype(np.float64) if value.dtype == np.bool_ else value


def _scalar(node: ast.expr, values: Values) -> np.float64:
    number: float
    if isinstance(node, ast.Name):
        number = getattr(values, node.id) if node.id in COUNTERS else values.queries.get(node.id, math.nan)
    elif _is_reduction(node):
        number = values.reduced.get(ast.unparse(node), math.nan)
    else:
        assert isinstance(node, ast.Call) and isinstance(node.args[0], ast.Name)  # as checked
        query = node.args[0].id
        k = _previous_k(node) or 1
        number = values.history.previous(query, k) if values.history is not None else math.nan
        if _function(node) == "changed":
            now = values.queries.get(query, math.nan)
            number = now != number and not (math.isnan(number) or math.isnan(now))
    return np.float64(number)


def _field_values(node: ast.expr, arrays: Mapping[str, np.ndarray], values: Values) -> np.ndarray | np.float64:
    if isinstance(node, ast.Name) and node.id in COUNTERS:
        return np.float64(getattr(values, node.id))
    array = np.asarray(arrays[_field_of(node) or ""], dtype=np.float64)
    if isinstance(node, ast.Attribute):
        component = "xyz".index(node.attr)
        if array.ndim != 2 or array.shape[1] <= component:
            raise InvalidArgument(f"'{ast.unparse(node)}': the field has no such component")
        return array[:, component]
    return array if array.ndim == 1 else np.linalg.norm(array, axis=1)


# -------------------------------------------------------------------------------------------------------- compiling

TRUE, FALSE = ["maybe"], [0]


def compile_when(expression: Expression) -> list[float | str]:
    """The program of the condition for the coprocessor, in reverse Polish notation over `step` and `time`.

    It is true whenever the condition can be true, whatever the data; exact where only counters and numbers decide.
    `cycle` is `step` there. At most 256 words; a condition that would take more is always true.
    """
    program: list[float | str] = _bound(expression.tree, upper=True)
    return program if len(program) <= MAX_WORDS else [*TRUE]


def _bound(node: ast.expr, upper: bool) -> list[Any]:
    """A program that is true at least whenever the node can be true (upper), or only where it surely is (lower)."""
    if _is_not(node):
        inner = _bound(node.operand, not upper)
        opposite: dict[Any, list[Any]] = {"maybe": FALSE, 0: TRUE}
        return opposite[inner[0]] if inner in (TRUE, FALSE) else [*inner, "not"]
    if isinstance(node, ast.BoolOp):
        return _joined((_bound(value, upper) for value in node.values), isinstance(node.op, ast.And))
    if isinstance(node, ast.Compare) and len(node.ops) > 1:
        sides = [node.left, *node.comparators]
        links = (ast.Compare(a, [op], [b]) for a, op, b in zip(sides, node.ops, sides[1:], strict=False))
        return _joined((_bound(link, upper) for link in links), conjunction=True)
    exact = _exact(node)
    if exact is None:
        return TRUE if upper else FALSE
    if len(exact) == 1 and not isinstance(exact[0], str):
        return TRUE if exact[0] else FALSE
    return exact


def _joined(programs: Iterator[list[Any]], conjunction: bool) -> list[Any]:
    neutral, absorbing = (TRUE, FALSE) if conjunction else (FALSE, TRUE)
    kept: list[Any] = []
    for program in programs:
        if program == absorbing:
            return absorbing
        if program != neutral:
            kept = [*kept, *program, "and" if conjunction else "or"] if kept else program
    return kept or neutral


def _exact(node: ast.expr) -> list[Any] | None:
    """The node's value as a program; None when data or functions that programs lack decide it."""
    if isinstance(node, ast.Name):
        return {"step": ["step"], "cycle": ["step"], "time": ["time"]}.get(node.id)
    if _is_reduction(node) or _calls(node, "previous", "changed"):
        return None
    operands: list[list[Any]] = []
    for child in _operands(node):
        operand = _exact(child)
        if operand is None:
            return None
        operands.append(operand)
    if all(len(p) == 1 and not isinstance(p[0], str) for p in operands):
        return _constant(node)
    program = _applied(node, operands)
    return program if program is None or len(program) <= MAX_WORDS else None


def _constant(node: ast.expr) -> list[Any] | None:
    with np.errstate(all="ignore"):
        value = float(_evaluate(node, _no_leaf))
    return [int(value) if value.is_integer() and abs(value) < 2**53 else value] if math.isfinite(value) else None


def _no_leaf(node: ast.expr) -> float:
    raise AssertionError("a constant has no names")


def _applied(node: ast.expr, operands: list[list[Any]]) -> list[Any] | None:
    match node:
        case ast.UnaryOp(op=ast.USub()):
            return [0, *operands[0], "-"]
        case ast.UnaryOp(op=ast.UAdd()):
            return operands[0]
        case ast.UnaryOp():
            return [*operands[0], "not"]
        case ast.BinOp():
            return [*operands[0], *operands[1], _BINARY[type(node.op)][0]]
        case ast.BoolOp():
            return _chained(operands, "and" if isinstance(node.op, ast.And) else "or")
        case ast.Compare():
            words = [_COMPARE[type(op)][0] for op in node.ops]
            links = [[*a, *b, word] for a, b, word in zip(operands, operands[1:], words, strict=False)]
            return _chained(links, "and")
        case ast.Call(func=ast.Name(id="floor")):
            return [*operands[0], 1, "//"]
        case ast.Call(func=ast.Name(id="abs")):
            return [*operands[0], "abs"]
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            return _chained(operands, name)
    return None  # sqrt, exp, log: their last digit depends on the library


def _chained(programs: Iterable[list[Any]], word: str) -> list[Any]:
    return functools.reduce(lambda done, program: [*done, *program, word], programs)


_WORDS = {word: (function, 2) for word, function in (*_BINARY.values(), *_COMPARE.values())} | {
    "and": (np.logical_and, 2),
    "or": (np.logical_or, 2),
    "not": (np.logical_not, 1),
    "min": (np.fmin, 2),
    "max": (np.fmax, 2),
    "abs": (np.abs, 1),
}


def run_program(program: list[float | str], step: float, time: float) -> bool:
    """What the coprocessor makes of a program: the reference for its evaluator in C++.

    A result on the way that is not finite (a division by 0) makes the program true. // and % are Python's: the
    remainder has the divisor's sign. InvalidArgument: not a program.
    """
    if not isinstance(program, list) or not 1 <= len(program) <= MAX_WORDS:
        raise InvalidArgument(f"a program is a list of 1 to {MAX_WORDS} words")
    inputs = {"step": float(step), "time": float(time), "maybe": 1.0}
    stack: list[float] = []
    finite = True
    for word in program:
        if isinstance(word, str) and word in _WORDS:
            function, count = _WORDS[word]
            if len(stack) < count:
                raise InvalidArgument(f"'{word}' lacks an operand")
            with np.errstate(all="ignore"):
                value = float(function(*map(np.float64, stack[-count:])))
            del stack[-count:]
        elif isinstance(word, str) and word in inputs:
            value = inputs[word]
        elif isinstance(word, int | float) and not isinstance(word, bool):
            value = float(word)
        else:
            raise InvalidArgument(f"'{word}' is no word of a program")
        finite = finite and math.isfinite(value)
        stack.append(value)
    if len(stack) != 1:
        raise InvalidArgument(f"the program leaves {len(stack)} values; 1 is needed")
    return not finite or stack[0] != 0
