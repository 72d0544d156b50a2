"""What the nodes of a run report of it, all asked at once: where its ranks are, and what they have on record.

Where ranks are is also kept in files, and shown once when a run stalls.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fabric import Connection, task

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Answers
from clusterctl.client.rpc.session import Interpreter, Session
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.plans.diagnose.evidence import MAX_ENTRIES, MAX_RECENT, NodeEvidence, RankEvidence, Watcher
from clusterctl.plans.diagnose.kept import KeptDiagnosis, judge_kept, render_kept
from clusterctl.plans.facts.utilization import parse_sample
from clusterctl.plans.runs.history import NodeRecord, RecordParser
from clusterctl.plans.runs.state import NodeState, latest_part
from clusterctl.protocol.messages.facts import GpuUsage
from clusterctl.protocol.states import SUCCEEDED, RunState
from clusterctl.specs.inventory.model import Node

if TYPE_CHECKING:
    from clusterctl.plans.diagnose.slow import Slowness
    from clusterctl.plans.runs.speed import SpeedVerdict
    from clusterctl.protocol.messages.verbs import HistoryRequest

HISTORY_LIMIT = 30.0  # seconds
GPU_LIMIT, GPU_INTERVAL = 3.0, 0.25  # seconds


def ranks_of(answers: Answers[NodeEvidence]) -> list[RankEvidence]:
    """List the ranks of all nodes, in order; of two nodes that claim the same rank both stay."""
    ranks = (rank for node in answers.nodes.values() for rank in node.ranks)
    return sorted(ranks, key=lambda one: (one.rank, one.node))


def watchers_of(answers: Answers[NodeEvidence]) -> list[Watcher]:
    """List the processes of all nodes that start and watch the ranks."""
    return [watcher for node in answers.nodes.values() for watcher in node.watchers]


def diagnose_ranks(run: tasks.RunHandle, entries: int = MAX_ENTRIES) -> Answers[NodeEvidence]:
    """Ask all nodes of a run; one that hangs costs its limit and is an error among the others' answers.

    `entries` is how many collectives of each process group are read.
    """
    return run.collect(lambda c, node, python: tasks.diagnose(c, node, python, run.run_id, entries))


def keep_answers(first: Answers[NodeEvidence], second: Answers[NodeEvidence]) -> Answers[NodeEvidence]:
    """Return the newest answer of each node; the errors are those of the second question."""
    return Answers({**first.nodes, **second.nodes}, second.errors)


def read_gpus(run: tasks.RunHandle) -> dict[str, tuple[GpuUsage, ...]]:
    """Read how busy the GPUs of each node are, as `top` does; nodes without any, or without an answer, are left out."""
    return {name: gpus for name, gpus in run.collect(_read_gpus).nodes.items() if gpus}


def _read_gpus(c: Connection, node: Node, interpreter: Interpreter) -> tuple[GpuUsage, ...]:
    deadline = time.monotonic() + GPU_LIMIT
    with tasks.top(c, node, interpreter, GPU_INTERVAL) as session:
        while (frame := session.receive(max(0.0, deadline - time.monotonic()))) is not None:
            sample = parse_sample(frame[0].unread("sample"))
            if sample is not None and not sample.gpu_pending:
                return sample.gpus
    return ()


def count_entries(parts: Mapping[str, NodeState | None], *, slow: bool) -> int:
    """Choose how many collectives of each process group to read: a bounded number for each node."""
    most_ranks = max((len(part.ranks) for part in parts.values() if part is not None), default=1)
    return max(MAX_ENTRIES, MAX_RECENT * 8 // max(8, most_ranks)) if slow else MAX_ENTRIES


def load_hang(run: tasks.RunHandle, parts: Mapping[str, NodeState | None]) -> KeptDiagnosis | None:
    """Read where the ranks were when their agents last kept it; None unless a node reports that, and answers."""
    known = {name: part for name, part in parts.items() if part is not None}
    has_succeeded = all(part.state == SUCCEEDED for part in known.values())
    if has_succeeded or not any(part.diagnosed for part in known.values()):
        return None
    silent_nodes = [name for name in parts if name not in known]
    world = latest_part(known).world_size or None
    run = run.on(node for node in run.nodes if node.name in known and node.name in run.interpreters)
    kept = run.collect(lambda c, node, python: tasks.read_kept(c, node, python, run.run_id)).nodes
    missing = [node.name for node in run.nodes if node.name not in kept]
    return judge_kept(list(kept.values()), [*silent_nodes, *missing], world)


def save_diagnosis(
    folder: Path, document: str, ranks: Sequence[RankEvidence], clean: Callable[[str], str]
) -> list[Path]:
    """Write the document as `diagnosis.json` and the stacks of each rank with its lines cleaned; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        f"rank-{rank.rank}.{rank.node}.stacks.txt": "".join(
            f"{clean(line)}\n" for line in rank.stack.splitlines()
        )
        for rank in ranks
        if rank.stack
    }
    files = {folder / name: text for name, text in {"diagnosis.json": document + "\n", **texts}.items()}
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return list(files)


