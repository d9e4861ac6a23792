"""How a study runs, with plain programs: no stream is opened here."""

import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from penstock import workflow
from penstock.workflow import LaunchError, Status, load_study, run_study
from penstock.workflow.display import Display
from penstock.workflow.launch import Launch, find_mpi_launcher
from penstock.workflow.registry import list_runs
from penstock.workflow.statistics import Rate, read_endpoints
from penstock.workflow.summary import pool_table
from penstock.workflow.supervisor import Child, describe_exit
from rich.console import Console
from study_files import own_runtime_directory, study_of, writer_of_files  # noqa: F401

DEADLINE_S = 60

# --------------------------------------------------------------------------------------------------------------- runs


def test_a_run_that_succeeds(write, tmp_path):
    write(
        "sim.py",
        """
        import json, os, sys
        out = sys.argv[1]
        print("simulating with", os.environ["EXTRA"])
        json.dump({"steps_written": 5, "bytes": 640, "put_s": 0.25, "copies": 10}, open(f"{out}/simulation.json", "w"))
        values = {"steps": 5, "wait_s": 1.5, "bytes": 320, "steps_dropped": 1}
        folder = os.environ["PENSTOCK_STATISTICS"]
        json.dump(values, open(f"{folder}/he.at.writer.{os.getpid()}.json", "w"))
        """,
    )
    study = study_of(
        write,
        tmp_path,
        """
        programs:
          simulation: {command: [python, sim.py, "{output}"], environment: {EXTRA: more}}
          analysis: {command: [sh, -c, 'cat "$PENSTOCK_CONFIG"; touch "$0/a.png"', "{output}"]}
        check: [sh, -c, "test -f $0/a.png", "{output}"]
        streams: {heat: {queue_steps: 7}}
        """,
    )
    (tmp_path / "out" / "logs").mkdir(parents=True)
    (tmp_path / "out" / "logs" / "old.log").write_text("of an earlier run")
    (tmp_path / "out" / "analysis.json").write_text('{"steps": 99}')

    result = run_study(study)

    assert (result.status, result.exit_code, result.failures) == (Status.succeeded, 0, ())
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary == result.summary
    simulation = summary["programs"]["simulation"]
    assert simulation["steps"] == 5  # from the report
    assert (simulation["bytes"], simulation["put_s"]) == (640, 0.25)
    assert (simulation["wait_s"], simulation["dropped"]) == (1.5, 1)  # from the statistics
    assert simulation["simulation_s"] is None
    assert simulation["streams"][0]["stream"] == "he.at"
    assert summary["programs"]["analysis"]["steps"] is None  # the old report is gone
    assert summary["check"] == "ok"
    assert {"a.png", "simulation.json"} <= {f["path"] for f in summary["files"]}
    assert "simulating with more" in (tmp_path / "out" / "logs" / "simulation.log").read_text()
    assert "queue_steps: 7" in (tmp_path / "out" / "logs" / "analysis.log").read_text()
    assert not (tmp_path / "out" / "logs" / "old.log").exists()
    assert list_runs() == []


def test_programs_start_in_the_order_asked_for(write, tmp_path):
    append = 'sh, -c, "echo $1 >> $0", "{output}/order"'
    study = study_of(
        write,
        tmp_path,
        f"""
        programs:
          last: {{command: [{append}, last], after: [first]}}
          first: {{command: [{append}, first]}}
        """,
    )
    result = run_study(study)
    assert result.ok
    assert list(result.summary["programs"]) == ["first", "last"]


def test_a_failing_program_ends_the_others_and_shows_its_log(write, tmp_path):
    study = study_of(
        write,
        tmp_path,
        """
        programs:
          stubborn: {command: [sh, -c, "trap '' TERM; echo up > $0; exec tail -f /dev/null", "{output}/up"]}
          bad: {command: [sh, -c, "until test -f $0; do :; done; echo one; echo the reason >&2; exit 3", "{output}/up"]}
        check: [touch, "{output}/checked"]
        """,
    )
    result = run_study(study, grace_s=0.05, term_s=0.05)
    assert (result.status, result.exit_code) == (Status.failed, 1)
    (failure,) = result.failures
    assert (failure.program, failure.outcome) == ("bad", "exit code 3")
    assert failure.log_tail == ("one", "the reason")
    assert result.running == ("stubborn",)
    assert result.summary["programs"]["stubborn"]["exit_code"] == -signal.SIGKILL
    assert not (tmp_path / "out" / "checked").exists()


