"""Why an attempt ended, decided on the nodes from the parts of all; and what follows from it, by plain values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterctl.node.gang.attempts import judge_record, lost_part, make_record, read_policy
from clusterctl.node.gang.channel import MAX_MESSAGE
from clusterctl.protocol.messages.gang import FIRST_FAILURES, limit_parts

LOST_PEER = "RuntimeError: [gloo] Connection closed by peer [10.0.0.2]:4242"


def rank(
    number: int | None, exit_code: int | None = 1, sig: int | None = None, at: float = 10.0, **more: Any
) -> Any:
    """Write the failure of a rank, or of torchrun."""
    end = {"rank": number, "exit": None if sig else exit_code, "signal": sig, "time": at, "last_at": at}
    return {**end, "tracebacks": [], "tail": [], "suspended": False, **more}


def said(*lines: str, at: float = 9.0, before: tuple[str, ...] = ()) -> dict[str, Any]:
    """Write one traceback as the evidence boils it down."""
    return {
        "at": at,
        "lines": [*before, "Traceback (most recent call last):", '  File "train.py", line 3', *lines],
    }


def part(node: str, *failures: Any, state: str = "FAILED", stopped_at: float | None = None) -> dict[str, Any]:
    """Write one node's part."""
    return {
        "node": node,
        "state": state,
        "reason": "why",
        "stopped_at": stopped_at,
        "failures": list(failures),
    }


CHAIN = ("During handling of the above exception, another exception occurred:",)
CASES: list[tuple[str, list[Any], str, str]] = [
    (
        "a lost node beats all",
        [part("a", rank(0, tracebacks=[said("ValueError: x")])), part("b", state="LOST")],
        "node_lost",
        "b",
    ),
    (
        "who saves and leaves with its own code when asked is innocent, however early",
        [
            part("a", rank(0, 143, at=10.3), state="STOPPED", stopped_at=10.0),
            part("b", {"rank": None, "reason": "the guardian was killed", "time": 10.9}),
        ],
        "agent_killed",
        "b",
    ),
    (
        "a network's error is told, not the code of who was asked to leave",
        [
            part("a", rank(0, 1, at=10.3), state="STOPPED", stopped_at=10.0),
            part("b", rank(1, 1, at=10.6, tracebacks=[said(LOST_PEER, at=9.8)])),
        ],
        "network",
        "b",
    ),
    ("an exception of its own", [part("a", rank(0, tracebacks=[said("ValueError: x")]))], "code", "a"),
    (
        "a known text",
        [part("a", rank(0, tracebacks=[said("RuntimeError: uncorrectable ECC error")]))],
        "gpu",
        "a",
    ),
    (
        "torch's mark before each line",
        [part("a", rank(0, tracebacks=[said("[rank0]: torch.OutOfMemoryError: CUDA out of memory")]))],
        "out_of_memory",
        "a",
    ),
    (
        "who complains of others is innocent, however early",
        [part("a", rank(0, tracebacks=[said(LOST_PEER, at=5.0)])), part("b", rank(1, sig=9, at=6.0))],
        "worker_killed",
        "b",
    ),
    ("all complain of others", [part("a", rank(0, tracebacks=[said(LOST_PEER)]))], "network", "a"),
    (
        "the earlier of two",
        [
            part("a", rank(0, tracebacks=[said("KeyError: 1", at=8.0)])),
            part("b", rank(1, tracebacks=[said("RuntimeError: uncorrectable ECC error", at=7.0)])),
        ],
        "gpu",
        "b",
    ),
    (
        "words go before a silent death",
        [part("a", rank(0, sig=11, at=5.0)), part("b", rank(1, tracebacks=[said("ValueError: x", at=6.0)]))],
        "code",
        "b",
    ),
    ("a crash", [part("a", rank(0, sig=11))], "worker_crashed", "a"),
    ("an exit without a word", [part("a", rank(0, exit_code=3))], "code", "a"),
    ("no memory", [part("a", rank(0, sig=9, oom_killed=True))], "out_of_memory", "a"),
    ("last words before a crash", [part("a", rank(0, sig=6, tail=["uncorrectable ECC error"]))], "gpu", "a"),
    (
        "last words before a kill mean nothing",
        [part("a", rank(0, sig=9, tail=["uncorrectable ECC error"]))],
        "worker_killed",
        "a",
    ),
    (
        "what we ended ourselves is no cause",
        [
            part("a", rank(0, sig=15, at=10.0), state="STOPPED", stopped_at=9.9),
            part("b", rank(1, sig=9, at=9.0)),
        ],
        "worker_killed",
        "b",
    ),
    (
        "nor is what torchrun ended because of its neighbour",
        [
            part(
                "a",
                rank(0, sig=15, at=10.0),
                rank(1, exit_code=1, at=9.9, tracebacks=[said("ValueError: x", at=9.8)]),
            )
        ],
        "code",
        "a",
    ),
    (
        "torchrun was killed, and its workers by us",
        [
            part(
                "a",
                {"rank": None, "reason": "torchrun was killed by SIGKILL", "time": 5.0},
                rank(0, sig=9, at=6.0),
            )
        ],
        "agent_killed",
        "a",
    ),
    (
        "torchrun cannot listen",
        [part("a", rank(None, tail=["DistNetworkError: EADDRINUSE"]))],
        "port_taken",
        "a",
    ),
    (
        "an exception raised while a lost peer was handled",
        [part("a", rank(0, tracebacks=[said(LOST_PEER), said("AttributeError: x", at=9.1, before=CHAIN)]))],
        "network",
        "a",
    ),
    (
        "a lost peer in the clean-up after an exception",
        [part("a", rank(0, tracebacks=[said("KeyError: 'x'"), said(LOST_PEER, at=9.5, before=CHAIN)]))],
        "code",
        "a",
    ),
    (
        "an exception that was survived",
        [part("a", rank(0, sig=9, at=60.0, last_at=59.0, tracebacks=[said("ValueError: logged", at=9.0)]))],
        "worker_killed",
        "a",
    ),
    (
        "what was raised long after our stop",
        [
            part("a", rank(0, tracebacks=[said("OSError: x", at=15.0)]), stopped_at=10.0),
            part("b", rank(1, sig=9, at=9.0)),
        ],
        "worker_killed",
        "b",
    ),
    ("only a stop", [part("a", state="STOPPED", stopped_at=5.0)], "code", "a"),
    (
        "rank 0 ended with 0, rank 1 was killed",
        [part("a", rank(0, exit_code=0), rank(1, sig=9))],
        "worker_killed",
        "a",
    ),
]