ALL_WAIT = 3.0  # seconds that the other nodes have to keep their part, once one has


class StallNotice:
    """What the nodes have kept of a stall, read in a thread of its own."""

    def __init__(self, run: RunHandle, on_stall: Callable[[KeptDiagnosis], None] | None) -> None:
        self._run, self._on_stall = run, on_stall
        self._since: float | None = None  # when the first node reported it
        self._thread: threading.Thread | None = None
        self._found: list[KeptDiagnosis] = []

    def poll(self, states: Mapping[str, NodeState | None]) -> list[str]:
        """Return the lines to show, once for each stall; `states` are the newest of the nodes."""
        known = [state for state in states.values() if state is not None and state.live]
        stalled = [state for state in known if state.diagnosed == "stall"]
        if not stalled:
            self._since, self._thread = None, None
            return []
        self._since = self._since or time.monotonic()
        is_complete = len(stalled) == len(known) or time.monotonic() - self._since > ALL_WAIT
        if self._thread is None and is_complete:
            self._thread = threading.Thread(target=self._load, args=(states,), daemon=True)
            self._thread.start()
        return [line for kept in self._pop_found() for line in render_kept(kept)]

    def load(self, states: Mapping[str, NodeState | None]) -> KeptDiagnosis | None:
        """Read it for the end of a run; None if the nodes have kept nothing."""
        return load_hang(self._run, states)

    def _load(self, states: Mapping[str, NodeState | None]) -> None:
        kept = self.load(states)
        if kept is not None:
            self._found.append(kept)
            if self._on_stall is not None:
                self._on_stall(kept)

    def _pop_found(self) -> list[KeptDiagnosis]:
        found, self._found = self._found, []
        return found


@dataclass(frozen=True)
class HistoryChoice:
    """What is wanted of a run's history: the last `since` seconds (None: all) at so many moments, and the rest.

    `code` is for the names and hashes of the files that were sent, which node 0 has.
    `speed`: of the rest only what shows how fast the run is; `limit` are the seconds that a node has.
    """

    since: float | None
    points: int
    details: bool = False
    lines: int = 0
    code: bool = False
    speed: bool = False
    limit: float = HISTORY_LIMIT


Records = Answers[NodeRecord]


@task  # type: ignore[untyped-decorator]  # fabric ships no types
def history(
    c: Connection, node: Node, interpreter: Interpreter, run_id: str, choice: HistoryChoice
) -> NodeRecord:
    """Ask a node for what it has on record of a run: its samples, and with details what else a report shows."""
    request: HistoryRequest = {
        "workdir": node.workdir,
        "node": node.name,
        "run": run_id,
        "since": choice.since,
        "points": choice.points,
        "details": choice.details,
        "speed": choice.speed,
        "lines": choice.lines,
        "code": choice.code,
    }
    parser, deadline = RecordParser(node.name, choice.points), time.monotonic() + choice.limit
    asked_at = time.time()
    with Session(c, "history", request, interpreter) as session:
        while (frame := session.receive(max(0.1, deadline - time.monotonic()))) is not None:
            parser.add(*frame)
            if parser.is_complete(details=choice.details or choice.speed):
                break
    return parser.finish((asked_at + time.time()) / 2)


def fetch_records(run: RunHandle, choice: HistoryChoice) -> Records:
    """Ask all nodes of a run; one that hangs costs its limit and is an error among the others' answers."""
    return run.collect(lambda c, node, python: history(c, node, python, run.run_id, choice))


SPEED_POINTS = 120
SPEED_LIMIT = 5.0  # seconds: the end of a run is not shown before


def load_speed(
    run: RunHandle, state: RunState, parts: Mapping[str, NodeState | None], offsets: Mapping[str, float]
) -> tuple[Slowness | None, SpeedVerdict | None]:
    """Judge how fast a run is, and which rank is slow, in one round trip; where it does not count nothing is read."""
    from clusterctl.plans.runs.judge_speed import has_speed, judge_speed, judge_waiting

    now = time.time()
    if not has_speed(state, parts, offsets, now):
        return None, None
    known = [node for node in run.nodes if parts.get(node.name) and node.name in run.interpreters]
    choice = HistoryChoice(None, SPEED_POINTS, speed=True, limit=SPEED_LIMIT)
    records = fetch_records(run.on(known), choice).nodes
    slow = judge_waiting(records)
    return slow, judge_speed(state, parts, records, slow, offsets, now)
