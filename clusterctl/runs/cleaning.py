"""The conversation of `clean` with one node: what could go, and then what does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.errors import NodeError
from clusterctl.plans.cleaning import Part, parse_part
from clusterctl.runs.conversation import Listener
from clusterctl.runs.session import Session


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
    parts = tuple(parse_part(node, one) for one in _rows(raw.get("runs")) if isinstance(one, Mapping))
    spares = (_spare(raw.get(name)) for name in ("store", "payloads", "environments"))
    return Found(str(raw.get("place")), parts, *spares)


def ask_to_remove(session: Session, parts: Sequence[Part], node: str) -> Removed:
    """Let a node remove parts of runs, and what it can spare."""
    session.send({"remove": {"runs": [[part.run, part.leaf] for part in parts], "rest": True}})
    raw = _hear(session, "removed", node) or {}
    failed = tuple(": ".join(map(str, one)) for one in _rows(raw.get("failed")) if isinstance(one, list))
    runs, size, contents, made = (
        _count(raw.get(name)) for name in ("runs", "bytes", "contents", "environments")
    )
    return Removed(runs, size, contents, failed, made)


def _hear(session: Session, word: str, node: str) -> Mapping[str, Any] | None:
    def garbled() -> NodeError:
        what = "what the node sent cannot be understood"
        return NodeError(what, code="CC-RUN-004", node=node, evidence=session.stderr)

    header, _ = Listener(session, hung_up=garbled, stalled=lambda what: _stalled(what, node)).answer()
    value = header.get(word, garbled)
    if value is None or isinstance(value, Mapping):
        return value
    raise garbled()


def _stalled(what: str, node: str) -> NodeError:
    fix = "the file system of its work directory hangs; look at it there, then clean again"
    return NodeError(what, code="CC-CLEAN-003", node=node, fix=fix)


def _spare(raw: Any) -> Spare:
    raw = raw if isinstance(raw, Mapping) else {}
    return Spare(_count(raw.get("contents")), _count(raw.get("bytes")))


def _rows(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
