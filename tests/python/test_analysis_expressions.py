"""The language of conditions, its programs for the coprocessor, reductions over ranks, and the history of queries."""

import gc
import json
import math
import pickle
import resource
import sys

import numpy as np
import penstock
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from penstock.analysis.agreement import exchange
from penstock.analysis.expressions import MAX_WORDS, Expression, Values, compile_when, run_program
from penstock.analysis.reductions import History, Reductions
from ranks import on_ranks

RANKS = (1, 2, 3, 4)


def values(step=7, time=0.5, **more):
    return Values(step=step, time=time, cycle=step, **more)


# ------------------------------------------------------------------------------------------------------- the language


@pytest.mark.parametrize(
    "text",
    [
        "1", "-step + 3", "not step", "2 <= step < 9 != time", "step % 3 or time", "min(step, 3, time)", "max(1, step)",
        "abs(-step) ** 0.5", "floor(time * 10) // 2", "7 // -2 + 7 % -2", "True and not False",
        "(step > 3) + (time < 1)",
    ],
)  # fmt: skip
def test_it_is_pythons(text):
    expected = eval(text, {"step": 7, "time": 0.5, "floor": math.floor})
    result = Expression(text).evaluate(values())
    assert result == (bool(expected) if isinstance(expected, bool) or " or " in text else expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"), ("step +", "no expression"), ("step; 1", "no expression"), ("a = 1", "no expression"),
        ("__import__('os')", "no function"), ("(1).real", "not part"), ("'text'", "not part"), ("[1]", "not part"),
        ("[x for x in y]", "not part"), ("lambda: 1", "not part"), ("step if time else 1", "not part"),
        ("step is time", "not part"), ("1j", "not part"), ("None", "not part"), ("step @ time", "not part"),
        ("~step", "not part"), ("(x := 1)", "not part"), ("max(*step)", "not part"), ("abs(1, 2)", "other arguments"),
        ("max()", "other arguments"), ("mean(1, 2)", "other arguments"), ("max(1)", "names no field"),
        ("max(step)", "names no field"), ("max(max(U))", "inside a reduction"), ("sum(previous(top))", "inside a red"),
        ("sqr(2)", "did you mean 'sqrt'"), ("max", "name of a query"), ("previous(1)", "name of a query"),
        ("previous(top, 0)", "whole number"), ("previous(top, step)", "whole number"), ("changed(top, 2)", "write "),
        ("previous(top, n=2)", "write "), ("previous(top, k=True)", "whole number"), ("U.x", "not part"),
        ("max(U.w)", "not part"), ("max((U + U).x)", "not part"), ("field('U')", "other arguments"),
        ("max(field(U))", "other arguments"), ("1e999", "too large"), ("9" * 400, "too large"), ("f(" * 300, "no expr"),
        ("-" * 1900 + "1", "nested"), ("1" + "+1" * 900, "parts|nested"), ("x" * 3000, "at most"), ("a\0b", "no ex"),
        ("(" * 90 + "1" + ")" * 90 + "+" + "abs(" * 60 + "1" + ")" * 60, "nested"),
        ("previous(q, k=" + "-" * 500 + "1)", "nested"), ("[" + "-" * 500 + "1 for x in y]", "nested"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(text, words):
    with pytest.raises(penstock.InvalidArgument, match=words):
        Expression(text)


@given(st.text(alphabet="stepime0123456789.+-*/%<>=!()[]{}, andortmxUVk'\"\\\n\t:@~&|^", max_size=40))
@settings(deadline=None)
def test_no_text_does_anything_but_be_refused(text):
    try:
        expression = Expression(text)
    except penstock.InvalidArgument:
        return
    expression.evaluate(values())
    assert len(compile_when(expression)) <= MAX_WORDS


def test_names():
    expression = Expression("top > max(U) + count(field('odd name') > V) or changed(mass)")
    assert expression.fields == {"U", "V", "odd name"}
    assert expression.queries == {"top", "mass"}
    assert Expression("previous(top, 4) > previous(top, k=3) + step").depth == 4
    with pytest.raises(penstock.NotFound, match="'tip' is no query; did you mean 'top'"):
        Expression("tip > 1", queries=["top", "mass"])
    with pytest.raises(penstock.NotFound, match=r"such as max\(V\)"):
        Expression("V > 1", queries=[])


def test_earlier_values():
    history = History()
    rises, changed = Expression("top > previous(top)"), Expression("changed(top)")
    two, differs = Expression("top > previous(top, 2)"), Expression("top != previous(top)")
    seen = []
    for top in (1.0, 2.0, 2.0, 0.0, math.nan, 3.0):
        now = values(queries={"top": top}, history=history)
        seen.append([e.holds(now) for e in (rises, changed, two, differs)])
        history.record({"top": top})
    assert seen == [
        [False, False, False, True],
        [True, True, False, True],
        [False, False, True, False],
        [False, True, False, True],
        [False, False, False, True],
        [False, False, True, True],
    ]
    assert Expression("max(previous(top), 0) + 1").evaluate(values()) == 1
    assert not Expression("previous(top)").holds(values())  # a result that is no number does not hold
    assert not Expression("top > 0").holds(values())  # nor what was not evaluated


# --------------------------------------------------------------------------------------------------------- programs

numbers = st.sampled_from(["0", "1", "2", "3", "7", "10", "0.5", "2.5"])
counters = st.sampled_from(["step", "time", "cycle"])


def arithmetic(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner),
            st.builds("-{}".format, inner),
            st.builds("abs({})".format, inner),
            st.builds("min({}, {})".format, inner, inner),
            st.builds("max({}, {}, {})".format, inner, inner, inner),
        ),
        max_leaves=6,
    )


