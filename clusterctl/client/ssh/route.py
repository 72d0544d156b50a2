"""Hop, and the hops to each node."""

from __future__ import annotations

import getpass
import hashlib
import os
import pwd
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from clusterctl.client.ssh.config import (
    AT_ONCE,
    NONE,
    Answer,
    Question,
    SshConfig,
    expand_tokens,
    split_paths,
)
from clusterctl.client.ssh.sockets import expand_proxy_command
from clusterctl.errors import ClusterctlError, Unreachable
from clusterctl.specs.addresses import LONGEST_CHAIN, Bastion, parse_host, parse_user, split_jump
from clusterctl.specs.codes import BadValueError
from clusterctl.specs.inventory.model import Node, Ssh
from clusterctl.specs.values import parse_port


@dataclass(frozen=True, kw_only=True)
class Hop:
    """A node or a bastion; `name` is the node that errors are about, `jump` the last bastion before it."""

    name: str
    host: str
    user: str
    port: int = 22
    bastion: str = ""  # how it is written, if it is one
    key: str | None = None  # must be usable
    identities: tuple[str, ...] | None = None  # files to try; None: the usual ones
    offered: str | None = None  # a file to try before those
    certificates: tuple[str, ...] = ()
    identities_only: bool = False
    agent: str | None = None  # a socket, `none`, or None for SSH_AUTH_SOCK's
    known_hosts: tuple[str, ...] = ()  # where new keys are recorded first; none: the usual ones
    revoked_keys: str | None = None  # a file; what stands in it is never believed
    host_key_alias: str | None = None
    host_keys: Literal["strict", "accept-new"] = "strict"
    proxy_command: str | None = None  # expanded
    jump: Hop | None = None

    @property
    def place(self) -> str:
        """Say where it is."""
        return f"{self.host} port {self.port}"

    @property
    def called(self) -> str:
        """Say what it is."""
        return f"the bastion {self.bastion}" if self.bastion else "the node"

    def named(self, name: str) -> Hop:
        """Make it the way of another node, for messages."""
        return replace(self, name=name)

    def chain(self) -> Iterator[Hop]:
        """Yield the bastions on the way, the nearest to us first."""
        if self.jump is not None:
            yield from self.jump.chain()
            yield self.jump


DEFAULT_PORT = 22
USUAL_KNOWN = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
USUAL = frozenset(
    {"rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa"}
)  # files id_... that ssh tries unasked
ALWAYS = frozenset({"rsa", "ecdsa", "ed25519"})  # of them, in every version: fewer were named by somebody


