"""The warm server: forked from a gate that has torch imported, before that becomes torchrun; forks later gates.

```
agent of run A ---- exec ----> gate: imports torch, forks the server, becomes torchrun
      |  "gate" (a restart) -> server ----> next gate, which becomes the agent's child
      |  "stay" (the end)  --> server: waits at a socket in the work directory, until its time is up
verb "start" of run B ------->   |  "start"
                                 +-- fork: becomes guardian of B (exec)
                                       +-- fork: becomes agent of B (exec)
                                             +-- fork: a server of its own ("gate", "stay")
```

Guardian and agent of the next run are forked when a run has ended, and wait (`standby.py`).

So each gate is below its own agent, as one that was exec'ed: it is found, stopped and judged in the same way, which a
process in another tree would not be.

While it waits the server has no descriptor but its socket, the root as its directory, and no secret, as those come
with GO.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..runtime.processes import (
    Identity,
    descendants,
    identify,
    is_alive,
    read_stat,
    restore_signals,
    set_parent_death_signal,
)
from . import interface
from .imports import Imports, count_bytes, is_stable, record_imports
from .inherited import read_inherited
from .standby import (
    MOST_WORDS,
    Launch,
    Standby,
    leave_output,
    read_launch,
    run_in_child,
    start_standby,
)
from .warm_client import (
    LONGEST_VARIABLE,
    close_all,
    describe_other,
    is_private,
    pack_variables,
    peer_uid,
    query,
    receive,
    send,
    socket_folder,
    socket_name,
    unpack_variables,
)
from .worker import exit_code
from .worker_server import freeze_imports

if TYPE_CHECKING:
    from ...protocol.messages.local import AnyWarmAnswer, ForkGate, GateStart, Renew, WarmServerFacts

RunGate = Callable[[List[str]], None]


class GateProgram(NamedTuple):
    """What a gate does with its words; and what it does before it has them, which gives what remains."""

    run: RunGate
    prepare: Callable[[GateStart, Sequence[int]], RunGate]


REQUEST_LIMIT = 2.0  # seconds for a request at the socket
ADOPTION_LIMIT = 5.0  # seconds in which the kernel gives a gate to its agent
CHECK_INTERVAL = 5.0  # seconds between looks at the memory
LEAST_AVAILABLE = 0.05  # of the memory
MOST_STALLED = 10.0  # percent of the last ten seconds in which some process waited for memory
LONGEST_WAIT = 86400.0  # seconds
ANCESTOR_INTERVAL = 0.1  # seconds between looks whether the previous run has ended


def fork_server(connection: int, start: GateStart, private: Sequence[int], program: GateProgram) -> None:
    """Fork the server from a gate with one thread; it serves the agent at the other end of `connection`."""
    sys.stdout.flush()
    sys.stderr.flush()
    between = os.fork()
    if between == 0:
        try:
            if os.fork() == 0:
                close_all(private)
                run_server(socket.socket(fileno=connection), start, program)
        finally:
            os._exit(0)
    os.waitpid(between, 0)


def run_server(connection: socket.socket, start: GateStart, program: GateProgram) -> None:
    """Leave the gate's session, files and directory, and serve."""
    os.setsid()
    leave_output()
    os.chdir("/")
    reset_signals()
    freeze_imports()
    payload = sys.argv[0]
    imports = record_imports(payload, start["preload"])
    Server(imports, start, program).serve_agent(connection)


