"""Connect to one hop: TCP, handshake, host key, login.

What happens between the TCP connection and a usable one: greeting, key exchange, host key, our key.

paramiko calls back at three points: for the transport, for a host key that it does not know (we give it
none, so always), and for the login. Each is also where a step ends and the next one's time begins.

The result is one open, verified connection, or one error.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import paramiko
from fabric import Config, Connection
from paramiko.ssh_exception import IncompatiblePeer

from clusterctl.client.ssh.bastion import AnySocket, BastionPool
from clusterctl.client.ssh.host_keys import HostKeys
from clusterctl.client.ssh.identities import Identities, KeyCandidates
from clusterctl.client.ssh.route import Hop
from clusterctl.client.ssh.sockets import open_lab_tcp, open_tcp
from clusterctl.client.ssh.timeouts import WATCHDOG, Timeouts
from clusterctl.client.ssh.transport import DISABLED_ALGORITHMS, Transport
from clusterctl.errors import (
    AuthenticationFailed,
    ClusterctlError,
    ConnectError,
    ConnectTimeout,
    HostKeyError,
    ServerBusy,
    Unreachable,
)
from clusterctl.plans.facts.untrusted import clean_lines
from clusterctl.plans.ssh import name_lab, render_lab_command
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate, tr

KEY_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
PARAMIKO_LIMIT = 3600.0  # ours are shorter, and name the step


class SshHandshake:
    """One attempt to get into one node."""

    def __init__(
        self,
        hop: Hop,
        *,
        line: AnySocket,
        hostkeys: HostKeys,
        keys: KeyCandidates,
        timeouts: Timeouts,
    ) -> None:
        self.hop = hop
        self.sock = line
        self.hostkeys = hostkeys
        self.keys = keys
        self.timeouts = timeouts
        self.step = "greeting"
        self.limit = timeouts.handshake
        self.transport: Transport | None = None
        self.tried: list[str] = []
        self.on_step: Callable[[str], None] = lambda _: None
        self.alarm = WATCHDOG.set(timeouts.handshake, line.abort)

    def make_transport(
        self, sock: AnySocket, disabled_algorithms: Mapping[str, Sequence[str]] | None = None
    ) -> paramiko.Transport:
        """Build the transport, which requests a host key of a type that is known."""
        socket_like = cast(socket.socket, sock)
        transport = self.transport = Transport(  # type: ignore[no-untyped-call]  # its arguments are paramiko's
            socket_like, disabled_algorithms=disabled_algorithms
        )
        transport.banner_timeout = transport.handshake_timeout = PARAMIKO_LIMIT
        transport.channel_timeout = PARAMIKO_LIMIT
        # an agent that hangs holds up paramiko's own thread
        transport.auth_timeout = self.timeouts.login + 1.0
        options = transport.get_security_options()
        known = [a for name in self.hostkeys.key_types(self.hop) for a in KEY_ALGORITHMS.get(name, (name,))]
        usable = [name for name in known if name in options.key_types]
        options.key_types = [*usable, *(name for name in options.key_types if name not in usable)]
        return transport

    def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002 - paramiko's signature
        """Judge the host key."""
        self.step = "host key"
        self.hostkeys.verify(self.hop, key.get_name(), key.asbytes())

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Show our keys one after the other until one is accepted."""
        self._begin_step("login", self.timeouts.login)
        self.on_step(tr("logging in"))
        for candidate in self.keys:
            self.tried.append(candidate.label)
            try:
                remaining_methods = transport.auth_publickey(self.hop.user, candidate.key)
            except paramiko.BadAuthenticationType as error:
                allowed = ", ".join(error.allowed_types)
                raise self._login_refused(
                    tr("it does not accept keys"), tr("it accepts: {methods}", methods=allowed)
                ) from error
            except paramiko.AuthenticationException:
                if self.alarm.expired or not transport.is_active():
                    raise
                continue
            except paramiko.SSHException as error:
                if self.alarm.expired:
                    raise
                raise self._login_refused(
                    tr("{key} cannot be used", key=candidate.label), str(error)
                ) from error
            if remaining_methods:
                raise self._login_refused(
                    tr("it requires more than a key"),
                    tr("it also requires: {methods}", methods=", ".join(remaining_methods)),
                )
            return
        raise self._login_refused(tr("it accepted none of the keys"), "")

    @property
    def disconnect_message(self) -> str:
        """Return the message with which the server disconnected."""
        return self.transport.disconnect_message if self.transport is not None else ""

    @property
    def greeted(self) -> bool:
        """Return whether an SSH server has sent its version."""
        return self.transport is not None and self.transport.remote_version.startswith("SSH-")

    def stop_clock(self) -> bool:
        """Stop the clock; returns whether a limit was reached."""
        WATCHDOG.cancel(self.alarm)
        return self.alarm.expired

    def _begin_step(self, step: str, limit: float) -> None:
        WATCHDOG.cancel(self.alarm)
        self.step, self.limit = step, limit
        if not self.alarm.expired:
            self.alarm = WATCHDOG.set(limit, self.sock.abort)

    def _login_refused(self, reason: str, detail: str) -> AuthenticationFailed:
        return login_refused(self.hop, reason, [detail, *self.describe_keys()])

    def describe_keys(self) -> list[str]:
        """Describe which keys were tried, and which were not."""
        tried = [tr("tried {key}", key=label) for label in self.tried] or [tr("there was no key to try")]
        return tried + [tr("not tried: {key}", key=note) for note in self.keys.skipped]


