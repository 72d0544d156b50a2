"""All nodes to the gate, then GO."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from fabric import Connection

from clusterctl.client.launch.locks import Claim, Manners, heard, is_settled, refuse
from clusterctl.client.launch.setup import Supply, describe_step, needs_setup, refuse_mixed
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.fanout import MOST
from clusterctl.client.rpc.session import Session
from clusterctl.client.rpc.tasks import end_run
from clusterctl.client.sync.distribute import Passing, Turns
from clusterctl.client.sync.scan import ScanResult
from clusterctl.errors import ClusterctlError, NodeError, StartError
from clusterctl.plans.facts.records import Holder
from clusterctl.plans.launch.plan import LaunchPlan, NodePlan
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node

MEETING_LIMIT = 330.0  # seconds; node 0 itself fails before that

Door = tuple[int, str, int]  # an agent's seat, its address, and the port at which it can be met


class Meeting:
    """One port, known once node 0 has its hub; or the reason why there will be none.

    Where the run may start again every agent has a door, so that another one can lead when node 0 is lost.
    """

    def __init__(self) -> None:
        self._port: Future[int] = Future()
        self._all: Future[list[Door]] = Future()
        self._doors: list[Door] = []
        self._lock = threading.Lock()

    def open(self, port: int) -> None:
        """Tell the port."""
        with self._lock:
            if not self._port.done():
                self._port.set_result(port)

    def add_door(self, door: Door, seats: int) -> None:
        """Tell of one agent's door; all are known when there are as many as seats."""
        with self._lock:
            self._doors.append(door)
            if len(self._doors) == seats and not self._all.done():
                self._all.set_result(sorted(self._doors))

    def fail(self, error: BaseException) -> None:
        """A node did not come up: nobody need wait for it."""
        with self._lock:
            for future in (self._port, self._all):
                if not future.done():
                    future.set_exception(error)

    def port(self) -> int:
        """Wait for the port; raises what node 0 failed with."""
        return self._port.result(MEETING_LIMIT)

    def doors(self) -> list[Door]:
        """Wait for all doors; raises what a node failed with."""
        return self._all.result(MEETING_LIMIT)


CANCEL_LIMIT = 10.0
NOTHING = Untrusted({})


class Observer(Protocol):
    """Hears of the progress; called from many threads."""

    def arrive(self, phase: str, name: str) -> None:
        """A node is through `start`, `setup`, `code` or `ready`."""

    def note(self, name: str, what: str) -> None:
        """A node is at this from now on."""

    def move(self, name: str, count: int) -> None:
        """So many bytes of code have left for a node."""


@dataclass(frozen=True)
class Ready:
    """A node that waits for GO: its leash, on the master the port it holds, and who was in the way.

    A spare has no torch until it is needed.
    """

    leash: Session
    port: int | None
    torch: str
    busy: tuple[Holder, ...] = ()


@dataclass(frozen=True)
class Freight:
    """What the nodes receive: each its own spec, all the same code and secrets."""

    specs: Mapping[str, Mapping[str, Any]]
    scan: ScanResult
    secrets: Mapping[str, str]
    token: str = ""
    turns: Turns = field(default_factory=Turns)
    passing: Passing | None = None
    manners: Manners = field(default_factory=Manners)
    meeting: Meeting = field(default_factory=Meeting)
    supply: Supply | None = None


