"""The root cause: by what the ranks said, not by who died first."""

from __future__ import annotations

import signal

import pytest

from clusterctl.plans.cause import Failure, find_cause, find_exception, render_ending

TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    '    raise ValueError("bad batch")',
    "ValueError: bad batch",
)
PEER_GONE = (
    "Traceback (most recent call last):",
    '  File "train.py", line 12, in <module>',
    "    dist.all_reduce(x)",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4242",
)


def failure(
    rank: int | None, time: float, tail: tuple[str, ...] = (), *, code: int | None = 1, by: int | None = None
) -> Failure:
    """Build a failure on node `n<rank>`."""
    return Failure(f"n{rank}", rank, None if by else code, by, time, tail)


def test_the_rank_that_raised_is_the_cause_though_it_died_last() -> None:
    """A slow clean-up lets the innocent die first; the cause is still the one that raised."""
    cause = find_cause(
        [failure(0, 1.0, PEER_GONE), failure(2, 1.1, PEER_GONE), failure(1, 3.7, TRACEBACK)], None
    )

    assert cause is not None
    assert cause.failure.rank == 1
    assert cause.exception == "ValueError: bad batch"
    assert [follower.rank for follower in cause.consequences] == [0, 2]


def test_a_sudden_death_beats_those_who_noticed_it() -> None:
    """A SIGKILLed rank says nothing; those that lost it say so, and are consequences."""
    cause = find_cause([failure(0, 1.0, PEER_GONE), failure(1, 0.9, by=signal.SIGKILL)], None)

    assert cause is not None
    assert (cause.failure.rank, render_ending(cause.failure)) == (1, "killed by SIGKILL")


def test_our_own_stop_is_never_the_cause() -> None:
    """A rank ended by our SIGTERM is not blamed, even with nothing else to see on the other."""
    killed = failure(1, 9.0, by=signal.SIGTERM)
    cause = find_cause([killed, failure(0, 10.0, PEER_GONE)], stopped_at=9.0)

    assert cause is not None
    assert cause.failure.rank == 0


def test_a_sigkill_at_the_moment_of_our_stop_came_from_elsewhere() -> None:
    """Our KILL comes only after the grace; a death noticed just after others' is still a sudden death."""
    cause = find_cause([failure(2, 9.05, by=signal.SIGKILL), failure(0, 8.9, PEER_GONE)], stopped_at=9.0)

    assert cause is not None
    assert (cause.failure.rank, cause.stopped) == (2, False)


def test_a_cause_that_our_stop_cut_short_is_said_to_be() -> None:
    """The rank that raised was still cleaning up when TERM came: its exit says nothing, its words do."""
    raised = Failure("n1", 1, None, signal.SIGTERM, 9.5, TRACEBACK)
    cause = find_cause([raised, failure(0, 8.9, PEER_GONE)], stopped_at=9.0)

    assert cause is not None
    assert (cause.failure.rank, cause.stopped, cause.exception) == (1, True, "ValueError: bad batch")


def test_a_sigterm_from_elsewhere_is_a_cause() -> None:
    """SIGTERM before we stopped anything came from somebody else."""
    cause = find_cause([failure(1, 5.0, by=signal.SIGTERM), failure(0, 5.1, PEER_GONE)], stopped_at=6.0)

    assert cause is not None
    assert cause.failure.rank == 1


def test_the_first_of_several_primaries_is_named() -> None:
    """Three ranks failing on their own: the earliest comes first."""
    cause = find_cause([failure(rank, 5.0 - rank, TRACEBACK) for rank in range(3)], None)

    assert cause is not None
    assert cause.failure.rank == 2


def test_no_failure_no_cause() -> None:
    """Nothing failed, nothing is blamed."""
    assert find_cause([], None) is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (TRACEBACK, "ValueError: bad batch"),
        (("Traceback (most recent call last):", "  x", "KeyboardInterrupt"), "KeyboardInterrupt"),
        (
            ("Traceback (most recent call last):", "  x", "torch.OutOfMemoryError: CUDA out of memory."),
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        (
            (
                *TRACEBACK,
                "",
                "During handling of the above exception, another exception occurred:",
                "",
                "Traceback (most recent call last):",
                "  y",
                "OSError: full",
            ),
            "OSError: full",
        ),
        (
            ("[rank1]: Traceback (most recent call last):", '[rank1]:   File "a"', "[rank1]: KeyError: 'x'"),
            "KeyError: 'x'",
        ),
        (("ValueError: only mentioned, never raised",), ""),
        ((), ""),
    ],
)
def test_exceptions_are_found_in_tracebacks_only(lines: tuple[str, ...], expected: str) -> None:
    """The last line of the last traceback is the exception."""
    assert find_exception(lines) == expected