def login_refused(hop: Hop, reason: str, evidence: Sequence[str]) -> AuthenticationFailed:
    """Report that a node does not let us in, and what to do."""
    lab = _lab_of(hop)
    options = ["-i", hop.key] if hop.key else []
    options += ["-J", hop.jump.bastion] if hop.jump else []
    options += ["-p", str(hop.port)] if hop.port != 22 else []
    options.append(f"{hop.user}@{hop.host}")
    return AuthenticationFailed(
        "CC-SSH-007",
        node=hop.name,
        evidence="\n".join(line for line in evidence if line),
        server=hop.description,
        user=hop.user,
        reason=reason,
        command=render_lab_command(lab, "ssh", hop.name) if lab else command_line("ssh", *options),
        copy_command=command_line("ssh-copy-id", *options),
    )


MAX_EVIDENCE = 8 << 10  # characters of an error that a server may fill
IDLE_TICK = 5.0  # seconds between looks of paramiko's idle reading thread, 0.1 by default
DEFAULT_TIMEOUTS = Timeouts()
STEP_NAMES: Mapping[str, str] = {
    "greeting": to_translate("greeting"),
    "key exchange": to_translate("key exchange"),
    "host key": to_translate("host key"),
    "login": to_translate("login"),
}
# what sshd sends instead of a greeting
BUSY_GREETINGS = (b"Not allowed at this time", b"Exceeded MaxStartups")


def connect(
    hop: Hop,
    hostkeys: HostKeys,
    identities: Identities,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
    *,
    bastions: BastionPool | None = None,
    handshake_type: Callable[..., SshHandshake] = SshHandshake,
    on_step: Callable[[str], None] = lambda _: None,
) -> Connection:
    """Open a connection to a node or a bastion; raises a ConnectError that names the step and the reason.

    `on_step` receives each step.
    """
    if not is_plain(hop, hostkeys):
        raise ValueError(f"{hop.name} is reached by ssh itself")
    keys = identities.keys_for(hop)
    on_step(tr("connecting through {bastion}", bastion=hop.jump.bastion) if hop.jump else tr("connecting"))
    sock = _open_socket(hop, timeouts, bastions)
    on_step(tr("waiting for its sshd"))
    handshake = handshake_type(hop, line=sock, hostkeys=hostkeys, keys=keys, timeouts=timeouts)
    handshake.on_step = on_step
    connection = _build_connection(hop, sock, handshake)
    try:
        connection.open()
    except BaseException as error:
        timed_out = handshake.stop_clock()
        sock.abort()
        failure = _explain(error, handshake, timed_out) if isinstance(error, Exception) else None
        sock.close()
        if failure is None:
            raise
        failure.evidence = clean_lines(failure.evidence, MAX_EVIDENCE)
        if not isinstance(failure, (AuthenticationFailed, HostKeyError)):
            failure.fix = _fix_in_lab(hop) or failure.fix
        raise failure from error
    handshake.stop_clock()
    sock.settimeout(IDLE_TICK)
    return connection


def is_plain(hop: Hop, hostkeys: HostKeys) -> bool:
    """Return whether paramiko may enter a node; all that is not the plain route is for the user's own ssh."""
    return not any(each.needs_ssh or hostkeys.has_markers(each) for each in hop.chain())


def _lab_of(hop: Hop) -> str:
    """Name the practice cluster that a node is in; empty for any other node."""
    return Path(hop.lab).name if hop.lab else name_lab(hop.host, hop.key, None)


