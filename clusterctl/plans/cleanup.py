"""Which runs and orphan processes may be removed, and which processes with torch imported wait for the next launch.

A run is removed that has ended and is old, or beyond the newest of its job. One that lives on any node stays on all.
Where it is not certain that a run has ended (a node did not answer, or was restarted, or the run was on another machine
that shares the home) only its age counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sized
from dataclasses import dataclass, field

from clusterctl.plans.facts.untrusted import clean_text, read_clean_many
from clusterctl.plans.runs.selection import Owner
from clusterctl.plans.runs.state import NodeState, parse_state
from clusterctl.plans.sync.listed_files import OutsideFiles, parse_outside, with_outside_files
from clusterctl.protocol.messages.facts import Orphan
from clusterctl.protocol.messages.record import Reading, integer, named
from clusterctl.protocol.run_id import RunId, parse_run_id
from clusterctl.protocol.states import UNKNOWN
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import group_values
from clusterctl.translation import to_translate, tr

KEEP = 10  # newest runs of each job
OLDER_THAN = 30 * 86400.0  # seconds
STORE_UNUSED_FOR = 7 * 86400.0  # seconds for which a content of the store was in no run's code
CENTURY = 100 * 365 * 86400.0  # seconds; nothing is older
# Why a run goes: translated where it is shown, since programs read it too.
BEYOND_NEWEST, OLD, NEVER_STARTED = (
    to_translate("beyond the newest"),
    to_translate("old"),
    to_translate("never started"),
)
MAX_NODE_DIR = 255  # characters of the name of a node's directory within a run's
NEVER_STARTED_FOR = 86400.0  # seconds after which a run that was never started counts as given up
MAX_SERVERS = 1
MAX_MODULES = 100


@dataclass(frozen=True)
class StoredRun:
    """One node's part of a run; `state` is None where nothing was ever started."""

    node: str
    run_id: RunId
    node_dir: str
    state: NodeState | None
    age: float
    bytes: int
    blocked_reason: str
    outside_files: OutsideFiles | None = None  # files that would be lost, unless they were pulled


@dataclass(frozen=True)
class RetentionPolicy:
    """What is kept: the newest `keep` runs of each job, and none that is older than `older_than` seconds."""

    keep: int = KEEP
    older_than: float = OLDER_THAN


@dataclass(frozen=True)
class CleanupPlan:
    """What is removed and why, and what is kept although it exceeds the limits."""

    removals: tuple[tuple[StoredRun, str], ...]
    kept: tuple[tuple[StoredRun, str], ...]

    @property
    def lost_files(self) -> dict[str, dict[str, OutsideFiles]]:
        """Return, by run and node, the files outside the output directory that would go with the runs."""
        files_by_run: dict[str, dict[str, OutsideFiles | None]] = {}
        for stored, _ in self.removals:
            files_by_run.setdefault(stored.run_id, {})[stored.node] = stored.outside_files
        lost = {run_id: with_outside_files(nodes) for run_id, nodes in files_by_run.items()}
        return {run_id: nodes for run_id, nodes in lost.items() if nodes}

    def without_runs(self, run_ids: Collection[str]) -> CleanupPlan:
        """Return the plan without some runs, on all nodes."""
        return CleanupPlan(
            tuple(removal for removal in self.removals if removal[0].run_id not in run_ids), self.kept
        )


def parse_stored_run(node: str, raw: Untrusted) -> StoredRun | None:
    """Read what a node reports of one part; None if it names no run."""
    run_id = parse_run_id(raw.text("run"))
    if run_id is None:
        return None
    return StoredRun(
        node=node,
        run_id=run_id,
        node_dir=raw.text("node_dir", MAX_NODE_DIR),
        state=parse_state(raw.record("state")) if raw.has_record("state") else None,
        age=min(max(0.0, raw.number("age") or 0.0), CENTURY),
        bytes=raw.count("bytes"),
        blocked_reason=raw.text("blocked", 300),
        outside_files=parse_outside(raw.record("outside")),
    )


def plan_cleanup(
    stored_runs: Iterable[StoredRun], policy: RetentionPolicy, user: Owner | None
) -> CleanupPlan:
    """Decide about every part; with `user` only about runs of that user."""
    by_run = group_values((stored.run_id, stored) for stored in stored_runs)
    newer_counts = _count_newer(by_run)
    removals: list[tuple[StoredRun, str]] = []
    kept: list[tuple[StoredRun, str]] = []
    for run_id, same_run in sorted(by_run.items()):  # by job, then by time
        if user is not None and not _is_own(same_run, user):
            continue
        run_reason, uncertainty = (
            _removal_reason(same_run, newer_counts.get(run_id, 0), policy),
            _describe_uncertainty(same_run),
        )
        for stored in same_run:
            reason = (
                run_reason
                if run_reason is not None
                else NEVER_STARTED
                if stored.age > NEVER_STARTED_FOR
                else ""
            )
            obstacle = stored.blocked_reason or (uncertainty if reason == BEYOND_NEWEST else "")
            if reason and obstacle:
                kept.append((stored, obstacle))
            elif reason:
                removals.append((stored, reason))
    return CleanupPlan(tuple(removals), tuple(kept))


