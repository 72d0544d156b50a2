"""One end of a run, whichever nodes answer, in whatever order, and whatever became of them afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from ends import conclude_ended

from clusterctl.console.run.listing import runs_to_json
from clusterctl.console.run.status import status_to_json
from clusterctl.node.gang.attempts import make_record
from clusterctl.plans.runs.selection import Owner, gather_runs, is_complete
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.runs.verdict import Verdict, verdict_to_json
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

RUN = RunId("r-20260101T000000-0001")
NODES = ("gpu01", "gpu02", "gpu03")
SILENT = "it was silent for 20 s"
KILLED = {"rank": 1, "exit": None, "signal": 9, "time": 9.0}
RESTARTED = "the node was restarted during the run"


def part(node: str, state: str, reason: str = "", *failures: Any, kind: str = "") -> Any:
    """Write one node's part of a record."""
    stopped_at = 10.0 if kind else None
    about = {"node": node, "node_rank": int(node[-1]) - 1, "address": "", "state": state, "reason": reason}
    return {**about, "time": 13.0, "stopped_at": stopped_at, "stop_kind": kind, "failures": list(failures)}


def lost(node: str, reason: str = SILENT) -> Any:
    """Write the part of a node that the others lost."""
    return {**part(node, "LOST", reason), "last_seen": 8.0}


def record(
    *parts: Any, hub: str = "gpu01", attempt: int = 1, whole: bool = True, kind: str = "", **more: Any
) -> Any:
    """Write a record as its hub does."""
    stop = {"node": "", "reason": "", "time": 10.0, "kind": kind} if kind else None
    spec: Any = {"run": RUN, "hub": hub, "attempt": attempt}
    return {**make_record(spec, list(parts), stop, whole=whole), **more}


def state(node: str, word: str, gang: Any = True, **more: Any) -> NodeState:
    """Read what a node reports of its part; of the whole record it keeps how the run ended, as an agent does."""
    about = {
        "run": RUN,
        "node": node,
        "node_rank": int(node[-1]) - 1,
        "nnodes": 3,
        "state": word,
        "began": 1.0,
    }
    if isinstance(gang, dict) and gang["whole"]:
        about["end"] = {"state": gang["state"], "attempt": gang["attempt"]}
    return parse_state(Untrusted({**about, "gang": gang, **more}))


def all_of(words: Mapping[str, str], gang: Any, **more: Any) -> dict[str, NodeState]:
    """Read what all nodes report that keep the same record."""
    return {node: state(node, word, gang, **more) for node, word in words.items()}


SUCCEEDED = record(*(part(node, "SUCCEEDED") for node in NODES))
FAILED = record(
    part("gpu01", "STOPPED", "gpu02: rank 1 was killed by SIGKILL", kind="failure"),
    part("gpu02", "FAILED", "rank 1 was killed by SIGKILL", KILLED),
    part("gpu03", "STOPPED", "gpu02: rank 1 was killed by SIGKILL", kind="failure"),
    kind="failure",
)
STOPPED = record(
    *(part(node, "STOPPED", "stopped by ann@laptop", kind="stop") for node in NODES), kind="stop"
)
AGENT_STOPPED = record(
    *(part(node, "STOPPED", "the agent on gpu02 received SIGTERM", kind="stop") for node in NODES),
    kind="stop",
)
CODE_3 = {"rank": 1, "exit": 3, "signal": None, "time": 10.1}
RAISED = {
    "rank": 1,
    "exit": 1,
    "signal": None,
    "time": 10.2,
    "last_at": 10.2,
    "tail": ["EOFError: server went away"],
    "tracebacks": [
        {"at": 10.1, "lines": ["Traceback (most recent call last):", "EOFError: server went away"]}
    ],
}


def late(failure: Any) -> Any:
    """Write the record of a run that its time limit ended, where gpu02 failed by that before its own order came."""
    return record(
        part("gpu01", "TIMEOUT", "time limit of 2 s", kind="time"),
        part("gpu02", "FAILED", "rank 1 exited with 3", failure),
        part("gpu03", "TIMEOUT", "time limit of 2 s", kind="time"),
        kind="failure",
    )


NODE_LOST = record(
    part("gpu01", "STOPPED", f"gpu02 is lost: {SILENT}", kind="failure"),
    lost("gpu02"),
    part("gpu03", "STOPPED", f"gpu02 is lost: {SILENT}", kind="failure"),
    kind="failure",
)
ALONE = record(
    lost("gpu01"),
    part("gpu02", "STOPPED", f"node 0 (gpu01) is lost: {SILENT}", kind="failure"),
    whole=False,
)


def roster(*ranks: int | None, gone: str = "") -> list[Any]:
    """Write who has which rank."""
    return [
        {
            "slot": slot,
            "node": node,
            "node_rank": ranks[slot],
            **({"lost": True, "reason": SILENT} if node in gone else {}),
        }
        for slot, node in enumerate(NODES)
    ]


