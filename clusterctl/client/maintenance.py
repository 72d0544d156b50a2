"""Conversations of `clean` and `ps --orphans`; removal of one run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fabric import Connection, task

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Listener, Session
from clusterctl.client.rpc.tasks import ANSWER_LIMIT, SILENCE_LIMIT, Interpreter
from clusterctl.errors import ClusterctlError, NodeError
from clusterctl.plans.cleanup import Orphan, Orphans, Part, parse_orphans, parse_part
from clusterctl.plans.facts.untrusted import render_processes
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node

MOST_PARTS = 20_000  # of one node


@dataclass(frozen=True)
class Spare:
    """Contents of the store, old versions of clusterctl's own part, or environments that nobody has used for long."""

    contents: int
    bytes: int


@dataclass(frozen=True)
class Found:
    """What a node holds; `place` is its work directory's id, the same on nodes that share one."""

    place: str
    parts: tuple[Part, ...]
    store: Spare
    payloads: Spare
    environments: Spare

    @property
    def spares(self) -> tuple[Spare, ...]:
        """Give all that a node can do without, beside runs."""
        return (self.store, self.payloads, self.environments)


@dataclass(frozen=True)
class Removed:
    """What a node has removed, and what it could not."""

    runs: int
    bytes: int
    contents: int
    failed: tuple[str, ...]
    environments: int = 0


def hear_found(session: Session, node: str) -> Found | None:
    """Hear what a node holds; None if it has no work directory."""
    raw = _hear(session, "found", node)
    if raw is None:
        return None
    parts = [parse_part(node, one) for one in raw.records("runs", MOST_PARTS)]
    spares = (_spare(raw.record(name)) for name in ("store", "payloads", "environments"))
    return Found(raw.text("place", 64), tuple(part for part in parts if part is not None), *spares)


def ask_to_remove(session: Session, parts: Sequence[Part], node: str) -> Removed:
    """Let a node remove parts of runs, and what it can spare."""
    session.send({"remove": {"runs": [[part.run, part.leaf] for part in parts], "rest": True}})
    raw = _hear(session, "removed", node) or Untrusted({})
    failed = tuple(f"{one.text(0)}: {one.text(1)}" for one in raw.rows("failed", MOST_PARTS))
    runs, size, contents, made = (raw.count(name) for name in ("runs", "bytes", "contents", "environments"))
    return Removed(runs, size, contents, failed, made)


def _hear(session: Session, word: str, node: str) -> Untrusted | None:
    def garbled() -> NodeError:
        what = "what the node sent cannot be understood"
        return NodeError(what, code="CC-RUN-004", node=node, evidence=session.stderr)

    header, _ = Listener(session, hung_up=garbled, stalled=lambda what: _stalled(what, node)).answer()
    if header.has_record(word):
        return header.record(word)
    if header.is_null(word):
        return None
    raise garbled()


def _stalled(what: str, node: str) -> NodeError:
    fix = "the file system of its work directory hangs; look at it there, then clean again"
    return NodeError(what, code="CC-CLEAN-003", node=node, fix=fix)


def _spare(raw: Untrusted) -> Spare:
    return Spare(raw.count("contents"), raw.count("bytes"))


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


NEVER = 10 * 365 * 86400.0  # seconds after which a node would spare what it was not told
TRIES = 3


def remove_run(
    cluster: Cluster, nodes: Sequence[Node], interpreters: Mapping[str, tasks.Interpreter], run: str
) -> None:
    """Remove a run's directories; where that fails, `clean` will do it some day."""

    def remove(c: Any, node: Node) -> None:
        for attempt in range(TRIES):
            time.sleep(attempt)  # the agent may just be ending
            with tasks.clean(c, node, interpreters[node.name], NEVER) as session:
                found = hear_found(session, node.name)
                parts = [part for part in found.parts if part.run == run] if found else []
                if not parts or not ask_to_remove(session, parts, node.name).failed:
                    return

    with suppress(ClusterctlError):
        for _ in cluster.each(nodes, remove):
            pass