def prepare_all(
    cluster: Cluster,
    plan: LaunchPlan,
    interpreters: Mapping[str, tasks.Interpreter],
    freight: Freight,
    observer: Observer,
) -> dict[str, Ready]:
    """Bring all nodes to the gate at once; the first failure, or Ctrl-C, cancels what was prepared everywhere."""
    plans = {node.name: node for node in plan.seats}
    ready: dict[str, Ready] = {}
    # Where every agent has a door nobody is through before all have come.
    limit = len(plans) if any(map(has_doors, freight.specs.values())) else MOST

    def work(c: Connection, node: Node) -> Ready:
        return prepare(c, plans[node.name], interpreters[node.name], freight, observer)

    try:
        try:
            nodes = [node.member.node for node in plan.seats]
            for outcome in cluster.each(nodes, work, step="starting its agent", limit=limit):
                if outcome.error is not None:
                    raise outcome.error
                if outcome.value is not None:
                    ready[outcome.node.name] = outcome.value
        finally:
            for passing in (freight.passing, freight.supply.passing if freight.supply else None):
                if passing is not None:
                    passing.close()
        if freight.supply is not None:
            refuse_mixed({name: node.torch for name, node in ready.items() if node.torch})
        leashes = {name: node.leash for name, node in ready.items()}
        found = {name: node.busy for name, node in ready.items() if node.busy}
        Claim(leashes, freight.specs, freight.manners).settle(found)
    except BaseException:
        cancel_all(ready)
        raise
    return ready


def cancel_all(ready: Mapping[str, Ready]) -> None:
    """End what was prepared; nodes that are still on their way cancel when their connection closes."""
    leashes = [threading.Thread(target=cancel, args=(node.leash,), daemon=True) for node in ready.values()]
    for leash in leashes:
        leash.start()
    for leash in leashes:
        leash.join(CANCEL_LIMIT)


def prepare(
    c: Connection, node: NodePlan, interpreter: tasks.Interpreter, freight: Freight, observer: Observer
) -> Ready:
    """Bring one node to the gate: agent up, code there and proven equal, torchrun imported, unless it is a spare."""
    spec = freight.specs[node.name]
    run = str(spec["run"])
    seat = node.member.node_rank
    leash = tasks.start(c, node.member.node, interpreter, spec, freight.secrets, freight.token)
    try:
        seen = tasks.await_event(leash, "started", tasks.ANSWER_LIMIT, node=node.name)
        place, busy = seen.get("workdir", NOTHING).text("id", 64), heard(seen)
        if not freight.manners.wait and any(map(is_settled, busy)):
            raise refuse({node.name: busy}, freight.specs)
        observer.arrive("start", node.name)
        if "hub" in seen:
            freight.meeting.open(_port(seen["hub"], node.name))
        if "door" in seen:
            freight.meeting.add_door((seat, str(node.ip), _port(seen["door"], node.name)), len(freight.specs))
        makes = freight.supply is not None and needs_setup(seen)
        if freight.supply is not None and makes:
            observer.note(node.name, "taking the files of its setup")
            with freight.turns.take(place):
                move = partial(observer.move, node.name)
                freight.supply.send(c, node.member.node, interpreter, seat, leash, move)
        observer.note(node.name, "taking the code")
        with freight.turns.take(place):
            tasks.sync(
                c,
                node.member.node,
                interpreter,
                run,
                seat,
                freight.scan,
                partial(observer.move, node.name),
                passing=freight.passing,
            )
        observer.arrive("code", node.name)
        observer.note(node.name, "getting ready")
        seen = _await_ready(leash, node, freight, observer, makes=makes)
    except BaseException as error:
        if seat == 0 or has_doors(spec):
            freight.meeting.fail(error)
        cancel(leash)
        raise
    observer.arrive("ready", node.name)
    torch, port = seen.get("ready", NOTHING).text("torch", 40), seen.get("port", NOTHING)
    return Ready(leash, port.integer("port", 1, 65535), torch, busy)


def _port(said: Untrusted, node: str) -> int:
    """Read the port that an agent listens on."""
    port = said.integer("port", 1, 65535)
    if port is None:
        raise NodeError("the node named no port", code="CC-RUN-035", node=node)
    return port


