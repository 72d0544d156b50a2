"""The attempts of a run: who takes part in one, the record of its end, why it ended, and whether another one follows.

A slot is an agent of the run: 0 to nnodes-1 for the planned nodes, then the spares. An attempt gives it a node rank, or
none. `protocol/end_record.py` reads the record. The cause is judged by `protocol/root_cause.py`, which is loaded only
when an attempt has ended badly: an agent that is starting, or whose run is not started again, does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from ...protocol.exit_status import is_stall
from ...protocol.messages.gang import MAJORITY, MAX_RESTARTS, NODES, REASON, RosterView, limit_size
from ...protocol.ranks import NodeRank, Slot
from ...protocol.reasons import CODE, STALLED
from ...protocol.states import FINAL, LOST, SUCCEEDED
from ...protocol.untrusted import Untrusted
from .limits import MAX_PAUSE

if TYPE_CHECKING:
    from ...protocol.end_record import EndRecord
    from ...protocol.messages.files import (
        AttemptEnd,
        EndState,
        FailureRecord,
        GangRecord,
        PartRecord,
        RestartSpec,
        RosterEntry,
        Spec,
        StopRecord,
    )
    from ...protocol.root_cause import Cause


MAX_WITHOUT_PROGRESS = 3  # attempts in a row without progress
WARM_SECONDS = 5.0
FIRST_PAUSE = 1.0  # seconds; each is twice the one before
MAX_TEXT = 300  # characters


class Roster:
    """What every agent knows of the whole run, so that any of them could lead it on."""

    def __init__(self, spec: Spec) -> None:
        self.own_slot = Slot(int(spec["slot"] if "slot" in spec else spec["node_rank"]))
        self.nnodes = int(spec["nnodes"])
        self.min_nodes = int(spec.get("min_nodes") or self.nnodes)
        self.agreed = int(spec.get("attempt", 1))  # the newest attempt that is known to have had GO
        self.slot_count = int(spec.get("slots") or self.nnodes)
        self.attempt = int(spec.get("attempt", 1))
        self.history: List[AttemptEnd] = []
        self.listen_addresses: Dict[Slot, Tuple[str, int]] = {}
        entries = spec.get("roster") or self._planned_entries(spec)
        self.entries = [entry.copy() for entry in entries]

    def _planned_entries(self, spec: Spec) -> List[RosterEntry]:
        """Return the first roster, each slot as its rank; nodes that the spec does not name add theirs later."""
        names = dict(enumerate(spec.get("nodes") or ()))
        names.update({0: spec["hub"], self.own_slot: spec["node"]})
        return [
            {"slot": Slot(slot), "node": names.get(slot) or f"node-{slot}", "node_rank": NodeRank(slot)}
            for slot in range(self.nnodes)
        ]

    @property
    def all_slots(self) -> Set[Slot]:
        """Return every agent of the run."""
        return set(map(Slot, range(self.slot_count)))

    @property
    def node_ranks(self) -> Dict[Slot, NodeRank]:
        """Return the node rank of every slot that has one."""
        return {entry["slot"]: entry["node_rank"] for entry in self.entries if entry["node_rank"] is not None}

    @property
    def lost(self) -> Set[Slot]:
        """Return the slots that are lost for good."""
        return {entry["slot"] for entry in self.entries if entry.get("lost")}

    def node_rank(self, slot: Slot) -> NodeRank:
        """Return the node rank that the attempt gives a slot; its own number if none."""
        return self.node_ranks.get(slot, NodeRank(slot))

    def node(self, slot: Slot) -> str:
        """Return a slot's node."""
        return next((str(entry["node"]) for entry in self.entries if entry["slot"] == slot), f"slot {slot}")

    def set_node(self, slot: Slot, node: str) -> None:
        """Take the name by which a slot's agent has proved the token."""
        for entry in self.entries:
            if entry["slot"] == slot:
                entry["node"] = node

    def address(self, slot: Slot) -> str:
        """Return a slot's training IP; empty where the spec does not name it."""
        return next((str(entry.get("address") or "") for entry in self.entries if entry["slot"] == slot), "")

    def names_by_address(self) -> Dict[str, str]:
        """Return the nodes that take part in the attempt, by training IP."""
        taking_part = [entry for entry in self.entries if entry["node_rank"] is not None]
        return {str(entry.get("address") or ""): entry["node"] for entry in taking_part}

    def find_listener(self, slot: Slot) -> List[Tuple[str, int]]:
        """Find where a slot's agent listens; nowhere in a run that is never started again."""
        return [self.listen_addresses[slot]] if slot in self.listen_addresses else []

    def find_address(self, slot: Slot) -> str:
        """Find where a slot's agent can be reached; empty if it is not known."""
        return self.address(slot) or self.listen_addresses.get(slot, ("", 0))[0]

    def mark_lost(self, slot: Slot, why: str) -> None:
        """Mark a slot as lost for good."""
        for entry in self.entries:
            if entry["slot"] == slot and not entry.get("lost"):
                entry.update({"lost": True, "reason": why})

    def mark_unfit(self, slot: Slot, why: str) -> None:
        """Mark a slot that can take part no more, although its agent is here; without a reason it can."""
        for entry in self.entries:
            if entry["slot"] == slot and why:
                entry["unfit"] = why

    @property
    def unfit(self) -> Set[Slot]:
        """Return the slots that can take part no more."""
        return {entry["slot"] for entry in self.entries if entry.get("unfit")}

    def add_attempt(self, entry: AttemptEnd) -> None:
        """Write an attempt down that has ended, once."""
        self.history = [other for other in self.history if other["attempt"] != entry["attempt"]] + [entry]

    @property
    def _electorates(self) -> List[Set[Slot]]:
        """Return the sets of slots of each of which a majority must be present for the run to go on.

        At first that is one set, of all slots. An attempt of a job with `min_nodes` leaves out what is lost, so that 4
        nodes can become 3 and then 2; no two sides of a cut may go on, whatever each of them has last received:
        until GO both the set before and the new one count, and GO comes only when nodes that are a majority of both
        have reported that they are ready, and so have the new set.
        """
        after = {entry["slot"] for entry in self.entries if "left_out" not in entry}
        before = after | {entry["slot"] for entry in self.entries if entry.get("left_out", 0) > self.agreed}
        return [before] if before == after else [before, after]

    def has_majority(self, slots: Set[Slot]) -> bool:
        """Whether no others can lead the run on."""
        return all(2 * len(slots & voters) > len(voters) for voters in self._electorates)

    @property
    def in_minority(self) -> bool:
        """Whether those who are gone could go on without us."""
        return any(2 * len(self.lost & voters) > len(voters) for voters in self._electorates)

    def describe_left(self) -> str:
        """Describe how many of those that count for a majority are not lost."""
        voters = self._electorates[-1]
        return f"only {len(voters - self.lost)} of {len(voters)} nodes are left"

    @property
    def idle_voters(self) -> Set[Slot]:
        """Return the other spares, where who counts for a majority has changed: they must receive the GO too."""
        others = self._electorates[-1] - set(self.node_ranks) - {self.own_slot}
        return others if self.view().left_out else set()

    def can_continue(self, present: Set[Slot]) -> bool:
        """Whether these agents may lead the run on: no others can, and they are enough."""
        return self.find_shortage(present, present) is None

    def find_shortage(self, present: Set[Slot], fit: Set[Slot]) -> Optional[str]:
        """Return why the agents that are present, of which these could take part, may not go on; None if they may."""
        if min(len(present), len(fit)) < self.min_nodes:
            return NODES
        return None if self.has_majority(present) else MAJORITY

    def assign(self, fit_slots: Iterable[Slot]) -> bool:
        """Assign every rank to a slot that is fit; one that has a rank keeps it. False if there are not enough.

        Where a job may go on with fewer nodes, and there are fewer, the ranks close up in their order.
        """
        candidates = sorted(fit_slots)
        kept = {node_rank: slot for slot, node_rank in self.node_ranks.items() if slot in candidates}
        free = [slot for slot in candidates if slot not in kept.values()]
        for node_rank in sorted(set(map(NodeRank, range(self.nnodes))) - set(kept))[: len(free)]:
            kept[node_rank] = free.pop(0)
        if len(kept) < self.min_nodes:
            return False
        assigned = {slot: NodeRank(number) for number, (_, slot) in enumerate(sorted(kept.items()))}
        for entry in self.entries:
            entry["node_rank"] = assigned.get(entry["slot"])
        self.attempt += 1
        if self.min_nodes < self.nnodes and self.has_majority(set(assigned)):
            for entry in self.entries:
                if entry.get("lost"):
                    entry.setdefault("left_out", self.attempt)
        return True

    def agree(self) -> None:
        """The attempt has GO: all that take part have its roster."""
        self.agreed = max(self.agreed, self.attempt)

    def view(self) -> RosterView:
        """Return what is sent to other agents."""
        return RosterView(self.attempt, self.entries, self.history, self.agreed)

    def apply(self, view: RosterView) -> None:
        """Take what another agent knows, which may be further than we are; who is lost stays so.

        The newest counts: the hub that is gone may have reached only some with its last order.
        """
        if (view.attempt, len(view.history)) > (self.attempt, len(self.history)):
            self._adopt(view)
        self.agreed = max(self.agreed, view.agreed)
        for entry in self.entries:
            if entry["slot"] in view.left_out:
                entry.setdefault("left_out", view.left_out[entry["slot"]])
        for slot, why in view.lost.items():
            if slot != self.own_slot:
                self.mark_lost(slot, why)

    def _adopt(self, view: RosterView) -> None:
        self.attempt, self.history = view.attempt, list(view.history)
        for entry in self.entries:
            entry["node_rank"] = view.node_ranks.get(entry["slot"])
            self.mark_unfit(entry["slot"], view.unfit.get(entry["slot"], ""))