def test_after_a_failure_the_others_may_end_by_themselves(write, tmp_path):
    os.mkfifo(tmp_path / "gate")
    study = study_of(
        write,
        tmp_path,
        """
        programs:
          bad: {command: [python, -c, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"]}
          good: {command: [sh, -c, "read line < {here}/gate; echo closed well"]}
        """,
    )
    opened = []

    class Opener:  # lets the good one go on once the bad one has been seen
        def tick(self, children):
            if children[0].ended is not None and not opened:
                opened.append(os.open(tmp_path / "gate", os.O_RDWR))
                os.write(opened[0], b"go\n")

    from penstock.workflow import run as module

    class Display(module.Display):
        def tick(self, children):
            Opener().tick(children)
            super().tick(children)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "Display", Display)
        result = run_study(study, grace_s=DEADLINE_S)
    os.close(opened[0])
    assert result.status is Status.failed
    assert [f.outcome for f in result.failures] == ["killed by signal 11 (SIGSEGV)"]
    assert result.summary["programs"]["good"]["outcome"] == "ok"
    assert "closed well" in (tmp_path / "out" / "logs" / "good.log").read_text()


def test_the_deadline_ends_everything(write, tmp_path):
    study = study_of(
        write,
        tmp_path,
        """
        programs:
          waits: {command: [sh, -c, "tail -f /dev/null & wait"]}
          quick: {command: ["true"]}
        timeout_s: 0.3
        """,
    )
    started = time.monotonic()
    result = run_study(study)
    assert (result.status, result.exit_code) == (Status.timed_out, 124)
    assert result.running[0] == "waits"  # on a machine that stands still for a moment, the quick one may be, too
    assert time.monotonic() - started < DEADLINE_S
    assert result.failures == ()


def test_what_a_program_leaves_behind_ends_with_it(write, tmp_path):
    """Also from a process group of its own, which is where an MPI launcher puts its ranks."""
    write(
        "parent.py",
        """
        import subprocess
        print(subprocess.Popen(["tail", "-f", "/dev/null"], process_group=0).pid)
        """,
    )
    study = study_of(write, tmp_path, "programs: {parent: {command: [python, parent.py]}}")
    result = run_study(study)
    assert result.ok, result.failures
    pid = int((tmp_path / "out" / "logs" / "parent.log").read_text())
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:  # readable once it has ended: it was told to, which takes effect when it next runs
        assert select.select([process], [], [], DEADLINE_S)[0]
    finally:
        os.close(process)


def test_a_failing_check_fails_the_run(write, tmp_path):
    study = study_of(
        write, tmp_path, 'programs: {a: {command: ["true"]}}\ncheck: [sh, -c, "echo mass is lost; exit 1"]'
    )
    result = run_study(study)
    assert result.status is Status.failed
    assert (result.failures[0].program, result.failures[0].log_tail) == ("check", ("mass is lost",))
    assert result.summary["check"] == "exit code 1"


def test_a_program_that_cannot_be_found_starts_nothing(write, tmp_path):
    study = study_of(
        write,
        tmp_path,
        """
        programs:
          first: {command: [touch, "{output}/started"]}
          second: {command: [no-such-program-anywhere]}
        """,
    )
    with pytest.raises(LaunchError, match=r"study.yaml: programs.second: program 'no-such-program-anywhere'"):
        run_study(study)
    assert not (tmp_path / "out" / "started").exists()


def test_a_file_that_is_no_program_is_reported(write, tmp_path):
    write("empty", "").chmod(0o755)
    study = study_of(
        write,
        tmp_path,
        """
        programs:
          waits: {command: [tail, -f, /dev/null]}
          empty: {command: [./empty]}
        """,
    )
    result = run_study(study)
    assert result.status is Status.failed
    assert "could not be started: Exec format error" in result.failures[0].outcome
    assert result.running == ("waits",)


def test_two_runs_do_not_share_an_output_folder(write, tmp_path):
    text = f'programs: {{a: {{command: [python, -c, "import sys; sys.exit(0)"]}}}}\noutput: {tmp_path}/out'
    study = load_study(write("study.yaml", text))
    from penstock.workflow.run import _output_folder

    with _output_folder(study), pytest.raises(LaunchError, match=r"another run is writing.*--output"):
        run_study(study)
    assert run_study(study).ok


def test_an_inherited_configuration_is_kept(write, tmp_path, monkeypatch):
    base = write("base.yaml", "listen: 127.0.0.1\nstreams: {heat: {queue_steps: 2, min_max: true}}")
    monkeypatch.setenv("PENSTOCK_CONFIG", str(base))
    text = 'programs: {a: {command: [sh, -c, "cat $PENSTOCK_CONFIG"]}}\nstreams: {heat: {queue_steps: 9}}'
    assert run_study(study_of(write, tmp_path, text)).ok
    import yaml

    seen = yaml.safe_load((tmp_path / "out" / "logs" / "a.log").read_text())
    assert seen == {"listen": "127.0.0.1", "streams": {"heat": {"queue_steps": 9, "min_max": True}}}


