"""The rules of the judge one by one, each where nothing else decides."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from ends import cause_of

from clusterctl.protocol.root_cause import (
    STOPPED,
    SUDDEN,
    Cause,
    Failure,
    RankEnd,
    find_leavers,
    find_symptom,
    is_consequence,
    weight_of,
)

TERM, KILL = signal.SIGTERM, signal.SIGKILL
CLOSED = "RuntimeError: Connection closed by peer [10.0.0.2]:4242"
WAITED = "RuntimeError: Timed out waiting 4000ms for recv operation"
KILLED = Failure("gpu02", 1, None, KILL, 10.0)
LOST = Failure("gpu02", None, None, None, 30.0, reason="lost: silent", lost=True, last_seen=10.0)


def raised(rank: int | None, message: str, moment: float, node: str = "gpu01") -> Failure:
    """Build a rank, or torchrun, that ended with an exception."""
    return Failure(node, rank, 1, None, moment + 0.5, exception=message, message=message, raised_at=moment)


def judge(*failures: Failure, stopped_at: float | None = None) -> Cause:
    """Find the cause that there is."""
    return cause_of(failures, stopped_at)


def test_only_torch_writes_more_than_one_line_that_counts() -> None:
    """What follows a program's own message may speak of anything."""
    own = replace(raised(0, "ValueError: bad", 5.0), message=f"ValueError: bad\n{CLOSED}")

    assert find_symptom(own) is None
    assert judge(own, KILLED).failure == own


def test_the_first_of_a_chain_explains_only_by_what_is_its_own() -> None:
    """That a loader's process ended may be the answer to another rank's end: it does not explain the last exception."""
    last = raised(0, "ValueError: no batch", 5.0)

    assert (
        find_symptom(replace(last, origin="RuntimeError: DataLoader worker (pid 7) exited unexpectedly"))
        is None
    )
    assert find_symptom(replace(last, origin="torch.OutOfMemoryError: CUDA out of memory")) is not None


def test_what_a_rank_wrote_goes_before_the_kernels_count() -> None:
    """The kernel killed for memory on that node; this rank ended with an error of its own."""
    found = find_symptom(
        replace(raised(0, "OSError: [Errno 28] No space left on device", 5.0), oom_killed=True)
    )

    assert found is not None
    assert found.symptom.code != "CC-JOB-040"


@pytest.mark.parametrize("message", ["DistBackendError: ncclRemoteError", "RuntimeError: ncclRemoteError"])
def test_torchs_errors_are_known_by_their_names(message: str) -> None:
    """Also without the module; of another program the same words are its own trouble."""
    assert is_consequence(raised(0, message, 5.0))
    assert not is_consequence(
        raised(0, message.replace("RuntimeError", "OSError").replace("Dist", "My"), 5.0)
    )


def test_a_rank_that_ended_with_our_stop_is_not_the_cause_if_only_the_clocks_show() -> None:
    """A node's clock may be misjudged by a little."""
    ended = Failure("gpu02", 1, None, TERM, 9.9)

    assert weight_of(ended, 10.0) == STOPPED
    assert weight_of(replace(ended, time=9.5), 10.0) == SUDDEN


def test_torchrun_ends_the_others_of_its_node_though_the_times_are_rounded() -> None:
    """The rank that it ended is noticed a moment before the one that failed."""
    failed, ended = Failure("gpu01", 0, 1, None, 5.1), Failure("gpu01", 1, None, TERM, 5.0)

    assert judge(failed, ended).failure == failed
    assert judge(failed, ended).ended == (ended,)


def test_a_rank_on_a_lost_node_did_not_end_with_its_agent() -> None:
    """The others gave the node up; its agent lived."""
    cause = judge(LOST, replace(KILLED, time=40.0))

    assert (cause.failure, cause.ended) == (LOST, ())