def spec_of_attempt(spec: Spec, roster: Roster) -> Spec:
    """Return the spec of the roster's attempt on this node, from that of the run."""
    node_rank = roster.node_rank(roster.own_slot)
    own: Spec = {**spec, "attempt": roster.attempt, "node_rank": node_rank}
    if "ray" in spec:
        own["ray"] = {**spec["ray"], "names": roster.names_by_address()}
    return _resize(own, roster) if spec.get("min_nodes") else own


def _resize(spec: Spec, roster: Roster) -> Spec:
    """Put in how many nodes and ranks an attempt has, of a job that may go on with fewer nodes."""
    taking_part = [entry for entry in roster.entries if entry["node_rank"] is not None]
    processes = [
        entry.get("processes") for entry in sorted(taking_part, key=lambda entry: entry["node_rank"] or 0)
    ]
    known = [count for count in processes if count is not None]
    total = sum(known) if len(known) == len(processes) else None
    spec["planned_nodes"], spec["nnodes"], spec["world_size"] = roster.nnodes, len(processes), total
    if "mpi" in spec:
        spec["mpi"] = {"slots": [count or 1 for count in processes]}
    if "ray" in spec and spec["ray"]["all_gpus"]:
        spec["ray"]["all_gpus"] = total
    return spec


class Policy(NamedTuple):
    """When a run is started again, by the job's `restart`."""

    max_restarts: int
    on: Tuple[str, ...]
    progress: str
    pause: float  # seconds before the first restart
    warm: float  # of these the last, in which gates may import torch already
    never: bool = False  # of a run whose job does not mention restarts

    def pause_before(self, restart: int) -> float:
        """Return the seconds before the first, second ... restart."""
        return min(MAX_PAUSE, self.pause * 2.0 ** (restart - 1))

    def refuse(self, reason: str, restarts: int) -> Optional[str]:
        """Return why an attempt that ended for a reason is the last, after so many restarts; None if it need not be."""
        if reason not in self.on:
            return CODE if reason == CODE else REASON
        return MAX_RESTARTS if restarts >= self.max_restarts else None

    def lacks_progress(self, history: Sequence[AttemptEnd], entry: AttemptEnd) -> bool:
        """Whether this attempt is one too many without progress, after those before it."""
        before = [other for other in history if other["attempt"] != entry["attempt"]]
        last = [*before, entry][-MAX_WITHOUT_PROGRESS:]
        return len(last) == MAX_WITHOUT_PROGRESS and all(other["progress"] is False for other in last)


