"""All nodes to the gate, then GO."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fabric import Connection

from clusterctl.client.launch.locks import (
    LockPolicy,
    LockWaiter,
    busy_error,
    parse_lock_holders,
    will_not_yield,
)
from clusterctl.client.launch.setup import SetupUpload, check_same_torch, describe_step, needs_setup
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import MAX_PARALLEL, Cluster, Observer, Outcome
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.rpc.tasks import stop_everywhere
from clusterctl.client.sync.distribution import Distribution
from clusterctl.client.sync.scan import ScanResult
from clusterctl.client.sync.upload import SharedHomeLocks, TreeUpload
from clusterctl.errors import ClusterctlError, NodeError, StartError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.plans.launch.plan import LaunchPlan, NodePlan
from clusterctl.protocol.messages.facts import LockHolder
from clusterctl.protocol.messages.start_steps import StartOrder, has_listeners, list_start_steps
from clusterctl.protocol.ranks import Slot
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import Spec
    from clusterctl.protocol.messages.verbs import EventName, Order

HUB_LIMIT = 330.0  # seconds; node 0 itself fails before that
NO_HUB_CODE = "CC-NET-022"
FAILURE_LIMIT = 5.0  # seconds for node 0's report of the failure that has cost another node its connection

ListenerAddress = tuple[Slot, str, int]  # an agent's slot, its address, and the port at which it can be met


class HubAddress:
    """One port, known once node 0 has its hub; or the reason why there will be none.

    Where the run may start again every agent has a listener, so that another one can be the hub when node 0 is lost.
    """

    def __init__(self) -> None:
        self._port: Future[int] = Future()
        self._failure: Future[BaseException] = Future()  # of the first node that failed by itself
        self._all_listeners: Future[list[ListenerAddress]] = Future()
        self._listeners: list[ListenerAddress] = []
        self._lock = threading.Lock()

    def set_port(self, port: int) -> None:
        """Set the port."""
        with self._lock:
            if not self._port.done():
                self._port.set_result(port)

    def add_listener(self, listener: ListenerAddress, slots: int) -> None:
        """Add one agent's listener; all are known when there are as many as slots."""
        with self._lock:
            self._listeners.append(listener)
            if len(self._listeners) == slots and not self._all_listeners.done():
                self._all_listeners.set_result(sorted(self._listeners))

    def fail(self, error: BaseException) -> None:
        """A node did not come up: stop waiting for it."""
        with self._lock:
            if not self._failure.done() and not is_without_hub(error):
                self._failure.set_result(error)
            for future in (self._port, self._all_listeners):
                if not future.done():
                    future.set_exception(error)

    def find_cause(self, error: BaseException) -> BaseException:
        """Return what made a node fail: for a lost connection to node 0, what node 0 failed with, if it did."""
        if not is_without_hub(error):
            return error
        try:
            return self._failure.result(FAILURE_LIMIT)
        except FutureTimeoutError:  # before Python 3.11 not the built-in one
            return error

    def port(self) -> int:
        """Wait for the port; raises what node 0 failed with."""
        return self._port.result(HUB_LIMIT)

    def listeners(self) -> list[ListenerAddress]:
        """Wait for all listeners; raises what a node failed with."""
        return self._all_listeners.result(HUB_LIMIT)


def is_without_hub(error: BaseException) -> bool:
    """Return whether a node only reports that it cannot connect to node 0."""
    return isinstance(error, ClusterctlError) and error.code == NO_HUB_CODE


CANCEL_LIMIT = 10.0
EMPTY = Untrusted({})


@dataclass(frozen=True)
class Ready:
    """A node that waits for GO: its open session, on the master the port it holds, and the holders of its locks.

    A spare has no torch until it is needed.
    """

    session: Session
    port: int | None
    torch: str
    lock_holders: tuple[LockHolder, ...] = ()


class AbandonedError(Exception):
    """A node's part was given up, because another node has failed; this is never shown."""


