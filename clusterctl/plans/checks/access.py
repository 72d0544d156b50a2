"""SSH, login shell, key files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from clusterctl.errors import ClusterctlError
from clusterctl.plans.checks.framework import (
    REGISTERED,
    Check,
    CheckContext,
    Finding,
    Hit,
    across_nodes,
    check,
    on_node,
    ssh_to,
)
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, plural

UNREACHED = "A node that cannot be reached cannot take part, and a run waits for all of its nodes."
UNTRUSTED = "Whoever answers at that address could read the code and the secrets of the job."
NO_LOGIN = "Without a login nothing can be asked of the node."
NO_PYTHON = "Everything on a node is done by the configured Python; there is nothing else to install."

# code -> title, why, explanation
MEANINGS: dict[str, tuple[str, str, str]] = {
    "CC-SSH-001": (
        "the host's name is not known here",
        UNREACHED,
        "The name in `host:` is resolved on the machine where clusterctl runs. Write the address, or a name "
        "that `getent hosts NAME` finds here.",
    ),
    "CC-SSH-002": (
        "the SSH port is closed",
        UNREACHED,
        "The machine answered and refused the connection: sshd does not run, listens on another port (`ssh: "
        "{port: N}`), or has blocked this address for a while after failed logins (PerSourcePenalties).",
    ),
    "CC-SSH-003": (
        "the node cannot be reached",
        UNREACHED,
        "The network has no way to the address: the machine is off, the address is wrong, a VPN is down, or "
        "a firewall forbids it.",
    ),
    "CC-SSH-004": (
        "the node took too long",
        UNREACHED,
        "One step exceeded its limit; the message names the step. A silent network drops packets (firewall, "
        "machine off); a slow login points at the node's name server or a hanging home directory. If it is the Python "
        "that did not answer, something in the login shell's start files (.bashrc, .profile, config.fish) reads from "
        "stdin, waits, or replaces the shell (`exec fish`).",
    ),
    "CC-SSH-005": (
        "no SSH server answers at this port",
        UNREACHED,
        "Something else listens there. Correct `host:` or `ssh: {port: N}`.",
    ),
    "CC-SSH-006": (
        "the SSH server ended the connection",
        UNREACHED,
        "The server closed before login, and did so again and again for 25 s; the evidence says how often it was "
        "tried. Often it has too many logins under way (MaxStartups), holds earlier failures against this address "
        "(PerSourcePenalties), forbids it, or shares no algorithm with this side, which is not tried again.",
    ),
    "CC-SSH-007": (
        "no key was accepted",
        NO_LOGIN,
        "The node knows none of the keys that were offered for this user. `ssh-copy-id` puts a key there. "
        "If the key is there, sshd may refuse it for the modes of the home or of ~/.ssh: `chmod go-w ~; "
        "chmod 700 ~/.ssh`.",
    ),
    "CC-SSH-008": (
        "the key cannot be used",
        NO_LOGIN,
        "The file named by `key:` is missing, unreadable, not a private key, or needs a passphrase that no "
        "agent has. `ssh-add FILE` gives it to the agent.",
    ),
    "CC-SSH-009": (
        "the host key is not known",
        UNTRUSTED,
        "Compare the fingerprint with what the node itself shows (`ssh-keygen -lf "
        "/etc/ssh/ssh_host_ed25519_key.pub`), then connect once with ssh, or write `ssh: {host_keys: "
        "accept-new}`.",
    ),
    "CC-SSH-010": (
        "the host key has changed",
        UNTRUSTED,
        "The node was reinstalled, the address belongs to another machine now, or someone stands in "
        "between. When you know which: `ssh-keygen -R HOST`, then connect again.",
    ),
    "CC-SSH-011": (
        "the host key is revoked",
        UNTRUSTED,
        "known_hosts marks this key as `@revoked`: it must not be trusted any more, on whatever host it "
        "appears.",
    ),
    "CC-SSH-012": (
        "the new host key cannot be recorded",
        UNTRUSTED,
        "`accept-new` trusts a key on first sight and must remember it; the known_hosts file cannot be "
        "written.",
    ),
    "CC-SSH-013": (
        "the proxy command failed",
        UNREACHED,
        "`ssh: {proxy_command: ...}` must connect its standard input and output with the node's SSH port. "
        "Run it by hand: it should print a line that begins with SSH-2.0.",
    ),
    "CC-SSH-014": (
        "the server refuses sessions",
        NO_LOGIN,
        "Login works, running a command does not: too many sessions on the connection (MaxSessions), a "
        "forced command, or an account without a shell.",
    ),
    "CC-SSH-015": (
        "the connection ended",
        UNREACHED,
        "An open connection was closed by the other side or by the network.",
    ),
    "CC-SSH-016": (
        "the connection fell silent",
        UNREACHED,
        "Nothing came back for longer than a healthy node ever takes: the network is gone, or the node is "
        "frozen.",
    ),
    "CC-SSH-017": (
        "the login shell did not hand over",
        NO_LOGIN,
        "The account's login shell ended or printed instead of running `/bin/sh`. Look for `exit` or an "
        "endless program in its start files (.bashrc, .profile, config.fish).",
    ),
    "CC-SSH-018": (
        "the bastion cannot be used",
        UNREACHED,
        "The nodes behind it were not even tried. The bastion is named, and the evidence begins with the code of "
        "what went wrong there: it is mended as if the bastion were a node. Its user, port and key come from its "
        "own part of the SSH configuration, or stand in `jump: user@host:port`.",
    ),
    "CC-SSH-019": (
        "the SSH configuration is of no use",
        UNREACHED,
        "`ssh -G HOST` fails, names a host or user that is none, or leads in a circle of bastions. What ssh says "
        "is the evidence. `ssh: {config: FILE}` reads another file, `config: none` reads none.",
    ),
    "CC-SSH-021": (
        "the host certificate does not hold",
        UNTRUSTED,
        "A `@cert-authority` line of known_hosts trusts the authority that signed it, and the certificate has expired, "
        "is for other names, or is none for hosts. It must name the host as SSH goes there: `host`, or the HostName or "
        "HostKeyAlias of your SSH configuration.",
    ),
    "CC-SSH-020": (
        "the bastion does not forward",
        UNREACHED,
        "The login at the bastion works, and its sshd_config forbids connections onward (AllowTcpForwarding, "
        "PermitOpen, or `restrict` before the key in authorized_keys).",
    ),
    "CC-SSH-030": (
        "the ssh program cannot be used",
        UNREACHED,
        "With `ssh: {transport: openssh}` the nodes are reached by the program `ssh` of this machine. It is not "
        "installed, or refuses a line of ~/.ssh/config or a value under `ssh:`; what it says is shown.",
    ),
    "CC-SSH-031": (
        "the ssh program failed",
        UNREACHED,
        "With `ssh: {transport: openssh}` the program `ssh` of this machine ended before it was let in, and said "
        "nothing that has a code of its own. Run the same ssh by hand with `-v`.",
    ),
    "CC-PY-001": (
        "the Python interpreter is not there",
        NO_PYTHON,
        "SSH runs a non-login shell: what .bashrc or conda add to PATH is not seen. Write the absolute path "
        "as `python:`, or what makes it available as `activate:`.",
    ),
    "CC-PY-002": (
        "the Python is too old",
        NO_PYTHON,
        "clusterctl needs Python 3.8 or later on a node, the same that runs torch. Name it by `python:`.",
    ),
    "CC-PY-003": (
        "the Python ended before it answered",
        NO_PYTHON,
        "With status 0 it is nearly always an `exit` or `exec` in a start file of the login shell, such as .bashrc. "
        "Otherwise the interpreter starts and ends at once: a broken installation, a missing library, or a wrapper "
        "script that does not pass its standard input on.",
    ),
    "CC-PY-004": (
        "`activate` hangs",
        NO_PYTHON,
        "The shell line `activate:` of the inventory or the job did not come to its end, so no Python was started. It "
        "has no terminal and no input: a command in it that asks, waits for a network mount or runs on holds it up.",
    ),
}  # fmt: skip


def failure_findings(context: CheckContext) -> list[Finding]:
    """Give findings for the failures whose codes the table does not know."""
    unlisted = {error.code for error in context.failures.values()} - MEANINGS.keys()
    return [_unlisted_finding(context, code) for code in sorted(unlisted)]


def _unlisted_finding(context: CheckContext, code: str) -> Finding:
    failed = _list_failed(context, code)
    names = tuple(name for name, _ in failed)
    evidence = "\n".join(f"{name}: {_render_error(error)}" for name, error in failed)
    fixes = dict.fromkeys(error.fix for _, error in failed if error.fix)
    fix = "\n".join(fixes) or _explain(code)
    return Finding(code, "error", names, evidence, UNREACHED, fix, "the node gave no answer")


def _explain(code: str) -> str:
    return command_line("clusterctl", "explain", code) if code else "clusterctl -v check"


def _list_failed(context: CheckContext, code: str) -> list[tuple[str, ClusterctlError]]:
    failures = [
        (node.name, context.failures[node.name]) for node in context.nodes if node.name in context.failures
    ]
    return [(name, error) for name, error in failures if error.code == code]


def _render_error(error: ClusterctlError) -> str:
    return f"{error.message} ({error.evidence.strip()})" if error.evidence.strip() else error.message


def _find_failed(code: str, context: CheckContext) -> Iterator[Hit]:
    failed = dict(_list_failed(context, code))
    groups: dict[str, list[Node]] = {}
    for node in context.nodes:
        if node.name in failed:
            groups.setdefault(_generalize_fix(node, failed[node.name].fix), []).append(node)
    for first, *others in groups.values():
        fix, other_names = failed[first.name].fix, fold_names(node.name for node in others)
        differs = any(failed[node.name].fix != fix for node in others)
        folded = f"{fix}\n# and likewise for {other_names}" if fix and differs else fix or _explain(code)
        yield from (Hit((node.name,), _render_error(failed[node.name]), folded) for node in (first, *others))


def _generalize_fix(node: Node, fix: str) -> str:
    """Take what is a node's own, its host and port, out of a fix."""
    host = rf"(?<![\w.-]){re.escape(node.host)}(?![\w-])"
    port = node.ssh.port or 22
    return re.sub(rf"-p {port} |(?<=\]):{port}\b", "", re.sub(host, "HOST", fix))