def conditions(leaves):
    compare = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    sides = arithmetic(leaves)
    return st.recursive(
        st.one_of(
            st.builds("({} {} {})".format, sides, compare, sides),
            st.builds("({} {} {} {} {})".format, sides, compare, sides, compare, sides),
            sides,
        ),
        lambda inner: st.one_of(
            st.builds("({} and {})".format, inner, inner),
            st.builds("({} or {} or {})".format, inner, inner, inner),
            st.builds("(not {})".format, inner),
        ),
        max_leaves=5,
    )


steps = st.integers(0, 40)
times = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.5]), st.floats(-100, 100))


@given(conditions(numbers | counters), steps, times)
@settings(deadline=None, max_examples=400)
def test_a_program_over_counters_is_exact(text, step, time):
    program = compile_when(Expression(text))
    result = run_program(program, step, time)
    try:
        expected = bool(eval(text, {"step": float(step), "time": time, "cycle": float(step)}))
    except ZeroDivisionError:
        assert result or not Expression(text).holds(values(step, time))  # the analysis decides
        return
    # and, or: Python does not look at a second operand that divides by 0, a program does.
    assert result == expected or (result and ("/" in text or "%" in text)), program


data = st.sampled_from(["max(U)", "top", "previous(top)", "changed(top)", "sqrt(step)", "count(U > 0.2)"])
anything = st.one_of(st.floats(-10, 10), st.sampled_from([0.0, 1.0, math.nan, math.inf, -math.inf]))


@given(conditions(numbers | counters | data), steps, times, anything, anything, anything, st.floats(0, 5))
@example("not (1 / step > max(U))", 0, 0.0, math.inf, 0.0, 0.0, 0.0)
@settings(deadline=None, max_examples=600)
def test_a_program_is_true_wherever_the_condition_can_be(text, step, time, high, top, before, count):
    expression = Expression(text)
    history = History()
    history.record({"top": before})
    now = values(step, time, reduced={"max(U)": high, "count(U > 0.2)": count}, queries={"top": top}, history=history)
    if expression.holds(now):
        assert run_program(compile_when(expression), step, time)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("cycle % 10 == 0", ["step", 10, "%", 0, "=="]),
        ("0 <= step < 9", [0, "step", "<=", "step", 9, "<", "and"]),
        ("-time", [0, "time", "-"]),
        ("step > 2 ** 3", ["step", 8, ">"]),
        ("floor(step / 2)", ["step", 2, "/", 1, "//"]),
        ("max(U) > 1", ["maybe"]),
        ("step > 3 and max(U) > 1", ["step", 3, ">"]),
        ("step > 3 or max(U) > 1", ["maybe"]),
        ("not (step > 3 and max(U) > 1)", ["maybe"]),
        ("not (step > 3 or max(U) > 1)", ["step", 3, ">", "not"]),
        ("not not max(U)", ["maybe"]),
        ("2 < step < max(U) < time", [2, "step", "<"]),
        ("1", ["maybe"]),
        ("step and 0", [0]),
        ("1 / 0", ["maybe"]),
        ("sqrt(step) > 3", ["maybe"]),
        ("sqrt(9) > step", [3, "step", ">"]),
    ],
)
def test_programs(text, program):
    assert compile_when(Expression(text)) == program


def test_programs_are_short():
    nested = "step"
    for _ in range(12):
        nested = f"(1 < {nested} < 2)"
    assert compile_when(Expression(nested + " and step > 3")) == ["step", 3, ">"]
    many = " and ".join(f"step != {n}" for n in range(60))
    assert len(compile_when(Expression(many))) == 4 * 60 - 1
    assert compile_when(Expression(" or ".join(f"step == {n} + time" for n in range(60)))) == ["maybe"]


