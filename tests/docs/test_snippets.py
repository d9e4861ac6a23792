"""The documentation holds what it says: every fenced block is part of an example, or is run, or is checked.

A block follows a marker, a comment in the line before it:

    <!-- from: examples/first-stream/writer.py -->     lines of that file, unchanged but for a common indentation
    <!-- from: examples/first-stream/writer.py whole -->  all of it
    <!-- output: examples/first-stream/reader.py -->   lines that this program prints; test_examples.py compares
    <!-- run -->                                       Python; the blocks of a page make one program, which is run
    <!-- config -->                                    a penstock.yaml
    <!-- study -->                                     a study for `penstock run`
    <!-- pipeline -->                                  a pipeline for `penstock analyze`

Blocks of the language `console` need none: their commands, options and variables are looked up.
"""

import dataclasses
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "bench").glob("*.md"))]
TIMEOUT_S = 120


@dataclasses.dataclass(frozen=True)
class Block:
    page: Path
    line: int  # of its first line of text, from 1
    language: str
    marker: str  # "" when there is none
    text: str

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    found, start = [], None
    for number, line in enumerate(lines):
        if start is None and line.startswith("```"):
            start = number
            marker = re.fullmatch(r"<!-- (.*) -->", lines[number - 1]) if number else None
        elif start is not None and line == "```":
            text = "\n".join(lines[start + 1 : number]) + "\n"
            found.append(Block(page, start + 2, lines[start][3:].strip(), marker[1] if marker else "", text))
            start = None
    assert start is None, f"{page}: a block is not closed"
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def with_marker(word):
    return [pytest.param(block, id=str(block)) for block in BLOCKS if block.marker.split(":")[0] == word]


def clean_environment(folder):
    """Without the settings of whoever runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return kept | {"PENSTOCK_DIRECTORY": str(folder / "streams"), "PENSTOCK_LISTEN": "127.0.0.1"}


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "streams").mkdir(mode=0o700)
    return clean_environment(tmp_path)


# ----------------------------------------------------------------------------------------------------------- snippets


def test_every_block_is_checked():
    known = {"from", "output", "run", "config", "study", "pipeline", "server configuration"}
    for block in BLOCKS:
        if block.page.parent.name == "internals" or block.page.parent.name == "decisions":
            continue  # drawings
        # Unit files and job scripts belong to systems that are not here.
        assert block.language in ("console", "ini", "bash") or block.marker.split(":")[0] in known, (
            f"{block} has no marker"
        )
    assert {block.marker.split(":")[0] for block in BLOCKS if block.marker} <= known


@pytest.mark.parametrize("block", with_marker("from"))
def test_snippet_is_part_of_an_example(block):
    name, _, whole = block.marker.removeprefix("from: ").partition(" ")
    source = (ROOT / name).read_text(encoding="utf-8")
    if whole:
        assert whole == "whole"
        assert block.text == source, f"{block} is not {name}"
        return
    wanted = textwrap.dedent(block.text).splitlines()
    lines = source.splitlines()
    candidates = (lines[i : i + len(wanted)] for i in range(len(lines) - len(wanted) + 1))
    assert any(textwrap.dedent("\n".join(part) + "\n").splitlines() == wanted for part in candidates), (
        f"{block} is not in {name}"
    )


@pytest.mark.parametrize("page", [page for page in PAGES if any(b.marker == "run" for b in blocks_of(page))], ids=str)
def test_page_runs(page, environment, tmp_path):
    """The lines keep their numbers, so that a traceback names the place on the page."""
    program = []
    for block in (block for block in blocks_of(page) if block.marker == "run"):
        program += [""] * (block.line - 1 - len(program))
        program += block.text.splitlines()
    file = tmp_path / f"{page.stem}.py"
    file.write_text("\n".join(program) + "\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, file],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, f"{page.relative_to(ROOT)}: {done.stdout}{done.stderr}"
    assert "warn" not in done.stderr, f"{page.relative_to(ROOT)}: {done.stderr}"


@pytest.mark.parametrize("block", with_marker("config"))
def test_configuration_is_valid(block, tmp_path, monkeypatch):
    import penstock
    import yaml

    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "penstock.yaml"
    file.write_text(block.text, encoding="utf-8")
    context = penstock.Context(config_file=str(file))  # checks all of it
    for name in yaml.safe_load(block.text).get("streams", {}):
        assert context.options_for("other" if name == "*" else name)
    file.write_text("log: warn\n", encoding="utf-8")
    penstock.Context(config_file=str(file))  # the level of the log is the process's: other tests run in this one


@pytest.mark.parametrize("block", with_marker("pipeline"))
def test_pipeline_is_valid(block):
    from penstock.analysis.pipeline import Pipeline

    assert Pipeline(block.text, str(block)).triggered


@pytest.mark.parametrize("block", with_marker("study"))
def test_study_is_valid(block, tmp_path):
    from penstock.workflow import load_study

    file = tmp_path / "study.yaml"
    file.write_text(block.text, encoding="utf-8")
    assert load_study(file).programs


# ------------------------------------------------------------------------------------------------------------ commands

# What a command of another project may be given here.
OTHER_OPTIONS = {
    "cmake": {"-S", "-B", "-D", "--build", "--preset", "--target", "--install", "--prefix"},
    "curl": {"-X", "-H"},
    "ctest": {"--test-dir", "-R", "--output-on-failure", "--preset"},
    "mpiexec": {"-n"},
    "pip": set(),
    "ssh": {"-L", "-N"},
    "pytest": {"-k"},
}
OWN_VARIABLES = re.compile(r"PENSTOCK_(CONFIG|DIRECTORY|LISTEN|LOG|STATISTICS|TRACE|BIN|(STREAM|MESH)_[A-Z0-9_]+)")


def commands_of(text):
    """(variables, words) of each command line."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["export"]:
            words = words[1:]
        variables = []
        while words and re.match(r"[A-Z_]+=", words[0]):
            variables.append(words.pop(0).partition("=")[::2])
        if words or variables:
            yield variables, words


