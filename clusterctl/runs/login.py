"""What happens between the TCP connection and a usable one: greeting, key exchange, host key, our key.

paramiko calls back at three points: for the transport, for a host key that it does not know (we tell it
none, so always), and for the login. Each is also where a step ends and the next one's time begins.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import paramiko

from clusterctl.errors import AuthenticationFailed
from clusterctl.runs.hop import Hop
from clusterctl.runs.hostkeys import HostKeys
from clusterctl.runs.keyring import Keys
from clusterctl.runs.limits import WATCHDOG, Timeouts
from clusterctl.runs.tunnel import AnyLine
from clusterctl.runs.wire import Wire
from clusterctl.specs.commandline import command_line

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
