"""Connections to nodes, the interpreters on them, who asks, and what is reported of nodes that failed."""

from __future__ import annotations

import getpass
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clusterctl.cli.context.load import crash_dir, own_id
from clusterctl.client.local.private_files import append_own, keep_newest
from clusterctl.console.errors import show_error
from clusterctl.console.terminal import hint, info
from clusterctl.errors import ClusterctlError, InternalError, NoInterpreter
from clusterctl.interrupts import INTERRUPTS
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.facts.untrusted import clean_lines, clean_text
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.client.rpc.cluster import Cluster
    from clusterctl.client.rpc.session import Interpreter
    from clusterctl.client.ssh.host_keys import HostKeys
    from clusterctl.errors import ClusterctlError
    from clusterctl.plans.runs.selection import Owner
    from clusterctl.protocol.messages.files import LaunchRecord
    from clusterctl.specs.inventory.model import Node
    from clusterctl.specs.job.model import Job


def open_cluster(hostkeys: HostKeys | None = None) -> Cluster:
    """Return the connections of this command; nothing is opened yet. `hostkeys` judges in place of the usual ones."""
    from clusterctl.client.rpc.cluster import Cluster

    INTERRUPTS.check()
    passphrase_prompt = prompt_passphrase if _is_interactive() else None
    return Cluster(notice, ask_passphrase=passphrase_prompt, hostkeys=hostkeys)


def prompt_passphrase(path: str) -> str | None:
    """Ask the person at the terminal for the passphrase of a key; None without an answer."""
    return prompt_secret(tr("Passphrase for {path} (empty: skip this key): ", path=path)) or None


def prompt_secret(question: str) -> str:
    """Ask for what is not shown while it is typed; empty at the end of the input. A signal ends the wait."""
    try:
        secret = INTERRUPTS.call(lambda: getpass.getpass(question, stream=sys.stderr))
    except EOFError:
        return ""
    INTERRUPTS.check()
    return secret


def _is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


T = TypeVar("T")


def interpreter(node: Node, job: Job | None = None) -> Interpreter:
    """Choose the Python of a node; a job's own `python` and `activate` beat the inventory's."""
    from clusterctl.client.rpc.session import Interpreter

    if job is None:
        return Interpreter(node.python, node.activate)
    activate = job.activate or node.activate
    return Interpreter(job.python, activate, job.file) if job.python else Interpreter(node.python, activate)


def with_any_python(node: Node, action: Callable[[Interpreter], T]) -> tuple[T, Interpreter]:
    """Ask with the inventory's Python, and where that is missing with `python3`; gives the one that answered.

    A run may have been launched with a Python of the job's own; to look at it or to end it any will do.
    """
    from clusterctl.client.rpc.session import Interpreter

    python = interpreter(node)
    try:
        return action(python), python
    except NoInterpreter:
        python = Interpreter("python3", None)
        return action(python), python


def query_nodes(
    cluster: Cluster,
    nodes: Sequence[Node],
    question: Callable[[Any, Node, Interpreter], T],
    step: str = "",
) -> tuple[dict[str, T], dict[str, ClusterctlError]]:
    """Ask every node at the same time and report failures; gives the answers and the failures by node."""
    outcomes = {
        outcome.node.name: outcome
        for outcome in cluster.each(
            nodes,
            lambda c, node: with_any_python(node, lambda python: question(c, node, python))[0],
            step=step,
        )
    }
    ordered = [outcomes[node.name] for node in nodes]
    errors = {outcome.node.name: outcome.error for outcome in ordered if outcome.error is not None}
    report_failures(errors.values())
    return {outcome.node.name: outcome.value for outcome in ordered if outcome.value is not None}, errors


def current_owner() -> Owner:
    """Return who launches, as `user@host` and the id of this machine's user; recorded in every run."""
    from clusterctl.plans.runs.selection import Owner

    return Owner(_own_name(), own_id())


def _own_name() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def launch_record() -> LaunchRecord:
    """Return what the record of a run contains about its launch: by whom, and from which directory."""
    try:
        folder = str(Path.cwd())
    except OSError:  # it was removed
        folder = ""
    return {"launched_by": _own_name(), "launched_id": own_id(), "launched_from": folder}


PARTLY = 5  # exit code of a verb that only reads: not all of it was there


def reading_exit_code(answered: int, asked: int) -> int:
    """Return the exit code of a verb that only reads: 0 all answered, 5 some, 4 none."""
    if answered == asked:
        return 0
    return PARTLY if answered else 4


def report_failures(errors: Iterable[ClusterctlError]) -> None:
    """Write each failed node's error to stderr, what nodes share once; a bug's traceback goes into a file."""
    groups = group_values(((one.code, one.message, one.evidence, one.fix), one) for one in errors)
    for first, *others in groups.values():
        if others and all(error.node for error in (first, *others)):
            first.node = fold_names(error.node for error in (first, *others))
        show_error(write_bug_report(first))


MAX_FILES = 20  # files that are kept
MAX_FILE_SIZE = 1 << 20  # bytes after which nothing is added to a file
MAX_TRACEBACK = 64 << 10  # characters of one traceback


def as_bug(error: BaseException) -> InternalError:
    """Turn an unexpected exception into an error that a user can report."""
    return _bug(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)), node="")


def write_bug_report(error: ClusterctlError) -> ClusterctlError:
    """Move the traceback of a bug out of the error's text; other errors stay as they are."""
    if not isinstance(error, InternalError) or not error.evidence:
        return error
    return _bug(error.message, error.evidence, node=error.node)


def _bug(message: str, trace: str, *, node: str) -> InternalError:
    return InternalError("CC-BUG-001", node=node, message=clean_text(message), file=_write(trace))


def _write(trace: str) -> str:
    try:
        folder = crash_dir()
        path = folder / f"crash-{os.getpid()}.txt"
        append_own(path, f"{clean_lines(trace, MAX_TRACEBACK)}\n", MAX_FILE_SIZE)
        keep_newest(folder, MAX_FILES)
    except OSError as refusal:
        return tr("(not written: {reason})", reason=translate_node_text(str(refusal)))
    return str(path)


def notice(line: str) -> None:
    """Print a note that is no result."""
    info(tr("note: {text}", text=line))


def hint_next(command: str, then: str = "") -> None:
    """Write the command that comes next, and the one after it on a line of its own."""
    hint(tr("next: {command}", command=command))
    if then:
        hint(tr("next: {command}", command=then))
