"""The job's interpreter, warm: imports torchrun, says ready, waits for GO, becomes torchrun.

Without a module of torch to run, there is nothing to import: on GO it starts the node's only process.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Callable, Dict, List

REPORTED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_ERROR_FILE")


def main(arguments: List[str]) -> None:
    """Run the gate on its two pipes: GO comes on the first, reports go out on the second."""
    go, report, module = int(arguments[0]), int(arguments[1]), arguments[2]
    for descriptor in (go, report):
        os.set_inheritable(descriptor, False)
    if module:
        run_module(go, report, module)
    else:
        run_program(go, report)


def run_module(go: int, report: int, name: str) -> None:
    """Import torchrun, or torch's older way to call it, and become it on GO."""
    sys.path[:] = [entry for entry in sys.path if entry != sys.argv[0]]  # torch must not find our modules
    gc.disable()  # a tenth of the import is the search for garbage in it, of which there is none
    try:
        import torch

        module = import_module(name)
    except BaseException:
        import traceback

        send(report, {"failed": traceback.format_exc()})
        raise
    gc.freeze()
    gc.enable()
    send(report, {"ready": str(torch.__version__)})
    order = read_order(go)
    apply(order)
    watch_workers(report)
    argv = [native(word) for word in order["argv"]]
    sys.argv = [str(module.__file__), *argv]
    module.main(argv)


def run_program(go: int, report: int) -> None:
    """Start the job's own program on GO, report it as this node's worker, and end as it does."""
    from .program import Program

    send(report, {"ready": ""})
    order = read_order(go)
    apply(order)
    program = Program([native(word) for word in order["argv"]], os.path.join(order["attempt"], "0"))
    rank = order["node_rank"]
    facts = {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": None,
        "TORCHELASTIC_ERROR_FILE": program.error_file,
    }
    send(report, {"worker": {**facts, "pid": program.pid, "starttime": starttime(program.pid)}})
    code = program.wait()
    send(report, {"ended": {"rank": rank, "code": code}})
    program.see_off()
    sys.exit(code if code >= 0 else 128 - code)


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
    """Report every worker that torchrun starts, and how it ended at the moment torchrun learns it.

    Only the parent has both for certain: a worker may be gone before anybody else has looked at it.
    """
    ranks: Dict[int, int] = {}

    def started(process: Any, env: Any) -> None:
        if env and "LOCAL_RANK" in env:
            ranks[process.pid] = int(env["RANK"])
            facts = {name: env.get(name) for name in REPORTED}
            send(report, {"worker": {**facts, "pid": process.pid, "starttime": starttime(process.pid)}})

    def looked(process: Any) -> None:
        if process.returncode is not None and process.pid in ranks:
            send(report, {"ended": {"rank": ranks.pop(process.pid), "code": process.returncode}})

    attach(started, looked)


def attach(started: Callable[[Any, Any], None], looked: Callable[[Any], None]) -> None:
    """Call back after each start of a process and after each look at one.

    The class is changed and not its name in the module, because torch has taken the class already.
    """
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def reported_start(self: Any, *args: Any, **options: Any) -> None:
        start(self, *args, **options)
        started(self, options.get("env"))

    setattr(subprocess.Popen, start.__name__, reported_start)
    for look in (subprocess.Popen.poll, subprocess.Popen.wait):
        setattr(subprocess.Popen, look.__name__, after(look, looked))


def after(look: Callable[..., Any], looked: Callable[[Any], None]) -> Callable[..., Any]:
    """Let `looked` follow a method, whether it returns or raises."""

    @functools.wraps(look)
    def reported_look(self: Any, *args: Any, **options: Any) -> Any:
        try:
            return look(self, *args, **options)
        finally:
            looked(self)

    return reported_look


def starttime(pid: int) -> int:
    """Read when a child that is not reaped was started, in clock ticks since boot: field 22 of proc_pid_stat(5)."""
    with open(f"/proc/{pid}/stat", "rb") as source:
        return int(source.read().rpartition(b")")[2].split()[19])