def _register(code: str, title: str, why: str, explanation: str) -> None:
    find: Callable[[CheckContext], Iterable[Hit]] = partial(_find_failed, code)
    REGISTERED[code] = Check(code, "error", title, why, explanation, (), find)


for _code, _meaning in MEANINGS.items():
    _register(_code, *_meaning)


SHOWN_NOISE = 80
# Modules that torch or Python's own start-up import, and whose names people give to their files.
SHADOWED_MODULES = frozenset(
    (
        *(
            "abc",
            "ast",
            "asyncio",
            "bisect",
            "calendar",
            "code",
            "codecs",
            "collections",
            "copy",
            "csv",
            "ctypes",
        ),
        *(
            "dataclasses",
            "datetime",
            "decimal",
            "email",
            "enum",
            "functools",
            "glob",
            "gzip",
            "hashlib",
            "heapq",
        ),
        *(
            "html",
            "http",
            "inspect",
            "io",
            "json",
            "logging",
            "math",
            "multiprocessing",
            "numbers",
            "operator",
        ),
        *(
            "os",
            "pathlib",
            "pickle",
            "platform",
            "profile",
            "queue",
            "random",
            "re",
            "select",
            "signal",
            "site",
        ),
        *(
            "socket",
            "ssl",
            "stat",
            "statistics",
            "string",
            "struct",
            "subprocess",
            "sys",
            "tarfile",
            "tempfile",
        ),
        *(
            "threading",
            "time",
            "token",
            "tokenize",
            "traceback",
            "types",
            "typing",
            "unittest",
            "uuid",
            "warnings",
        ),
        *("weakref", "xml", "zipfile", "numpy", "torch", "torchvision"),
    )
)