def test_torchruns_own_failure_goes_after_that_of_a_rank() -> None:
    """It fails because a rank did, also if it notices first; with an exception too."""
    torchrun, silent = Failure("gpu01", None, 1, None, 4.0), Failure("gpu01", 0, 1, None, 5.0)

    assert judge(torchrun, silent).failure == silent
    assert judge(raised(None, "ValueError: torchrun's", 3.0), silent).failure == silent


# ---- lost nodes ----


def test_only_a_ranks_own_exception_goes_before_a_lost_node() -> None:
    """Neither the answer to the loss, which the clocks put too early, nor what the rank survived."""
    early = raised(0, "ValueError: bad", 9.0)

    assert judge(LOST, early).failure == early
    assert judge(LOST, raised(0, CLOSED, 9.0), KILLED).failure == LOST
    assert judge(LOST, replace(early, survived=True)).failure == LOST


def test_of_two_lost_nodes_the_one_that_was_silent_first_is_the_cause() -> None:
    """When the loss was noticed reports little; a second witness of the same loss is no consequence."""
    later = replace(LOST, node="gpu03", time=29.0, last_seen=11.0)
    cause = judge(later, LOST, replace(LOST, time=31.0))

    assert (cause.failure, cause.consequences) == (LOST, (later,))


# ---- ranks that left or were waited for ----


def test_a_rank_that_a_signal_stopped_goes_before_one_that_left() -> None:
    """All wait for it; that another one ended with 0 meanwhile is no reason to."""
    frozen = Failure("gpu02", 1, None, KILL, 12.0, suspended=True, after_stop=True)
    cause = judge(raised(0, WAITED, 9.0), frozen, Failure("gpu03", 2, 0, None, 5.0), stopped_at=10.0)

    assert (cause.failure, cause.waited_for) == (frozen, True)


def test_a_rank_that_only_our_stop_ended_was_waited_for() -> None:
    """Where the others wait, it has left no one, though one of them lost its connection afterwards."""
    waits = raised(0, "RuntimeError: Rank 1 failed to pass monitoredBarrier", 8.0)
    stopped = Failure("gpu02", 1, None, TERM, 10.1, after_stop=True)
    cause = judge(waits, raised(2, CLOSED, 9.0, "gpu03"), stopped, stopped_at=10.0)

    assert (cause.failure, cause.waited_for, cause.left) == (stopped, True, False)


def test_a_rank_that_raised_after_the_stop_was_not_silent() -> None:
    """It may have worked until then: no one is known to have left."""
    late = replace(
        raised(1, "ValueError: interrupted", 11.0, "gpu02"), exit=None, signal=TERM, after_stop=True
    )
    cause = judge(raised(0, CLOSED, 9.0), late, stopped_at=10.0)

    assert (cause.failure.rank, cause.left) == (0, False)


def test_the_last_lines_of_a_rank_that_was_stopped_are_a_complaint() -> None:
    """It had lost its connection before, and so did not leave."""
    complains = Failure("gpu02", 1, None, TERM, 10.1, tail=(CLOSED,), after_stop=True)
    left = judge(raised(0, CLOSED, 9.0), replace(complains, tail=()), stopped_at=10.0)

    assert (left.failure.rank, left.left) == (1, True)
    assert judge(raised(0, CLOSED, 9.0), complains, stopped_at=10.0).failure.rank == 0


@pytest.mark.parametrize(
    ("complaints", "found"),
    [
        ((CLOSED,), (0,)),
        ((CLOSED, WAITED), ()),
        (("RuntimeError: ncclSystemError: network error",), ()),
    ],
)
def test_a_silent_rank_has_left_only_if_a_connection_was_closed(
    complaints: tuple[str, ...], found: tuple[int, ...]
) -> None:
    """One that others wait for has not closed any, and a network error is no one's."""
    ranks = [RankEnd("gpu01", 10.0, asked=True, silent=True)]
    ranks += [RankEnd("gpu02", 9.0, complaint=complaint) for complaint in complaints]

    assert find_leavers(ranks, {}) == found
