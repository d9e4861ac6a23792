"""Plain MPI programs alone and in one launch with others, with the splitter and without: a table of what agreed.

A program's ranks write what they saw to files. Beside another program, under the splitter, the files must be those of
the program alone. Without the splitter the same launch must not give them, or the comparison would show nothing.
"""

import argparse
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
DEADLINE_S = 90
CONTROL_S = 6  # a launch that went wrong may wait for ever; alone each takes less than a second
SCENARIOS = ("world", "collectives", "point-to-point", "split-dup", "cartesian", "window", "file", "non-blocking",
             "persistent", "groups", "errors")  # fmt: skip
SETTINGS = {"shape": [14, 13, 12], "F": 0.025, "k": 0.05, "dt": 1.5, "noise": 1e-3, "box": 6, "seed": 7,
            "steps": 20, "plot_every": 10, "stream": "mpmd-test"}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Program:
    title: str
    prefix: str  # of the files it writes
    ranks: int
    command: tuple
    scenarios: tuple
    environment: tuple = ()  # for its ranks

    def words(self, folder, scenario, library):
        variables = [f"LD_PRELOAD={library}"] if library else []
        options = [word for each in (*variables, *self.environment) for word in ("-x", each)]
        chosen = [scenario] if scenario and scenario in self.scenarios and len(self.scenarios) > 1 else []
        return [*options, "-n", str(self.ranks), *map(str, self.command), str(folder), *chosen]


class Bench:
    def __init__(self, arguments, scratch):
        self.arguments, self.scratch = arguments, scratch
        self.rows, self.failures, self.launches = [], 0, 0
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self.environment |= {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}
        if os.geteuid() == 0:
            self.environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        (scratch / "streams").mkdir(mode=0o700)
        self.environment |= {"PENSTOCK_DIRECTORY": str(scratch / "streams"), "PENSTOCK_LISTEN": "127.0.0.1"}

    def launch(self, *programs, preload, scenario=None, deadline=DEADLINE_S):
        """(exit code or None at the deadline, what was said, the folder of each program's files).

        The splitter is preloaded in "all" programs, the "first" or "none".
        """
        self.launches += 1
        words, folders = [], []
        for number, program in enumerate(programs):
            folders.append(self.scratch / f"{self.launches}.{number}")
            folders[-1].mkdir()
            library = self.arguments.library if preload == "all" or (preload, number) == ("first", 0) else None
            words += [":"] * bool(words) + program.words(folders[-1], scenario, library)
        command = [self.arguments.mpiexec, *words]
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
            try:
                code = process.wait(timeout=deadline)
            except subprocess.TimeoutExpired:
                code = None
                process.terminate()  # mpiexec takes its ranks along
                try:
                    process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
            said.seek(0)
            return code, said.read().decode(errors="replace"), folders

    def row(self, scenario, program, launch, seen, good):
        self.rows.append((scenario, program, launch, seen, "ok" if good else "FAILED"))
        self.failures += not good
        print(f"{self.rows[-1][-1]:6} {scenario}: {program}; {launch}: {seen}", flush=True)


def files_of(folder, prefix, scenario):
    """What the ranks wrote, and a file written by them all; {} when they did not come so far."""
    found = {path.name: path.read_bytes() for path in folder.glob(f"{prefix}.{scenario}.*")}
    data = folder / f"{prefix}.data"
    if scenario == "file" and data.exists():
        found[data.name] = data.read_bytes()
    return found


def describe(code):
    return "hung" if code is None else f"exit code {code}"


def compare(bench, program, alone, code, folder, launch):
    for scenario in program.scenarios:
        expected, got = files_of(alone, program.prefix, scenario), files_of(folder, program.prefix, scenario)
        good = code == 0 and bool(expected) and got == expected
        seen = "as alone" if good else f"differs ({describe(code)})"
        bench.row(scenario, f"{program.title} x {program.ranks}", launch, seen, good)


def together(bench, programs, alone, wanted):
    """All of them in one launch; a row for each scenario of those wanted."""
    code, said, folders = bench.launch(*programs, preload="all")
    names = [f"{program.title} x {program.ranks}" for program in programs]
    for number, program in enumerate(programs):
        if program.title not in wanted:
            continue
        others = ", ".join(name for i, name in enumerate(names) if i != number)
        compare(bench, program, alone[program.title], code, folders[number], f"beside {others}")
    if code != 0:
        print(said)


