"""Two processes and a gate that wait for the next run of a node, started when a run with `keep_warm` has ended.

```
guardian of run A, as its last act
  fork, exec -> standby, at a socket in the work directory ---- becomes guardian of B by exec
                  fork -> its child ----------------------------- becomes agent of B by exec
                            exec -> gate: imports torch, waits -- stays its child, as one that the agent has started
verb "start" of run B -> request with the agent's socket and agent.log; the answer means that B has started
```

So everything of run B is below its guardian and agent, and is found, stopped and judged as in any run. What waits has
no descriptor of a run, the root as its directory, and no secret, as those come with GO. It ends when its time is up,
memory is scarce, another standby has taken its place, or one of the three has ended.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Tuple

from ...protocol.untrusted import MalformedError, Untrusted
from ..runtime.processes import descendants, identify, set_subreaper
from ..state.environments import apply_environment
from ..state.run_files import read_spec
from ..state.run_record import read_state
from ..state.workdir import parse_dict
from .imports import count_bytes, is_stable
from .inherited import read_inherited
from .warm_client import (
    MAX_VARIABLE,
    close_all,
    is_private,
    peer_uid,
    query,
    receive,
    send,
    socket_folder,
    socket_name,
    unpack_variables,
)

if TYPE_CHECKING:
    from ...protocol.messages.files import Spec
    from ...protocol.messages.local import RunOrder, WarmServerFacts

MAX_WORDS = 10_000
MAX_OPTIONS = 100  # words of an interpreter's command line
REQUEST_LIMIT = 2.0  # seconds for a request at the socket
CHECK_INTERVAL = 5.0  # seconds between looks at the memory
MIN_AVAILABLE = 0.05  # of the memory
MAX_STALLED = 10.0  # percent of the last ten seconds in which some process waited for memory
MAX_WAIT = 86400.0  # seconds


def main(arguments: List[str]) -> None:
    """Wait for the run after the one in the directory given, until the time that its record names."""
    rundir = arguments[0]
    leave_output()
    os.chdir("/")
    spec, until = read_spec(rundir), Untrusted(read_state(rundir)).record("warm").moment("until")
    if spec is None or until is None or is_memory_short():
        return
    workdir, node = os.path.dirname(os.path.dirname(os.path.dirname(rundir))), spec["node"]
    query(workdir, node, {"do": "end"})
    listener, own = listen(workdir, node)
    orders, beats, (line, agent_end) = os.pipe(), os.pipe(), socket.socketpair()
    agent = os.fork()
    if agent == 0:
        close_all((orders[1], beats[0], line.detach(), listener.detach()))
        wait_as_agent(apply_environment(rundir, spec), agent_end, {"orders": orders[0], "beats": beats[1]})
        return
    close_all((orders[0], beats[1], agent_end.detach()))
    standby = Standby(apply_environment(rundir, spec), line, now() + min(until - time.time(), MAX_WAIT))
    standby.wait(listener, own, os.path.join(socket_folder(workdir), socket_name(node)))
    if standby.order is not None:
        exec_role(standby.order, standby.log, {"agent": agent}, {"orders": orders[1], "beats": beats[0]})
    line.close()
    os.waitpid(agent, 0)


def leave_output() -> None:
    """Read from and write to nothing."""
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    os.close(null)


class Standby:
    """What waits at the socket; `order` is the run that it has taken, `log` its agent.log."""

    def __init__(self, spec: Spec, line: socket.socket, ends_at: float) -> None:
        self._spec = spec
        self._line = line
        self._ends_at = ends_at
        self._since = time.time()
        self._torch = ""
        self.order: Optional[RunOrder] = None
        self.log = -1

    def wait(self, listener: socket.socket, own: os.stat_result, path: str) -> None:
        """Serve each connection, until there is a run, the time is up, memory is short or the path is another's."""
        poller = select.poll()
        poller.register(listener, select.POLLIN)
        poller.register(self._line, select.POLLIN)
        stays = True
        while stays and now() < self._ends_at and is_same_file(path, own) and not is_memory_short():
            wait = max(0.0, min(CHECK_INTERVAL, self._ends_at - now()))
            ready = [descriptor for descriptor, _ in poller.poll(wait * 1000)]
            if self._line.fileno() in ready:
                stays = self._read_line()
            elif ready:
                stays = self._serve_connection(listener)
        if is_same_file(path, own):
            with suppress(OSError):
                os.unlink(path)

    def _read_line(self) -> bool:
        """Take what the future agent reports of its gate; returns False once one of them has ended."""
        report, _ = receive(self._line)
        self._torch = report.text("torch") if report is not None else ""
        return report is not None

    def _serve_connection(self, listener: socket.socket) -> bool:
        """Answer one request of this account; returns whether the standby stays."""
        try:
            connection, _ = listener.accept()
        except OSError:  # it has left again
            return True
        what = ""
        descriptors: List[int] = []
        with connection:
            try:
                connection.settimeout(REQUEST_LIMIT)
                if peer_uid(connection) != os.geteuid():
                    return True
                request, descriptors = receive(connection)
                request = request or Untrusted({})
                what = request.one_of("do", ("start", "describe", "end")) or ""
                if what == "start":
                    self._start(connection, request, descriptors)
                else:
                    send(connection, self._describe())
            except (OSError, MalformedError):
                return (
                    what != "end"
                )  # its sender need not wait for the answer; a start without one has not begun
            finally:
                close_all(descriptors)
        return what != "end" and self.order is None

    def _start(self, connection: socket.socket, request: Untrusted, descriptors: Sequence[int]) -> None:
        """Take a run, unless it must have what this process has inherited otherwise.

        The answer comes before all else: without one the verb starts the run itself, and there must be no second.
        """
        order = read_order(request)
        differences = sorted(set(request.texts("inherited", 100, MAX_VARIABLE)) ^ set(read_inherited()))
        if differences:
            refusal = "this login has other limits or rights: %s" % differences[0][:200]
            send(connection, {"refused": refusal})
            return
        control, log = descriptors
        send(connection, {"pid": os.getpid()})
        self.order, self.log = order, os.dup(log)
        self._line.settimeout(REQUEST_LIMIT)
        send(self._line, order, (control, log))

    def _describe(self) -> WarmServerFacts:
        below = [stat.pid for stat in descendants(os.getpid())]
        return {
            **identify(os.getpid()).as_dict(),  # type: ignore[typeddict-item]  # of a living process both are known
            "python": self._spec["python"],
            "torch": self._torch,
            "preload": self._spec["start"]["preload"],
            "since": self._since,
            "until": time.time() + self._ends_at - now(),
            "bytes": count_bytes([os.getpid(), *below]),
        }