@check(
    "CC-SSH-022",
    "warning",
    "others may read the private key",
    why="Whoever reads it can log in as you; ssh itself refuses such a key.",
)
def readable_private_key(context: CheckContext) -> Iterator[Hit]:
    """A private key file on this machine may be read by its group or by everybody.

    `ssh` ignores it (`WARNING: UNPROTECTED PRIVATE KEY FILE!`), so that what works here fails there.
    """
    for path, mode in context.local_facts.readable_keys.items():
        users = [node.name for node in context.nodes if node.ssh.key == path]
        if users:
            evidence = f"{path} has mode {mode:04o}; used for {fold_names(users)}"
            yield across_nodes(users, evidence, f"chmod 600 {shlex.quote(path)}")


@check(
    "CC-SSH-023",
    "info",
    "the login shell prints",
    why="clusterctl skips it, but rsync, scp and sftp break: `is your shell clean?`.",
)
def noisy_shell(context: CheckContext) -> Iterator[Hit]:
    """A start file of the login shell (.bashrc, .cshrc, config.fish) writes to standard output without a terminal.

    rsync says `protocol version mismatch -- is your shell clean?`, sftp `Received message too long`. Print only where
    somebody looks: `case $- in *i*) echo hello;; esac`.
    """
    for node, facts in context.known:
        if facts.noise:
            shown = facts.noise[:SHOWN_NOISE] + ("..." if len(facts.noise) > SHOWN_NOISE else "")
            yield on_node(node, f"it says: {shown}", ssh_to(node, "true"))


@check(
    "CC-PY-020",
    "warning",
    "a file hides a module of Python or torch",
    why="`import` finds the file beside the script first: ImportError, often deep within torch.",
)
def shadowing_module(context: CheckContext) -> Iterator[Hit]:
    """Beside the job's script lies a file or a package with the name of a module that torch needs.

    Python looks in the script's own directory first. A random.py or types.py there, or a directory torch with Python
    files, is what everybody imports then: `partially initialized module ... (most likely due to a circular import)`.
    """
    names = [
        name
        for name in context.local_facts.script_siblings
        if name.rstrip("/").removesuffix(".py") in SHADOWED_MODULES
    ]
    if names and context.known and context.job is not None:
        evidence = f"{', '.join(names[:6])} beside {context.job.script}"
        fix = f"rename {plural(len(names), 'file')}: {' '.join(map(shlex.quote, names[:6]))}"
        yield across_nodes([node.name for node, _ in context.known], evidence, fix)
