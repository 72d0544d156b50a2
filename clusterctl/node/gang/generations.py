"""Which checkpoints the nodes of a run have, as the hub knows it, and what follows: orders to keepers, and the choice.

A generation goes this way; `messages/checkpoints.py` has the words. Nothing here sends, waits or reads a file.

| from | to | when |
|---|---|---|
| | collecting | a node has seen it; one that comes meanwhile waits, and takes the place of one that waits already |
| collecting | copying | all node ranks have reported their parts: it is sealed, and the next of the ring take them |
| collecting | skipped | a node could not read its part, there are no files, or the attempt ended |
| collecting, copying | safe | every part has its copies, or all nodes see the same files |
| copying, safe | lost | no node that is left has one of the parts |
| any | skipped | files have come from a node that had reported none: its seal is void, and it is collected again |

What a node marks again has changed since: it is collected again, and the seal before it serves until this is safe.

Only what is sealed is ever restored, the newest first, by the number of its seal. A hub that came later knows the seals
that the nodes report: what its own node has, or two others, counts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ...protocol.messages.checkpoints import (
    MAX_SEALS,
    MAX_SOURCES,
    NOT_RESTORED,
    Address,
    Held,
    KeeperOrder,
    KeeperReport,
    Part,
    PartSources,
    Restore,
    Seal,
)
from ...protocol.ranks import NodeRank, Slot
from .generation import Generation, Key, is_component, is_digest, is_sound

if TYPE_CHECKING:
    from ...protocol.messages.files import CheckpointState, JournalFacts

NO_FILES = "it has no files"
ATTEMPT_ENDED = "the attempt ended before every node had read its part"
LATE_FILES = "files of a node came after the others were read; it is read again"
REPLACED = "a newer one came while another was being copied"
SAME_FILES = "all nodes see the same files, nothing is copied"
NOTHING_LEFT = "no checkpoint is left"
MAX_RETRIES = 5


class Ledger:
    """The generations of a run; what is to be sent collects in `orders`, what people should know in `events`."""

    def __init__(self, copies: int, keep: int, needs: str = "all") -> None:
        self._copies, self._keep, self._needs = copies, keep, needs  # copies: 0 for every node
        self.orders: List[Tuple[Optional[Slot], KeeperOrder]] = []  # None: to all
        self.events: List[JournalFacts] = []
        self.leads = False  # this node is the hub
        self.seals = 0  # the number of the newest one that was made here or is known
        self._attempt = 0
        self._node_ranks: Mapping[Slot, NodeRank] = {}
        self._ring: Sequence[Slot] = ()
        self._generations: List[Generation] = []
        self._current: Optional[Generation] = None
        self._waiting: Optional[Generation] = None
        self._addresses: Dict[Slot, Address] = {}
        self._kept: Dict[Slot, Tuple[Held, ...]] = {}
        self._has_noted_shared = False
        self._rejecting: Set[Slot] = set()  # that have found no files of one generation
        self._chosen: Optional[Generation] = None  # what the next attempt restores

    @property
    def states(self) -> List[CheckpointState]:
        """Describe the newest generations, the newest last; what was skipped hides none that may be restored."""
        skipped = [one for one in self._generations if one.state == "skipped"]
        hidden = skipped[: max(0, len(self._generations) - MAX_SEALS)]
        return [one.describe(hub=self.leads) for one in self._generations if one not in hidden][-MAX_SEALS:]

    @property
    def _sealed(self) -> List[Generation]:
        """Return what is sealed, the newest first."""
        sealed = [(one.seal.number, one) for one in self._generations if one.seal is not None]
        return [one for _, one in sorted(sealed, key=lambda entry: entry[0], reverse=True)]

    def _find(self, name: str, attempt: int) -> Optional[Generation]:
        """Return what was added last of a name and attempt."""
        return next((one for one in reversed(self._generations) if one.key == (name, attempt)), None)

    def set_address(self, slot: Slot, address: str, port: int) -> None:
        """Take where a node gives its parts."""
        if address and port:
            self._addresses[slot] = Address(address=address, port=port)

    # an attempt

    def begin(self, attempt: int, node_ranks: Mapping[Slot, NodeRank], idle: Iterable[Slot]) -> None:
        """Begin an attempt of these nodes; the others that are here may take copies too."""
        for unfinished in (self._current, self._waiting):
            if unfinished is not None and unfinished.state == "collecting":
                self._skip(unfinished, ATTEMPT_ENDED)
        self._current = self._waiting = None
        self._attempt, self._node_ranks = attempt, dict(node_ranks)
        self._ring = [*sorted(node_ranks, key=node_ranks.__getitem__), *sorted(idle)]
        self._kept.clear()
        self._add_restored()
        newest = next((one for one in self._sealed if one.state in ("copying", "safe")), None)
        for generation in self._sealed:
            generation.taking.clear()
        if newest is not None:  # a lost node has taken copies with it
            newest.refused.clear()
            newest.retries = 0
            self._copy(newest)

    def _add_restored(self) -> None:
        """Record who has restored what was chosen: its own part is as good as one that a node has written."""
        if self._chosen is not None:
            for part in self._chosen.filled_parts:
                ranks = self._node_ranks.items()
                self._chosen.add_holders(
                    part.node_rank,
                    {slot for slot, rank in ranks if rank == part.node_rank},
                    {slot for slot, _ in ranks} if self._needs == "all" else set(),
                )
            self._chosen = None

    def conclude(self, attempt: int, node_ranks: Mapping[Slot, NodeRank]) -> None:
        """Take whose reports follow at the end of an attempt, which another hub may have begun."""
        if attempt != self._attempt:
            self._attempt, self._node_ranks = attempt, dict(node_ranks)

    def on_order(self, order: KeeperOrder) -> None:
        """Take what another node, which is the hub, has its keepers do."""
        generation = self._find(order.name, order.attempt)
        if order.do == "seal" and order.seal is not None and is_sound(order.seal):
            self._add_sealed(order.seal)
        elif order.do == "safe" and generation is not None:
            generation.promised = 0 if order.lost else self._copies or generation.nodes
            generation.state = "lost" if order.lost else "safe"
            self._forget_old()
        elif order.do == "void":
            for voided in [one for one in self._sealed if one.seal == order.seal]:
                voided.is_rejected, voided.state, voided.note = True, "skipped", LATE_FILES

    def _add_sealed(self, seal: Seal) -> None:
        """Add a generation that another node has sealed."""
        generation = Generation(seal.name, seal.attempt, seal.nodes)
        generation.seal, generation.sealed_at, generation.state = seal, time.time(), "copying"
        generation.parts = {} if seal.shared else {part.node_rank: part for part in seal.parts}
        self._add(generation)
        self.seals = max(self.seals, seal.number)

    def on_report(self, slot: Slot, report: KeeperReport) -> None:
        """Take what a node reports while an attempt runs or ends."""
        handlers = {
            "marked": self._on_marked,
            "part": self._on_part,
            "late": self._on_late,
            "held": self._on_held,
            "kept": self._on_kept,
        }
        handler = handlers.get(report.event)
        if handler is not None:
            handler(slot, report)

    def _on_marked(self, slot: Slot, report: KeeperReport) -> None:
        key = (report.name, report.attempt)
        rank = self._node_ranks.get(slot)
        if rank is None or report.attempt != self._attempt or not is_component(report.name):
            return
        if self._waiting is not None and self._waiting.key == key:
            return
        known = self._find(*key)
        if known is not None and not known.is_changed_by(rank):
            if known.state != "collecting":  # its keeper waits for none that is sealed, or skipped, already
                self.orders.append((slot, KeeperOrder(do="skip", attempt=key[1], name=key[0])))
            return
        found = Generation(*key, len(self._node_ranks), report.identity, rank)
        if self._current is None:
            self._collect(found)
            return
        if self._waiting is not None:
            if self._find(*self._waiting.key) is None:
                self._add(self._waiting)
            self._skip(self._waiting, REPLACED)
        self._waiting = found

    def _add(self, generation: Generation) -> None:
        """Add one; what was not sealed of the same name is replaced, and what serves for nothing goes if it is much."""
        others = [one for one in self._generations if one.key != generation.key or one.seal is not None]
        ended = [one for one in others if one is not self._current and one.state != "safe"]
        ended.sort(key=lambda one: one.seal is not None)
        surplus = ended[: max(0, len(others) + 1 - 2 * MAX_SEALS)]
        self._generations = [*(one for one in others if one not in surplus), generation]

    def _collect(self, generation: Generation) -> None:
        self._current = generation
        self._add(generation)
        name, attempt = generation.key
        order = KeeperOrder(
            do="collect",
            attempt=attempt,
            name=name,
            identity=generation.identity,
            node_rank=generation.first,
        )
        self.orders += [(slot, order) for slot in self._node_ranks]

    def _finish_current(self) -> None:
        following, self._current, self._waiting = self._waiting, None, None
        if following is not None:
            self._collect(following)

    def _skip(self, generation: Generation, note: str) -> None:
        generation.state, generation.note = "skipped", note
        name, attempt = generation.key
        self.orders.append((None, KeeperOrder(do="skip", attempt=attempt, name=name)))
        self._journal(generation)

    def _on_part(self, slot: Slot, report: KeeperReport) -> None:
        current, rank = self._current, self._node_ranks.get(slot)
        if current is None or rank is None or current.key != (report.name, report.attempt) or current.seal:
            return
        part = report.part
        if report.why or (part is not None and part.files and not is_digest(part.manifest)):
            self._skip(current, report.why or "a node has sent no valid part of it")
            self._finish_current()
            return
        if part is not None:
            current.parts[rank] = part.replace(node_rank=rank)
            current.holders[rank] = {slot}
            current.is_tracked = True
        elif report.identity == current.identity and rank != current.first:
            current.sharing.add(rank)
        if current.is_known_whole:
            self._seal(current)

    def _on_late(self, slot: Slot, report: KeeperReport) -> None:
        """Void what was made of a node without files that has some; once they have settled it marks it."""
        key, rank = (report.name, report.attempt), self._node_ranks.get(slot)
        for late in [one for one in self._generations if one.key == key and one.lacks_files_of(rank)]:
            late.is_rejected = True
            if late.seal is not None:
                void = KeeperOrder(do="void", attempt=key[1], name=key[0], seal=late.seal)
                self.orders.append((None, void))
            self._skip(late, LATE_FILES)
            if late is self._current:
                self._finish_current()

    def _seal(self, generation: Generation) -> None:
        ranks = map(NodeRank, range(generation.nodes))
        parts = tuple(generation.parts.get(rank) or Part(node_rank=rank) for rank in ranks)
        shared = generation.is_shared
        if not shared and not any(part.files for part in parts):
            self._skip(generation, NO_FILES)
            self._finish_current()
            return
        self.seals += 1
        name, attempt = generation.key
        generation.seal = Seal(
            name=name,
            attempt=attempt,
            number=self.seals,
            nodes=generation.nodes,
            parts=parts,
            shared=shared,
        )
        generation.sealed_at, generation.state = time.time(), "copying"
        self.orders.append((None, KeeperOrder(do="seal", attempt=attempt, name=name, seal=generation.seal)))
        if shared:
            generation.holders = {rank: {slot} for slot, rank in self._node_ranks.items()}
            generation.is_tracked = True
            generation.note = "" if self._has_noted_shared else SAME_FILES
            self._has_noted_shared = True
            self._secure(generation)
        else:
            self._copy(generation)

    # copies

    def _copy(self, generation: Generation) -> None:
        """Ask for the copies that a sealed generation lacks; it is safe when it lacks none."""
        if generation.seal is None or generation.seal.shared:
            return
        wanted = min(self._copies or len(self._ring), len(self._ring))
        missing = False
        for part in generation.filled_parts:
            holders = generation.holders.setdefault(part.node_rank, set())
            sources = generation.having(part.node_rank)
            receivers = {slot for rank, slot in generation.taking if rank == part.node_rank}
            most = min(wanted, 2 * len(sources))  # each node that has it sends it to one at a time
            for slot in self._receivers(generation, part.node_rank):
                if len(holders | receivers) < most and slot not in holders | receivers:
                    receivers.add(slot)
                    self._order_copy(generation, part, slot)
            missing = missing or len(holders) < wanted
        if not missing and generation.state == "copying":
            generation.note = ""
            self._secure(generation)
        elif missing and not generation.taking:
            if generation is self._current:
                self._journal(generation)  # no node is left that could take one
                self._finish_current()
            self._retry(generation)

    def _retry(self, generation: Generation) -> None:
        """Ask the nodes again that could not take a copy: the disk may have room now, the other node be less busy."""
        if generation.refused and generation.retries < MAX_RETRIES and self._sealed[:1] == [generation]:
            generation.retries += 1
            generation.refused.clear()
            self._copy(generation)

    def _receivers(self, generation: Generation, rank: NodeRank) -> List[Slot]:
        """Return the ring from the node behind the one that wrote a part on."""
        ring = list(self._ring)
        owner = next((slot for slot, its_rank in self._node_ranks.items() if its_rank == rank), None)
        start = ring.index(owner) + 1 if owner in ring else 0
        return [slot for slot in ring[start:] + ring[:start] if (rank, slot) not in generation.refused]

    def _order_copy(self, generation: Generation, part: Part, slot: Slot) -> None:
        name, attempt = generation.key
        giving = list(generation.taking.values())
        holders = sorted(self._known(generation.having(part.node_rank)), key=giving.count)
        generation.taking[part.node_rank, slot] = holders[0] if holders else None
        sources = tuple(self._addresses[holder] for holder in holders[:MAX_SOURCES])
        order = KeeperOrder(do="take", attempt=attempt, name=name, part=part, sources=sources)
        self.orders.append((slot, order.replace(serial=generation.retries)))

    def _known(self, holders: Set[Slot]) -> List[Slot]:
        return [slot for slot in sorted(holders) if slot in self._addresses]

    def _sources(self, holders: Set[Slot], first: Slot) -> Tuple[Address, ...]:
        """Return where a part is; different nodes begin with different sources."""
        known = self._known(holders)
        start = first % len(known) if known else 0
        return tuple(self._addresses[slot] for slot in known[start:] + known[:start])[:MAX_SOURCES]

    def _on_held(self, slot: Slot, report: KeeperReport) -> None:
        generation = self._find(report.name, report.attempt)
        asked = (NodeRank(report.node_rank), slot)
        if generation is None or asked not in generation.taking:
            return
        del generation.taking[asked]
        if report.why:
            generation.refused.add(asked)
            generation.note = report.why
        else:
            generation.add_holders(asked[0], {slot}, set())
        self._copy(generation)

    def _secure(self, generation: Generation) -> None:
        """Report that a generation has its copies."""
        name, attempt = generation.key
        generation.state = "safe"
        self.orders.append((None, KeeperOrder(do="safe", attempt=attempt, name=name)))
        self._journal(generation)
        self._forget_old()
        if generation is self._current:
            self._finish_current()

    def _forget_old(self) -> None:
        """Forget what is older than the generations that the job keeps, or was written again since."""
        newest: Set[Key] = set()
        for one in self._sealed:
            if one.key in newest:
                self._generations.remove(one)
            elif one.state == "safe":
                newest.add(one.key)
        safe = [place for place, one in enumerate(self._sealed) if one.state == "safe"]
        for old in self._sealed[safe[self._keep - 1] + 1 :] if len(safe) > self._keep else ():
            self._generations.remove(old)

    # nodes that are lost, and what is left

    def on_lost(self, slot: Slot) -> None:
        """A node is gone with all that it had: journal which generation that costs, and which one is left."""
        self._ring = [other for other in self._ring if other != slot]
        self._kept.pop(slot, None)
        for generation in self._sealed:
            generation.taking = {
                asked: source for asked, source in generation.taking.items() if asked[1] != slot
            }
            if generation.is_tracked:
                generation.set_holder(slot, ())
        self._find_lost([one for one in self._sealed if one.is_tracked], self._holders)
        if self._current is not None and self._current.state == "copying":
            self._copy(self._current)

    @property
    def _holders(self) -> Set[Slot]:
        parts = [(one, part.node_rank) for one in self._sealed for part in one.filled_parts]
        return {slot for one, rank in parts for slot in one.having(rank)}

    def _find_lost(self, among: Sequence[Generation], present: Set[Slot]) -> None:
        """Journal the generations, of these, of which these nodes lack a part."""
        lost = [one for one in among if not one.is_rejected and one.state != "lost"]
        lost = [one for one in lost if not one.can_be_restored(present)]
        left = next((one for one in among if one.can_be_restored(present)), None)
        for generation in lost:
            generation.state = "lost"
            generation.note = f"{left.key[0]} is left" if left is not None else NOTHING_LEFT
            name, attempt = generation.key
            if generation is self._find(name, attempt):
                self.orders.append((None, KeeperOrder(do="safe", attempt=attempt, name=name, lost=True)))
            self._journal(generation)
            if generation is self._current:
                self._finish_current()

    def _on_kept(self, slot: Slot, report: KeeperReport) -> None:
        self._kept[slot] = report.held

    def choose(self, present: Set[Slot], own: Slot) -> Optional[Restore]:
        """Choose the newest generation that these nodes have whole; None: from scratch."""
        self._chosen = None
        self._adopt(present, own)
        self._find_lost(self._sealed, present)
        for generation in self._sealed:
            seal = generation.seal
            if seal is not None and generation.can_be_restored(present):
                self._chosen = generation
                generation.state = "copying" if generation.state == "lost" else generation.state
                parts = [
                    PartSources(
                        node_rank=part.node_rank,
                        sources=self._sources(
                            generation.having(part.node_rank) & present, Slot(part.node_rank)
                        ),
                    )
                    for part in generation.filled_parts
                    if not seal.shared
                ]
                return Restore(seal=seal, parts=tuple(parts))
        return None

    def size_of_unknown(self, present: Set[Slot]) -> int:
        """Return the bytes of the largest part of the newest sealed, if it is not known whether these nodes have it."""
        usable = (one for one in self._sealed if one.state in ("copying", "safe") and not one.is_rejected)
        newest = next(usable, None)
        if newest is None or newest.can_be_restored(present):
            return 0
        return max((1, *(part.bytes for part in newest.filled_parts)))

    def reject(self, slot: Slot, report: KeeperReport, seal: Seal) -> bool:
        """Choose a generation no more of which a node has found no files; returns whether it was that one.

        What is wrong with every generation that one node restores is that node.
        """
        generation = next((one for one in self._sealed if one.seal == seal), None)
        if report.event != "restored" or report.code != NOT_RESTORED or generation is None:
            return False
        if generation.is_rejected or slot in self._rejecting:
            return generation.is_rejected
        self._rejecting.add(slot)
        generation.is_rejected = True
        generation.state, generation.note = "lost", report.why
        self._journal(generation)
        return True

    def _adopt(self, present: Set[Slot], own: Slot) -> None:
        """Take what the nodes have reported to have: of seals that are not known here two reports count, or our own."""
        found: Dict[Seal, Dict[Slot, Sequence[NodeRank]]] = {}
        for slot in sorted(present & set(self._kept)):
            for held in self._kept[slot]:
                if is_sound(held.seal):
                    found.setdefault(held.seal, {})[slot] = held.parts
        for seal, reports in sorted(found.items(), key=lambda entry: entry[0].number):
            known = self._find(seal.name, seal.attempt)
            is_new = known is None or (known.seal is not None and seal.number > known.seal.number)
            if is_new and (own in reports or len(reports) > 1):
                self._add_sealed(seal)
        for generation in self._sealed:
            generation.is_tracked = True
            for slot in present & set(self._kept):
                if generation.seal is not None:
                    generation.set_holder(slot, found.get(generation.seal, {}).get(slot, ()))

    def _journal(self, generation: Generation) -> None:
        about = generation.describe(hub=self.leads)
        self.events.append(
            {
                "name": about["name"],
                "state": about["state"],
                "nodes": about["nodes"],
                "of": about["of"],
                "copies": about["copies"],
                "bytes": about["bytes"],
                "note": about["note"],
            }
        )
