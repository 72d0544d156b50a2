"""Take one run away from its nodes again: one of our own, or one that was refused before it began."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from clusterctl.errors import ClusterctlError
from clusterctl.runs import tasks
from clusterctl.runs.cleaning import ask_to_remove, hear_found
from clusterctl.runs.cluster import Cluster
from clusterctl.specs.inventory import Node

NEVER = 10 * 365 * 86400.0  # seconds after which a node would spare what it was not told
TRIES = 3


def remove_run(
    cluster: Cluster, nodes: Sequence[Node], interpreters: Mapping[str, tasks.Interpreter], run: str
) -> None:
    """Remove a run's directories; where that fails, `clean` will do it some day."""

    def remove(c: Any, node: Node) -> None:
        for attempt in range(TRIES):
            time.sleep(attempt)  # the agent may just be ending
            with tasks.clean(c, node, interpreters[node.name], NEVER) as session:
                found = hear_found(session, node.name)
                parts = [part for part in found.parts if part.run == run] if found else []
                if not parts or not ask_to_remove(session, parts, node.name).failed:
                    return

    with suppress(ClusterctlError):
        for _ in cluster.each(nodes, remove):
            pass
