"""Stop a run on its nodes and tell what was ended."""

from __future__ import annotations

from collections.abc import Sequence

import click

from clusterctl.cli.reaching import interpreter, tell_failures
from clusterctl.console.sanitize import sanitize
from clusterctl.runs import tasks
from clusterctl.runs.cluster import Cluster
from clusterctl.specs.inventory import Node


def stop_run(cluster: Cluster, nodes: Sequence[Node], run: str, grace: float | None, reason: str) -> int:
    """Stop on all nodes at once; 0 when nothing is left anywhere, 5 when a node could not say so."""
    code = 0
    for outcome in cluster.each(
        nodes, lambda c, node: tasks.stop(c, node, interpreter(node), run, grace, reason)
    ):
        if outcome.value is None:
            if outcome.error is not None:
                outcome.error.node = outcome.error.node or outcome.node.name
                tell_failures([outcome.error])
            code = 5
        else:
            code = 5 if outcome.value.left else code
            click.echo(render_stopped(outcome.node.name, outcome.value))
    click.echo(f"{run}: stopped" if code == 0 else f"{run}: not stopped everywhere")
    return code


def render_stopped(name: str, stopped: tasks.Stopped) -> str:
    """Say what was ended on a node: `gpu01: ended torchrun (pid 12), python3 (pid 14)`."""
    said = f"ended {', '.join(stopped.ended)}" if stopped.ended else "nothing was running"
    left = f"; COULD NOT END {', '.join(stopped.left)}" if stopped.left else ""
    return sanitize(f"{name}: {said}{left}")
