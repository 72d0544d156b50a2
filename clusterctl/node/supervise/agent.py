"""The run on this node: what arrives from client, guardian and kernel becomes events; what their rules call is done.

The processes of an attempt are in `attempt`; this module decides nothing.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, cast

from ...protocol.messages.gang import MAX_REASON, StopOrder
from ...protocol.reasons import STOPPED_BY
from ...protocol.states import FINAL
from ...protocol.untrusted import Untrusted
from ..gang.attempts import make_record, read_policy
from ..gang.limits import beat_interval, overdue_after
from ..gang.membership import Gang, GangContext
from ..lifecycle import ending, starting
from ..lifecycle.ending import on_cleared, on_gang_reported
from ..lifecycle.run import Effects, Phase, Run, RunState, new_attempt
from ..logs.recorder import LogRecorder
from ..runtime.event_loop import Loop, reraise
from ..runtime.processes import Identity, identify, reap, send_signal, set_subreaper, wake_on
from ..state.locks import ORDERS, Locks, NodeLocks
from ..state.run_record import Record, new_state, time_to_prepare
from ..state.watchers import HaltedJournal
from ..state.workdir import read_json, release_disk_reserve, reserve_disk
from .attempt import Attempt, Site
from .events import Client, Events, GangOrders
from .gate_process import SpareGate
from .ranks.progress import OutputProgress
from .spawn import Gate

if TYPE_CHECKING:
    from ...protocol.messages.checkpoints import KeeperReport, Restore
    from ...protocol.messages.files import AnyJournalFacts, JournalEvent, PartRecord, Spec, StateChange
    from ...protocol.messages.verbs import AnyEventFacts, EventName, Order, Secrets
    from ..history.machine import HistoryRecorder
    from ..lifecycle.run import Event
    from .keeper import Keeper


GO_LIMIT = 3600.0  # seconds that a ready gate waits
# the reason of a stop that neither `stop` nor Slurm has asked for
STOPPED_BY_SIGTERM = STOPPED_BY + "SIGTERM to the {process} on {node}"
WRITE_LIMIT = 300.0  # seconds in which a full disk may become usable again for the last words
HISTORY_AFTER = 1.5  # seconds until sampling begins: its import would delay the workers of a warm node


class Descriptors(NamedTuple):
    """The agent's descriptors: the client's socket, the guardian's orders, its beats, perhaps those of a gate."""

    control: int
    orders: int
    beats: int
    gate: Optional[Gate]


