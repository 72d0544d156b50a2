"""Our key into the accounts of the nodes: who has it already, whose host key is new, a password, the proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType

import paramiko
from fabric import Connection

from clusterctl.errors import AuthenticationFailed, ClusterctlError, NodeError
from clusterctl.plans.keys import FAILED, Installed, parse_installed, render_install
from clusterctl.runs.connect import connect
from clusterctl.runs.executor import fan_out
from clusterctl.runs.gateways import Gateways
from clusterctl.runs.hop import Hop
from clusterctl.runs.introductions import Introductions
from clusterctl.runs.keyring import Ask, Keyring
from clusterctl.runs.outcome import Outcome
from clusterctl.runs.password import PasswordLogin
from clusterctl.runs.patience import insist
from clusterctl.runs.routes import Routes
from clusterctl.runs.sshconfig import SshConfig
from clusterctl.specs.inventory import Node

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
