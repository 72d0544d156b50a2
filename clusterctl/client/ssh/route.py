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
    MAX_PARALLEL,
    NONE,
    ConfigQuery,
    HostOptions,
    SshConfig,
    expand_tokens,
    split_paths,
)
from clusterctl.client.ssh.sockets import expand_proxy_command
from clusterctl.errors import ClusterctlError, InvalidValueError, Unreachable
from clusterctl.interrupts import INTERRUPTS
from clusterctl.specs.inventory.model import Node, Ssh
from clusterctl.specs.values import LONGEST_CHAIN, Bastion, parse_host, parse_port, parse_user, split_jump
from clusterctl.translation import tr


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
    hashes_names: bool = False  # HashKnownHosts: a new key is recorded without the server's name
    proxy_command: str | None = None  # expanded
    jump: Hop | None = None

    @property
    def address(self) -> str:
        """Describe where it is."""
        return f"{self.host} port {self.port}"

    @property
    def description(self) -> str:
        """Describe what it is."""
        return tr("the bastion {bastion}", bastion=self.bastion) if self.bastion else tr("the node")

    def for_node(self, name: str) -> Hop:
        """Make it the way of another node, for messages."""
        return replace(self, name=name)

    def chain(self) -> Iterator[Hop]:
        """Yield the bastions on the way, the nearest to us first."""
        if self.jump is not None:
            yield from self.jump.chain()
            yield self.jump


DEFAULT_PORT = 22
DEFAULT_KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
# files id_... that ssh tries where no IdentityFile is set
DEFAULT_KEY_KINDS = frozenset({"rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa"})
# of them, in every version: fewer were set by a user
COMMON_KEY_KINDS = frozenset({"rsa", "ecdsa", "ed25519"})


