"""Command lines of ssh, remote bootstrap, authorized_keys edit.

The two texts that meet a node's login shell: a constant command, and one line that leads to Python.

The command is the same for every node and every use, and means the same in sh, bash, zsh, fish and csh:
nothing that a user wrote is in it. Whatever differs travels afterwards on stdin, to a `/bin/sh`.

The words of `ssh` for a node whose `ssh.transport` is openssh: to its settings, a master, a session.

Everything is an argument of its own, nothing passes a shell, and `--` stands before the host.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from clusterctl.specs.inventory.model import Node

# Lines that do not start with a colon are not ours: then a start-up file has read our first lines, and
# `exit 125` says so instead of evaluating what follows.
REMOTE_COMMAND = (
    "exec /bin/sh -c 'while IFS= read -r c; do case $c in :*) eval \"$c\";; *) exit 125;; esac; done'"
)
STOLEN_STDIN = 125

# What a `read` in a start-up file may take without harm.
DECOYS = ":\n" * 8

BOOT = (
    'import sys;b=getattr(sys.stdin,"buffer",sys.stdin);'
    'exec(compile(b.read(int(b.readline())),"clusterctl-boot","exec"))'
)

# What stderr holds when the user's `activate` ended the shell, and no Python was started.
SHELL_ENDED = "clusterctl: activate ended the shell with status "

# What stdout holds before and after the user's `activate`, so that one that hangs can be named.
ACTIVATING = "clusterctl: activate begins"
ACTIVATED = "clusterctl: activate has come to its end"

# `||` keeps a `set -e` of the user's text from ending the shell; a `set --` in it cannot lose what was kept.
# The status goes to Python in a variable, which `node.supervise.spawn` keeps from the workers.
ACTIVATE = (
    "clusterctl_python=$2 clusterctl_boot=$3 clusterctl_status=0; unset CLUSTERCTL_ACTIVATE_STATUS;"
    f' trap "echo \\"{SHELL_ENDED}\\$?\\" >&2" EXIT; echo "{ACTIVATING}";'
    ' eval "$1" </dev/null >&2 || clusterctl_status=$?;'
    f' trap - EXIT; echo "{ACTIVATED}";'
    ' export CLUSTERCTL_ACTIVATE_STATUS="$clusterctl_status";'
    ' [ "$clusterctl_status" = 0 ] || echo "clusterctl: activate ended with status $clusterctl_status" >&2;'
    ' exec "$clusterctl_python" -c "$clusterctl_boot"; exit 126'
)


def render_bootstrap(python: str, activate: str | None) -> str:
    """Write the one line of sh that ends in the node's Python reading its program from stdin."""
    steps = [":", *_assign("p", python)]
    if activate is None:
        steps.append(f"exec \"$p\" -c '{BOOT}'")
    else:
        steps += _assign("a", activate, home=False)
        steps.append("s=/bin/sh; command -v bash >/dev/null 2>&1 && s=bash")
        steps.append(f'exec "$s" -c \'{ACTIVATE}\' activate "$a" "$p" \'{BOOT}\'')
    return "; ".join([*steps, "exit 126"])


def _assign(name: str, value: str, *, home: bool = True) -> list[str]:
    """Assign any text to a shell variable; a leading `~/` becomes the home directory there."""
    if home and value.startswith("~/"):
        return [*_assign(name, value[2:], home=False), f'{name}="$HOME/${name}"']
    raw = value.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise ValueError("a NUL byte cannot be part of a command")
    if all(0x20 <= byte < 0x7F and byte != 0x27 for byte in raw):
        return [f"{name}='{value}'"]
    octal = "".join(f"\\0{byte:03o}" for byte in raw)
    # The x keeps newlines at the end from being dropped by $( ).
    return [f"{name}=$(printf %b '{octal}x')", f"{name}=${{{name}%x}}"]


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


MARK = "clusterctl-key:"
ADDED, PRESENT, FAILED, NOTE = "added", "present", "failed", "note"

# One line, for login shells that read no more than that. What start-up files print stands before the marks.
# The lock is for nodes that share a home; one that was left behind costs five seconds. The modes are those that
# sshd's StrictModes asks for; a home that others may write is the owner's to mend.
_SCRIPT = r"""
umask 077
key={key}
blob={blob}
say() {{ printf '\n%s %s %s\n' '{mark}' "$1" "$2"; }}
fail() {{ say failed "$1"; exit 0; }}
cd || fail 'the home directory cannot be entered'
why=$(mkdir -p .ssh 2>&1) || fail "$why"
file=.ssh/authorized_keys
state=present
lock=.ssh/.clusterctl-lock tries=0
while [ -w .ssh ] && ! mkdir "$lock" 2>/dev/null && [ $tries -lt 50 ]; do tries=$((tries + 1)); sleep 0.1; done
trap 'rmdir "$lock" 2>/dev/null' EXIT
if ! grep -v '^[[:space:]]*#' "$file" 2>/dev/null | grep -qF "$blob"; then
  state=added
  start=
  [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ] && start='\n'
  why=$( {{ printf "$start%s\n" "$key" >> "$file"; }} 2>&1) || fail "$why"
fi
chmod 700 .ssh && chmod 600 "$file" || say note 'the modes of ~/.ssh could not be set'
restorecon -F .ssh "$file" 2>/dev/null
case $(ls -ld . | cut -c6,9) in *w*) say note 'others may write to the home: chmod go-w ~' ;; esac
say $state "$HOME/$file"
exit 0
"""


@dataclass(frozen=True)
class Installed:
    """What a node says: `added`, `present`, or `failed` with why; and notes."""

    state: str
    detail: str
    notes: tuple[str, ...] = ()


def render_install(public_key: str) -> str:
    """Give the script that puts a public key into the account's authorized_keys, once however often it runs."""
    line = public_key.strip()
    return _SCRIPT.format(key=shlex.quote(line), blob=shlex.quote(" ".join(line.split()[:2])), mark=MARK)


def parse_installed(text: str) -> Installed:
    """Read what came back; a node that does not come to an end has failed, with its last words."""
    said = [line[len(MARK) :].strip() for line in text.splitlines() if line.startswith(MARK)]
    notes = tuple(one.partition(" ")[2] for one in said if one.startswith(NOTE))
    ends = [one for one in said if one.split(" ")[0] in (ADDED, PRESENT, FAILED)]
    if not ends:
        last = text.strip().rpartition("\n")[2]
        return Installed(FAILED, last or "the node's shell said nothing", notes)
    state, _, detail = ends[-1].partition(" ")
    return Installed(state, detail, notes)
