"""Commands of clusterctl, each in a process of its own, forked from one that has imported what they need.

A command is what a user starts, from `python -m clusterctl` on; only the imports are saved, 0.3 s of a processor
each time, and the packing of what is sent to nodes, which a command of a user whose state directory is new does in
0.15 s. What tests the imports, or talks to a live process, starts an interpreter of its own.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import resource
import runpy
import select
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OF_INTERPRETER = ("PYTHON", "LC_", "LANG")  # an interpreter reads these when it starts
LEFT_OUT = ("clusterctl.node", "clusterctl.lab", "clusterctl.__main__")  # sent to nodes; or never imported
END = struct.Struct("!iqd")  # of a command: its exit code, its memory in KiB, its processor time in seconds
IN_FUNCTIONS = ("fabric", "paramiko", "rich.console", "rich.live", "ruamel.yaml")


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key.startswith(OF_INTERPRETER)}


AT_START = _read_at_start(os.environ)


def run_command(
    args: Sequence[str], *, cwd: Path | None, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run `python -m clusterctl ARGS` to its end, without standard input; its output is captured."""
    if not can_fork(env):
        words = [sys.executable, "-m", "clusterctl", *args]
        return subprocess.run(
            words,
            cwd=cwd,
            env=dict(env),
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    return measure_command(args, cwd=cwd, env=env, timeout=timeout)[0]


def can_fork(env: Mapping[str, str]) -> bool:
    """Tell whether a command with this environment may be forked from an interpreter that has started already."""
    return _read_at_start(env) == AT_START


@dataclass(frozen=True)
class Used:
    """What a command has used: the most memory, in KiB, with what it was forked with; and processor time of its own."""

    memory: int
    seconds: float


def measure_command(
    args: Sequence[str], *, cwd: Path | None, env: Mapping[str, str], timeout: float, address_space: int = 0
) -> tuple[subprocess.CompletedProcess[str], Used]:
    """Run a command that may be forked, as `run_command` does, with a limit on its address space if one is given."""
    deadline = time.monotonic() + timeout
    order = json.dumps([list(args), str(cwd or Path.cwd()), dict(env), address_space])
    server = _server(os.getpid())
    ours, theirs = socket.socketpair()
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    with ours:  # the command ends with this connection
        try:
            with theirs:
                socket.send_fds(server, [b"!"], [theirs.fileno(), out_end, err_end])
            os.close(out_end)
            os.close(err_end)
            ours.settimeout(timeout)
            ours.sendall(f"{order}\n".encode())
            texts = _read_all(out, err, deadline)
            ours.settimeout(max(0.001, deadline - time.monotonic()))
            report = ours.recv(END.size)
        except ConnectionError:
            report = b""
    assert len(report) == END.size, (
        f"the process that commands are forked from has ended: {_last_words(server)}"
    )
    code, memory, seconds = END.unpack(report)
    return subprocess.CompletedProcess(list(args), code, *texts), Used(memory, seconds)


def _read_all(out: int, err: int, deadline: float) -> list[str]:
    """Read both to their ends, which come when no process holds them any more."""
    read = {out: bytearray(), err: bytearray()}
    with selectors.DefaultSelector() as selector:
        for descriptor in read:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            assert ready, f"not ended in time; its last errors: {bytes(read[err][-2000:])!r}"
            for key, _ in ready:
                piece = os.read(key.fd, 1 << 16)
                read[key.fd] += piece
                if not piece:
                    selector.unregister(key.fd)
                    os.close(key.fd)
    texts = [bytes(content).decode("utf-8", "surrogateescape") for content in read.values()]
    return [text.replace("\r\n", "\n") for text in texts]


def _last_words(server: socket.socket) -> str:
    """Read the traceback of the server: its stderr is the connection."""
    with suppress(OSError):
        return server.recv(1 << 16, socket.MSG_DONTWAIT).decode(errors="replace")
    return ""


@cache
def _server(pid: int) -> socket.socket:  # noqa: ARG001 - a fork of a test has no server
    """Start the process that has imported everything; it ends with us."""
    ours, theirs = socket.socketpair()
    with theirs:
        # what a command writes to is no file either, so that its streams are made as for a pipe
        words, env, end = [sys.executable, __file__], {**os.environ, **AT_START}, theirs.fileno()
        subprocess.Popen(words, env=env, stdin=end, stdout=end, stderr=end)
    return ours


# ---- in the process that is forked ----


def import_all() -> None:
    """Import what commands import, some of it not before they need it, and read the modules that they send."""
    for name in IN_FUNCTIONS:
        importlib.import_module(name)
    package = importlib.import_module("clusterctl")
    for module in pkgutil.walk_packages(package.__path__, "clusterctl."):
        if not module.name.startswith(LEFT_OUT):
            importlib.import_module(module.name)
    importlib.import_module("clusterctl.client.rpc.bundle").payload_zip()


def serve(orders: socket.socket) -> tuple[list[str], str, dict[str, str]] | None:
    """Fork for each order; returns in the process of a command what it is, and None at the end of all."""
    while True:
        request, descriptors, _, _ = socket.recv_fds(orders, 1, 3)
        if not request:
            return None
        if os.fork() == 0:
            orders.close()
            return follow(socket.socket(fileno=descriptors[0]), descriptors[1:])
        for descriptor in descriptors:
            os.close(descriptor)


def follow(client: socket.socket, outputs: Sequence[int]) -> tuple[list[str], str, dict[str, str]]:
    """Start the command, and report its end when it has come; returns in its process only.

    A command that the test waits for no longer is killed.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    args, cwd, env, address_space = json.loads(client.makefile().readline())
    command = os.fork()
    if command:
        for descriptor in outputs:
            os.close(descriptor)
        if client.fileno() in select.select([os.pidfd_open(command), client.fileno()], [], [])[0]:
            os.kill(command, signal.SIGKILL)
        _, status, used = os.wait4(command, 0)
        with suppress(OSError):
            code, seconds = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
            client.sendall(END.pack(code, used.ru_maxrss, seconds))
        os._exit(0)
    client.close()
    if address_space:
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in zip((nothing, *outputs), range(3), strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    return args, cwd, env


def main() -> None:
    """Wait for orders, and become the command of each in a process of its own."""
    import_all()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    order = serve(socket.socket(fileno=os.dup(0)))
    if order is None:
        return
    args, cwd, env = order
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = args
    sys.path[0] = cwd
    try:
        runpy.run_module("clusterctl", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        leave(end.code)


def leave(code: int) -> None:
    """End as an interpreter does, but for taking apart what was imported, which would copy it all."""
    threading._shutdown()  # type: ignore[attr-defined]  # what an interpreter calls: waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
