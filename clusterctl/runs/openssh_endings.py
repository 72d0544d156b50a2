"""What the ssh program says when it does not get in, as the errors that other ways into a node raise.

| CC-SSH-018 | the bastion does not answer                                | Unreachable |
| CC-SSH-030 | there is no usable ssh program, or it refuses its settings | Unreachable |
| CC-SSH-031 | ssh failed, and in words that mean nothing to us           | Unreachable |
"""

from __future__ import annotations

import re

from clusterctl.errors import (
    AuthenticationFailed,
    ConnectError,
    ConnectTimeout,
    HostKeyError,
    Unreachable,
)
from clusterctl.specs.commandline import command_line, quote_word
from clusterctl.specs.inventory import Node

TAIL = 2048
REFUSED_LOGIN, CLOSED, BETWEEN = "CC-SSH-007", "CC-SSH-006", "CC-SSH-013"
DEAD = ("CC-SSH-001", "CC-SSH-002", "CC-SSH-003", "CC-SSH-004")  # no login will help
NEVER_MET = "kex_exchange_identification: "  # the node itself has said nothing

# What ssh says (OpenSSH 7 to 10), kind, code, message, fix; the first that is found counts.
_WORDS: tuple[tuple[str, type[ConnectError], str, str, str], ...] = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED|host key for .* has changed",
        HostKeyError,
        "CC-SSH-010",
        "the host key of {place} is not the known one",
        "find out why: was the node reinstalled? Then `ssh-keygen -R {known}`, and connect once by `{ssh}`",
    ),
    (
        "REVOKED HOST KEY|marked as revoked",
        HostKeyError,
        "CC-SSH-011",
        "the host key of {place} is revoked",
        "do not connect; ask who runs the node",
    ),
    (
        "[Nn]o .*host key is known for|Host key verification failed",
        HostKeyError,
        "CC-SSH-009",
        "the host key of {place} is not known",
        "run `{ssh}` once and compare the fingerprint, or write `ssh: {{host_keys: accept-new}}`",
    ),
    (
        "Could not resolve hostname",
        Unreachable,
        "CC-SSH-001",
        "ssh cannot resolve {host}",
        "correct `host` in the inventory, or give it a HostName in ~/.ssh/config",
    ),
    (
        "Connection refused",
        Unreachable,
        "CC-SSH-002",
        "{place} refused the connection",
        "start sshd on the node, or correct `host` and `ssh.port` in the inventory",
    ),
    (
        "No route to host|Network is unreachable|Host is down|Permission denied.*port",
        Unreachable,
        "CC-SSH-003",
        "there is no way to {place}",
        "see what `ip route get` says about {host}, and whether that network is up",
    ),
    (
        "timed out|[Tt]imeout",
        ConnectTimeout,
        "CC-SSH-004",
        "ssh had no answer from {place} in time",
        "the node is off, overloaded or stopped, or a firewall drops the packets",
    ),
    (
        r"Permission denied \(|Permission denied, please try again|Too many authentication failures"
        "|authentication methods|Authentication failed",
        AuthenticationFailed,
        REFUSED_LOGIN,
        "the node does not let us in by ssh",
        "see what `{ssh}` says; Kerberos may want a `kinit`",
    ),
    (
        "banner line|Invalid SSH identification|protocol version",
        Unreachable,
        "CC-SSH-005",
        "what answers at {place} is not an SSH server",
        "correct `host` and `ssh.port` in the inventory",
    ),
    (
        "Unable to negotiate|[Cc]onnection closed by|Connection reset by|kex_exchange|banner exchange: "
        "|disconnect from",
        Unreachable,
        CLOSED,
        "the server at {place} ended the connection",
        "it may limit connections (MaxStartups, PerSourcePenalties): wait a little, and read its log",
    ),
    (
        "closed by UNKNOWN port|[Cc]onnection closed|[Cc]onnection reset|stdio forward|kex_exchange|banner exchange: ",
        Unreachable,
        BETWEEN,
        "the way to {place} through {via} ended",
        "see what `{ssh}` says: what stands between may be down, unknown here or not let you in; or the node is down",
    ),
    (
        "[Bb]ad configuration option|bad configuration|Can't open user config|Bad owner or permissions"
        "|unknown option|illegal option|garbage at end of line|missing argument|keyword .* extra arguments",
        Unreachable,
        "CC-SSH-030",
        "ssh refuses its settings",
        "correct ~/.ssh/config, or what the inventory says under `ssh:`",
    ),
)


