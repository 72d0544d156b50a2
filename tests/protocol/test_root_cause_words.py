"""The root cause: by what the ranks reported, not by who died first."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest
from ends import cause_of

from clusterctl.protocol.root_cause import Failure, find_cause, render_ending
from clusterctl.protocol.tracebacks import StderrParser, is_exception_line

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
    rank: int | None,
    time: float,
    said: tuple[str, ...] = (),
    *,
    code: int | None = 1,
    by: int | None = None,
    raised_at: float | None = None,
) -> Failure:
    """Build a failure on node `n<rank>` whose stderr ended in `said`."""
    words = heard(*said, time=time if raised_at is None else raised_at)
    return Failure(
        f"n{rank}",
        rank,
        None if by else code,
        by,
        time,
        said,
        words.exception,
        words.message,
        words.raised_at,
    )


def heard(*lines: str, time: float = 0.0) -> StderrParser:
    """Hear lines one by one."""
    words = StderrParser()
    for line in lines:
        words.feed(line, time)
    return words


def test_the_rank_that_raised_is_the_cause_though_it_died_last() -> None:
    """A slow clean-up lets the innocent die first; the cause is still the one that raised."""
    failures = [
        failure(0, 1.0, PEER_GONE),
        failure(2, 1.1, PEER_GONE),
        failure(1, 3.7, TRACEBACK, raised_at=0.9),
    ]
    cause = cause_of(failures, 1.2)

    assert (cause.failure.rank, cause.failure.exception) == (1, "ValueError: bad batch")
    assert [follower.rank for follower in cause.consequences] == [0, 2]


def test_a_sudden_death_beats_those_who_noticed_it() -> None:
    """A SIGKILLed rank reports nothing; those that lost it report it, and are consequences."""
    cause = cause_of([failure(0, 1.0, PEER_GONE), failure(1, 0.9, by=signal.SIGKILL)], None)

    assert (cause.failure.rank, render_ending(cause.failure)) == (1, "killed by SIGKILL")


def test_what_a_rank_raises_because_of_our_stop_is_a_consequence() -> None:
    """An innocent rank that raises in its handler of SIGTERM does not take the blame from the one that was killed."""
    innocent = failure(0, 11.2, TRACEBACK, raised_at=11.1)
    cause = cause_of([innocent, failure(1, 10.0, by=signal.SIGKILL)], stopped_at=10.1)

    assert cause.failure.rank == 1


def test_our_own_stop_is_never_the_cause() -> None:
    """A rank ended by our SIGTERM is not blamed, even with nothing else to see on the other."""
    killed = failure(1, 9.0, by=signal.SIGTERM)
    cause = cause_of([killed, failure(0, 10.0, PEER_GONE)], stopped_at=9.0)

    assert cause.failure.rank == 0


def test_a_sigkill_at_the_moment_of_our_stop_came_from_elsewhere() -> None:
    """Our KILL comes only after the grace; a death noticed just after others' is still a sudden death."""
    cause = cause_of([failure(2, 9.05, by=signal.SIGKILL), failure(0, 8.9, PEER_GONE)], stopped_at=9.0)

    assert (cause.failure.rank, cause.stopped) == (2, False)


def test_a_cause_that_our_stop_cut_short_is_reported_to_be() -> None:
    """The rank that raised was still cleaning up when TERM came: its exit reports nothing, its words do."""
    raised = failure(1, 9.5, TRACEBACK, by=signal.SIGTERM, raised_at=8.8)
    cause = cause_of([raised, failure(0, 8.9, PEER_GONE)], stopped_at=9.0)

    assert (cause.failure.rank, cause.stopped, cause.failure.exception) == (1, True, "ValueError: bad batch")


def test_a_sigterm_from_elsewhere_is_a_cause() -> None:
    """SIGTERM before we stopped anything came from someone else."""
    cause = cause_of([failure(1, 5.0, by=signal.SIGTERM), failure(0, 5.1, PEER_GONE)], stopped_at=6.0)

    assert cause.failure.rank == 1


def test_a_node_whose_agent_was_killed_comes_before_the_ranks_that_died_with_it() -> None:
    """The agent's death is the cause; the ranks' KILLs and their peers' complaints follow from it."""
    agent = Failure("n1", None, None, None, 4.0, reason="the agent was killed")
    cause = cause_of([failure(0, 4.2, PEER_GONE), failure(1, 4.1, by=signal.SIGKILL), agent], stopped_at=4.3)

    assert render_ending(cause.failure) == "the agent was killed"