def test_ranks_start_under_mpi(write, tmp_path):
    try:
        find_mpi_launcher()
    except LaunchError:
        pytest.skip("needs an MPI launcher (mpiexec)")
    study = study_of(
        write,
        tmp_path,
        """
        programs:
          many: {command: [sh, -c, "echo rank of $PENSTOCK_STATISTICS $WORD"], ranks: 3, environment: {WORD: here}}
        """,
    )
    result = run_study(study)
    assert result.ok, result.failures
    log = (tmp_path / "out" / "logs" / "many.log").read_text()
    assert log.count(f"rank of {tmp_path}/out/.statistics/many here") == 3


def test_mpi_launchers_share_no_folder(write, tmp_path):
    try:
        if not find_mpi_launcher().is_open_mpi:
            pytest.skip("needs Open MPI: mpiexec is of another one")
    except LaunchError:
        pytest.skip("needs an MPI launcher (mpiexec)")
    program = '{command: [sh, -c, "ls -d $OMPI_MCA_orte_tmpdir_base/*"], ranks: 2}'
    result = run_study(study_of(write, tmp_path, f"programs: {{one: {program}, two: {program}}}"))
    assert result.ok, result.failures
    folders = {
        line for name in ("one", "two") for line in (tmp_path / "out" / "logs" / f"{name}.log").read_text().splitlines()
    }
    assert len(folders) == 2


# ----------------------------------------------------------------------------------------------------------- signals


RUNNER = """
import sys
from rich.console import Console
from penstock.workflow import load_study, run_study
result = run_study(load_study(sys.argv[1], output=sys.argv[2]), term_s=float(sys.argv[3]))
print(result.status.value, *result.running)
sys.exit(result.exit_code)
"""


