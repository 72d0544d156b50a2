"""How far a run is: its newest step, of how many, and a few of its losses.

A question costs the same for a log of any length: its end is read, and PLACES pieces before it. Patterns of a job are
regular expressions that its user wrote: a timer ends it all. Not here: all numbers of a run (scalars.py).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, List, Mapping, Optional

from ..logs.log_file import open_log
from ..runtime.time_limit import TooSlowError, time_limit
from .log_values import NOTHING, LineValues, has_hint, read_line
from .scalars import MAX_LINE, compile_patterns, log_files, match_patterns

if TYPE_CHECKING:
    from re import Pattern

    from ...protocol.messages.files import Progress, Spec, State

TIME_LIMIT = 0.3  # seconds for a run
PLACES = 16  # pieces of a log
PIECE, END = 2 << 10, 16 << 10  # bytes
DIGITS, MAX_LOSS = 5, 1e30
LOSS = "loss"  # part of its name
FIRST_NAMES = (LOSS, "train_loss", "lm_loss")  # one of a log is shown: these first, as in a report
EVALUATION = re.compile(r"(?<![a-z])(?:val(?:id(?:ation)?)?|eval(?:uation)?|test)(?![a-z])")


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
        pieces: List[List[LineValues]] = []
        for number in range(PLACES if end else 0):
            source.seek(end * number // PLACES)
            pieces.append(_read_lines(source.read(PIECE), patterns, 1))
        source.seek(end)
        pieces.append(_read_lines(source.read(END), patterns, 1 if end else 0))
    values = _losses(pieces)
    step, total = _newest_step(pieces[-1])
    if step is None and not values:
        return None
    rounded = [float("%.*g" % (DIGITS, value)) for value in values]
    losses = [[value if abs(value) <= MAX_LOSS else None] for value in rounded]
    return {"step": step, "total": total, "losses": losses}


def _read_lines(piece: bytes, patterns: Mapping[str, Pattern[str]], first: int) -> List[LineValues]:
    """Read the lines of a piece, the newest first; a bar that redraws itself is many.

    Those at the edges may be cut: the first, and the last, which may be still written.
    """
    found = []
    for raw in reversed(piece.replace(b"\r", b"\n").split(b"\n")[first:-1]):
        line = raw[: MAX_LINE + 1].decode("utf-8", "replace")
        read = read_line(line) if len(raw) <= MAX_LINE and has_hint(raw) else NOTHING
        found.append(read._replace(values={**read.values, **match_patterns(line, patterns)}))
    return found


def _losses(pieces: List[List[LineValues]]) -> List[float]:
    """Return the losses of the training, oldest first: the newest of each piece, of a single one several."""
    names = {name for piece in pieces for line in piece for name in line.values if LOSS in name}
    name = min((name for name in names if not EVALUATION.search(name)), key=_loss_order, default="")
    found = [[line.values[name] for line in piece if name in line.values] for piece in pieces]
    if len(found) > 1:
        return [values[0] for values in found if values]
    values, last = found[0][::-1], len(found[0]) - 1
    if last < PLACES:
        return values
    return [values[round(place * last / (PLACES - 1))] for place in range(PLACES)]


def _loss_order(name: str) -> "tuple[int, str]":
    return FIRST_NAMES.index(name) if name in FIRST_NAMES else len(FIRST_NAMES), name


def _newest_step(lines: List[LineValues]) -> "tuple[Optional[int], Optional[int]]":
    """Return the newest step, and of how many if a line has that; a nameless bar counts where nothing has a step."""
    newest: Optional[int] = None
    bar: "tuple[Optional[int], Optional[int]]" = (None, None)
    for read in lines:
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