def _count_newer(by_run: Mapping[RunId, list[StoredRun]]) -> dict[RunId, int]:
    """Count for every run how many of its job are newer, on the node that holds the fewest of them.

    Runs that a node invents replace only its own.
    """
    runs_by_job = group_values(
        ((stored.node, state.job, state.launched_id or state.launched_by), (state.submitted, run_id))
        for run_id, stored_runs in by_run.items()
        for stored in stored_runs
        if (state := stored.state)
    )
    newer_counts: dict[RunId, int] = {}
    for runs in runs_by_job.values():
        for count, (_, run_id) in enumerate(sorted(runs, reverse=True)):
            newer_counts[run_id] = min(count, newer_counts.get(run_id, count))
    return newer_counts


def _is_own(stored_runs: Iterable[StoredRun], user: Owner) -> bool:
    states = [stored.state for stored in stored_runs if stored.state]
    return all(user.is_same(Owner(state.launched_by, state.launched_id)) for state in states)


def _removal_reason(stored_runs: list[StoredRun], newer: int, policy: RetentionPolicy) -> str | None:
    """Return why a run's parts may go; empty if they stay, None for a run that was never started."""
    states = [stored.state for stored in stored_runs if stored.state]
    if any(state.live for state in states):
        return ""
    if not states:
        return None
    if min(stored.age for stored in stored_runs) > policy.older_than:
        return OLD
    return BEYOND_NEWEST if newer >= policy.keep else ""


def _describe_uncertainty(stored_runs: list[StoredRun]) -> str:
    """Return why it is not certain that a run has ended; empty if all its nodes report that."""
    states = [stored.state for stored in stored_runs if stored.state]
    nnodes = max((state.nnodes for state in states), default=0)
    if len(states) < nnodes:
        return tr(
            "only {count} of its {nnodes} nodes reported it, so only its age counts",
            count=len(states),
            nnodes=nnodes,
        )
    if any(state.state == UNKNOWN for state in states):
        return tr("on one node its end was not recorded, so only its age counts")
    return ""


@dataclass(frozen=True)
class Orphans:
    """What one node has: this account's, and how many other accounts have, as far as can be seen.

    `impossible` counts entries that cannot be either; the verb `orphans` never sends one.
    """

    own: tuple[Orphan, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)
    impossible: int = 0


def parse_orphans(raw_own: object, raw_others: object) -> Orphans:
    """Read a node's answer; never raises. Processes whose tag is not the name of a run are left out."""
    own = tuple(orphan for orphan in read_clean_many(Orphan, raw_own) if orphan.is_possible)
    others = named(integer(1)).read(raw_others, "others", Reading(clean_text)) or {}
    impossible = _size(raw_own, list) - len(own) + _size(raw_others, dict) - len(others)
    return Orphans(tuple(orphan for orphan in own if parse_run_id(orphan.run)), others, impossible)


def _size(raw: object, kind: type) -> int:
    """Count the entries of a list or an object; anything else in its place is one entry that cannot be read."""
    return len(raw) if isinstance(raw, Sized) and isinstance(raw, kind) else 1


def select_orphans(orphans: Iterable[Orphan], user: Owner | None) -> tuple[Orphan, ...]:
    """Choose what may be ended: of runs on the node's record, with `user` only of that user."""
    return tuple(
        orphan for orphan in orphans if orphan.known and (user is None or user.is_same(_owner(orphan)))
    )


def _owner(orphan: Orphan) -> Owner:
    return Owner(orphan.launched_by or "", orphan.launched_id or "")


@dataclass(frozen=True)
class WarmServer:
    """A process with torch imported that waits for the next launch; times in seconds, its memory in bytes."""

    pid: int
    python: str
    torch: str
    preload: tuple[str, ...]
    age: float
    ends_in: float
    bytes: int


def parse_warm_servers(answer: Untrusted) -> tuple[WarmServer, ...]:
    """Read a node's answer."""
    now = answer.moment("time") or 0.0
    return tuple(
        WarmServer(
            entry.count("pid"),
            entry.text("python"),
            entry.text("torch"),
            entry.texts("preload", MAX_MODULES),
            round(max(0.0, now - (entry.moment("since") or 0.0)), 3),
            round(max(0.0, (entry.moment("until") or 0.0) - now), 3),
            entry.count("bytes"),
        )
        for entry in answer.records("servers", MAX_SERVERS)
    )


def may_be_warm(states: Iterable[NodeState], offsets: Mapping[str, float], now: float) -> set[str]:
    """Name the nodes on which a run has left a process whose time is not up."""
    return {
        state.node
        for state in states
        if state.warm_until is not None and state.warm_until - offsets.get(state.node, 0.0) > now
    }
