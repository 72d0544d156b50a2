"""Why an attempt ended, from the parts of all nodes: the reason by which the gang decides whether to try again.

The order is that of the client's `plans/cause.py`, in short: words of one's own, then a sudden death, then
torchrun's, and last what only tells of others; among equals the earliest. The texts come with the spec.
"""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Pattern, Sequence, Tuple

from .evidence import TRACEBACK
from .verdict import describe_end

Part = Dict[str, Any]
Failure = Dict[str, Any]
Texts = Sequence[Tuple[str, Pattern[str]]]

CODE = "code"
SECONDARY = "secondary"
NODE_LOST, NETWORK, MEMORY = "node_lost", "network", "out_of_memory"
KILLED, CRASHED, AGENT_KILLED = "worker_killed", "worker_crashed", "agent_killed"
KILLS = (signal.SIGKILL, signal.SIGTERM)

SHORTEST_GRACE = 0.5  # seconds; a KILL sooner after our stop is not ours
CLOCK_SLACK = 0.2  # seconds by which a node's clock may be misjudged
LOG_LAG = 0.5  # seconds that a line may take from a rank to the agent
SURVIVED = 1.0  # seconds of output after an exception that show that it was survived

OWN, SUDDEN, TORCHRUN, FOLLOWED, OURS = range(5)  # how telling the evidence is, the best first

RANK_MARK = re.compile(r"^\[rank\d+\]: ?")
CHAIN = re.compile(r"During handling of the above exception, |The above exception was the direct cause")


class Blame(NamedTuple):
    """Why it ended: a word of the job's `restart.on`, or "code"; on which node; a line for people."""

    reason: str
    node: str
    text: str


def read_texts(rows: Any) -> List[Tuple[str, Pattern[str]]]:
    """Compile the spec's table of texts; a row that is no pattern for this Python is left out."""
    texts = []
    for word, pattern in rows or ():
        try:
            texts.append((str(word), re.compile(pattern, re.IGNORECASE)))
        except re.error:
            continue
    return texts


def blame(parts: Sequence[Part], texts: Texts) -> Blame:
    """Choose the failure that the others follow from."""
    for part in parts:
        if part["state"] == "LOST":
            return Blame(NODE_LOST, part["node"], f"{part['node']} is lost")
    stops = [part["stopped_at"] for part in parts if part.get("stopped_at") is not None]
    stopped_at = min(stops, default=None)
    weighed = [entry for part in parts for entry in _weigh_part(part, texts, stopped_at)]
    told = [entry for entry in weighed if entry[0] < OURS]
    if not told:
        return _without_failures(parts, texts)
    grade, _, word, node, text = min(told)
    return Blame(NETWORK if grade == FOLLOWED else word, node, text)


def _without_failures(parts: Sequence[Part], texts: Texts) -> Blame:
    for part in parts:
        if part["state"] in ("FAILED", "FAILED_SETUP"):
            word = _known(part["reason"], texts)
            word = NETWORK if word == SECONDARY else word or CODE
            return Blame(word, part["node"], f"{part['node']}: {part['reason']}")
    bad = [part for part in parts if part["state"] != "SUCCEEDED"]
    return Blame(CODE, bad[0]["node"] if bad else "", bad[0]["reason"] if bad else "")


def _weigh_part(
    part: Part, texts: Texts, stopped_at: Optional[float]
) -> Iterator[Tuple[int, float, str, str, str]]:
    for failure in part["failures"]:
        if failure.get("exit") == 0 and failure.get("signal") is None:
            continue
        said, moment = _words_of(failure, texts)
        grade, word = _weigh(failure, said, _is_ours(failure, part, stopped_at), texts)
        late = said and stopped_at is not None and moment > stopped_at + LOG_LAG
        grade = FOLLOWED if grade == OWN and late else grade
        yield grade, moment, word, part["node"], _describe(failure, part["node"], said)


