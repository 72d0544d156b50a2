"""What the zip on a node runs: `python payload.zip guardian RUNDIR`, and the agent's children in the same way.

The zip's root `__main__.py` is two lines: `from clusterctl.node.main import main` and `main()`.
"""

from __future__ import annotations

import sys
from importlib import import_module

ROLES = {
    "guardian": "supervise.guardian",
    "gate": "supervise.gate",
    "stage": "setup",
    "shell": "verbs.shell",
    "gpus": "history.gpus",
    "standby": "fork.standby",
    "task": "slurm.task",
    "facts": "slurm.allocation",
    "ray": "supervise.launchers.ray",
    "mpi": "supervise.launchers.mpi",
    "keeper": "sync.checkpoints.keeper",
}


def main() -> None:
    """Run the role named by the first argument."""
    role = sys.argv[1]
    if role not in ROLES:
        sys.exit(f"unknown role: {role}")
    import_module(f"clusterctl.node.{ROLES[role]}").main(sys.argv[2:])
