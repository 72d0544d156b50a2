"""The open connections of one command: one per node, made once, used by every step."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from fabric import Connection

from clusterctl.client.openssh import Masters, may_ask
from clusterctl.client.rpc.fanout import MOST, Outcome, Steps, fan_out
from clusterctl.client.ssh.bastion import Gateways
from clusterctl.client.ssh.config import SshConfig
from clusterctl.client.ssh.connect import connect
from clusterctl.client.ssh.host_keys import HostKeys
from clusterctl.client.ssh.identities import Ask, Keyring
from clusterctl.client.ssh.route import Hop, Routes
from clusterctl.client.ssh.sockets import allow_files
from clusterctl.client.ssh.timeouts import insist
from clusterctl.specs.inventory.model import Node

T = TypeVar("T")


class Cluster:
    """Connects to nodes when they are first needed and closes everything at the end."""

    def __init__(
        self,
        notice: Callable[[str], None],
        *,
        remember: Path | None = None,
        ask: Ask | None = None,
        hostkeys: HostKeys | None = None,
    ) -> None:
        """Tell what is worth knowing to `notice`; `remember` is a folder of ours, `ask` asks for passphrases."""
        allow_files(0)
        self._hostkeys = hostkeys or HostKeys(
            lambda new: notice(f"{new.node}: new host key {new.fingerprint} recorded in {new.file}")
        )
        self._keyring = Keyring(ask=ask)
        self._routes = Routes(SshConfig(notice, folder=remember))
        self._gateways = Gateways(self._enter)
        self._masters = Masters(notice)
        self._connections: dict[str, Connection] = {}
        self._early: dict[str, Future[Connection]] = {}
        self.steps = Steps()
        self._closed = False
        self._lock = threading.Lock()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def each(
        self,
        nodes: Iterable[Node],
        work: Callable[[Connection, Node], T],
        *,
        step: str = "answering",
        limit: int = MOST,
        keep: bool = True,
    ) -> Iterator[Outcome[T]]:
        """Do some work on every node at once; outcomes come as they are ready, failures are values.

        `step` is what a node is at meanwhile; at most `limit` nodes are at it at a time. What is not to be kept is
        closed when a node is through, so that thousands do not cost as many threads and open files.
        """
        wanted = tuple(nodes)
        self._prepare(wanted, keep=keep)

        def begin(node: Node) -> T:
            connection = self.connection(node)
            self.steps.note(node.name, step)
            try:
                return work(connection, node)
            finally:
                if not keep and self._leads_straight(node):
                    self.forget(node)

        return fan_out(wanted, begin, limit=limit)

    def open_early(self, nodes: Iterable[Node], *, keep: bool = True) -> None:
        """Begin to connect while there is other work to do here; what comes of it is told at the first use.

        Of very many only the first are opened: as many as can be at work at a time.
        """
        wanted = tuple(nodes)
        self._prepare(wanted, keep=keep)
        self._begin([node for node in wanted[:MOST] if node.name not in self._early])

    def _leads_straight(self, node: Node) -> bool:
        """Tell whether no bastion is on the way: its sshd may drop the others where one of many tunnels is closed."""
        return node.ssh.transport == "paramiko" and self._routes.find(node).jump is None

    def _prepare(self, nodes: Sequence[Node], *, keep: bool = True) -> None:
        """Work out the ways and ask for passphrases, while there is one thread and nothing on the screen moves."""
        with self._lock:
            known = {*self._connections, *self._early}
        allow_files(len(known.union(node.name for node in (nodes if keep else nodes[:MOST]))))
        ours = [node for node in nodes if node.ssh.transport == "paramiko"]
        self._routes.prepare(ours)
        self._keyring.unlock(self._routes.known(ours))
        theirs = [node for node in nodes if node.ssh.transport == "openssh" and not self._holds(node)]
        if theirs and may_ask():
            deque(self._begin(theirs), maxlen=0)  # ssh asks at the terminal: wait until it is done

    def _begin(self, nodes: Sequence[Node]) -> Iterator[Outcome[None]]:
        promises: dict[str, Future[Connection]] = {node.name: Future() for node in nodes}
        self._early.update(promises)
        return fan_out(nodes, lambda node: self._fulfil(node, promises[node.name]))

    def _holds(self, node: Node) -> bool:
        with self._lock:
            return node.name in self._connections or node.name in self._early

    def connection(self, node: Node) -> Connection:
        """Give the node's open connection, making it if there is none or it died."""
        known = self._connections.get(node.name)
        if known is not None and known.is_connected:
            return known
        with self._lock:
            newer, promise = self._connections.get(node.name), self._early.get(node.name)
            if newer is not None and newer is not known:
                return newer
            if promise is None or (promise.done() and promise.exception() is None):  # what it gave has died
                promise = self._early[node.name] = Future()
                mine = True
            else:
                mine = False
        if mine:
            self._fulfil(node, promise)
        return self._take(node, promise)

    def _take(self, node: Node, promise: Future[Connection]) -> Connection:
        """Wait for a connection that is being made, for however many threads; how that ended is told once."""
        try:
            return promise.result()
        finally:
            with self._lock:
                if self._early.get(node.name) is promise:
                    del self._early[node.name]

    def _fulfil(self, node: Node, promise: Future[Connection]) -> None:
        try:
            promise.set_result(self._open(node))
        except BaseException as error:
            promise.set_exception(error)

    def _open(self, node: Node) -> Connection:
        fresh = self._connect(node)
        with self._lock:
            self._connections[node.name] = fresh
            closed = self._closed
        if closed:
            fresh.close()
        return fresh

    def _connect(self, node: Node) -> Connection:
        if node.ssh.transport == "openssh":
            self.steps.note(node.name, "connecting by ssh")
            return self._masters.connect(node)
        return self._enter(self._routes.find(node))

    def _enter(self, hop: Hop) -> Connection:
        at = partial(self.steps.note, hop.name)
        return insist(
            lambda: connect(hop, self._hostkeys, self._keyring, gateways=self._gateways, at=at),
            busy=lambda: at("waiting until its sshd is less busy"),
        )

    def forget(self, node: Node) -> None:
        """Close a node's connection, which may look alive and be dead; the next use makes a new one."""
        with self._lock:
            old = self._connections.pop(node.name, None)
        if old is not None:
            with suppress(Exception):
                old.close()

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            self._closed = True
            connections, self._connections = list(self._connections.values()), {}
        self._masters.close()
        for connection in connections:
            with suppress(Exception):
                connection.close()
        self._gateways.close()  # last: they carry the others
