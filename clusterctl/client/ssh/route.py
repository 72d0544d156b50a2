"""Hop, and the hops to each node."""

from __future__ import annotations

import getpass
import os
import pwd
from collections.abc import Iterator, Sequence
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
    split_paths,
)
from clusterctl.errors import ClusterctlError, InvalidValueError, Unreachable
from clusterctl.interrupts import INTERRUPTS
from clusterctl.plans.ssh import LAB_RELAY, names_own_keys
from clusterctl.specs.inventory.model import Node, Ssh
from clusterctl.specs.values import Bastion, parse_host, parse_port, parse_user, split_jump
from clusterctl.translation import tr


@dataclass(frozen=True, kw_only=True)
class Hop:
    """A node or a bastion; `name` is the node that errors are about, `jump` the bastion before it."""

    name: str
    host: str
    user: str
    port: int = 22
    bastion: str = ""  # how it is written, if it is one
    key: str | None = None  # must be usable
    identities: tuple[str, ...] | None = None  # files to try; None: the usual ones
    offered: str | None = None  # a file to try before those
    identities_only: bool = False
    agent: str | None = None  # a socket, `none`, or None for SSH_AUTH_SOCK's
    known_hosts: tuple[str, ...] = ()  # where new keys are recorded first; none: the usual ones
    host_key_alias: str | None = None
    host_keys: Literal["strict", "accept-new"] = "strict"
    hashes_names: bool = False  # HashKnownHosts: a new key is recorded without the server's name
    jump: Hop | None = None
    lab: str | None = None  # the folder of the practice cluster in whose network the address is
    needs_ssh: bool = (
        False  # a way for the user's own ssh: several bastions, ProxyCommand, certificates, revoked keys
    )

    @property
    def address(self) -> str:
        """Describe where it is."""
        return f"{self.host} port {self.port}"

    @property
    def description(self) -> str:
        """Describe what it is."""
        return tr("the bastion {bastion}", bastion=self.bastion) if self.bastion else tr("the node")

    def chain(self) -> Iterator[Hop]:
        """Yield the bastion on the way, if there is one, and itself."""
        if self.jump is not None:
            yield self.jump
        yield self


DEFAULT_PORT = 22
DEFAULT_KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")


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
                yield from hop.chain()

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
        hop = _base_hop(node.name, query, options)
        known_hosts = (ssh.known_hosts,) if ssh.known_hosts is not None else hop.known_hosts
        hop = replace(hop, key=ssh.key, known_hosts=known_hosts, host_keys=ssh.host_keys or hop.host_keys)
        bastions = () if ssh.proxy_command else split_route(node, ssh.jump or _jump(options))
        if not bastions:
            command = ssh.proxy_command or ("" if ssh.jump else _first_value(options, "proxycommand"))
            return _through_command(hop, command) if command not in (None, "", NONE) else hop
        jump = self._bastion_hop(hop.name, bastions[-1], ssh)
        return replace(hop, jump=jump, needs_ssh=hop.needs_ssh or jump.needs_ssh or len(bastions) > 1)

    def _bastion_hop(self, node: str, bastion: Bastion, ssh: Ssh) -> Hop:
        query = ConfigQuery(bastion.host, bastion.user, bastion.port, _config_file(ssh))
        options = self._config.query(query, node)
        hop = _base_hop(node, query, options)
        known_hosts = hop.known_hosts
        if ssh.known_hosts is not None:  # the cluster's own file may know the bastion as well
            known_hosts = (ssh.known_hosts, *(known_hosts or DEFAULT_KNOWN_HOSTS))
        own_route = _is_set(options, "proxyjump") or _is_set(options, "proxycommand")
        return replace(
            hop,
            bastion=str(bastion),
            offered=ssh.key if hop.identities is None else None,
            known_hosts=known_hosts,
            host_keys=ssh.host_keys or hop.host_keys,
            needs_ssh=hop.needs_ssh or own_route,
        )


def split_route(node: Node, jump: str) -> tuple[Bastion, ...]:
    """Split the chain of bastions before a node; one of all nodes that is this node itself is none for it."""
    try:
        bastions = split_jump(jump)
    except InvalidValueError as error:
        raise _invalid_config(node.name, f"ProxyJump {jump}: {error.message}") from error
    return tuple(each for each in bastions if each.host != node.host or each.port != node.ssh.port)


