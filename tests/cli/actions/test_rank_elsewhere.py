"""`logs --node 0 --rank 2`: what that node has, what the run has, and where the rank is."""

from __future__ import annotations

from clusterctl.cli.actions.logs import _no_such_rank
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.protocol.untrusted import Untrusted

RUN = "a-20260101T000000-0001"


def part(node: str, *ranks: int) -> NodeState:
    """Read a node's state with these ranks."""
    raw = {str(rank): {"local_rank": 0, "pid": 7} for rank in ranks}
    return parse_state(Untrusted({"run": RUN, "node": node, "state": "RUNNING", "ranks": raw}))


def test_a_rank_on_another_node_is_named_with_its_node() -> None:
    """Not the ranks of the chosen node as those of the run."""
    parts = {f"gpu0{n + 1}": part(f"gpu0{n + 1}", n) for n in range(3)}
    error = _no_such_rank(RUN, ["gpu01"], parts, [2], None)

    assert error.message == "no rank 2 on gpu01"
    assert error.fix == (
        f"gpu01 has rank 0; the run has ranks 0 to 2; rank 2 on gpu03: clusterctl logs {RUN} --rank 2"
    )


def test_a_rank_that_no_node_has() -> None:
    """There it is enough to say which there are; a node that does not answer leaves a gap."""
    parts = {"gpu01": part("gpu01", 0, 1), "gpu03": part("gpu03", 4, 5), "gpu02": None}
    error = _no_such_rank(RUN, ["gpu01", "gpu02", "gpu03"], parts, [9], None)

    assert error.fix == "gpu01 has ranks 0 to 1; gpu03 has ranks 4 to 5; the run has ranks 0, 1, 4, 5"
    assert (
        _no_such_rank(RUN, ["gpu01"], {"gpu01": part("gpu01")}, [0], None).fix == "no worker was ever started"
    )
