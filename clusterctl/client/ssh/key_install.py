"""`init --keys`: password login, install, prove."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import paramiko
from fabric import Connection
from paramiko.auth_handler import AuthHandler

from clusterctl.client.rpc.cluster import Outcome, fan_out
from clusterctl.client.ssh.bastion import BastionPool
from clusterctl.client.ssh.config import SshConfig
from clusterctl.client.ssh.connect import SshHandshake, connect, is_plain
from clusterctl.client.ssh.host_keys import HostKeys, fingerprint
from clusterctl.client.ssh.identities import AskPassphrase, Identities
from clusterctl.client.ssh.route import Hop, Routes
from clusterctl.client.ssh.sockets import SshSocket
from clusterctl.client.ssh.timeouts import WATCHDOG, retry_while_busy
from clusterctl.client.ssh.transport import MAX_TEXT, check_count
from clusterctl.errors import AuthenticationFailed, ClusterctlError, HostKeyError, NodeError
from clusterctl.plans.facts.untrusted import clean_lines
from clusterctl.plans.ssh import FAILED, KeyInstallResult, parse_install_result, render_install
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import tr

UNKNOWN_HOST_KEY = "CC-SSH-009"


class HostKeyPrompts(HostKeys):
    """Host keys that remembers the unknown ones; those that a person agrees to are accepted, and no others."""

    def __init__(self, notice: Callable[[str], None]) -> None:
        super().__init__(notice)
        self.unknown_keys: dict[tuple[str, bytes], str] = {}  # a line of text for each
        self._accepted: set[tuple[str, bytes]] = set()
        self._prompt_lock = threading.Lock()

    def verify(self, hop: Hop, key_type: str, key: bytes) -> None:
        """Judge as always; an unknown key that was agreed to is recorded."""
        host_key = (hop.address, key)
        try:
            super().verify(hop, key_type, key)
        except HostKeyError as error:
            if error.code != UNKNOWN_HOST_KEY:
                raise
            with self._prompt_lock:
                if host_key not in self._accepted:
                    self.unknown_keys[host_key] = tr(
                        "{node} ({address}): unknown host key {type} {fingerprint}",
                        node=hop.bastion or hop.name,
                        address=hop.address,
                        type=key_type,
                        fingerprint=fingerprint(key),
                    )
                    raise
            super().verify(replace(hop, host_keys="accept-new"), key_type, key)

    def accept_all(self) -> None:
        """Accept the unknown hosts met so far, each with the very key that it has shown."""
        with self._prompt_lock:
            self._accepted |= set(self.unknown_keys)
            self.unknown_keys.clear()


ASKS_FOR_PASSWORD = re.compile(r"password|密码|密碼|口令", re.IGNORECASE)
# what PAM writes around a question: a host may be called token
PROMPT_PREFIX = re.compile(r"^\([^)]*\)|\S+@\S+")
ASKS_FOR_CODE = re.compile(
    r"one[- ]?time|\botp\b|\btoken\b|\bcode\b|passcode|验证码|驗證碼|动态", re.IGNORECASE
)


MAX_PROMPT = 1000  # characters
MAX_ROUNDS = 10  # of prompts in one login; a server that requires a password prompts once or twice


class _UnexpectedPromptError(Exception):
    """The server prompts for something other than the password; the text is its prompt."""


class _PromptHandler(AuthHandler):
    """Reads the questions of a server, as many as its message has room for."""

    def _parse_userauth_info_request(self, m: paramiko.Message) -> None:
        for _ in ("title", "instructions", "language"):
            m.get_binary()
        check_count(m, 5)
        m.rewind()
        super()._parse_userauth_info_request(m)  # type: ignore[misc]  # paramiko's own, not in its type information


class PasswordHandshake(SshHandshake):
    """One attempt to get into one node by a password; keyboard-interactive counts where it prompts for just that."""

    def __init__(self, hop: Hop, *, password: str, **rest: Any) -> None:
        super().__init__(hop, **rest)
        self._password = password
        self._rounds = 0

    def authenticate(self, transport: paramiko.Transport) -> None:
        """Show the password once."""
        self._begin_step("login", self.timeouts.login)
        try:
            remaining_methods = self._send_password(transport)
        except paramiko.BadAuthenticationType as error:
            raise self._passwords_disabled(", ".join(error.allowed_types)) from error
        except _UnexpectedPromptError as error:
            raise self._login_refused(
                tr("it requests something other than a password"),
                tr("its prompt: {question}", question=error),
            ) from error
        except paramiko.AuthenticationException as error:
            if self.alarm.expired or not transport.is_active():
                raise
            raise self._wrong_password() from error
        if remaining_methods:
            raise self._login_refused(
                tr("it requires more than a password"),
                tr("it also requires: {methods}", methods=", ".join(remaining_methods)),
            )

    def _send_password(self, transport: paramiko.Transport) -> list[str]:
        """Return the password, or answer the one question for it; returns what the server wants besides."""
        try:
            return transport.auth_password(self.hop.user, self._password, fallback=False)
        except paramiko.BadAuthenticationType as error:
            if "keyboard-interactive" not in error.allowed_types:
                raise
        return self._authenticate_interactively(transport)

    def _authenticate_interactively(self, transport: paramiko.Transport) -> list[str]:
        """Do what the transport's `auth_interactive` does, with a limit on the number of questions."""
        answered, handler = threading.Event(), _PromptHandler(transport)
        transport.auth_handler = handler
        handler.auth_interactive(self.hop.user, self._answer_prompts, answered)
        return handler.wait_for_response(answered)

    def _answer_prompts(
        self, _title: str, _instructions: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str]:
        """Answer a prompt for just the password, never one for a one-time code or one whose input is echoed."""
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise _UnexpectedPromptError(tr("{rounds} times in one login", rounds=self._rounds))
        for prompt, echoed in prompts:
            if len(prompt) > MAX_PROMPT:  # a search in a long text would take the processor from all nodes
                raise _UnexpectedPromptError(prompt[:MAX_PROMPT].strip())
            question = PROMPT_PREFIX.sub("", prompt)
            if echoed or not ASKS_FOR_PASSWORD.search(question) or ASKS_FOR_CODE.search(question):
                raise _UnexpectedPromptError(prompt.strip())
        return [self._password] * len(prompts)

    def _wrong_password(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            "CC-KEYS-001", node=self.hop.name, server=self.hop.description, user=self.hop.user
        )

    def _passwords_disabled(self, allowed: str) -> AuthenticationFailed:
        return AuthenticationFailed(
            "CC-KEYS-002",
            node=self.hop.name,
            evidence=tr("it accepts: {methods}", methods=allowed),
            server=self.hop.description,
        )


