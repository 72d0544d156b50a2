"""The agent: starts the gate, gives it GO, watches torchrun and its workers, and ends what they leave."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any, Dict, List, NamedTuple, Optional

from .client import Client, tail_of
from .deadline import Deadline
from .ending import Sweep, as_left
from .launcher import make_places
from .listener import Listener
from .loop import Loop
from .processes import Identity, Stat, become_subreaper, identify, reap, wake_on
from .state import Record, new_state, tag_of
from .torchrun import Torchrun
from .verdict import Seen, describe_end, describe_limit, judge
from .wire import describe_failure
from .workdir import read_json
from .workers import Worker

FAILURE_WAIT = 1.0  # seconds that the other workers have after one has failed
PORT_TRIES = 3  # ports that torchrun may find taken by somebody else before the run fails
GO_LIMIT = 3600.0  # seconds that a ready gate waits
WRITE_LIMIT = 300.0  # seconds in which a full disk may become usable again for the last words


class Wires(NamedTuple):
    """The agent's descriptors: the client's socket, the guardian's orders, and beats for the guardian."""

    control: int
    orders: int
    beats: int


class Agent:
    """The life of one run on this node, from the client's first frame to the final state."""

    def __init__(self, rundir: str, spec: Dict[str, Any], wires: Wires, interval: float) -> None:
        self.rundir = rundir
        self.spec = spec
        self.wires = wires
        self.interval = interval
        self.loop = Loop()
        self.client = Client(self.loop, wires.control, self.obey, self.client_left)
        self.record = Record(rundir, new_state(spec))
        self.sweep = Sweep(tag_of(spec))
        self.deadline = Deadline(self.loop, self.sweep, self.torchrun_pid, self.finish)
        world_size = spec["world_size"] if spec["module"] else None
        self.seen = Seen(went=False, processes=spec["processes"], world_size=world_size)
        self.torchrun: Optional[Torchrun] = None
        self.listener: Optional[Listener] = None
        self.ready = False
        self.go_port: Optional[int] = None
        self.ports_tried = 0
        self.secrets: Dict[str, str] = {}

    def run(self, guardian: Identity) -> None:
        """Serve until everything of the run has ended and is recorded."""
        become_subreaper()
        os.set_blocking(self.wires.beats, False)
        wakeup = wake_on(signal.SIGTERM, signal.SIGCHLD)
        self.loop.watch(wakeup, lambda: self.wake(os.read(wakeup, 512)))
        self.loop.watch(self.wires.orders, self.hear_guardian)
        me = identify(os.getpid())
        self.record.set(state="PREPARING", guardian=guardian.as_dict(), agent=me.as_dict())
        self.record.note("preparing")
        self.loop.after(GO_LIMIT, "go", lambda: self.cancel("no GO came"))
        self.beat()
        self.loop.run()

    def torchrun_pid(self) -> Optional[int]:
        """Return the gate's or torchrun's pid while it has not ended."""
        return self.torchrun.pid if self.torchrun is not None else None

    # what arrives

    def obey(self, order: Dict[str, Any]) -> None:
        """Take one frame of the client."""
        if "secrets" in order and self.torchrun is None:
            self.prepare(order["secrets"])
        elif order.get("do") == "go":
            self.go_port = int(order["master_port"])
            self.go_if_ready()
        elif order.get("do") == "cancel":
            self.cancel(order.get("reason") or "cancelled before the start")

    def client_left(self) -> None:
        """Cancel unless GO was given."""
        if not self.seen.went:
            self.cancel("the client left before GO")

    def hear_guardian(self) -> None:
        """Pass on a stop; end everything at once if the guardian is gone."""
        if os.read(self.wires.orders, 64):
            self.stop()
            return
        self.loop.forget(self.wires.orders)
        self.seen = self.seen._replace(lost="the guardian was killed")
        self.record.note("guardian_lost")
        self.deadline.now()

    def wake(self, numbers: bytes) -> None:
        """Serve signals."""
        if signal.SIGTERM in numbers:
            self.stop()
        for pid, status in reap():
            if self.torchrun is not None:
                self.torchrun.reaped(pid, status)

    def beat(self) -> None:
        """Tell the guardian that we are alive, and write what a full disk refused."""
        self.loop.after(self.interval, "beat", self.beat)
        with suppress(OSError):
            os.write(self.wires.beats, b".")
        self.record.flush()

    # the way to GO

    def prepare(self, secrets: Dict[str, str]) -> None:
        """Start the gate, and on node 0 hold a port."""
        self.secrets = secrets
        if self.start_gate() and self.torchrun is not None:
            self.client.tell("started", **(self.torchrun.as_dict() or {}))
            if self.listener is not None:
                self.client.tell("port", port=self.listener.port)

    def start_gate(self) -> bool:
        """Start a gate, and on node 0 hold a port; a failure is told, and ends the run."""
        self.ready = False
        try:
            self.torchrun = Torchrun(self.loop, self.spec, make_places(self.rundir, self.spec), self.hear)
            if self.spec["node_rank"] == 0:
                self.listener = Listener(self.loop, self.spec["ports"])
            self.torchrun.start(os.environ, self.secrets)
        except Exception as error:  # noqa: BLE001, RUF100 - the client is to hear of whatever it is
            failure = describe_failure(error)
            self.fail_setup(failure["message"], failure["traceback"] or failure["message"], failure["code"])
            return False
        self.record.set(torchrun=self.torchrun.as_dict())
        return True

    def fail_setup(self, reason: str, text: str, code: str = "") -> None:
        """Say why there will be no run."""
        self.seen = self.seen._replace(gate_failed=reason)
        self.record.note("gate_failed", text=text, code=code)
        self.client.tell("gate_failed", text=text, code=code)
        self.deadline.now()

    def hear(self, event: str, **facts: Any) -> None:
        """Take what torchrun and its workers do."""
        if event == "rank_exited":
            self.rank_exited(facts["worker"])
        elif event == "torchrun_exited":
            self.torchrun_exited()
        elif event == "workers":
            self.record_workers()
            self.record.note("workers", ranks=sorted(self.workers()))
        elif event == "ready":
            self.ready = True
            self.record.note("ready", **facts)
            self.client.tell("ready", **facts)
            self.go_if_ready()

    def go_if_ready(self) -> None:
        """Let the gate become torchrun, once."""
        if self.go_port is None or not self.ready or self.torchrun is None or self.seen.went:
            return
        self.seen = self.seen._replace(went=True)
        self.loop.drop("go")
        if self.listener is not None and not self.spec["module"]:
            self.listener.finish()  # the program may bind the port in a way that allows no other holder
            self.listener = None
        self.torchrun.go(self.go_port)
        master = f"{self.spec['master_addr']}:{self.go_port}"
        self.record.set(state="RUNNING", master=master)
        self.record.note("going", master=master)
        self.client.tell("going")
        if self.listener is None:
            self.count_time()
            self.client.close()
        elif self.torchrun.pid is not None:
            self.listener.wait_for(self.torchrun.pid, self.go_port, self.tell_listening)

    def tell_listening(self, listens: bool) -> None:
        """Tell the client what became of the master port; it has no more to wait for."""
        self.count_time()
        if listens:
            self.record.note("listening", port=self.go_port)
            self.client.tell("listening", port=self.go_port)
        else:
            text = tail_of(self.torchrun.log) if self.torchrun is not None else ""
            self.client.tell("failed", text=text, port_taken="EADDRINUSE" in text)
        self.client.close()

    def count_time(self) -> None:
        """Begin the job's time limit: node 0 once torchrun listens there, for that is when the others get GO."""
        self.record.set(began=time.time())
        if self.spec.get("time_limit"):
            self.loop.after(self.spec["time_limit"], "time limit", self.reach_limit)

    def take_another_port(self) -> bool:
        """Start anew if somebody took the master port between our holding it and torchrun's use of it.

        The other nodes have not been let go yet, so nobody has heard of the port.
        """
        listener, torchrun = self.listener, self.torchrun
        if listener is None or torchrun is None or not listener.waiting or self.workers():
            return False
        first = self.seen.first_failure or self.seen.cancelled or self.seen.lost
        if first or self.ports_tried >= PORT_TRIES or "EADDRINUSE" not in tail_of(torchrun.log):
            return False
        listener.finish()
        self.ports_tried += 1
        self.record.note("port_taken", port=self.go_port)
        self.seen = self.seen._replace(went=False)
        self.record.set(state="PREPARING")
        if self.start_gate():
            self.go_port = self.listener.port if self.listener is not None else None
        return True

    # what torchrun and its workers do

    def workers(self) -> Dict[int, Worker]:
        """Return the workers announced so far."""
        return self.torchrun.workers.by_rank if self.torchrun is not None else {}

    def record_workers(self) -> None:
        """Write ranks, pids and ends down."""
        sizes = {worker.world_size for worker in self.workers().values()}
        unplanned = sizes - {self.spec["world_size"]}
        seen = next(iter(unplanned or sizes), None)
        ranks = {str(rank): worker.as_dict() for rank, worker in sorted(self.workers().items())}
        self.record.set(ranks=ranks, world_size_seen=seen)

    def rank_exited(self, worker: Worker) -> None:
        """Record a worker's end; the others do not wait long for torchrun after a failure."""
        end = {"exit": worker.exit, "signal": worker.signal}
        self.record.note("rank_exited", rank=worker.rank, pid=worker.identity.pid, **end)
        self.record_workers()
        if worker.failed:
            self.fail(worker.describe())

    def fail(self, reason: str) -> None:
        """Take the first failure as the cause, unless we were stopping anyway, and hurry the rest."""
        if self.seen.first_failure is None and self.seen.cancelled is None and self.seen.lost is None:
            self.seen = self.seen._replace(first_failure=reason)
            self.deadline.within(FAILURE_WAIT)

    def torchrun_exited(self) -> None:
        """Go on to what it left behind."""
        assert self.torchrun is not None
        if self.take_another_port():
            return
        end, number = self.torchrun.exit, self.torchrun.signal
        self.seen = self.seen._replace(exit=end, signal=number)
        self.record.set(torchrun=self.torchrun.as_dict())
        if self.seen.went:
            self.record.note("torchrun_exited", exit=end, signal=number)
            if end != 0:
                unseen = self.torchrun.conclude()
                self.fail(unseen[0].describe() if unseen else f"torchrun {describe_end(end, number)}")
        elif self.seen.cancelled is None and self.seen.lost is None:
            text = self.torchrun.failure or tail_of(self.torchrun.log)
            how = f"{self.spec['python']} {describe_end(end, number)} before it was ready"
            self.fail_setup(text.strip().rpartition("\n")[2] or how, text or how)
        if self.listener is not None and self.listener.waiting:
            self.listener.finish()
            self.tell_listening(end == 0)
        self.deadline.look()

    # the end

    def cancel(self, reason: str) -> None:
        """End everything at once."""
        if self.seen.cancelled is None:
            self.seen = self.seen._replace(cancelled=reason)
            self.record.note("stopping", reason=reason, grace=0)
        self.deadline.now()

    def stop(self) -> None:
        """End the run as a person asked for."""
        wish = read_json(os.path.join(self.rundir, "stop.json")) or {}
        reason = str(wish.get("reason") or "stopped")
        if not self.seen.went:
            self.cancel(reason)
        else:
            self.ask_to_end(reason, float(self.spec["grace"] if wish.get("grace") is None else wish["grace"]))

    def reach_limit(self) -> None:
        """End the run because its time is up, unless it is ending already."""
        if self.seen.cancelled is None and self.seen.first_failure is None:
            self.seen = self.seen._replace(timed_out=True)
            self.ask_to_end(describe_limit(self.spec["time_limit"]), float(self.spec["grace"]))

    def ask_to_end(self, reason: str, grace: float) -> None:
        """Send SIGTERM to torchrun once and set the time of the end; later ones can only bring it closer."""
        torchrun = self.torchrun.stat() if self.torchrun is not None else None
        if torchrun is not None:
            self.seen = self.seen._replace(cancelled=self.seen.cancelled or reason)
            self.record.note("stopping", reason=reason, grace=grace)
            if self.seen.first_failure is None:
                self.sweep.ask([torchrun])
            self.deadline.within(grace)

    def finish(self, rest: List[Stat]) -> None:
        """Decide, record, tell, and go as soon as the disk has taken it."""
        if self.torchrun is not None:
            self.torchrun.conclude()
            self.record_workers()
        worlds = {rank: worker.world_size for rank, worker in self.workers().items()}
        state, reason = judge(self.seen._replace(worlds=worlds))
        left, ended = as_left(rest), self.sweep.account()
        self.record.note("ended", state=state, reason=reason, ended=ended, left=left)
        self.record.set(state=state, reason=reason, left=left)
        self.client.tell("ended", state=state, reason=reason)
        self.client.close()
        self.loop.after(WRITE_LIMIT, "give up", self.loop.stop)
        self.leave()

    def leave(self) -> None:
        """End the loop once the last words are written."""
        if self.record.flush():
            self.loop.stop()
        else:
            self.loop.after(1.0, "leave", self.leave)
