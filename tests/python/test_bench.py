"""`penstock bench rpc` and `penstock bench pool`: what is made of figures, and one small run. No time is asserted."""

import json
import shutil
from types import SimpleNamespace

import pytest
from penstock import bench
from penstock.bench import analysis, claims, links, pictures, pool, report, rpc, space, studies, ucx_peer
from penstock.bench.cases import Case
from penstock.bench.programs import find_programs, has_ucx
from penstock.bench.runner import RunFailed, pair_figures, run_programs
from penstock.bench.studies import Claim, Column, Measured, Panel, Row, Sheet
from rich.console import Console

OURS, THEIRS, OTHERS = ("s", "penstock", "a"), ("s", "redis", "b"), ("s", "redis", "c")


def rows(**figures):
    """A row for each key of ours, theirs, others, with the figures of its rounds."""
    keys = {"ours": OURS, "theirs": THEIRS, "others": OTHERS}
    made = {}
    for name, rounds in figures.items():
        key = keys[name]
        row = Row(*key, label=name, run=lambda run: {})
        made[key] = Measured(row, [{"x": value, "seen": [1.0, 2.0]} for value in rounds])
    return made


def judge_one(claim, measured):
    (entry,) = studies.judge([claim], measured, ["s"])
    return entry


@pytest.mark.parametrize("main", [bench.main, pool.main, rpc.main, space.main, analysis.main])
def test_the_folder_of_results_is_looked_for_first(main, capsys):
    with pytest.raises(SystemExit):
        main(["--json", "/nowhere/at/all.json"])
    assert "there is no folder /nowhere/at" in capsys.readouterr().err


def test_a_claim_takes_the_best_of_theirs():
    claim = Claim("faster", OURS, ("x",), 1.0, theirs=(THEIRS, OTHERS))
    entry = judge_one(claim, rows(ours=[30, 10, 20], theirs=[5], others=[10]))
    assert entry["figure"] == 2 and entry["met"]
    assert not judge_one(claim, rows(ours=[9], theirs=[5], others=[10]))["met"]


def test_less_is_better_in_times():
    claim = Claim("quicker", OURS, ("x",), 1.0, theirs=(THEIRS, OTHERS), sense="at_most", theirs_lower=True)
    entry = judge_one(claim, rows(ours=[8], theirs=[20], others=[10]))
    assert entry["figure"] == 0.8 and entry["met"]
    assert not judge_one(claim, rows(ours=[11], theirs=[20], others=[10]))["met"]


def test_the_worst_figure_counts():
    claim = Claim("all sizes", OURS, ("x", "y"), 0.8, theirs=(THEIRS,))
    measured = rows(ours=[9], theirs=[10])
    measured[OURS].rounds[0]["y"], measured[THEIRS].rounds[0]["y"] = 5, 10
    entry = judge_one(claim, measured)
    assert entry["figure"] == 0.5 and not entry["met"]


@pytest.mark.parametrize("measured", [{}, rows(ours=[1]), rows(theirs=[1])])
def test_what_was_not_measured_is_not_judged(measured):
    entry = judge_one(Claim("faster", OURS, ("x",), 1.0, theirs=(THEIRS,)), measured)
    assert entry["met"] is None and entry["figure"] is None


def test_a_claim_without_others_is_about_the_figure():
    claim = Claim("little", OURS, ("x",), 5, sense="at_most", unit=" %")
    assert judge_one(claim, rows(ours=[4]))["met"] and not judge_one(claim, rows(ours=[6]))["met"]


def test_a_claim_that_needs_more_cores_shows_its_figure(monkeypatch):
    claim = Claim("with a core for each", OURS, ("x",), 5, sense="at_most", cores=3)
    monkeypatch.setattr(studies, "cores", lambda: 2)
    entry = judge_one(claim, rows(ours=[6]))
    assert entry["met"] is None and entry["figure"] == 6 and entry["needs_cores"] == 3
    monkeypatch.setattr(studies, "cores", lambda: 3)
    assert judge_one(claim, rows(ours=[6]))["met"] is False


def stream_run(seconds, first_s, opened_s=0.5):
    """What the two programs of a run of 40 steps print."""
    common = {
        "rank": 0,
        "steps": 40,
        "first_steps": 8,
        "bytes_per_step": 100,
        "rss_mb": 1,
        "cpu_s": 1,
        "step_cpu_s": 0.01,
    }
    counts = {"opened_s": opened_s, "opened_faults": 10, "first_faults": 5, "first_system_s": 0.1}
    timed = {"seconds": seconds, "first_s": first_s}
    return [{"role": "writer", **common, **counts}, {"role": "reader", **common, **counts, **timed}]