# Two nodes and a spare: gpu02 was cut off in attempt 1, gpu03 took its place.
AGAIN: dict[str, Any] = {"slots": 3, "nnodes": 2}
SECOND = record(
    part("gpu01", "SUCCEEDED"), part("gpu03", "SUCCEEDED"), attempt=2, roster=roster(0, None, 1, gone="gpu02")
)
CUT_OFF = record(
    *(lost("gpu01"), part("gpu02", "STOPPED", f"node 0 (gpu01) is lost: {SILENT}", kind="failure")),
    hub="gpu02", whole=False, roster=roster(0, 1, None, gone="gpu01 gpu03"),
)  # fmt: skip
AFTER_CUT = {
    "gpu01": state("gpu01", "SUCCEEDED", SECOND, attempt=2, roster=SECOND["roster"], **AGAIN),
    "gpu02": state("gpu02", "STOPPED", CUT_OFF, attempt=1, roster=CUT_OFF["roster"], **AGAIN),
    "gpu03": state("gpu03", "SUCCEEDED", SECOND, attempt=2, roster=SECOND["roster"], **AGAIN),
}
OFF_AFTER_ITS_PART = {
    **AFTER_CUT,
    "gpu03": state("gpu03", "UNKNOWN", reason=RESTARTED, attempt=2, roster=SECOND["roster"], **AGAIN),
}
EVERYWHERE: dict[str, tuple[dict[str, NodeState], str, str, int, tuple[str, ...]]] = {
    # what ended it: what the nodes report, the state, whose the cause is, the exit code, whom the record needs
    "success": (all_of(dict.fromkeys(NODES, "SUCCEEDED"), SUCCEEDED), "SUCCEEDED", "", 0, NODES),
    "a node off after it": (
        {**all_of(dict.fromkeys(NODES, "SUCCEEDED"), SUCCEEDED), "gpu03": state("gpu03", "UNKNOWN", reason=RESTARTED)},
        "SUCCEEDED", "", 0, NODES[:2],
    ),
    "a killed rank": (
        all_of({"gpu01": "STOPPED", "gpu02": "FAILED", "gpu03": "STOPPED"}, FAILED), "FAILED", "gpu02", 1, NODES,
    ),
    "a stop": (all_of(dict.fromkeys(NODES, "STOPPED"), STOPPED), "STOPPED", "", 1, NODES),
    "SIGTERM to an agent": (all_of(dict.fromkeys(NODES, "STOPPED"), AGENT_STOPPED), "STOPPED", "", 1, NODES),
    "a time limit, a peer exits with 3": (
        all_of({"gpu01": "TIMEOUT", "gpu02": "FAILED", "gpu03": "TIMEOUT"}, late(CODE_3)), "TIMEOUT", "", 1, NODES,
    ),
    "a time limit, a peer raises": (
        all_of({"gpu01": "TIMEOUT", "gpu02": "FAILED", "gpu03": "TIMEOUT"}, late(RAISED)), "TIMEOUT", "", 1, NODES,
    ),
    "a lost node that is back": (
        {**all_of(dict.fromkeys(NODES, "STOPPED"), NODE_LOST), "gpu02": state("gpu02", "UNKNOWN", reason=RESTARTED)},
        "LOST", "gpu02", 1, ("gpu01", "gpu03"),
    ),
    "a lost node that ended by itself": (
        {**all_of(dict.fromkeys(NODES, "STOPPED"), NODE_LOST), "gpu02": state("gpu02", "STOPPED", ALONE)},
        "LOST", "gpu02", 1, ("gpu01", "gpu03"),
    ),
    "a lost node that believes it runs": (
        {**all_of(dict.fromkeys(NODES, "STOPPED"), NODE_LOST), "gpu02": state("gpu02", "RUNNING")},
        "LOST", "gpu02", 1, ("gpu01", "gpu03"),
    ),
    "a killed agent": (
        {
            **all_of(dict.fromkeys(NODES, "STOPPED"), NODE_LOST),
            "gpu02": state("gpu02", "FAILED", reason="the agent was killed by SIGKILL"),
        },
        "LOST", "gpu02", 1, ("gpu01", "gpu03"),
    ),
    "a second attempt without a node that was cut off": (AFTER_CUT, "SUCCEEDED", "", 0, ("gpu01", "gpu03")),
    "the same, and power lost after its part": (OFF_AFTER_ITS_PART, "SUCCEEDED", "", 0, ("gpu01",)),
}  # fmt: skip