def check_command(words):
    program, options = words[0], {word.partition("=")[0] for word in words[1:] if word.startswith("-")}
    if program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        known = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
        known |= set(re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE))
        assert {word.partition("=")[0] for word in words[1:]} <= known
    elif program == "penstock":
        check_penstock(words[1:])
    elif program == ".":
        assert words[1:] == [".venv/bin/activate"]
    elif program == "python":
        assert (ROOT / words[1]).is_file()
    elif program in ("cc", "gfortran"):
        assert all((ROOT / word).is_file() for word in words if word.endswith((".c", ".f90")))
        assert {word for word in words if word.startswith("-l")} <= {"-lpenstock_fortran", "-lpenstock"}
    elif program == "mpiexec":
        starts = [0, *(i for i, word in enumerate(words) if word == ":")]  # of the programs of one launch
        for first, last in zip(starts, [*starts[1:], None], strict=True):
            part = words[first + 1 : last]
            if part[0] == "--oversubscribe":
                part = part[1:]
            while part[0] == "-x" and "=" in part[1]:
                part = part[2:]
            assert part[0] == "-n" and part[1].isdigit()
            check_command(part[2:])
    elif "/" in program:
        listings = [file.read_text() for file in (ROOT / "examples").glob("*/CMakeLists.txt")]
        for room in ("src", "sims"):
            listings += [file.read_text() for file in (ROOT / room).rglob("CMakeLists.txt")]
        name = Path(program).name.removeprefix("test_")
        assert any(re.search(rf"\b{re.escape(name)}\b", listing) for listing in listings), f"no program {program}"
    else:
        assert program in OTHER_OPTIONS, f"{program} is no command of ours"
        options = {"-D" if option.startswith("-D") else option for option in options}
        assert options <= OTHER_OPTIONS[program], f"{program} with {options}"


