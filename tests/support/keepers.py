"""Nodes of a run that keep checkpoints for each other: real keepers, and a test in the place of agents and hub."""

from __future__ import annotations

import json
import os
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import HANG, wait_until

from clusterctl.node.gang.generations import Ledger
from clusterctl.protocol.messages import record
from clusterctl.protocol.messages.checkpoints import (
    Address,
    Held,
    KeeperOrder,
    KeeperReport,
    KeeperSettings,
    Part,
    PartSources,
    Restore,
    Seal,
)
from clusterctl.protocol.ranks import NodeRank, Slot

TOKEN = "ab" * 32
RUN = "train-20260101-000000-abcd"
START = "from clusterctl.node.main import main; main()"


@contextmanager
def small_disk(root: Path, number: int, size: str) -> Iterator[Path]:
    """Mount a disk of so many bytes as the work directory of a node; `size` is as for tmpfs."""
    if os.geteuid() != 0:
        pytest.skip("mounts a small file system")
    work = root / f"gpu{number}" / "work"
    work.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(work)], check=True)
    try:
        yield work
    finally:
        subprocess.run(["umount", "-l", str(work)], check=True)


class NodeKeeper:
    """One node: `folder` is where its script writes."""

    def __init__(
        self, root: Path, number: int, *, run: str = RUN, folder: Path | None = None, **settings: Any
    ):
        self.number, self.node = NodeRank(number), f"gpu{number}"
        self.work = root / self.node / "work"
        self.rundir = self.work / "runs" / run / f"{number}-{self.node}"
        self.mirror = self.work / "mirror" / run / f"{number}-{self.node}"
        self.folder = folder or root / self.node / "out"
        for path in (self.rundir, self.folder):
            path.mkdir(parents=True, exist_ok=True)
        self.work.chmod(0o700)
        own, other = socket.socketpair()
        command = [sys.executable, "-c", START, "keeper", str(self.rundir), str(other.fileno())]
        self.process = subprocess.Popen(command, pass_fds=[other.fileno()])
        other.close()
        self._channel = own
        self._reports: queue.Queue[KeeperReport | None] = queue.Queue()
        self.seen: list[KeeperReport] = []
        values: dict[str, Any] = {
            "path": f"{self.folder}/step-*",
            "address": "127.0.0.1",
            "token": TOKEN,
            "look": 0.05,
            **settings,
        }
        self.send(KeeperSettings(**values))
        threading.Thread(target=self._read, daemon=True).start()
        self.port = self.wait("listening").port

    def _read(self) -> None:
        with suppress(OSError), self._channel.makefile("rb") as lines:
            for line in lines:
                report = record.read(KeeperReport, json.loads(line))
                assert report is not None
                self._reports.put(report)
        self._reports.put(None)

    def poll(self) -> list[KeeperReport]:
        """Return the reports that have come meanwhile; none more once it has ended."""
        found: list[KeeperReport] = []
        with suppress(queue.Empty):
            while (report := self._reports.get_nowait()) is not None:
                found.append(report)
        self.seen += found
        return found

    def send(self, value: record.Record) -> None:
        """Send a record as the agent does."""
        self._channel.sendall(json.dumps(record.to_json(value)).encode() + b"\n")

    def order(self, do: str, **values: Any) -> None:
        """Send an order."""
        self.send(KeeperOrder(do=do, **values))

    def wait(self, event: str, fits: Callable[[KeeperReport], bool] = lambda _: True) -> KeeperReport:
        """Wait for a report; others that come before it are in `seen`."""
        while True:
            report = self._reports.get(timeout=HANG)
            assert report is not None, f"the keeper of {self.node} ended before {event}"
            self.seen.append(report)
            if report.event == event and fits(report):
                return report

    def idle(self) -> bool:
        """Return whether all reports that came were waited for."""
        return self._reports.empty()

    def write(self, name: str, **files: bytes) -> Path:
        """Write a checkpoint as a script does, into a directory."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
        return folder

    def read(self, name: str) -> dict[str, bytes]:
        """Return the files of a checkpoint in its place."""
        folder = self.folder / name
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }

    def begin(self, attempt: int = 1, node_rank: int | None = None) -> None:
        """Begin an attempt, and wait until what is written counts."""
        self.order("begin", attempt=attempt, node_rank=self.number if node_rank is None else node_rank)
        self.wait("begun", lambda report: report.attempt == attempt)

    def conclude(self, attempt: int = 1, serial: int = 1) -> KeeperReport:
        """End an attempt, and return what is here."""
        self.order("pause")
        self.order("conclude", attempt=attempt, serial=serial)
        return self.wait("kept", lambda report: report.serial == serial)

    def restore(self, restore: Restore, attempt: int = 2, node_rank: int | None = None) -> KeeperReport:
        """Put a generation in its place."""
        rank = self.number if node_rank is None else node_rank
        self.order("restore", attempt=attempt, restore=restore, node_rank=rank)
        return self.wait("restored")

    @property
    def address(self) -> Address:
        """Return where it gives parts."""
        return Address(address="127.0.0.1", port=self.port)

    def kill(self) -> None:
        """Kill it, as a node that is lost."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """End it as an agent does."""
        self._channel.shutdown(socket.SHUT_RDWR)
        self.process.wait(HANG)
        self._channel.close()


class Ring:
    """A hub as far as checkpoints go."""

    def __init__(self, *nodes: NodeKeeper) -> None:
        self.nodes = nodes
        self.number = 0

    def begin(self, attempt: int = 1) -> None:
        """Begin an attempt on all nodes."""
        for node in self.nodes:
            node.begin(attempt)

    def collect(self, name: str, attempt: int = 1, *, first: int = 0, identity: str = "?") -> list[Part]:
        """Return the parts of all nodes."""
        for node in self.nodes:
            node.order("collect", attempt=attempt, name=name, identity=identity, node_rank=first)
        reports = [node.wait("part") for node in self.nodes]
        assert [report.why for report in reports] == [""] * len(reports)
        return [part for report in reports if (part := report.part) is not None]

    def seal(self, name: str, attempt: int = 1) -> Seal:
        """Collect and seal a generation on all nodes."""
        parts = self.collect(name, attempt)
        self.number += 1
        seal = Seal(name=name, attempt=attempt, number=self.number, nodes=len(self.nodes), parts=tuple(parts))
        for node in self.nodes:
            node.order("seal", seal=seal)
        return seal

    def order_take(self, seal: Seal, node_rank: int, taker: int) -> None:
        """Order a node to take the part of another one."""
        self.nodes[taker].order(
            "take",
            attempt=seal.attempt,
            name=seal.name,
            part=seal.parts[node_rank],
            sources=(self.nodes[node_rank].address,),
        )

    def mirror(self, seal: Seal) -> None:
        """Have each part taken by the next node, and say that it is safe."""
        count = len(self.nodes)
        for rank in range(count):
            self.order_take(seal, rank, (rank + 1) % count)
        for rank in range(count):
            held = self.nodes[(rank + 1) % count].wait("held")
            assert (held.node_rank, held.why) == (rank, "")
        for node in self.nodes:
            node.order("safe", name=seal.name, attempt=seal.attempt)

    def save(self, name: str, attempt: int = 1, **files: bytes) -> Seal:
        """Write a checkpoint, of which each node has a part, and make it safe."""
        for node in self.nodes:
            node.write(name, **{f"{node.node}.pt": name.encode() + node.node.encode()}, **files)
        seal = self.seal(name, attempt)
        self.mirror(seal)
        return seal


class LedgerRing:
    """Keepers, and the ledger of a hub, which orders and chooses; spares come after the node ranks."""

    def __init__(self, *nodes: NodeKeeper, ranks: int, copies: int = 2, keep: int = 2) -> None:
        self.nodes = {Slot(node.number): node for node in nodes}
        self.ledger, self.serial = Ledger(copies, keep), 0
        self.seen: list[tuple[str, str, str]] = []
        self.begin(1, dict(list(zip(self.nodes, map(NodeRank, range(ranks)), strict=False))))

    def begin(self, attempt: int, ranks: dict[Slot, NodeRank]) -> None:
        """Begin an attempt."""
        for slot, node in self.nodes.items():
            node.send(KeeperOrder(do="begin", attempt=attempt, node_rank=ranks.get(slot, -1)))
        for slot in ranks:
            self.nodes[slot].wait("begun", lambda report: report.attempt == attempt)
        self.ranks = ranks
        for slot, node in self.nodes.items():
            self.ledger.set_address(slot, "127.0.0.1", node.port)
        self.ledger.begin(attempt, ranks, self.nodes.keys() - ranks.keys())

    def save(self, name: str, **files: bytes) -> None:
        """Write a checkpoint on all nodes that have a rank, with a file of each one's own."""
        for slot in self.ranks:
            node = self.nodes[slot]
            node.write(name, **{f"{node.node}.pt": f"{name} of {node.node}".encode()}, **files)

    def hear(self, slot: Slot) -> list[KeeperReport]:
        """Hand the ledger what a node has reported, and return it."""
        reports = self.nodes[slot].poll()
        for report in reports:
            self.ledger.on_report(slot, report)
        return reports

    def has_concluded(self, slot: Slot) -> bool:
        """Return whether a node has just reported what it has."""
        return ("kept", self.serial) in [(report.event, report.serial) for report in self.hear(slot)]

    def serve(self, condition: Callable[[], object], what: str) -> None:
        """Carry out orders, and hand over reports, until something holds."""

        def turn() -> object:
            orders, self.ledger.orders = self.ledger.orders, []
            for slot, order in orders:
                for receiver in self.nodes if slot is None else {slot} & self.nodes.keys():
                    self.nodes[receiver].send(order)
            for slot in self.nodes:
                self.hear(slot)
            for event in self.ledger.events:
                self.seen.append((event["name"], str(event["state"]), event["note"]))
            self.ledger.events.clear()
            return condition()

        wait_until(turn, what)

    def wait_for(self, name: str, state: str = "safe") -> None:
        """Wait until a checkpoint is so far."""
        self.serve(lambda: (name, state) in [seen[:2] for seen in self.seen], f"{name} {state}")

    def lose(self, *slots: int) -> None:
        """Lose nodes, all at once."""
        for slot in slots:
            self.nodes[Slot(slot)].kill()
        for slot in slots:
            del self.nodes[Slot(slot)]
        for slot in slots:
            self.ledger.on_lost(Slot(slot))
        self.serve(lambda: True, "")

    def choose(self, attempt: int) -> Restore | None:
        """End an attempt, and choose what the next one goes on from."""
        self.serial += 1
        for slot, node in self.nodes.items():
            node.order("pause")
            node.order("conclude", attempt=attempt, serial=self.serial)
            wait_until(partial(self.has_concluded, slot), "what a node has")
        chosen = self.ledger.choose(set(self.nodes), min(self.nodes))
        self.serve(lambda: True, "")
        return chosen


def restore_from(seal: Seal, *held: tuple[NodeKeeper, KeeperReport]) -> Restore:
    """Return the order to restore a generation from what nodes have reported."""
    sources = {
        part.node_rank: tuple(
            node.address for node, report in held if part.node_rank in parts_held(report, seal)
        )
        for part in seal.parts
    }
    return Restore(
        seal=seal, parts=tuple(PartSources(node_rank=rank, sources=found) for rank, found in sources.items())
    )


def parts_held(report: KeeperReport, seal: Seal) -> tuple[int, ...]:
    """Return the parts of a generation that a node has reported."""
    return next((held.parts for held in report.held if held.seal == seal), ())


def held_names(report: KeeperReport) -> list[tuple[str, list[int]]]:
    """Return the generations that a node has reported, the newest first, with their parts."""
    return [(held.seal.name, list(held.parts)) for held in report.held if isinstance(held, Held)]


def close_all(nodes: list[NodeKeeper]) -> Iterator[list[NodeKeeper]]:
    """End what a test has started; nothing of it is left."""
    try:
        yield nodes
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.close()
