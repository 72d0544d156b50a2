"""Reading a record of the end and a rank's stderr: what is kept of each, and by which clock."""

from __future__ import annotations

from typing import Any

from ends import read_record

from clusterctl.protocol.end_record import EndRecord
from clusterctl.protocol.tracebacks import StderrParser

OPEN = "Traceback (most recent call last):"
RAISED = {"rank": 0, "exit": 1, "signal": None, "time": 12.0, "last_at": 11.0}


def parse(**fields: Any) -> EndRecord:
    """Read a record of one node whose rank 0 has failed."""
    about = {"node": "gpu01", "node_rank": 0, "state": "FAILED", "reason": "", "time": 13.0}
    failure = {**RAISED, "tail": [OPEN, "ValueError: bad"]}
    return read_record({"hub": "gpu01", "whole": True, "parts": [{**about, "failures": [failure]}], **fields})


def parse_lines(*lines: str, time: float = 1.0) -> StderrParser:
    """Read lines of stderr."""
    parser = StderrParser()
    for line in lines:
        parser.feed(line, time)
    return parser


def test_all_times_are_turned_to_one_clock() -> None:
    """The stop's, a failure's, and that of its exception; the record of an older version has no tracebacks apart."""
    record = parse(stop={"time": 12.5})
    shifted = record.shift_to_clock(2.0)

    assert (record.stopped_at, record.failures[0].exception) == (12.5, "ValueError: bad")
    assert (shifted.stopped_at, shifted.failures[0].time, shifted.failures[0].raised_at) == (10.5, 10.0, 9.0)


def test_a_hub_of_another_cluster_is_none() -> None:
    """Its name may be anything; an older record names no attempt, but those before it."""
    assert parse(hub="gpu01").only_nodes({"gpu01"}).hub == "gpu01"
    assert parse(hub="evil").only_nodes({"gpu01"}).hub == ""
    assert parse(attempts=[{}, {}]).attempt == 3


def test_lines_of_another_stream_do_not_turn_time_back() -> None:
    """Stdout and stderr are read one after the other."""
    parser = parse_lines(OPEN, "ValueError: logged", time=2.0)
    parser.on_output(9.0)
    parser.on_output(3.0)

    assert (parser.last_at, parser.survived) == (9.0, True)


def test_an_exception_was_raised_when_its_traceback_began() -> None:
    """A long one takes time; a syntax error has no traceback before it."""
    parser = StderrParser()
    for moment, line in ((1.0, OPEN), (2.0, "ValueError: bad"), (5.0, "SyntaxError: invalid syntax")):
        parser.feed(line, moment)
        assert parser.raised_at == (5.0 if moment == 5.0 else 1.0)


def test_a_loaders_traceback_within_another_keeps_what_came_first() -> None:
    """The original is copied into the message of what was raised; a traceback that follows later begins again."""
    chain = (
        OPEN,
        "KeyError: 'x'",
        "During handling of the above exception, another exception occurred:",
        OPEN,
    )

    assert parse_lines(*chain, "OSError: y", f"Original {OPEN}", "OSError: y").origin == "KeyError: 'x'"
    assert parse_lines(*chain, "OSError: y", OPEN, "OSError: z").origin == ""


def test_a_childs_traceback_counts_only_where_there_is_no_other() -> None:
    """The rank's own exception may be nothing but the child's end."""
    child = ("Process SpawnProcess-1:", OPEN, "KeyError: 'in the child'")

    assert parse_lines(*child).exception == "KeyError: 'in the child'"
    assert parse_lines(OPEN, "ValueError: own", *child).exception == "ValueError: own"


def test_what_torch_logs_ends_a_message() -> None:
    """Of a traceback that torch has marked every line is marked; in others only its log lines tell."""
    marked = (f"[rank0]: {OPEN}", "[rank0]: ValueError: bad")

    assert parse_lines(*marked, "connection reset by peer").message == "[rank0]: ValueError: bad"
    assert parse_lines(OPEN, "ValueError: bad", "[W1121 reset by peer").message == "ValueError: bad"
    assert parse_lines(OPEN, "ValueError: bad", "more").message == "ValueError: bad\nmore"


def test_of_a_long_chain_the_first_exception_is_kept() -> None:
    """What came in between reports less than either end."""
    during = "During handling of the above exception, another exception occurred:"
    parser = parse_lines(OPEN, "KeyError: 'x'", during, OPEN, "OSError: y", during, OPEN, "ValueError: z")

    assert (parser.origin, parser.exception) == ("KeyError: 'x'", "ValueError: z")


def test_a_traceback_that_is_never_fatal_leaves_all_as_it_was() -> None:
    """Also when the exception that counts was raised."""
    parser = parse_lines(OPEN, "ValueError: bad", time=1.0)
    for line in ("Exception ignored in: <function X.__del__>", OPEN, "KeyError: 'x'"):
        parser.feed(line, 5.0)

    assert (parser.exception, parser.raised_at) == ("ValueError: bad", 1.0)


def test_an_exception_may_have_any_name() -> None:
    """A usual ending, a message, or a module before it shows one; a bare word does not."""
    for line, found in (
        ("Stop: here", True),
        ("queue.Empty", True),
        ("KeyboardInterrupt", True),
        ("Stop", False),
    ):
        assert bool(parse_lines(OPEN, line).exception) is found