def test_what_nohup_ignores_is_ignored():
    code = """if True:
        import os, signal
        from penstock.workflow.supervisor import signal_pipe
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with signal_pipe() as came:
            os.kill(os.getpid(), signal.SIGHUP)
            try:
                print(os.read(came, 1))
            except BlockingIOError:
                print("nothing came")
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.stdout == "nothing came\n", ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_of_them(write, tmp_path, number):
    """The programs end well when they catch SIGTERM, and the runner says so."""
    script = "trap 'echo ended well; exit 0' TERM; echo up > {here}/ready; while :; do read x < {here}/never; done"
    study = write(
        "study.yaml",
        f"""
        programs:
          a: {{command: [sh, -c, "{script}"]}}
          b: {{command: [tail, -f, /dev/null]}}
        """,
    )
    os.mkfifo(tmp_path / "ready")
    os.mkfifo(tmp_path / "never")
    runner = start_runner(study, tmp_path, term_s=DEADLINE_S)
    try:
        wait_for_line(tmp_path / "ready")
        assert list_runs()[0].pid == runner.pid
        runner.send_signal(number)
        text, _ = runner.communicate(timeout=DEADLINE_S)
    finally:
        runner.kill()
    assert text.split() == ["interrupted", "a", "b"]
    assert runner.returncode == 130
    assert "ended well" in (tmp_path / "out" / "logs" / "a.log").read_text()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "interrupted"


def test_a_program_that_ignores_sigterm_is_killed(write, tmp_path):
    study = write(
        "study.yaml",
        """
        programs:
          a: {command: [sh, -c, "trap '' TERM; echo up > {here}/ready; exec tail -f /dev/null"]}
        """,
    )
    os.mkfifo(tmp_path / "ready")
    runner = start_runner(study, tmp_path, term_s=0.05)
    try:
        wait_for_line(tmp_path / "ready")
        runner.send_signal(signal.SIGINT)
        text, _ = runner.communicate(timeout=DEADLINE_S)
    finally:
        runner.kill()
    assert text.split() == ["interrupted", "a"]
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["programs"]["a"]["exit_code"] == -9


def start_runner(study, tmp_path, term_s):
    command = [sys.executable, "-c", RUNNER, str(study), str(tmp_path / "out"), str(term_s)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wait_for_line(fifo):
    descriptor = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        ready, _, _ = select.select([descriptor], [], [], DEADLINE_S)
        assert ready, "the program did not get ready in time"
    finally:
        os.close(descriptor)


# -------------------------------------------------------------------------------------------------------- small parts


def test_statistics_files_are_read_by_name(tmp_path):
    (tmp_path / "a.b.writer.12.json").write_text('{"steps": 3}')
    (tmp_path / "heat.reader.9.json").write_text('{"steps": 2, "peers": []}')
    others = {"heat.reader.json": "{}", "heat.other.3.json": "{}", "x.writer.1.json": "{", "y.txt": ""}
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    found = [(e.stream, e.role, e.pid, e.count("steps")) for e in read_endpoints(tmp_path)]
    assert found == [("a.b", "writer", 12, 3), ("heat", "reader", 9, 2)]
    assert read_endpoints(tmp_path / "nowhere") == []


def test_a_stream_has_a_rate_while_its_program_runs(write, tmp_path):
    study = study_of(write, tmp_path, "programs: {writer: {command: ['true']}}")
    (tmp_path / "writer").mkdir()
    statistics = tmp_path / "writer" / "heat.writer.7.json"
    child = Child(Launch("writer", (), {}, tmp_path, tmp_path / "log"), started=0.0, process=SimpleNamespace(pid=7))
    console = Console(file=io.StringIO(), width=80)
    display = Display(study, console, tmp_path)
    for steps in (1, 5):
        statistics.write_text(json.dumps({"steps": steps, "bytes": 1000 * steps, "queue_depth": 3, "steps_dropped": 2}))
        display.finish([child])
    child.ended, child.exit_code = 1.0, 0
    statistics.write_text(json.dumps({"steps": 6, "bytes": 6000, "steps_dropped": 2}))
    display.finish([child])
    lines = [line for line in console.file.getvalue().splitlines() if line.startswith("heat: ")]
    assert "steps/s" in lines[1] and "queue 3" in lines[1]
    assert re.fullmatch("heat: 6 steps, 2 dropped, .* elapsed", lines[2])


def test_the_model_of_a_mesh_is_no_step_of_the_progress(write, tmp_path):
    text = "programs: {writer: {command: ['true']}}\nmeshes: {plate: {database: stream}}\nsteps: 2\n"
    study = study_of(write, tmp_path, text)
    (tmp_path / "writer").mkdir()
    child = Child(Launch("writer", (), {}, tmp_path, tmp_path / "log"), started=0.0, process=SimpleNamespace(pid=7))
    child.ended, child.exit_code = 1.0, 0
    console = Console(file=io.StringIO(), width=80)
    display = Display(study, console, tmp_path)
    for steps in (1, 2, 3):
        for stream in ("plate", "heat"):
            (tmp_path / "writer" / f"{stream}.writer.7.json").write_text(json.dumps({"steps": steps}))
        display.finish([child])
    shown = re.findall("^(plate|heat): (step ./2)", console.file.getvalue(), re.MULTILINE)
    expected = {"plate": ["step 1/2", "step 2/2"], "heat": ["step 1/2", "step 2/2", "step 3/2"]}
    assert {name: [step for stream, step in shown if stream == name] for name in expected} == expected


@pytest.mark.parametrize("tiers", [[], [{"bytes": 3 << 30}]])
def test_the_table_of_the_servers_fits_a_terminal(tiers):
    server = {"memory": {"peak": 345 << 20, "limit": 512 << 20}, "tiers": tiers, "bytes_in": 345 << 20}
    server |= {"name": "node0007:12345", "bytes_out": 345 << 20, "evictions": 12345, "recalls": 12345}
    console = Console(file=io.StringIO(), width=80)
    console.print(pool_table({"pool": {"name": "stage", "servers": [server] * 4}}))
    shown = console.file.getvalue()
    assert "…" not in shown and shown.count("345 MiB") == 12
    assert ("recalled" in shown) == bool(tiers)


def test_rates_follow_the_last_seconds():
    rate = Rate()
    assert rate.per_second(0.0) is None
    rate.add(0.0, 0, 0)
    rate.add(2.0, 10, 2000)
    assert rate.per_second(2.0) == (5.0, 1000.0)
    for second in range(3, 30):
        rate.add(float(second), 10 + second, 2000)
    assert rate.per_second(29.0)[0] == pytest.approx(1.0, rel=0.2)
    rate.add(30.0, 3, 100)  # another server counts from there
    assert rate.per_second(30.0) is None


@pytest.mark.parametrize(
    "code, text",
    [(3, "exit code 3"), (-9, "killed by signal 9 (SIGKILL)"), (139, "exit code 139, signal 11 (SIGSEGV)")],
)
def test_exits_in_words(code, text):
    assert describe_exit(code) == text


def test_the_package_names_what_it_offers():
    assert all(hasattr(workflow, name) for name in workflow.__all__)
