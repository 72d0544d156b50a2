"""An inventory of one server of a test."""

from __future__ import annotations

import sys

from servers import ME, Server


def inventory(server: Server, transport: str) -> str:
    """Name the server as the only node, with an SSH configuration that forwards the agent."""
    way = {"user": ME, "port": server.port, "key": server.client_key, "known_hosts": server.known_hosts}
    way |= {"config": server.folder.parent / "mine/.ssh/config", "transport": transport}
    ssh = ", ".join(f"{key}: {value}" for key, value in way.items())
    return f"cluster: c\npython: {sys.executable}\nnodes:\n- {{host: 127.0.0.1, name: n1, ssh: {{{ssh}}}}}\n"