NEVER = Policy(0, (), "", 0.0, 0.0, never=True)


def read_policy(spec: RestartSpec) -> Policy:
    """Read the spec's `restart`."""
    progress, pause = spec.get("progress") or "**", float(spec.get("pause") or FIRST_PAUSE)
    return Policy(spec["max"], tuple(spec["on"]), progress, pause, float(spec.get("warm", WARM_SECONDS)))


class RestartReason(NamedTuple):
    """Why it ended: a word of the job's `restart.on`, or "code"; on which node; a line for people."""

    reason: str
    node: str
    text: str


def judge_record(record: GangRecord) -> RestartReason:
    """Choose the failure of a gang's record that the others follow from."""
    from ...protocol.end_record import parse_record  # noqa: PLC0415, RUF100 - see above
    from ...protocol.root_cause import find_cause, restart_reason  # noqa: PLC0415, RUF100 - see above

    end_record = parse_record(Untrusted(record))
    if end_record is None:
        return RestartReason(CODE, "", "")
    cause = find_cause(end_record.failures, end_record.stopped_at, end_record.addresses)
    stalled = next((part for part in end_record.parts if is_stall(part.reason)), None)
    if stalled is not None and (cause is None or cause.is_doubtful):
        return RestartReason(STALLED, stalled.node, stalled.reason)
    if cause is None or cause.is_stop:
        return _without_failures(end_record)
    return RestartReason(restart_reason(cause), cause.failure.node, _describe(cause))


