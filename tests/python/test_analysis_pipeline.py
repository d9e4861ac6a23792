"""Pipeline files: what they mean, what is refused and how it is said, what they ask for, and edits while they run."""

import os
import subprocess
import sys

import penstock
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from penstock.analysis.expressions import Values, run_program
from penstock.analysis.pipeline import Pipeline, the_mesh
from penstock.analysis.records import fill
from penstock.analysis.schema import PipelineError, Problem

WHOLE = """
when: cycle % 10 == 0
queries: {ratio: top / mass, top: max(V), mass: "sum(rho)"}
pipelines:
  surface: [{contour: {field: V, value: 0.2}}]
  profile: {mesh: grid, filters: [{probe: {line: {from: [0, 0, 0], to: [1, 1, 1]}, fields: [U]}}]}
scenes:
  surface: {pipeline: surface, color: U, range: [0.33, 0.66], camera: {direction: [1, -1.75, 0.95], up: z, zoom: 1},
            size: [800, 720], label: "step {cycle}", file: "surface-{cycle:06d}.png", when: top > previous(top)}
  quick: {contour: {field: V, value: 0.2}, clip: {plane: x}, color: U}
  many: {plots: [{pipeline: surface, color: U, opacity: 0.5, slice: z}, {slice: {normal: z}, color: V}, {volume: V},
                 {points: {radius: 0.1}, color: speed, mesh: particles}]}
extracts:
  table: {type: csv, values: {top: top, mean_U: mean(U)}, file: table.csv, when: time > 2}
  line: {type: csv, pipeline: profile, file: "line-{cycle:06d}.csv"}
  data: {type: vtk, pipeline: surface, fields: [U, V], when: step == 3 and ratio > 1}
  all: {type: vtkhdf}
  back: {type: stream, pipeline: surface, stream: surface}
"""


def problems(text, name="p.yaml"):
    with pytest.raises(PipelineError) as raised:
        Pipeline(text, name)
    assert str(raised.value) == "\n".join(raised.value.problems)
    return list(raised.value.problems)


def test_the_whole_language():
    pipeline = Pipeline(WHOLE)
    assert list(pipeline.queries) == ["top", "mass", "ratio"]
    assert [link.key for link in pipeline.scenes["quick"].plots[0].filters] == ["contour", "clip"]
    many = pipeline.scenes["many"].plots
    assert [link.key for link in many[0].filters] == ["contour", "slice"]
    assert [plot.mesh for plot in many] == [None, None, None, "particles"]
    assert many[0].opacity == 0.5 and many[2].volume == "V" and many[3].points.radius == 0.1
    surface = pipeline.scenes["surface"]
    assert surface.size == (800, 720) and surface.plots[0].range == (0.33, 0.66) and surface.camera.up == (0, 0, 1)
    assert surface.when.text == "top > previous(top)" and pipeline.scenes["quick"].when.text == "cycle % 10 == 0"
    line = pipeline.extracts["line"]
    assert line.mesh == "grid" and line.makes_table and line.filters[0].line.n == 100
    assert {name: one.fields for name, one in (pipeline.scenes | pipeline.extracts).items()} == {
        "surface": {"U", "V"}, "quick": {"U", "V"}, "many": {"U", "V", "speed"}, "table": {"U", "V"}, "line": {"U"},
        "data": {"U", "V", "rho"}, "all": None, "back": None,
    }  # fmt: skip
    assert pipeline.extracts["table"].file == "table.csv" and pipeline.extracts["data"].file == "{name}-{cycle:06d}"
    assert pipeline.history_length == 1


def test_three_lines_make_a_picture_set():
    pipeline = Pipeline("scenes:\n  first:\n    contour: V\n")
    (scene,) = pipeline.scenes.values()
    assert fill(scene.file, 7, 0.5, scene.name) == "first-000007.png"
    assert pipeline.demand() == [{"fields": ["V"], "when": ["maybe"]}]
    assert Pipeline("").demand() == []


def test_what_it_says_of_itself_is_what_it_reads():
    pipeline = Pipeline(WHOLE)
    again = Pipeline(pipeline.to_yaml())
    assert again.to_yaml() == pipeline.to_yaml()
    assert again.demand() == pipeline.demand()
    assert [s.fields for s in again.triggered] == [s.fields for s in pipeline.triggered]
    effective = yaml.safe_load(pipeline.to_yaml())
    assert effective["scenes"]["quick"]["plots"][0]["filters"][0] == {
        "contour": {"field": "V", "value": 0.2, "normals": True}
    }
    assert effective["scenes"]["quick"]["size"] == [800, 720]


