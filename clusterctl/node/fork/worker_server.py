"""The worker server: a process with torch imported and a single thread, forked from the gate before torchrun's import.

Its own side comes first, then that of the gate, which starts it while there is one thread, and torchrun's workers
through it.

```
gate, later torchrun                       server
  request: command, stdout, stderr, line ----> fork: a process in between, which forks the worker and ends;
                                               so the worker becomes a child of torchrun, as an exec'ed one
  <---------------------------- line: pid      worker: its own session, ready to run
  <------------------- control: one byte       server: the process in between is reaped
  line: one byte -------------------------->   worker: `fork_server` returns its command
```
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
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
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from ...protocol.untrusted import MalformedError, Untrusted
from ..runtime.processes import set_subreaper
from .imports import TORCHRUN
from .warm_client import (
    MAX_VARIABLE,
    close_all,
    pack_text,
    pack_variables,
    receive,
    send,
    unpack_text,
    unpack_variables,
)
from .worker import (
    CHILD_PARAMETERS,
    HANDLER_MODULE,
    Command,
    apply_command,
    count_threads,
    find_command_obstacle,
    find_handler_obstacle,
    find_process_obstacle,
    list_child_parameters,
    list_failed_imports,
    list_imported,
)

if TYPE_CHECKING:
    from ...protocol.messages.files import StartSpec
    from ...protocol.messages.local import ForkWorker


MAX_WORDS = 10_000


def serve(control: socket.socket) -> Command:
    """Take requests until the gate ends; returns in each worker, once the gate is ready for it to run."""
    freeze_imports()
    command, (stdout, stderr, line) = wait_for_request(control)
    control.close()
    prepare_worker(command, stdout, stderr, socket.socket(fileno=line))
    return command


def freeze_imports() -> None:
    """Make old what the import has made: else each worker would begin with looking through all of it.

    That takes 0.18 s, so it is done once. The freeze costs nothing and lets no search touch, and so copy, memory that
    is shared.
    """
    gc.enable()
    if not gc.get_freeze_count():
        gc.collect()
    gc.freeze()


def wait_for_request(control: socket.socket) -> Tuple[Command, List[int]]:
    """Fork a worker for each request; returns in the worker. The end of the gate ends the server."""
    while True:
        request, descriptors = receive(control)
        if request is None:
            os._exit(0)
        between = os.fork()
        if between == 0:
            try:
                is_worker = os.fork() == 0
            except OSError:
                is_worker = False  # the gate reads the end of the line once no process holds it open
            if is_worker:
                return unpack_command(request), descriptors
            os._exit(0)
        close_all(descriptors)
        os.waitpid(between, 0)
        control.sendall(b"\n")


def unpack_command(request: Untrusted) -> Command:
    """Read a command again."""
    env = unpack_variables(request.texts("env", MAX_WORDS, MAX_VARIABLE))
    argv = request.texts("argv", MAX_WORDS, MAX_VARIABLE)
    return Command([*map(unpack_text, argv)], env, unpack_text(request.text("cwd", MAX_VARIABLE)))


def prepare_worker(command: Command, stdout: int, stderr: int, line: socket.socket) -> None:
    """Become the worker, report the pid, and wait until the gate is ready for it to run."""
    try:
        os.setsid()
        apply_command(command, stdout, stderr)
        send(line, {"pid": os.getpid()})
    except BaseException as error:  # noqa: BLE001, RUF100 - this is a forked child: nothing may return from here
        with suppress(OSError):
            send(line, {"refused": "%s: %s" % (type(error).__name__, error)})
        os._exit(1)
    if not line.recv(1):
        os._exit(1)
    line.close()


FORK_LIMIT = 30.0  # seconds for one worker: only a fork that hangs takes as long
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


def import_torch(module: str, start: StartSpec, workers: int) -> str:
    """Import what the workers will need; returns why this process cannot be forked, empty if it can.

    What torch's import raises is raised; any other error only prevents the fork.
    """
    with worker_threads(workers):
        import torch
        import torch.distributed

        if module != TORCHRUN:
            return "the launcher is not torchrun"
        failed = list_failed_imports(start["preload"])
        if failed:
            return "preload: " + "; ".join("%s: %s" % entry for entry in failed.items())
        try:
            return find_process_obstacle(torch, os.environ)
        except Exception as error:  # noqa: BLE001, RUF100 - whatever it is, workers can be exec'ed
            return "%s: %s" % (type(error).__name__, error)


@contextmanager
def worker_threads(workers: int) -> Iterator[None]:
    """Import with the number of threads that torchrun will set for its workers, who would import torch with it."""
    added = imported_env(os.environ, workers).keys() - os.environ.keys()
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def imported_env(env: Mapping[str, str], workers: int) -> Dict[str, str]:
    """Return the variables with which a gate for so many workers imports torch."""
    return {OMP_VARIABLE: "1", **env} if workers > 1 else dict(env)


def fork_server(workers: int, private: Sequence[int]) -> Union[Server, Command, str]:
    """Fork the server, which does not keep the `private` descriptors; returns it, or why there is none.

    In each worker that the server forks this returns the worker's command: what calls it must go on to `run_command`
    and have nothing above it that would catch what a script raises.
    """
    control, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        pid = os.fork()
    except OSError as error:
        return str(error)
    if pid == 0:
        control.close()
        for descriptor in private:
            os.close(descriptor)
        return serve(server_end)
    server_end.close()
    server = Server(control, pid, imported_env(os.environ, workers), list_imported())
    # Counted after the fork: NumPy's OpenBLAS ends its threads before one, in a handler of its own.
    threads = count_threads()
    if threads > 1:
        server.close()
        return "%d threads run after the import" % threads
    return server


def fork_workers(server: Server, note: Note) -> str:
    """Make torchrun start its workers through the server; returns why not, if this torch starts them otherwise."""
    try:
        handler: Any = import_module(HANDLER_MODULE)
    except ImportError:
        handler = None
    obstacle = find_handler_obstacle(handler)
    if obstacle:
        server.close()
    else:
        handler.Popen = make_popen(Starter(server, note))
    return obstacle


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
        except (ForkRefused, MalformedError, OSError, ValueError) as error:
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
    """Make the server fork a worker, which becomes a child of this process, and start it."""
    line, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with line, set_adoption():
        for end in (line, control):
            end.settimeout(FORK_LIMIT)
        with other:
            send(control, pack_command(command), (stdout, stderr, other.fileno()))
        report, _ = receive(line)
        pid = report.integer("pid", 1) if report is not None else None
        if pid is None:
            raise ForkRefused(
                (report.text("refused") if report is not None else "") or "the worker server has ended"
            )
        if not control.recv(1):
            raise ForkRefused("the worker server has ended")
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError as error:
            raise ForkRefused("the kernel gives orphans to another process") from error
        line.sendall(b"\n")
    return pid


def pack_command(command: Command) -> ForkWorker:
    """Write a command so that every byte of it arrives."""
    argv, env = [*map(pack_text, command.argv)], pack_variables(command.env)
    return {"do": "worker", "argv": argv, "env": env, "cwd": pack_text(command.cwd)}


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
    places = [list_child_parameters().index(name) for name in CHILD_PARAMETERS]

    class ForkedPopen(subprocess.Popen):  # type: ignore[type-arg]  # Python 3.8 knows no parameter of it
        """A worker of torchrun."""

        def _execute_child(self, *values: Any) -> None:
            words, env, stdout, stderr = (values[place] for place in places)
            command = Command([os.fspath(word) for word in words], dict(env), os.getcwd())
            pid = starter.start(command, stdout if stdout >= 0 else 1, stderr if stderr >= 0 else 2)
            if pid is None:
                super()._execute_child(*values)  # type: ignore[misc]  # not in the stubs
            else:
                self.pid = pid
                self._child_created = True

    return ForkedPopen