class Routes:
    """Works out the way to each node once. Safe to use from many threads."""

    def __init__(self, config: SshConfig) -> None:
        self._config = config
        self._resolved: dict[Node, Hop | ClusterctlError] = {}

    def prepare(self, nodes: Sequence[Node]) -> None:
        """Resolve many routes at once; failures are raised by `find`."""
        unresolved = [node for node in nodes if node not in self._resolved]
        if unresolved:
            INTERRUPTS.call(lambda: self._resolve_all(unresolved))

    def _resolve_all(self, nodes: Sequence[Node]) -> None:
        with ThreadPoolExecutor(MAX_PARALLEL, "ssh configuration") as pool:
            list(pool.map(self._resolve, nodes))

    def iter_hops(self, nodes: Sequence[Node]) -> Iterator[Hop]:
        """Yield all servers on the way to some nodes, as far as the ways are known."""
        for node in nodes:
            hop = self._resolved.get(node)
            if isinstance(hop, Hop):
                yield from (*hop.chain(), hop)

    def find(self, node: Node) -> Hop:
        """Return the way to a node; raises a ConnectError if its configuration cannot be read."""
        resolved = self._resolved.get(node) or self._resolve(node)
        if isinstance(resolved, ClusterctlError):
            raise resolved
        return resolved

    def _resolve(self, node: Node) -> Hop | ClusterctlError:
        try:
            resolved: Hop | ClusterctlError = self._route(node)
        except ClusterctlError as error:
            resolved = error
        self._resolved[node] = resolved
        return resolved

    def _route(self, node: Node) -> Hop:
        ssh = node.ssh
        query = ConfigQuery(node.host, ssh.user, ssh.port, _config_file(ssh))
        options = self._config.query(query, node.name)
        hop, tokens = _base_hop(node.name, query, options)
        known_hosts = (ssh.known_hosts,) if ssh.known_hosts is not None else hop.known_hosts
        hop = replace(hop, key=ssh.key, known_hosts=known_hosts, host_keys=ssh.host_keys or hop.host_keys)
        if ssh.proxy_command is not None:
            return _with_proxy_command(hop, ssh.proxy_command, tokens)
        if ssh.jump is not None:
            chain = tuple(bastion for bastion in split_jump(ssh.jump) if not _is_same_host(bastion, node))
            return replace(hop, jump=self._build_chain(hop, chain, ssh, ())) if chain else hop
        return self._configured_route(hop, options, tokens, ssh, ())

    def _configured_route(
        self,
        hop: Hop,
        options: HostOptions,
        tokens: Mapping[str, str],
        ssh: Ssh,
        visited: tuple[Bastion, ...],
    ) -> Hop:
        jump, command = _first_value(options, "proxyjump"), _first_value(options, "proxycommand")
        if jump is not None and jump != NONE:
            return replace(hop, jump=self._build_chain(hop, _parse_jump(hop.name, jump), ssh, visited))
        if command is not None and command != NONE:
            return _with_proxy_command(hop, command, tokens)
        return hop

    def _build_chain(
        self, hop: Hop, bastions: Sequence[Bastion], ssh: Ssh, visited: tuple[Bastion, ...]
    ) -> Hop | None:
        """Return the last of some bastions; the first one's own configuration defines how it is reached."""
        last: Hop | None = None
        for bastion in bastions:
            if bastion in visited or len(visited) >= LONGEST_CHAIN:
                raise _loop_error(hop.name, (*visited, bastion))
            visited = (*visited, bastion)
            last = self._bastion_hop(hop.name, bastion, last, ssh, visited)
        return last

    def _bastion_hop(
        self, node: str, bastion: Bastion, previous: Hop | None, ssh: Ssh, visited: tuple[Bastion, ...]
    ) -> Hop:
        query = ConfigQuery(bastion.host, bastion.user, bastion.port, _config_file(ssh))
        options = self._config.query(query, node)
        hop, tokens = _base_hop(node, query, options)
        known_hosts = hop.known_hosts
        if ssh.known_hosts is not None:  # the cluster's own file may know the bastion as well
            known_hosts = (ssh.known_hosts, *(known_hosts or DEFAULT_KNOWN_HOSTS))
        hop = replace(
            hop,
            bastion=str(bastion),
            offered=ssh.key if hop.identities is None else None,
            known_hosts=known_hosts,
            host_keys=ssh.host_keys or hop.host_keys,
        )
        if previous is not None:
            return replace(hop, jump=previous)
        return self._configured_route(hop, options, tokens, ssh, visited)


def plain_hop(node: Node) -> Hop:
    """Return the way to a node by the inventory alone."""
    return Routes(SshConfig(program=None)).find(node)


@cache
def login_name() -> str:
    """Return the name of the user who runs this, as ssh takes it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return getpass.getuser()


def _base_hop(node: str, query: ConfigQuery, options: HostOptions) -> tuple[Hop, Mapping[str, str]]:
    """Decide all but the route, from the query and the configuration."""
    host, user, port = _target(node, query, options)
    tokens = _tokens(query.host, host, user, port)
    hop = Hop(
        name=node,
        host=host,
        user=user,
        port=port,
        identities=_identities(options, tokens),
        certificates=_paths(options, "certificatefile", tokens),
        identities_only=_first_value(options, "identitiesonly") == "yes",
        agent=_agent(options),
        known_hosts=tuple(_known_hosts(options, tokens)),
        revoked_keys=_revoked_keys(options, tokens),
        host_key_alias=_expand_first(options, "hostkeyalias", tokens),
        host_keys=_host_key_policy(options),
        hashes_names=_first_value(options, "hashknownhosts") == "yes",
    )
    return hop, tokens


def _target(node: str, query: ConfigQuery, options: HostOptions) -> tuple[str, str, int]:
    """Take the real host, user and port; values of a configuration must be as safe as those of an inventory."""
    host = _first_value(options, "hostname") or query.host
    user = query.user or _first_value(options, "user") or login_name()
    try:
        port = query.port or parse_port(_first_value(options, "port") or str(DEFAULT_PORT))
        return parse_host(host), (user if user == login_name() else parse_user(user)), port
    except InvalidValueError as error:
        raise _invalid_config(node, f"{query.host}: {error.message}") from error


def _tokens(alias: str, host: str, user: str, port: int) -> Mapping[str, str]:
    hostname, login = socket.gethostname(), login_name()
    digest = hashlib.sha1(f"{hostname}{host}{port}{user}".encode(), usedforsecurity=False).hexdigest()
    return {
        "%": "%",
        "h": host,
        "n": alias,
        "k": alias,
        "p": str(port),
        "r": user,
        "u": login,
        "l": hostname,
        "L": hostname.partition(".")[0],
        "d": str(Path.home()),
        "i": str(os.getuid()),
        "C": digest,
    }


def _with_proxy_command(hop: Hop, template: str, tokens: Mapping[str, str]) -> Hop:
    command = expand_proxy_command(
        template, host=hop.host, port=hop.port, user=hop.user, alias=tokens["n"], node=hop.name
    )
    return replace(hop, proxy_command=command)


def _identities(options: HostOptions, tokens: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the files that a configuration names; None if they are only ssh's default ones."""
    paths = options.get("identityfile", [])
    kinds = {path.removeprefix("~/.ssh/id_") for path in paths}
    if not kinds or COMMON_KEY_KINDS <= kinds <= DEFAULT_KEY_KINDS:
        return None
    return _paths(options, "identityfile", tokens)


