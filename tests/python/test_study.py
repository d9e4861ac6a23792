"""`penstock study staging`: verdicts from figures, the report, and one quick run."""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from penstock.bench.runner import RunFailed
from penstock.study import judges
from penstock.study.experiments import DEFAULT, QUICK, Case, Runner, cases_of, grid_boxes, reader_boxes
from penstock.study.report import page
from penstock.study.statements import (
    CONFIRMED,
    NOT_TESTABLE,
    REFUTED,
    Statement,
    assess,
    assess_all,
    on_subsets,
)

BUILD = Path(os.environ.get("PENSTOCK_BUILD", Path(__file__).parents[2] / "build"))
PROGRAMS = Path(os.environ.get("PENSTOCK_BIN", BUILD / "bin"))


def figures(writer=1.0, reader_1=1.0, reader_2=1.0, steps=7, **servers):
    """Of one round: two ranks, the second the slower; a first step that does not count. Milliseconds; servers: of the
    bytes put."""
    ranks = {
        name: {"io_s": [[9.0] + [ms / 2000] * (steps - 1), [9.0] + [ms / 1000] * (steps - 1)]}
        for name, ms in (("writer", writer), ("reader_1", reader_1), ("reader_2", reader_2))
    }
    counted = dict.fromkeys(("converted_bytes", "replica_peak", "memory_peak", "pss"), 0) | servers
    scaled = {name: DEFAULT.put_bytes * times for name, times in counted.items()}
    return ranks | {"servers": scaled, "servers_after_reader_1": scaled}


def raw_of(cases, cores=2, failed=None):
    about = {"plan": asdict(DEFAULT), "cores": cores, "conversion_s": 0.01, "machine": "x", "begun": "now"}
    about |= {"load_before": 0.0, "load_after": 0.0, "left_out": [], "quick": False, "failed": failed or {}}
    return about | {"cases": {key: one if isinstance(one, list) else [one] for key, one in cases.items()}}


def verdict_of(judge, cases, **about):
    return assess(Statement("1", "so it is", judge, "yes", "no", cores=about.pop("needs", 0)), raw_of(cases, **about))


A, B = "cycle/a/0", "cycle/b/0"
FASTER = judges.faster((A, "reader_1"), (B, "reader_1"), ("a", "b"))
ALIKE = judges.alike((A, "reader_1"), (B, "reader_1"), ("a", "b"))
STEADY = judges.flat([A, B], "reader_1")
ONCE = judges.accounted(A, "converted_bytes", 1, "converted")
WON = judges.almost_always_faster([((A, "writer"), (B, "writer")), ((A, "reader_1"), (B, "reader_1"))])
LEAST = judges.least([(A, "writer"), (A, "reader_1")], [[(B, "writer"), (B, "reader_1")]])
BREAKS = judges.breaks_down(A)


@pytest.mark.parametrize(
    "judge, confirming, refuting, text",
    [
        (FASTER, {A: figures(), B: figures(reader_1=2)}, {A: figures(), B: figures(reader_1=1.05)}, "2.00×"),
        (ALIKE, {A: figures(), B: figures(reader_1=1.2)}, {A: figures(), B: figures(reader_1=1.3)}, "1.20×"),
        (ALIKE, {A: figures(reader_1=1.2), B: figures()}, {A: figures(reader_1=1.3), B: figures()}, "0.83×"),
        (STEADY, {A: figures(reader_1=1.4), B: figures()}, {A: figures(reader_1=1.6), B: figures()}, "1.40×"),
        (ONCE, {A: figures(converted_bytes=1)}, {A: figures(converted_bytes=1.05)}, "expected 1.00×"),
        (WON, {A: figures(), B: figures(2, 4)}, {A: figures(), B: figures(2, 0.5)}, "saved 50 % to 75 %"),
        (LEAST, {A: figures(3, 1), B: figures(1, 4)}, {A: figures(3, 1), B: figures(1, 2)}, "a 4.0 ms, b 5.0 ms"),
    ],
)
def test_judges_confirm_refute_and_miss_figures(judge, confirming, refuting, text):
    confirmed = verdict_of(judge, confirming)
    assert (confirmed.verdict, confirmed.why) == (CONFIRMED, "yes") and text in confirmed.measured
    refuted = verdict_of(judge, refuting)
    assert (refuted.verdict, refuted.why) == (REFUTED, "no")
    missing = verdict_of(judge, {B: figures()})
    assert missing.verdict == NOT_TESTABLE and A in missing.why
    both = {key: [one, refuting[key]] for key, one in confirming.items()}
    assert verdict_of(judge, both).why == "the rounds disagree: it holds in 1 of 2"
    few = verdict_of(judge, confirming, needs=8)
    assert few.verdict == NOT_TESTABLE and "needs 8 cores" in few.why and text in few.measured