def reset_signals() -> None:
    """Handle signals as a new interpreter does."""
    restore_signals()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Server:
    """What was imported, and who is served."""

    def __init__(self, imports: Imports, start: GateStart, program: GateProgram) -> None:
        self._imports = imports
        self._start_plan: GateStart = {**start}
        self._start_plan.pop("warm", None)  # a descriptor of the first run's gate, which no later gate has
        self._program = program
        self._gate: Optional[WaitingGate] = None
        self._since = time.time()
        self._ends_at = 0.0
        self._open: List[socket.socket] = []  # what a forked process must not keep
        self._ancestors: List[Identity] = []  # agent and guardian of the run that the server came from
        self._next: Optional[Launch] = None  # how the next run's guardian is probably going to be started
        self._standby: Optional[Standby] = None

    def serve_agent(self, connection: socket.socket) -> None:
        """Fork gates for an agent, until it leaves or the server is to stay."""
        self._open = [connection]
        interface.show_command(self._words("-"), [])
        send(connection, {"pid": os.getpid()})
        while True:
            request, descriptors = receive(connection)
            if request is None:
                return
            if request.one_of("do", ("gate",)):
                send(connection, self._fork_gate(request, descriptors))
            elif request.one_of("do", ("stay",)):
                self._stay(connection, request)
                return
            close_all(descriptors)

    def _words(self, node: str) -> List[bytes]:
        words = (self._imports.python, self._imports.payload, "warm", node)
        return [os.fsencode(word) for word in words]

    # gates

    def _fork_gate(self, request: Untrusted, descriptors: List[int]) -> AnyWarmAnswer:
        argv = list(request.texts("argv", MOST_WORDS, LONGEST_VARIABLE))
        env = unpack_variables(request.texts("env", MOST_WORDS, LONGEST_VARIABLE))
        if len(argv) < 7 or len(descriptors) != 3:
            return {"refused": "the request is malformed"}
        start = parse_object(argv[6].encode("utf-8"))
        modules = start.texts("preload", MOST_WORDS)
        imported = imported_env(env, start.count("workers"))
        refusal = self._imports.find_difference(argv[0], modules, imported)
        changed = "" if refusal else self._imports.find_changed_file()
        if changed:
            refusal = "%s has changed since it was imported" % changed
        if refusal:
            return {"refused": refusal}
        waiting, self._gate = self._gate, None
        if waiting is not None:
            if argv[5] == waiting.module and is_same_plan(start, self._start_plan):
                passed: ForkGate = {
                    "do": "gate",
                    "argv": argv,
                    "env": pack_variables(env),
                    "cwd": request.text("cwd"),
                }
                pid = waiting.hand_over(passed, descriptors)
                if pid is not None:
                    return {"pid": pid}
            waiting.line.close()
        reader, writer = os.pipe()
        agent = os.getppid()
        between = os.fork()
        if between == 0:
            run_in_child(
                lambda: self._fork_again(argv, env, request.text("cwd"), descriptors, (reader, writer, agent))
            )
        os.close(writer)
        os.waitpid(between, 0)
        with os.fdopen(reader, "rb") as source:
            forked = source.read()
        return {"pid": int(forked)} if forked else {"refused": "no process could be forked"}

    def _fork_again(
        self,
        argv: List[str],
        env: Dict[str, str],
        cwd: str,
        descriptors: Sequence[int],
        relay: Tuple[int, int, int],
    ) -> None:
        reader, writer, agent = relay
        pid = os.fork()
        if pid:
            os.write(writer, b"%d" % pid)
            os._exit(0)
        close_all((reader, writer))
        for connection in self._open:
            connection.close()
        if enter_agent_tree(agent):
            run_as_gate(argv, env, cwd, descriptors, self._program.run)

    def _prepare_gate(self) -> None:
        """Fork the agent's first gate, which imports torchrun, forks its worker server, and waits for its words."""
        own_end, line = socket.socketpair()
        agent = os.getppid()
        between = os.fork()
        if between == 0:
            run_in_child(lambda: self._wait_as_gate(own_end, line, agent))
        line.close()
        os.waitpid(between, 0)
        self._gate = WaitingGate(own_end)

    def _wait_as_gate(self, own_end: socket.socket, line: socket.socket, agent: int) -> None:
        if os.fork():
            os._exit(0)
        for connection in (own_end, *self._open):
            connection.close()
        if not enter_agent_tree(agent):
            return
        send(line, {"pid": os.getpid()})
        for name in [name for name in os.environ if not is_stable(name)]:  # the tag of an earlier run, too
            del os.environ[name]
        run_gate = self._program.prepare(self._start_plan, (line.fileno(),))
        request, descriptors = receive(line)
        if request is None:
            return
        line.close()
        argv = list(request.texts("argv", MOST_WORDS, LONGEST_VARIABLE))
        env = unpack_variables(request.texts("env", MOST_WORDS, LONGEST_VARIABLE))
        run_as_gate(argv, env, request.text("cwd"), descriptors, run_gate)

    # the end of a run, and the next one

    def _stay(self, connection: socket.socket, request: Untrusted) -> None:
        """Wait for other runs, unless a server that could do the same waits already."""
        workdir, node = request.text("workdir"), request.text("node")
        seconds = min(request.number("seconds", 0.0) or 0.0, LONGEST_WAIT)
        self._next = read_launch(request)
        renewal: Renew = {
            "do": "renew",
            "seconds": seconds,
            "imports": self._imports.digest(),
            "argv": self._next.argv,
            "env": pack_variables(self._next.env),
        }
        renewed = query(workdir, node, renewal)
        if renewed is not None and renewed.integer("pid", 1):
            send(connection, describe_other(renewed))
            return
        query(workdir, node, {"do": "end"})
        self._ends_at = now() + seconds
        self._ancestors = list_ancestors()
        listener, own = listen(workdir, node)
        interface.show_command(self._words(node), [])
        send(connection, self._describe())
        connection.close()
        self._open = [listener]
        self._wait(listener, own, os.path.join(socket_folder(workdir), socket_name(node)))

    def _wait(self, listener: socket.socket, own: os.stat_result, path: str) -> None:
        """Serve each connection, until the time is up, memory is short or another server has taken the path."""
        poller = select.poll()
        poller.register(listener, select.POLLIN)
        stays = True
        while stays and now() < self._ends_at and is_same_file(path, own) and not is_memory_short():
            wait = max(0.0, min(self._prepare(), self._ends_at - now()))
            if poller.poll(wait * 1000):
                stays = self._serve_connection(listener)
        if is_same_file(path, own):
            with suppress(OSError):
                os.unlink(path)

    def _serve_connection(self, listener: socket.socket) -> bool:
        """Answer one request of this account; gives whether the server stays."""
        try:
            connection, _ = listener.accept()
        except OSError:  # it has left again
            return True
        descriptors: List[int] = []
        stays = True
        with connection:
            try:
                connection.settimeout(REQUEST_LIMIT)
                if peer_uid(connection) != os.geteuid():
                    return True
                request, descriptors = receive(connection)
                self._open = [listener, connection]
                request = request or Untrusted({})
                answer, stays = self._answer(request)
                if answer is None:
                    self._start(request, descriptors)
                else:
                    send(connection, answer)
            except (OSError, MalformedError):
                return stays  # an agent that asks for the end waits for no answer
            finally:
                self._open = [listener]
                close_all(descriptors)
        return stays

    def _answer(self, request: Untrusted) -> Tuple[Optional[AnyWarmAnswer], bool]:
        """Do what a request asks for; gives the answer, None for a start that is to be done, and whether it stays."""
        what = request.one_of("do", ("start", "renew", "describe", "end"))
        if what == "start":
            return self._judge_start(request)
        if what == "renew":
            if request.text("imports") != self._imports.digest() or self._imports.find_changed_file():
                return {"refused": "it has imported something else"}, True
            self._ends_at = now() + min(request.number("seconds", 0.0) or 0.0, LONGEST_WAIT)
            self._next = read_launch(request)
        return self._describe(), what != "end"

    def _judge_start(self, request: Untrusted) -> Tuple[Optional[AnyWarmAnswer], bool]:
        """Give why a run's guardian is not to start, None if it is; changed files are a reason against its gate."""
        argv = list(request.texts("argv", 100))
        if any(map(is_alive, self._ancestors)):  # they would adopt the new guardian, and kill it
            return {"refused": "the previous run is still ending"}, True
        if not argv or argv[-1] != self._imports.payload:
            return {"refused": "it is another version of clusterctl"}, False
        differences = sorted(set(request.texts("inherited", 100, LONGEST_VARIABLE)) ^ set(read_inherited()))
        if differences:
            return {"refused": "this login has other limits or rights: %s" % differences[0][:200]}, True
        return None, True

    def _start(self, request: Untrusted, descriptors: Sequence[int]) -> None:
        """Let the processes that wait become guardian and agent; if there are none, start them.

        The guardian answers the verb: without an answer nothing has started, and nothing will.
        """
        verb = self._open[1]
        launch, rundir, cwd = read_launch(request), request.text("rundir"), request.text("cwd")
        standby, self._standby, self._next = self._standby, None, None
        passed = (*descriptors, verb.fileno())
        if standby is not None:
            if standby.launch.is_like(launch) and standby.hand_over(rundir, launch, cwd, passed):
                return
            standby.line.close()
        fresh = start_standby(launch, self._open, self._fork_server, descriptors)
        fresh.hand_over(rundir, launch, cwd, passed)

    def _prepare(self) -> float:
        """Have guardian and agent of the next run wait, once no run ends whose agent would adopt and kill them.

        Gives the seconds after which to look again.
        """
        if self._next is None:
            return CHECK_INTERVAL
        if any(map(is_alive, self._ancestors)):
            return ANCESTOR_INTERVAL
        if self._standby is not None:
            self._standby.line.close()
        launch, self._next, self._standby = self._next, None, None
        with suppress(OSError):  # no process to be had: they are started when they are needed
            self._standby = start_standby(launch, self._open, self._fork_server)
        return CHECK_INTERVAL

    def _fork_server(self, private: Iterable[int]) -> int:
        """Fork a server for an agent; gives the agent's end, which is at its end where none could be forked."""
        agent_end, server_end = socket.socketpair()
        with suppress(OSError), server_end:
            if os.fork() == 0:
                run_in_child(lambda: self._serve_next_agent(server_end, [*private, agent_end.detach()]))
        return agent_end.detach()

    def _serve_next_agent(self, connection: socket.socket, private: Sequence[int]) -> None:
        close_all(private)
        os.setsid()
        leave_output()
        reset_signals()
        os.chdir("/")
        self._open = [connection]
        with suppress(OSError):  # it is forked when it is needed
            self._prepare_gate()
        self.serve_agent(connection)

    def _describe(self) -> WarmServerFacts:
        torch: Any = sys.modules["torch"]
        return {
            **identify(os.getpid()).as_dict(),  # type: ignore[typeddict-item]  # of a living process both are known
            "python": self._imports.python,
            "torch": str(torch.__version__),
            "preload": list(self._imports.preload),
            "since": self._since,
            "until": time.time() + self._ends_at - now(),
            "bytes": count_bytes(self._list_waiting()),
        }

    def _list_waiting(self) -> List[int]:
        """Name this process and all that waits with it for the next run."""
        if self._standby is None:
            return [os.getpid()]
        below = (stat.pid for stat in descendants(self._standby.pid))
        return [os.getpid(), self._standby.pid, *below]


