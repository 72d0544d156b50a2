"""The conversation of `clean` with one node: what could go, and then what does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterctl.errors import NodeError
from clusterctl.plans.cleaning import Part, parse_part
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.runs.conversation import Listener
from clusterctl.runs.session import Session

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
