"""The worker server: a process with torch imported and a single thread, forked from the gate before torchrun's import.

Its own side comes first, then that of the gate, which starts the server while there is one thread, and torchrun's
workers through it.

```
gate, later torchrun                       server
  request: command, stdout, stderr, line ----> fork: a process in between, which forks the worker and ends;
                                               so the worker becomes a child of torchrun, as an exec'ed one
  <---------------------------- line: pid      worker: its own session, ready to run
  <------------------- control: one byte       server: the process in between is reaped
  line: one byte -------------------------->   worker: runs the script
```

Why a thread: what torchrun's `Popen` starts must have no frame of ours below its own. The gate forks the server from a
thread whose first function is one of C; in the child that thread is the main thread. It takes the steps of a generator:
while a step runs the generator is suspended and appears in no stack.
"""

from __future__ import annotations

import _thread
import array
import functools
import gc
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import time
import warnings
from collections import deque
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from ..runtime.processes import set_subreaper
from . import interface
from .obstacles import (
    HANDLER_MODULE,
    count_threads,
    find_command_obstacle,
    find_process_obstacle,
    list_failed_imports,
    list_imported,
)
from .worker import Command, apply_command, run_worker

if TYPE_CHECKING:
    from ...protocol.messages.local import ForkReport


LENGTH = struct.Struct("!Q")
MOST_DESCRIPTORS = 3
UNLIMITED_STACK = 64 << 20  # bytes; an ordinary limit is 8 MiB


class Request(NamedTuple):
    """One worker to start; `line` is a socket to the gate."""

    command: Command
    stdout: int
    stderr: int
    line: int


def fork_server(private: Sequence[int]) -> Tuple[socket.socket, int]:
    """Fork the server, which does not keep the `private` descriptors; returns its socket and pid.

    OSError with the reason where it cannot serve.
    """
    gate_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    steps = serve(gate_end, server_end, private)
    _thread.stack_size(stack_size())
    try:
        call_in_thread(steps)
    finally:
        _thread.stack_size(0)
    greeting = receive(gate_end)
    pid, obstacle = greeting.get("pid"), greeting.get("obstacle")
    if pid and not obstacle:
        return gate_end, pid
    gate_end.close()
    if pid:
        os.waitpid(pid, 0)
    raise OSError(obstacle or "the worker server could not be forked")


def call_in_thread(steps: Iterator[functools.partial[Any]]) -> None:
    """Let a thread call the steps one after the other, with no Python function below them."""
    _thread.start_new_thread(deque, (map(functools.partial.__call__, steps), 0))


def stack_size() -> int:
    """Give a thread the stack that the limit gives to a process."""
    soft = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return UNLIMITED_STACK if soft == resource.RLIM_INFINITY else max(soft // 4096 * 4096, 1 << 16)


def serve(
    gate_end: socket.socket, server_end: socket.socket, private: Sequence[int]
) -> Iterator[functools.partial[Any]]:
    """Fork the server; in it, take requests; in each worker, yield the steps to its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of forks beside threads: ours only waits
        try:
            pid = os.fork()
        except OSError as error:
            send(server_end, {"pid": 0, "obstacle": str(error)})
            pid = -1
    if pid:
        server_end.close()
        return
    _thread.stack_size(0)
    gate_end.close()
    for descriptor in private:
        os.close(descriptor)
    obstacle = try_to_show_command()
    send(server_end, {"pid": os.getpid(), "obstacle": obstacle})
    if obstacle:
        os._exit(0)
    freeze_imports()
    request = wait_for_request(server_end)
    server_end.close()
    line = socket.socket(fileno=request.line)
    prepare_worker(request, line)
    yield from run_worker(request.command)


def freeze_imports() -> None:
    """Make old what the import has made: else each worker, or gate, would begin with looking through all of it.

    That takes 0.18 s, so it is done once: what is forked from a warm server finds everything frozen already. The freeze
    costs nothing and lets no search touch, and so copy, memory that is shared.
    """
    gc.enable()
    if not gc.get_freeze_count():
        gc.collect()
    gc.freeze()


def try_to_show_command() -> str:
    """Find out whether this kernel lets a process change its own command line; returns why not."""
    try:
        with open("/proc/self/cmdline", "rb") as source:
            words = source.read().split(b"\0")[:-1]
        interface.show_command(words, interface.render_variables(os.environ))
    except (OSError, ValueError, AttributeError) as error:
        return "the kernel does not let a process change its command line: %s" % error
    return ""


def wait_for_request(control: socket.socket) -> Request:
    """Fork a worker for each request; returns in the worker. The end of the gate ends the server."""
    while True:
        request = receive_request(control)
        if request is None:
            os._exit(0)
        between = os.fork()
        if between == 0:
            try:
                is_worker = os.fork() == 0
            except OSError:
                is_worker = False  # the gate reads the end of the pipe once no process holds it open
            if is_worker:
                return request
            os._exit(0)
        for descriptor in request[1:]:
            os.close(descriptor)
        os.waitpid(between, 0)
        control.sendall(b"\n")


def prepare_worker(request: Request, line: socket.socket) -> None:
    """Become the worker, report the pid, and wait until the gate is ready for it to run."""
    try:
        os.setsid()
        apply_command(request.command, request.stdout, request.stderr)
        send(line, {"pid": os.getpid()})
    except BaseException as error:  # noqa: BLE001, RUF100 - this is a forked child: nothing may return from here
        with suppress(OSError):
            send(line, {"obstacle": "%s: %s" % (type(error).__name__, error)})
        os._exit(1)
    if not line.recv(1):
        os._exit(1)
    line.close()


def send(sink: socket.socket, report: ForkReport) -> None:
    """Send one line of JSON."""
    sink.sendall(json.dumps(report).encode("ascii") + b"\n")


def receive(source: socket.socket) -> ForkReport:
    """Receive one line of JSON; an empty table if the other end was closed."""
    content = b""
    while not content.endswith(b"\n"):
        chunk = source.recv(1)
        if not chunk:
            return {}
        content += chunk
    report: ForkReport = json.loads(content.decode("ascii"))
    return report


def send_request(control: socket.socket, command: Command, descriptors: List[int]) -> None:
    """Send a request; `descriptors` are stdout, stderr and the line."""
    content = json.dumps(command).encode("ascii")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    control.sendmsg([LENGTH.pack(len(content))], rights)
    control.sendall(content)


def receive_request(control: socket.socket) -> Optional[Request]:
    """Receive a request; None at the end."""
    numbers = array.array("i")
    head, ancillary, _, _ = control.recvmsg(
        LENGTH.size, socket.CMSG_SPACE(MOST_DESCRIPTORS * numbers.itemsize), socket.MSG_WAITALL
    )
    if len(head) < LENGTH.size:
        return None
    for _, _, data in ancillary:
        numbers.frombytes(data)
    (size,) = LENGTH.unpack(head)
    content = b""
    while len(content) < size:
        chunk = control.recv(size - len(content))
        if not chunk:
            return None
        content += chunk
    return Request(Command(*json.loads(content.decode("ascii"))), *numbers)


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
