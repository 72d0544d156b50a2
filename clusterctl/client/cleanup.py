"""Conversations of `clean`; removal of one run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fabric import Connection, task

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import MAX_ANSWER_TIME, Interpreter, ReplyReader, Session, SessionLimits
from clusterctl.client.rpc.tasks import ANSWER_LIMIT
from clusterctl.errors import ClusterctlError, NodeError
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.cleanup import (
    Orphans,
    StoredRun,
    WarmServer,
    parse_orphans,
    parse_stored_run,
    parse_warm_servers,
)
from clusterctl.plans.facts.untrusted import render_processes
from clusterctl.plans.sync.staged import StagedContent, parse_staged
from clusterctl.protocol.frames import SILENCE_LIMIT
from clusterctl.protocol.messages.facts import Orphan
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import trn

if TYPE_CHECKING:
    from clusterctl.protocol.messages.verbs import OrphansRequest, StagedRequest, WarmRequest

MAX_PARTS = 20_000  # of one node
WORK_LIMIT = 600.0  # seconds in which a node has ended what crashed runs left, whatever beats it sends


@dataclass(frozen=True)
class UnusedStorage:
    """Contents of the store, old versions of clusterctl's own part, or environments not used for long."""

    contents: int
    bytes: int


@dataclass(frozen=True)
class NodeStorage:
    """What a node holds; `workdir_id` is its work directory's id, the same on nodes that share one."""

    workdir_id: str
    stored_runs: tuple[StoredRun, ...]
    store: UnusedStorage
    payloads: UnusedStorage
    environments: UnusedStorage

    @property
    def unused(self) -> tuple[UnusedStorage, ...]:
        """Return all that a node can remove, besides runs."""
        return (self.store, self.payloads, self.environments)


@dataclass(frozen=True)
class RemovalReport:
    """What a node has removed, and what it could not."""

    runs: int
    bytes: int
    contents: int
    failed: tuple[str, ...]
    environments: int = 0


def read_storage(session: Session, node: str) -> NodeStorage | None:
    """Receive what a node stores; None if it has no work directory."""
    raw = _receive_record(session, "found", node)
    if raw is None:
        return None
    stored_runs = [parse_stored_run(node, entry) for entry in raw.records("runs", MAX_PARTS)]
    unused = (_parse_unused(raw.record(name)) for name in ("store", "payloads", "environments"))
    return NodeStorage(
        raw.text("workdir_id", 64), tuple(part for part in stored_runs if part is not None), *unused
    )


def remove_stored_runs(session: Session, stored_runs: Sequence[StoredRun], node: str) -> RemovalReport:
    """Make a node remove parts of runs and what is no longer needed."""
    session.send(
        {
            "remove": {
                "runs": [[stored_run.run_id, stored_run.node_dir] for stored_run in stored_runs],
                "rest": True,
            }
        }
    )
    return _parse_removal(_receive_record(session, "removed", node) or Untrusted({}))


def _parse_removal(raw: Untrusted) -> RemovalReport:
    failed = tuple(
        f"{row.text(0)}: {translate_node_text(row.text(1))}" for row in raw.rows("failed", MAX_PARTS)
    )
    runs, size, contents, environments = (
        raw.count(name) for name in ("runs", "bytes", "contents", "environments")
    )
    return RemovalReport(runs, size, contents, failed, environments)


def _receive_record(session: Session, key: str, node: str) -> Untrusted | None:
    def garbled() -> NodeError:
        return NodeError("CC-RUN-004", node=node, evidence=session.stderr)

    header, _ = ReplyReader(session, on_closed=garbled, on_stalled=partial(_stalled_error, node)).receive()
    if header.has_record(key):
        return header.record(key)
    if header.is_null(key):
        return None
    raise garbled()


def _stalled_error(node: str, case: str, limit: float) -> NodeError:
    return NodeError("CC-CLEAN-003", case, node=node, limit=limit)


def _parse_unused(raw: Untrusted) -> UnusedStorage:
    return UnusedStorage(raw.count("contents"), raw.count("bytes"))