def test_early_steps_are_compared_with_late_ones_and_the_second_reader():
    judge = judges.early_steps_longer(A)
    steps = [9.0, 0.004, 0.004, 0.002, 0.002, 0.001, 0.001]
    one = figures(reader_2=1)
    early = one | {"reader_1": {"io_s": [steps]}}
    assert verdict_of(judge, {A: early}).verdict == CONFIRMED
    assert verdict_of(judge, {A: one}).verdict == REFUTED
    assert verdict_of(judge, {A: early | {"reader_2": {"io_s": [[9.0, 0.0001]]}}}).verdict == REFUTED
    assert verdict_of(judge, {}).verdict == NOT_TESTABLE


def test_servers_break_down_survive_or_were_not_short_of_memory():
    assert verdict_of(BREAKS, {}, failed={A: "out of memory"}).verdict == CONFIRMED
    assert verdict_of(BREAKS, {A: figures(replica_peak=0.4)}).verdict == REFUTED
    enough = verdict_of(BREAKS, {A: figures(replica_peak=1)})
    assert enough.verdict == NOT_TESTABLE and "too small" in enough.why


def test_memory_of_subsets_is_judged_for_each_cube():
    def verdicts(peak):
        cases = {
            f"subset/{place}/{cube}": figures(memory_peak=peak(place, (cube / DEFAULT.side) ** 3))
            for place in ("at_reader", "on_request", "in_advance")
            for cube in DEFAULT.cubes
        }
        found = [assess(one, raw_of(cases)) for one in on_subsets(DEFAULT)]
        return [one.verdict for one in found if one.where == "4.1.3, fig. 4-6"]

    papers = {"at_reader": lambda cube: 1, "on_request": lambda cube: 1 + cube, "in_advance": lambda cube: 2}
    assert verdicts(lambda place, cube: papers[place](cube)) == [CONFIRMED] * 3
    assert verdicts(lambda place, cube: 1.5) == [REFUTED] * 3


def test_every_statement_names_cases_that_the_study_runs():
    """With figures of all cases nothing is missing."""
    cases = {case.key: figures() for case in cases_of(DEFAULT, quick=False)[0]}
    missing = [one for one in assess_all(raw_of(cases)) if "no figures" in one.why]
    assert not missing
    assert {one.verdict for one in assess_all(raw_of({}))} == {NOT_TESTABLE}


def test_boxes_cover_the_array_and_cubes_are_in_the_middle():
    assert grid_boxes((5, 4, 3), (2, 2, 1))[3] == ((2, 2, 0), (3, 2, 3))
    boxes = reader_boxes(QUICK, Case("subset", "at_reader", 12, cube=12))
    assert boxes == (((18, 18, 18), (6, 12, 12)), ((24, 18, 18), (6, 12, 12)))
    assert len(set(reader_boxes(QUICK, Case("sharing", "at_reader", 4, readers=4, together=True)))) == 1


