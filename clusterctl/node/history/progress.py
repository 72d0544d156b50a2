"""How far a run is: its newest step, of how many, and a few of its losses.

A question costs the same for a log of any length: its end is searched backwards, and of PLACES pieces before it only
as much as the last line with a loss takes. Patterns of a job are regular expressions that its user wrote: a timer ends
it all. Not here: all numbers of a run, which a report reads (scalars.py).
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional

from ..logs.log_file import open_log
from ..runtime.time_limit import TooSlowError, time_limit
from .log_values import has_hint, read_line
from .scalars import compile_patterns, log_files, match_patterns

if TYPE_CHECKING:
    from re import Pattern

    from ...protocol.messages.files import Progress, Spec, State

TIME_LIMIT = 0.3  # seconds for a run
PLACES = 16  # pieces of a log
PIECE, END = 2 << 10, 16 << 10  # bytes
MAX_LINE = 1000  # bytes
DIGITS = 5  # of a loss
LOSS = "loss"  # part of its name


def read_progress(rundir: str, state: State, spec: Spec) -> Optional[Progress]:
    """Return how far the lowest rank of a node is by its logs; None if they have no step and no loss."""
    patterns = compile_patterns(spec.get("metrics") or {})
    found: Optional[Progress] = None
    try:
        with time_limit(TIME_LIMIT):
            for file in log_files(rundir, [state["ranks"]]):
                try:
                    seen = read_log(file, patterns)
                except OSError:
                    continue
                if seen is not None and (found is None or (seen["losses"] and not found["losses"])):
                    found = _join(seen, found)
    except TooSlowError:
        pass
    return found


def _join(newer: Progress, older: Optional[Progress]) -> Progress:
    """Fill in what only the other log has: losses on stdout, and on stderr the bar with the number of steps."""
    if older is None or newer["step"] is not None:
        return newer
    return {"step": older["step"], "total": older["total"], "losses": newer["losses"]}


def read_log(path: str, patterns: Mapping[str, Pattern[str]]) -> Optional[Progress]:
    """Read one log: its newest step, and losses at even distances; OSError where there is none."""
    with os.fdopen(open_log(path), "rb") as source:
        size = os.fstat(source.fileno()).st_size
        end = max(0, size - END)
        values: List[float] = []
        for number in range(PLACES if end else 0):
            source.seek(end * number // PLACES)
            values += _losses(_lines(source.read(PIECE))[1:-1], patterns, 1)  # those at the edges are cut
        source.seek(end)
        lines = _lines(source.read(END))[: -1 if end else None]
    values += _losses(lines, patterns, PLACES if not end else 1)
    step, total = _newest_step(lines)
    if step is None and not values:
        return None
    rounded = [[float("%.*g" % (DIGITS, value)) if math.isfinite(value) else None] for value in values]
    return {"step": step, "total": total, "losses": rounded}


def _lines(piece: bytes) -> List[str]:
    """Return the lines of a piece, the newest first; a bar that redraws itself is many."""
    lines = piece.replace(b"\r", b"\n").split(b"\n")
    return [line[:MAX_LINE].decode("utf-8", "replace") for line in reversed(lines)]


def _losses(lines: List[str], patterns: Mapping[str, Pattern[str]], most: int) -> List[float]:
    """Return the losses of lines that are given newest first, oldest first; of many those at even distances."""
    found: List[float] = []
    for line in lines:
        own = match_patterns(line, patterns)
        loss = _choose_loss({**(read_line(line).values if LOSS in line.lower() else {}), **own})
        found += [] if loss is None else [loss]
        if found and most == 1:
            break
    found.reverse()
    if len(found) <= most:
        return found
    return [found[round(place * (len(found) - 1) / (most - 1))] for place in range(most)]


def _choose_loss(values: Dict[str, float]) -> Optional[float]:
    """Return the loss of training among the numbers of a line."""
    names = sorted((name for name in values if LOSS in name), key=_loss_order)
    return values[names[0]] if names else None


def _loss_order(name: str) -> "tuple[bool, bool, str]":
    return name != LOSS, name.startswith(("val", "eval", "test")), name


def _newest_step(lines: List[str]) -> "tuple[Optional[int], Optional[int]]":
    """Return the newest step, and of how many if a line has that; a nameless bar counts where nothing has a step."""
    newest: Optional[int] = None
    bar: "tuple[Optional[int], Optional[int]]" = (None, None)
    for line in lines:
        if not has_hint(line.encode("utf-8", "replace")):
            continue
        read = read_line(line)
        step, total = read.position.step, read.total or read.position.total
        if read.position.within:
            continue
        if not read.measured:
            bar = bar if bar[0] is not None else (step, total)
            continue
        newest = step if newest is None else newest
        if newest is not None and total is not None and total >= newest:
            return newest, total
    if newest is None:
        return bar
    is_same = bar[0] is not None and bar[0] >= newest  # the bar of the training, not one of an evaluation
    return newest, bar[1] if is_same else None
