"""Connect to one hop: TCP, handshake, host key, login.

What happens between the TCP connection and a usable one: greeting, key exchange, host key, our key.

paramiko calls back at three points: for the transport, for a host key that it does not know (we tell it
none, so always), and for the login. Each is also where a step ends and the next one's time begins.

The way into a node: one open, verified connection, or one clear error.

| code       | what happened                                             | error                |
|------------|-----------------------------------------------------------|----------------------|
| CC-SSH-001 | the host's name does not resolve                          | Unreachable          |
| CC-SSH-002 | the port refused the connection                           | Unreachable          |
| CC-SSH-003 | no route, or another network error                        | Unreachable          |
| CC-SSH-004 | a step took longer than its limit; the step is named      | ConnectTimeout       |
| CC-SSH-005 | what answers there is not an SSH server                   | Unreachable          |
| CC-SSH-006 | the server ended the connection                           | ServerBusy           |
|            | no algorithm is shared                                    | Unreachable          |
| CC-SSH-007 | none of our keys was accepted                             | AuthenticationFailed |
| CC-SSH-008 | the key file is missing, unreadable, encrypted or no key  | AuthenticationFailed |
| CC-SSH-009 | the host key is unknown                                   | HostKeyError         |
| CC-SSH-010 | the host key is not the known one                         | HostKeyError         |
| CC-SSH-011 | the host key is revoked                                   | HostKeyError         |
| CC-SSH-012 | a new host key cannot be recorded                         | HostKeyError         |
| CC-SSH-013 | the proxy command ended, or cannot be used                | Unreachable          |
| CC-SSH-014 | the server refuses a channel or a command                 | Unreachable          |
| CC-SSH-015 | an open connection ended                                  | ConnectionLost       |
| CC-SSH-016 | an open connection fell silent                            | ConnectionLost       |
| CC-SSH-017 | the login shell did not hand over to the interpreter      | NodeError            |
| CC-SSH-018 | a bastion cannot be used, or went away                    | of the bastion's     |
| CC-SSH-019 | the SSH configuration cannot be read, or leads nowhere    | Unreachable          |
| CC-SSH-020 | a bastion forbids forwarding                              | Unreachable          |
| CC-SSH-021 | the host certificate does not hold                        | HostKeyError         |

Errors from 14 to 17 come from `client.rpc.session`, those from 18 to 20 from
`client.ssh.bastion` and `client.ssh.route`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import paramiko
from fabric import Config, Connection
from paramiko.ssh_exception import IncompatiblePeer

from clusterctl.client.ssh.bastion import AnyLine, Gateways
from clusterctl.client.ssh.host_keys import HostKeys
from clusterctl.client.ssh.identities import Keyring, Keys
from clusterctl.client.ssh.route import Hop
from clusterctl.client.ssh.sockets import ProxyLine, open_proxy, open_tcp
from clusterctl.client.ssh.timeouts import WATCHDOG, Timeouts
from clusterctl.client.ssh.transport import REFUSED, Trunk, Wire
from clusterctl.errors import AuthenticationFailed, ClusterctlError, ConnectTimeout, ServerBusy, Unreachable
from clusterctl.specs.text import command_line

KEY_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
PARAMIKO_LIMIT = 3600.0  # ours are shorter, and say which step it was


class Login:
    """One attempt to get into one node."""

    def __init__(
        self,
        hop: Hop,
        *,
        line: AnyLine,
        hostkeys: HostKeys,
        keys: Keys,
        timeouts: Timeouts,
        wire: type[Wire] = Wire,
    ) -> None:
        self.hop = hop
        self.wire = wire
        self.line = line
        self.hostkeys = hostkeys
        self.keys = keys
        self.timeouts = timeouts
        self.step = "greeting"
        self.limit = timeouts.handshake
        self.transport: Wire | None = None
        self.tried: list[str] = []
        self.at: Callable[[str], None] = lambda _: None
        self.unheard = False
        self.alarm = WATCHDOG.set(timeouts.handshake, line.hang_up)
        if line.proxied and timeouts.greeting < timeouts.handshake:
            WATCHDOG.set(timeouts.greeting, self._give_up_unheard)

    def make_transport(
        self, sock: AnyLine, disabled_algorithms: Mapping[str, Sequence[str]] | None = None
    ) -> paramiko.Transport:
        """Build the transport; asks the server for a host key of a type that is known."""
        like_socket = cast(socket.socket, sock)
        transport = self.transport = self.wire(like_socket, disabled_algorithms=disabled_algorithms)
        transport.banner_timeout = transport.handshake_timeout = PARAMIKO_LIMIT
        transport.channel_timeout = PARAMIKO_LIMIT
        transport.auth_timeout = (
            self.timeouts.login + 1.0
        )  # an agent that hangs holds up paramiko's own thread
        transport.wants_certificate = self.hostkeys.trusts_authority(self.hop)
        options = transport.get_security_options()
        known = [a for name in self.hostkeys.key_types(self.hop) for a in KEY_ALGORITHMS.get(name, (name,))]
        usable = [name for name in known if name in options.key_types]
        options.key_types = [*usable, *(name for name in options.key_types if name not in usable)]
        return transport

    def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:  # noqa: ARG002 - paramiko's signature
        """Judge the host key."""
        self.step = "host key"
        certificate = key.public_blob.key_blob if key.public_blob else b""
        self.hostkeys.verify(self.hop, key.get_name(), key.asbytes(), certificate)

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Show our keys one after the other until one is accepted."""
        self._begin("login", self.timeouts.login)
        self.at("logging in")
        for candidate in self.keys:
            self.tried.append(candidate.label)
            try:
                further = transport.auth_publickey(self.hop.user, candidate.key)
            except paramiko.BadAuthenticationType as error:
                wanted = ", ".join(error.allowed_types)
                raise self._refuse("it does not accept keys", f"it wants: {wanted}") from error
            except paramiko.AuthenticationException:
                if self.alarm.expired or not transport.is_active():
                    raise
                continue
            except paramiko.SSHException as error:
                if self.alarm.expired:
                    raise
                raise self._refuse(f"{candidate.label} cannot be used", str(error)) from error
            if further:
                raise self._refuse("it wants more than a key", f"it also wants: {', '.join(further)}")
            return
        raise self._refuse("it accepted none of our keys", "")

    @property
    def parting(self) -> str:
        """Return what the server said when it hung up."""
        return self.transport.parting if self.transport is not None else ""

    @property
    def greeted(self) -> bool:
        """Tell whether an SSH server has said who it is."""
        return self.transport is not None and self.transport.remote_version.startswith("SSH-")

    def done(self) -> bool:
        """Stop the clock; tells whether a limit was reached."""
        WATCHDOG.cancel(self.alarm)
        return self.alarm.expired or self.unheard

    def _give_up_unheard(self) -> None:
        """End a connection through a proxy command on which nothing at all has arrived."""
        if not self.line.head and not self.alarm.done:
            self.unheard, self.limit = True, self.timeouts.greeting
            self.line.hang_up()

    def _begin(self, step: str, limit: float) -> None:
        WATCHDOG.cancel(self.alarm)
        self.step, self.limit = step, limit
        if not self.alarm.expired:
            self.alarm = WATCHDOG.set(limit, self.line.hang_up)

    def _refuse(self, reason: str, detail: str) -> AuthenticationFailed:
        return refuse_login(self.hop, reason, [detail, *self.describe_keys()])

    def describe_keys(self) -> list[str]:
        """Say which keys were tried, and which were not."""
        tried = [f"tried {label}" for label in self.tried] or ["there was no key to try"]
        return tried + [f"not tried: {note}" for note in self.keys.skipped]