def _paths(options: HostOptions, key: str, tokens: Mapping[str, str]) -> tuple[str, ...]:
    expanded = (expand_tokens(path, tokens) for path in options.get(key, ()) if path != NONE)
    return tuple(path for path in expanded if path is not None)


def _known_hosts(options: HostOptions, tokens: Mapping[str, str]) -> Sequence[str]:
    """Return the user's files and the system's; none if there is no answer."""
    texts = [text for key in ("userknownhostsfile", "globalknownhostsfile") for text in options.get(key, ())]
    expanded = (expand_tokens(path, tokens) for text in texts for path in split_paths(text) if path != NONE)
    return [path for path in expanded if path is not None]


def _revoked_keys(options: HostOptions, tokens: Mapping[str, str]) -> str | None:
    """Return the file of revoked keys; what is not understood of its name stays, and then allows nothing."""
    path = _first_value(options, "revokedhostkeys")
    return None if path in (None, NONE) else expand_tokens(path, tokens) or path


def _agent(options: HostOptions) -> str | None:
    agent = _first_value(options, "identityagent")
    if agent is None or agent == "SSH_AUTH_SOCK":
        return None
    return os.environ.get(agent[1:], NONE) if agent.startswith("$") else agent


def _host_key_policy(options: HostOptions) -> Literal["strict", "accept-new"]:
    return "accept-new" if _first_value(options, "stricthostkeychecking") == "accept-new" else "strict"


def _expand_first(options: HostOptions, key: str, tokens: Mapping[str, str]) -> str | None:
    value = _first_value(options, key)
    return None if value is None else expand_tokens(value, tokens)


def _first_value(options: HostOptions, key: str) -> str | None:
    values = options.get(key)
    return values[0] if values else None


def _config_file(ssh: Ssh) -> str | None:
    if ssh.config is None or ssh.config == NONE:
        return ssh.config
    return str(Path(ssh.config).expanduser().absolute())


def _is_same_host(bastion: Bastion, node: Node) -> bool:
    """Return whether a bastion of all nodes is this node itself, which is then reached straight."""
    return bastion.host == node.host and bastion.port == node.ssh.port


def _parse_jump(node: str, jump: str) -> tuple[Bastion, ...]:
    try:
        return split_jump(jump)
    except InvalidValueError as error:
        raise _invalid_config(node, f"ProxyJump {jump}: {error.message}") from error


def _invalid_config(node: str, evidence: str) -> Unreachable:
    return Unreachable("CC-SSH-019", "names", node=node, evidence=evidence)


def _loop_error(node: str, visited: Sequence[Bastion]) -> Unreachable:
    return Unreachable("CC-SSH-019", "circle", node=node, evidence=" -> ".join(map(str, visited)))