INSTALL_LIMIT = 30.0  # seconds
MAX_OUTPUT = 64 << 10  # bytes
MAX_EVIDENCE = 1000  # characters


class KeyInstaller:
    """The ways into the nodes of one command, by the key to install or by a password."""

    def __init__(
        self,
        key: Path,
        public_key: str,
        notice: Callable[[str], None],
        *,
        ask_passphrase: AskPassphrase | None,
    ) -> None:
        self._key, self._public_key = key, public_key
        self.hostkeys = HostKeyPrompts(notice)
        self._routes = Routes(SshConfig(notice))
        self._key_identities, self._login_identities = (
            Identities(ask_passphrase=ask_passphrase),
            Identities(ask_passphrase=ask_passphrase),
        )
        self._bastions = BastionPool(
            lambda hop: retry_while_busy(lambda: self._connect(hop, self._login_identities))
        )

    def __enter__(self) -> KeyInstaller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bastions.close()

    def retry_bastions(self) -> None:
        """Go on with the servers whose host keys were agreed to, bastions among them."""
        self._bastions.clear_failures()

    def needs_ssh(self, node: Node) -> bool:
        """Return whether only the user's own ssh reaches a node."""
        hop = self._find_route(node)
        return isinstance(hop, Hop) and not is_plain(hop, self.hostkeys)

    def check_access(self, nodes: Iterable[Node]) -> Iterator[Outcome[bool]]:
        """Return for every node whether the key opens it already."""
        checked = list(nodes)
        self._routes.prepare(checked)
        hops = [
            self._hop_with_key(node)
            for node in checked
            if not isinstance(self._find_route(node), ClusterctlError)
        ]
        self._key_identities.unlock(hops[:1])
        return fan_out(checked, self._accepts_key)

    def install(self, node: Node, password: str) -> KeyInstallResult:
        """Install the key by a password, and prove that it opens the node."""
        handshake_type = partial(PasswordHandshake, password=password)
        hop = replace(self._routes.find(node), key=None, identities=(), identities_only=True)
        connection = retry_while_busy(
            lambda: connect(
                hop,
                self.hostkeys,
                self._login_identities,
                bastions=self._bastions,
                handshake_type=handshake_type,
            )
        )
        try:
            result = parse_install_result(
                _run_script(connection, render_install(self._public_key), node.name)
            )
        finally:
            with suppress(Exception):
                connection.close()
        if result.state == FAILED:
            raise _not_installed(node, result)
        if not self._accepts_key(node):
            raise _not_accepted(node, result)
        return result

    def _accepts_key(self, node: Node) -> bool:
        try:
            self._connect(self._hop_with_key(node), self._key_identities).close()
        except AuthenticationFailed as error:
            if error.code != "CC-SSH-007":
                raise
            return False
        return True

    def _connect(self, hop: Hop, identities: Identities) -> Connection:
        return retry_while_busy(lambda: connect(hop, self.hostkeys, identities, bastions=self._bastions))

    def _hop_with_key(self, node: Node) -> Hop:
        return replace(self._routes.find(node), key=str(self._key), identities=None, identities_only=True)

    def _find_route(self, node: Node) -> Hop | ClusterctlError:
        try:
            return self._routes.find(node)
        except ClusterctlError as error:
            return error


