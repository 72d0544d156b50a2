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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from clusterctl.plans.facts.untrusted import clean_text
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

# Lines that do not start with a colon are not ours: then a start-up file has read our first lines, and
# `exit 125` reports it instead of evaluating what follows.
READ_LINES = "/bin/sh -c 'while IFS= read -r c; do case $c in :*) eval \"$c\";; *) exit 125;; esac; done'"
REMOTE_COMMAND = f"exec {READ_LINES}"
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


# A step beside those that run: it takes nothing from them, and its output comes as it is written.
STEP_OPTIONS = ("--overlap", "--nodes=1", "--ntasks=1", "--unbuffered", "--cpu-bind=none", "--export=ALL")


def render_step(job: str, node: str) -> str:
    """Write the line of sh that leads from the login node of a Slurm cluster to a node of a job."""
    return f":; exec {shlex.join(step_argv(job, node))} {READ_LINES}\n"


def step_argv(job: str, node: str) -> list[str]:
    """Write the words that run a command on a node of a Slurm job, from the login node."""
    return ["srun", *STEP_OPTIONS, f"--jobid={job}", f"--nodelist={node}"]


def render_bootstrap(python: str, activate: str | None) -> str:
    """Write the one line of sh that ends in the node's Python reading its program from stdin."""
    steps = [":", *_assign("p", python)]
    if activate is None:
        steps.append(f"exec \"$p\" -c '{BOOT}'")
    else:
        steps += _assign("a", activate, expand_home=False)
        steps.append("s=/bin/sh; command -v bash >/dev/null 2>&1 && s=bash")
        steps.append(f'exec "$s" -c \'{ACTIVATE}\' activate "$a" "$p" \'{BOOT}\'')
    return "; ".join([*steps, "exit 126"])


def _assign(name: str, value: str, *, expand_home: bool = True) -> list[str]:
    """Assign any text to a shell variable; a leading `~/` becomes the home directory there."""
    if expand_home and value.startswith("~/"):
        return [*_assign(name, value[2:], expand_home=False), f'{name}="$HOME/${name}"']
    raw = value.encode("utf-8", "surrogateescape")
    if b"\0" in raw:
        raise ValueError("a NUL byte cannot be part of a command")
    if all(0x20 <= byte < 0x7F and byte != 0x27 for byte in raw):
        return [f"{name}='{value}'"]
    octal = "".join(f"\\0{byte:03o}" for byte in raw)
    # The x keeps newlines at the end from being dropped by $( ).
    return [f"{name}=$(printf %b '{octal}x')", f"{name}=${{{name}%x}}"]


# seconds that a master of ours outlives its last session, if no process is left to end it
MASTER_PERSIST = 120
STRICTNESS = {"strict": "yes", "accept-new": "accept-new"}
NO_CONFIG = ("-F", "/dev/null")

# What the user's own file may ask of ssh, and would be in the way of a command. Older versions know not all.
_PLAIN_OPTIONS = (
    *("-T", "-x", "-a", "-o", "IgnoreUnknown=SessionType,ForkAfterAuthentication,StdinNull"),
    *("-o", "SessionType=default", "-o", "ForkAfterAuthentication=no", "-o", "StdinNull=no"),
    *("-o", "RemoteCommand=none", "-o", "RequestTTY=no", "-o", "PermitLocalCommand=no"),
    *("-o", "ClearAllForwardings=yes"),
)
# without and with banners and new host keys
_QUIET_OPTIONS, _VERBOSE_OPTIONS = ("-o", "LogLevel=ERROR"), ("-o", "LogLevel=INFO")
# The beats of a session notice a dead network sooner (20 s); this is for a master that carries none.
_KEEPALIVE_OPTIONS = ("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3")


NO_JUMP = "none"


