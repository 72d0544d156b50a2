"""When a failed run is started again by its nodes: for which reasons, how often, with how many nodes in reserve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import ConfigDict, Field

from clusterctl.errors import Issue
from clusterctl.specs import codes, values
from clusterctl.specs.bad_value import BadValueError
from clusterctl.specs.entry import Entry, one_of, whole_number
from clusterctl.specs.examine import repeated
from clusterctl.specs.job import REASONS, USUAL_REASONS, Reason, Restart
from clusterctl.specs.leaf import Leaf
from clusterctl.specs.tree import Listing, Table, quoted


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
        USUAL_REASONS,
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
