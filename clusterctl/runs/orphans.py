"""The conversation about what crashed runs have left on a node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fabric import Connection, task

from clusterctl.errors import NodeError
from clusterctl.plans.orphans import Orphan, Orphans, parse_orphans
from clusterctl.plans.processes import render_processes
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.runs.session import Session
from clusterctl.runs.tasks import ANSWER_LIMIT, SILENCE_LIMIT, Interpreter
from clusterctl.specs.inventory import Node


@dataclass(frozen=True)
class Ended:
    """What was ended on a node, and what could not be."""

    ended: tuple[str, ...]
    left: tuple[str, ...]


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def find_orphans(c: Connection, node: Node, interpreter: Interpreter) -> Orphans:
    """List the processes on a node whose runs nobody watches over."""
    said = _ask(c, node, interpreter, None, "orphans")
    return parse_orphans(said.unread("orphans"), said.unread("others"))


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def end_orphans(c: Connection, node: Node, interpreter: Interpreter, orphans: Sequence[Orphan]) -> Ended:
    """End some of them: TERM, then KILL."""
    named = [[one.pid, one.starttime] for one in orphans]
    said = _ask(c, node, interpreter, named, "ended")
    return Ended(render_processes(said, "ended"), render_processes(said, "left"))


def _ask(c: Connection, node: Node, interpreter: Interpreter, end: Any, word: str) -> Untrusted:
    request = {"workdir": node.workdir, "node": node.name, "end": end}
    python, activate = interpreter.python, interpreter.activate
    with Session(
        c, "orphans", request, python=python, activate=activate, silence_limit=SILENCE_LIMIT
    ) as session:
        while (frame := session.receive(ANSWER_LIMIT)) is not None:
            if word in frame[0]:
                return frame[0]
        raise NodeError("the node ended the conversation", code="CC-RUN-032", evidence=session.stderr)
