"""From a plan to running workers: prepare every node, then GO, the master first."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from fabric import Connection

from clusterctl.errors import ClusterctlError, StartError
from clusterctl.plans.launch import LaunchPlan, NodePlan
from clusterctl.runs import tasks
from clusterctl.runs.cluster import Cluster
from clusterctl.runs.session import Session
from clusterctl.runs.source import ScanResult
from clusterctl.specs.inventory import Node

CANCEL_LIMIT = 10.0


class Observer(Protocol):
    """Hears of the progress; called from many threads."""

    def arrive(self, phase: str, name: str) -> None:
        """A node is through `start`, `code` or `ready`."""

    def move(self, count: int) -> None:
        """So many bytes of code have left."""


@dataclass(frozen=True)
class Ready:
    """A node that waits for GO: its leash, its stream of events and logs, and on the master the port it holds."""

    leash: Session
    stream: Session
    port: int | None
    torch: str


@dataclass(frozen=True)
class Freight:
    """What the nodes receive: each its own spec, all the same code and secrets."""

    specs: Mapping[str, Mapping[str, Any]]
    scan: ScanResult
    secrets: Mapping[str, str]


def prepare_all(
    cluster: Cluster,
    plan: LaunchPlan,
    interpreters: Mapping[str, tasks.Interpreter],
    freight: Freight,
    observer: Observer,
) -> dict[str, Ready]:
    """Bring all nodes to the gate at once; the first failure, or Ctrl-C, cancels what was prepared everywhere."""
    plans = {node.name: node for node in plan.nodes}
    ready: dict[str, Ready] = {}

    def work(c: Connection, node: Node) -> Ready:
        return prepare(c, plans[node.name], interpreters[node.name], freight, observer)

    try:
        for outcome in cluster.each([node.member.node for node in plan.nodes], work):
            if outcome.error is not None:
                raise outcome.error
            if outcome.value is not None:
                ready[outcome.node.name] = outcome.value
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
    """Bring one node to the gate: agent up, code there and proven equal, torchrun imported."""
    spec = freight.specs[node.name]
    run = str(spec["run"])
    leash = tasks.start(c, node.member.node, interpreter, spec, freight.secrets)
    try:
        tasks.await_event(leash, "started", tasks.ANSWER_LIMIT, node=node.name)
        observer.arrive("start", node.name)
        tasks.sync(c, node.member.node, interpreter, run, node.member.node_rank, freight.scan, observer.move)
        observer.arrive("code", node.name)
        stream = tasks.follow(c, node.member.node, interpreter, run, _FOLLOW_ALL)
        seen = tasks.await_event(leash, "ready", tasks.READY_LIMIT, node=node.name)
    except BaseException:
        cancel(leash)
        raise
    observer.arrive("ready", node.name)
    return Ready(leash, stream, seen.get("port", {}).get("port"), str(seen["ready"].get("torch", "")))


_FOLLOW_ALL = {
    "events": 0,
    "logs": {"ranks": None, "streams": ["stdout", "stderr"], "offsets": {}},
    "follow": True,
}


def go(plan: LaunchPlan, ready: Mapping[str, Ready]) -> int:
    """Let all start: the master first, and the others once its own torchrun listens. Gives the master port."""
    master, *others = [node.name for node in plan.nodes]
    port = ready[master].port
    if port is None:
        raise StartError("the master named no port", code="CC-RUN-033", node=master)
    _send_go(ready[master], port, "listening", master)
    for name in others:
        ready[name].leash.send({"do": "go", "master_port": port})
    for name in others:
        tasks.await_event(ready[name].leash, "going", tasks.GO_LIMIT, node=name)
    return port


def _send_go(node: Ready, port: int, answer: str, name: str) -> None:
    node.leash.send({"do": "go", "master_port": port})
    tasks.await_event(node.leash, answer, tasks.GO_LIMIT, node=name)


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
