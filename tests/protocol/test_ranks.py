"""Three numbers that are easily mixed up."""

from __future__ import annotations

import ast

from clusterctl.client.rpc import bundle
from clusterctl.protocol.ranks import NodeRank, Rank, Slot


def test_the_types_cost_a_node_nothing() -> None:
    """At run time all are `int`, and the module imports nothing, `typing` least of all."""
    assert NodeRank is Slot is Rank is int
    source = (bundle.PACKAGE / "protocol" / "ranks.py").read_text()
    statements = ast.parse(bundle.strip_source(source)).body
    assert not [one for one in statements if isinstance(one, (ast.Import, ast.ImportFrom))]