def test_all_errors_are_reported_with_their_lines():
    text = """
whn: 1
queries:
  top: max(V
  step: max(V)
  a: b + 1
  b: a
pipelines:
  surface:
    - contour:
        feld: V
    - conture: {field: V}
scenes:
  one:
    pipeline: surfase
    colour: U
    range: [2, 1]
    size: [800]
    camera: {zoom: 0, up: w}
    file: ../up.png
    when: tip > 1
  two: {sliced: z}
  three: {plots: []}
extracts:
  table: {values: {}}
  other: {type: csv, values: {x: 1}, slice: z}
  back: {type: stream}
"""
    found = problems(text)
    for wanted in [
        "p.yaml:2: whn: unknown key; did you mean 'when'?",
        "p.yaml:4: queries.top: 'max(V' is no expression",
        "p.yaml:5: queries.step: 'step' cannot be a name here",
        "p.yaml:11: pipelines.surface.filters[0].contour.feld: unknown key; did you mean 'field'?",
        "p.yaml:10: pipelines.surface.filters[0].contour: 'field' is missing",
        "p.yaml:12: pipelines.surface.filters[1]: there is no filter 'conture'; did you mean 'contour'?",
        "p.yaml:15: scenes.one.plots[0].pipeline: there is no pipeline 'surfase'; did you mean 'surface'?",
        "p.yaml:16: scenes.one.colour: unknown key; did you mean 'color'?",
        "p.yaml:17: scenes.one.plots[0].range: [low, high] with low < high is needed",
        "p.yaml:18: scenes.one.size: a list of 2 values is needed, not of 1",
        "p.yaml:19: scenes.one.camera.zoom: 0 is out of range; more than 0 and at most 1000",
        "p.yaml:19: scenes.one.camera.up: x, y, z, -x, -y, -z or a vector",
        "p.yaml:20: scenes.one.file: '../up.png': the name of a file in the output folder is needed",
        "p.yaml:21: scenes.one.when: 'tip' is no query; did you mean 'top'?",
        "p.yaml:22: scenes.two.sliced: unknown key; did you mean 'slice'?",
        "p.yaml:23: scenes.three.plots: a list of 1 to 50 values is needed",
        "p.yaml:25: extracts.table: 'type' is missing",
        "p.yaml:26: extracts.other: values: make a csv table of their own",
        "p.yaml:27: extracts.back: type: stream needs the name of a stream",
    ]:
        assert any(line.startswith(wanted) for line in found), (wanted, found)
    assert "queries.a: depends on itself; previous() takes" in "\n".join(problems("queries: {a: b + 1, b: a}"))
    assert Pipeline("queries: {a: previous(b) + 1, b: previous(b) + 1}").history_length == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "a mapping is needed"),
        ("a: [", "p.yaml:1: not valid YAML"),
        ("x: !!python/name:os.system", "not valid"),
        ("when: 1\nwhen: 2", "p.yaml:2: when: is given twice"),
        ("scenes: {a: {slice: z, slice: x}}", "given twice"),
        ("when: [1]", "when: an expression is needed"),
        ("scenes: 3", "scenes: a mapping"),
        ("scenes: {a: 3}", "mapping"),
        ("scenes: {a/b: {slice: z}}", "'a/b' cannot be a name"),
        ("scenes: {a: {slice: z, pipeline: [x]}}", "no pipeline"),
        ("pipelines: {a: {pipeline: a}}", "no pipeline 'a'"),
        ("pipelines: {a: 3}", "one filter is needed"),
        ("pipelines: {a: [{histogram: U}, slice]}", "nothing can follow"),
        ("scenes: {a: {histogram: U}}", "is no picture"),
        ("pipelines: {p: [histogram: U]}\nscenes: {a: {pipeline: p, slice: z}}", "nothing can follow"),
        ("pipelines: {p: [slice]}\nscenes: {a: {pipeline: p, mesh: m}}", "where the pipeline begins"),
        ("scenes: {a: {volume: V, points: 1}}", "at most one of volume, points"),
        ("extracts: {a: {type: vtk, histogram: U}}", "written as type: csv"),
        ("extracts: {a: {type: vtk, stream: s}}", "oth"),
        ("extracts: {a: {type: csv, values: {}}}", "at least one"),
        ("extracts: {a: {type: vtk, values: {x: 1}}}", "csv"),
        ("extracts: {a: {type: csv, values: {'x,y': 1}}}", "cannot be a name"),
        ("queries: {max: 1}", "cannot be a name"),
        ("queries: {'a b': 1}", "cannot be a name"),
        ("\0", "not valid YAML"),
        ("[" * 3000, "not valid YAML"),
        ("&a [*a]", "nested more than"),
        ("a: {" * 30 + "}" * 30, "nested more than"),
        ("x: [" + "1," * 30000 + "]", "values"),
        ("#" * 2**20 + "#", "bytes"),
        ("scenes: {a: {points: {radius: .nan}}}", "a number is needed"),
        ("scenes: {a: {opacity: 2}}", "at most 1"),
        ("scenes: {a: {opacity: true}}", "a number is needed"),
    ],
)
def test_what_is_refused(text, words):
    assert words in "\n".join(problems(text))


