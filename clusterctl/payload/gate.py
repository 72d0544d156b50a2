"""The job's interpreter, warm: imports torchrun, says ready, waits for GO, becomes torchrun."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, Dict, List

REPORTED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_ERROR_FILE")


def main(arguments: List[str]) -> None:
    """Run the gate on its two pipes: GO comes on the first, reports go out on the second."""
    go, report = (int(word) for word in arguments)
    for descriptor in (go, report):
        os.set_inheritable(descriptor, False)
    sys.path[:] = [entry for entry in sys.path if entry != sys.argv[0]]  # torch must not find our modules
    try:
        import torch
        import torch.distributed.run as torchrun
    except BaseException:
        import traceback

        send(report, {"failed": traceback.format_exc()})
        raise
    send(report, {"ready": str(torch.__version__)})
    order = read_order(go)
    apply(order)
    watch_workers(report)
    argv = [native(word) for word in order["argv"]]
    sys.argv = [str(torchrun.__file__), *argv]
    torchrun.main(argv)


def send(report: int, entry: Dict[str, Any]) -> None:
    """Write one report; the agent may be gone, which ends this process by other means."""
    with suppress(OSError):
        os.write(report, json.dumps(entry).encode("utf-8") + b"\n")


def read_order(go: int) -> Dict[str, Any]:
    """Wait for GO; the agent's end before it ends the gate."""
    content = b""
    while not content.endswith(b"\n"):
        piece = os.read(go, 1 << 16)
        if not piece:
            sys.exit("no GO: the agent is gone")
        content += piece
    os.close(go)
    order: Dict[str, Any] = json.loads(content.decode("utf-8"))
    return order


def apply(order: Dict[str, Any]) -> None:
    """Go to the code and set what was not known before."""
    os.chdir(order["cwd"])
    os.environ.update({native(key): native(value) for key, value in order["env"].items()})


def native(text: str) -> str:
    """Return the text that reaches a child process as the bytes meant, whatever encoding the locale has."""
    return os.fsdecode(text.encode("utf-8", "surrogateescape"))


def watch_workers(report: int) -> None:
    """Report the variables of every worker at the moment torchrun starts it."""

    def hook(event: str, arguments: Any) -> None:
        if event == "subprocess.Popen" and arguments[3] and "LOCAL_RANK" in arguments[3]:
            send(report, {"worker": {name: arguments[3].get(name) for name in REPORTED}})

    sys.addaudithook(hook)