@dataclass(frozen=True)
class LaunchInputs:
    """What the nodes receive: each its own spec, all the same code and secrets."""

    specs: Mapping[str, Spec]
    scan: ScanResult
    secrets: Mapping[str, str]
    token: str = ""
    home_locks: SharedHomeLocks = field(default_factory=SharedHomeLocks)
    distribution: Distribution | None = None
    lock_policy: LockPolicy = field(default_factory=LockPolicy)
    hub_address: HubAddress = field(default_factory=HubAddress)
    setup_upload: SetupUpload | None = None
    sessions: dict[str, Session] = field(default_factory=dict)  # of the nodes where an agent was started
    abandoned: threading.Event = field(default_factory=threading.Event)  # another node has failed

    def check_not_abandoned(self) -> None:
        """Raise AbandonedError if nothing is to start any more."""
        if self.abandoned.is_set():
            raise AbandonedError


def prepare_all(
    cluster: Cluster,
    plan: LaunchPlan,
    interpreters: Mapping[str, Interpreter],
    inputs: LaunchInputs,
    observer: Observer,
) -> dict[str, Ready]:
    """Prepare all nodes at once, up to the gate; the first failure, or Ctrl-C, cancels what was prepared everywhere."""
    plans = {node.name: node for node in plan.all_nodes}
    ready: dict[str, Ready] = {}
    # Where every agent has a listener, no node is ready before all have reported theirs.
    limit = len(plans) if any(map(has_listeners, inputs.specs.values())) else MAX_PARALLEL

    in_flight: set[str] = set()

    def prepare_node(c: Connection, node: Node) -> Ready:
        in_flight.add(node.name)  # first: who abandons the launch waits for what is in there
        inputs.check_not_abandoned()
        return prepare(c, plans[node.name], interpreters[node.name], inputs, observer)

    nodes = [node.member.node for node in plan.all_nodes]
    outcomes = cluster.each(nodes, prepare_node, step=tr("starting the agent"), limit=limit)
    try:
        try:
            for outcome in outcomes:
                in_flight.discard(outcome.node.name)
                if outcome.error is not None:
                    raise outcome.error
                if outcome.value is not None:
                    ready[outcome.node.name] = outcome.value
        finally:
            for distribution in (
                inputs.distribution,
                inputs.setup_upload.upload.distribution if inputs.setup_upload else None,
            ):
                if distribution is not None:
                    distribution.close()
        if inputs.setup_upload is not None:
            check_same_torch({name: node.torch for name, node in ready.items() if node.torch})
        sessions = {name: node.session for name, node in ready.items()}
        blocked = {name: node.lock_holders for name, node in ready.items() if node.lock_holders}
        LockWaiter(sessions, inputs.specs, inputs.lock_policy).acquire(blocked)
    except BaseException as error:
        inputs.abandoned.set()
        if isinstance(error, KeyboardInterrupt):  # what is in flight cancels when its connection closes
            cancel_all(ready)
        else:
            inputs.hub_address.fail(error)
            _join_all([partial(cancel_in_flight, inputs.sessions, outcomes, in_flight)], ready)
        raise
    return ready


def cancel_in_flight(
    sessions: Mapping[str, Session], outcomes: Iterator[Outcome[Ready]], in_flight: set[str]
) -> None:
    """End what other nodes were still preparing: an agent that has just begun would outlive the launch for a moment."""
    for session in [session for name, session in list(sessions.items()) if name in in_flight]:
        with suppress(ClusterctlError, OSError):  # its thread gets the end, and closes it
            session.send({"do": "cancel"})
    while in_flight:
        outcome = next(outcomes)
        in_flight.discard(outcome.node.name)
        if outcome.value is not None:
            cancel(outcome.value.session)


def cancel_all(ready: Mapping[str, Ready]) -> None:
    """End what was prepared."""
    _join_all([], ready)