def imported_env(env: Mapping[str, str], workers: int) -> Dict[str, str]:
    """Give the variables with which a gate for so many workers imports torch."""
    if workers < 2 or "OMP_NUM_THREADS" in env:
        return dict(env)
    return {**env, "OMP_NUM_THREADS": "1"}


def now() -> float:
    """Give the time since boot; unlike the monotonic clock it counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def list_ancestors() -> List[Identity]:
    """Name the agent that this process is a child of, and the agent's guardian: both adopt and kill what is below."""
    agent = read_stat(os.getppid())
    guardian = read_stat(agent.parent) if agent is not None else None
    return [stat.identity for stat in (agent, guardian) if stat is not None and stat.pid > 1]


def is_same_file(path: str, own: os.stat_result) -> bool:
    """Whether the path still leads to this file."""
    try:
        return os.path.samestat(own, os.stat(path))
    except OSError:
        return False


def listen(workdir: str, node: str) -> Tuple[socket.socket, os.stat_result]:
    """Listen at the node's socket, in a directory that only this account can enter; gives the socket's file, too."""
    folder = socket_folder(workdir)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not is_private(os.fstat(directory)):
            raise OSError("%s can be used by others" % folder)
        return bind(directory, socket_name(node))
    finally:
        os.close(directory)