def test_start_up_and_steady_state_are_apart():
    case = Case("W1", "penstock", "put_get", "put, get", ())
    runs = [pair_figures(case, stream_run(1 + first, first)) for first in (0.5, 0.75, 0.25 * 9)]
    row = report.row_of(case, runs)
    assert row["step_s"] == 1 / 32 and row["min_s"] == row["max_s"] == row["step_s"]
    assert row["startup_s"] == 0.75 - 0.25 and row["opened_s"] == 0.5 and row["median_s"] == 1.75
    assert row["gb_per_s"] == 100 * 32 / 1e9 and row["writer_first_faults"] == 5


def test_claims_about_streams_take_the_figure_that_they_name():
    rows = {}
    for system, variant, steady_s, startup_s in (
        ("penstock", "put_get", 3.2, 0.5),
        ("limit", "two_copies", 1.6, 0.0),
        ("limit", "fresh", 1.6, 1.0),
    ):
        case = Case("W1", system, variant, variant, ())
        first_s = startup_s + steady_s * 8 / 32
        rows[case.key] = report.row_of(case, [pair_figures(case, stream_run(steady_s + first_s, first_s))])
    judged = {one["claim"]: one for one in claims.judge(rows) if one["met"] is not None}
    steady, startup = (
        next(one for text, one in judged.items() if words in text) for words in ("1.25× two", "start-up")
    )
    assert steady["figure"] == pytest.approx(2) and not steady["met"]
    assert startup["figure"] == pytest.approx((0.5 + 0.5) / (0.5 + 1.0)) and startup["met"]


def test_studies_that_were_not_chosen_are_not_judged():
    assert studies.judge([Claim("faster", OURS, ("x",), 1.0)], rows(ours=[1]), ["other"]) == []


def test_tables_show_medians_and_spread():
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 closed with the console
    measured = rows(ours=[1, 3, 2], theirs=[40])
    studies.print_sheet(console, Sheet("s", "a title", (Column("x", "figure"), Column("none", "nothing"))), measured)
    studies.print_sheet(console, Sheet("other", "not there", (Column("x", "figure"),)), measured)
    text = console.export_text()
    console.file.close()
    assert "a title" in text and "2 1–3" in text and "40" in text and "–" in text
    assert "not there" not in text


@pytest.mark.parametrize(
    "value, text", [(None, "–"), (0, "0"), (0.01234, "0.0123"), (1234567.0, "1234567"), (12.345, "12.3")]
)
def test_figures_have_no_exponents(value, text):
    assert studies.text_of(value) == text


def test_figures_are_written(tmp_path):
    studies.write_json(tmp_path / "out.json", rows(ours=[1, 3, 2]), {"claims": []})
    read = json.loads((tmp_path / "out.json").read_text())
    assert read["rows"][0]["median"] == {"x": 2} and len(read["rows"][0]["rounds"]) == 3
    assert read["machine"]["cores"] > 0


def test_pictures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    panels = [
        Panel("s", "bars", (("x", 0),)),
        Panel("s", "lines", (("x", 4),), lines=True),
        Panel("s", "seen", (("seen", 0),), histogram=True),
        Panel("other", "nothing", (("x", 0),)),
    ]
    measured = rows(ours=[1, 2], theirs=[3])
    measured["s", "a new one", "d"] = Measured(Row("s", "a new one", "d", "d", run=lambda run: {}), [{"x": 1.0}])
    pictures.plot(tmp_path / "out.png", panels, measured)
    assert (tmp_path / "out.png").stat().st_size > 1000
    pictures.plot(tmp_path / "none.png", panels[3:], rows(ours=[1]))
    assert not (tmp_path / "none.png").exists()


def test_claims_are_about_rows_and_figures_that_there_are(tmp_path):
    programs = tmp_path / "bench"
    for folder in (programs, tmp_path / "bin"):
        folder.mkdir()
    (tmp_path / "bin" / "gray-scott").touch()
    of_rpc = ("rpc_limits", "rpc_calls", "grpc_calls")
    of_pool = ("pool_steps", "pool_files", "pool_objects", "checkpoint_files", "workflow_stream", "workflow_files")
    for program in (*of_rpc, *of_pool):
        (programs / program).touch()
    for quick in (False, True):
        keys = {row.key for row in rpc.rows_of(programs, quick)[0]}
        for claim in rpc.claims_of(quick):
            assert {claim.ours, *claim.theirs} <= keys, claim.text
    keys = {row.key for row in pool.rows_of(programs, pool.Sizes(quick=False))[0]}
    without = set() if shutil.which("mpiexec") else {"restart", "workflow", "consumer"}
    without |= {links.STUDY} if links.possible() else set()
    for claim in pool.claims_of():
        needed = {key for key in (claim.ours, *claim.theirs) if key[1] != "redis" and key[2] != "gray_scott"}
        assert {key for key in needed if key[0] not in without} <= keys, claim.text


