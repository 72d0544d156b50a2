"""Our own connections and fan-out, with one raw channel at each node and no program of ours there; no bench itself.

python raw_fanout.py INVENTORY runs `true` on all nodes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from clusterctl.client.rpc.cluster import Cluster
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.inventory.parse import parse_inventory


def ask(connection: Any, _: Node) -> int:
    """Run `true` and return its exit status."""
    channel = connection.transport.open_session()
    channel.exec_command("true")
    status: int = channel.recv_exit_status()
    return status


text = Path(sys.argv[1]).read_text()
nodes = parse_inventory(text, sys.argv[1]).nodes
with Cluster(print) as cluster:
    sys.exit(any(outcome.error or outcome.value for outcome in cluster.each(nodes, ask)))