def _join_all(calls: Sequence[Callable[[], None]], ready: Mapping[str, Ready]) -> None:
    """Cancel on all nodes, and do the calls, side by side and for CANCEL_LIMIT seconds at most."""
    targets: list[Callable[[], None]] = [*calls, *(partial(cancel, node.session) for node in ready.values())]
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()

    def join() -> None:
        for thread in threads:
            thread.join(CANCEL_LIMIT)

    INTERRUPTS.call(join)


def prepare(
    c: Connection, node: NodePlan, interpreter: Interpreter, inputs: LaunchInputs, observer: Observer
) -> Ready:
    """Prepare one node up to the gate: agent up, code verified, torchrun imported, unless it is a spare."""
    spec = inputs.specs[node.name]
    run_id = str(spec["run"])
    slot = node.member.slot

    def on_bytes(count: int) -> None:
        inputs.check_not_abandoned()
        observer.add_bytes(node.name, count)

    session = tasks.start(c, node.member.node, interpreter, spec, inputs.secrets, inputs.token)
    inputs.sessions[node.name] = session
    try:
        inputs.check_not_abandoned()
        events = tasks.await_event(session, "started", tasks.ANSWER_LIMIT, node=node.name)
        workdir_id, lock_holders = events.get("workdir", EMPTY).text("id", 64), parse_lock_holders(events)
        if not inputs.lock_policy.wait and any(map(will_not_yield, lock_holders)):
            raise busy_error({node.name: lock_holders}, inputs.specs)
        observer.mark_done("start", node.name)
        if "hub" in events:
            inputs.hub_address.set_port(_parse_port(events["hub"], node.name))
        if "listener" in events:
            inputs.hub_address.add_listener(
                (slot, str(node.ip), _parse_port(events["listener"], node.name)), len(inputs.specs)
            )
        creates_environment = inputs.setup_upload is not None and needs_setup(events)
        if inputs.setup_upload is not None and creates_environment:
            observer.set_step(node.name, tr("receiving the setup files"))
            with inputs.home_locks.acquire(workdir_id):
                inputs.setup_upload.send(c, node.member.node, interpreter, slot, session, on_bytes)
        observer.set_step(node.name, tr("receiving the code"))
        with inputs.home_locks.acquire(workdir_id):
            tasks.sync(
                c,
                node.member.node,
                interpreter,
                run_id,
                slot,
                TreeUpload(inputs.scan, None, inputs.distribution, observer.add_expected, observer.add_taken),
                on_bytes,
            )
        observer.mark_done("code", node.name)
        observer.set_step(node.name, tr("preparing to start"))
        events = _await_ready(session, node, inputs, observer, creates_environment=creates_environment)
    except BaseException as error:
        if node.member.node_rank == 0 or has_listeners(spec):
            inputs.hub_address.fail(error)
        cancel(session)
        cause = inputs.hub_address.find_cause(error)
        if cause is error:
            raise
        raise cause from None
    observer.mark_done("ready", node.name)
    torch, port = events.get("ready", EMPTY).text("torch", 40), events.get("port", EMPTY)
    return Ready(session, port.integer("port", 1, 65535), torch, lock_holders)


def _parse_port(event: Untrusted, node: str) -> int:
    """Read the port that an agent listens on."""
    port = event.integer("port", 1, 65535)
    if port is None:
        raise NodeError("CC-RUN-035", "port", node=node)
    return port


