"""Why an attempt ended, from the parts of all nodes: the reason by which the gang decides whether to try again.

The order is that of the client's `plans/runs/root_cause.py`, in short: words of one's own, then a sudden death, then
torchrun's, and last what only tells of others; among equals the earliest. The texts come with the spec.
"""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Pattern, Sequence, Tuple

from ...protocol.leaver import RankEnd, find_leavers
from ..runtime.exit_status import describe_end
from ..supervise.evidence import TRACEBACK

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
    if grade == FOLLOWED:
        left = _find_left(parts, texts, stopped_at)
        if left is not None:
            return left
    return Blame(NETWORK if grade == FOLLOWED else word, node, text)


def _find_left(parts: Sequence[Part], texts: Texts, stopped_at: Optional[float]) -> Optional[Blame]:
    """Find the rank that left while the others needed it: an error of the script."""
    ranks = [(part, one) for part in parts for one in part["failures"] if one.get("rank") is not None]
    addresses = {str(part["node"]): str(part.get("address") or "") for part in parts}
    found = find_leavers([_as_end(one, part, texts, stopped_at) for part, one in ranks], addresses)
    if len(found) != 1:
        return None
    part, one = ranks[found[0]]
    who = f"rank {one['rank']} on {part['node']}"
    return Blame(CODE, part["node"], f"{who} left while the others still needed it")


def _as_end(failure: Failure, part: Part, texts: Texts, stopped_at: Optional[float]) -> RankEnd:
    said, moment = _words_of(failure, texts)
    words = said or "\n".join(failure.get("tail") or ())
    well, ended = _ended_well(failure), float(failure.get("time") or 0.0)
    asked, complains = _was_asked(failure, part), _known(words, texts) == SECONDARY
    in_time = stopped_at is None or min(moment, ended) <= stopped_at + CLOCK_SLACK
    return RankEnd(
        part["node"],
        ended,
        exited_0=well,
        asked=asked,
        silent=asked and not complains and (well or (not said and _is_ours(failure, part, stopped_at))),
        by_itself=failure.get("signal") is None,
        complaint=words if complains and in_time and not well else "",
    )


def _ended_well(failure: Failure) -> bool:
    return failure.get("exit") == 0 and failure.get("signal") is None


def _was_asked(failure: Failure, part: Part) -> bool:
    """Whether a rank ended after it had been told to, by us or by torchrun when another of its node had failed."""
    told = part.get("stopped_at")
    return (told is not None and float(failure.get("time") or 0.0) >= told) or _is_torchruns(failure, part)


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
        if _ended_well(failure):
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
        if number == signal.SIGKILL and after >= SHORTEST_GRACE:
            return True
    if number == signal.SIGTERM and told is not None and moment >= told:
        return True  # by the same clock: a TERM that came sooner is somebody else's
    return _is_torchruns(failure, part)


def _is_torchruns(failure: Failure, part: Part) -> bool:
    """Whether torchrun ended a rank because another one of its node had failed before."""
    number, moment = failure.get("signal"), float(failure.get("time") or 0.0)
    if number not in KILLS and not _ended_well(failure):
        return False
    latest = moment + (0.0 if number is None else CLOCK_SLACK)
    earlier = (other for other in part["failures"] if other is not failure and not _ended_well(other))
    return any(
        (number is None or other.get("signal") != number) and float(other.get("time") or 0.0) <= latest
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