@pytest.mark.parametrize("program", [[], [1, 2], ["+"], [1, "and"], ["exec"], [True], [None], "step", [1] * 300, [[1]]])
def test_what_is_no_program(program):
    with pytest.raises(penstock.InvalidArgument):
        run_program(program, 1, 1.0)


@pytest.mark.parametrize("program", [["step", 0, "/"], [1, "step", 0, "%", "and", "not"], ["time", 0, "*"]])
def test_what_is_not_finite_is_true(program):
    assert run_program(program, 5, math.nan)


# ------------------------------------------------------------------------------------------------------- reductions

TEXTS = ["min(U)", "max(U)", "mean(U)", "sum(U)", "std(U)", "count(U)", "count(U > 0.2)", "max(abs(U - V) * 2)",
         "mean(U > V)", "sum(max(U, V, step))", "max(W)", "min(W.y)", "count(not U)", "count(U != U)"]  # fmt: skip


def expected(text, U, V, W, step):
    keep = ~np.isnan(U)
    both = keep & ~np.isnan(V)
    length = np.sqrt((W**2).sum(axis=1))
    with np.errstate(all="ignore"):
        return {
            "min(U)": U[keep].min(), "max(U)": U[keep].max(), "mean(U)": U[keep].mean(), "sum(U)": U[keep].sum(),
            "std(U)": U[keep].std(), "count(U)": keep.sum(), "count(U > 0.2)": (U > 0.2).sum(),
            "max(abs(U - V) * 2)": (abs(U - V) * 2)[both].max(), "mean(U > V)": (U > V).mean(),
            "sum(max(U, V, step))": np.fmax(np.fmax(U, V), step).sum(), "max(W)": length.max(),
            "min(W.y)": W[:, 1].min(), "count(not U)": (U == 0).sum(), "count(U != U)": np.isnan(U).sum(),
        }[text]  # fmt: skip