@dataclass(frozen=True)
class ConnectionSharing:
    """What the user's own SSH files say about sharing a connection to a node."""

    control_path: str | None
    persists: bool  # an ordinary `ssh NODE` would leave a master there
    unknown_keys: str = "yes"  # StrictHostKeyChecking: `accept-new` where the files accept unknown host keys
    via_text: str | None = None  # what stands between, if something does: `the bastion gate`
    jump: str = NO_JUMP  # the chain of bastions, as `ssh -J` takes it
    usual_keys: tuple[str, ...] = ()  # files that ssh tries by itself, because its configuration names none


LAB_RELAY, LAB_ADDRESSES = "/lab/netns/relay.py", "127.77."  # of practice clusters, see `lab/layout.py`


def name_lab(host: str, key: str | None, proxy_command: str | None) -> str:
    """Name the practice cluster that a node is in, whose directory holds its key; empty for any other node."""
    in_lab = LAB_RELAY in (proxy_command or "") or host.startswith(LAB_ADDRESSES)
    return PurePosixPath(key).parent.name if key and in_lab else ""


def render_lab_command(lab: str, verb: str, node: str) -> str:
    """Write the command of `clusterctl lab` for a node: what reaches it otherwise is of no interest to users."""
    return command_line("clusterctl", "lab", verb, "--name", lab, node)


def with_english_messages(environment: Mapping[str, str]) -> dict[str, str]:
    """Change an environment so that programs whose messages are read here write them in English.

    LC_ALL would hide LC_MESSAGES; the rest of it, the encoding above all, stays.
    """
    changed = {name: value for name, value in environment.items() if name not in ("LC_ALL", "LANGUAGE")}
    if environment.get("LC_ALL"):
        changed["LC_CTYPE"] = environment["LC_ALL"]
    return {**changed, "LC_MESSAGES": "C"}


def render_options(node: Node) -> list[str]:
    """Write the inventory's settings of the way to a node; what it leaves open is up to the user's own files."""
    ssh = node.ssh
    options = [] if ssh.host_keys is None else ["-o", f"StrictHostKeyChecking={STRICTNESS[ssh.host_keys]}"]
    if ssh.user:
        options += ["-l", ssh.user]
    if ssh.port is not None:
        options += ["-p", str(ssh.port)]
    if ssh.key:
        options += ["-i", ssh.key, "-o", "IdentitiesOnly=yes"]
    if ssh.known_hosts:
        options += [
            "-o",
            f"UserKnownHostsFile={_quote_path(ssh.known_hosts)}",
            "-o",
            "GlobalKnownHostsFile=/dev/null",
        ]
    if ssh.config:
        options += ["-F", ssh.config]
    if ssh.jump:
        options += ["-o", f"ProxyJump={ssh.jump}"]
    if ssh.proxy_command:
        options += ["-o", f"ProxyCommand={ssh.proxy_command}"]
    return options


SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"


def render_bastion_options(bastion: Node, usual_keys: Sequence[str] = ()) -> list[str]:
    """Write the inventory's settings of a bastion, whose `ssh` has the key and the host keys of the nodes behind it.

    The key is tried besides those that ssh tries by itself, and not where the user's files name others. The file of
    host keys is one more of the system's: the user's own files count for a bastion as well.
    """
    ssh = bastion.ssh
    options = render_options(replace(bastion, ssh=replace(ssh, key=None, known_hosts=None)))
    if ssh.known_hosts:
        files = f"{_quote_path(ssh.known_hosts)} {SYSTEM_KNOWN_HOSTS}"
        options += ["-o", f"GlobalKnownHostsFile={files}"]
    if ssh.key and usual_keys:
        for key in (ssh.key, *usual_keys):
            options += ["-o", f"IdentityFile={_quote_path(key)}"]
    return options


def settings_argv(program: str, host: str, options: Sequence[str]) -> list[str]:
    """Write the command that prints what ssh would do for a host."""
    return [program, "-G", *options, "--", host]


