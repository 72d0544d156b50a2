"""Three numbers that are easily mixed up."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from clusterctl.client.rpc import bundle
from clusterctl.protocol.ranks import NodeRank, Rank, Slot

MIX_UPS = """
from clusterctl.node.gang.roster import Roster
from clusterctl.protocol.ranks import NodeRank, Rank, Slot

def f(roster: Roster, node_rank: NodeRank, slot: Slot, rank: Rank) -> None:
    roster.mark_lost(slot, "")
    roster.mark_lost(node_rank, "")
    roster.mark_lost(rank, "")
    roster.node_ranks[slot] = slot
"""


@pytest.mark.process
def test_a_mix_up_is_refused(tmp_path: Path) -> None:
    """The type checker names the lines 7 to 9, and no other."""
    module = tmp_path / "mixed_up.py"
    module.write_text(MIX_UPS)
    options = ("--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={tmp_path / 'cache'}")
    command = [sys.executable, "-m", "mypy", *options, str(module)]
    done = subprocess.run(
        command, cwd=Path(bundle.PACKAGE).parent, capture_output=True, text=True, check=False
    )
    lines = [line.partition(" error: ")[0] for line in done.stdout.splitlines() if " error: " in line]
    assert lines == [f"{module}:{number}:" for number in (7, 8, 9)], done.stdout + done.stderr


def test_the_types_cost_a_node_nothing() -> None:
    """At run time all are `int`, and the module imports nothing, `typing` least of all."""
    assert NodeRank is Slot is Rank is int
    source = (bundle.PACKAGE / "protocol" / "ranks.py").read_text()
    statements = ast.parse(bundle.strip_source(source)).body
    assert not [one for one in statements if isinstance(one, (ast.Import, ast.ImportFrom))]
