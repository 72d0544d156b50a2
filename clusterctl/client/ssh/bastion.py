"""One connection for each bastion, tunnels through it, and the error of a node whose bastion cannot be used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import paramiko
from fabric import Connection

from clusterctl.client.ssh.route import Hop
from clusterctl.client.ssh.sockets import FIRST_BYTES_KEPT, SshSocket
from clusterctl.client.ssh.transport import Transport
from clusterctl.errors import ClusterctlError, ConnectError, ConnectTimeout, ServerBusy, Unreachable
from clusterctl.specs.text import command_line
from clusterctl.translation import tr


class TunnelSocket:
    """The byte stream to one node through a bastion, as a Line is one of its own."""

    def __init__(self, channel: paramiko.Channel, *, node: str, bastion: str) -> None:
        self.node = node
        self.bastion = bastion
        self.first_bytes = b""
        self._channel = channel
        self._closed = False  # paramiko looks at it

    def recv(self, size: int) -> bytes:
        """Receive, and remember how the conversation began."""
        data = self._channel.recv(size)
        if len(self.first_bytes) < FIRST_BYTES_KEPT:
            self.first_bytes += data[:FIRST_BYTES_KEPT]
        return data

    def send(self, data: bytes) -> int:
        """Send what the node has room for."""
        return self._channel.send(data)

    def settimeout(self, seconds: float | None) -> None:
        """Limit how long the others wait."""
        self._channel.settimeout(seconds)

    def getpeername(self) -> object:
        """Return where the bastion is."""
        return self._channel.getpeername()

    def abort(self) -> None:
        """End the stream, from any thread, at once for every thread that waits in it.

        Closing the channel takes a thread of its own: it may not be listening, and the caller may be the one
        thread that all time limits hang on.
        """
        threading.Thread(target=self._close_channel, name="hanging up", daemon=True).start()

    def close(self) -> None:
        """End the stream."""
        self._closed = True
        self.abort()

    def describe_end(self) -> str:
        """Describe whether it was the bastion that went."""
        transport = self._channel.get_transport()
        if transport.is_active():
            return ""
        disconnect_message = getattr(transport, "disconnect_message", "")
        if not disconnect_message:
            return tr("the connection to the bastion {bastion} ended", bastion=self.bastion)
        return tr(
            "the connection to the bastion {bastion} ended: {reason}",
            bastion=self.bastion,
            reason=disconnect_message,
        )

    def _close_channel(self) -> None:
        with suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()


AnySocket = SshSocket | TunnelSocket


PROHIBITED = 1  # RFC 4254, 5.1
# seconds for which a bastion's failure counts for further nodes without another try
FAILURE_CACHE_SECONDS = 10.0
PING = "keepalive@openssh.com"
PING_LIMIT = 3.0
RESOLVE_ERRORS = ("not known", "resolve", "No address", "failure in name resolution")
OpenConnection = Callable[[Hop], Connection]


class _Connected(Protocol):
    @property
    def is_connected(self) -> bool: ...

    def close(self) -> None: ...


K = TypeVar("K")
T = TypeVar("T", bound=_Connected)


@dataclass
class _SharedState(Generic[T]):
    """One connection, or how the last try to open it ended."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: T | None = None
    failure: ClusterctlError | None = None
    failed_at: float = 0.0


class SharedConnections(Generic[K, T]):
    """Connections that many nodes use, each opened by the first; a failure counts for all for a while.

    Safe to use from many threads.
    """

    def __init__(self) -> None:
        self._states: dict[K, _SharedState[T]] = {}
        self._lock = threading.Lock()

    def find(self, key: K, open_connection: Callable[[], T]) -> T:
        """Return an open connection; raises the error of the try that failed a moment ago, or of a new one."""
        with self._lock:
            state = self._states.setdefault(key, _SharedState())
        with state.lock:
            if state.connection is not None and state.connection.is_connected:
                return state.connection
            if state.failure is not None and time.monotonic() - state.failed_at <= FAILURE_CACHE_SECONDS:
                raise state.failure
            try:
                state.connection = open_connection()
            except ClusterctlError as error:
                state.failure, state.failed_at = error, time.monotonic()
                raise
            state.failure = None
            return state.connection

    def clear_failures(self) -> None:
        """Try those again that failed: what was wrong has been seen to."""
        with self._lock:
            for state in self._states.values():
                state.failure = None

    def close(self) -> None:
        """Close all."""
        with self._lock:
            states, self._states = self._states, {}
        for state in states.values():
            if state.connection is not None:
                with suppress(Exception):
                    state.connection.close()