def test_many_errors_are_cut():
    found = problems("scenes: {" + ", ".join(f"a{n}: 3" for n in range(300)) + "}")
    assert len(found) == 51 and found[-1] == "and 250 more"


@pytest.mark.parametrize(
    "name",
    ["/abs.png", "../x.png", "a/../../x", "{name}/../x", "dir/", "", "{cycle", "{foo}.png", "{name.__class__}", "{0}",
     "{cycle!r}", "{cycle:99999999d}", "{name:{cycle}}", "{time:d}", "{cycle[0]}", "a\0b", 7, "..", "{step:,}", "."],
)  # fmt: skip
def test_file_names_that_are_refused(name):
    text = yaml.safe_dump({"scenes": {"a": {"slice": "z", "file": name}}})
    assert "scenes.a.file" in problems(text)[0]


def test_file_names():
    assert fill("a/{name}-{cycle:06d}-{step}-{time:.3f}{{}}.png", 12, 1.23456, "s") == "a/s-000012-12-1.235{}.png"
    with pytest.raises(Problem):
        fill("{x}", 1, 1.0, "s")


def test_numbers_as_people_write_them():
    pipeline = Pipeline("scenes: {a: {contour: {field: V, values: [1e-3, 2E5, -1, 1.5]}}}")
    assert pipeline.scenes["a"].plots[0].filters[0].values == (1e-3, 2e5, -1, 1.5)


# --------------------------------------------------------------------------------------------------------- the demand


def test_demand():
    assert Pipeline(WHOLE).demand() == [
        {"fields": ["U", "V"], "when": ["maybe"]},
        {"fields": None, "when": ["step", 10, "%", 0, "=="]},
        {"fields": ["U", "V"], "when": ["time", 2, ">"]},
        {"fields": ["U", "V", "rho"], "when": ["step", 3, "=="]},
    ]
    assert Pipeline("scenes: {a: {slice: z, color: U, when: 0}, b: {slice: z, when: 1 > 2}}").demand() == []
    lines = Pipeline("scenes: {a: {streamlines: u, color: IntegrationTime}, b: {contour: V, color: Normals}}")
    assert lines.demand() == [{"fields": ["V", "u"], "when": ["maybe"]}]
    tables = "extracts: {a: {type: csv, histogram: U, fields: [count]}, b: {type: csv, statistics: {}}}"
    assert [one.fields for one in Pipeline(tables).triggered] == [{"U"}, None]


whens = st.sampled_from(["step % 3 == 0", "top > 1", "time > 2 and top > 1", "not (top > 1 or step < 4)", "1", "0"])


@given(st.lists(whens, min_size=1, max_size=4), whens, st.integers(0, 12), st.floats(0, 4), st.floats(-2, 4))
@settings(deadline=None)
def test_what_fires_was_asked_for_with_all_its_fields(triggers, default, step, time, top):
    scenes = {f"s{n}": {"slice": "z", "color": f"C{n}", "when": when} for n, when in enumerate(triggers)}
    scenes["last"] = {"slice": "z", "color": "D"}
    pipeline = Pipeline(yaml.safe_dump({"when": default, "queries": {"top": "max(V)"}, "scenes": scenes}))
    values = Values(step, time, step, reduced={"max(V)": top})
    pipeline.evaluate_queries(values)
    for scene in pipeline.scenes.values():
        if scene.when.holds(values):
            rules = [rule for rule in pipeline.demand() if run_program(rule["when"], step, time)]
            assert any(scene.fields <= set(rule["fields"]) for rule in rules)


