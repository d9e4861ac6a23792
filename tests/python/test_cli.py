"""The commands, as a user runs them: what they print, and what they say about wrong input."""

import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from penstock.cli import aliases, main

TIMEOUT_S = 120


@pytest.fixture
def penstock(tmp_path):
    """penstock("run", "x.yaml") -> CompletedProcess of the command in an empty folder, with a directory of its own."""

    def call(*words, **environment):
        return subprocess.run(
            [sys.executable, "-m", "penstock.cli.main", *map(str, words)],
            cwd=tmp_path,
            env={**own_environment(tmp_path), **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )

    return call


def own_environment(tmp_path):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    return {**kept, "PENSTOCK_DIRECTORY": str(tmp_path / "runtime" / "penstock"), "COLUMNS": "160"}


def words_of(result):
    """Both outputs, blanks and line ends made one blank: how the terminal wraps a text does not matter."""
    return re.sub(r"\s+", " ", result.stdout + result.stderr)


# ------------------------------------------------------------------------------------------------------------- config


def test_config_says_where_options_came_from(penstock, tmp_path):
    (tmp_path / "penstock.yaml").write_text("streams: {heat: {queue_steps: 7}, wake: pool}\nlog: warn\n")
    variables = {"PENSTOCK_CONFIG": str(tmp_path / "penstock.yaml"), "PENSTOCK_STREAM_HEAT": "spin_us=3"}
    result = penstock("config", "heat", "--json", **variables)
    options = json.loads(result.stdout)["options"]
    assert options["queue_steps"] == {"value": "7", "from": "penstock.yaml:1"}
    assert options["spin_us"] == {"value": "3", "from": "PENSTOCK_STREAM_HEAT"}
    assert options["when_full"] == {"value": "block", "from": "default"}
    assert "streams: heat, wake" in penstock("config", **variables).stdout
    process = json.loads(penstock("config", "--json", **variables).stdout)
    assert process["options"]["directory"]["from"] == "PENSTOCK_DIRECTORY"
    assert process["options"]["log"] == {"value": "warn", "from": "penstock.yaml:2"}
    assert process["sections"] == {"streams": ["heat", "wake"]}
    secret = {"PENSTOCK_POOL_STAGE": "timeout_ms=5,token=1234"}
    options = json.loads(penstock("config", "--pool", "stage", "--json", **secret).stdout)["options"]
    assert options["timeout_ms"] == {"value": "5", "from": "PENSTOCK_POOL_STAGE"}
    assert options["token"]["value"] == "(hidden)" and options["pool"]["value"] == "stage"
    assert penstock("config", "heat", "--pool", "stage").returncode == 2


# ------------------------------------------------------------------------------------------------------- wrong input


def test_help_names_every_command(penstock):
    result = penstock("--help")
    assert result.returncode == 0
    for command in ("run", "stream", "object", "pool", "bench", "doctor"):
        assert re.search(rf"│ {command} ", result.stdout)
    assert not re.search("│ (inspect|need|serve) ", result.stdout)
    assert "Traceback" not in result.stdout
    assert penstock().stdout or penstock().stderr
    assert penstock("--version").stdout.startswith("penstock ")


@pytest.mark.parametrize(("words", "why"), [
    (("stream", "top", "--once", "--every", "2"), "--every is for looking again"),
    (("stream", "top", "--json", "--every", "2"), "--every is for looking again"),
    (("pool", "status", "--json", "--every", "2"), "--every is for looking again"),
    (("pool", "serve", "--tier", "files"), "--tier says how objects lie in the folder of --disk"),
])  # fmt: skip
def test_an_option_without_effect_is_refused(penstock, words, why):
    result = penstock(*words)
    assert result.returncode == 2 and why in words_of(result), words_of(result)


@pytest.mark.parametrize("command", ["run", "stream", "stream show", "stream save", "object get", "pool serve"])
def test_every_command_has_help(penstock, command):
    result = penstock(*command.split(), "--help")
    assert result.returncode == 0
    assert "Usage: " in result.stdout


def test_the_earlier_name_of_a_command_names_the_new_one(penstock):
    now = penstock("stream", "top", "--once")
    result = penstock("top", "--once")
    first, rest = result.stderr.split("\n", 1)
    assert first == "penstock top is now penstock stream top; the old name goes with the next release"
    assert (result.returncode, result.stdout, rest) == (now.returncode, now.stdout, now.stderr)
    assert "penstock need is now penstock object get --wait" in penstock("need", "a").stderr
    dropped = words_of(penstock("drop", "heat", "--stream"))
    assert "penstock drop --stream is now penstock stream drop" in dropped and "needs --yes in scripts" in dropped


def test_nothing_in_the_tree_uses_an_earlier_name():
    root = Path(__file__).parents[2]
    earlier = re.compile(rf"penstock ({'|'.join([*aliases.RENAMED, 'need', 'drop'])})\b")
    kept = {root / "python/penstock/cli/aliases.py", Path(__file__)}
    places = ("README.md", "docs", "examples", "include", "src", "python", "tests", "bench", "adapters", "sims")
    files = [file for place in places for file in [root / place, *(root / place).rglob("*")]]
    texts = [file for file in files if file.suffix in (".md", ".py", ".hpp", ".cpp", ".h", ".c", ".yaml", ".sh")]
    assert len(texts) > 500
    found = [
        f"{file.relative_to(root)}: {match[0]}"
        for file in sorted(set(texts) - kept)
        for match in earlier.finditer(file.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize(
    "words, code, message",
    [
        (["rnu"], 2, "No such command 'rnu'"),
        (["run"], 2, "Missing argument"),
        (["run", "nothing.yaml"], 1, "nothing.yaml: no such file"),
        (["run", "doctr"], 2, "did you mean 'doctor'?"),
        (["run", "x.yaml", "--step", "3"], 2, "No such option: --step"),
        (["run", "x.yaml", "--steps", "0"], 2, "Invalid value for '--steps'"),
        (["stream", "top", "--statistics", "nowhere"], 2, "nowhere is not a folder"),
        (["stream", "save", "heat"], 2, "Missing argument"),
        (["stream", "show"], 2, "Missing argument"),
    ],
)
def test_wrong_words_say_what_is_wrong(penstock, words, code, message):
    result = penstock(*words)
    assert message in words_of(result)
    assert result.returncode == code
    assert "Traceback" not in words_of(result)


# --------------------------------------------------------------------------------------------------------------- run


def test_run_prints_what_happened(penstock, tmp_path):
    (tmp_path / "study.yaml").write_text(
        "programs:\n"
        '  simulation: {command: [sh, -c, "echo {} > $0/a.png; echo [1] > $0/b.json", "{output}"]}\n'
        '  analysis: {command: ["true"]}\n'
    )
    result = penstock("run", "study.yaml")
    assert result.returncode == 0, result.stderr
    assert "study: succeeded" in result.stdout
    assert "pictures: a.png" in result.stdout
    assert "files: b.json" in result.stdout
    assert re.search(r"simulation: started \(pid \d+\)", result.stderr)
    assert "simulation: ok after" in result.stderr
    assert json.loads((tmp_path / "output/study/summary.json").read_text())["status"] == "succeeded"


def test_run_of_a_failing_study(penstock, tmp_path):
    (tmp_path / "study.yaml").write_text(
        'programs: {simulation: {command: [sh, -c, "echo settings.yaml is [missing]; exit 4"]}}'
    )
    result = penstock("run", "study.yaml", "--output", "elsewhere")
    assert result.returncode == 1
    assert "Error: simulation: exit code 4" in result.stderr
    assert "| settings.yaml is [missing]" in result.stderr
    assert "elsewhere/logs/simulation.log" in result.stderr
    assert "study: failed" in result.stdout


def test_run_past_its_deadline(penstock, tmp_path):
    (tmp_path / "study.yaml").write_text("programs: {waits: {command: [tail, -f, /dev/null]}}")
    result = penstock("run", "study.yaml", "--timeout", "0.2", "--quiet")
    assert result.returncode == 124
    assert "the deadline of 0.2 s passed; ended: waits" in words_of(result)
    assert result.stdout == ""


def test_run_with_a_wrong_study_and_without_a_program(penstock, tmp_path):
    (tmp_path / "wrong.yaml").write_text("programs: {a: {comand: [x]}}")
    assert "unknown key 'comand'; did you mean 'command'?" in penstock("run", "wrong.yaml").stderr
    (tmp_path / "missing.yaml").write_text("programs: {a: {command: [gray-scot]}}")
    result = penstock("run", "missing.yaml")
    assert "programs.a: program 'gray-scot' was not found" in result.stderr
    assert result.returncode == 1
    (tmp_path / "file").write_text("")
    (tmp_path / "good.yaml").write_text("programs: {a: {command: ['true']}}")
    assert "cannot be used" in penstock("run", "good.yaml", "--output", "file").stderr


# --------------------------------------------------------------------------------------------------------------- top


def test_top_shows_the_statistics_of_a_folder(penstock, tmp_path):
    folder = tmp_path / "statistics" / "simulation"
    folder.mkdir(parents=True)
    values = {"steps": 12, "bytes": 3 << 20, "queue_depth": 2, "steps_dropped": 1, "copy_s": 0.5, "wait_s": 90}
    (folder / "heat.writer.77.json").write_text(json.dumps(values))
    (folder / "wake.reader.78.json").write_text(json.dumps(values))

    shown = penstock("stream", "top", "--once", "--statistics", "statistics").stdout
    titles, row = (line for line in shown.splitlines() if "stream" in line or "heat" in line)
    cells = {title.strip(): cell.strip() for title, cell in zip(titles.split("┃"), row.split("│"), strict=True)}
    del cells[""]
    assert cells == {
        "stream": "heat", "side": "writer", "program": "simulation", "pid": "77", "steps": "12", "moved": "3 MiB",
        "queue": "2", "dropped": "1", "copying": "0.5 s", "waiting": "1:30 min",
    }  # fmt: skip
    rows = json.loads(penstock("stream", "top", "wake", "--json", "--statistics", "statistics").stdout)["streams"]
    assert [(row["stream"], row["role"], row["program"], row["steps"]) for row in rows] == [
        ("wake", "reader", "simulation", 12)
    ]


def test_top_leaves_out_columns_where_the_terminal_is_narrow(tmp_path):
    from penstock.cli.top import View, _shown
    from rich.console import Console

    values = {"steps": 12345, "bytes": 3 << 30, "queue_depth": 2, "steps_dropped": 1, "copy_s": 0.5, "wait_s": 90}
    (tmp_path / "a-stream-of-some-length.writer.7777777.json").write_text(json.dumps(values))
    for width in (200, 80, 70):
        console = Console(width=width, record=True, file=io.StringIO())
        table, _ = _shown(View([tmp_path], set()), console)
        console.print(table)
        shown = console.export_text()
        assert "a-stream-of-some-length" in shown and "…" not in shown and "waiting" in shown
        assert ("7777777" in shown) == (width == 200)


def test_top_without_anything_to_show_says_how(penstock):
    result = penstock("stream", "top", "--once")
    assert result.returncode == 0
    assert "set PENSTOCK_STATISTICS=FOLDER" in words_of(result)


# ------------------------------------------------------------------------------------------------------------ doctor


def test_doctor_finds_a_directory_that_is_open_to_others(penstock, tmp_path):
    directory = tmp_path / "runtime" / "penstock"
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    result = penstock("doctor", "--quick", "--json")
    findings = {finding["check"]: finding for finding in json.loads(result.stdout)}
    assert result.returncode == 1
    assert findings["runtime directory"]["state"] == "error"
    assert f"chmod 700 {directory}" in findings["runtime directory"]["advice"]
    assert findings["memory files"]["state"] == "ok"
    assert findings["numpy"]["state"] == "ok"


def test_doctor_sees_the_mpi_launcher_that_was_chosen(penstock):
    result = penstock("doctor", "--json", PENSTOCK_MPIEXEC="no-such-launcher")
    (finding,) = [f for f in json.loads(result.stdout) if f["check"] == "MPI launcher"]
    assert finding["state"] == "note"
    assert "PENSTOCK_MPIEXEC=no-such-launcher is not a program" in finding["advice"]


def test_the_installed_program_is_this_one():
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="penstock") or [None]
    if entry is None:
        pytest.skip("penstock is not installed, only on the path")
    assert entry.load() in (main.app, main.main)


def test_names_with_control_characters_do_not_act_on_the_terminal(penstock, tmp_path):
    name = "red\x1b[31m\tname"
    (tmp_path / "statistics" / name).mkdir(parents=True)
    (tmp_path / "statistics" / name / f"{name}.writer.77.json").write_text("{}")
    (tmp_path / f"{name}.steps").mkdir()
    (tmp_path / f"{name}.steps" / "stream.json").write_text("damaged")
    for words in (["ls"], ["top", "--once", "--statistics", "statistics"], ["show", f"{name}.h5"]):
        result = penstock("stream", *words)
        assert "\x1b" not in result.stdout + result.stderr
        assert re.search(r"\\(x|u00)1b\[31m", result.stdout + result.stderr)