class Agent(Effects):
    """The life of one run on this node, from the client's first frame to the final state."""

    processes: Attempt

    def __init__(self, rundir: str, spec: Spec, descriptors: Descriptors, interval: float) -> None:
        self._rundir = rundir
        self._spec = spec
        self._descriptors = descriptors
        self._interval = min(interval, beat_interval(spec)) if spec.get("gang") else interval
        self._beat_due = 0.0  # by the monotonic clock
        self._prepared = False
        self._is_removed = False  # the directory of the run
        self._loop = Loop()
        self._history: Optional[HistoryRecorder] = None
        self._loop.on_error = self._on_error
        self._events = Events(self._loop, spec)
        self._client = Client(
            self._loop,
            descriptors.control,
            self._on_frame,
            lambda: self._events.post(partial(ending.on_client_left)),
        )
        self._record = Record(rundir, new_state(spec))
        self._halted = HaltedJournal(self._record)
        locks = Locks(self._loop, spec, lambda: self._run.attempt.started)
        self._locks = NodeLocks(locks, self._record, spec, self._client.send_event)
        self._warm = SpareGate(self._record, descriptors.gate)
        self._progress: Optional[OutputProgress] = None
        self._log_recorder = LogRecorder(
            self._loop, self._record, int(spec.get("log_limit") or 0), self._logs
        )
        self.processes = self._make_attempt({}, "")
        state = RunState(new_attempt(spec, idle=bool(spec.get("spare"))), bool(spec.get("restart")))
        self._run = self._events.run = Run(state, self)
        self._orders = GangOrders(self._loop, spec, self._record, self._events)

    @property
    def gang(self) -> Gang:
        """Return this node's place among the others: hub or peer, another one after a hub is lost."""
        return self._orders.gang

    def _make_attempt(self, secrets: Dict[str, str], token: str) -> Attempt:
        site = Site(self._loop, self._record, self._rundir, secrets, token, self._events, self._warm)
        return Attempt(site, self._spec)

    def _logs(self) -> List[str]:
        return self.processes.logs()

    def run(self, guardian: Identity) -> None:
        """Serve until everything of the run has ended and is recorded."""
        set_subreaper()
        reserve_disk(self._rundir)
        os.set_blocking(self._descriptors.beats, False)
        wakeup = wake_on(signal.SIGTERM, signal.SIGCHLD)
        self._loop.watch(wakeup, partial(self._on_signals, wakeup))
        self._loop.watch(self._descriptors.orders, self._on_guardian)
        own_identity = identify(os.getpid())
        self._record.set(
            {"state": "PREPARING", "guardian": guardian.as_dict(), "agent": own_identity.as_dict()}
        )
        self._record.add_event("preparing")
        self._start_go_timeout()
        self.start_logs()
        self._beat_due = time.monotonic()
        self._beat()
        if self._spec.get("sample"):
            self._loop.after(HISTORY_AFTER, "history", self._start_history)
        self._loop.run()
        if self._history is not None:
            self._history.stop()
        send_signal(guardian, signal.SIGCONT)  # one that was stopped by a signal could not confirm it

    def _start_history(self) -> None:
        """Sample the machine from now on; its code is loaded when the start no longer waits for anything of it."""
        from ..history.machine import HistoryRecorder

        self._history = HistoryRecorder(self._rundir, self._pids, self._warm.spared)
        self._history.start()

    def _pids(self) -> Dict[int, int]:
        """Return the pids of the ranks that live; another thread calls this."""
        workers = list(self.processes.workers().values())
        return {worker.rank: worker.identity.pid for worker in workers if not worker.ended}

    def _start_go_timeout(self) -> None:
        """Start the client's time limit for GO."""
        limit = GO_LIMIT + time_to_prepare(self._spec)
        self.start_timer("go", limit, partial(ending.on_cancelled, reason="no GO arrived"))

    # what arrives

    def _on_frame(self, frame: Dict[str, Any]) -> None:
        """Take one frame of the client: its secrets first, then orders."""
        if "secrets" in frame and not self._prepared:
            secrets = cast("Secrets", frame)
            if secrets.get("cold"):
                self._events.post(partial(starting.on_warm_gate, method="exec", text=str(secrets["cold"])))
            self._prepare(secrets["secrets"], str(secrets["token"] or ""))
        elif "do" in frame:
            self._on_order(cast("Order", frame))

    def _on_order(self, order: Order) -> None:
        if order["do"] == "join" or order["do"] == "listeners":
            self.gang.set_listen_addresses(order.get("listeners") or [])
            if order["do"] == "join":
                self.gang.join(int(order["port"]))
        elif order["do"] == "setup":
            self._events.post(partial(starting.on_setup_ordered))
        elif order["do"] == "before":
            self._events.post(partial(starting.on_before_ordered))
        elif order["do"] == "go":
            self._events.post(partial(starting.on_client_go, port=int(order["master_port"])))
        elif order["do"] == "cancel":
            reason = order.get("reason") or "cancelled before the start"
            self._events.post(partial(ending.on_cancelled, reason=reason))
        elif order["do"] in ORDERS:
            self._locks.on_order(order["do"])
            self._start_go_timeout()

    def _prepare(self, secrets: Dict[str, str], token: str) -> None:
        """Take the locks, make the gang, and start up."""
        self._prepared = True
        self._locks.on_order("lock")
        self._orders.token = token.encode("utf-8")
        if self._spec.get("checkpoints"):
            self._orders.keeper = self._make_keeper(self._orders.token)
            self._orders.keeper.start()
        self._orders.gang = make_gang(self._orders)
        self.processes = self._make_attempt(secrets, token)
        self._events.post(partial(starting.on_prepared))

    def _make_keeper(self, token: bytes) -> Keeper:
        """Make what talks to the keeper, whose code a run without checkpoints does not load."""
        from .keeper import Keeper

        spared = self._warm.spared
        return Keeper(self._loop, self._rundir, self._spec, token, spared, self._on_keeper_report)

    def _on_keeper_report(self, report: KeeperReport) -> None:
        """Take what the keeper of this node reports."""
        if report.event == "restored":
            if report.why:
                self.gang.on_keeper_report(report)
            self.processes.post(partial(starting.on_restored, report=report))
        elif report.event == "begun":
            self.processes.post(partial(starting.on_watched, attempt=report.attempt))
        elif report.event == "finished":
            self.processes.post(partial(ending.on_checkpoints_finished))
        elif report.event == "note":
            self.journal("checkpoint", {"name": report.name, "code": report.code, "note": report.why})
        else:
            self.gang.on_keeper_report(report)

    def _on_guardian(self) -> None:
        """Pass on a stop; end everything at once if the guardian is gone."""
        if os.read(self._descriptors.orders, 64):
            self._stop("guardian")
            return
        self._loop.unwatch(self._descriptors.orders)
        self._events.post(partial(ending.on_guardian_lost))

    def _on_signals(self, wakeup: int) -> None:
        """Serve signals, whose numbers come from this descriptor."""
        if signal.SIGTERM in os.read(wakeup, 512):
            self._stop("agent")
        for pid, status in reap():
            self._warm.on_child_exit(pid)
            if self._orders.keeper is not None:
                self._orders.keeper.on_child_exit(pid)
            for event, ended_by in self.processes.on_child_exit(pid, status):
                self.processes.post(event, ended_by=ended_by)

    def _stop(self, signalled: str) -> None:
        """End the run because this process of it received SIGTERM, perhaps after keeping where the ranks are."""
        request = Untrusted(read_json(os.path.join(self._rundir, "stop.json")))
        if request.flag("dump") and self._run.phase is Phase.RUNNING and not self._run.state.stops:
            self.processes.stall.keep("stop", lambda: self._post_stop(request, signalled))
        else:
            self._post_stop(request, signalled)

    def _post_stop(self, request: Untrusted, signalled: str) -> None:
        """Post what `stop` has asked for; without stop.json the signal came from outside."""
        requested_grace = request.number("grace", 0.0)
        without_request = self._spec.get("outside_stop") or {
            "reason": STOPPED_BY_SIGTERM.format(process=signalled, node=self._spec["node"]),
            "grace": self._spec["grace"],
        }
        grace = float(without_request["grace"]) if requested_grace is None else requested_grace
        order = StopOrder(request.text("reason", MAX_REASON) or without_request["reason"], grace)
        self._events.post_stop(partial(ending.on_stop_requested, order=order))

    def _on_error(self, error: Exception) -> None:
        """End in order after an error of our own, which the log holds; where that cannot be, the guardian does it."""
        self._loop.report(error)
        if not can_end_in_order(self._run.state, recorded=self._record.state["state"] in FINAL):
            raise error
        reason = f"the agent failed: {type(error).__name__}: {error}"[:MAX_REASON]
        self._loop.after(overdue_after(self._spec, 0.0), "collapse", lambda: reraise(error))
        self._events.post_first(partial(ending.on_agent_failed, reason=reason))

    def _beat(self) -> None:
        """Send the guardian a beat, and write what a full disk refused."""
        now = time.monotonic()
        self._beat_due = next_beat(self._beat_due, now, self._interval)
        self._loop.after(self._beat_due - now, "beat", self._beat)
        with suppress(OSError):
            os.write(self._descriptors.beats, b".")
        self.gang.beat()
        self.processes.scan_output()
        self._halted.scan()
        self._record.flush()
        if not self._is_removed and not os.path.isdir(self._rundir):
            self._is_removed = True  # nothing of it can be recorded or followed any more
            self._events.post(partial(ending.on_agent_failed, reason="the directory of the run was removed"))

    # record, client, timers

    def journal(self, event: JournalEvent, facts: AnyJournalFacts) -> None:
        """Append to events.jsonl."""
        self._record.add_event(event, facts)

    def set_state(self, values: StateChange, *, roster: bool = False) -> None:
        """Write into state.json."""
        entries = self.gang.roster_entries if roster else None
        self._record.set(values if entries is None else {**values, "roster": entries})

    def send_client(self, event: EventName, facts: AnyEventFacts) -> None:
        """Send an event to the client."""
        self._client.send_event(event, facts)

    def close_client(self) -> None:
        """Close the connection to the client."""
        self._client.close()

    def start_timer(self, name: str, seconds: float, event: Event) -> None:
        """Post an event later."""
        self._loop.after(seconds, name, lambda: self._events.post(event))

    def cancel_timer(self, name: str) -> None:
        """Cancel a timer."""
        self._loop.cancel(name)

    # the start

    def open_ports(self, *, hold: bool, gang: bool) -> None:
        """Hold a master port, and open the gang's listener."""
        self.processes.open_ports(self.gang.open if gang else None, hold=hold, locked=self._locks.held)

    def start_progress(self) -> None:
        """Record which output files are there before the attempt."""
        pattern = read_policy(self._spec["restart"]).progress
        self._progress = OutputProgress(self._loop, str(self._spec["output_dir"]), pattern)
        self._progress.begin()

    def restore(self, resume: Restore) -> None:
        """Put the files of a checkpoint in their place."""
        spec = self._run.attempt.spec
        if self._orders.keeper is not None:
            self._orders.keeper.restore(resume, spec["attempt"], spec["node_rank"])

    def watch_checkpoints(self) -> None:
        """Watch for checkpoints of the attempt."""
        attempt = self._run.attempt
        if self._orders.keeper is not None:
            self._orders.keeper.begin(attempt.number, -1 if attempt.idle else attempt.spec["node_rank"])

    def pause_checkpoints(self) -> None:
        """Take no file as complete any more."""
        if self._orders.keeper is not None:
            self._orders.keeper.pause()

    def finish_checkpoints(self) -> None:
        """Have what the ranks wrote last sealed."""
        if self._orders.keeper is not None:
            self._orders.keeper.finish(self._run.attempt.number)

    def start_logs(self) -> None:
        """Read from now on how the logs grow."""
        self._log_recorder.start()

    # the end, and further attempts

    def conclude_logs(self) -> None:
        """Read the logs for the last time."""
        self._log_recorder.conclude()

    def save_record(self, part: PartRecord) -> None:
        """Write gang.json with this node's part."""
        whole = not self._spec.get("gang")
        self._record.save_gang_record(make_record(self._spec, [part], None, whole=whole))

    def report_end(self, part: PartRecord) -> None:
        """Report the end of this node's part to the gang."""
        self.gang.on_end(part)
        self.processes.post(partial(on_gang_reported))

    def await_cleared(self) -> None:
        """Post it when the GPUs' memory is free and it is known whether there was progress."""
        attempt = self.processes
        answers: Dict[str, Optional[bool]] = {}

        def collect(name: str, answer: Optional[bool]) -> None:
            answers[name] = answer
            if len(answers) == 2:
                memory_held = attempt.gpu_memory_wait.held
                attempt.post(partial(on_cleared, memory_held=memory_held, progress=answers["progress"]))

        attempt.gpu_memory_wait.when_free(lambda: collect("memory", None))
        if self._progress is not None:
            self._progress.finish(lambda found: collect("progress", found))
        else:  # a spare that was never called in
            collect("progress", None)

    def begin_attempt(self, spec: Spec) -> None:
        """Replace the processes of the attempt by those of another."""
        self.processes = self.processes.begin_next(spec)

    def unlock(self) -> None:
        """Release the locks when the memory is free: what is waited for after that needs no GPU."""
        self.processes.gpu_memory_wait.when_free(lambda: self._locks.on_order("unlock"))

    def leave(self) -> None:
        """End the loop once the last words are written."""
        if self._orders.keeper is not None:
            self._orders.keeper.stop()
        if not self._record.state["gang_done"]:
            self._record.set({"gang_done": True})
            self._loop.after(WRITE_LIMIT, "give up", self._loop.stop)
            self._warm.stay(self._spec)
        release_disk_reserve(self._rundir)
        if self._record.flush():
            self.processes.gpu_memory_wait.when_free(self._loop.stop)
        else:
            self._loop.after(1.0, "leave", self.leave)


def next_beat(due: float, now: float, interval: float) -> float:
    """Return when the beat after one that was due is due; one that came late does not put off those that follow.

    Both sides of a cut count beats. If each of ours were as late as a busy node is, this side would end its part when
    the other has begun again. After a halt the beats go on from now, not all that were missed at once.
    """
    return max(due + interval, now + interval / 2)


def can_end_in_order(state: RunState, *, recorded: bool) -> bool:
    """Return whether an error of the agent's own can still be recorded as this node's end, or its end is recorded."""
    over = state.phase in (Phase.AFTER, Phase.ENDED)
    if state.failing or (state.final and not recorded):  # the error kept a decided end from being recorded
        return False
    return not over or state.final or state.restartable


def make_gang(context: GangContext) -> Gang:
    """Make this node's member of the gang; where there is none its code is not loaded."""
    if not context.spec.get("restart") and not context.spec.get("gang"):
        return Gang(context)
    from ..gang.failover import start

    return start(context)
