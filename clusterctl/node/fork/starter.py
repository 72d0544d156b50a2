"""The gate's side: starts the server while there is one thread, and torchrun's workers through it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Callable, Dict, FrozenSet, Iterator, NamedTuple, Optional, Sequence, Tuple

from ..runtime.processes import set_subreaper
from .obstacles import (
    HANDLER_MODULE,
    count_threads,
    find_command_obstacle,
    find_process_obstacle,
    list_failed_imports,
    list_imported,
)
from .server import fork_server, receive, send_request
from .worker import Command

FORK_LIMIT = 30.0  # seconds for one worker: only a fork that hangs takes as long
THREAD_LIMIT = 2.0  # seconds for the thread that forked the server to end
OMP_VARIABLE = "OMP_NUM_THREADS"

Note = Callable[[str, str], None]


class ForkRefused(Exception):
    """A worker that could not be forked, and why."""


class Server(NamedTuple):
    """A worker server, and what it was forked with."""

    control: socket.socket
    pid: int
    env: Dict[str, str]
    imported: FrozenSet[str]

    def close(self) -> None:
        """End it."""
        self.control.close()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def start_server(mode: str, preload: Sequence[str], private: Sequence[int]) -> Tuple[Optional[Server], str]:
    """Import what the workers will need and fork the server; without one the reason is returned."""
    import torch
    import torch.distributed

    failed = list_failed_imports(preload)
    if failed:
        return None, "preload: " + "; ".join("%s: %s" % entry for entry in failed.items())
    obstacle = find_process_obstacle(mode, torch, os.environ)
    if obstacle:
        return None, obstacle
    try:
        control, pid = fork_server(private)
    except OSError as error:
        return None, str(error)
    server = Server(control, pid, dict(os.environ), list_imported())
    # Counted after the fork: NumPy's OpenBLAS ends its threads before one, in a handler of its own.
    threads = wait_for_one_thread()
    if threads > 1:
        server.close()
        return None, "%d threads run after the import" % threads
    return server, ""


def wait_for_one_thread() -> int:
    """Wait until the thread that forked the server has ended; returns how many there are."""
    deadline = time.monotonic() + THREAD_LIMIT
    while count_threads() > 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    return count_threads()


@contextmanager
def worker_threads(workers: int) -> Iterator[None]:
    """Import with the number of threads that torchrun will set for its workers, who would import torch with it."""
    if workers < 2 or OMP_VARIABLE in os.environ:
        yield
        return
    os.environ[OMP_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(OMP_VARIABLE, None)


def fork_workers(server: Server, note: Note) -> str:
    """Let torchrun start its workers through the server; returns why not, if this torch starts them otherwise."""
    try:
        handler: Any = import_module(HANDLER_MODULE)
    except ImportError:
        handler = None
    if getattr(handler, "Popen", None) is not subprocess.Popen:
        server.close()
        return "this torch starts its workers in another way"
    handler.Popen = make_popen(Starter(server, note))
    return ""


class Starter:
    """Starts workers through the server, and ends it after the last."""

    def __init__(self, server: Server, note: Note) -> None:
        self._server: Optional[Server] = server
        self._note = note
        self._started = 0

    def start(self, command: Command, stdout: int, stderr: int) -> Optional[int]:
        """Fork a worker; returns its pid, None if it must be exec'ed."""
        server = self._server
        if server is None:
            return None
        try:
            obstacle = find_command_obstacle(command, server.env, server.imported)
            if obstacle:
                raise ForkRefused(obstacle)
            pid = fork_worker(server.control, command, stdout, stderr)
        except (ForkRefused, OSError, ValueError) as error:
            self.close()
            self._note("exec", str(error) or type(error).__name__)
            return None
        if self._started == 0:
            self._note("fork", "")
        self._started += 1
        if self._started == int(command.env.get("LOCAL_WORLD_SIZE", "1")):
            self.close()
        return pid

    def close(self) -> None:
        """End the server."""
        if self._server is not None:
            self._server.close()
            self._server = None


def fork_worker(control: socket.socket, command: Command, stdout: int, stderr: int) -> int:
    """Let the server fork a worker, which becomes a child of this process, and let it run."""
    line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with line, set_adoption():
        for end in (line, control):
            end.settimeout(FORK_LIMIT)
        with other:
            send_request(control, command, [stdout, stderr, other.fileno()])
        report = receive(line)
        if "pid" not in report:
            raise ForkRefused(report.get("obstacle") or "the worker server has ended")
        if not control.recv(1):
            raise ForkRefused("the worker server has ended")
        try:
            os.waitid(os.P_PID, report["pid"], os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError as error:
            raise ForkRefused("the kernel gives orphans to another process") from error
        line.sendall(b"\n")
    return report["pid"]


@contextmanager
def set_adoption() -> Iterator[None]:
    """Make orphans below this process its children while a worker is forked, and not when the job runs."""
    set_subreaper()
    try:
        yield
    finally:
        set_subreaper(enabled=False)


def make_popen(starter: Starter) -> Any:
    """Make a `Popen` whose process is forked by the server; whatever else it does is done by its base."""

    class ForkedPopen(subprocess.Popen):  # type: ignore[type-arg]  # Python 3.8 knows no parameter of it
        """A worker of torchrun."""

        def _execute_child(self, args: Any, *rest: Any) -> None:
            env, stdout, stderr = rest[5], rest[12], rest[14]
            command = Command([os.fspath(word) for word in args], dict(env), os.getcwd())
            pid = starter.start(command, stdout if stdout >= 0 else 1, stderr if stderr >= 0 else 2)
            if pid is None:
                super()._execute_child(args, *rest)  # type: ignore[misc]  # not in the stubs
            else:
                self.pid = pid
                self._child_created = True

    return ForkedPopen