def refuse_login(hop: Hop, reason: str, evidence: Sequence[str]) -> AuthenticationFailed:
    """Say that a node does not let us in, and what to do."""
    bastions = ",".join(bastion.bastion for bastion in hop.chain())
    words = ["-i", hop.key] if hop.key else []
    words += ["-J", bastions] if bastions else []
    words += ["-p", str(hop.port)] if hop.port != 22 else []
    words.append(f"{hop.user}@{hop.host}")
    return AuthenticationFailed(
        f"{hop.called} does not let {hop.user} in: {reason}",
        code="CC-SSH-007",
        node=hop.name,
        evidence="\n".join(line for line in evidence if line),
        fix=f"try `{command_line('ssh', *words)}`; `{command_line('ssh-copy-id', *words)}` installs a key, "
        "and `user` and `key` under `ssh:` in the inventory say which are used",
    )


IDLE_TICK = 5.0  # seconds between looks of paramiko's idle reading thread, 0.1 by default
LIMITS = Timeouts()
BUSY = (b"Not allowed at this time", b"Exceeded MaxStartups")  # what sshd says instead of a greeting


def connect(
    hop: Hop,
    hostkeys: HostKeys,
    keyring: Keyring,
    timeouts: Timeouts = LIMITS,
    *,
    gateways: Gateways | None = None,
    login: Callable[..., Login] = Login,
    at: Callable[[str], None] = lambda _: None,
) -> Connection:
    """Open a connection to a node or a bastion; raises a ConnectError that says which step failed and why.

    Close it with its own `close`; that also ends a proxy command. `at` is told each step.
    """
    keys = keyring.keys(hop)
    at(f"connecting through {hop.jump.bastion}" if hop.jump else "connecting")
    line = _open_line(hop, timeouts, gateways)
    at("waiting for its sshd")
    wire = Trunk if hop.bastion else Wire
    entry = login(hop, line=line, hostkeys=hostkeys, keys=keys, timeouts=timeouts, wire=wire)
    entry.at = at
    connection = _build(hop, line, entry)
    try:
        connection.open()
    except BaseException as error:
        rang = entry.done()
        line.hang_up()
        failure = _explain(error, entry, rang) if isinstance(error, Exception) else None
        line.close()
        if failure is None:
            raise
        raise failure from error
    entry.done()
    line.settimeout(IDLE_TICK)
    return connection


