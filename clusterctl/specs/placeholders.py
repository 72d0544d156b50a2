"""Placeholders such as `${node_rank}` in a job's args, command and env."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clusterctl.errors import UsageError
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.yaml.tree import quoted
from clusterctl.translation import to_translate

MEANINGS = {
    "node_rank": to_translate("index of the node in this run, from 0"),
    "nnodes": to_translate("number of nodes in this run"),
    "master_addr": to_translate("training address of node 0"),
    "master_port": to_translate("port of the rendezvous on node 0"),
    "world_size": to_translate("number of workers on all nodes"),
    "nproc_per_node": to_translate("number of workers on this node"),
    "run_id": to_translate("name of this run"),
    "output_dir": to_translate("directory on the node that outlives the run"),
    "stage_dir": to_translate("directory on the node for what `stage` copies there"),
    "resume": to_translate("checkpoint that this attempt resumes from, see `checkpoints`; else empty"),
    "attempt": to_translate("number of this attempt, from 1; higher when the run was started again"),
}
LEFT_TO_TORCHRUN = "local_rank"

_OPENING = re.compile(r"\$\$\{|\$\{")


@dataclass(frozen=True)
class Placeholder:
    """A place in a text that is filled when the value is known."""

    name: str


@dataclass(frozen=True)
class PlaceholderProblem:
    """A wrong placeholder; `opening_index` counts the `${` of the text, from 0, up to the wrong one."""

    opening_index: int
    case: str  # of CC-SPEC-033
    facts: Mapping[str, str]


def parse_template(text: str) -> tuple[str | Placeholder, ...]:
    """Split a text into literal parts and holes.

    `$${x}` is the literal `${x}`; torchrun fills the hole `local_rank`. Raises UsageError.
    """
    pieces: list[str | Placeholder] = []
    for piece in _split_template(text):
        if isinstance(piece, PlaceholderProblem):
            raise UsageError("CC-SPEC-033", piece.case, **piece.facts)
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        elif piece:
            pieces.append(piece)
    return tuple(pieces)


def find_problems(text: str) -> tuple[PlaceholderProblem, ...]:
    """List every wrong placeholder of a text."""
    return tuple(piece for piece in _split_template(text) if isinstance(piece, PlaceholderProblem))


def _split_template(text: str) -> Iterator[str | Placeholder | PlaceholderProblem]:
    position = 0
    for opening_index, match in enumerate(_OPENING.finditer(text)):
        if match.start() < position:  # inside the braces of a wrong one
            continue
        yield text[position : match.start()]
        position = match.end()
        if match.group() == "$${":
            yield "${"
            continue
        name, closing_brace, _ = text[position:].partition("}")
        position += len(name) + len(closing_brace)
        yield _parse_placeholder(name, opening_index, closed=bool(closing_brace))
    yield text[position:]


def _parse_placeholder(
    name: str, opening_index: int, *, closed: bool
) -> str | Placeholder | PlaceholderProblem:
    if not closed:
        return PlaceholderProblem(opening_index, "unclosed", {})
    if name in MEANINGS or name == LEFT_TO_TORCHRUN:
        return Placeholder(name)
    suggestion = did_you_mean(name, (*MEANINGS, LEFT_TO_TORCHRUN))
    known_names = ", ".join(MEANINGS)
    facts = {"name": quoted(f"${{{name}}}"), "suggestion": suggestion, "known": known_names}
    return PlaceholderProblem(opening_index, "unknown", facts)
