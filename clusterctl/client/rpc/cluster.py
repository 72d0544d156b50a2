"""The open connections of one command, one per node, and the same work on many nodes at once.

A failure on one node is the value of its Outcome and hides no other node's.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Protocol, TypeVar, cast

from fabric import Connection

from clusterctl.client.openssh import Masters, OpensshConnection, can_prompt
from clusterctl.client.ssh.bastion import BastionPool
from clusterctl.client.ssh.config import SshConfig
from clusterctl.client.ssh.connect import connect, is_plain
from clusterctl.client.ssh.host_keys import HostKeys
from clusterctl.client.ssh.identities import AskPassphrase, Identities
from clusterctl.client.ssh.route import Hop, Routes
from clusterctl.client.ssh.sockets import is_file_limit_error, raise_file_limit, too_few_files
from clusterctl.client.ssh.timeouts import retry_while_busy
from clusterctl.errors import ClusterctlError, InternalError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

MAX_PARALLEL = 128  # nodes at a time

T = TypeVar("T")


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The end of one node's part; `value` is None when there is an `error`; `seconds` is how long it took."""

    node: Node
    value: T | None
    error: ClusterctlError | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Return whether the node did its part."""
        return self.error is None


@dataclass(frozen=True)
class Answers(Generic[T]):
    """What each node has answered, or why it has not; in the order of the nodes."""

    nodes: Mapping[str, T]
    errors: Mapping[str, ClusterctlError]


def collect(nodes: Sequence[Node], outcomes: Iterable[Outcome[T]]) -> Answers[T]:
    """Wait for all nodes, and sort what became of them."""
    found = {outcome.node.name: outcome for outcome in outcomes}
    ordered = [found[node.name] for node in nodes if node.name in found]
    return Answers(
        {outcome.node.name: outcome.value for outcome in ordered if outcome.value is not None},
        {outcome.node.name: outcome.error for outcome in ordered if outcome.error is not None},
    )


def fan_out(
    nodes: Sequence[Node], function: Callable[[Node], T], *, limit: int = MAX_PARALLEL
) -> Iterator[Outcome[T]]:
    """Call `function` for every node in threads, at most `limit` at a time, and yield outcomes as they come.

    Each node yields exactly one outcome. Closing the iterator (an exception in the caller's loop does so once
    the iterator is let go) keeps nodes that have not begun from beginning. The threads end with the process.
    """
    waiting = deque(nodes)
    outcomes: SimpleQueue[Outcome[T]] = SimpleQueue()
    for index in range(min(len(waiting), max(1, limit))):
        worker = threading.Thread(
            target=_work, args=(waiting, function, outcomes), name=f"node worker {index}", daemon=True
        )
        worker.start()
    return _collect(len(nodes), waiting, outcomes)


def _collect(count: int, waiting: deque[Node], outcomes: SimpleQueue[Outcome[T]]) -> Iterator[Outcome[T]]:
    try:
        for _ in range(count):
            yield INTERRUPTS.get(outcomes)
    finally:
        waiting.clear()


def _work(waiting: deque[Node], function: Callable[[Node], T], outcomes: SimpleQueue[Outcome[T]]) -> None:
    while True:
        try:
            node = waiting.popleft()
        except IndexError:
            return
        outcomes.put(run_on(node, function))


def run_on(node: Node, function: Callable[[Node], T]) -> Outcome[T]:
    """Do something on one node; whatever it raises is its outcome, and ends no thread."""
    began = time.monotonic()
    value: T | None = None
    error: ClusterctlError | None = None
    try:
        value = function(node)
    except ClusterctlError as failure:
        error = failure
    except OSError as failure:
        error = too_few_files(str(failure)) if is_file_limit_error(failure) else _internal(failure)
    except BaseException as failure:  # noqa: BLE001, RUF100 - whatever it is, it must not cost another node its outcome
        error = _internal(failure)
    if error is not None:
        error.node = error.node or node.name
    return Outcome(node, value, error, time.monotonic() - began)


def _internal(failure: BaseException) -> InternalError:
    return InternalError(
        "CC-RUN-001",
        evidence="".join(traceback.format_exception(failure)),
        kind=type(failure).__name__,
        failure=failure,
    )


@dataclass(frozen=True)
class Step:
    """What a node is at, and since when by `time.monotonic`."""

    description: str
    since: float


class Steps:
    """The newest step of every node that has begun; safe to use from many threads."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}

    def set(self, node: str, description: str) -> None:
        """Note what a node is at from now on."""
        self._steps[node] = Step(description, time.monotonic())

    def find(self, node: str) -> Step | None:
        """Return a node's step; None before its first."""
        return self._steps.get(node)