def _open_line(hop: Hop, timeouts: Timeouts, gateways: Gateways | None) -> AnyLine:
    if hop.jump is not None:
        if gateways is None:
            raise ValueError(f"the way to {hop.name} leads through bastions")
        return gateways.dial(hop, timeouts.connect)
    if hop.proxy_command is None:
        return open_tcp(hop.name, hop.host, hop.port, timeouts.connect)
    return open_proxy(hop.name, hop.proxy_command)


def _build(hop: Hop, line: AnyLine, login: Login) -> Connection:
    connection = Connection(
        hop.host,
        user=hop.user,
        port=hop.port,
        # Fabric's settings, read from no file and no variable. One each: a connection writes into them.
        config=Config(lazy=True, defaults=_defaults()),
        forward_agent=False,
        connect_kwargs={
            "sock": line,
            "transport_factory": login.make_transport,
            "auth_strategy": login,
            "disabled_algorithms": REFUSED,
        },
    )
    # Fabric's own policy accepts every host key.
    connection.client.set_missing_host_key_policy(login)
    return connection


def _defaults() -> dict[str, Any]:
    """Give the settings that a connection itself looks up; copying all of Fabric's takes a tenth of connecting."""
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


def _explain(error: Exception, login: Login, rang: bool) -> ClusterctlError:
    if isinstance(error, ClusterctlError):
        return error
    if rang:
        return _unheard(login) if login.line.proxied and not login.line.head else _timed_out(login)
    if isinstance(login.line, ProxyLine) and login.line.status is not None:
        return _proxy_ended(login, login.line.status)
    if login.step == "login":
        evidence = [login.parting or str(error), *login.describe_keys()]
        return refuse_login(login.hop, "it ended the connection", evidence)
    return _no_handshake(login, error)


def _no_handshake(login: Login, error: Exception) -> Unreachable:
    if login.line.head and not login.greeted:
        return _busy(login, _heard(login)) if login.line.head.startswith(BUSY) else _no_ssh(login)
    if not isinstance(error, IncompatiblePeer):
        return _busy(login, login.line.describe_end() or login.parting or str(error))
    return Unreachable(
        f"the server at {login.hop.place} shares no algorithm with us",
        code="CC-SSH-006",
        node=login.hop.name,
        evidence=login.parting or str(error),
        fix=f"update the SSH server on {login.hop.called}",
    )


def _busy(login: Login, evidence: str) -> ServerBusy:
    when = "during the key exchange" if login.greeted else "before greeting us"
    return ServerBusy(
        f"the server at {login.hop.place} ended the connection {when}",
        code="CC-SSH-006",
        node=login.hop.name,
        evidence=evidence,
        fix="it may limit logins under way: raise MaxStartups in its sshd_config (100:30:200), see what its log says, "
        "and wait if PerSourcePenalties holds something against this machine",
    )


def _no_ssh(login: Login) -> Unreachable:
    return Unreachable(
        f"what answers at {login.hop.place} is not an SSH server",
        code="CC-SSH-005",
        node=login.hop.name,
        evidence=_heard(login),
        fix="correct `host` and `ssh.port` in the inventory",
    )


def _heard(login: Login) -> str:
    heard = login.line.head.splitlines()[0].decode("utf-8", "backslashreplace")
    return f"it says: {heard!r}"


def _timed_out(login: Login) -> ConnectTimeout:
    waited_for = "key exchange" if login.step == "greeting" and login.greeted else login.step
    evidence = [*(login.describe_keys() if login.step == "login" else ()), login.line.describe_end()]
    return ConnectTimeout(
        f"no {waited_for} from the server at {login.hop.place} within {login.limit:g} s",
        code="CC-SSH-004",
        node=login.hop.name,
        evidence="\n".join(evidence).strip(),
        fix="something accepts connections there but does not go on: the node may be overloaded or stopped",
    )


def _unheard(login: Login) -> ConnectTimeout:
    """Say that only the proxy command is known to be there, not the node."""
    return ConnectTimeout(
        f"no greeting from the node through the proxy command within {login.limit:g} s: "
        "the node is off, or its sshd does not answer",
        code="CC-SSH-004",
        node=login.hop.name,
        evidence=login.line.describe_end(),
        fix=f"see whether the node is up; then run the proxy command by hand: {login.hop.proxy_command}",
    )


def _proxy_ended(login: Login, status: int) -> Unreachable:
    return Unreachable(
        f"the proxy command ended with status {status} during the {login.step}",
        code="CC-SSH-013",
        node=login.hop.name,
        evidence=login.line.describe_end(),
        fix="the node may be off: see whether it is up; then run the proxy command by hand, %h and %p filled in: "
        "it must connect its stdin and stdout to the node's sshd",
    )
