"""Runs to report, and what a page of a report holds."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields, replace
from html.parser import HTMLParser
from typing import Any

from ends import judge

from clusterctl.plans.diagnose.kept import STALL, KeptDiagnosis, judge_kept, parse_kept
from clusterctl.plans.report.reported_run import ReportedRun
from clusterctl.plans.runs.cause import Explanation, explain_end
from clusterctl.plans.runs.history import (
    History,
    Launched,
    Machine,
    NodeRecord,
    ScalarPoint,
    Scalars,
    parse_journal,
)
from clusterctl.plans.runs.state import parse_state
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.root_cause import Failure
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

HOSTILE = "</pre><script>alert(1)</script>\"' onload=x \x1b[31m\u202e\x00&amp;"


class Tags(HTMLParser):
    """The elements and attributes of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.text += data


RUN = RunId("digits-20261123T070708-923c")


BEGAN = 1_800_000_000.0


JOURNAL = [
    {"time": BEGAN + 1, "event": "preparing"},
    {"time": BEGAN + 5, "event": "ready"},
    {"time": BEGAN + 6, "event": "workers"},
    {"time": BEGAN + 50, "event": "rank_exited", "rank": 1, "exit": 1, "signal": None},
    {"time": BEGAN + 50, "event": "stopping", "reason": "gpu02: rank 1 exited with 1"},
    {"time": BEGAN + 52, "event": "ended", "state": "FAILED"},
]


def make_record(node: str, points: int = 60, gpus: int = 2) -> NodeRecord:
    """Make a node's record, a sample every second."""
    times = tuple(BEGAN + number for number in range(points))
    wave = tuple(50 + 40 * math.sin(number / 7) for number in range(points))
    columns: dict[tuple[str, str, str], tuple[float | None, ...]] = {
        ("node", "", "cpu"): tuple(value / 100 for value in wave),
        ("node", "", "memory"): tuple(value * 1e9 for value in wave),
        ("nic", "eth0", "received"): tuple(value * 1e6 for value in wave),
        ("nic", "eth0", "sent"): wave,
        ("rank", "0", "rss"): tuple(value * 1e8 for value in wave),
    }
    for gpu in range(gpus):
        columns["gpu", str(gpu), "busy"] = wave
        columns["gpu", str(gpu), "memory"] = tuple(value * 1e9 for value in wave)
        columns["gpu", str(gpu), "xid"] = tuple(79.0 if number == 40 else 0.0 for number in range(points))
    machine = Machine(8, 64 << 30, (("H100", 80e9),) * gpus)
    losses = tuple(ScalarPoint(BEGAN + number, number, 3 / (1 + number)) for number in range(50))
    return NodeRecord(
        node,
        History(times, columns, 1.0, machine),
        parse_journal("\n".join(map(json.dumps, JOURNAL)).encode()),
        Launched(("train.py", "--lr", "0.1"), "", "python3", {"NCCL_DEBUG": "INFO"}, ("eth0",), "10.0.0.1", 1, (),
                 {"code": "8f3a" * 16, "torch": "2.13", "nic": "network: 10.0.0.0/24"}),
        {0: {"stdout": ("step 1",), "stderr": ("Traceback: bad batch",)}},
        (Scalars("loss", "log", 50, losses),),
    )  # fmt: skip


def make_run(records: dict[str, NodeRecord], **changes: Any) -> ReportedRun:
    """Make a run of two nodes whose rank 1 failed."""
    raw: dict[str, Any] = {
        "run": RUN, "job": "digits", "cluster": "lab", "nnodes": 2, "state": "FAILED", "since": BEGAN + 52,
        "submitted": BEGAN, "began": BEGAN + 6, "launched_by": "ann@laptop", "world_size": 2,
    }  # fmt: skip
    parts = {}
    for number, name in enumerate(("gpu01", "gpu02")):
        ranks = {str(number): {"local_rank": 0, "pid": 7, "exit": number, "signal": None}}
        parts[name] = parse_state(Untrusted({**raw, "node": name, "node_rank": number, "ranks": ranks}))
    failure = Failure("gpu02", Rank(1), 1, None, BEGAN + 50, exception="ValueError: bad batch")
    verdict = judge(RUN, parts, [failure])
    run = ReportedRun(
        RUN,
        parts,
        verdict,
        explain_end(verdict, "cctl"),
        records,
        BEGAN + 99,
        lambda moment: f"<{moment:.0f}>",
    )
    return replace(run, **changes)


def explain(texts: Sequence[str]) -> Explanation:
    """Put texts into all parts of an explanation but the code, which is always one of ours."""
    text = " ".join(texts)
    every = [field.name for field in fields(Explanation) if field.name != "code"]
    return Explanation(
        **{name: tuple(texts) if name in ("tail", "also", "reasons") else text for name in every}
    )


STACK = 'Thread 0x1 (most recent call first):\n  File "/w/train.py", line {line} in {where}\n'