def _await_ready(
    session: Session, node: NodePlan, inputs: LaunchInputs, observer: Observer, *, creates_environment: bool
) -> dict[EventName, Untrusted]:
    """Take the node to its gate, and return what its agent reported on the way."""
    spec, setup_upload = inputs.specs[node.name], inputs.setup_upload
    # an environment may wait for another run's to fail
    setup_limit = 2 * setup_upload.time_limit if setup_upload is not None else 0.0
    before_limit = float(spec["before"]["time_limit"]) if spec.get("before") else 0.0
    limits: dict[str, float] = {
        "joined": tasks.ANSWER_LIMIT,
        "environment": tasks.ANSWER_LIMIT + setup_limit,
        "ready": tasks.READY_LIMIT + before_limit,
    }
    events: dict[EventName, Untrusted] = {}
    is_hub = node.member.node_rank == 0
    if setup_upload is not None:
        setup_upload.created[node.name] = creates_environment
        if not creates_environment:
            observer.mark_done("setup", node.name)
    for order, event in list_start_steps(spec, is_hub=is_hub, makes_environment=creates_environment):
        if order:
            session.send(_make_order(order, spec, inputs.hub_address))
        if event and event not in events:
            events |= tasks.await_event(
                session,
                event,
                limits[event],
                node=node.name,
                on_progress=lambda text: observer.set_step(node.name, describe_step(text, inputs.secrets)),
            )
        if event == "environment":
            observer.mark_done("setup", node.name)
    return events


def _make_order(do: StartOrder, spec: Spec, hub_address: HubAddress) -> Order:
    order: Order = {"do": do}
    if do == "join":
        order["port"] = hub_address.port()
    if do != "before" and has_listeners(spec):
        order["listeners"] = hub_address.listeners()
    return order


def start_workers(
    cluster: Cluster,
    plan: LaunchPlan,
    interpreters: Mapping[str, Interpreter],
    ready: Mapping[str, Ready],
) -> int:
    """Start all, or end the run on every node; return the master port."""
    try:
        return send_go(plan, ready)
    except BaseException as error:
        stop_started(cluster, plan, interpreters, ready, error)
        raise


def stop_started(
    cluster: Cluster,
    plan: LaunchPlan,
    interpreters: Mapping[str, Interpreter],
    ready: Mapping[str, Ready],
    error: BaseException,
) -> Mapping[str, ClusterctlError]:
    """End a run that failed to start with an error on every node, started or not; gives the errors of this."""
    cancel_all(ready)
    nodes = [node.member.node for node in plan.all_nodes]
    run = tasks.RunHandle(cluster, plan.run_id, nodes, interpreters)
    return stop_everywhere(run, describe_start_failure(error))


def describe_start_failure(error: BaseException) -> str:
    """Describe in English, for the nodes' records, why not all of them have started."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted before all nodes had started"
    return "the start failed before all nodes had started"


def send_go(plan: LaunchPlan, ready: Mapping[str, Ready]) -> int:
    """Start all: the master first, and the others once its torchrun listens. Return the master port.

    Where the job starts its workers itself it is unknown what will listen, or when: all start at once.
    """
    master, *others = [node.name for node in plan.nodes]
    port = ready[master].port
    if port is None:
        raise StartError("CC-RUN-033", node=master)
    if plan.job.is_single_process:
        others = [master, *others]
    else:
        ready[master].session.send({"do": "go", "master_port": port})
        events = tasks.await_event(ready[master].session, "listening", tasks.GO_LIMIT, node=master)
        # another one, if the first was taken meanwhile
        port = events["listening"].integer("port", 1, 65535) or port
    others += [node.name for node in plan.spares]  # which are only informed that it has begun
    for name in others:
        ready[name].session.send({"do": "go", "master_port": port})
    # a program that fails at once may have ended the run before a slow node is informed of its beginning
    for name in others:
        tasks.await_event(
            ready[name].session, "go_received", tasks.GO_LIMIT, node=name, or_ended=plan.job.is_single_process
        )
    return port


def close_sessions(ready: Iterable[Ready]) -> None:
    """Close the sessions; after GO the runs need them no more."""
    for node in ready:
        node.session.close()


def cancel(session: Session) -> None:
    """End what was prepared on a node and wait for its confirmation; a dead connection cancels by itself."""
    try:
        session.send({"do": "cancel"})
        tasks.await_event(session, "ended", CANCEL_LIMIT, node="")
    except ClusterctlError:
        pass
    finally:
        session.close()