def _fix_in_lab(hop: Hop) -> str:
    """Return the fix that repairs a node of a practice cluster; empty for any other node."""
    lab = _lab_of(hop)
    if not lab:
        return ""
    heal = render_lab_command(lab, "heal", hop.name)
    return tr("{command}  # or `clusterctl lab status` to see what is broken", command=heal)


def _open_socket(hop: Hop, timeouts: Timeouts, bastions: BastionPool | None) -> AnySocket:
    if hop.jump is not None:
        if bastions is None:
            raise ValueError(f"the way to {hop.name} leads through a bastion")
        return bastions.open_tunnel(hop, timeouts.connect)
    try:
        if hop.lab:
            return open_lab_tcp(hop.name, hop.host, hop.port, Path(hop.lab), timeouts.connect)
        return open_tcp(hop.name, hop.host, hop.port, timeouts.connect)
    except ConnectError as error:
        error.fix = _fix_in_lab(hop) or error.fix
        raise


def _build_connection(hop: Hop, sock: AnySocket, handshake: SshHandshake) -> Connection:
    connection = Connection(
        hop.host,
        user=hop.user,
        port=hop.port,
        # Fabric's settings, read from no file and no variable. One each: a connection writes into them.
        config=Config(lazy=True, defaults=_fabric_defaults()),
        forward_agent=False,
        connect_kwargs={
            "sock": sock,
            "transport_factory": handshake.make_transport,
            "auth_strategy": handshake,
            "disabled_algorithms": DISABLED_ALGORITHMS,
        },
    )
    # Fabric's own policy accepts every host key.
    connection.client.set_missing_host_key_policy(handshake)
    return connection


def _fabric_defaults() -> dict[str, Any]:
    """Return the settings that a connection itself looks up; copying all of Fabric's takes a tenth of connecting."""
    return {
        "user": "",
        "port": 22,
        "gateway": None,
        "forward_agent": False,
        "inline_ssh_env": True,
        "load_ssh_configs": False,
        "connect_kwargs": {},
        "authentication": {"strategy_class": None, "identities": []},
        "timeouts": {"connect": None},
    }


def _explain(error: Exception, handshake: SshHandshake, timed_out: bool) -> ClusterctlError:
    if isinstance(error, ClusterctlError):
        return error
    if timed_out:
        return _step_timed_out(handshake)
    if handshake.step == "login":
        evidence = [handshake.disconnect_message or str(error), *handshake.describe_keys()]
        return login_refused(handshake.hop, tr("it closed the connection"), evidence)
    return _no_handshake(handshake, error)


def _no_handshake(handshake: SshHandshake, error: Exception) -> Unreachable:
    if handshake.sock.first_bytes and not handshake.greeted:
        return (
            _server_busy(handshake, _describe_greeting(handshake))
            if handshake.sock.first_bytes.startswith(BUSY_GREETINGS)
            else _not_ssh(handshake)
        )
    if not isinstance(error, IncompatiblePeer):
        return _server_busy(
            handshake, handshake.sock.describe_end() or handshake.disconnect_message or str(error)
        )
    return Unreachable(
        "CC-SSH-006",
        "algorithms",
        node=handshake.hop.name,
        evidence=handshake.disconnect_message or str(error),
        address=handshake.hop.address,
        server=handshake.hop.description,
    )


def _server_busy(handshake: SshHandshake, evidence: str) -> ServerBusy:
    when = tr("during the key exchange") if handshake.greeted else tr("before its SSH greeting")
    return ServerBusy(
        "CC-SSH-006", node=handshake.hop.name, evidence=evidence, address=handshake.hop.address, when=when
    )


def _not_ssh(handshake: SshHandshake) -> Unreachable:
    return Unreachable(
        "CC-SSH-005",
        node=handshake.hop.name,
        evidence=_describe_greeting(handshake),
        address=handshake.hop.address,
    )


def _describe_greeting(handshake: SshHandshake) -> str:
    first_line = handshake.sock.first_bytes.splitlines()[0].decode("utf-8", "backslashreplace")
    return tr("its first line: {line!r}", line=first_line)


def _step_timed_out(handshake: SshHandshake) -> ConnectTimeout:
    waited_for = "key exchange" if handshake.step == "greeting" and handshake.greeted else handshake.step
    evidence = [
        *(handshake.describe_keys() if handshake.step == "login" else ()),
        handshake.sock.describe_end(),
    ]
    return ConnectTimeout(
        "CC-SSH-004",
        "handshake",
        node=handshake.hop.name,
        evidence="\n".join(evidence).strip(),
        waited_for=tr(STEP_NAMES[waited_for]),
        address=handshake.hop.address,
        limit=handshake.limit,
    )