def make_kept(node: str, rank: int, where: str, *, waits: bool, text: str = "") -> Any:
    """Write what a node has kept of its only rank."""
    entries = [[3, None, "gloo:all_reduce", "[[1]]", "Float", True, 602.0]]
    entries += [[4, None, "gloo:all_reduce", "[[1]]", "Float", False, 601.0]] if waits else []
    group = {"name": "0", "about": text or "default_pg", "members": "", "entries": entries}
    row = {"rank": rank, "pid": 7, "problem": "", "process": "S", "stack": 0, "groups": [group]}
    stack = STACK.format(line=4 + rank, where=where) + text
    diagnosis = {"ranks": [row], "stacks": [stack], "code": "/w/", "took": 0.1, "time": BEGAN + 700}
    return parse_kept(
        Untrusted({"why": STALL, "time": BEGAN + 700, "since": BEGAN + 100, "diagnosis": diagnosis}), node
    )


def make_hang(text: str = "") -> KeptDiagnosis:
    """Give the evidence of two ranks: the second loads while the first waits for it."""
    found = judge_kept(
        [
            make_kept("gpu01", 0, "train_step", waits=True, text=text),
            make_kept("gpu02", 1, text or "load_batch", waits=False, text=text),
        ],
        [],
        2,
    )
    assert found is not None
    return found


def make_stalled(node: str, *, over: bool) -> NodeRecord:
    """Make the record of a node that noticed a stall 40 s long, 45 s after the launch."""
    journal: list[dict[str, Any]] = [
        {"time": BEGAN + 1, "event": "workers"},
        {"time": BEGAN + 45, "event": "stalled", "seconds": 40.0},
    ]
    journal += [{"time": BEGAN + 50, "event": "stall_over"}] if over else []
    lines = "\n".join(map(json.dumps, journal))
    return replace(make_record(node), journal=parse_journal(lines.encode()))


def make_restarted(attempts: int) -> ReportedRun:
    """Make a run whose earlier attempts each lasted 5 s."""
    ended = [
        {"attempt": number, "reason": "node_lost", "text": f"gpu03 is lost {number}", "ended": BEGAN + 6 + 7 * number,
         "began": BEGAN + 7 * number + 1, "node_rank": 0, "progress": True}
        for number in range(1, attempts + 1)
    ]  # fmt: skip
    raw = {"run": make_run({}).run_id, "job": "digits", "nnodes": 2, "state": "FAILED", "since": BEGAN + 52,
           "submitted": BEGAN, "began": BEGAN + 6, "attempt": attempts + 1, "attempts": ended}  # fmt: skip
    parts = {
        name: parse_state(Untrusted({**raw, "node": name, "node_rank": number}))
        for number, name in enumerate(("gpu01", "gpu02"))
    }
    return make_run({name: make_record(name) for name in parts}, parts=parts)


def make_short() -> ReportedRun:
    """Make a run of 20 s on three nodes, whose rank 1 failed; the other ranks were stopped."""
    raw: dict[str, Any] = {
        "run": RUN, "job": "digits", "cluster": "lab", "nnodes": 3, "submitted": BEGAN, "began": BEGAN + 6,
        "launched_by": "ann@laptop", "launched_from": "/home/ann/digits", "world_size": 3, "since": BEGAN + 28,
    }  # fmt: skip
    records, parts, failures = {}, {}, []
    for number, name in enumerate(("gpu01", "gpu02", "gpu03")):
        code, signal = (1, None) if number == 1 else (None, 15)
        ranks = {str(number): {"local_rank": 0, "pid": 7, "exit": code, "signal": signal}}
        state = "FAILED" if number == 1 else "STOPPED"
        parts[name] = parse_state(
            Untrusted({**raw, "state": state, "node": name, "node_rank": number, "ranks": ranks})
        )
        failures.append(
            Failure(name, Rank(number), code, signal, BEGAN + 26 + (number != 1), after_stop=number != 1)
        )
        record = make_record(name, 28, 1)
        exited = {"event": "rank_exited", "rank": number, "exit": code, "signal": signal}
        journal = [
            *JOURNAL[:3],
            {"time": BEGAN + 26, **exited} if number == 1 else {"time": BEGAN + 26.2, "event": "stopping"},
            {"time": BEGAN + 26.2, "event": "stopping"} if number == 1 else {"time": BEGAN + 26.6, **exited},
            {
                "time": BEGAN + 27,
                "event": "attempt_ended",
                "attempt": 1,
                "reason": f"{name}: rank 1 exited with 1",
            },
            {"time": BEGAN + 28 + number, "event": "ended", "state": state},
        ]
        lines = {
            "stdout": tuple(f"step {step}" for step in range(40)),
            "stderr": ("Traceback", "ValueError: bad"),
        }
        records[name] = replace(
            record,
            journal=parse_journal("\n".join(map(json.dumps, journal)).encode()),
            output={number: lines},
            scalars=record.scalars if number == 0 else (),
        )
    failures[1] = replace(failures[1], exception="ValueError: bad batch")
    verdict = judge(RUN, parts, failures, stopped_at=BEGAN + 26.2)
    return make_run(records, parts=parts, verdict=verdict, explanation=explain_end(verdict, "cctl"))
