"""The words of `ssh` for a node whose `ssh.transport` is openssh: to its settings, a master, a session.

Everything is an argument of its own, nothing passes a shell, and `--` stands before the host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from clusterctl.plans.shell import REMOTE_COMMAND
from clusterctl.specs.inventory import Node

PERSIST = 120  # seconds that a master of ours outlives its last session, should nobody be left to end it
STRICTNESS = {"strict": "yes", "accept-new": "accept-new"}
READ_NOTHING = ("-F", "/dev/null")

# What the user's own file may ask of ssh, and would be in the way of a command. Older versions know not all.
_PLAIN = (
    *("-T", "-x", "-a", "-o", "IgnoreUnknown=SessionType,ForkAfterAuthentication,StdinNull"),
    *("-o", "SessionType=default", "-o", "ForkAfterAuthentication=no", "-o", "StdinNull=no"),
    *("-o", "RemoteCommand=none", "-o", "RequestTTY=no", "-o", "PermitLocalCommand=no"),
    *("-o", "ClearAllForwardings=yes"),
)
_TERSE, _TELLING = (
    ("-o", "LogLevel=ERROR"),
    ("-o", "LogLevel=INFO"),
)  # without and with banners and new host keys
# The beats of a session notice a dead network sooner (20 s); this is for a master that carries none.
_ALIVE = ("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")


@dataclass(frozen=True)
class Sharing:
    """What the user's own SSH files say about sharing a connection to a node."""

    path: str | None
    persists: bool  # an ordinary `ssh NODE` would leave a master there
    accept_new: bool  # it would take a host key that nobody knows
    via: str | None = None  # what stands between, if something does: `the bastion gate`
    bastion: str | None = None  # the first of the bastions: nothing stands before it


def render_options(node: Node) -> list[str]:
    """Write what the inventory says about the way to a node; what it leaves open is up to the user's own files."""
    ssh = node.ssh
    words = [] if ssh.host_keys is None else ["-o", f"StrictHostKeyChecking={STRICTNESS[ssh.host_keys]}"]
    if ssh.user:
        words += ["-l", ssh.user]
    if ssh.port is not None:
        words += ["-p", str(ssh.port)]
    if ssh.key:
        words += ["-i", ssh.key, "-o", "IdentitiesOnly=yes"]
    if ssh.known_hosts:
        words += [
            "-o",
            f"UserKnownHostsFile={_quoted(ssh.known_hosts)}",
            "-o",
            "GlobalKnownHostsFile=/dev/null",
        ]
    if ssh.config:
        words += ["-F", ssh.config]
    if ssh.jump:
        words += ["-o", f"ProxyJump={ssh.jump}"]
    if ssh.proxy_command:
        words += ["-o", f"ProxyCommand={ssh.proxy_command}"]
    return words


def settings_argv(program: str, node: Node) -> list[str]:
    """Write the command that prints what ssh would do for a node."""
    return [program, "-G", *render_options(node), "--", node.host]


def parse_sharing(printed: str) -> Sharing:
    """Read what `ssh -G` printed."""
    found: Mapping[str, str] = dict(line.partition(" ")[::2] for line in printed.splitlines())
    path = found.get("controlpath", "none")
    masters = found.get("controlmaster") in ("auto", "true", "yes")
    persists = found.get("controlpersist", "no") not in ("no", "false")
    known = None if path == "none" else path
    accepts = found.get("stricthostkeychecking") == "accept-new"
    first = found.get("proxyjump", "none").partition(",")[0]
    bastion = None if first == "none" else first
    return Sharing(known, known is not None and masters and persists, accepts, _between(found), bastion)


def _between(found: Mapping[str, str]) -> str | None:
    jump, command = (found.get(key, "none") for key in ("proxyjump", "proxycommand"))
    if jump != "none":
        return f"the bastion {jump}"
    return None if command == "none" else "a proxy command"


def master_argv(
    program: str, node: Node, sharing: Sharing, *, socket: str | None, batch: bool, limit: float
) -> list[str]:
    """Write the command that logs in and leaves a master: at `socket`, or where the user's own files say.

    The master is what remains of a command that does nothing; were its socket refused, nothing would remain.
    `batch` forbids ssh to ask anybody anything. Unknown host keys are refused unless a file of the user's accepts them.
    """
    level = _TERSE if batch and not sharing.accept_new else _TELLING
    words = [program, *_PLAIN, *level, *render_options(node), "-o", f"ConnectTimeout={limit:.0f}"]
    if not sharing.accept_new:
        words += ["-o", "StrictHostKeyChecking=yes"]
    if batch:
        words += ["-o", "BatchMode=yes"]
    if socket is not None:
        words += [
            "-o",
            "ControlMaster=yes",
            "-S",
            _token_free(socket),
            "-o",
            f"ControlPersist={PERSIST}",
            *_ALIVE,
        ]
    return [*words, "--", node.host, "exit 0"]


def bastion_argv(program: str, node: Node, bastion: str, *, limit: float) -> list[str]:
    """Write the command that shows whether a bastion answers at all; it asks nobody anything."""
    words = [program, *_PLAIN, *_TERSE, *(["-F", node.ssh.config] if node.ssh.config else [])]
    words += ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ControlPath=none"]
    place = bastion if bastion.startswith("ssh://") else f"ssh://{bastion}"
    return [*words, "-o", f"ConnectTimeout={limit:.0f}", "--", place, "exit 0"]


def new_host_keys(said: str) -> list[str]:
    """Find the host keys that ssh says it has recorded."""
    return re.findall(r"^Warning: Permanently added (.+) to the list of known hosts", said, re.MULTILINE)


def session_argv(program: str, node: Node, socket: str) -> list[str]:
    """Write the command that runs the constant remote command over a master.

    Without the master it must fail: ssh would else make a connection of its own, past all that was agreed.
    """
    alone = ("-o", "ControlMaster=no", "-o", "BatchMode=yes", "-o", "ProxyCommand=false")
    words = [program, *READ_NOTHING, *_PLAIN, *_TERSE, "-S", _token_free(socket), *alone]
    return [*words, "--", node.host, REMOTE_COMMAND]


def control_argv(program: str, socket: str, request: str) -> list[str]:
    """Write a request to a master: `check` or `exit`."""
    return [program, *READ_NOTHING, "-S", _token_free(socket), "-O", request, "--", "master"]


def _quoted(path: str) -> str:
    """Keep ssh from taking a blank for the end of a path; `~` and `%` mean to it what they always do."""
    return f'"{path}"'


def _token_free(path: str) -> str:
    """Keep ssh from filling in what looks like one of its tokens."""
    return path.replace("%", "%%")