def test_queries_are_evaluated_where_their_fields_are():
    pipeline = Pipeline("queries: {c: a + b, a: max(U), b: max(V), d: 2 * step}")
    values = Values(3, 0.0, 3, reduced={"max(U)": 5.0})
    pipeline.evaluate_queries(values)
    assert values.queries == {"a": 5.0, "d": 6.0}
    values.reduced["max(V)"] = 2.0
    pipeline.evaluate_queries(values)
    assert values.queries["c"] == 7.0


def test_fields_and_meshes_that_there_are():
    pipeline = Pipeline(WHOLE)
    pipeline.check_names(["U", "V", "rho", "speed"])
    with pytest.raises(PipelineError) as raised:
        pipeline.check_names(["U", "V", "rhos"])
    assert "pipeline: extracts.data: there is no field 'rho'; did you mean 'rhos'?" in raised.value.problems
    assert the_mesh(None, ["grid"]) == the_mesh("grid", ["grid", "other"]) == "grid"
    with pytest.raises(penstock.InvalidArgument, match="one of grid, other is needed"):
        the_mesh(None, ["grid", "other"])
    with pytest.raises(penstock.NotFound, match="did you mean 'grid'"):
        the_mesh("gird", ["grid", "other"])
    with pytest.raises(penstock.InvalidArgument, match="no mesh"):
        the_mesh(None, [])


# -------------------------------------------------------------------------------------------------------------- edits


def reloaded(pipeline):
    """Whether the file changed and its new content is in force now."""
    text = pipeline.changed_text()
    return text is not None and pipeline.replace(text)


def test_an_edited_file_comes_into_force(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("scenes: {a: {slice: z}}")
    pipeline = Pipeline.load(path)
    assert not reloaded(pipeline)
    os.utime(path, ns=(1, 1))  # touched: the same content
    assert not reloaded(pipeline) and pipeline.error is None

    path.write_text("scenes: {a: {slice: z}, b: {sliced: z}}")
    assert not reloaded(pipeline)
    assert "p.yaml:1: scenes.b.sliced: unknown key; did you mean 'slice'?" in str(pipeline.error)
    assert list(pipeline.scenes) == ["a"]  # the last good one stays
    error = pipeline.error
    assert not reloaded(pipeline) and pipeline.error is error

    path.write_text("scenes: {a: {slice: z}, b: {slice: x}}")
    assert reloaded(pipeline) and pipeline.error is None
    assert list(pipeline.scenes) == ["a", "b"]
    path.unlink()
    assert not reloaded(pipeline) and "No such file" in str(pipeline.error)
    assert not reloaded(pipeline)
    path.write_text("scenes: {a: {slice: z}, b: {slice: x}}")
    assert reloaded(pipeline) and pipeline.error is None
    path.write_bytes(b"\xff\xfe")
    assert not reloaded(pipeline) and pipeline.error is not None


def test_one_rank_reads_and_all_replace(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("scenes: {a: {slice: z}}")
    first, second = Pipeline.load(path), Pipeline(path.read_text())
    path.write_text("scenes: {c: {slice: z}}")
    text = first.changed_text()
    assert first.changed_text() is None and second.changed_text() is None
    assert first.replace(text) and second.replace(text)
    assert list(second.scenes) == ["c"]
    assert not second.replace("scenes: 3") and list(second.scenes) == ["c"] and second.error is not None


def test_files_that_are_none(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(PipelineError, match=str(path)):
            Pipeline.load(path)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["z", "U", "max(V)", "{cycle}", "vtk"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["when", "queries", "pipelines", "scenes", "extracts", "a", "slice", "contour", "field", "type", "values",
         "plots", "pipeline", "mesh", "color", "camera", "points", "line", "from", "clip", "sphere", "filters",
         "file"]), inner, max_size=5), max_leaves=25))  # fmt: skip
@settings(deadline=None, max_examples=300)
def test_any_yaml_is_read_or_refused(data):
    text = yaml.safe_dump(data)
    try:
        pipeline = Pipeline(text)
    except PipelineError as error:
        assert error.problems
        return
    pipeline.demand()
    assert Pipeline(pipeline.to_yaml()).to_yaml() == pipeline.to_yaml()


def test_pipelines_are_read_without_vtk():
    program = "import sys; sys.modules['vtkmodules'] = None; from penstock.analysis.pipeline import Pipeline; "
    program += "print(Pipeline('scenes: {a: {contour: V}}').demand())"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed == "[{'fields': ['V'], 'when': ['maybe']}]\n"