def _without_failures(end_record: EndRecord) -> RestartReason:
    """Read the reason out of what the nodes themselves report, where no process failed."""
    from ...protocol.known_errors import recognise  # noqa: PLC0415, RUF100 - see above
    from ...protocol.root_cause import reason_of  # noqa: PLC0415, RUF100 - see above

    for part in end_record.parts:
        if part.state in ("FAILED", "FAILED_SETUP"):
            known = recognise(part.reason, (), None)
            return RestartReason(reason_of(known), part.node, f"{part.node}: {part.reason}")
    bad = [part for part in end_record.parts if part.state != "SUCCEEDED"]
    return RestartReason(CODE, bad[0].node if bad else "", bad[0].reason if bad else "")


def _describe(cause: Cause) -> str:
    """Describe it in a line: `rank 1 on gpu02, killed by SIGKILL`."""
    from ...protocol.root_cause import render_ending  # noqa: PLC0415, RUF100 - see above
    from ...protocol.tracebacks import strip_rank  # noqa: PLC0415, RUF100 - see above

    failure = cause.failure
    subject = f"rank {failure.rank} on {failure.node}" if failure.rank is not None else failure.node
    if failure.lost:
        return f"{subject} is lost"
    if cause.waited_for:
        return f"{subject} did not respond; the others waited for it"
    if cause.has_left:
        return f"{subject} left while the others still needed it"
    if failure.exception:
        return f"{subject}: {strip_rank(failure.exception)}"[:MAX_TEXT]
    if failure.reason:
        return f"{subject}: {failure.reason}"
    return f"{subject if failure.rank is not None else f'torchrun on {subject}'}, {render_ending(failure)}"


def lost_part(
    node: str, node_rank: NodeRank, reason: str, moment: float, last_seen: Optional[float]
) -> PartRecord:
    """Write the part of a node that cannot do it itself any more; `last_seen` is its last sign of life, if known."""
    return {
        "node": node,
        "node_rank": node_rank,
        "address": "",
        "state": LOST,
        "reason": reason,
        "time": moment,
        "last_seen": last_seen,
        "stopped_at": None,
        "stop_kind": "",
        "failures": [],
    }


def correct_clock(part: PartRecord, offset: float) -> PartRecord:
    """Turn a part's times to a clock from which its own differs by `offset` seconds."""
    stopped_at = None if part["stopped_at"] is None else part["stopped_at"] - offset
    failures = [_correct_failure(failure, offset) for failure in part["failures"]]
    return {**part, "time": part["time"] - offset, "stopped_at": stopped_at, "failures": failures}


def _correct_failure(failure: FailureRecord, offset: float) -> FailureRecord:
    corrected: FailureRecord = {**failure, "time": failure["time"] - offset}
    if "last_at" in failure:
        corrected["last_at"] = failure["last_at"] - offset
    if "tracebacks" in failure:
        corrected["tracebacks"] = [{**block, "at": block["at"] - offset} for block in failure["tracebacks"]]
    return corrected


def make_record(
    spec: Spec,
    parts: List[PartRecord],
    stop: Optional[StopRecord],
    *,
    whole: bool,
    state: EndState = "",
) -> GangRecord:
    """Put parts together; where very many have failed, each keeps fewer of its last lines.

    A whole record has the state of the run: `state` where that is given, else what its parts are judged to be.
    """
    record = limit_size(
        {
            "run": spec["run"],
            "hub": spec.get("hub"),
            "attempt": int(spec.get("attempt", 1)),
            "whole": whole,
            "state": state,
            "stop": stop,
            "parts": parts,
        }
    )
    return {**record, "state": judge_state(record)} if whole and not state else record


def judge_state(record: GangRecord) -> EndState:
    """Return the state of the run that a record describes; the judge is loaded only for one that did not succeed."""
    if all(part["state"] == SUCCEEDED and "alone" not in part for part in record["parts"]):
        return SUCCEEDED
    from ...protocol.end_record import (
        judge_end,  # noqa: PLC0415, RUF100 - see above
        parse_record,  # noqa: PLC0415, RUF100 - see above
    )

    parsed = parse_record(Untrusted(record))
    judged = judge_end(parsed).state if parsed is not None else ""
    return next((state for state in FINAL if state == judged), "")
