"""What Penstock claims about its speed, as ratios between rows of one run: of the steady state, and of start-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .report import ratio_of

Row = dict[str, Any]
Key = tuple[str, str, str]


@dataclass(frozen=True)
class Claim:
    """ours / theirs <= bound ("takes"), or theirs / ours >= bound ("faster"), of the figure named: by default a step in
    the steady state. Of several theirs the fastest counts."""

    text: str
    ours: Key
    theirs: tuple[Key, ...]
    sense: str
    bound: float
    figure: str = "step_s"


def _w1(variant: str, system: str = "penstock") -> Key:
    return "W1", system, variant


SPAN_W2, PUT_W2 = ("W2", "penstock", "span_get"), ("W2", "penstock", "put_get")
W3 = ("W3", "penstock", "put_get")
MPI_W2 = (("W2", "mpi", "packed"), ("W2", "mpi", "derived"))

CLAIMS = (
    Claim(
        "W1 put + get takes at most 1.25× two copies through shared memory",
        _w1("put_get"),
        (_w1("two_copies", "limit"),),
        "takes",
        1.25,
    ),
    Claim(
        "W1 put + get is at least 3× faster than SST at its best", _w1("put_get"), (_w1("best", "sst"),), "faster", 3
    ),
    Claim(
        "W1 put + get is at least 4.5× faster than SST as installed",
        _w1("put_get"),
        (_w1("installed", "sst"),),
        "faster",
        4.5,
    ),
    Claim(
        "W1 put + view, sampled, takes at most 1.15× one copy",
        _w1("put_view"),
        (_w1("one_copy", "limit"),),
        "takes",
        1.15,
    ),
    Claim(
        "W1 put + view, summed, takes at most 1.15× one copy, summed",
        _w1("put_view_sum"),
        (_w1("one_copy_sum", "limit"),),
        "takes",
        1.15,
    ),
    Claim(
        "W1 put_span + view takes at most 1.15× filling and summing in place",
        _w1("span_view_sum"),
        (_w1("fill_sum", "limit"),),
        "takes",
        1.15,
    ),
    Claim(
        "W1 over tcp is at least 1.6× faster than SST as installed",
        _w1("tcp_put_get"),
        (_w1("installed", "sst"),),
        "faster",
        1.6,
    ),
    Claim("W2 put_span + get takes at most as long as MPI by hand", SPAN_W2, MPI_W2, "takes", 1.0),
    Claim("W2 put + get takes at most 1.25× MPI by hand", PUT_W2, MPI_W2, "takes", 1.25),
    Claim("W3 takes at most 5× bare copies", W3, (("W3", "limit", "two_copies"),), "takes", 5),
    Claim("W3 is at least 10× faster than SST", W3, (("W3", "sst", "installed"), ("W3", "sst", "best")), "faster", 10),
    Claim(
        "W4 sleeping takes at most 1.5× a bare wake-up",
        ("W4", "penstock", "blocking"),
        (("W4", "limit", "futex"), ("W4", "limit", "eventfd")),
        "takes",
        1.5,
    ),
    Claim(
        "W4 with bounded spinning is at least 20× faster than SST with TCP_NODELAY",
        ("W4", "penstock", "spinning"),
        (("W4", "sst", "best"),),
        "faster",
        20,
    ),
    Claim(
        "W1 put + get: from the program's start, start-up takes at most 1.25× that of copies into fresh memory",
        _w1("put_get"),
        (_w1("fresh", "limit"),),
        "takes",
        1.25,
        "begun_s",
    ),
)


def judge(rows: dict[Key, Row]) -> list[dict[str, Any]]:
    """Each claim with its figure and whether it is met; `met` is None when a row was not measured."""
    judged = []
    for claim in CLAIMS:
        ours = rows.get(claim.ours)
        theirs = [rows[key] for key in claim.theirs if key in rows]
        entry: dict[str, Any] = {"claim": claim.text, "bound": claim.bound, "unit": "×", "figure": None, "met": None}
        if ours and theirs:
            reference = min(theirs, key=lambda row: row[claim.figure])
            ratio = ratio_of(ours, reference, claim.figure)
            figure = ratio if claim.sense == "takes" else 1 / ratio
            entry |= {
                "figure": figure,
                "met": figure <= claim.bound if claim.sense == "takes" else figure >= claim.bound,
                "against": f"{reference['system']} {reference['variant']}",
            }
        judged.append(entry)
    return judged