def parse_sharing(output: str) -> ConnectionSharing:
    """Read what `ssh -G` printed."""
    lines = [line.partition(" ")[::2] for line in output.splitlines()]
    settings: Mapping[str, str] = dict(lines)
    keys = tuple(value for key, value in lines if key == "identityfile")
    control_path = settings.get("controlpath", "none")
    makes_masters = settings.get("controlmaster") in ("auto", "true", "yes")
    persists = settings.get("controlpersist", "no") not in ("no", "false")
    usable_path = None if control_path == "none" else control_path
    accepts_new_keys = settings.get("stricthostkeychecking") == "accept-new"
    return ConnectionSharing(
        usable_path,
        usable_path is not None and makes_masters and persists,
        "accept-new" if accepts_new_keys else "yes",
        _describe_intermediary(settings),
        settings.get("proxyjump", NO_JUMP),
        () if names_own_keys(keys) else keys,
    )


def _describe_intermediary(settings: Mapping[str, str]) -> str | None:
    jump, command = (settings.get(key, "none") for key in ("proxyjump", "proxycommand"))
    if jump != "none":
        return tr("the bastion {name}", name=jump)
    return None if command == "none" else tr("a proxy command")


# files id_... that ssh tries where no IdentityFile is set
DEFAULT_KEY_KINDS = frozenset({"rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa"})
# of them, in every version: fewer were set by a user
COMMON_KEY_KINDS = frozenset({"rsa", "ecdsa", "ed25519"})


def names_own_keys(paths: Sequence[str]) -> bool:
    """Return whether a configuration names key files: where it names none, ssh lists the usual ones."""
    kinds = {path.removeprefix("~/.ssh/id_") for path in paths}
    return bool(kinds) and not COMMON_KEY_KINDS <= kinds <= DEFAULT_KEY_KINDS


def master_argv(
    program: str,
    host: str,
    options: Sequence[str],
    sharing: ConnectionSharing,
    *,
    socket: str | None,
    batch: bool,
    timeout: float,
) -> list[str]:
    """Write the command that logs in and leaves a master: one of ours at `socket`, or the one of the user's own files.

    The master is what remains of a command that does nothing; were its socket refused, nothing would remain.
    `batch` forbids ssh to prompt. Unknown host keys are refused unless a file of the user's accepts them.
    """
    level = _QUIET_OPTIONS if batch and sharing.unknown_keys == "yes" else _VERBOSE_OPTIONS
    argv = [program, *_PLAIN_OPTIONS, *level, *options, "-o", f"ConnectTimeout={timeout:.0f}"]
    argv += ["-o", f"StrictHostKeyChecking={sharing.unknown_keys}"]
    if batch:
        argv += ["-o", "BatchMode=yes"]
    if socket is not None:
        argv += [
            "-o",
            "ControlMaster=yes",
            "-S",
            _escape_tokens(socket),
            "-o",
            f"ControlPersist={MASTER_PERSIST}",
            *_KEEPALIVE_OPTIONS,
        ]
    elif sharing.control_path is not None:  # as it stands: with ProxyCommand `%C` would be another
        argv += ["-S", _escape_tokens(sharing.control_path)]
    return [*argv, "--", host, "exit 0"]


def parse_new_host_keys(stderr: str) -> list[str]:
    """Find the host keys that ssh reports as recorded."""
    return re.findall(r"^Warning: Permanently added (.+) to the list of known hosts", stderr, re.MULTILINE)


def session_argv(
    program: str, node: Node, socket: str, command: str = REMOTE_COMMAND, *, terminal: bool = False
) -> list[str]:
    """Write the command that runs a command over a master; without one the login shell.

    Without the master it must fail: ssh would else make a connection of its own, past all that was agreed.
    """
    argv = [program, *NO_CONFIG, *_PLAIN_OPTIONS, *_QUIET_OPTIONS, *_over_master(socket)]
    return [*argv, *(["-t"] if terminal else []), "--", node.host, *filter(None, [command])]


def _over_master(socket: str) -> list[str]:
    no_fallback = ["-o", "ControlMaster=no", "-o", "BatchMode=yes", "-o", "ProxyCommand=false"]
    return ["-S", _escape_tokens(socket), *no_fallback]