def read_order(request: Untrusted) -> RunOrder:
    """Read which run guardian and agent are for, and how they are started."""
    argv = list(request.texts("argv", MAX_OPTIONS))
    if not argv:
        raise MalformedError("no argv")
    return {
        "do": "start",
        "argv": argv,
        "rundir": request.text("rundir"),
        "env": list(request.texts("env", MAX_WORDS, MAX_VARIABLE)),
        "cwd": request.text("cwd"),
    }


def exec_role(order: RunOrder, log: int, facts: Mapping[str, int], kept: Mapping[str, int]) -> None:
    """Become a run's guardian or agent, with these descriptors; the words are those by which `stop` finds either."""
    os.chdir(order["cwd"])
    for target in (1, 2):
        os.dup2(log, target)
    for descriptor in kept.values():
        os.set_inheritable(descriptor, True)
    words = [*order["argv"], "guardian", order["rundir"], json.dumps({**facts, **kept})]
    os.execve(words[0], words, unpack_variables(order["env"]))


def wait_as_agent(spec: Spec, line: socket.socket, ends: Mapping[str, int]) -> None:
    """Start the gate and wait for a run; return, with the gate ended, when there is none."""
    from ..supervise.spawn import WITHOUT_ATTEMPT, plan_environment, start_waiting

    set_subreaper()  # what the gate leaves becomes a child of the agent
    env = plan_environment(os.environ, spec, {}, WITHOUT_ATTEMPT)[0]
    gate = start_waiting(spec, {name: value for name, value in env.items() if is_stable(name)})
    poller = select.poll()
    poller.register(gate.report, select.POLLIN)
    poller.register(line, select.POLLIN)
    while poller.poll():
        if select.select([line], [], [], 0)[0]:
            order, descriptors = receive(line)
            if order is not None:
                control, log = descriptors
                kept = {**ends, "control": control, "go": gate.go, "report": gate.report}
                exec_role(read_order(order), log, {"gate": gate.identity.pid}, kept)
            break
        report = parse_dict(os.read(gate.report, 1 << 16))
        if report is None:  # it has ended, or cannot fork workers
            break
        send(line, {"torch": Untrusted(report).text("waits")})
    os.kill(gate.identity.pid, signal.SIGKILL)
    os.waitpid(gate.identity.pid, 0)


def now() -> float:
    """Return the time since boot; unlike the monotonic clock it counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_same_file(path: str, own: os.stat_result) -> bool:
    """Return whether the path still leads to this file."""
    try:
        return os.path.samestat(own, os.stat(path))
    except OSError:
        return False


def listen(workdir: str, node: str) -> Tuple[socket.socket, os.stat_result]:
    """Listen at the node's socket, in a directory that only this account can enter; returns the socket's file, too."""
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
    """Take the name in the directory, even if another standby has it; by a rename: the file is always this one's."""
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
    """Return whether little memory is available, or processes wait for it."""
    return is_short(read_lines("/proc/meminfo"), read_lines("/proc/pressure/memory"))


def is_short(sizes: Sequence[str], pressure: Sequence[str]) -> bool:
    """Return the same by the lines of meminfo, and of the kernel's pressure stall information if it has that."""
    values = dict(line.split(":", 1) for line in sizes if ":" in line)
    total, available = (int(values.get(name, "0 kB").split()[0]) for name in ("MemTotal", "MemAvailable"))
    if total and "MemAvailable" in values and available < total * MIN_AVAILABLE:
        return True
    some = next(iter(pressure), "").partition("avg10=")[2].split(" ")[0]
    return float(some or 0.0) > MAX_STALLED


def read_lines(path: str) -> List[str]:
    """Read a file of the kernel; nothing if it has none of that name."""
    try:
        with open(path, encoding="ascii", errors="replace") as source:
            return source.read().splitlines()
    except OSError:
        return []
