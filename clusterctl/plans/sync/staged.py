"""What nodes report of staged content, and in which of it they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clusterctl.protocol.messages.stored import STAGED_STATES, StagedState
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import to_translate

MAX_STAGED = 1000  # of one node
MAX_TEXT = 500  # characters
MAX_PATH = 4096
MAX_PROBLEMS = 20
STATES: Mapping[StagedState, str] = {
    "whole": to_translate("as it was staged"),
    "missing": to_translate("{path} is missing"),
    "changed": to_translate("{path} was changed"),
    "dangling": to_translate("the link {path} leads nowhere"),
}


@dataclass(frozen=True)
class StagedProblem:
    """A file, link or directory that is not as it was staged."""

    path: str
    state: StagedState


@dataclass(frozen=True)
class StagedContent:
    """Content that was staged to a path of a node; `problems` are the first of the `differing` files."""

    source: str
    revision: str
    tree: str
    path: str
    files: int
    bytes: int
    time: float
    by: str
    state: StagedState
    differing: int
    problems: tuple[StagedProblem, ...]

    @property
    def problem(self) -> str:
        """Return the first file that is not as it was."""
        return self.problems[0].path if self.problems else ""


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
                differing=entry.count("differing"),
                problems=tuple(_parse_problems(entry)),
            )


def _parse_problems(entry: Untrusted) -> Iterator[StagedProblem]:
    for problem in entry.records("problems", MAX_PROBLEMS):
        state = problem.one_of("state", STAGED_STATES)
        if state and state != "whole":
            yield StagedProblem(problem.text("path", MAX_PATH), state)


def newest_by_node(staged: Mapping[str, tuple[StagedContent, ...]], source: str) -> dict[str, StagedContent]:
    """Return what each node has of a source: of several copies the one that was staged last."""
    copies = {name: [one for one in all_of_it if one.source == source] for name, all_of_it in staged.items()}
    return {name: max(ones, key=lambda one: one.time) for name, ones in copies.items() if ones}