def _weigh(failure: Failure, said: str, ours: bool, texts: Texts) -> Tuple[int, str]:
    if said:
        word = _known(said, texts) or CODE
        return (FOLLOWED, NETWORK) if word == SECONDARY else (OWN, word)
    if failure.get("reason"):
        return SUDDEN, AGENT_KILLED
    return (OURS, CODE) if ours else _weigh_end(failure, texts)


def _weigh_end(failure: Failure, texts: Texts) -> Tuple[int, str]:
    """Weigh a process that ended without an exception: by the kernel's word, its last lines, its signal."""
    number, of_rank = failure.get("signal"), failure.get("rank") is not None
    grade = SUDDEN if of_rank else TORCHRUN
    if failure.get("starved"):
        return grade, MEMORY
    if number in KILLS:
        return grade, KILLED if of_rank else AGENT_KILLED
    known = _known("\n".join(failure.get("tail") or ()), texts)
    if known == SECONDARY:
        return FOLLOWED, NETWORK
    if known is None and number is not None:
        return grade, CRASHED if of_rank else AGENT_KILLED
    return grade, known or CODE


def _known(text: str, texts: Texts) -> Optional[str]:
    return next((word for word, pattern in texts if pattern.search(text)), None)


def _is_ours(failure: Failure, part: Part, stopped_at: Optional[float]) -> bool:
    """Whether our own TERM, the KILL after it, or torchrun ended it because of somebody else."""
    number, moment, told = failure.get("signal"), failure.get("time") or 0.0, part.get("stopped_at")
    if failure.get("rank") is not None and number is None and told is not None and moment >= told:
        return True  # it handles SIGTERM: saves, and leaves with a code of its own
    if stopped_at is not None:
        after = moment - stopped_at
        if failure.get("rank") is None:
            return bool(after >= 0)
        if number == signal.SIGTERM and after >= -CLOCK_SLACK:
            return True
        if number == signal.SIGKILL and after >= SHORTEST_GRACE:
            return True
    earlier = (other for other in part["failures"] if other is not failure and other.get("exit") != 0)
    return number in KILLS and any(
        other.get("signal") != number and float(other.get("time") or 0.0) <= moment + CLOCK_SLACK
        for other in earlier
    )


def _words_of(failure: Failure, texts: Texts) -> Tuple[str, float]:
    """Return the exception that counts, and when it was raised; of a chain the link that tells of no other."""
    ended = float(failure.get("time") or 0.0)
    found = [entry for entry in map(_read_block, failure.get("said") or ()) if entry[0]]
    if not found:
        return "", ended
    said, moment, _ = found[-1]
    went_on = float(failure.get("last_at") or 0.0) > moment + SURVIVED
    if failure.get("signal") is not None and went_on:
        return "", ended
    for place in range(len(found) - 1, 0, -1):
        if not found[place][2]:
            break
        earlier = found[place - 1]
        if SECONDARY in (_known(earlier[0], texts), _known(said, texts)):
            said, moment = earlier[0], earlier[1]
    return said, moment


def _read_block(block: Any) -> Tuple[str, float, bool]:
    """Read one traceback: the exception with its message, the moment, and whether it follows from another."""
    lines = [RANK_MARK.sub("", line) for line in block.get("lines") or ()]
    start = next((number for number, line in enumerate(lines) if TRACEBACK in line), None)
    if start is None:
        return "", 0.0, False
    words = [line for line in lines[start + 1 :] if line[:1].strip() and not CHAIN.match(line)]
    chained = any(CHAIN.match(line) for line in lines[:start])
    return "\n".join(words), float(block.get("at") or 0.0), chained


def _describe(failure: Failure, node: str, said: str) -> str:
    """Say it in a line: `rank 1 on gpu02, killed by SIGKILL`."""
    who = f"rank {failure['rank']} on {node}" if failure.get("rank") is not None else node
    if said:
        return f"{who}: {said.partition(chr(10))[0]}"[:300]
    if failure.get("reason"):
        return f"{who}: {failure['reason']}"
    how = describe_end(failure.get("exit"), failure.get("signal")).replace("was killed", "killed")
    return f"{who}, {how}" if failure.get("rank") is not None else f"torchrun on {who}, {how}"
