"""What is sent with a function: it calls the function on its rank and writes what that returns into the rank's log.

    clusterctl-result: KIND INDEX COUNT WORLD_SIZE TEXT

The text is JSON in pieces, since the reader of a log cuts long lines. A newline comes first: what the job has written
may have no end. It runs on the Python of the job, from 3.8 on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def clusterctl_call(function: Callable[..., Any], arguments: str) -> None:
    """Call a function with a JSON list of arguments and write its result.

    It imports inside: the script has the names of the user.
    """
    import json  # noqa: PLC0415 - as above
    import os  # noqa: PLC0415 - as above
    import sys  # noqa: PLC0415 - as above

    value = function(*json.loads(arguments))
    kind, piece, most = "json", 1 << 15, 1 << 20
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        kind, text = "unwritable", json.dumps(str(error)[:1000])
    if len(text) > most:
        kind, text = "large", str(len(text))
    pieces = [text[start : start + piece] for start in range(0, len(text), piece)]
    world = os.environ.get("WORLD_SIZE", "1")
    sys.stdout.flush()
    for index, part in enumerate(pieces):
        line = f"\nclusterctl-result: {kind} {index} {len(pieces)} {world} {part}\n".encode("ascii")
        while line:  # one write, so that no line of another process comes between
            line = line[os.write(1, line) :]