def _await_ready(
    leash: Session, node: NodePlan, freight: Freight, observer: Observer, *, makes: bool
) -> dict[str, Untrusted]:
    """Wait for the gate, and where there is a gang, send the node to its hub meanwhile.

    A node that `makes` its environment has no gate before it is done.
    """
    spec, first = freight.specs[node.name], node.member.node_rank == 0
    doors = {"doors": freight.meeting.doors()} if has_doors(spec) else {}
    seen: dict[str, Untrusted] = {}
    if spec.get("gang") and not first:
        leash.send({"do": "join", "port": freight.meeting.port(), **doors})
        seen = tasks.await_event(leash, "joined", tasks.ANSWER_LIMIT, node=node.name)
    elif doors:
        leash.send({"do": "doors", **doors})
    doing = _show_steps(node.name, freight, observer)
    if freight.supply is not None:
        if makes and "environment" not in seen:
            limit = 2 * freight.supply.time_limit + tasks.ANSWER_LIMIT  # it may wait for another's to fail
            seen |= tasks.await_event(leash, "environment", limit, node=node.name, doing=doing)
        freight.supply.made[node.name] = makes
        observer.arrive("setup", node.name)
    limit = tasks.READY_LIMIT
    if spec.get("before") and not node.member.spare:
        limit += float(spec["before"]["time_limit"])
        leash.send({"do": "before"})
    if "ready" not in seen and not node.member.spare:
        seen |= tasks.await_event(leash, "ready", limit, node=node.name, doing=doing)
    return seen


def _show_steps(name: str, freight: Freight, observer: Observer) -> Callable[[str], None]:
    return lambda text: observer.note(name, describe_step(text, freight.secrets))


def has_doors(spec: Mapping[str, Any]) -> bool:
    """Tell whether every agent of a run opens a door of its own, since any of them may have to lead."""
    return bool(spec.get("gang") and spec.get("restart"))


def go(
    cluster: Cluster,
    plan: LaunchPlan,
    interpreters: Mapping[str, tasks.Interpreter],
    ready: Mapping[str, Ready],
) -> int:
    """Let all start: the master first, and the others once its own torchrun listens. Gives the master port.

    Where the job starts its workers itself nobody knows what will listen, or when: all start at once.

    Whatever goes wrong in between ends the run on every node, started or not.
    """
    try:
        return _give_go(plan, ready)
    except BaseException as error:
        cancel_all(ready)
        nodes = [node.member.node for node in plan.seats]
        end_run(cluster, nodes, interpreters, plan.run_id, describe_break(error))
        raise


def describe_break(error: BaseException) -> str:
    """Say why not all nodes have started."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted before all nodes had started"
    return "the start failed half-way"


def _give_go(plan: LaunchPlan, ready: Mapping[str, Ready]) -> int:
    master, *others = [node.name for node in plan.nodes]
    port = ready[master].port
    if port is None:
        raise StartError("the master named no port", code="CC-RUN-033", node=master)
    if plan.job.one_process:
        others = [master, *others]
    else:
        ready[master].leash.send({"do": "go", "master_port": port})
        seen = tasks.await_event(ready[master].leash, "listening", tasks.GO_LIMIT, node=master)
        port = (
            seen["listening"].integer("port", 1, 65535) or port
        )  # another one, if the first was taken meanwhile
    others += [node.name for node in plan.spares]  # which are only told that it has begun
    for name in others:
        ready[name].leash.send({"do": "go", "master_port": port})
    for name in (
        others
    ):  # a program that fails at once may have ended the run before a slow node hears of its beginning
        tasks.await_event(
            ready[name].leash, "going", tasks.GO_LIMIT, node=name, or_ended=plan.job.one_process
        )
    return port


def release(ready: Iterable[Ready]) -> None:
    """Let go of the leashes; after GO the runs need them no more."""
    for node in ready:
        node.leash.close()


def cancel(leash: Session) -> None:
    """End what was prepared on a node and wait until it says so; a dead connection cancels by itself."""
    try:
        leash.send({"do": "cancel"})
        tasks.await_event(leash, "ended", CANCEL_LIMIT, node="")
    except ClusterctlError:
        pass
    finally:
        leash.close()