def benchmark_options():
    import penstock.bench

    files = [file for file in Path(penstock.bench.__file__).parent.glob("*.py") if not file.stem.endswith("_peer")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    return set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', "".join(texts)))


def check_penstock(words):
    import typer
    from penstock.cli.main import app

    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
        assert not command.hidden, f"an earlier name: {command.name}"
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if command.name in ("streams", "rpc", "pool", "analysis", "space", "mesh", "fragments"):  # pass their options on
        known |= benchmark_options()
    for word in words:
        option = word.partition("=")[0]
        assert not word.startswith("-") or option in known | {"-h", "--help"}, f"{command.name} has no {option}"
    assert not hasattr(command, "commands") or {"--help", "--version"} & set(words), f"no such command: {words}"


CONSOLE = [pytest.param(block, id=str(block)) for block in BLOCKS if block.language == "console"]


@pytest.mark.parametrize("block", CONSOLE)
def test_commands_exist(block, monkeypatch):
    import penstock

    for variables, words in commands_of(block.text):
        for name, value in variables:
            assert OWN_VARIABLES.fullmatch(name) or not name.startswith("PENSTOCK_"), f"{block}: {name}"
            if name.startswith("PENSTOCK_STREAM_"):
                monkeypatch.setenv(name, value)
                penstock.Context().options_for(name.removeprefix("PENSTOCK_STREAM_").lower())
                monkeypatch.delenv(name)
        if words:
            try:
                check_command(words)
            except AssertionError as error:
                raise AssertionError(f"{block}: {shlex.join(words)}: {error}") from None


# --------------------------------------------------------------------------------------------------------------- links


def without_blocks(page):
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors_of(page):
    """GitHub's: lower case, blanks to hyphens, punctuation gone."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.relative_to(ROOT)}: {target} leads nowhere"
        assert file.is_relative_to(ROOT), f"{page.relative_to(ROOT)}: {target} is not in the tree"
        assert not anchor or anchor in anchors_of(file), f"{page.relative_to(ROOT)}: no heading for {target}"


def test_every_page_can_be_found():
    """From the README, by links."""
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)\s#:]+)", page.read_text(encoding="utf-8"))
        waiting += [file for file in ((page.parent / t).resolve() for t in targets) if file.is_file()]
    assert not [str(page) for page in PAGES if page not in seen and page.is_relative_to(ROOT / "docs")]


def test_pictures_are_small():
    for picture in (ROOT / "docs" / "images").iterdir():
        assert picture.stat().st_size < 60_000, picture


# ----------------------------------------------------------------------------------------------------------- reference


def rows_of(page):
    """The rows of all tables of a page: lists of cells, code marks removed."""
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and line.endswith(" |"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line[1:-1])]


def code_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_options_and_defaults(monkeypatch, tmp_path):
    import penstock

    for name in [name for name in os.environ if name.startswith("PENSTOCK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)  # away from any penstock.yaml
    effective = penstock.Context().options_for("any")
    documented = {
        code_in(row[0])[0]: code_in(row[2])[0].strip('"')
        for row in rows_of("reference/options.md")
        if len(row) == 4 and code_in(row[0]) and code_in(row[0])[0] in effective
    }
    assert documented == effective  # as to_yaml of the library prints them
    assert list(documented) == list(effective)


def test_context_options():
    header = (ROOT / "include/penstock/options.hpp").read_text()
    struct = re.search(r"struct ContextOptions \{(.*?)\n\};", header, re.DOTALL)[1]
    fields = re.findall(r"^  (?:std::string|bool) (\w+)", struct, re.MULTILINE)
    documented = {code for row in rows_of("reference/options.md") for code in code_in(row[0])}
    assert fields and set(fields) <= documented


def test_environment_variables():
    sources = [*(ROOT / "src").rglob("*.[ch]pp"), *(ROOT / "python").rglob("*.py")]
    used = set()
    for source in sources:
        if "test" not in source.name:
            used |= set(re.findall(r"\"(PENSTOCK_[A-Z]+(?:_[A-Z]+)*)_?\"", source.read_text(encoding="utf-8")))
    documented = {
        re.match(r"PENSTOCK_[A-Z]+", code)[0]
        for row in rows_of("reference/options.md")
        for code in code_in(row[0])
        if code.startswith("PENSTOCK_")
    }
    assert documented <= {re.match(r"PENSTOCK_[A-Z]+", name)[0] for name in used}
    page = "".join((ROOT / "docs/reference/options.md").read_text(encoding="utf-8").split())
    for name in ("PENSTOCK_CONFIG", "PENSTOCK_DIRECTORY", "PENSTOCK_LISTEN", "PENSTOCK_LOG", "PENSTOCK_STATISTICS"):
        assert name in used and name in page


def test_error_codes():
    import penstock

    header = (ROOT / "include/penstock/error.hpp").read_text()
    codes = dict(re.findall(r"^  (\w+) = (\d+),", header, re.MULTILINE))
    assert codes.pop("ok") == "0"
    classes = {getattr(penstock, name).code: name for name in penstock.errors.__all__ if name != "Error"}
    documented = {
        code_in(row[0])[0]: (row[1], code_in(row[2])[0]) for row in rows_of("reference/errors.md") if code_in(row[0])
    }
    assert documented == {name: (number, classes[name]) for name, number in codes.items()}


def test_statistics():
    from penstock import PeerStatistics, Statistics

    fields = [field.name for each in (Statistics, PeerStatistics) for field in dataclasses.fields(each)]
    documented = [code for row in rows_of("reference/statistics.md") for code in code_in(row[0])]
    assert documented == fields


def test_c_functions():
    names = ("penstock", "mpi", "coprocessor", "pool", "space", "region")
    header = "".join((ROOT / f"include/penstock/{name}.h").read_text() for name in names)
    functions = set(re.findall(r"\b(penstock_[a-z0-9_]+)\(", header))
    functions = {name for name in functions if not name.endswith("_")}
    page = (ROOT / "docs/reference/c.md").read_text(encoding="utf-8")
    assert {code for row in rows_of("reference/c.md") for code in code_in(row[0])} == functions
    assert set(re.findall(r"\bPENSTOCK_\w+", page)) <= set(re.findall(r"\bPENSTOCK_\w+", header))


def test_fortran_names():
    """The procedures of each type with all of their arguments, and nothing else."""
    documented, kind = {}, None
    for row in rows_of("reference/fortran.md"):
        if heading := re.fullmatch(r"`type\((\w+)\)`", row[0]):
            kind = heading[1]
        elif kind:
            for name, arguments in re.findall(r"`(\w+)\((.*?)\)`", row[0]):
                documented[kind, name] = re.findall(r"\w+", arguments)
    names = ("penstock", "penstock_writing", "penstock_reading", "penstock_space", "penstock_coprocessing")
    names += ("penstock_regions",)
    found = {}
    for source in ((ROOT / f"fortran/{name}.f90").read_text() for name in names):
        for kind, whole in re.findall(r"^  type :: (\w+)\n(.*?)^  end type", source, re.M | re.S):
            bound = whole.partition("  contains\n")[2]
            for name, target in re.findall(r"procedure :: (\w+)(?: => (\w+))?", bound):
                listed = re.search(rf"(?:subroutine|function) {target or name}\((.*?)\)", source, re.S)[1]
                arguments = re.findall(r"\w+", listed)
                found[kind, name] = [each for each in arguments if each not in ("self", "stat", "errmsg")]
    assert documented == found


def test_python_names():
    import penstock

    page = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", page))
    missing = [name for name in penstock.__all__ if name not in words and not hasattr(penstock.errors, name)]
    assert not missing
    writing = (penstock.Writer, penstock.WriteStep, penstock.Coprocessor, penstock.CoprocessStep)
    for each in (*writing, penstock.Reader, penstock.ReadStep, penstock.Variable):
        own = [name for name in vars(each) if not name.startswith("_")]
        assert not [f"{each.__name__}.{name}" for name in own if name not in words]
    for receiver, name in re.findall(r"`(penstock|writer|coprocessor|reader|stream|step|variable)\.(\w+)", page):
        owners = {
            "penstock": [penstock],
            "writer": [penstock.Writer],
            "reader": [penstock.Reader],
            "stream": [penstock.Writer, penstock.Reader],
            "coprocessor": [penstock.Coprocessor],
            "step": [penstock.WriteStep, penstock.CoprocessStep, penstock.ReadStep],
            "variable": [penstock.Variable],
        }[receiver]
        module = receiver == "penstock" and importlib.util.find_spec(f"penstock.{name}")
        assert module or any(hasattr(owner, name) for owner in owners), f"{receiver}.{name}"


def test_cpp_names():
    services = re.search(r"set\(rpc_headers (.*?)\)", (ROOT / "cmake/RpcHeaders.cmake").read_text(), re.DOTALL)[1]
    files = [*(ROOT / "include/penstock").glob("*.hpp"), *(ROOT / "src" / name for name in services.split())]
    headers = "".join(file.read_text() for file in files)
    for row in rows_of("reference/cpp.md"):
        for code in code_in(row[0]):
            for name in re.findall(r"(\w+)(?=\(|<T>\()", code) or [re.match(r"[\w:]+", code)[0].split("::")[-1]]:
                assert re.search(rf"\b{name}\b", headers), f"{name} is not in the headers"
    page = (ROOT / "docs/reference/cpp.md").read_text(encoding="utf-8")
    for each in ("Writer", "WriteStep", "Coprocessor", "CoprocessStep", "Reader", "ReadStep", "Context", "View"):
        body = re.search(rf"^class {each} \{{(.*?)^\}};", headers, re.MULTILINE | re.DOTALL)[1]
        public = body.partition("\n private:")[0]
        names = set(re.findall(r"^  (?! )[^/\n]*?\b([a-z]\w*)\([^\n]*$", public, re.MULTILINE)) - {"explicit", "bytes_"}
        assert not [f"{each}::{name}" for name in names if not re.search(rf"\b{name}\b", page)]


def test_command_line():
    """A command has a section of its own, or its group has one for those that have none."""
    import typer
    from penstock.cli.main import app

    text = without_blocks(ROOT / "docs/reference/command-line.md")
    sections = dict(re.findall(r"^## penstock ([\w ]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    commands = {}
    for name, command in typer.main.get_command(app).commands.items():
        inner = {f"{name} {word}": each for word, each in getattr(command, "commands", {}).items()}
        commands |= {} if command.hidden else inner or {name: command}
    options = {name: set() for name in sections}
    for name, command in commands.items():
        section = name if name in sections else name.split()[0]
        assert section in sections, f"penstock {name}"
        each = {max(p.opts, key=len) for p in command.params if p.opts[0].startswith("-")} - {"--help"}
        options[section] |= benchmark_options() if section == "bench" else each
    for name, section in sections.items():
        documented = {code.split()[0] for code in code_in(section) if code.startswith("--")}
        assert options[name] and documented == options[name], f"penstock {name}"


def test_pipeline_reference():
    """Every option of a filter, plot, scene and extract is named in its section."""
    from penstock.analysis import records, schema
    from penstock.analysis.filters import FILTERS

    text = (ROOT / "docs/reference/pipelines.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE))
    for name, (kind, short) in FILTERS.items():
        named = set(re.findall(r"[`{ ](\w+)[`},: ]", rows[name]))
        assert set(schema.options_of(kind)) <= named, name
        assert short is None or f"**`{short}`**" in rows[name], name
    for kind in (records.Plot, records.Scene, records.Extract):
        assert all(f"`{name}" in text for name in schema.options_of(kind)), kind
