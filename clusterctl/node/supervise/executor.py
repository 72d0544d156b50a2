"""The effects of a run's rules on record, client, gang, timers, logs and locks; decides nothing.

`Client` is the connection to the client that started the run: orders come in, events go out, until GO.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

from ..gang.attempts import make_record, read_policy
from ..lifecycle.ending import on_cleared, on_gang_reported
from ..lifecycle.run import Effects
from ..logs.recorder import LogRecorder
from ..runtime.event_loop import Loop
from ..runtime.stream import Stream
from ..state.locks import NodeLocks
from ..state.run_record import Record
from ..state.workdir import release_disk_reserve
from .attempt import Attempt, Site
from .ranks.progress import OutputProgress

if TYPE_CHECKING:
    from ...protocol.messages.files import AnyJournalFacts, JournalEvent, PartRecord, Spec, StateChange
    from ...protocol.messages.verbs import AnyEventFacts, EventName
    from ..lifecycle.run import Event


WRITE_LIMIT = 300.0  # seconds in which a full disk may become usable again for the last words


class Executor(Effects):
    """What the agent of one run has to do with."""

    processes: Attempt

    def __init__(
        self,
        site: Site,
        spec: Spec,
        client: Client,
        locks: NodeLocks,
    ) -> None:
        self._site = site
        self._loop: Loop = site.loop
        self._record: Record = site.record
        self._spec = spec
        self._client = client
        self._locks = locks
        self._progress: Optional[OutputProgress] = None
        self.processes = Attempt(site, spec)
        limit = int(spec.get("log_limit") or 0)
        self._log_recorder = LogRecorder(site.loop, site.record, limit, self._logs)

    def prepare(self, secrets: Dict[str, str], token: str) -> None:
        """Take what the client has sent, before anything is started."""
        self._site = self._site._replace(secrets=secrets, token=token)
        self.processes = Attempt(self._site, self._spec)

    def _logs(self) -> List[str]:
        return self.processes.logs()

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
        self._loop.after(seconds, name, lambda: self._site.events.post(event))

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
        self.processes = self.processes.replace_by(spec)

    def unlock(self) -> None:
        """Release the locks when the memory is free: what is waited for after that needs no GPU."""
        self.processes.gpu_memory_wait.when_free(lambda: self._locks.on_order("unlock"))

    def leave(self) -> None:
        """End the loop once the last words are written."""
        if not self._record.state["gang_done"]:
            self._record.set({"gang_done": True})
            self._loop.after(WRITE_LIMIT, "give up", self._loop.stop)
            self._site.warm.stay(self._spec)
        release_disk_reserve(self._site.rundir)
        if self._record.flush():
            self.processes.gpu_memory_wait.when_free(self._loop.stop)
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