@cache
def login_name() -> str:
    """Return the name of the user who runs this, as ssh takes it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return getpass.getuser()


def _base_hop(node: str, query: ConfigQuery, options: HostOptions) -> Hop:
    """Decide all but the route, from the query and the configuration."""
    host, user, port = _target(node, query, options)
    identities = _identities(options)
    known_hosts = _known_hosts(options)
    alias, agent = _first_value(options, "hostkeyalias"), _agent(options)
    texts = (*(identities or ()), *known_hosts, alias or "", agent or "")
    return Hop(
        name=node,
        host=host,
        user=user,
        port=port,
        identities=identities,
        identities_only=_first_value(options, "identitiesonly") == "yes",
        agent=agent,
        known_hosts=known_hosts,
        needs_ssh=_is_set(options, "certificatefile")
        or _is_set(options, "revokedhostkeys")
        or any("%" in text or "${" in text for text in texts),  # to be filled in
        host_key_alias=alias,
        host_keys=_host_key_policy(options),
        hashes_names=_first_value(options, "hashknownhosts") == "yes",
    )


def _target(node: str, query: ConfigQuery, options: HostOptions) -> tuple[str, str, int]:
    """Take the real host, user and port; values of a configuration must be as safe as those of an inventory."""
    host = _first_value(options, "hostname") or query.host
    user = query.user or _first_value(options, "user") or login_name()
    try:
        port = query.port or parse_port(_first_value(options, "port") or str(DEFAULT_PORT))
        return parse_host(host), (user if user == login_name() else parse_user(user)), port
    except InvalidValueError as error:
        raise _invalid_config(node, f"{query.host}: {error.message}") from error


def _identities(options: HostOptions) -> tuple[str, ...] | None:
    """Return the files that a configuration names; None if they are only ssh's default ones."""
    paths = options.get("identityfile", [])
    return tuple(path for path in paths if path != NONE) if names_own_keys(paths) else None


def _known_hosts(options: HostOptions) -> tuple[str, ...]:
    """Return the user's files and the system's; none if there is no answer."""
    texts = [text for key in ("userknownhostsfile", "globalknownhostsfile") for text in options.get(key, ())]
    return tuple(path for text in texts for path in split_paths(text) if path != NONE)


def _agent(options: HostOptions) -> str | None:
    agent = _first_value(options, "identityagent")
    if agent is None or agent == "SSH_AUTH_SOCK":
        return None
    return os.environ.get(agent[1:], NONE) if agent.startswith("$") else agent


def _host_key_policy(options: HostOptions) -> Literal["strict", "accept-new"]:
    return "accept-new" if _first_value(options, "stricthostkeychecking") == "accept-new" else "strict"


def _first_value(options: HostOptions, key: str) -> str | None:
    values = options.get(key)
    return values[0] if values else None


def _is_set(options: HostOptions, key: str) -> bool:
    return _first_value(options, key) not in (None, NONE)


def _jump(options: HostOptions) -> str:
    return _first_value(options, "proxyjump") or NONE


def _through_command(hop: Hop, command: str) -> Hop:
    """Leave a ProxyCommand to ssh, but for that of a practice cluster, in whose folder the keys are."""
    files = (*filter(None, [hop.key]), *(hop.identities or ()), *hop.known_hosts)
    if LAB_RELAY not in command or not files:
        return replace(hop, needs_ssh=True)
    folders = [Path(file).expanduser().parent for file in files]
    return replace(hop, lab=str(next((path for path in folders if (path / "control").exists()), folders[0])))


def _config_file(ssh: Ssh) -> str | None:
    if ssh.config is None or ssh.config == NONE:
        return ssh.config
    return str(Path(ssh.config).expanduser().absolute())


def _invalid_config(node: str, evidence: str) -> Unreachable:
    return Unreachable("CC-SSH-019", "names", node=node, evidence=evidence)


def loop_error(node: str, visited: Sequence[Bastion]) -> Unreachable:
    """Report that the bastions to a node never end."""
    return Unreachable("CC-SSH-019", "circle", node=node, evidence=" -> ".join(map(str, visited)))
