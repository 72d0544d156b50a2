"""For which reason a run may be started again, by what a rank wrote and by how it ended."""

from __future__ import annotations

import signal
from dataclasses import replace
from typing import Any

import pytest
from ends import cause_of

from clusterctl.node.gang.attempts import MAX_TEXT, RestartReason, judge_record
from clusterctl.protocol import reasons
from clusterctl.protocol.known_errors import GRADES, all_symptoms
from clusterctl.protocol.root_cause import Failure, restart_reason
from clusterctl.specs.kinds import REASONS

RANK = Failure("gpu01", 0, 1, None, 10.0)


def reason_of(failure: Failure, stopped_at: float | None = None) -> str:
    """Judge a run in which nothing else failed."""
    return restart_reason(cause_of([failure], stopped_at))


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory",
            "out_of_memory",
        ),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "gpu"),
        ("RuntimeError: Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost", "gpu"),
        ("OSError: [Errno 98] Address already in use", "port_taken"),
        ("RuntimeError: NET/IB : Got completion from peer 10.0.0.2<4711> with status=12 opcode=0", "network"),
        (
            "RuntimeError: [../gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.3]:4711",
            "network",
        ),
        ("RuntimeError: [Rank 3] Watchdog caught collective operation timeout", "network"),
        ("ModuleNotFoundError: No module named 'einops'", "code"),
        ("OSError: [Errno 28] No space left on device", "code"),
        ("ValueError: learning rate", "code"),
    ],
)
def test_an_exception_has_its_reason(said: str, word: str) -> None:
    """The first text of the table that fits counts; what nobody knows is an error of the script."""
    assert reason_of(replace(RANK, exception=said, message=said, raised_at=9.0)) == word


@pytest.mark.parametrize(
    "number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE]
)
def test_a_signal_has_its_reason(number: int) -> None:
    """A rank that crashed, also by a signal that has no code; the same signal to torchrun; a rank that was killed."""
    crashed = replace(RANK, exit=None, signal=number)

    assert reason_of(crashed) == "worker_crashed"
    assert reason_of(replace(crashed, rank=None)) == "agent_killed"
    for kill in (signal.SIGKILL, signal.SIGTERM):
        killed = replace(RANK, exit=None, signal=kill, tail=("CUDA out of memory",))
        assert reason_of(killed) == "worker_killed"
        assert reason_of(replace(killed, rank=None)) == "agent_killed"
        assert reason_of(replace(killed, oom_killed=True)) == "out_of_memory"


def test_a_node_or_its_agent_that_is_gone_has_its_reason() -> None:
    """A node that its peers do not hear is lost to them, also if only its agent was killed; our own stop is none."""
    agent = Failure("gpu01", None, None, None, 10.0, reason="the agent was killed")

    assert reason_of(agent) == "agent_killed"
    assert reason_of(replace(agent, cut_off=True)) == "node_lost"
    assert reason_of(replace(agent, reason="lost: silent", lost=True)) == "node_lost"
    assert reason_of(replace(RANK, exit=None, signal=signal.SIGTERM, after_stop=True), 9.9) == "code"


def test_the_words_are_those_of_a_job() -> None:
    """`restart.on` takes every reason that is ever found, and no other."""
    stops = {reasons.STOP_KINDS, *reasons.STOP_KINDS, reasons.STOPPED_BY}
    named = {getattr(reasons, name) for name in vars(reasons) if name.isupper()} - stops
    found = {one.restart for one in all_symptoms()} - {None}

    # `stall` takes the second; the third is why a run ends, not why it starts again; the others are Slurm's doing
    others = {reasons.CODE, reasons.STALLED, reasons.NODE_0_ENDED, reasons.REQUEUED, reasons.STOPPED_BY_SLURM}
    assert named - others == set(REASONS)
    assert found < named
    assert {one.grade for one in all_symptoms()} <= set(GRADES)


def decide(state: str, reason: str, *failures: dict[str, Any]) -> RestartReason:
    """Judge as the hub does, where gpu01 was stopped and gpu02 ended so."""
    term = {"rank": 0, "exit": None, "signal": signal.SIGTERM, "time": 10.5}
    times = {"time": 11.0, "stopped_at": 10.2}
    parts = [
        {**times, "node": "gpu01", "state": "STOPPED", "reason": "why", "failures": [term]},
        {**times, "node": "gpu02", "state": state, "reason": reason, "failures": list(failures)},
    ]
    return judge_record({"hub": "gpu01", "whole": True, "stop": {"time": 10.0}, "parts": parts})


@pytest.mark.parametrize("state", ["FAILED", "FAILED_SETUP"])
def test_without_a_process_that_failed_a_nodes_own_reason_counts(state: str) -> None:
    """Ranks that were only stopped with the run explain nothing."""
    taken = "OSError: [Errno 98] Address already in use"

    assert decide(state, taken) == ("port_taken", "gpu02", f"gpu02: {taken}")
    assert decide(state, "no such file") == ("code", "gpu02", "gpu02: no such file")
    assert decide("STOPPED", taken)[:2] == ("code", "gpu01")


def test_the_text_of_an_exception_is_bounded() -> None:
    """It is kept in every node's state, for each attempt."""
    lines = ["Traceback (most recent call last):", f"ValueError: {'x' * 900}"]
    raised = {"rank": 1, "exit": 1, "signal": None, "time": 9.0, "tail": lines, "last_at": 9.0}

    assert len(decide("FAILED", "why", raised).text) == MAX_TEXT
