"""Guardian and agent of a warm server's next run, started beforehand: they have imported all that they need, and wait.

```
server                           guardian                          agent
  fork, exec ------------------> imports, waits
                                   fork before the exec ---------> imports, waits; below it a server of its own
  order: control, log, verb ---> becomes the run's guardian
                                   pid to the verb
                                   order: control, log ----------> becomes the run's agent
```

Where none waits, or one for other variables or options, both are started for the order. A process that waits ends with
the one that would send it the order.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from ...protocol.untrusted import Untrusted
from ..runtime.processes import restore_signals, set_subreaper
from . import interface
from .imports import is_stable
from .warm_client import (
    LONGEST_VARIABLE,
    close_all,
    pack_variables,
    receive,
    send,
    unpack_variables,
)

if TYPE_CHECKING:
    from ...protocol.messages.local import RunOrder

MOST_WORDS = 10_000
MOST_OPTIONS = 100  # words of an interpreter's command line
ORDER_LIMIT = 2.0  # seconds for a message to a guardian or from it, which may be halted
NO_RUN = "-"  # in the place of the run's directory
ForkServer = Callable[[Iterable[int]], int]


class Launch(NamedTuple):
    """How guardian and agent are started: words up to their role, and variables."""

    argv: List[str]
    env: Dict[str, str]

    def is_like(self, other: Launch) -> bool:
        """Whether what was started like this could have been started like the other."""
        return self.argv == other.argv and _stable(self.env) == _stable(other.env)


def _stable(env: Mapping[str, str]) -> Dict[str, str]:
    return {name: value for name, value in env.items() if is_stable(name)}


def read_launch(request: Untrusted) -> Launch:
    """Read it from a request."""
    env = unpack_variables(request.texts("env", MOST_WORDS, LONGEST_VARIABLE))
    return Launch(list(request.texts("argv", MOST_OPTIONS)), env)


class Standby(NamedTuple):
    """A guardian that waits at the other end of the line, and how it was started."""

    line: socket.socket
    launch: Launch
    pid: int

    def hand_over(self, rundir: str, launch: Launch, cwd: str, descriptors: Sequence[int]) -> bool:
        """Let it become a run's guardian, with the agent's socket, agent.log and the verb; False if it has ended."""
        order: RunOrder = {"do": "run", "rundir": rundir, "env": pack_variables(launch.env), "cwd": cwd}
        try:
            send(self.line, order, descriptors)
        except OSError:
            return False
        finally:
            self.line.close()
        return True


def start_standby(
    launch: Launch,
    private: Sequence[socket.socket],
    fork_server: ForkServer,
    descriptors: Sequence[int] = (),
) -> Standby:
    """Start guardian and agent, detached from this process, without what is `private` to it; OSError if that fails.

    `descriptors` come with the order: the agent's server, which is not exec'ed, would hold them for the whole run.
    """
    own_end, line = socket.socketpair()
    between = os.fork()
    if between == 0:
        run_in_child(lambda: _exec_guardian(launch, line, [*private, own_end], fork_server, descriptors))
    line.close()
    os.waitpid(between, 0)
    own_end.settimeout(ORDER_LIMIT)
    greeting, _ = receive(own_end)
    pid = greeting.integer("pid", 1) if greeting is not None else None
    if pid is None:
        own_end.close()
        raise OSError("no process could be forked")
    return Standby(own_end, launch, pid)


def _exec_guardian(
    launch: Launch,
    line: socket.socket,
    private: Sequence[socket.socket],
    fork_server: ForkServer,
    descriptors: Sequence[int],
) -> None:
    if os.fork():
        os._exit(0)
    for connection in private:
        connection.close()
    close_all(descriptors)
    send(line, {"pid": os.getpid()})
    os.setsid()
    leave_output()
    restore_signals()
    set_subreaper()
    orders, beats, (own_end, agent_end) = os.pipe(), os.pipe(), socket.socketpair()
    agent = os.fork()
    if agent:
        kept = {"orders": orders[1], "beats": beats[0], "line": line.fileno(), "next": own_end.fileno()}
        _exec_role(launch, "guardian", {"agent": agent}, kept)
    close_all((orders[1], beats[0], line.detach(), own_end.detach()))
    set_subreaper()  # a gate that waits becomes its child before the exec
    kept = {"orders": orders[0], "beats": beats[1], "line": agent_end.fileno()}
    _exec_role(launch, "agent", {}, {**kept, "warm": fork_server(kept.values())})


def _exec_role(launch: Launch, role: str, facts: Mapping[str, int], kept: Mapping[str, int]) -> None:
    """Become guardian or agent, with these descriptors."""
    for descriptor in kept.values():
        os.set_inheritable(descriptor, True)
    words = [*launch.argv, role, NO_RUN, json.dumps({**facts, **kept})]
    os.execve(words[0], words, launch.env)


def run_in_child(work: Callable[[], None]) -> None:
    """Do the work of a forked process, which never returns."""
    try:
        work()
    finally:
        os._exit(1)


def leave_output() -> None:
    """Have no input, and write nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    os.close(null)


# in guardian and agent


def await_order(ends: Dict[str, int]) -> str:
    """Wait for a run, and return its directory; `ends` has an agent's `control` then.

    A guardian answers the verb when nothing can be in its way any more: without an answer the verb starts the run
    itself. Only then does the agent get the order.
    """
    line = socket.socket(fileno=ends.pop("line"))
    agent = socket.socket(fileno=ends.pop("next")) if "next" in ends else None
    if agent is not None and agent in select.select([line, agent], [], [])[0]:
        sys.exit("the agent has ended")
    order, descriptors = receive(line)
    if order is None:
        sys.exit(0)
    line.close()
    rundir = order.text("rundir")
    _follow(order, rundir, descriptors[1])
    if agent is None:
        ends["control"] = descriptors[0]
        return rundir
    control, log, verb = descriptors
    with socket.socket(fileno=verb) as connection:
        try:
            send(connection, {"pid": os.getpid()})
        except OSError:
            sys.exit("the verb has ended; it starts the run itself")
    passed: RunOrder = {
        "do": "run",
        "rundir": rundir,
        "env": list(order.texts("env", MOST_WORDS, LONGEST_VARIABLE)),
        "cwd": order.text("cwd"),
    }
    with agent:
        send(agent, passed, (control, log))
    close_all((control, log))
    return rundir


def _follow(order: Untrusted, rundir: str, log: int) -> None:
    """Take directory, variables, output and command line of a process that was started for the run."""
    os.chdir(order.text("cwd"))
    os.environ.clear()
    os.environ.update(unpack_variables(order.texts("env", MOST_WORDS, LONGEST_VARIABLE)))
    for target in (1, 2):
        os.dup2(log, target)
    words, variables = read_command(), interface.render_variables(os.environ)
    interface.show_command([*words[:-2], os.fsencode(rundir), words[-1]], variables)


def read_command() -> Tuple[bytes, ...]:
    """Read this process's command line."""
    with open("/proc/self/cmdline", "rb") as source:
        return tuple(source.read().split(b"\0")[:-1])