def test_report_escapes_and_lists_what_failed():
    raw = raw_of({A: figures()}, failed={"tight/in_advance/1.25": "a < b"})
    text = page(raw, [assess(Statement("9", "R1 < R2 & more", FASTER), raw)])
    assert "R1 &lt; R2 &amp; more" in text and "tight/in_advance/1.25 failed: a &lt; b" in text
    assert "1 not testable here" in text and "a, delay 0 T" in text


@pytest.fixture
def built(monkeypatch):
    if not (PROGRAMS / "penstock-server").exists():
        pytest.skip(f"penstock-server is not in {PROGRAMS}: build it, or set PENSTOCK_BUILD")
    monkeypatch.setenv("PENSTOCK_BIN", str(PROGRAMS))


def study(folder, *words):
    command = [sys.executable, "-m", "penstock.cli.main", "study", "staging", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_quick_run_writes_figures_and_report(built, tmp_path):
    done = study(tmp_path, "--quick", "--disk", str(tmp_path))
    assert done.returncode == 0, done.stderr
    raw = json.loads((tmp_path / "staging.json").read_text())
    cases = {case.key: case for case in cases_of(QUICK, quick=True)[0]}
    assert set(raw["cases"]) == set(cases) and not raw["failed"]
    for key, (one,) in raw["cases"].items():
        assert len(one["writer"]["io_s"]) == len(grid_boxes(QUICK.shape, cases[key].writers))
        assert all(seconds > 0 for role in judges.ROLES for rank in one[role]["io_s"] for seconds in rank)
    verdicts = {one["text"]: one["verdict"] for one in raw["verdicts"]}
    assert (
        verdicts["R3: the server reorganises the entire object as soon as it arrives, whatever is asked for."]
        == CONFIRMED
    )
    put = {
        key: judges.counts(raw, key, "converted_bytes")[0] for key in raw["cases"] if "servers" in raw["cases"][key][0]
    }
    assert put["cycle/at_reader/0"] == 0
    assert put["cycle/on_request/0"] == put["cycle/in_advance/0"] == 1
    assert put["subset/on_request/12"] == pytest.approx((12 / QUICK.side) ** 3)
    report = (tmp_path / "staging.html").read_text()
    rows = re.findall(r'class="verdict (\w+)"', report)
    assert len(rows) == len(raw["verdicts"]) and rows.count("confirmed") == list(verdicts.values()).count(CONFIRMED)
    for name in ("cycle", "servers", "subset", "scaling"):
        assert f"<h2>{name}: " in report
    assert not list(tmp_path.glob("penstock-study-*"))


def test_study_whose_server_dies_says_so(built, tmp_path):
    def kill(servers):
        os.kill(servers.servers[0].process.pid, signal.SIGKILL)

    runner = Runner(QUICK, tmp_path, deadline_s=60, on_ready=kill)
    with pytest.raises(RunFailed, match="cycle/at_reader/0: server 1 ended by SIGKILL"):
        runner.run(Case("cycle", "at_reader", 0))


@pytest.mark.parametrize(
    "words, message",
    [
        (("--only", "weather"), "no experiment weather; there are cycle, servers"),
        (("--html", "nowhere/report.html"), "there is no folder"),
        (("--disk", "nowhere"), "--disk: nowhere is not a folder"),
    ],
)
def test_wrong_use(tmp_path, words, message):
    done = study(tmp_path, *words)
    assert done.returncode == 2 and message in " ".join(done.stderr.split())


def test_interrupted_study_ends_its_programs(built, tmp_path):
    command = [sys.executable, "-m", "penstock.cli.main", "study", "staging", "--quick"]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert any(line.startswith("cycle/at_reader/0: ") for line in process.stderr)
            process.send_signal(signal.SIGINT)
            assert "interrupted" in process.communicate(timeout=30)[1]
        finally:
            process.kill()
    assert process.returncode == 130
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if str(tmp_path).encode() in (folder / "environ").read_bytes():
                # A server that was just being started is not known to the study yet; it ends with its parent.
                ended, _, _ = select.select([os.pidfd_open(int(folder.name))], [], [], 15)
                assert ended, (folder / "cmdline").read_bytes()