class Routes:
    """Works out the way to each node once. Safe to use from many threads."""

    def __init__(self, config: SshConfig) -> None:
        self._config = config
        self._known: dict[Node, Hop | ClusterctlError] = {}

    def prepare(self, nodes: Sequence[Node]) -> None:
        """Work out many ways at once; what fails is told by `find`."""
        wanted = [node for node in nodes if node not in self._known]
        if wanted:
            with ThreadPoolExecutor(AT_ONCE, "ssh configuration") as pool:
                list(pool.map(self._resolve, wanted))
            self._config.save()

    def known(self, nodes: Sequence[Node]) -> Iterator[Hop]:
        """Yield all servers on the way to some nodes, as far as the ways are known."""
        for node in nodes:
            found = self._known.get(node)
            if isinstance(found, Hop):
                yield from (*found.chain(), found)

    def find(self, node: Node) -> Hop:
        """Give the way to a node; raises a ConnectError if its configuration cannot be read."""
        found = self._known.get(node) or self._resolve(node)
        if isinstance(found, ClusterctlError):
            raise found
        return found

    def _resolve(self, node: Node) -> Hop | ClusterctlError:
        try:
            found: Hop | ClusterctlError = self._route(node)
        except ClusterctlError as error:
            found = error
        self._known[node] = found
        return found

    def _route(self, node: Node) -> Hop:
        ssh = node.ssh
        question = Question(node.host, ssh.user, ssh.port, _config_file(ssh))
        answer = self._config.ask(question, node.name)
        hop, tokens = _settle(node.name, question, answer)
        known = (ssh.known_hosts,) if ssh.known_hosts is not None else hop.known_hosts
        hop = replace(hop, key=ssh.key, known_hosts=known, host_keys=ssh.host_keys or hop.host_keys)
        if ssh.proxy_command is not None:
            return _through_command(hop, ssh.proxy_command, tokens)
        if ssh.jump is not None:
            chain = tuple(bastion for bastion in split_jump(ssh.jump) if not _is(bastion, node))
            return replace(hop, jump=self._chain(hop, chain, ssh, ())) if chain else hop
        return self._configured_way(hop, answer, tokens, ssh, ())

    def _configured_way(
        self, hop: Hop, answer: Answer, tokens: Mapping[str, str], ssh: Ssh, passed: tuple[Bastion, ...]
    ) -> Hop:
        jump, command = _first(answer, "proxyjump"), _first(answer, "proxycommand")
        if jump is not None and jump != NONE:
            return replace(hop, jump=self._chain(hop, _split(hop.name, jump), ssh, passed))
        if command is not None and command != NONE:
            return _through_command(hop, command, tokens)
        return hop

    def _chain(
        self, hop: Hop, bastions: Sequence[Bastion], ssh: Ssh, passed: tuple[Bastion, ...]
    ) -> Hop | None:
        """Give the last of some bastions; the first one's own configuration says how it is reached."""
        last: Hop | None = None
        for bastion in bastions:
            if bastion in passed or len(passed) >= LONGEST_CHAIN:
                raise _circle(hop.name, (*passed, bastion))
            passed = (*passed, bastion)
            last = self._bastion(hop.name, bastion, last, ssh, passed)
        return last

    def _bastion(
        self, node: str, bastion: Bastion, before: Hop | None, ssh: Ssh, passed: tuple[Bastion, ...]
    ) -> Hop:
        question = Question(bastion.host, bastion.user, bastion.port, _config_file(ssh))
        answer = self._config.ask(question, node)
        hop, tokens = _settle(node, question, answer)
        known = hop.known_hosts
        if ssh.known_hosts is not None:  # the cluster's own file may know the bastion as well
            known = (ssh.known_hosts, *(known or USUAL_KNOWN))
        hop = replace(
            hop,
            bastion=str(bastion),
            offered=ssh.key if hop.identities is None else None,
            known_hosts=known,
            host_keys=ssh.host_keys or hop.host_keys,
        )
        if before is not None:
            return replace(hop, jump=before)
        return self._configured_way(hop, answer, tokens, ssh, passed)


def plain_hop(node: Node) -> Hop:
    """Give the way to a node by the inventory alone."""
    return Routes(SshConfig(program=None)).find(node)