@dataclass(frozen=True)
class EndedOrphans:
    """What was ended on a node, and what could not be."""

    ended: tuple[str, ...]
    remaining: tuple[str, ...]


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def find_orphans(c: Connection, node: Node, interpreter: Interpreter) -> Orphans:
    """List the processes that runs without guardian and agent left on a node."""
    answer = _request_orphans(c, node, interpreter, None, "orphans")
    orphans = parse_orphans(answer.unread("orphans"), answer.unread("others"))
    if orphans.impossible:
        evidence = trn(
            "{n} entry of its process list is invalid",
            "{n} entries of its process list are invalid",
            orphans.impossible,
        )
        raise NodeError("CC-RUN-004", node=node.name, evidence=evidence)
    return orphans


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def stop_orphans(
    c: Connection, node: Node, interpreter: Interpreter, orphans: Sequence[Orphan]
) -> EndedOrphans:
    """End some of them: TERM, then KILL."""
    pids = [[orphan.pid, orphan.starttime] for orphan in orphans]
    answer = _request_orphans(c, node, interpreter, pids, "ended")
    return EndedOrphans(render_processes(answer, "ended"), render_processes(answer, "left"))


def _request_orphans(c: Connection, node: Node, interpreter: Interpreter, to_end: Any, key: str) -> Untrusted:
    request: OrphansRequest = {"workdir": node.workdir, "node": node.name, "end": to_end}
    limits = SessionLimits(silence=SILENCE_LIMIT)
    with Session(c, "orphans", request, interpreter, limits=limits) as session:
        return _receive_answer(session, key, WORK_LIMIT)


def _receive_answer(session: Session, key: str, limit: float) -> Untrusted:
    """Receive the first frame with a key; the beats before it have none, and do not go on for ever."""
    deadline = time.monotonic() + limit
    while (frame := session.receive(min(ANSWER_LIMIT, deadline - time.monotonic()))) is not None:
        if key in frame[0]:
            return frame[0]
    raise NodeError("CC-RUN-032", evidence=session.stderr)


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def query_warm(
    c: Connection, node: Node, interpreter: Interpreter, *, end: bool = False
) -> tuple[WarmServer, ...]:
    """Describe the process that waits on a node for the next launch, and end it if wished."""
    request: WarmRequest = {"workdir": node.workdir, "node": node.name, "end": end}
    return parse_warm_servers(tasks.query(c, "warm", request, interpreter))


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def query_staged(
    c: Connection, node: Node, interpreter: Interpreter, *, verified: Sequence[str] = ()
) -> tuple[StagedContent, ...]:
    """List what was staged on a node, and what is left of it; or of the sources `verified` alone, by their hashes."""
    request: StagedRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "do": "list",
        "paths": [],
        "sources": list(verified),
        "verify": bool(verified),
    }
    with Session(c, "staged", request, interpreter) as session:
        return parse_staged(_receive_answer(session, "staged", MAX_ANSWER_TIME))


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def remove_staged(
    c: Connection, node: Node, interpreter: Interpreter, staged: Sequence[StagedContent]
) -> RemovalReport:
    """Remove some of it."""
    request: StagedRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "do": "remove",
        "paths": [content.path for content in staged],
        "sources": [],
        "verify": False,
    }
    with Session(c, "staged", request, interpreter) as session:
        return _parse_removal(_receive_answer(session, "removed", MAX_ANSWER_TIME).record("removed"))


NEVER = 10 * 365 * 86400.0  # seconds: so large that a node removes only what is named
TRIES = 3


def remove_run(run: tasks.RunHandle) -> None:
    """Remove a run's directories; where that fails, `clean` will do it some day."""

    def remove(c: Any, node: Node) -> None:
        for attempt in range(TRIES):
            time.sleep(attempt)  # the agent may just be ending
            with tasks.clean(c, node, run.interpreters[node.name], NEVER) as session:
                storage = read_storage(session, node.name)
                stored_runs = (
                    [stored_run for stored_run in storage.stored_runs if stored_run.run_id == run.run_id]
                    if storage
                    else []
                )
                if not stored_runs or not remove_stored_runs(session, stored_runs, node.name).failed:
                    return

    with suppress(ClusterctlError):
        for _ in run.cluster.each(run.nodes, remove):
            pass