def controls(bench, program, alone):
    """The same without the splitter, where each scenario must go wrong. Beside itself, so that it seldom hangs."""
    wrong, hung = [], 0
    neighbour = dataclasses.replace(program, ranks=2)
    for scenario in program.scenarios:
        code, _, folders = bench.launch(program, neighbour, preload="none", scenario=scenario, deadline=CONTROL_S)
        expected = files_of(alone, program.prefix, scenario)
        hung += code is None
        if code != 0 or files_of(folders[0], program.prefix, scenario) != expected:
            wrong.append(scenario)
    missed = [scenario for scenario in program.scenarios if scenario not in wrong]
    seen = f"{len(wrong)} of {len(program.scenarios)} go wrong"
    seen += f", {hung} of them hang" * bool(hung) + f", not {', '.join(missed)}" * bool(missed)
    launch = f"without the splitter, beside {neighbour.title} x {neighbour.ranks}"
    bench.row("each", f"{program.title} x {program.ranks}", launch, seen, not missed)


def with_environment(program, **variables):
    pairs = tuple(f"{name}={value}" for name, value in variables.items())
    return dataclasses.replace(program, environment=pairs)


def check_rules(bench, plain, alone):
    """What the splitter does where there is nothing, or something else, to split."""
    small = dataclasses.replace(plain, ranks=2)
    name = f"C x {plain.ranks}"
    code, _, folders = bench.launch(plain, preload="all")
    compare_one(bench, "every scenario", name, "one program, with the splitter", plain, alone, code, folders[0])

    everyone = dataclasses.replace(plain, ranks=plain.ranks + small.ranks)
    _, _, (whole,) = bench.launch(everyone, preload="none")
    expected = files_of(whole, "c", "world")
    for title, variables in (("PENSTOCK_MPMD=off", {"PENSTOCK_MPMD": "off"}),
                             ("one PENSTOCK_MPMD_PROGRAM", {"PENSTOCK_MPMD_PROGRAM": "same"})):  # fmt: skip
        pair = [with_environment(each, **variables) for each in (plain, small)]
        code, _, folders = bench.launch(*pair, preload="all", scenario="world")
        got = files_of(folders[0], "c", "world") | files_of(folders[1], "c", "world")
        good = code == 0 and got == expected
        bench.row("world", f"{name}, C x 2", title, "one world of 5" if good else "not one world", good)

    pair = [with_environment(each, PENSTOCK_MPMD_TIMEOUT_S=2) for each in (plain, small)]
    code, said, _ = bench.launch(*pair, preload="first", scenario="collectives", deadline=30)
    good = code not in (0, None) and "not every rank of the launch has joined" in said
    bench.row("collectives", f"{name}, C x 2", "the splitter in one program only",
              "ends and says why" if good else describe(code), good)  # fmt: skip

    code, _, folders = bench.launch(plain, small, preload="all", scenario="spawn", deadline=30)
    _, _, (single,) = bench.launch(plain, preload="none", scenario="spawn")
    expected = files_of(single, "c", "spawn")
    good = code == 0 and len(expected) == plain.ranks and files_of(folders[0], "c", "spawn") == expected
    bench.row("spawn", name, "beside C x 2", "as alone" if good else f"differs ({describe(code)})", good)


def compare_one(bench, scenario, name, launch, program, alone, code, folder):
    same = [s for s in program.scenarios if files_of(folder, program.prefix, s) == files_of(alone, program.prefix, s)]
    good = code == 0 and len(same) == len(program.scenarios)
    bench.row(scenario, name, launch, "as alone" if good else f"{len(same)} as alone ({describe(code)})", good)


def check_aware(bench, command):
    pair = [Program("aware", "aware", ranks, command, ("true-world",)) for ranks in (3, 2)]
    code, said, folders = bench.launch(*pair, preload="all")
    got = sorted(path.read_text() for folder in folders for path in folder.iterdir())
    expected = [f"program {p} rank {r} of {own}, in the launch {first + r} of 5, beside {5 - own}\n"
                for p, own, first in ((0, 3, 0), (1, 2, 3)) for r in range(own)]  # fmt: skip
    good = code == 0 and got == sorted(expected)
    seen = "as expected" if good else f"{got} {said}"
    bench.row("the true world", "aware x 3, aware x 2", "both see both", seen, good)


def check_abort(bench, plain):
    """Not what a program alone does, and beyond the splitter: the launch is one job."""
    aborts = Program(
        "C", "c", 1, ("sh", "-c", "exec $0", *plain.command), ()
    )  # without the folder it cannot do without
    code, _, _ = bench.launch(dataclasses.replace(plain, ranks=2), aborts, preload="all", deadline=30)
    good = code not in (0, None)
    bench.row("MPI_Abort", "C x 1", "beside C x 2", "MPI ends both" if good else describe(code), good)


def check_fields(bench, program, neighbour):
    """The simulation's fields, bit by bit."""
    contents = []
    for others, preload in ((), "none"), ((neighbour,), "all"), ((neighbour,), "none"):
        limit = CONTROL_S if others and preload == "none" else DEADLINE_S
        code, _, folders = bench.launch(program, *others, preload=preload, deadline=limit)
        contents.append((code, {path.name: path.read_bytes() for path in folders[0].iterdir()}))
    alone, beside, control = contents
    good = alone[0] == 0 and len(alone[1]) == 4 and beside == alone
    launch = f"beside {neighbour.title} x {neighbour.ranks}"
    seen = "as alone" if good else f"differs ({describe(beside[0])})"
    bench.row("fields, bit by bit", program.title, launch, seen, good)
    good = control != alone
    bench.row("fields, bit by bit", program.title, "without the splitter", "goes wrong" if good else "as alone", good)