def test_rows_of_what_was_not_built_are_named(tmp_path):
    rows, left_out = rpc.rows_of(tmp_path, True)
    assert {row.system for row in rows} <= {"grpcio"} and len(left_out) == 5
    made, left_out = pool.rows_of(tmp_path, pool.Sizes(quick=True))
    assert made == [] and any("redis" in line for line in left_out)


@pytest.mark.parametrize("study, figure", [("calls", "latency_us"), ("bulk", "push_4096")])
def test_grpc_from_pypi_stands_in_for_the_program(tmp_path, study, figure):
    pytest.importorskip("grpc", reason="needs gRPC (pip install grpcio)")
    rows, _ = rpc.rows_of(tmp_path, True)
    assert {row.study for row in rows} == {"calls", "bulk"}
    assert not {row.key for row in rows} & {key for claim in rpc.claims_of(True) for key in claim.theirs}
    with studies.Run(tmp_path, tmp_path, 60) as run:
        options = ("--calls", 40) if study == "calls" else ("--sizes", 4096, "--total", 65536)
        assert rpc.figures_of(rpc.PYTHON_PEER, study, "unix", options, run)[figure] > 0


def test_a_row_that_fails_twice_is_given_up(tmp_path):
    runs = []

    def fail(run):
        runs.append(run.folder)
        raise RunFailed("it is broken")

    options = SimpleNamespace(repeat=5, programs=tmp_path, disk=tmp_path, deadline=1)
    measurement = studies.Measurement(options, Console(file=open("/dev/null", "w")))  # noqa: SIM115
    row = Row(*OURS, label="", run=fail)
    measurement.measure([row])
    assert measurement.measured([row]) == {}
    measurement.console.file.close()
    assert len(runs) == studies.GIVE_UP_AFTER and "it is broken" in measurement.failed()[0]
    assert not any(folder.exists() for folder in runs) and list(tmp_path.iterdir()) == []


def test_programs_say_what_went_wrong(tmp_path):
    with pytest.raises(RunFailed, match=r"sh ended with 3: this is why"):
        run_programs([["sh", "-c", "echo this is why >&2; exit 3"]], {}, tmp_path, 20)
    assert run_programs([["sh", "-c", "echo {1}; echo no; echo {2}"]], {}, tmp_path, 20) == ["{1}", "{2}"]


@pytest.mark.parametrize(
    "numbers", ["20 138380.913 inf 139808.905 0.00 1831.07 0 7", "Final: 9 1.0 2.0 3.0 4.0 5.5 6 7"]
)
def test_what_ucx_perftest_prints_is_read(numbers):
    expected = {"20": "1831.07", "Final:": "5.5"}[numbers.split()[0]]
    assert ucx_peer.LINE.search(f"|  Test  | # iterations |\n   {numbers}\n")["megabytes"] == expected


@pytest.mark.parametrize("plane", ["shm", "tcp", "ucx"])
def test_a_reader_of_a_pool_is_measured_over_each_plane(tmp_path, monkeypatch, plane):
    programs = find_programs("pool_steps")
    if not programs or not (programs / "pool_steps").exists() or (plane == "ucx" and not has_ucx(programs)):
        pytest.skip(f"pool_steps is not built (PENSTOCK_BENCH){', or without UCX' if plane == 'ucx' else ''}")
    monkeypatch.setenv("PENSTOCK_BIN", str(programs.parent / "bin"))
    with studies.Run(programs, tmp_path, 60) as run:
        assert pool.read_only(pool.Sizes(quick=True), 1, plane, run)["read_gb_per_s"] > 0


def test_a_small_run(tmp_path, monkeypatch):
    """Objects through a real server, beside Redis where it is installed."""
    programs = find_programs("pool_objects")
    if not programs or not (programs / "pool_objects").exists():
        pytest.skip("pool_objects is not built (PENSTOCK_BENCH)")
    monkeypatch.setenv("PENSTOCK_BIN", str(programs.parent / "bin"))  # main changes it, for this process
    out = tmp_path / "out.json"
    words = ["--quick", "--only", "objects", "--objects", "2000", "--json", str(out), "--disk", str(tmp_path)]
    assert pool.main([*words, "--programs", str(programs), "--deadline", "60"]) == 0
    read = json.loads(out.read_text())
    ours = {row["variant"]: row["median"] for row in read["rows"] if row["system"] == "penstock"}
    assert set(ours) == {pool.at(level, n) for level in pool.LEVELS for n in pool.THREADS} and not read["failed"]
    assert all(figures[name] > 0 for figures in ours.values() for name in ("put_per_s", "list_per_s", "get_per_s"))