@given(st.integers(0, 2**32), st.integers(1, 60), st.sampled_from(RANKS), st.sampled_from([0.0, 1e8]), st.booleans())
@settings(deadline=None, max_examples=60)
def test_reductions_agree_with_numpy(seed, count, size, offset, holes):
    random = np.random.default_rng(seed)
    U, V = random.normal(offset, 1, count), random.normal(0, 1, count).astype(np.float32)
    W = random.normal(0, 1, (count, 3))
    if holes and count > 1:
        U[random.integers(0, count, count // 3)] = math.nan
        U[0], V[0] = 0.0, 1.0
    cuts = np.sort(random.integers(0, count + 1, 2 * size - 1))  # two parts for each rank, some of them empty
    parts = [{"U": u, "V": v, "W": w} for u, v, w in zip(*(np.split(a, cuts) for a in (U, V, W)), strict=True)]
    reductions = Reductions([Expression(text) for text in TEXTS])
    assert reductions.fields == {"U", "V", "W"}

    def work(cohort):
        return reductions.compute(parts[2 * cohort.rank : 2 * cohort.rank + 2], values(3), cohort)

    results = on_ranks(size, work)
    assert all(pickle.dumps(r) == pickle.dumps(results[0]) for r in results)
    for text in TEXTS:
        wanted = expected(text, U, V.astype(float), W, 3)
        np.testing.assert_allclose(results[0][text], wanted, rtol=1e-9, atol=1e-7, err_msg=text)


def test_one_gather_and_one_broadcast():
    calls = []

    class Counting:
        rank, size = 0, 2

        def gather(self, data, root):
            calls.append("gather")
            return [data, data]

        def broadcast(self, data, root):
            calls.append("broadcast")
            return data

    reductions = Reductions([Expression("max(U) > min(V)"), Expression("std(U) + max(U)")])
    assert len(reductions.all) == 3
    result = reductions.compute([{"U": np.arange(4), "V": np.ones(2)}], values(), Counting())
    assert result["max(U)"] == 3 and result["min(V)"] == 1
    assert calls == ["gather", "broadcast"]
    assert Reductions([Expression("step")]).compute([], values(), Counting()) == {}
    assert len(calls) == 2


def test_nothing_to_reduce():
    reductions = Reductions([Expression("max(U) + count(U) + sum(U) + std(U)")])
    for parts in ([], [{"U": np.zeros(0)}], [{"U": np.full(3, math.nan)}]):
        result = reductions.compute(parts, values())
        assert result["count(U)"] == 0 == result["sum(U)"]
        assert math.isnan(result["max(U)"]) and math.isnan(result["std(U)"])
    assert Reductions([Expression("std(U)")]).compute([{"U": [4]}], values()) == {"std(U)": 0}
    integers = np.array([200, 100], dtype=np.uint8)
    assert Reductions([Expression("sum(U + U)")]).compute([{"U": integers}], values()) == {"sum(U + U)": 600}


@pytest.mark.parametrize("size", RANKS)
def test_what_fails_on_one_rank_is_raised_on_all(size):
    def unknown(cohort):
        parts = [{"rho": np.ones(3)}] if cohort.rank == size - 1 else []
        with pytest.raises(penstock.NotFound, match="no field 'rh'; did you mean 'rho'"):
            Reductions([Expression("max(rh)")]).compute(parts, values(), cohort)

    def mixed(cohort):
        parts = [{"U": np.ones(3), "V": np.ones(3 + (cohort.rank == size - 1))}]
        with pytest.raises(penstock.InvalidArgument, match="nodes and of elements"):
            Reductions([Expression("max(U + V)")]).compute(parts, values(), cohort)

    def strange(cohort):
        with pytest.raises((RuntimeError, ValueError), match="lambda"):
            exchange(cohort, lambda: fail(cohort.rank == size - 1), len)

    def at_the_root(cohort):
        with pytest.raises(ZeroDivisionError):
            exchange(cohort, lambda: 1, lambda everything: 1 / 0)

    def fail(here):
        if here:
            error = ValueError("lambda")
            error.reason = lambda: 1  # cannot be pickled
            raise error

    def fine(cohort):
        return exchange(cohort, lambda: cohort.rank, list)

    for work in (unknown, mixed, strange, at_the_root):
        on_ranks(size, work)
    assert on_ranks(size, fine) == [list(range(size))] * size


def test_a_field_of_one_of_two_meshes():
    reductions = Reductions([Expression("max(U) + max(speed)")])
    result = reductions.compute([{"U": np.ones(3)}, {"speed": np.full(5, 2.0)}], values())
    assert result == {"max(U)": 1, "max(speed)": 2}
    with pytest.raises(penstock.InvalidArgument, match="no such component"):
        Reductions([Expression("max(U.x)")]).compute([{"U": np.ones(3)}], values())


# ---------------------------------------------------------------------------------------------------------- history


@given(st.lists(st.floats(), max_size=20), st.integers(1, 10))
def test_a_history_survives(tmp_path_factory, numbers, length):
    path = tmp_path_factory.mktemp("history") / "history.json"
    history = History(length)
    for number in numbers:
        history.record({"top": number})
    history.save(path)
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = History(length)
    assert again.load(path)
    for k in range(1, length + 3):
        known = k <= min(len(numbers), length)
        value = again.previous("top", k)
        assert (repr(value) == repr(numbers[-k])) if known else math.isnan(value)
    assert [p.name for p in path.parent.iterdir()] == ["history.json"]


def test_histories_that_are_none(tmp_path):
    assert not History().load(tmp_path / "none.json")
    for text in ("", "[]", "{}", '{"version": 2, "queries": {}}', '{"version": 1, "queries": {"a": 3}}', "[" * 5000,
                 '{"version": 1, "queries": {"a": ["x"]}}', '{"version": 1, "queries": []}'):  # fmt: skip
        (tmp_path / "history.json").write_text(text)
        with pytest.raises(penstock.InvalidArgument, match=r"history\.json is no history.*remove it"):
            History().load(tmp_path / "history.json")
    with pytest.raises(penstock.InvalidArgument):
        History(0)


def test_a_history_that_cannot_be_saved(tmp_path):
    history = History()
    history.record({"top": 1.0})
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"file/history\.json"):
        history.save(tmp_path / "file" / "history.json")
    history.save(tmp_path / "history.json")
    history.record(dict.fromkeys(map(str, range(1000)), 1.0))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # as a full disk: fewer bytes than it takes
    try:
        with pytest.raises(OSError, match=r"history\.json"):
            history.save(tmp_path / "history.json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert history.load(tmp_path / "history.json")
    assert history.previous("top") == 1.0 and math.isnan(history.previous("5"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "history.json"]


def test_an_edited_pipeline_keeps_what_it_still_has():
    history = History(4)
    for n in range(4):
        history.record({"top": n, "mass": n})
    history.keep(["top"], 2)
    assert history.previous("top", 2) == 2 and math.isnan(history.previous("top", 3))
    assert math.isnan(history.previous("mass"))


def test_threads_parse_while_finalizers_run():
    class Cycle:
        def __init__(self):
            self.itself = self

        def __del__(self):
            for _ in range(20):
                pass  # gives another thread its turn

    def parse(_):
        for n in range(1000):
            Cycle()
            assert Expression(f"max(field('a{n % 7}') + 2 * sqrt(b))").fields == {f"a{n % 7}", "b"}

    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(10)
    sys.setswitchinterval(1e-6)
    try:
        on_ranks(3, parse)
    finally:
        gc.set_threshold(*threshold)
        sys.setswitchinterval(interval)