def test_the_first_of_several_primaries_is_named() -> None:
    """Three ranks failing on their own: the earliest traceback comes first, whoever died first."""
    failures = [failure(rank, 9.0 + rank, TRACEBACK, raised_at=5.0 - rank) for rank in range(3)]
    cause = cause_of(failures, None)

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
        ((*TRACEBACK, "", "Traceback (most recent call last):", "  y", "OSError: full"), "OSError: full"),
        (
            ("[rank1]: Traceback (most recent call last):", "[rank1]:   F", "[rank1]: KeyError: 'x'"),
            "[rank1]: KeyError: 'x'",
        ),
        (('  File "t.py", line 1', "    def", "SyntaxError: invalid syntax"), "SyntaxError: invalid syntax"),
        (("ValueError: only mentioned, never raised",), ""),
        ((), ""),
    ],
)
def test_exceptions_are_found_in_tracebacks(lines: tuple[str, ...], expected: str) -> None:
    """The last line of the last traceback is the exception; a syntax error needs no traceback."""
    assert heard(*lines).exception == expected


def test_a_long_traceback_is_not_forgotten() -> None:
    """Forty frames are more than the tail that is shown; the exception and its moment are kept all the same."""
    frames = [f'  File "f{number}.py", line {number}' for number in range(120)]
    words = heard("Traceback (most recent call last):", *frames, "ValueError: deep", "later noise", time=3.0)

    assert (words.exception, words.raised_at, len(words.tail)) == ("ValueError: deep", 3.0, 20)


def test_a_message_of_several_lines_counts_as_a_whole() -> None:
    """NCCL shows only in the second line that a peer went away."""
    said = (
        "Traceback (most recent call last):",
        "  x",
        "torch.distributed.DistBackendError: NCCL error",
        "ncclRemoteError: gone",
    )
    cause = cause_of([failure(0, 1.0, said), failure(1, 1.5, by=signal.SIGKILL)], None)

    assert cause.failure.rank == 1


def test_prose_is_no_exception() -> None:
    """A line like `loss: 3` inside a traceback's neighbourhood is taken only where a traceback is open."""
    assert not is_exception_line("loss: 3", inside=False)


def heard_failure(
    rank: int, time: float, words: StderrParser, *, code: int | None = 1, by: int | None = None
) -> Failure:
    """Build a failure from what was received."""
    return Failure(
        f"n{rank}",
        rank,
        None if by else code,
        by,
        time,
        tuple(words.tail),
        words.exception,
        words.message,
        words.raised_at,
        origin=words.origin,
        own_frame=words.own_frame,
        where=words.where,
        survived=words.survived,
    )


GONE = failure(0, 1.0, PEER_GONE)
CHAINED = "During handling of the above exception, another exception occurred:"


@pytest.mark.parametrize(
    ("lines", "rank", "exception"),
    [
        ((*TRACEBACK, "", CHAINED, "", *PEER_GONE), 1, "ValueError: bad batch"),
        ((*PEER_GONE, "", CHAINED, "", *TRACEBACK), 0, PEER_GONE[-1]),
        ((*TRACEBACK, "Exception ignored in: <function X.__del__>", *PEER_GONE), 1, "ValueError: bad batch"),
        ((*TRACEBACK, "Error in atexit._run_exitfuncs:", *PEER_GONE), 1, "ValueError: bad batch"),
        ((*TRACEBACK, "Process SpawnProcess-1:", *PEER_GONE), 1, "ValueError: bad batch"),
        (
            (*TRACEBACK, "[W1121 12:00:00 x.cpp:1] Warning: connection reset by peer"),
            1,
            "ValueError: bad batch",
        ),
    ],
)
def test_the_exception_that_counts(lines: tuple[str, ...], rank: int, exception: str) -> None:
    """A chain counts by its first link; what Python, children and torch print besides does not count."""
    cause = cause_of([GONE, heard_failure(1, 1.2, heard(*lines, time=1.1))], 1.3)

    assert (cause.failure.rank, cause.failure.exception) == (rank, exception)


def test_an_exception_that_was_survived_takes_no_blame() -> None:
    """A rank logged a traceback, went on, and was stopped with the run: the rank that was killed is the cause."""
    words = heard(*TRACEBACK, time=2.0)
    words.on_output(9.0)
    cause = cause_of(
        [heard_failure(0, 10.3, words, by=signal.SIGTERM), failure(1, 10.0, by=signal.SIGKILL)], 10.2
    )
    alone = cause_of([heard_failure(0, 10.0, words, by=signal.SIGKILL)], 10.2)

    assert cause.failure.rank == 1
    assert (alone.failure.exception, render_ending(alone.failure)) == ("", "killed by SIGKILL")


def test_a_neighbour_that_torchrun_ended_takes_no_blame() -> None:
    """torchrun ends the other ranks of a node whose rank has failed, before our stop comes."""
    neighbour = Failure("n0", 1, None, signal.SIGTERM, 5.1)
    elsewhere = failure(2, 6.1, by=signal.SIGTERM)
    cause = cause_of([neighbour, failure(0, 5.0, PEER_GONE), elsewhere], stopped_at=6.0)

    assert (cause.failure.rank, cause.ended) == (0, (neighbour, elsewhere))