def answers_of(parts: Mapping[str, NodeState], keepers: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Give every order in which some of the nodes answer, with one at least that keeps the record."""
    for count in range(1, len(parts) + 1):
        for order in itertools.permutations(parts, count):
            if set(order) & set(keepers):
                yield order


def end_of(verdict: Verdict) -> tuple[str, str, int]:
    """Return state, whose the cause is, and the exit code."""
    return verdict.state, verdict.cause.failure.node if verdict.cause else "", verdict.exit_code


@pytest.mark.parametrize("name", EVERYWHERE)
def test_every_verb_reports_one_end(name: str) -> None:
    """Whoever answers in which order: a command stops waiting once the end is known for certain, and not before."""
    parts, word, blamed, code, keepers = EVERYWHERE[name]
    for order in answers_of(parts, keepers):
        heard: dict[str, NodeState] = {}
        for node in order:
            heard[node] = parts[node]
            if is_complete(heard):
                break
        if not set(heard) & set(keepers):
            raise AssertionError(f"{order}: stopped at {list(heard)}, which know nothing of the end")
        runs = gather_runs(
            {node: [reported] for node, reported in heard.items()},
            [node for node in NODES if node not in heard],
        )
        found = {node: runs[RUN].get(node) for node in NODES if node in runs[RUN]}
        verdict = conclude_ended(RUN, found, NODES)
        assert (order, *end_of(verdict)) == (order, word, blamed, code)
        assert not verdict.is_assembled
        written: Any = verdict_to_json(verdict)
        assert (written["state"], written["exit_code"], written["recorded"]) == (word, code, True)
        assert status_to_json(RUN, found, node_names=NODES)["run"]["state"] == word
        listed = runs_to_json({RUN: found}, Owner("ann@laptop"), NODES)["runs"]
        assert [one["state"] for one in listed] == [word]


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_list_without_the_records_has_the_same_state(name: str) -> None:
    """`ps` leaves large records out; state.json has how the whole run ended."""
    parts, word, _, code, keepers = EVERYWHERE[name]
    for order in answers_of(parts, keepers):
        bare = {
            node: parse_state(Untrusted({**_bare(parts[node])})) if node in order else None for node in parts
        }
        verdict = conclude_ended(RUN, bare, NODES)
        assert (order, verdict.state, verdict.exit_code) == (order, word, code)


def _bare(known: NodeState) -> dict[str, Any]:
    """Write a node's state without the record of the run's end."""
    slots = [
        {
            "slot": slot.number,
            "node": slot.node,
            "node_rank": slot.node_rank,
            "lost": slot.lost,
            "reason": slot.reason,
        }
        for slot in known.roster
    ]
    end = known.end or {}
    about = {"run": RUN, "node": known.node, "node_rank": known.node_rank, "nnodes": known.nnodes}
    return {
        **about, "state": known.state, "reason": known.reason, "attempt": known.attempt, "slots": known.slots,
        "began": known.began, "roster": slots, "end": end, "gang": True,
    }  # fmt: skip


def test_a_run_that_never_began_is_cancelled() -> None:
    """A disk was full on one node, which has nothing of the run: the others were prepared, and ended."""
    parts = {
        node: state(node, "STOPPED", began=None, reason="cancelled before the start") for node in NODES[:2]
    }
    for found in (parts, {**parts, "gpu03": None}):
        verdict = conclude_ended(RUN, found, NODES)
        assert (verdict.state, verdict.exit_code, verdict.is_assembled) == ("STOPPED", 1, False)


def test_a_slurm_job_that_was_cancelled_in_the_queue_is_cancelled() -> None:
    """The login node speaks for all nodes, and Slurm has ended it, whatever it was waiting for."""
    about = {"run": RUN, "node": "slurm-8", "nnodes": 3, "state": "STOPPED", "stop_kind": "stop"}
    queued = parse_state(
        Untrusted({**about, "reason": "Slurm job 8: STOPPED (Resources)", "queue": {"state": "STOPPED"}})
    )
    verdict = conclude_ended(RUN, {"slurm-8": queued}, ["slurm-8"])
    assert end_of(verdict) == ("STOPPED", "", 1)


def test_what_the_client_put_together_is_marked() -> None:
    """Node 0 has no power and nothing restarts the run: what the others report is all there is."""
    cut = f"node 0 (gpu01) is lost: {SILENT}"
    alone = {
        node: state(
            node,
            "STOPPED",
            record(lost("gpu01"), part(node, "STOPPED", cut, kind="failure"), whole=False),
            reason=cut,
        )
        for node in NODES[1:]
    }
    for first in (None, state("gpu01", "UNKNOWN", reason=RESTARTED)):
        for names in itertools.permutations(NODES):
            parts = {"gpu01": first, **alone}
            verdict = conclude_ended(RUN, {node: parts[node] for node in names}, NODES)
            assert (end_of(verdict), verdict.is_assembled) == (("LOST", "gpu01", 1), True)