def _run_script(connection: Connection, script: str, node: str) -> str:
    """Run a script in the node's sh, and return its output: `MAX_OUTPUT` of it, within `INSTALL_LIMIT` seconds.

    paramiko waits without a limit for the start of a command, and sends as slowly as the server makes room.
    """
    output = bytearray()
    with WATCHDOG.limit(INSTALL_LIMIT, cast(SshSocket, connection.transport.sock).abort) as alarm:
        try:
            _exchange(connection.transport, script, output)
        except (paramiko.SSHException, OSError, EOFError) as error:
            if not alarm.expired:
                raise _script_failed(str(error) or type(error).__name__, node, output) from error
    if alarm.expired:
        raise _script_failed(tr("not finished within {limit:g} s", limit=INSTALL_LIMIT), node, output)
    return output.decode("utf-8", "replace")


def _exchange(transport: paramiko.Transport, script: str, output: bytearray) -> None:
    """Send the script, and add what comes back to `output`."""
    channel = transport.open_session(timeout=INSTALL_LIMIT + 1)
    channel.set_combine_stderr(True)
    channel.exec_command("exec /bin/sh")
    channel.sendall(script.encode())
    channel.shutdown_write()
    while len(output) < MAX_OUTPUT and (chunk := channel.recv(8192)):
        output += chunk


def _script_failed(why: str, node: str, output: bytearray) -> NodeError:
    return NodeError(
        "CC-KEYS-003",
        "shell",
        node=node,
        evidence=clean_lines(output.decode("utf-8", "replace"), MAX_EVIDENCE),
        reason=why[:MAX_TEXT],
    )


def _not_installed(node: Node, result: KeyInstallResult) -> NodeError:
    return NodeError("CC-KEYS-003", node=node.name, evidence="\n".join(result.notes), detail=result.detail)


def _not_accepted(node: Node, result: KeyInstallResult) -> NodeError:
    case, evidence = "modes" if result.notes else "", "\n".join(result.notes)
    return NodeError("CC-KEYS-004", case, node=node.name, evidence=evidence, file=result.detail)
