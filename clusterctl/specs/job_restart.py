"""When a failed run is started again by its nodes: for which reasons, how often, with how many nodes in reserve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field

from clusterctl.errors import Issue
from clusterctl.specs import codes, values
from clusterctl.specs.entry import Entry, one_of, whole_number
from clusterctl.specs.examine import repeated
from clusterctl.specs.leaf import BadValueError, Leaf
from clusterctl.specs.tree import Listing, Table, quoted

Reason = Literal[
    "node_lost",
    "worker_killed",
    "worker_crashed",
    "agent_killed",
    "out_of_memory",
    "network",
    "gpu",
    "port_taken",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
DEFAULT: tuple[Reason, ...] = ("node_lost", "worker_killed", "network", "gpu", "port_taken")


def _parse_pattern(text: str) -> str:
    path = PurePosixPath(values.parse_text(text))
    if path.is_absolute() or ".." in path.parts:
        fix = "files below ${output_dir}, such as '**' or '*.pt'"
        raise BadValueError(f"{quoted(text)} leaves the output directory", fix)
    return text


Word = Annotated[Reason, one_of(*REASONS)]
Most = Annotated[int, Leaf("a whole number", values.parse_positive, whole_number(minimum=1))]
Count = Annotated[int, Leaf("a whole number", values.parse_count, whole_number(minimum=0))]
Pattern = Annotated[str, Leaf("a pattern", _parse_pattern, {"type": "string", "minLength": 1})]


class RestartEntry(Entry):
    """How the nodes start a failed run again by themselves."""

    model_config = ConfigDict(title="restart")

    max: Most = Field(3, description="How many times at most the run is started again.")
    on: tuple[Word, ...] = Field(
        DEFAULT,
        description="For which reasons; an error of the script itself is never among them. See below.",
        json_schema_extra={"uniqueItems": True, "minItems": 1},
    )
    spares: Count = Field(
        0, description="Nodes that are prepared in reserve; each takes the place of a node that is lost."
    )
    progress: Pattern = Field(
        "**",
        description="Files below `${output_dir}` that change when the run gets on, such as `*.pt`; three attempts in "
        "a row that change none are the last.",
    )


@dataclass(frozen=True, kw_only=True)
class Restart:
    """When the nodes start a run again: `most` times, `on` these reasons, with so many `spares` in reserve."""

    most: int = 3
    on: tuple[Reason, ...] = DEFAULT
    spares: int = 0
    progress: str = "**"


def restart_of(entry: RestartEntry | None) -> Restart | None:
    """Give a job's wish to be started again, if it has one."""
    if entry is None:
        return None
    return Restart(most=entry.max, on=entry.on, spares=entry.spares, progress=entry.progress)


def restart_issues(tree: Table) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    restart = tree.get("restart")
    reasons = restart.get("on") if isinstance(restart, Table) else None
    yield from repeated(reasons, "restart.on")
    if isinstance(reasons, Listing) and not reasons.items:
        fix = "such as [node_lost, worker_killed], or drop the line for the usual ones"
        yield Issue(codes.NO_VALUE, "restart.on: expected at least one reason", reasons.place, fix)
