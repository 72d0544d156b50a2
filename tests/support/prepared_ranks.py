"""Ask processes that are prepared as the workers of a run where they are, as the verb `diagnose` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusterctl.node.diagnose.query import diagnose
from clusterctl.node.runtime.processes import Identity
from clusterctl.node.state.run_record import new_state
from clusterctl.plans.diagnose.evidence import NodeEvidence, parse_evidence
from clusterctl.protocol.untrusted import Untrusted


def ask_ranks(rundir: Path, processes: Mapping[int, Identity]) -> NodeEvidence:
    """Ask all ranks of a run on one node; the output of each is in `RANK.log`."""
    ranks = {
        str(rank): {
            **identity.as_dict(),
            "exit": None,
            "signal": None,
            "stdout": f"{rank}.log",
            "stderr": f"{rank}.log",
        }
        for rank, identity in processes.items()
    }
    spec: Any = {"run": "job-1", "node": "gpu01", "node_rank": 0, "attempt": 1}
    state: Any = {**new_state(spec), "ranks": ranks}
    return parse_evidence(Untrusted(diagnose(str(rundir), state, None)), "gpu01")