def explain(node: Node, said: str, status: int, *, asked: bool, via: str | None = None) -> ConnectError:
    """Say why ssh did not get in.

    `asked` tells whether it was allowed to ask the user for a password, `via` names what stands in between. A bastion's
    own words are not among those `said`: ssh throws them away where it leaves a master.
    """
    names = {"host": node.host, "place": _place(node), "known": _known_name(node), "ssh": hand_command(node)}
    names["via"] = via or "a proxy command or bastion"
    evidence = said.strip()[-TAIL:]
    for words, kind, code, message, fix in _WORDS:
        if re.search(words, said):
            more = "" if asked or code != REFUSED_LOGIN else _how_to_answer(node)
            if via and (code == CLOSED or (code != BETWEEN and NEVER_MET in said)):
                continue  # who ended it stands in between
            text = message.format(**names)
            return kind(text, code=code, node=node.name, evidence=evidence, fix=more or fix.format(**names))
    return Unreachable(
        f"ssh to {_place(node)} "
        + (f"ended with status {status}" if status >= 0 else f"got signal {-status}"),
        code="CC-SSH-031",
        node=node.name,
        evidence=evidence,
        fix=f"see what `{hand_command(node)}` says",
    )


def overdue(node: Node, limit: float, said: str) -> ConnectTimeout:
    """Say that ssh did not get in within its time."""
    return ConnectTimeout(
        f"ssh was not let in at {_place(node)} within {limit:g} s",
        code="CC-SSH-004",
        node=node.name,
        evidence=said.strip()[-TAIL:],
        fix=f"see what `{hand_command(node)}` waits for",
    )


def dead_bastion(node: Node, bastion: str, error: ConnectError) -> Unreachable:
    """Say that the way ends at the bastion."""
    return Unreachable(
        f"the bastion {bastion} does not answer",
        code="CC-SSH-018",
        node=node.name,
        evidence=error.evidence,
        fix=f"see what `{command_line('ssh', bastion)}` says; if it is another one, correct `jump` or the ProxyJump "
        "of ~/.ssh/config",
    )


def no_program(node: Node, error: OSError) -> Unreachable:
    """Say that there is no ssh program to run."""
    return Unreachable(
        "the program ssh cannot be run on this machine",
        code="CC-SSH-030",
        node=node.name,
        evidence=str(error),
        fix="install the OpenSSH client, or leave out `transport: openssh`",
    )


def hand_command(node: Node) -> str:
    """Write the `ssh` that a user would type for a node."""
    words = ["ssh", *(["-p", str(node.ssh.port)] if node.ssh.port not in (None, 22) else ())]
    words += ["-i", node.ssh.key] if node.ssh.key else []
    words += ["-J", node.ssh.jump] if node.ssh.jump else []
    words += ["-o", f"ProxyCommand={node.ssh.proxy_command}"] if node.ssh.proxy_command else []
    return command_line(*words, f"{node.ssh.user}@{node.host}" if node.ssh.user else node.host)


def _how_to_answer(node: Node) -> str:
    return (
        "without a terminal ssh may not ask for a password or code. Give the host `ControlMaster auto`, "
        f"`ControlPath ~/.ssh/cm-%C` and `ControlPersist 8h` in ~/.ssh/config, run `{hand_command(node)}` once "
        "and then this again; or run this in a terminal. Kerberos wants a `kinit`"
    )


def _place(node: Node) -> str:
    return node.host if node.ssh.port in (None, 22) else f"{node.host} port {node.ssh.port}"


def _known_name(node: Node) -> str:
    return quote_word(node.host if node.ssh.port in (None, 22) else f"[{node.host}]:{node.ssh.port}")
