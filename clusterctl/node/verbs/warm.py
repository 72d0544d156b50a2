"""The verb `warm`: the node's warm server, and its end.

request {"workdir", "node", "end": false}   node {"servers": [...]}
request {"workdir", "node", "end": true}    node {"servers": [...], "ended": [pid]}
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, List

from ..fork.warm_client import describe_other, query
from ..runtime.processes import Identity, is_alive, send_signal
from ..runtime.stream import Stream

if TYPE_CHECKING:
    from ...protocol.messages.local import WarmServerFacts
    from ...protocol.messages.verbs import WarmRequest

END_LIMIT = 5.0  # seconds in which a server that was asked to end has ended
POLL_INTERVAL = 0.02
SIGKILL = 9


def run(request: WarmRequest, stream: Stream) -> None:
    """Describe the server, and end it if that is asked for."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    answer = query(workdir, request["node"], {"do": "end" if request["end"] else "describe"})
    servers: List[WarmServerFacts] = [] if answer is None else [describe_other(answer)]
    if not request["end"]:
        stream.answer({"servers": servers, "time": time.time()})
        return
    identities = [Identity(server["pid"], server["starttime"]) for server in servers]
    deadline = time.monotonic() + END_LIMIT
    while any(map(is_alive, identities)) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)
    for identity in filter(is_alive, identities):
        send_signal(identity, SIGKILL)
    stream.answer({"servers": servers, "time": time.time(), "ended": [server["pid"] for server in servers]})
