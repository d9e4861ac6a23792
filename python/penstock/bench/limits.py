"""What a staging system of the field was found to lack, and what answers it here: the last table of
`penstock bench pool`.

The limitations are those that SAND2020-9451 (SPARC, FAODEL, Catalyst on 32 nodes) reports of itself, and one that its
source shows. Each is answered by claims that a run judges, by tests where it is a behaviour, or left to later parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .studies import text_of

ONLY = "limits"  # of --only: every study that answers one
ENOUGH_ROUNDS = 3


@dataclass(frozen=True)
class Limitation:
    """name: what claims that answer it say (Claim.answers). tests: of behaviours, as pytest or GoogleTest name them."""

    name: str
    was: str
    must: str
    tests: tuple[str, ...] = ()
    later: str = ""


LIMITATIONS = (
    Limitation("small objects", "objects below 1 KB dominate, one for each property", "messages O(1) a step and rank"),
    Limitation(
        "keys",
        "keys of 100 bytes, often longer than the value",
        "keys at most 1 % of the payload, still searchable",
        ("tests/python/test_pool_objects.py::test_patterns", "tests/python/test_scenarios.py::test_epochs_and_plans"),
    ),
    Limitation("one server", "a rank's data lies on one server", "one reader gains from servers"),
    Limitation("balance", "a weak hash: 4 of 16 servers idle", "load max/mean at most 1.1"),
    Limitation("serial", "transactions one after the other", "a window; throughput against depth"),
    Limitation(
        "acknowledge",
        "the disk's commit before every acknowledgement",
        "levels: memory, replicated, durable",
        (
            "tests/python/test_pool_servers.py::test_what_is_durable_survives_kill_and_restart",
            "StoreDisk.AfterDiskMeansThatNobodySeesItBefore",
        ),
    ),
    Limitation("plateau", "8 servers no faster than 2", "stall against servers, and who is waited for"),
    Limitation(
        "overlap",
        "a step can be seen at the job's end only",
        "a reader works on step n while n+1 is computed",
        ("StreamInPool.ReadersWorkOnAStepWhileTheWriterComputesTheNext",),
    ),
    Limitation(
        "exodus",
        "a defect in Exodus data unresolved",
        "round trips of a corpus",
        ("tests/python/test_mesh_corpus.py::test_generated_meshes_come_back_from_every_path",),
    ),
    Limitation(
        "launch",
        "started by hand, the service first",
        "one command, a readiness gate, any order",
        (
            "examples/gray-scott/test_gray_scott_example.py::test_run_file",
            "tests/python/test_any_order.py::test_servers_and_programs_start_in_any_order",
            "tests/python/test_server_program.py::test_ready_line",
        ),
    ),
    Limitation("repeats", "few runs", "repeats with their spread"),
    Limitation("phases", "start-up of in situ not amortised", "init, steady, drain apart"),
    Limitation(
        "accounting",
        "memory known by RSS only",
        "own accounting of bytes, with peaks",
        ("ObjectMemory.TheLimitIsExact", "ObjectMemory.RandomUseAgainstAModel"),
    ),
    Limitation("consumer memory", "a consumer takes 2.3× that of files", "at most 1.2×, reads without a copy"),
    Limitation("end to end", "simulation 2× that with files; 2, 4, 8 servers alike", "beat the file path end to end"),
    Limitation(
        "clocks",
        "skew between traces",
        "one clock",
        (
            "tests/python/test_trace_files.py::test_processes_of_a_machine_share_its_clock",
            "tests/python/test_trace_files.py::test_machines_are_aligned_by_real_time",
        ),
    ),
    Limitation(
        "ranks",
        "shown with one rank",
        "a workflow of several ranks",
        ("tests/python/test_bench_limits.py::test_a_workflow_of_several_ranks",),
    ),
    Limitation(
        "allocation",
        "a fixed set of servers",
        "servers come and go while I/O runs",
        (
            "PoolTest.ServersJoinAndDrainWhileObjectsComeAndGo",
            "tests/fault_pool/test_pool_faults.py::test_one_is_killed_one_added_and_one_drained",
        ),
    ),
    Limitation(
        "credentials",
        "credentials of the site expire",
        "own authentication",
        ("tests/python/test_pool_servers.py::test_roles_and_tokens", "PoolTest.RolesDoWhatTheyMay"),
    ),
    Limitation(
        "serialisation",
        "metadata serialised ad hoc",
        "a schema",
        (
            "tests/python/test_rpc.py::test_flatc_reads_what_we_write_and_the_reverse",
            "Protocol.KeysThatDoNotAddUp",
            "ComputeProtocol.EveryTruncationIsRefused",
        ),
    ),
    Limitation(
        "failure",
        "independent failure claimed, not shown",
        "kill and restart",
        (
            "tests/fault_pool/test_pool_faults.py::test_a_server_is_killed_under_load",
            "tests/fault_pool/test_pool_streams.py::test_a_writer_is_killed",
            "tests/fault_pool/test_pool_streams.py::test_a_reader_is_killed",
            "tests/fault_pool/test_pool_network.py::test_the_network_is_cut_and_healed",
            "StoreCrash.WhatWasAcknowledgedAsDurableSurvivesSigkill",
            "tests/python/test_restart.py::test_killed_from_outside",
        ),
    ),
    Limitation(
        "consumers",
        "one consumer",
        "several, and late ones",
        (
            "tests/python/test_stream_in_pool.py::test_any_kept_step_in_any_order",
            "StreamInPool.IsReadAfterItsWriterHasEnded",
        ),
    ),
    Limitation(
        "identity",
        "block attributes lost, names of regions not unique",
        "the whole model, stable identity",
        (
            "tests/python/test_mesh_entities.py::test_through_a_pool",
            "tests/python/test_mesh_entities.py::test_through_parts",
        ),
    ),
    Limitation("stack", "1.5 to 2 hours to build", "a thin client"),
    Limitation("drop-ins", "codes without IOSS keep files", "drop-ins for their libraries", later="front doors"),
)


def studies_of(claims: list[Any]) -> list[str]:
    """That answer a limitation."""
    return list(dict.fromkeys(claim.ours[0] for claim in claims if claim.answers))


def verdict_of(limitation: Limitation, judged: list[dict[str, Any]]) -> str:
    """met, not met, not measured (of its claims), tested (it has tests only), later."""
    if limitation.later:
        return "later"
    mets = [one["met"] for one in judged]
    if False in mets:
        return "not met"
    if None in mets or (not mets and not limitation.tests):
        return "not measured"
    return "met" if mets else "tested"


def answers_of(limitation: Limitation, judged: list[dict[str, Any]]) -> list[str]:
    """One line each: a claim with its figure; the tests."""
    if limitation.later:
        return [f"waits for later parts: {limitation.later}"]
    lines = []
    for one in judged:
        figure = f"{text_of(one['figure'])}{one['unit']}" if one["figure"] is not None else "not measured"
        mark = " (not met)" if one["met"] is False else ""
        lines.append(f"{one['claim']}: [bold]{figure}[/]{mark}")
    if limitation.tests:
        lines.append("tests: " + ", ".join(name.rpartition("/")[2] for name in limitation.tests))
    return lines


def print_limits(console: Console, judged: list[dict[str, Any]], rounds: int) -> None:
    """judged: claims of this run, and of what was added to it."""
    repeats = {"claim": "rounds of each figure, with their spread", "unit": "", "answers": "repeats"}
    judged = [*judged, repeats | {"figure": rounds, "met": rounds >= ENOUGH_ROUNDS}]
    table = Table(
        title="Limitations of the reference (SAND2020-9451), and what answers them here",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_lines=True,
        expand=True,
    )
    for name, ratio in (("there", 3), ("a better system must show", 3), ("here", 10)):
        table.add_column(name, ratio=ratio, overflow="fold")
    table.add_column("", no_wrap=True)
    colours = {"met": "green", "tested": "green", "not met": "red", "not measured": "dim", "later": "dim"}
    for limitation in LIMITATIONS:
        mine = [one for one in judged if one["answers"] == limitation.name]
        verdict = verdict_of(limitation, mine)
        lines = "\n".join(answers_of(limitation, mine))
        table.add_row(limitation.was, limitation.must, lines, f"[{colours[verdict]}]{verdict}[/]")
    console.print(table)
