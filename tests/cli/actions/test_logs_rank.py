"""`logs --node 0 --rank 2`: what that node has, what the run has, and where the rank is."""

from __future__ import annotations

from clusterctl.cli.actions.logs import LogQuery, _no_such_rank
from clusterctl.errors import UsageError
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.untrusted import Untrusted

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
