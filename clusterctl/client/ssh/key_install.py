"""`keys push`: password login, install, prove."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import paramiko
from fabric import Connection

from clusterctl.client.rpc.fanout import Outcome, fan_out
from clusterctl.client.ssh.bastion import Gateways
from clusterctl.client.ssh.config import SshConfig
from clusterctl.client.ssh.connect import Login, connect
from clusterctl.client.ssh.host_keys import HostKeys
from clusterctl.client.ssh.identities import Ask, Keyring
from clusterctl.client.ssh.known_hosts import fingerprint
from clusterctl.client.ssh.route import Hop, Routes
from clusterctl.client.ssh.timeouts import insist
from clusterctl.errors import AuthenticationFailed, ClusterctlError, HostKeyError, NodeError
from clusterctl.plans.ssh import FAILED, Installed, parse_installed, render_install
from clusterctl.specs.inventory.model import Node

UNKNOWN = "CC-SSH-009"


@dataclass(frozen=True)
class Stranger:
    """A server whose host key is not known yet."""

    node: str
    place: str
    key_type: str
    fingerprint: str


class Introductions(HostKeys):
    """Host keys that remembers the unknown ones; those that a person agrees to are accepted, and no others."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        super().__init__(
            lambda new: notice(f"{new.node}: new host key {new.fingerprint} recorded in {new.file}")
        )
        self.strangers: dict[tuple[str, bytes], Stranger] = {}
        self._welcome: set[tuple[str, bytes]] = set()
        self._turn = threading.Lock()

    def verify(self, hop: Hop, key_type: str, key: bytes, certificate: bytes = b"") -> None:
        """Judge as always; an unknown key that was agreed to is recorded."""
        who = (hop.place, key)
        try:
            super().verify(hop, key_type, key, certificate)
        except HostKeyError as error:
            if error.code != UNKNOWN:
                raise
            with self._turn:
                if who not in self._welcome:
                    self.strangers[who] = Stranger(
                        hop.bastion or hop.name, hop.place, key_type, fingerprint(key)
                    )
                    raise
            super().verify(replace(hop, host_keys="accept-new"), key_type, key, certificate)

    def welcome_all(self) -> None:
        """Accept the strangers met so far, each with the very key that it has shown."""
        with self._turn:
            self._welcome |= set(self.strangers)
            self.strangers.clear()


WRONG = "CC-KEYS-001"
UNWANTED = "CC-KEYS-002"
ASKS_FOR_PASSWORD = re.compile(r"password|密码|密碼|口令", re.IGNORECASE)
WHOSE = re.compile(r"^\([^)]*\)|\S+@\S+")  # what PAM writes around a question: a host may be called token
ASKS_FOR_MORE = re.compile(
    r"one[- ]?time|\botp\b|\btoken\b|\bcode\b|passcode|验证码|驗證碼|动态", re.IGNORECASE
)


class _OtherQuestionError(Exception):
    """The server asks for what is not the password; the text is its question."""


class PasswordLogin(Login):
    """One attempt to get into one node by a password; keyboard-interactive counts where it asks for just that."""

    def __init__(self, hop: Hop, *, password: str, **rest: Any) -> None:
        super().__init__(hop, **rest)
        self._password = password

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Show the password once."""
        self._begin("login", self.timeouts.login)
        try:
            further = self._show(transport)
        except paramiko.BadAuthenticationType as error:
            raise self._no_passwords(", ".join(error.allowed_types)) from error
        except _OtherQuestionError as error:
            raise self._refuse("it asks for something else than a password", f"it asked: {error}") from error
        except paramiko.AuthenticationException as error:
            if self.alarm.expired or not transport.is_active():
                raise
            raise self._wrong() from error
        if further:
            raise self._refuse("it wants more than a password", f"it also wants: {', '.join(further)}")

    def _show(self, transport: paramiko.Transport) -> list[str]:
        """Give the password, or answer the one question for it; gives what the server wants besides."""
        try:
            return transport.auth_password(self.hop.user, self._password, fallback=False)
        except paramiko.BadAuthenticationType as error:
            if "keyboard-interactive" not in error.allowed_types:
                raise
        return transport.auth_interactive(self.hop.user, self._answer)

    def _answer(self, _title: str, _instructions: str, questions: Sequence[tuple[str, bool]]) -> list[str]:
        """Answer a question that asks for just the password; no code of a token's is it, and nothing that is echoed."""
        for asked, echoed in questions:
            question = WHOSE.sub("", asked)
            if echoed or not ASKS_FOR_PASSWORD.search(question) or ASKS_FOR_MORE.search(question):
                raise _OtherQuestionError(asked.strip())
        return [self._password] * len(questions)

    def _wrong(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"{self.hop.called} does not take this password for {self.hop.user}",
            code=WRONG,
            node=self.hop.name,
            fix="mind that `user` under `ssh:` in the inventory says whose password it is; some servers take none "
            "for root (PermitRootLogin)",
        )

    def _no_passwords(self, wanted: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            f"{self.hop.called} takes no passwords",
            code=UNWANTED,
            node=self.hop.name,
            evidence=f"it wants: {wanted}",
            fix="give the public key to whoever keeps the node: it belongs into ~/.ssh/authorized_keys there",
        )