def render_forward_command(program: str, socket: str, bastion: str) -> str:
    """Write the ProxyCommand that leads to a node over the master of the bastion before it."""
    argv = [program, *NO_CONFIG, *_QUIET_OPTIONS, *_over_master(socket), "-W", "HOST:PORT", "--", bastion]
    return _escape_tokens(shlex.join(argv)).replace("HOST:PORT", "'[%h]:%p'")


def render_terminal_command(
    words: Sequence[str], activate: str | None = None, step: Sequence[str] = ()
) -> str:
    """Write the remote command that becomes a program, after the user's `activate`; without words the account's shell.

    Every login shell reads it alike: the script stands in it as octal digits. `step` leads to another machine.
    """
    script = f"exec {shlex.join(words)}" if words else 'exec "${SHELL:-/bin/sh}" -l'
    if activate is not None:
        script = f"{activate}\n{script}"
    script = f's=/bin/sh; command -v bash >/dev/null 2>&1 && s=bash; exec "$s" -c {shlex.quote(script)}'
    if step:
        script = f"exec {shlex.join([*step, '/bin/sh', '-c', script])}"
    octal = "".join(f"\\0{byte:03o}" for byte in script.encode("utf-8", "surrogateescape"))
    return f'exec /bin/sh -c \'eval "$(printf %b "{octal}")"\''


def control_argv(program: str, socket: str, request: str) -> list[str]:
    """Write a request to a master: `check` or `exit`."""
    return [program, *NO_CONFIG, "-S", _escape_tokens(socket), "-O", request, "--", "master"]


def _quote_path(path: str) -> str:
    """Keep ssh from taking a blank for the end of a path; `~` and `%` mean to it what they always do."""
    return f'"{path}"'


def _escape_tokens(path: str) -> str:
    """Keep ssh from filling in what looks like one of its tokens."""
    return path.replace("%", "%%")


MARK = "clusterctl-key:"
MAX_NOTES = 3
ADDED, PRESENT, FAILED, NOTE = "added", "present", "failed", "note"

# One line, for login shells that read no more than that. What start-up files print stands before the marks.
# The lock is for nodes that share a home; one that was left behind costs five seconds. The modes are those that
# sshd's StrictModes asks for; a home that others may write is the owner's to fix.
_SCRIPT = r"""
umask 077
key={key}
blob={blob}
say() {{ printf '\n%s %s %s\n' '{mark}' "$1" "$2"; }}
fail() {{ say failed "$1"; exit 0; }}
cd || fail 'the home directory cannot be entered'
why=$(mkdir -p .ssh 2>&1) || fail "$why"
file=.ssh/authorized_keys
[ ! -e "$file" ] || [ -f "$file" ] || fail "$HOME/$file is not a regular file"
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
class KeyInstallResult:
    """What a node reports: `added`, `present`, or `failed` with why; and notes."""

    state: str
    detail: str
    notes: tuple[str, ...] = ()


def render_install(public_key: str) -> str:
    """Return the script that puts a public key into the account's authorized_keys, once however often it runs."""
    line = public_key.strip()
    return _SCRIPT.format(key=shlex.quote(line), blob=shlex.quote(" ".join(line.split()[:2])), mark=MARK)


def parse_install_result(text: str) -> KeyInstallResult:
    """Read what came back; a node that does not come to an end has failed, with its last words."""
    reports = [clean_text(line[len(MARK) :].strip()) for line in text.splitlines() if line.startswith(MARK)]
    notes = tuple(report.partition(" ")[2] for report in reports if report.startswith(NOTE))[:MAX_NOTES]
    final_reports = [report for report in reports if report.split(" ")[0] in (ADDED, PRESENT, FAILED)]
    if not final_reports:
        last_line = clean_text(text.strip().rpartition("\n")[2])
        return KeyInstallResult(FAILED, last_line or tr("no output from the node's shell"), notes)
    state, _, detail = final_reports[-1].partition(" ")
    return KeyInstallResult(state, detail, notes)