def bind(directory: int, name: str) -> Tuple[socket.socket, os.stat_result]:
    """Take the name in the directory, even if another server has it; by a rename: the file is always this server's."""
    aside = "%s.%d" % (name, os.getpid())
    with suppress(FileNotFoundError):
        os.unlink(aside, dir_fd=directory)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("/proc/self/fd/%d/%s" % (directory, aside))
    listener.listen(8)
    listener.settimeout(REQUEST_LIMIT)
    own = os.stat(aside, dir_fd=directory)
    os.replace(aside, name, src_dir_fd=directory, dst_dir_fd=directory)
    return listener, own


def is_memory_short() -> bool:
    """Whether little memory is available, or processes wait for it."""
    return is_short(read_lines("/proc/meminfo"), read_lines("/proc/pressure/memory"))


def is_short(sizes: Sequence[str], pressure: Sequence[str]) -> bool:
    """Judge by the lines of meminfo, and of the kernel's pressure stall information if it has that."""
    values = dict(line.split(":", 1) for line in sizes if ":" in line)
    total, available = (int(values.get(name, "0 kB").split()[0]) for name in ("MemTotal", "MemAvailable"))
    if total and "MemAvailable" in values and available < total * LEAST_AVAILABLE:
        return True
    some = next(iter(pressure), "").partition("avg10=")[2].split(" ")[0]
    return float(some or 0.0) > MOST_STALLED


