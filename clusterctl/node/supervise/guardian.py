"""The guardian: starts the agent, watches its beats, and ends everything if it dies or falls silent.

The agent watches the guardian in the same way. Only when both are killed at the same moment neither is left:
then the kernel sends torchrun SIGTERM, which passes it on and kills its workers after its own shutdown timeout.
What outlives that (a torchrun that hangs, processes in sessions of their own) is found by `stop`, through the
pids on record and through the tag in the environment; what has shed both, and its parents, is not.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

from ...protocol.exit_status import describe_end, split_status
from ...protocol.frames import BEAT_INTERVAL, SILENCE_LIMIT
from ...protocol.states import FAILED, FAILED_SETUP, FINAL, PREPARING, SUBMITTED, WAITING
from ...protocol.untrusted import Untrusted
from ..runtime.children import start_child
from ..runtime.processes import (
    ProcessTree,
    describe_leftovers,
    identify,
    interpreter_options,
    read_stat,
    set_subreaper,
    wake_on,
)
from ..state.run_files import read_spec
from ..state.run_record import Record, new_state, read_state, run_tag_prefix
from ..state.temp_dirs import own_prefix, remove_all
from ..state.watchers import HALTED
from ..state.workdir import parse_dict, release_disk_reserve

if TYPE_CHECKING:
    from ...protocol.messages.files import JournalFacts, Spec
    from ...protocol.states import RunState
    from .agent import Agent
    from .spawn import Gate


BEATS_PER_LIMIT = 8  # waits without a beat that make up the limit


def main(arguments: List[str]) -> None:
    """Guard the run in the directory given first; the second argument is the agent's socket to the client.

    Two processes that have waited for the run exec both (`node/fork/standby.py`); each gets its ends of the pipes.
    """
    rundir, given = arguments[0], parse_dict(arguments[1].encode("ascii"))
    ends: Dict[str, int] = dict(given or {})
    agent, gate = ends.pop("agent", None), ends.pop("gate", None)
    for descriptor in ends.values():
        os.set_inheritable(descriptor, False)
    spec = read_spec(rundir)
    if spec is None:
        sys.exit(f"no spec in {rundir}")
    set_subreaper()
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    wakeup = wake_on(signal.SIGTERM, signal.SIGCHLD)
    limit = float(spec.get("agent_limit") or SILENCE_LIMIT)
    if given is None:
        start_agent(rundir, spec, int(arguments[1]), wakeup, limit)
        return
    if agent is not None:
        guard(rundir, spec, agent, watch_agent(ends["orders"], ends["beats"], wakeup, limit))
    else:
        from .spawn import Gate

        spare = Gate(identify(gate), ends["go"], ends["report"]) if gate is not None else None
        descriptors = (ends["control"], ends["orders"], ends["beats"], spare)
        make_agent(rundir, spec, descriptors, limit).run(identify(os.getppid()))


def start_agent(rundir: str, spec: Spec, control: int, wakeup: int, limit: float) -> None:
    """Fork the agent, and guard the run."""
    os.set_inheritable(control, False)
    (orders_read, orders), (beats, beats_write) = os.pipe(), os.pipe()
    guardian = identify(os.getpid())
    pid = os.fork()
    if pid == 0:
        os.close(orders)
        os.close(beats)
        descriptors = (control, orders_read, beats_write, None)
        make_agent(rundir, spec, descriptors, limit).run(guardian)
    else:
        for descriptor in (control, orders_read, beats_write):
            os.close(descriptor)
        guard(rundir, spec, pid, watch_agent(orders, beats, wakeup, limit))


def make_agent(
    rundir: str, spec: Spec, descriptors: Tuple[int, int, int, Optional[Gate]], limit: float
) -> Agent:
    """Make the agent, whose modules the guardian itself has no need of."""
    from .agent import Agent, Descriptors

    return Agent(rundir, spec, Descriptors(*descriptors), min(BEAT_INTERVAL, limit / BEATS_PER_LIMIT))


def guard(rundir: str, spec: Spec, pid: int, silence: Optional[str]) -> None:
    """Wait for the agent's end; if it did not end in order, do its work. Nothing of the run survives this."""
    if silence is not None:
        silence += describe_halt(pid)
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if silence is not None or status != 0:
        stop_run(rundir, spec, silence or describe_loss(status))
    ProcessTree(run_tag_prefix(spec)).kill_all()
    if "ray" in spec or "mpi" in spec:  # also after an end in order: a disk may have held the agent up
        remove_all(own_prefix(spec["run"]))
    if silence is None and status == 0:
        start_standby(rundir)


def start_standby(rundir: str) -> None:
    """Start what waits for the next run, if the agent has recorded that; this process ends, and leaves it alone."""
    if Untrusted(read_state(rundir)).record("warm").moment("until") is None:
        return
    argv = [sys.executable, *interpreter_options(), sys.argv[0], "standby", rundir]
    start_child(argv, None, (1, 2))


def watch_agent(orders: int, beats: int, wakeup: int, limit: float) -> Optional[str]:
    """Wait until the agent ends (None) or has been silent for too long (reports it).

    Silence is counted in waits, not by the clock: a machine that slept did not have a silent agent.
    """
    poller = select.poll()
    poller.register(beats, select.POLLIN)
    poller.register(wakeup, select.POLLIN)
    missed = 0
    while missed < BEATS_PER_LIMIT:
        ready = [descriptor for descriptor, _ in poller.poll(limit / BEATS_PER_LIMIT * 1000)]
        missed = 0 if beats in ready else missed + (not ready)
        if wakeup in ready and signal.SIGTERM in os.read(wakeup, 512):
            send_stop(orders)
        if beats in ready and not os.read(beats, 512):
            return None
    return f"the agent was silent for {limit:g} s"


def describe_halt(pid: int) -> str:
    """Describe why our child sends nothing, if a signal or a debugger has halted it."""
    stat = read_stat(pid)
    return ": it was halted (SIGSTOP)" if stat is not None and stat.state in HALTED else ""


def describe_loss(status: int) -> str:
    """Return how the agent ended before its time."""
    code, number = split_status(status)
    if number is not None:
        return f"the agent {describe_end(code, number)}"
    return "the agent failed; see agent.log in the run's directory"


def send_stop(orders: int) -> None:
    """Send the agent a stop; one that is gone is noticed by its beats."""
    with suppress(OSError):
        os.write(orders, b"T")


def stop_run(rundir: str, spec: Spec, reason: str) -> None:
    """End everything and record the end in the agent's place."""
    release_disk_reserve(rundir)
    process_tree = ProcessTree(run_tag_prefix(spec))
    leftovers = describe_leftovers(process_tree.kill_all())
    record = Record(rundir, read_state(rundir) or new_state(spec))
    if record.state["state"] in FINAL:
        return
    before_go = record.state["state"] in (SUBMITTED, PREPARING, WAITING) and not record.state["began"]
    record.add_event("agent_lost", {"reason": reason})
    state: RunState = FAILED_SETUP if before_go else FAILED
    end: JournalFacts = {"state": state, "reason": reason, "ended": process_tree.signalled()}
    record.add_event("ended", {**end, "left": leftovers})
    record.set({"state": state, "reason": reason, "left": leftovers})