class Observer(Protocol):
    """Receives the progress; called from many threads."""

    def mark_done(self, phase: str, name: str) -> None:
        """A node is through a phase."""

    def set_step(self, name: str, what: str) -> None:
        """A node is at this from now on."""

    def add_bytes(self, name: str, count: int) -> None:
        """So many bytes have left for a node, or come from it."""

    def add_expected(self, count: int) -> None:
        """So many bytes more are missing on a node."""

    def add_taken(self, name: str, count: int) -> None:
        """So many bytes has a node got from another."""


def connection_of(node: Node) -> str:
    """Name the connection of a node: its own, or the one that it shares with other nodes of a Slurm cluster."""
    return node.allocation.connection if node.allocation is not None else node.name


class Cluster:
    """Connects to nodes when they are first needed and closes everything at the end."""

    def __init__(
        self,
        notice: Callable[[str], None],
        *,
        ask_passphrase: AskPassphrase | None = None,
        hostkeys: HostKeys | None = None,
    ) -> None:
        """Open nothing yet; `notice` receives remarks, `ask_passphrase` prompts the user."""
        raise_file_limit(0)
        self._hostkeys = hostkeys or HostKeys(notice)
        self._identities = Identities(ask_passphrase=ask_passphrase)
        self._routes = Routes(SshConfig(notice))
        self._ssh_routes: dict[Node, bool] = {}
        self._bastions = BastionPool(self._connect_hop)
        self._masters = Masters(notice, ask_host_keys=hostkeys is not None)
        self._connections: dict[str, Connection] = {}
        self._pending: dict[str, Future[Connection]] = {}
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
        step: str = "",
        limit: int = MAX_PARALLEL,
        keep: bool = True,
    ) -> Iterator[Outcome[T]]:
        """Do some work on every node at once; outcomes come as they are ready, failures are values.

        `step` is what a node is at meanwhile; at most `limit` nodes are at it at a time. What is not to be kept is
        closed when a node is through, so that thousands do not cost as many threads and open files.
        """
        targets = tuple(nodes)
        self._prepare(targets, keep=keep)

        def run(node: Node) -> T:
            connection = self.connection(node)
            self.steps.set(node.name, step or tr("waiting for its answer"))
            try:
                return work(connection, node)
            finally:
                if not keep and self._is_direct(node):
                    self.forget(node)

        return fan_out(targets, run, limit=limit)

    def open_early(
        self,
        nodes: Iterable[Node],
        *,
        keep: bool = True,
        then: Callable[[Connection, Node], None] = lambda _connection, _node: None,
    ) -> None:
        """Begin to connect while there is other work to do here; failures are raised at the first use.

        Of very many only the first are opened: as many as can be at work at a time. `then` is called in the background
        with each connection.
        """
        targets = tuple(nodes)
        self._prepare(targets, keep=keep)
        first = {connection_of(node): node for node in targets[:MAX_PARALLEL]}
        self._open_in_background([node for name, node in first.items() if name not in self._pending], then)

    def _is_direct(self, node: Node) -> bool:
        """Return whether no bastion is on the way: its sshd may drop the others where one of many tunnels is closed.

        Nodes of a Slurm cluster share their connection: the first that is through must not close it.
        """
        return node.allocation is None and not self._uses_ssh(node) and self._routes.find(node).jump is None

    def _uses_ssh(self, node: Node) -> bool:
        """Return whether the user's ssh enters a node: where the inventory asks for it, and where the way needs it."""
        if node.ssh.transport == "openssh":
            return True
        if node not in self._ssh_routes:
            try:
                hop = self._routes.find(node)
            except ClusterctlError:
                return False  # raised again by whatever connects to it
            self._ssh_routes[node] = not is_plain(hop, self._hostkeys) or any(
                map(self._identities.have_certificate, hop.chain())
            )
        return self._ssh_routes[node]

    def _prepare(self, nodes: Sequence[Node], *, keep: bool = True) -> None:
        """Resolve the routes and prompt for passphrases, while there is one thread and no progress on the screen."""
        with self._lock:
            known = {*self._connections, *self._pending}
        raise_file_limit(len(known.union(map(connection_of, nodes if keep else nodes[:MAX_PARALLEL]))))
        self._routes.prepare([node for node in nodes if node.ssh.transport == "paramiko"])
        self._identities.unlock(self._routes.iter_hops([n for n in nodes if not self._uses_ssh(n)]))
        openssh_nodes = [node for node in nodes if self._uses_ssh(node) and not self._is_known(node)]
        if openssh_nodes and can_prompt():
            # ssh prompts at the terminal: wait until it is done
            first = {connection_of(node): node for node in openssh_nodes}
            deque(self._open_in_background(list(first.values())), maxlen=0)

    def _open_in_background(
        self,
        nodes: Sequence[Node],
        then: Callable[[Connection, Node], None] = lambda _connection, _node: None,
    ) -> Iterator[Outcome[None]]:
        futures: dict[str, Future[Connection]] = {connection_of(node): Future() for node in nodes}
        self._pending.update(futures)

        def open_one(node: Node) -> None:
            future = futures[connection_of(node)]
            self._open_into(node, future)
            if future.exception() is None:
                then(future.result(), node)

        return fan_out(nodes, open_one)

    def _is_known(self, node: Node) -> bool:
        with self._lock:
            return connection_of(node) in self._connections or connection_of(node) in self._pending

    def connection(self, node: Node) -> Connection:
        """Return the node's open connection, making it if there is none or it died."""
        name = connection_of(node)
        cached = self._connections.get(name)
        if cached is not None and cached.is_connected:
            return cached
        with self._lock:
            newer, future = self._connections.get(name), self._pending.get(name)
            if newer is not None and newer is not cached:
                return newer
            if future is None or (future.done() and future.exception() is None):  # what it gave has died
                future = self._pending[name] = Future()
                is_opener = True
            else:
                is_opener = False
        if is_opener:
            INTERRUPTS.call(lambda: self._open_into(node, future))
        return self._await_connection(node, future)

    def open_with_ssh(self, node: Node) -> OpensshConnection:
        """Return a way into a node by the user's ssh, whatever its transport is."""
        if self._uses_ssh(node):
            return cast("OpensshConnection", self.connection(node))
        return INTERRUPTS.call(lambda: self._masters.connect(node))

    def _await_connection(self, node: Node, future: Future[Connection]) -> Connection:
        """Wait for a connection that is being made, for any number of threads; how that ended is reported once."""
        try:
            return INTERRUPTS.result(future)
        finally:
            with self._lock:
                if self._pending.get(connection_of(node)) is future:
                    del self._pending[connection_of(node)]

    def _open_into(self, node: Node, future: Future[Connection]) -> None:
        try:
            future.set_result(self._open(node))
        except BaseException as error:
            future.set_exception(error)

    def _open(self, node: Node) -> Connection:
        before = self.steps.find(node.name)
        fresh = self._connect(node)
        # what it was at goes on; a node whose turn has not come is no longer logging in
        self.steps.set(node.name, before.description if before else tr("waiting for its turn"))
        with self._lock:
            self._connections[connection_of(node)] = fresh
            closed = self._closed
        if closed:
            fresh.close()
        return fresh

    def _connect(self, node: Node) -> Connection:
        if self._uses_ssh(node):
            self.steps.set(node.name, tr("connecting through ssh"))
            return self._masters.connect(node)
        return self._connect_hop(self._routes.find(node))

    def _connect_hop(self, hop: Hop) -> Connection:
        on_step = partial(self.steps.set, hop.name)
        return retry_while_busy(
            lambda: connect(hop, self._hostkeys, self._identities, bastions=self._bastions, on_step=on_step),
            on_busy=lambda: on_step(tr("retrying: its sshd is busy")),
        )

    def forget(self, node: Node) -> None:
        """Close a node's connection, which may look alive and be dead; the next use makes a new one."""
        with self._lock:
            old = self._connections.pop(connection_of(node), None)
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
        self._bastions.close()  # last: they carry the others
