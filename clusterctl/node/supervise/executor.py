"""Performs actions: on the record, the client, the gang, timers and the current attempt; decides nothing.

`Client` is the connection to the client that started the run: orders come in, events go out, until GO.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Type

from ..gang.end_record import make_record
from ..gang.membership import Gang
from ..lifecycle import actions
from ..lifecycle.actions import Act, Action
from ..lifecycle.events import Cleared, Notice
from ..lifecycle.state import RunState
from ..logs.recorder import LogRecorder
from ..runtime.event_loop import Loop
from ..runtime.stream import Stream
from ..state.locks import NodeLocks
from ..state.run_record import Record
from ..state.workdir import release_disk_reserve
from .attempt import Attempt, Site
from .gang_orders import GangOrders
from .ranks.progress import Progress

if TYPE_CHECKING:
    from ...protocol.messages.agent import AnyEventFacts, EventName
    from ...protocol.messages.files import Spec


WRITE_LIMIT = 300.0  # seconds in which a full disk may become usable again for the last words


class Executor:
    """What the agent of one run has to do with."""

    def __init__(
        self,
        site: Site,
        spec: Spec,
        client: Client,
        locks: NodeLocks,
        orders: Optional[GangOrders],
        gang: Gang,
    ) -> None:
        self._site = site
        self._loop: Loop = site.loop
        self._record: Record = site.record
        self._spec = spec
        self._client = client
        self._locks = locks
        self._orders = orders
        self._progress: Optional[Progress] = None
        self.attempt = Attempt(site, spec)
        limit = int(spec.get("log_limit") or 0)
        self._log_recorder = LogRecorder(site.loop, site.record, limit, self._logs)
        self.gang = gang
        self._facts = self._performers()
        self._acts = self._act_performers()

    def prepare(self, secrets: Dict[str, str], token: str, gang: Gang) -> None:
        """Take what the client has sent, before anything is started."""
        self._site = self._site._replace(secrets=secrets, token=token)
        self.attempt, self.gang = Attempt(self._site, self._spec), gang

    def perform(self, action: Action, state: RunState) -> None:
        """Do what an action says; `state` is the one after the event that it follows."""
        if isinstance(action, Act):
            self._acts[action](state)
        else:
            self._facts[type(action)](action, state)

    def _performers(self) -> Dict[Type[Any], Callable[[Any, RunState], object]]:
        return {
            actions.Journal: lambda action, _: self._record.add_event(action.event, action.facts),
            actions.SetState: lambda action, _: self._set_state(action),
            actions.Report: self._report,
            actions.SendClient: lambda action, _: self._client.send_event(action.event, action.facts),
            actions.StartTimer: lambda action, _: self._start_timer(action),
            actions.CancelTimer: lambda action, _: self._loop.cancel(action.name),
            actions.OpenPorts: lambda action, _: self._open_ports(action),
            actions.StartGate: lambda action, _: self._start_gate(action),
            actions.StartHelper: lambda action, _: self._start_helper(action),
            actions.SendGo: lambda action, _: self.attempt.send_go(action),
            actions.AwaitListener: lambda action, _: self.attempt.await_listener(action),
            actions.RecordWorkers: lambda action, _: self.attempt.record_workers(action),
            actions.KillBelow: lambda action, _: self.attempt.kill_below(
                spare_torchrun=action.spare_torchrun
            ),
            actions.SignalAll: lambda action, _: self.attempt.signal_all(action),
            actions.CloseAttempt: lambda action, state: self.attempt.close(
                action.remaining, started=state.attempt.observed.started
            ),
            actions.BuildPart: lambda action, state: self.attempt.build_part(action, state.attempt),
            actions.StartAfter: lambda action, _: self.attempt.start_after(action),
            actions.SaveRecord: lambda action, _: self._save_record(action),
            actions.GangFailure: lambda action, _: self.gang.on_failure(action.reason),
            actions.GangStop: lambda action, _: self.gang.on_stop(action.order),
            actions.GangEnd: lambda action, _: self._report_end(action),
            actions.GangCleared: lambda action, _: self.gang.on_cleared(action.unfit, action.progress),
            actions.BeginAttempt: lambda action, _: self._begin_attempt(action),
        }

    def _act_performers(self) -> Dict[Act, Callable[[RunState], object]]:
        return {
            Act.CLOSE_CLIENT: lambda _: self._client.close(),
            Act.RELEASE_PORT: lambda _: self.attempt.release_port(),
            Act.START_LOGS: lambda _: self.start_logs(),
            Act.CONCLUDE_LOGS: lambda _: self._log_recorder.conclude(),
            Act.SCAN_OUTPUT: lambda _: self.attempt.scan_output(),
            Act.WATCH_RANKS: lambda state: self.attempt.watch_ranks(state.began),
            Act.WATCH_NESTED: lambda _: self.attempt.watch_nested(),
            Act.START_PROGRESS: lambda _: self._start_progress(),
            Act.TERMINATE_TORCHRUN: lambda _: self.attempt.terminate_torchrun(),
            Act.FIND_REMAINING: lambda _: self.attempt.find_remaining(),
            Act.KILL_AFTER_HOOK: lambda _: self.attempt.kill_after_hook(),
            Act.SCAN_OUTSIDE: lambda _: self.attempt.scan_outside(),
            Act.AWAIT_CLEARED: lambda _: self._await_cleared(),
            Act.UNLOCK: lambda _: self._unlock(),
            Act.GANG_GO: lambda _: self.gang.on_go(),
            Act.GANG_LEAVE: lambda _: self.gang.leave(),
            Act.LEAVE: lambda _: self.leave(),
        }

    def _logs(self) -> List[str]:
        return self.attempt.logs()

    def start_logs(self) -> None:
        """Read from now on how the logs grow."""
        self._log_recorder.start()

    # record, client, timers

    def _set_state(self, action: actions.SetState) -> None:
        if action.roster and self._orders:
            self._record.set({**action.values, "roster": self._orders.roster.entries})
        else:
            self._record.set(action.values)

    def _report(self, action: actions.Report, state: RunState) -> None:
        if state.attempt.is_first:
            self._client.send_event(action.event, action.facts)
        else:
            facts: Any = action.facts  # what a gang looks at has EventFacts
            self.gang.on_startup_event(action.event, facts)

    def _start_timer(self, action: actions.StartTimer) -> None:
        self._loop.after(action.seconds, action.name, lambda: self._site.post(action.event))

    def _save_record(self, action: actions.SaveRecord) -> None:
        whole = not self._spec.get("gang")
        self._record.save_gang_record(make_record(self._spec, [action.part], None, whole=whole))

    # the start

    def _open_ports(self, action: actions.OpenPorts) -> None:
        attempt, locked = self.attempt, self._locks.held
        open_gang = self.gang.open if action.gang else None
        attempt.run_step(lambda: attempt.open_ports(action.hold, open_gang, locked=locked))

    def _start_gate(self, action: actions.StartGate) -> None:
        attempt = self.attempt
        attempt.run_step(lambda: attempt.start_gate(other_port=action.other_port))

    def _start_helper(self, action: actions.StartHelper) -> None:
        attempt = self.attempt
        attempt.run_step(lambda: attempt.stages.start(action))

    # the end, and further attempts

    def _report_end(self, action: actions.GangEnd) -> None:
        self.gang.on_end(action.part)
        self.attempt.post(Notice.GANG_REPORTED)

    def _start_progress(self) -> None:
        pattern = self._orders.policy.progress if self._orders is not None else ""
        self._progress = Progress(self._loop, str(self._spec["output_dir"]), pattern)
        self._progress.begin()

    def _await_cleared(self) -> None:
        """Post it when the GPUs' memory is free and it is known whether there was progress."""
        attempt = self.attempt
        answers: Dict[str, Optional[bool]] = {}

        def collect(name: str, answer: Optional[bool]) -> None:
            answers[name] = answer
            if len(answers) == 2:
                attempt.post(Cleared(attempt.gpu_memory_wait.held, answers["progress"]))

        attempt.gpu_memory_wait.when_free(lambda: collect("memory", None))
        if self._progress is not None:
            self._progress.finish(lambda found: collect("progress", found))
        else:  # a spare that was never called in
            collect("progress", None)

    def _begin_attempt(self, action: actions.BeginAttempt) -> None:
        self.attempt = self.attempt.replace_by(action.spec)

    def _unlock(self) -> None:
        """Release the locks when the memory is free: what is waited for after that needs no GPU."""
        self.attempt.gpu_memory_wait.when_free(lambda: self._locks.on_order("unlock"))

    def leave(self) -> None:
        """End the loop once the last words are written."""
        if not self._record.state["gang_done"]:
            self._record.set({"gang_done": True})
            self._loop.after(WRITE_LIMIT, "give up", self._loop.stop)
            self._site.warm.stay()
        release_disk_reserve(self._site.rundir)
        if self._record.flush():
            self.attempt.gpu_memory_wait.when_free(self._loop.stop)
        else:
            self._loop.after(1.0, "leave", self.leave)


SEND_TIMEOUT = 5.0  # seconds for a relay that does not read
OnOrder = Callable[[Dict[str, Any]], None]


class Client:
    """Tells the client what happens, for as long as it is there, and hands over its orders."""

    def __init__(self, loop: Loop, descriptor: int, on_order: OnOrder, on_left: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = socket.socket(fileno=descriptor)
        self._stream = Stream(descriptor, descriptor)
        self._stream.send_timeout = SEND_TIMEOUT
        self._on_order = on_order
        self._on_left = on_left
        self.connected = True
        loop.watch(descriptor, self._read)

    def send_event(self, event: EventName, facts: AnyEventFacts) -> None:
        """Send an event; a client that is gone misses it."""
        if self.connected:
            try:
                self._stream.send({"event": event, **facts})
            except BrokenPipeError:
                self.close()
                self._on_left()

    def close(self) -> None:
        """End the dialogue."""
        if self.connected:
            self.connected = False
            self._loop.unwatch(self._stream.fileno())
            self._socket.close()

    def _read(self) -> None:
        for header, _ in self._stream.read_available():
            self._on_order(header)
            if not self.connected:
                return
        if self._stream.ended:
            self.close()
            self._on_left()
