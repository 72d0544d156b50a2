"""The parts of a run's end, and the record that all agents keep of it: how they are written, and read from others.

A part is one node's account of its end: {node, node_rank, address, state, reason, time, stopped_at, failures}. The
record puts the parts together, their times turned to the hub's clock: {run, hub, whole, stop, parts}; `whole` is false
in what a node writes before the others were heard, or without the hub. A run that may be started again adds
{attempts, roster, gave_up, state, reason}, see course.py.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterable, List, Optional, Set

from ..protocol.untrusted import LATEST, MalformedError, Untrusted
from .bounds import LONGEST_NODE, Bounds, required
from .evidence import BLOCK_LINES, LONGEST_LINE, TAIL_LINES, TRACEBACKS
from .gang import LONGEST_REASON
from .state import FINAL

LARGEST_RECORD = 512 << 10
FIRST = 32  # failures that keep their words when there are far too many
LEANEST = 3  # lines of each failure's last words when there are very many
LOST = "LOST"
ENDS = tuple(state for state in FINAL if state not in (LOST, "UNKNOWN"))  # that a node can tell of itself
HIGHEST_SIGNAL = 64
LONGEST_ADDRESS = 64  # characters
EXITS = 1 << 31

Part = Dict[str, Any]
Facts = Dict[str, Any]


def lost_part(node: str, rank: int, reason: str, time: float) -> Part:
    """Write the part of a node that cannot do it itself any more."""
    about = {"node": node, "node_rank": rank, "address": "", "state": LOST, "reason": reason, "time": time}
    return {**about, "stopped_at": None, "failures": []}


def on_clock(part: Part, offset: float) -> Part:
    """Turn a part's times to a clock from which its own differs by `offset` seconds."""
    failures = [_failure_on_clock(failure, offset) for failure in part["failures"]]
    return {**part, **_moved(part, ("time", "stopped_at"), offset), "failures": failures}


def _failure_on_clock(failure: Facts, offset: float) -> Facts:
    said = [{**block, **_moved(block, ("at",), offset)} for block in failure.get("said") or ()]
    return {**failure, **_moved(failure, ("time", "last_at"), offset), **({"said": said} if said else {})}


def _moved(entry: Facts, names: Iterable[str], offset: float) -> Facts:
    return {name: entry[name] - offset for name in names if isinstance(entry.get(name), (int, float))}


def make_record(spec: Facts, parts: List[Part], stop: Optional[Facts], *, whole: bool) -> Facts:
    """Put parts together; where very many have failed, each keeps fewer of its last words."""
    record = {"run": spec["run"], "hub": spec.get("hub"), "whole": whole, "stop": stop, "parts": parts}
    return fit(record)


def fit(record: Facts) -> Facts:
    """Leave out so much of the last words that a record, or what else has `parts`, is not too large."""
    parts = record["parts"]
    for most in (12, 6, LEANEST):
        if len(json.dumps(record)) <= LARGEST_RECORD:
            return record
        record = {**record, "parts": [_leaner(part, most) for part in parts]}
    if len(json.dumps(record)) > LARGEST_RECORD:
        record = {**record, "parts": _only_first_words(record["parts"])}
    return record


def _only_first_words(parts: List[Part]) -> List[Part]:
    """Keep what the first to fail have said, and how all others ended."""
    failures = [failure for part in parts for failure in part["failures"]]
    first = {id(one) for one in sorted(failures, key=lambda one: one.get("time") or 0.0)[:FIRST]}
    return [{**part, "failures": [_wordless(one, first) for one in part["failures"]]} for part in parts]


def _wordless(failure: Facts, spared: Set[int]) -> Facts:
    return failure if id(failure) in spared or "said" not in failure else {**failure, "said": [], "tail": []}


def _leaner(part: Part, most: int) -> Part:
    failures = [
        {**failure, "said": failure["said"][-1:], "tail": failure["tail"][-most:]}
        if "said" in failure
        else failure
        for failure in part["failures"]
    ]
    return {**part, "failures": failures}


def read_part(told: Untrusted, bounds: Bounds) -> Part:
    """Read a node's account of its own end; the node and its rank are added by who knows them."""
    end = {
        "address": told.text("address", LONGEST_ADDRESS),
        "state": required(told.one_of("state", ENDS) or None, "state"),
        "reason": told.text("reason"),
        "time": required(told.moment("time"), "time"),
        "stopped_at": told.moment("stopped_at"),
    }
    if not told.is_list("failures"):
        raise MalformedError("no list of failures")
    failures = [_read_failure(one) for one in told.records("failures", bounds.failures)]
    (part,) = fit({"parts": [{**end, "failures": failures}]})["parts"]
    return dict(part)


def read_record(told: Untrusted, bounds: Bounds) -> Facts:
    """Read the record of a run's end that a hub has put together."""
    if told.text("run") != bounds.run or not told.is_list("parts"):
        raise MalformedError("no record of this run")
    parts = [_read_recorded(part, bounds) for part in told.records("parts", bounds.seats)]
    stop = told.record("stop")
    return fit(
        {
            "run": bounds.run,
            "hub": told.text("hub", LONGEST_NODE),
            "whole": told.flag("whole"),
            "stop": _read_stop(stop) if stop else None,
            "parts": parts,
        }
    )


def _read_recorded(told: Untrusted, bounds: Bounds) -> Part:
    state = required(told.one_of("state", (*ENDS, LOST)) or None, "state")
    rank = required(told.integer("node_rank", 0, bounds.seats - 1), "node rank")
    end = {"state": state, "reason": told.text("reason"), "time": required(_shifted(told, "time"), "time")}
    failures = [_read_failure(one) for one in told.records("failures", bounds.failures)]
    node = told.text("node", LONGEST_NODE)
    if not bounds.is_name(node):
        raise MalformedError("a part of no node of this run")
    about = {"node": node, "node_rank": rank, "address": told.text("address", LONGEST_ADDRESS)}
    return {**about, **end, "stopped_at": _shifted(told, "stopped_at"), "failures": failures}


def _read_stop(told: Untrusted) -> Facts:
    about = {"node": told.text("node", LONGEST_NODE), "reason": told.text("reason", LONGEST_REASON)}
    return {**about, "time": required(told.moment("time"), "time")}


def _shifted(told: Untrusted, key: str) -> Optional[float]:
    """Give a time that a hub has turned from one clock to another, which may both be wrong."""
    return told.number(key, -2 * LATEST, 2 * LATEST)


def _read_failure(told: Untrusted) -> Facts:
    """Read how one process ended, and what it wrote last."""
    failure: Facts = {
        "rank": told.integer("rank", 0, EXITS),
        "exit": told.integer("exit", -EXITS, EXITS),
        "signal": told.integer("signal", 1, HIGHEST_SIGNAL),
        "time": _shifted(told, "time") or 0.0,
    }
    if "reason" in told:
        failure["reason"] = told.text("reason")
    if told.flag("starved"):
        failure["starved"] = True
    if not told.is_list("tail"):
        return failure
    said = [
        {"at": _shifted(block, "at") or 0.0, "lines": list(block.texts("lines", BLOCK_LINES, LONGEST_LINE))}
        for block in told.records("said", TRACEBACKS)
    ]
    tail = list(told.texts("tail", TAIL_LINES, LONGEST_LINE))
    seen = {"last_at": _shifted(told, "last_at") or 0.0, "frozen": told.flag("frozen")}
    return {**failure, **seen, "said": said, "tail": tail}
