"""Visit an SSH server with short limits: visitor.py PORT KNOWN_HOSTS KEY; prints how that ended as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from servers import make_client, node_named

from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.ssh.timeouts import Timeouts
from clusterctl.errors import ClusterctlError

LIMITS = Timeouts(connect=2.0, handshake=2.0, login=2.0, channel=2.0, start=2.0, send=2.0)


def main() -> None:
    """Connect, and ask for the runs."""
    port, known_hosts, key = sys.argv[1:]
    client = make_client(Path(known_hosts).parent / "visitor")
    node = node_named("gpu02", port=int(port), known_hosts=known_hosts, key=key)
    began, said = time.monotonic(), {"code": "", "exit": 0, "node": "", "text": ""}
    try:
        connection = client.connect(node, LIMITS)
        with Session(connection, "ps", {"workdir": "~"}, Interpreter("python3"), timeouts=LIMITS) as session:
            session.receive()
    except ClusterctlError as error:
        text = f"{error.message}\n{error.evidence}\n{error.fix}"
        said = {"code": error.code, "exit": error.exit_code, "node": error.node, "text": text}
    print(json.dumps({**said, "seconds": time.monotonic() - began}), flush=True)
    client.close()


main()
