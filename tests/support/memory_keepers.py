"""Keepers in memory: they answer orders as the real ones do, and hold the parts of checkpoints as plain values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from clusterctl.protocol.messages.checkpoints import Held, KeeperOrder, KeeperReport, Part, Seal
from clusterctl.protocol.ranks import NodeRank

Key = tuple[str, int]
PORT = 50000


def digest_of(name: str, attempt: int, rank: int) -> str:
    """Name the content that a node rank writes."""
    return hashlib.sha256(f"{name} {attempt} {rank}".encode()).hexdigest()


class MemoryKeeper:
    """What one node keeps; `send` takes its reports, `peers` are all keepers by slot."""

    def __init__(
        self, slot: int, peers: dict[int, MemoryKeeper], send: Callable[[KeeperReport], None]
    ) -> None:
        self.slot, self.send, self.peers = slot, send, peers
        self.attempt, self.rank = 0, -1
        self.written: set[Key] = set()
        self.parts: set[tuple[str, int, int]] = set()  # name, attempt, node rank of what is whole here
        self.seals: dict[Key, Seal] = {}
        self.full = False  # its disk
        self.broken = ""  # why it cannot read what its rank writes
        self.shared = False  # whether its rank writes to the disk of all
        self.silent: set[str] = set()  # orders that it does not answer
        self.orders: list[KeeperOrder] = []
        self.resumed: Key | None = None
        peers[slot] = self

    def write(self, name: str) -> None:
        """Write a checkpoint, as the rank does."""
        self.written.add((name, self.attempt))

    def mark(self, name: str) -> None:
        """See that one is complete."""
        self.report("marked", name, identity=self.identity(name))

    def identity(self, name: str) -> str:
        """Return that of the files."""
        return f"{name} of all" if self.shared else f"{name} {self.slot}"

    def report(self, event: str, name: str, **facts: Any) -> None:
        """Send a report."""
        self.send(
            KeeperReport(event=event, attempt=max(1, self.attempt), name=name, port=PORT + self.slot, **facts)
        )

    def on_order(self, order: KeeperOrder) -> None:
        """Do what is ordered, at once."""
        self.orders.append(order)
        handler = getattr(self, f"on_{order.do}", None)
        if handler is not None and order.do not in self.silent:
            handler(order)

    def on_begin(self, order: KeeperOrder) -> None:
        """Count from now on."""
        self.attempt, self.rank = order.attempt, order.node_rank

    def on_collect(self, order: KeeperOrder) -> None:
        """Hash the part."""
        key = (order.name, order.attempt)
        identity = self.identity(order.name)
        if self.broken:
            self.report("part", order.name, why=self.broken)
        elif identity == order.identity and self.rank != order.node_rank:
            self.report("part", order.name, identity=identity)
        elif key not in self.written:
            self.report("part", order.name, part=Part(node_rank=NodeRank(self.rank)))
        else:
            self.parts.add((*key, self.rank))
            digest = digest_of(*key, self.rank)
            part = Part(node_rank=NodeRank(self.rank), manifest=digest, size=80, files=2, bytes=100)
            self.report("part", order.name, identity=identity, part=part)

    def on_seal(self, order: KeeperOrder) -> None:
        """Write it down."""
        assert order.seal is not None
        self.seals[order.name, order.attempt] = order.seal

    def on_safe(self, order: KeeperOrder) -> None:
        """Forget a seal that is void."""
        if order.lost and order.seal is not None:
            del self.seals[order.name, order.attempt]

    def on_take(self, order: KeeperOrder) -> None:
        """Take a part from the first source that has it."""
        assert order.part is not None
        wanted = (order.name, order.attempt, int(order.part.node_rank))
        why = "No space left on device" if self.full else ""
        if not why and not any(self.has(source.port - PORT, wanted) for source in order.sources):
            why = "no node that has it answers"
        if not why:
            self.parts.add(wanted)
        self.send(
            KeeperReport(
                event="held",
                attempt=order.attempt,
                name=order.name,
                node_rank=wanted[2],
                why=why,
                port=PORT + self.slot,
            )
        )

    def has(self, slot: int, wanted: tuple[str, int, int]) -> bool:
        """Whether a node that lives has a part."""
        return slot in self.peers and wanted in self.peers[slot].parts

    def on_conclude(self, order: KeeperOrder) -> None:
        """Report what is here."""
        held = []
        for (name, attempt), seal in self.seals.items():
            ranks = [part.node_rank for part in seal.parts]
            if not seal.shared:
                ranks = [rank for rank in ranks if (name, attempt, rank) in self.parts]
            held.append(Held(seal=seal, parts=tuple(ranks)))
        self.report("kept", "", held=tuple(held), serial=order.serial)

    def on_restore(self, order: KeeperOrder) -> None:
        """Take every part that is not here."""
        restore = order.restore
        assert restore is not None
        seal = restore.seal
        for part in restore.parts:
            wanted = (seal.name, seal.attempt, int(part.node_rank))
            assert any(self.has(source.port - PORT, wanted) for source in part.sources), wanted
            self.parts.add(wanted)
        self.seals[seal.name, seal.attempt] = seal
        self.resumed = (seal.name, seal.attempt)
