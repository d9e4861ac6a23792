"""What notebooks show of a step and of a variable: _repr_html_."""

import re

import numpy as np
import pytest


@pytest.fixture
def step(context):
    with context.create("heat", rendezvous_readers=0, reserve_steps=1) as writer:
        writer.define("T", "float32", (4, 6), min_max=True)
        with writer.step() as out:
            out.put("T", np.arange(12, dtype=np.float32).reshape(2, 6), start=(0, 0), shape=(4, 6))
            out.put("T", np.arange(12, 24, dtype=np.float32).reshape(2, 6), start=(2, 0))
            out["count"] = 3
            out["<script>"] = "text"
            out.put_local("particles", np.zeros(5))
            out.attributes["T/units"] = "<K>"
            out.attributes["title"] = "a & b" * 100
        with context.open("heat", timeout=10) as reader, reader.step() as step:
            yield step


def cells(html):
    return [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]


def test_a_step_is_a_table_of_its_variables(step):
    html = step._repr_html_()
    rows = {row[0]: row[1:] for row in cells(html) if row}
    assert rows["T"] == ["float32", "global array", "(4, 6)", "2", "", "0.0", "23.0", "units=&lt;K&gt;"]
    assert rows["count"][:5] == ["int64", "global value", "", "1", "3"]
    assert rows["particles"][:5] == ["float64", "local array", "(5,)", "1", ""]
    assert rows["&lt;script&gt;"][0] == "string" and rows["&lt;script&gt;"][4] == "text"
    assert rows["title"][0].startswith("a &amp; b") and len(rows["title"][0]) < 500
    assert "of &#x27;heat&#x27;: 4 variables" in html
    assert "<script" not in html


def test_a_variable_is_a_table_of_its_blocks(step):
    rows = cells(step["T"]._repr_html_())
    assert ["1", "0", "(2, 0)", "(2, 6)", "12.0", "23.0"] in rows
    _, row = cells(step["count"]._repr_html_())  # one block needs no table
    assert row[4] == "3"


def test_no_array_is_read(step):
    before = step._stream.statistics.bytes
    step["T"]._repr_html_()
    assert step._stream.statistics.bytes == before
    step._repr_html_()
    assert step._stream.statistics.bytes == before + 8  # "count"


def test_a_step_that_is_over_has_its_plain_form(step):
    variable = step["T"]
    step.end()
    assert step._repr_html_() is None and variable._repr_html_() is None
    assert "over" in repr(step) and "float32" in repr(variable)