@pytest.mark.parametrize(
    ("parts", "reason", "node"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_blame(parts: list[Any], reason: str, node: str) -> None:
    """The reason is that of the failure from which the others follow."""
    found = judge_record({"parts": parts})

    assert (found.reason, found.node) == (reason, node)


CHEAP = """
import sys
sys.path.insert(0, {root!r})
from importlib import import_module
for name in {names}:
    import_module("clusterctl.node." + name)
judge = ["root_cause", "known_errors", "tracebacks", "end_record"]
before = [name for name in judge if "clusterctl.protocol." + name in sys.modules]
from clusterctl.node.gang.attempts import judge_record
print(before, judge_record({{"parts": []}}).reason, "clusterctl.protocol.root_cause" in sys.modules)
"""


def test_an_agent_that_starts_does_not_load_the_judge() -> None:
    """Only the end of an attempt needs it, not a run that goes well; whatever else the agent imports."""
    package = Path(__file__).parents[3] / "clusterctl"
    names = [
        ".".join(path.relative_to(package / "node").with_suffix("").parts)
        for path in sorted((package / "node").rglob("*.py"))
        if path.stem not in ("__init__", "boot", "main")
    ]
    code = CHEAP.format(root=str(package.parent), names=names)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split("\n")[0] == "[] code True"


def test_the_last_sign_of_life_is_what_the_hub_has_seen() -> None:
    """An exception from before it is the script's own error, one from after it follows from the loss."""
    own = part("a", rank(0, tracebacks=[said("ValueError: x", at=9.0)]))
    reasons = [
        judge_record({"parts": [own, lost_part("b", 1, "silent", 40.0, last_seen)]}).reason
        for last_seen in (9.5, 8.5, None)
    ]

    assert reasons == ["code", "node_lost", "node_lost"]


def test_a_record_that_is_made_smaller_keeps_the_first_exception_of_a_chain() -> None:
    """Where hundreds of ranks have failed, one of them with an exception of its own: that one is still the cause."""
    chain = [said("KeyError: 'x'", at=8.0), said(LOST_PEER, at=9.5, before=CHAIN)]
    older = said("OSError: logged and survived", at=1.0)
    long = {"tail": ["y" * 400] * 20}
    parts = [part("a", rank(0, **{**long, "tracebacks": [older, *chain]}))]
    parts += [
        part(f"n{one}", rank(one, tracebacks=[older, said(LOST_PEER)], **long)) for one in range(1, 100)
    ]
    record = {"parts": limit_parts(parts)}

    assert [len(one["failures"][0]["tracebacks"]) for one in record["parts"][:2]] == [2, 1]
    assert (judge_record(record).reason, judge_record(record).node) == ("code", "a")


def test_policy() -> None:
    """Pauses double up to half a minute."""
    policy = read_policy({"max": 2, "on": ["gpu"]})

    assert [policy.pause_before(restart) for restart in (1, 2, 3, 9)] == [1.0, 2.0, 4.0, 30.0]
    assert [
        policy.refuse("gpu", 0),
        policy.refuse("gpu", 2),
        policy.refuse("code", 0),
        policy.refuse("network", 0),
    ] == [None, "max", "code", "reason"]


def test_a_record_fits_however_many_have_failed() -> None:
    """Of thousands that die with pages of their own words only the first keep them; all tell how they ended."""
    words = {"tracebacks": [{"at": 1.0, "lines": ["x" * 400] * 16}], "tail": ["y" * 400] * 20}
    parts = [
        {
            **part(f"n{node}", *(rank(8 * node + one, 1, at=5.0 + node) | words for one in range(8))),
            "node_rank": node,
        }
        for node in range(256)
    ]
    record = make_record({"run": "r"}, parts, None, whole=True)
    assert len(json.dumps(record)) < MAX_MESSAGE
    failures = [failure for told in record["parts"] for failure in told["failures"]]
    assert len(failures) == 2048
    assert [bool(failure["tracebacks"]) for failure in failures] == [True] * FIRST_FAILURES + [False] * (
        2048 - FIRST_FAILURES
    )
    assert {failure["exit"] for failure in failures} == {1}
