"""One checkpoint of all nodes as the hub knows it: its parts, its seal, and who has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, List, Optional, Set, Tuple

from ...protocol.messages.checkpoints import Part, Seal
from ...protocol.ranks import NodeRank, Slot

if TYPE_CHECKING:
    from ...protocol.messages.files import CheckpointState, GenerationState

Key = Tuple[str, int]  # name and attempt

HEX = frozenset("0123456789abcdef")


def is_component(name: str) -> bool:
    """Whether a name is one component of a path."""
    return bool(name) and name not in (".", "..") and not {"/", "\0", "\n"} & set(name)


def is_digest(text: str) -> bool:
    """Whether a text is a SHA-256 in hex."""
    return len(text) == 64 and set(text) <= HEX


def is_sound(seal: Seal) -> bool:
    """Whether a hub could have made a seal: a name, and one part for each node rank."""
    ranks = [part.node_rank for part in seal.parts]
    manifests = (is_digest(part.manifest) for part in seal.parts if part.files)
    return is_component(seal.name) and ranks == list(range(seal.nodes)) and all(manifests)


class Generation:
    """One checkpoint on all nodes of its attempt."""

    def __init__(self, name: str, attempt: int, nodes: int, identity: str = "", first: int = 0) -> None:
        self.key: Key = (name, attempt)
        self.nodes = nodes
        self.identity, self.first = identity, NodeRank(first)  # of the files where it was seen first
        self.marked = {self.first}  # who has reported it; who does so again has changed it
        self.parts: Dict[NodeRank, Part] = {}
        self.sharing: Set[NodeRank] = set()  # that see the files of the first one
        self.seal: Optional[Seal] = None
        self.sealed_at = 0.0
        self.holders: Dict[NodeRank, Set[Slot]] = {}
        self.restored: Dict[NodeRank, Set[Slot]] = {}  # that have it besides, in its place only
        self.taking: Dict[Tuple[NodeRank, Slot], Optional[Slot]] = {}  # from which node first
        self.refused: Set[Tuple[NodeRank, Slot]] = set()
        # whether it is known who has the parts: on a peer, and a hub that came later, it is not
        self.is_tracked = False
        # whether it is void, or could not be restored although nodes reported to have it
        self.is_rejected = False
        self.retries = 0  # of copies that were refused
        self.promised = 0  # copies that a hub has reported to a peer
        self.state: GenerationState = "collecting"
        self.note = ""

    @property
    def is_known_whole(self) -> bool:
        """Whether every node rank has answered; where all see the same files, the first one need not have."""
        ranks = set(map(NodeRank, range(self.nodes)))
        return self.is_shared or ranks == set(self.parts) | self.sharing

    def is_changed_by(self, rank: NodeRank) -> bool:
        """Take that a node has marked it: whether this was not the first time, or it had no files before."""
        is_changed = rank in self.marked or self.lacks_files_of(rank)
        self.marked.add(rank)
        return is_changed

    def lacks_files_of(self, rank: Optional[NodeRank]) -> bool:
        """Return whether a node has reported a part without any file."""
        part = self.parts.get(rank) if rank is not None else None
        return part is not None and not part.files

    @property
    def is_shared(self) -> bool:
        """Whether all nodes see the same files."""
        return self.nodes > 1 and len(self.sharing) == self.nodes - 1

    @property
    def filled_parts(self) -> List[Part]:
        """Return the parts that have files; of a seal whose files all nodes see, any part."""
        parts = self.seal.parts if self.seal is not None else ()
        return [part for part in parts if part.files or (self.seal is not None and self.seal.shared)]

    @property
    def copies(self) -> int:
        """Count the copies of the part that has the fewest."""
        if not self.is_tracked:
            return self.promised
        ranks = [part.node_rank for part in self.filled_parts]
        counts = (max(len(self.holders.get(rank, ())), min(1, len(self.having(rank)))) for rank in ranks)
        return min(counts, default=0)

    def having(self, rank: NodeRank) -> Set[Slot]:
        """Return the nodes that have a part, as a copy or because they have restored it."""
        return self.holders.get(rank, set()) | self.restored.get(rank, set())

    def add_holders(self, rank: NodeRank, holders: Set[Slot], restored: Set[Slot]) -> None:
        """Take who has a part now; what was only restored the script may remove, so that it is no copy."""
        having = self.holders.setdefault(rank, set())
        having |= holders
        self.restored[rank] = (self.restored.get(rank, set()) | restored) - having

    def can_be_restored(self, present: Set[Slot]) -> bool:
        """Whether these nodes have all of it."""
        if self.is_rejected:
            return False
        found = [bool(self.having(part.node_rank) & present) for part in self.filled_parts]
        shared = self.seal is not None and self.seal.shared
        return any(found) if shared else bool(found) and all(found)

    def set_holder(self, slot: Slot, ranks: Iterable[NodeRank]) -> None:
        """Take which parts a node has now."""
        self.is_tracked = True
        held = set(ranks)
        for part in self.filled_parts:
            holders, restored = self.holders.setdefault(part.node_rank, set()), self.restored
            if part.node_rank not in held:
                holders.discard(slot)
                restored.get(part.node_rank, set()).discard(slot)
            elif slot not in restored.get(part.node_rank, ()):
                holders.add(slot)

    def describe(self, *, hub: bool) -> CheckpointState:
        """Render for state.json of the hub, or of another node."""
        parts = self.seal.parts if self.seal is not None else tuple(self.parts.values())
        return {
            "name": self.key[0],
            "attempt": self.key[1],
            "state": self.state,
            "nodes": self.nodes if self.seal is not None else len(set(self.parts) | self.sharing),
            "of": self.nodes,
            "copies": self.copies,
            "files": sum(part.files for part in parts),
            "bytes": sum(part.bytes for part in parts),
            "time": self.sealed_at,
            "shared": self.seal is not None and self.seal.shared,
            "note": self.note,
            "number": self.seal.number if self.seal is not None else 0,
            "hub": hub,
        }