@cache
def login_name() -> str:
    """Return the name of the user who runs this, as ssh takes it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return getpass.getuser()


def _settle(node: str, question: Question, answer: Answer) -> tuple[Hop, Mapping[str, str]]:
    """Decide all but the way, from what was asked and what the configuration answers."""
    host, user, port = _target(node, question, answer)
    tokens = _tokens(question.host, host, user, port)
    hop = Hop(
        name=node,
        host=host,
        user=user,
        port=port,
        identities=_identities(answer, tokens),
        certificates=_paths(answer, "certificatefile", tokens),
        identities_only=_first(answer, "identitiesonly") == "yes",
        agent=_agent(answer),
        known_hosts=tuple(_known_hosts(answer, tokens)),
        revoked_keys=_revoked_keys(answer, tokens),
        host_key_alias=_expand_first(answer, "hostkeyalias", tokens),
        host_keys=_strictness(answer),
    )
    return hop, tokens


def _target(node: str, question: Question, answer: Answer) -> tuple[str, str, int]:
    """Take the real host, user and port; what a configuration says must be as safe as what an inventory says."""
    host = _first(answer, "hostname") or question.host
    user = question.user or _first(answer, "user") or login_name()
    try:
        port = question.port or parse_port(_first(answer, "port") or str(DEFAULT_PORT))
        return parse_host(host), (user if user == login_name() else parse_user(user)), port
    except BadValueError as wrong:
        raise _strange(node, f"{question.host}: {wrong.message}") from wrong


def _tokens(alias: str, host: str, user: str, port: int) -> Mapping[str, str]:
    name, own = socket.gethostname(), login_name()
    digest = hashlib.sha1(f"{name}{host}{port}{user}".encode(), usedforsecurity=False).hexdigest()
    return {
        "%": "%",
        "h": host,
        "n": alias,
        "k": alias,
        "p": str(port),
        "r": user,
        "u": own,
        "l": name,
        "L": name.partition(".")[0],
        "d": str(Path.home()),
        "i": str(os.getuid()),
        "C": digest,
    }


def _through_command(hop: Hop, template: str, tokens: Mapping[str, str]) -> Hop:
    command = expand_proxy_command(
        template, host=hop.host, port=hop.port, user=hop.user, alias=tokens["n"], node=hop.name
    )
    return replace(hop, proxy_command=command)


def _identities(answer: Answer, tokens: Mapping[str, str]) -> tuple[str, ...] | None:
    """Give the files that a configuration names; None if they are only those that ssh tries unasked."""
    named = answer.get("identityfile", [])
    kinds = {path.removeprefix("~/.ssh/id_") for path in named}
    if not kinds or ALWAYS <= kinds <= USUAL:
        return None
    return _paths(answer, "identityfile", tokens)


def _paths(answer: Answer, key: str, tokens: Mapping[str, str]) -> tuple[str, ...]:
    found = (expand_tokens(path, tokens) for path in answer.get(key, ()) if path != NONE)
    return tuple(path for path in found if path is not None)


def _known_hosts(answer: Answer, tokens: Mapping[str, str]) -> Sequence[str]:
    """Give the user's files and the system's; none if there is no answer."""
    texts = [text for key in ("userknownhostsfile", "globalknownhostsfile") for text in answer.get(key, ())]
    found = (expand_tokens(path, tokens) for text in texts for path in split_paths(text) if path != NONE)
    return [path for path in found if path is not None]


def _revoked_keys(answer: Answer, tokens: Mapping[str, str]) -> str | None:
    """Give the file of revoked keys; what is not understood of its name stays, and then allows nothing."""
    named = _first(answer, "revokedhostkeys")
    return None if named in (None, NONE) else expand_tokens(named, tokens) or named


def _agent(answer: Answer) -> str | None:
    named = _first(answer, "identityagent")
    if named is None or named == "SSH_AUTH_SOCK":
        return None
    return os.environ.get(named[1:], NONE) if named.startswith("$") else named


def _strictness(answer: Answer) -> Literal["strict", "accept-new"]:
    return "accept-new" if _first(answer, "stricthostkeychecking") == "accept-new" else "strict"


def _expand_first(answer: Answer, key: str, tokens: Mapping[str, str]) -> str | None:
    value = _first(answer, key)
    return None if value is None else expand_tokens(value, tokens)


def _first(answer: Answer, key: str) -> str | None:
    values = answer.get(key)
    return values[0] if values else None


def _config_file(ssh: Ssh) -> str | None:
    if ssh.config is None or ssh.config == NONE:
        return ssh.config
    return str(Path(ssh.config).expanduser().absolute())


def _is(bastion: Bastion, node: Node) -> bool:
    """Whether a bastion of all nodes is this node itself, which is then reached straight."""
    return bastion.host == node.host and bastion.port == node.ssh.port


def _split(node: str, jump: str) -> tuple[Bastion, ...]:
    try:
        return split_jump(jump)
    except BadValueError as wrong:
        raise _strange(node, f"ProxyJump {jump}: {wrong.message}") from wrong


def _strange(node: str, evidence: str) -> Unreachable:
    return Unreachable(
        "the SSH configuration names what cannot be a host or user",
        code="CC-SSH-019",
        node=node,
        evidence=evidence,
        fix="correct it in ~/.ssh/config; hosts and users hold letters, digits and . _ - only",
    )


def _circle(node: str, passed: Sequence[Bastion]) -> Unreachable:
    return Unreachable(
        "the bastions on the way to the node form a circle, or are too many",
        code="CC-SSH-019",
        node=node,
        evidence=" -> ".join(map(str, passed)),
        fix="exclude the bastion itself from its rule, such as `Host *.cluster !bastion`; "
        "`ssh -G NAME` shows its ProxyJump",
    )