INSTALL_LIMIT = 30.0  # seconds
MOST_SAID = 64 << 10  # bytes


class Doorway:
    """The ways into the nodes of one command, by the key to install or by a password."""

    def __init__(
        self, key: Path, public: str, notice: Callable[[str], None], *, remember: Path, ask: Ask | None
    ) -> None:
        self._key, self._public = key, public
        self.hostkeys = Introductions(notice)
        self._routes = Routes(SshConfig(notice, folder=remember))
        self._ours, self._any = Keyring(ask=ask), Keyring(ask=ask)
        self._gateways = Gateways(lambda hop: insist(lambda: self._connect(hop, self._any)))

    def __enter__(self) -> Doorway:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._gateways.close()

    def welcome(self) -> None:
        """Go on with the servers whose host keys were agreed to, bastions among them."""
        self._gateways.forget_failures()

    def look(self, nodes: Iterable[Node]) -> Iterator[Outcome[bool]]:
        """Tell of every node whether the key opens it already."""
        wanted = list(nodes)
        self._routes.prepare(wanted)
        hops = [self._with_key(node) for node in wanted if not isinstance(self._find(node), ClusterctlError)]
        self._ours.unlock(hops[:1])
        return fan_out(wanted, self._is_open)

    def install(self, node: Node, password: str) -> Installed:
        """Install the key by a password, and prove that it opens the node."""
        enter = partial(PasswordLogin, password=password)
        hop = replace(self._routes.find(node), key=None, identities=(), identities_only=True)
        connection = insist(
            lambda: connect(hop, self.hostkeys, self._any, gateways=self._gateways, login=enter)
        )
        try:
            done = parse_installed(_run(connection, render_install(self._public), node.name))
        finally:
            with suppress(Exception):
                connection.close()
        if done.state == FAILED:
            raise _not_installed(node, done)
        if not self._is_open(node):
            raise _not_accepted(node, done)
        return done

    def _is_open(self, node: Node) -> bool:
        try:
            self._connect(self._with_key(node), self._ours).close()
        except AuthenticationFailed as error:
            if error.code != "CC-SSH-007":
                raise
            return False
        return True

    def _connect(self, hop: Hop, keyring: Keyring) -> Connection:
        return insist(lambda: connect(hop, self.hostkeys, keyring, gateways=self._gateways))

    def _with_key(self, node: Node) -> Hop:
        return replace(self._routes.find(node), key=str(self._key), identities=None, identities_only=True)

    def _find(self, node: Node) -> Hop | ClusterctlError:
        try:
            return self._routes.find(node)
        except ClusterctlError as error:
            return error


def _run(connection: Connection, script: str, node: str) -> str:
    """Let the node's sh read a script, and give what it says, at most `MOST_SAID` of it."""
    said, until = b"", time.monotonic() + INSTALL_LIMIT
    try:
        channel = connection.transport.open_session(timeout=INSTALL_LIMIT)
        channel.settimeout(INSTALL_LIMIT)
        channel.set_combine_stderr(True)
        channel.exec_command("exec /bin/sh")
        channel.sendall(script.encode())
        channel.shutdown_write()
        while len(said) < MOST_SAID and time.monotonic() < until and (more := channel.recv(8192)):
            said += more
    except (paramiko.SSHException, OSError, EOFError) as error:
        text = f"the node's shell did not take the key: {error or type(error).__name__}"
        raise NodeError(text, code="CC-KEYS-003", node=node, evidence=_shown(said)) from error
    return said.decode("utf-8", "replace")


def _shown(said: bytes) -> str:
    return "\n".join(said.decode("utf-8", "replace").splitlines()[-5:])


def _not_installed(node: Node, done: Installed) -> NodeError:
    return NodeError(
        f"the key could not be installed: {done.detail}",
        code="CC-KEYS-003",
        node=node.name,
        evidence="\n".join(done.notes),
        fix="the account's home must be writable for it, and ~/.ssh its own",
    )


def _not_accepted(node: Node, done: Installed) -> NodeError:
    fix = "its sshd may read another file (AuthorizedKeysFile), or refuse this kind of key (PubkeyAcceptedAlgorithms)"
    if done.notes:
        fix = "sshd ignores the file as long as others may write to the home; log in and: chmod go-w ~"
    return NodeError(
        f"the key is in {done.detail}, and yet the node does not accept it",
        code="CC-KEYS-004",
        node=node.name,
        evidence="\n".join(done.notes),
        fix=fix,
    )
