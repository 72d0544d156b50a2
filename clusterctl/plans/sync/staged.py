"""What nodes report of staged content, and in which of it they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clusterctl.protocol.messages.stored import STAGED_STATES, StagedState
from clusterctl.protocol.untrusted import Untrusted

MAX_STAGED = 1000  # of one node
MAX_TEXT = 500  # characters
MAX_PATH = 4096


@dataclass(frozen=True)
class StagedContent:
    """Content that was staged to a path of a node; `problem` is the first file that is not as it was."""

    source: str
    revision: str
    tree: str
    path: str
    files: int
    bytes: int
    time: float
    by: str
    state: StagedState
    problem: str


def parse_staged(raw: Untrusted) -> tuple[StagedContent, ...]:
    """Read what a node has; an entry without path or state is left out."""
    return tuple(_parse_all(raw))


def _parse_all(raw: Untrusted) -> Iterator[StagedContent]:
    for entry in raw.records("staged", MAX_STAGED):
        state, path = entry.one_of("state", STAGED_STATES), entry.text("path", MAX_PATH)
        if state and path:
            yield StagedContent(
                source=entry.text("source", MAX_TEXT),
                revision=entry.text("revision", MAX_TEXT),
                tree=entry.text("tree", 64),
                path=path,
                files=entry.count("files"),
                bytes=entry.count("bytes"),
                time=entry.moment("time") or 0.0,
                by=entry.text("by", MAX_TEXT),
                state=state,
                problem=entry.text("problem", MAX_PATH),
            )


def newest_by_node(staged: Mapping[str, tuple[StagedContent, ...]], source: str) -> dict[str, StagedContent]:
    """Return what each node has of a source: of several copies the one that was staged last."""
    copies = {name: [one for one in all_of_it if one.source == source] for name, all_of_it in staged.items()}
    return {name: max(ones, key=lambda one: one.time) for name, ones in copies.items() if ones}
