"""Placeholders such as `${node_rank}` in a job's args, command and env."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from clusterctl.errors import UsageError
from clusterctl.specs import codes
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.yaml.tree import quoted

MEANINGS = {
    "node_rank": "index of the node in this run, from 0",
    "nnodes": "number of nodes in this run",
    "master_addr": "training address of node 0",
    "master_port": "port of the rendezvous on node 0",
    "world_size": "number of workers on all nodes",
    "nproc_per_node": "number of workers on this node",
    "run_id": "name of this run",
    "output_dir": "directory on the node that outlives the run",
    "attempt": "number of this attempt, from 1; higher when the run was started again",
}
LEFT_TO_TORCHRUN = "local_rank"

_OPENING = re.compile(r"\$\$\{|\$\{")


@dataclass(frozen=True)
class Hole:
    """A place in a text that is filled when the value is known."""

    name: str


@dataclass(frozen=True)
class Problem:
    """A wrong placeholder; `opening` counts the `${` of the text, from 0, up to the wrong one."""

    opening: int
    message: str
    fix: str


def parse_template(text: str) -> tuple[str | Hole, ...]:
    """Split a text into literal parts and holes.

    `$${x}` is the literal `${x}`; torchrun fills the hole `local_rank`. Raises UsageError.
    """
    pieces: list[str | Hole] = []
    for piece in _pieces(text):
        if isinstance(piece, Problem):
            raise UsageError(piece.message, code=codes.PLACEHOLDER, fix=piece.fix)
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        elif piece:
            pieces.append(piece)
    return tuple(pieces)


def find_problems(text: str) -> tuple[Problem, ...]:
    """List every wrong placeholder of a text."""
    return tuple(piece for piece in _pieces(text) if isinstance(piece, Problem))


def _pieces(text: str) -> Iterator[str | Hole | Problem]:
    position = 0
    for opening, match in enumerate(_OPENING.finditer(text)):
        if match.start() < position:  # inside the braces of a wrong one
            continue
        yield text[position : match.start()]
        position = match.end()
        if match.group() == "$${":
            yield "${"
            continue
        name, brace, _ = text[position:].partition("}")
        position += len(name) + len(brace)
        yield _hole(name, opening, closed=bool(brace))
    yield text[position:]


def _hole(name: str, opening: int, *, closed: bool) -> str | Hole | Problem:
    if not closed:
        return Problem(opening, "a placeholder '${' without its '}'", "close it; $${ is a literal ${")
    if name in MEANINGS or name == LEFT_TO_TORCHRUN:
        return Hole(name)
    guess = did_you_mean(name, (*MEANINGS, LEFT_TO_TORCHRUN))
    known = ", ".join(MEANINGS)
    return Problem(
        opening,
        f"unknown placeholder {quoted(f'${{{name}}}')}{guess}",
        f"placeholders are {known}; write $${{...}} for a literal ${{...}}",
    )