def read_lines(path: str) -> List[str]:
    """Read a file of the kernel; nothing if it has none of that name."""
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            return source.read().splitlines()
    except OSError:
        return []


class WaitingGate(NamedTuple):
    """A gate that waits for its words at the other end of the line; its first message is its pid."""

    line: socket.socket
    module: str = "torch.distributed.run"

    def hand_over(self, request: ForkGate, descriptors: Sequence[int]) -> Optional[int]:
        """Let it go on; gives its pid, None if it has ended."""
        with self.line, suppress(OSError, MalformedError):
            self.line.settimeout(REQUEST_LIMIT)
            greeting, _ = receive(self.line)
            pid = greeting.integer("pid", 1) if greeting is not None else None
            if pid is not None and not select.select([self.line], [], [], 0)[0]:
                send(self.line, request, descriptors)
                return pid
        return None


def is_same_plan(start: Untrusted, plan: GateStart) -> bool:
    """Whether a gate is to start workers as the one that was prepared will; what it imports is compared elsewhere."""
    return start.text("mode") == plan["mode"] and start.count("workers") == plan["workers"]


def enter_agent_tree(agent: int) -> bool:
    """Become the agent's child, as one that it has started itself; False if it has ended."""
    os.setsid()
    leave_output()
    restore_signals()
    reset_signals()
    wait_for_parent(agent)
    set_parent_death_signal(signal.SIGTERM)
    return os.getppid() == agent


def run_as_gate(
    argv: List[str], env: Dict[str, str], cwd: str, descriptors: Sequence[int], run_gate: RunGate
) -> None:
    """Take what a gate is started with, and run it."""
    go, report, log = descriptors
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    interface.show_command([os.fsencode(word) for word in argv], interface.render_variables(env))
    sys.argv[:] = argv[1:]
    run_as_program(lambda: run_gate([str(go), str(report), *argv[5:]]))


def wait_for_parent(pid: int) -> None:
    """Wait until the process in between has ended, and this one is a child of `pid`."""
    deadline = time.monotonic() + ADOPTION_LIMIT
    while os.getppid() != pid and time.monotonic() < deadline:
        time.sleep(0.0005)


def run_as_program(work: Callable[[], None]) -> None:
    """Run what an interpreter was started for, and end as it does."""
    code = 0
    try:
        work()
    except SystemExit as error:
        code = exit_code(error)
    except BaseException:  # noqa: BLE001, RUF100 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        code = 1
    interface.exit_function()(code)