class BastionPool:
    """Opens bastions when the first node needs them. Safe to use from many threads."""

    def __init__(self, open_connection: OpenConnection) -> None:
        self._open = open_connection
        self._connections: SharedConnections[Hop, Connection] = SharedConnections()
        self.clear_failures, self.close = self._connections.clear_failures, self._connections.close

    def open_tunnel(self, hop: Hop, limit: float) -> TunnelSocket:
        """Connect to a server through the bastion before it, within `limit` seconds."""
        bastion = hop.jump
        if bastion is None:
            raise ValueError(f"{hop.name} has no bastion")
        transport = self._transport_to(bastion, hop.name)
        try:
            channel = transport.open_channel(
                "direct-tcpip", (hop.host, hop.port), ("127.0.0.1", 0), timeout=limit
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._explain(hop, bastion, transport, error, limit) from error
        return TunnelSocket(channel, node=hop.name, bastion=bastion.bastion)

    def _transport_to(self, bastion: Hop, node: str) -> Transport:
        shared = replace(bastion, name=bastion.bastion)
        try:
            # however it is written, and for whatever node
            connection = self._connections.find(
                replace(bastion, name="", bastion=""), lambda: self._open(shared)
            )
        except ClusterctlError as error:
            raise bastion_error(bastion.bastion, bastion.address, node, error) from error
        transport: Transport = connection.transport
        return transport

    def _explain(
        self, hop: Hop, bastion: Hop, transport: Transport, error: Exception, limit: float
    ) -> ConnectError:
        refusal = transport.pop_refusal()
        if refusal is not None:
            return _tunnel_refused(hop, bastion, *refusal)
        if transport.is_active() and _responds(transport):
            return ConnectTimeout(
                "CC-SSH-004",
                "tunnel",
                node=hop.name,
                bastion=bastion.bastion,
                address=hop.address,
                limit=limit,
            )
        transport.close()
        return Unreachable(
            "CC-SSH-018",
            "ended",
            node=hop.name,
            evidence=transport.disconnect_message or str(error),
            bastion=bastion.bastion,
        )


def _responds(transport: paramiko.Transport) -> bool:
    """Distinguish a bastion that is only slow to reach a node from one that no longer answers."""
    responded = threading.Event()

    def ping() -> None:
        with suppress(Exception):
            transport.global_request(PING, wait=True)
            if transport.is_active():
                responded.set()

    threading.Thread(target=ping, name="asking a bastion", daemon=True).start()
    return responded.wait(PING_LIMIT)


def bastion_error(bastion: str, address: str, node: str, error: ClusterctlError) -> ClusterctlError:
    """Report for a node that its bastion cannot be used, with the same text for all nodes."""
    if error.code == "CC-SSH-019":  # a loop, or names that no configuration may hold
        return Unreachable(
            "CC-SSH-019",
            "inner",
            node=node,
            evidence=error.evidence,
            problem=error.message,
            way_out=error.fix,
        )
    inner = error.code == "CC-SSH-018"  # a bastion before this one: that is the one to name
    code_line = "" if inner else tr("{code} at {address}", code=error.code, address=address)
    generic = isinstance(error, ServerBusy) or not isinstance(error, ConnectError)
    kind = Unreachable if generic else type(error)  # a busy bastion has been tried often enough
    return kind(
        "CC-SSH-018",
        "inner" if inner else "",
        node=node,
        evidence="\n".join(filter(None, [code_line, error.evidence])),
        bastion=bastion,
        problem=error.message if inner else _for_bastion(error.message),
        way_out=error.fix if inner else _for_bastion(error.fix),
    )


def _for_bastion(text: str) -> str:
    """Make a text about a node one about a bastion; in either language."""
    return text.replace(tr("the node"), tr("the bastion")).replace(
        tr("`host` and `ssh.port`"), tr("`jump` under `ssh:`")
    )


def _tunnel_refused(hop: Hop, bastion: Hop, reason: int, text: str) -> ConnectError:
    if reason == PROHIBITED:
        return Unreachable(
            "CC-SSH-020", node=hop.name, evidence=text, bastion=bastion.bastion, address=hop.address
        )
    code = (
        "CC-SSH-002"
        if "refused" in text
        else "CC-SSH-001"
        if any(n in text for n in RESOLVE_ERRORS)
        else "CC-SSH-003"
    )
    return Unreachable(
        code,
        "tunnel",
        node=hop.name,
        evidence=f"channel open failure {reason}: {text}",
        bastion=bastion.bastion,
        address=hop.address,
        reason=text or tr("no reason given"),
        command=command_line("ssh", bastion.bastion, "nc", "-v", hop.host, str(hop.port)),
    )