def check_stream(bench, command, neighbour):
    """The same simulation writing a stream that nobody reads."""
    report = bench.scratch / "report.json"
    words = ("sh", "-c", 'exec "$0" "$1" --report "$2"', *command, report)  # without the folder
    open_at_once = ("PENSTOCK_STREAM_MPMD_TEST=rendezvous_readers=0",)
    program = Program("Gray-Scott x 2", "", 2, words, (), open_at_once)
    facts = []
    for others, preload in ((), "none"), ((neighbour,), "all"):
        report.unlink(missing_ok=True)
        code, said, _ = bench.launch(program, *others, preload=preload)
        done = json.loads(report.read_text()) if report.exists() else {"ranks": said}
        facts.append((code, [done.get(name) for name in ("ranks", "steps_written", "bytes")]))
    good = facts[0] == facts[1] and facts[0][0] == 0 and facts[0][1][0] == 2
    launch = f"beside {neighbour.title} x {neighbour.ranks}"
    bench.row("steps of a stream", program.title, launch, "as alone" if good else f"{facts}", good)


def check_gray_scott(bench, neighbour):
    """False when it is not built."""
    settings = bench.scratch / "settings.json"  # which is YAML
    settings.write_text(json.dumps(SETTINGS))
    fields, stream = (bench.arguments.simulations / name for name in ("gray-scott-fields", "gray-scott"))
    if not fields.exists() or not stream.exists():
        return False
    check_fields(bench, Program("Gray-Scott x 2", "", 2, (fields, settings), ()), neighbour)
    check_stream(bench, (stream, settings), neighbour)
    return True


def find_python():
    """The first on the path that has mpi4py; this one need not."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        python = shutil.which("python3", path=folder) if folder else None
        if python and subprocess.run([python, "-c", "import mpi4py.MPI"], capture_output=True).returncode == 0:
            return python
    return None


def write_table(bench, missing, path):
    head = ("scenario", "program", "launch", "seen", "")
    widths = [max(len(row[i]) for row in [head, *bench.rows]) for i in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in [head, *bench.rows]
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    good = len(bench.rows) - bench.failures
    lines.append(f"\n{good} of {len(bench.rows)} as expected, {bench.launches} launches."
                 + (f" Not tested here: {', '.join(missing)}." if missing else ""))  # fmt: skip
    path.write_text("# Several programs in one MPI launch\n\n" + "\n".join(lines) + "\n")
    print("\n" + path.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("library", "programs", "simulations", "table"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--mpiexec", default="mpiexec")
    arguments = parser.parse_args()
    programs, missing = [Program("C", "c", 3, (arguments.programs / "mpmd_plain_c",), SCENARIOS)], []
    basics = []
    if (arguments.programs / "mpmd_plain_f").exists():
        programs.append(Program("Fortran", "f", 2, (arguments.programs / "mpmd_plain_f",), SCENARIOS))
        for title, prefix, name in ("mpi_f08", "f08", "plain_f08"), ("mpif.h", "mpif", "plain_mpif"):
            basics.append(Program(title, prefix, 3, (arguments.programs / f"mpmd_{name}_f",), ("basics",)))
    else:
        missing.append("Fortran")
    if python := find_python():
        programs.append(Program("Python", "py", 2, (python, HERE / "plain.py"), SCENARIOS))
    else:
        missing.append("mpi4py")

    with tempfile.TemporaryDirectory(prefix="mpmd-") as folder:
        bench = Bench(arguments, Path(folder))
        alone = {}
        for program in programs + basics:
            code, said, folders = bench.launch(program, preload="none")
            alone[program.title] = folders[0]
            if code != 0:
                bench.row("every scenario", program.title, "alone", describe(code), False)
                print(said)
        small = dataclasses.replace(programs[0], title="C again", ranks=2)
        _, _, (alone["C again"],) = bench.launch(small, preload="none")
        together(bench, [programs[0], small], alone, {"C", "C again"})
        if len(programs) > 1:
            together(bench, programs, alone, alone)  # three, when all are there
        for program in basics:
            together(bench, [program, small], alone, {program.title})
        for program in programs + basics:
            controls(bench, program, alone[program.title])
        check_rules(bench, programs[0], alone["C"])
        check_aware(bench, (arguments.programs / "mpmd_aware",))
        check_abort(bench, programs[0])
        if not check_gray_scott(bench, programs[0]):
            missing.append("Gray-Scott")
        write_table(bench, missing, arguments.table)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
