"""The verb `warm`: the node's warm server, and its end.

request {"workdir", "node", "end": false}   node {"servers": [...]}
request {"workdir", "node", "end": true}    node {"servers": [...], "ended": [pid]}
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ...fork.warm_client import describe_other, query
from ...runtime.processes import Identity, is_alive, send_signal
from ...runtime.stream import Stream

if TYPE_CHECKING:
    from ....protocol.messages.verbs import WarmAnswer, WarmRequest

END_LIMIT = 5.0  # seconds
POLL_INTERVAL = 0.02
SIGKILL = 9


def run(request: WarmRequest, stream: Stream) -> None:
    """Describe the server, and end it if that is asked for."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    answer = query(workdir, request["node"], {"do": "end" if request["end"] else "describe"})
    report: WarmAnswer = {"servers": [] if answer is None else [describe_other(answer)], "time": time.time()}
    if request["end"]:
        report["ended"] = [server["pid"] for server in report["servers"]]
        for server in report["servers"]:
            wait_for_end(Identity(server["pid"], server["starttime"]))
    stream.answer(report)


def wait_for_end(server: Identity) -> None:
    """Wait for the end of a server that was asked to end, and kill it after the limit."""
    deadline = time.monotonic() + END_LIMIT
    while is_alive(server) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL)
    send_signal(server, SIGKILL)