WAITED = (
    "Traceback (most recent call last):",
    "RuntimeError: [x.cc:78] Timed out waiting 4000ms for recv operation",
)


def test_the_rank_that_does_not_complain_was_waited_for() -> None:
    """One silent rank is named; of several none, unless one is known to have been stopped by a signal."""
    waiting = failure(0, 5.0, WAITED)
    silent = [Failure(f"n{rank}", rank, None, signal.SIGTERM, 5.3) for rank in (1, 2)]
    one, several = cause_of([waiting, silent[0]], 5.1), cause_of([waiting, *silent], 5.1)
    frozen = cause_of([waiting, silent[0], replace(silent[1], suspended=True)], 5.1)

    assert (one.failure.rank, one.waited_for) == (1, True)
    assert (several.failure.rank, several.waited_for, several.silent) == (0, False, tuple(silent))
    assert (frozen.failure.rank, frozen.waited_for) == (2, True)


def test_a_rank_that_left_early_is_the_cause() -> None:
    """It ended with 0, and the others still needed it; one that ended with 0 later, or in a good run, is not blamed."""
    early, late = failure(1, 0.9, code=0), failure(2, 8.0, code=0)
    cause = cause_of([GONE, early, late], 1.1)

    assert (cause.failure.rank, cause.consequences) == (1, (GONE,))
    assert find_cause([early, late], None) is None


def test_a_programs_own_connection_trouble_is_its_own() -> None:
    """A download that fails reports `connection reset` too: it beats who lost a peer, not who was killed."""
    own = (
        *TRACEBACK[:2],
        "requests.exceptions.ConnectionError: ('Connection aborted.', 'Connection reset by peer')",
    )
    cause = cause_of([GONE, failure(1, 1.2, own)], 1.3)
    killed = cause_of([failure(1, 1.2, own), failure(2, 1.25, by=signal.SIGKILL)], 1.3)

    assert cause.failure.rank == 1
    assert killed.failure.rank == 2


def test_torchrun_that_we_ended_takes_no_blame() -> None:
    """Its exit code after our TERM is 1, and reports nothing."""
    cause = cause_of([Failure("n2", None, 1, None, 6.1), GONE], stopped_at=6.0)

    assert cause.failure is GONE


def test_the_kernels_count_shows_who_killed() -> None:
    """A SIGKILL while the kernel killed for want of memory has that as its meaning."""
    cause = cause_of([replace(failure(0, 1.0, by=signal.SIGKILL), oom_killed=True)], None)

    assert cause.symptom_match is not None
    assert cause.symptom_match.symptom.code == "CC-JOB-040"


@pytest.mark.parametrize(("survived_at", "blamed"), [(1.0, 0), (98.0, 1)])
def test_what_a_rank_survived_long_ago_is_not_why_it_was_stopped(survived_at: float, blamed: int) -> None:
    """An exception that it went on after counts for a minute: it may be why the others fail, later it is history."""
    lost = failure(0, 99.5, PEER_GONE)
    stopped = failure(1, 100.0, TRACEBACK, by=signal.SIGTERM, raised_at=survived_at)
    cause = cause_of([lost, replace(stopped, survived=True), failure(2, 100.0, by=signal.SIGTERM)], 99.8)

    assert cause.failure.rank == blamed


def test_the_first_exception_of_a_chain_is_recognised_where_the_last_is_not() -> None:
    """Libraries wrap what failed in words of their own; what it is known to mean is reported of the first."""
    said = (
        "Traceback (most recent call last):",
        '  File "torchvision/_meta_registrations.py", line 163, in <module>',
        "RuntimeError: operator torchvision::nms does not exist",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "train.py", line 1, in <module>',
        "ModuleNotFoundError: Could not import module 'GPT2LMHeadModel'. Are its requirements there?",
    )
    cause = cause_of([heard_failure(0, 1.0, heard(*said, time=1.0))], None)

    assert cause.failure.exception.startswith("ModuleNotFoundError: Could not import")
    assert cause.symptom_match is not None
    assert cause.symptom_match.symptom.code == "CC-JOB-062"


def test_the_line_of_the_script_says_what_a_common_error_means() -> None:
    """Of `int(None)` nothing is known, unless the script's innermost line reads a local_rank."""

    def shown(line: str) -> str:
        said = (
            "Traceback (most recent call last):",
            '  File "/code/train.py", line 7, in <module>',
            f"    {line}",
            "    ^^^^",
            "TypeError: int() argument must be a string, a bytes-like object or a real number, not 'NoneType'",
        )
        cause = cause_of([heard_failure(0, 1.0, heard(*said, time=1.0))], None)
        return cause.symptom_match.symptom.code if cause.symptom_match else ""

    assert shown("local_rank = int(args.local_rank)") == "CC-JOB-073"
    assert shown("epochs = int(args.epochs)") == ""
