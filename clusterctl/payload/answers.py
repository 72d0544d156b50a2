"""What the ranks of a deep check write for each other into the run's store, and what follows from it for a group.

Every rank may write anything there: what is read is bounded, and a wrong answer is an error of the rank that gave it.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ..protocol.untrusted import MalformedError, Row, Untrusted, parse_json, parse_object
from .narrowing import Result

SIZES = (8, 64 << 10, 1 << 20, 16 << 20)  # bytes
LARGE = (128 << 20,)  # with NCCL
LONGEST_ANSWER = 64 << 10  # bytes
BYTES_A_RANK = 16  # of JSON, in the list of a round's groups
LONGEST_ERROR = 300  # characters
SHORTEST_TIME, LONGEST_TIME = 1e-9, 1e6  # seconds

Answer = Dict[str, Any]


def read_groups(text: bytes, size: int) -> List[List[int]]:
    """Read the groups of a round, which rank 0 has named; none at the end, and where it names what cannot be."""
    try:
        told = Untrusted({"groups": parse_json(text, size * BYTES_A_RANK + LONGEST_ANSWER)})
    except MalformedError:
        return []
    groups = [row.integers(size, 0, size - 1) for row in told.rows("groups", size)]
    ranks = [rank for group in groups for rank in group]
    return [list(group) for group in groups] if len(set(ranks)) == len(ranks) else []


def read_node(text: bytes, size: int) -> int:
    """Read on which node a rank is."""
    number = text.decode("ascii", "replace")
    if not (number.isdecimal() and len(number) < 10 and int(number) < size):
        raise SystemExit("a rank does not say on which node it is")
    return int(number)


def read_answer(text: bytes) -> Answer:
    """Read how it went on another rank; what it leaves out, or says wrongly, is an error of that rank."""
    try:
        told = parse_object(text, LONGEST_ANSWER)
    except MalformedError as error:
        return {"error": "its answer cannot be read: %s" % error, "rows": []}
    rows = [read_row(row) for row in told.rows("rows", len(SIZES + LARGE))]
    answer: Answer = {"rows": [row for row in rows if row is not None]}
    if told.text("error"):
        return {**answer, "error": told.text("error", LONGEST_ERROR), "late": told.flag("late")}
    joined = told.number("joined", 0.0, LONGEST_TIME)
    if not answer["rows"] or joined is None or told.choice("wrong") is None:
        return {"error": "its answer is not complete", "rows": []}
    return {**answer, "wrong": told.flag("wrong"), "joined": joined}


def read_row(row: Row) -> Optional[List[float]]:
    """Read one measurement: bytes, and seconds for them."""
    size, seconds = row.integer(0, 1, max(LARGE)), row.number(1, SHORTEST_TIME, LONGEST_TIME)
    return None if size is None or seconds is None else [size, seconds]


def judge(answers: List[Optional[Answer]], ranks: List[int]) -> Answer:
    """Make of the ranks' answers that of their group; the first complaint stands for all."""
    silent = [rank for rank, answer in zip(ranks, answers) if answer is None]
    broken = [(rank, answer) for rank, answer in zip(ranks, answers) if answer and answer.get("error")]
    wrong = [rank for rank, answer in zip(ranks, answers) if answer and answer.get("wrong")]
    if silent:
        return {"ok": False, "rank": silent[0], "error": "no answer", "rows": []}
    if broken:
        rank, answer = next((one for one in broken if not one[1].get("late")), broken[0])
        return {"ok": False, "rank": rank, "error": answer["error"], "rows": []}
    first = answers[0] or {}
    blamed, error = (wrong[0], "got a wrong sum") if wrong else (None, "")
    return {"ok": not wrong, "rank": blamed, "error": error, "rows": first["rows"], "joined": first["joined"]}


def result_of(group: Answer, ranks: int) -> Result:
    """Reduce a group's answer to what the search looks at."""
    if not group["ok"]:
        return Result(False)
    factor = 2.0 * (ranks - 1) / ranks if ranks > 1 else 1.0
    rows = group["rows"]
    return Result(True, max(factor * size / seconds for size, seconds in rows), rows[0][1])
