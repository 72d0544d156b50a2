"""What `--since` understands, and which nodes `logs --node 0 --rank 2` reads."""

from __future__ import annotations

import time
from datetime import datetime, timezone

import pytest

from clusterctl.cli.actions.logs import LogQuery, _no_such_rank, parse_since
from clusterctl.errors import UsageError
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.untrusted import Untrusted

NOW = datetime(2026, 11, 21, 14, 5, 30)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("10m", datetime(2026, 11, 21, 13, 55, 30)),
        ("1d2h", datetime(2026, 11, 20, 12, 5, 30)),
        ("30s", datetime(2026, 11, 21, 14, 5)),
        ("14:05", datetime(2026, 11, 21, 14, 5)),
        ("14:06", datetime(2026, 11, 20, 14, 6)),
        ("9:15:20", datetime(2026, 11, 21, 9, 15, 20)),
        ("2026-11-20", datetime(2026, 11, 20)),
        ("2026-11-20T23:59", datetime(2026, 11, 20, 23, 59)),
        ("2026-11-20 23:59:01", datetime(2026, 11, 20, 23, 59, 1)),
        ("2026-11-20T12:00Z", datetime(2026, 11, 20, 12, tzinfo=timezone.utc)),
        ("2026-11-20T12:00+08:00", datetime(2026, 11, 20, 4, tzinfo=timezone.utc)),
    ],
)
def test_spans_times_and_dates(text: str, moment: datetime) -> None:
    """Without a zone they are this machine's; a time of day that is still to come was yesterday's."""
    assert parse_since(text, NOW) == moment.timestamp()


@pytest.mark.parametrize(
    "text", ["", "10", "m", "25:00", "14:60", "yesterday", "2026-13-01", "999999d999999d", "-5m"]
)
def test_what_is_neither(text: str) -> None:
    """A number without a unit could be anything."""
    with pytest.raises(UsageError, match="--since") as raised:
        parse_since(text, NOW)
    assert raised.value.code == "CC-USE-035"


def test_a_span_is_a_span_when_the_clocks_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour before half past three is half past one on the day on which summer time begins."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    now = datetime(2026, 3, 29, 3, 30)
    spans = [now.timestamp() - parse_since(text, now) for text in ("1h", "2d")]
    monkeypatch.undo()
    time.tzset()
    assert spans == [3600, 2 * 86400]


RUN = "a-20260101T000000-0001"


def part(node: str, *ranks: int) -> NodeState:
    """Read a node's state with these ranks."""
    raw = {str(rank): {"local_rank": 0, "pid": 7} for rank in ranks}
    return parse_state(Untrusted({"run": RUN, "node": node, "state": "RUNNING", "ranks": raw}))


def error_for(
    names: list[str], parts: dict[str, NodeState | None], rank: int, attempt: int | None = None
) -> UsageError:
    """Ask for one rank on these nodes of the lab `two`."""
    rest = {"tail": None, "grep": None, "stream": None, "follow": False, "since": None}
    query = LogQuery(ranks=(Rank(rank),), attempt=attempt, show_times=False, as_json=False, **rest)
    return _no_such_rank(RUN, names, parts, query, "clusterctl --lab two")


def test_a_rank_on_another_node_is_named_with_its_node() -> None:
    """Not the ranks of the chosen node as those of the run; the command reaches the same nodes."""
    parts = {f"gpu0{n + 1}": part(f"gpu0{n + 1}", n) for n in range(3)}
    error = error_for(["gpu01"], parts, 2)

    assert error.message == "no rank 2 on gpu01"
    assert error.evidence.splitlines() == ["gpu01 has rank 0", "the run has ranks 0 to 2", "gpu03 has rank 2"]
    assert error.fix == f"clusterctl --lab two logs {RUN} --rank 2"
    assert error_for(["gpu01"], parts, 2, 1).fix == f"clusterctl --lab two logs {RUN} --rank 2 --attempt 1"


def test_a_rank_that_no_node_has() -> None:
    """There it is enough to say which there are; a node that does not answer leaves a gap."""
    parts = {"gpu01": part("gpu01", 0, 1), "gpu03": part("gpu03", 4, 5), "gpu02": None}
    error = error_for(["gpu01", "gpu02", "gpu03"], parts, 9)

    assert error.evidence.splitlines() == [
        "gpu01 has ranks 0 to 1",
        "gpu03 has ranks 4 to 5",
        "the run has ranks 0, 1, 4, 5",
    ]
    assert error.fix == f"clusterctl --lab two status {RUN} shows its ranks"
    assert error_for(["gpu01"], {"gpu01": part("gpu01")}, 0).evidence == "no worker was ever started"
