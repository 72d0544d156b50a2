"""What every verb that talks to nodes needs: interpreters, notices, outcomes turned into an exit code."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from clusterctl.cli.places import own_id
from clusterctl.console.choice import say
from clusterctl.plans.owner import Owner

T = TypeVar("T")

if TYPE_CHECKING:
    from clusterctl.errors import ClusterctlError
    from clusterctl.runs.tasks import Interpreter
    from clusterctl.specs.inventory import Node
    from clusterctl.specs.job import Job


def interpreter(node: Node, job: Job | None = None) -> Interpreter:
    """Choose the Python of a node; a job's own `python` and `activate` beat the inventory's."""
    from clusterctl.runs.tasks import Interpreter

    if job is None:
        return Interpreter(node.python, node.activate)
    return Interpreter(job.python or node.python, job.activate or node.activate)


def with_any_python(node: Node, ask: Callable[[Interpreter], T]) -> tuple[T, Interpreter]:
    """Ask with the inventory's Python, and where that is missing with `python3`; gives the one that answered.

    A run may have been launched with a Python of the job's own; to look at it or to end it any will do.
    """
    from clusterctl.errors import NoInterpreter
    from clusterctl.runs.tasks import Interpreter

    used = interpreter(node)
    try:
        return ask(used), used
    except NoInterpreter:
        used = Interpreter("python3", None)
        return ask(used), used


def myself() -> Owner:
    """Give who launches, as `user@host` and the id of this machine's user; recorded in every run."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return Owner(f"{user}@{socket.gethostname()}", own_id())


def launch_record() -> dict[str, str]:
    """Give what a run's record says of us: who launches, and from which directory."""
    me = myself()
    try:
        folder = str(Path.cwd())
    except OSError:  # it was removed
        folder = ""
    return {"launched_by": me.name, "launched_id": me.id, "launched_from": folder}


def reading_exit_code(answered: int, asked: int) -> int:
    """Give the exit code of a verb that only reads: 0 all answered, 5 some, 4 none."""
    if answered == asked:
        return 0
    return 5 if answered else 4


def tell_failures(errors: Iterable[ClusterctlError]) -> None:
    """Write each failed node's error to stderr, what nodes share once; a bug's traceback goes into a file."""
    from clusterctl.cli.crash import note_bug
    from clusterctl.console.errors import show_error
    from clusterctl.specs.nodeset import fold_names

    alike: dict[tuple[str, ...], list[ClusterctlError]] = {}
    for error in errors:
        alike.setdefault((error.code, error.message, error.evidence, error.fix), []).append(error)
    for first, *others in alike.values():
        if others and all(error.node for error in (first, *others)):
            first.node = fold_names(error.node for error in (first, *others))
        show_error(note_bug(first))


def notice(line: str) -> None:
    """Say something worth knowing that is no result."""
    say(f"note: {line}")
