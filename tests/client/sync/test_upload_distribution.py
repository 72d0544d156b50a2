"""Nodes pass the code on among themselves: real processes on loopback, each with a work directory of its own."""

from __future__ import annotations

import json
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipenodes import PipeSession
from waiting import HANG

from clusterctl.client.sync import distribution
from clusterctl.client.sync.distribution import Distribution, Provider, TransferAddress
from clusterctl.client.sync.scan import ScanResult, scan_source
from clusterctl.client.sync.upload import (
    SyncResult,
    TreeUpload,
    send_tree,
)
from clusterctl.errors import ClusterctlError

SIZE = 3_000_000
HALF = 2 << 20  # bytes that leave here in one frame
LINGER = 0.3  # seconds that a node is dead before the kernel reports it
Deed = Callable[["Nodes", str], None]


@pytest.fixture
def scan(tmp_path: Path) -> ScanResult:
    """A tree with one large and many small files."""
    root = tmp_path / "source"
    (root / "pkg").mkdir(parents=True)
    (root / "weights.bin").write_bytes(secrets.token_bytes(SIZE))
    for number in range(40):
        (root / f"pkg/m{number}.py").write_text(f"x = {number}\n")
    return scan_source(root)


class Watched(PipeSession):
    """A node that something is done to just before it is reported where to take contents."""

    def __init__(self, nodes: Nodes, name: str, place: int) -> None:
        self.nodes, self.name = nodes, name
        give = nodes.passing.offer(name, nodes.scan.manifest.size)
        super().__init__(nodes.folder / name, node=name, rank=place, give=give)

    def send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        """Send a frame."""
        if "source" in header:
            self.nodes.meddle(self.nodes, self.nodes.name_at(header["source"]["port"]))
        super().send(header, body)


class Nodes:
    """Some nodes, and what happened to them."""

    def __init__(self, folder: Path, scan: ScanResult, count: int, via: str = "tree") -> None:
        self.folder, self.scan = folder, scan
        self.names = [f"gpu{place:02}" for place in range(count)]
        self.notices: list[str] = []
        places = {name: TransferAddress("127.0.0.1") for name in self.names}
        self.passing = Distribution(via, places, self.notices.append)  # type: ignore[arg-type]  # one of three words
        self.sessions: dict[str, Watched] = {}
        self.expected, self.taken = list[int](), list[int]()
        self.meddle: Deed = lambda _nodes, _giver: None

    def bring(self) -> dict[str, SyncResult]:
        """Bring the code to all at once."""

        def one(place: int, name: str) -> SyncResult | None:
            self.sessions[name] = Watched(self, name, place)
            try:
                upload = TreeUpload(
                    self.scan,
                    None,
                    self.passing,
                    self.expected.append,
                    lambda _, size: self.taken.append(size),
                )
                return send_tree(self.sessions[name], upload, node=name)
            except (ClusterctlError, BrokenPipeError):
                return None

        with ThreadPoolExecutor(len(self.names)) as pool:
            brought = zip(self.names, pool.map(one, range(len(self.names)), self.names), strict=True)
            return {name: synced for name, synced in brought if synced is not None}

    def name_at(self, port: int) -> str:
        """Say who listens on a port."""
        return next(name for name, one in self.sessions.items() if port in listening(one.process.pid))

    def has_part(self, name: str) -> bool:
        """Return whether a node has received a part of the large file."""
        return any(path.stat().st_size >= HALF for path in (self.folder / name / "store/incoming").glob("*"))

    def middle(self) -> str:
        """Name a node that receives from another, and that a third receives from."""
        giving = {provider.node for provider in self.passing._provider_of.values()}
        return next(name for name in self.passing._provider_of if name in giving)

    def code(self, name: str) -> dict[str, bytes]:
        """Read what a node holds."""
        (root,) = (self.folder / name / "runs").glob("*/*/code")
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def end(self) -> None:
        """Let all go."""
        for one in self.sessions.values():
            with suppress(ProcessLookupError):
                one.process.send_signal(signal.SIGCONT)
            one.close()


def listening(pid: int) -> set[int]:
    """List the ports on which a process listens."""
    inodes = set()
    with suppress(FileNotFoundError):  # it has ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                inodes.add(str(link.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[9] in inodes}


def accepts(port: int) -> bool:
    """Return whether anybody listens on a port."""
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def made(tmp_path: Path, scan: ScanResult) -> Iterator[Callable[..., Nodes]]:
    """Make nodes, which are gone in the end."""
    known: list[Nodes] = []

    def make(count: int, via: str = "tree") -> Nodes:
        known.append(Nodes(tmp_path / f"nodes{len(known)}", scan, count, via))
        return known[-1]

    yield make
    for nodes in known:
        nodes.end()


def test_the_code_leaves_here_once(made: Callable[..., Nodes], scan: ScanResult) -> None:
    """One node is sent it, the others have it from each other; then nothing listens and nothing runs."""
    nodes = made(6)
    brought = nodes.bring()
    held = nodes.code("gpu00")
    assert (
        sum(one.sent for one in brought.values()) == scan.manifest.size == SIZE + len("x = 0\n") * 10 + 7 * 30
    )
    assert sorted(one.taken for one in brought.values()) == [0] + [scan.manifest.size] * 5
    assert sum(nodes.expected) == sum(nodes.taken) + scan.manifest.size, "the progress ends at 100 %"
    assert len({one.provider for one in brought.values()}) > 2, "those that have it give it on"
    assert all(nodes.code(name) == held for name in nodes.names)
    ports = [listening(one.process.pid) for one in nodes.sessions.values()]
    assert all(ports)

    for session in nodes.sessions.values():
        nodes.passing.keep_open(session)
    nodes.passing.close()

    assert [one.process.returncode for one in nodes.sessions.values()] == [0] * 6
    assert not any(accepts(port) for port in set().union(*ports))
    assert nodes.notices == []


def kill(nodes: Nodes, giver: str) -> None:
    """The giver is gone before it is asked."""
    nodes.sessions[giver].process.kill()
    nodes.sessions[giver].process.wait()


def kill_under_way(nodes: Nodes, giver: str) -> None:
    """The giver takes the call and dies before it has given anything."""
    nodes.sessions[giver].process.send_signal(signal.SIGSTOP)
    threading.Timer(LINGER, nodes.sessions[giver].process.kill).start()


@pytest.mark.parametrize("deed", [kill, kill_under_way])
def test_a_node_that_dies_costs_those_who_wait_for_it_a_way_round(
    made: Callable[..., Nodes], scan: ScanResult, deed: Deed
) -> None:
    """The first giver dies: who was to take from it has the code from here, the others from nodes that live."""
    nodes, lock = made(5), threading.Lock()
    dead: list[str] = []

    def meddle(nodes: Nodes, giver: str) -> None:
        with lock:
            if not dead:
                dead.append(giver)
                deed(nodes, giver)

    nodes.meddle = meddle
    brought = nodes.bring()
    living = [name for name in nodes.names if name not in dead]
    assert set(living) <= brought.keys()
    assert all(nodes.code(name) == nodes.code(living[0]) for name in living)
    assert sum(one.sent for name, one in brought.items() if name in living) == scan.manifest.size
    assert len(nodes.notices) == 1
    assert f"from {dead[0]} (" in nodes.notices[0]
    living_one = re.search(r"; it continues with (\w+)$", nodes.notices[0])
    assert living_one[1] in living if living_one else "sent from this machine" in nodes.notices[0]


def test_strangers_are_given_nothing(made: Callable[..., Nodes]) -> None:
    """Wrong proofs, no proofs and endless lines get no byte of code, and the next node is served all the same."""
    nodes = made(2)
    nodes.meddle = lambda nodes, giver: knock(next(iter(listening(nodes.sessions[giver].process.pid))))
    brought = nodes.bring()
    assert sorted(one.taken > 0 for one in brought.values()) == [False, True]
    assert nodes.notices == []


def knock(port: int) -> None:
    """Try to be let in without the token."""
    answers = (
        json.dumps({"nonce": "0" * 32, "proof": "0" * 64}).encode() + b"\n",
        b"x" * 5000,
        b"[]\n",
        b"GET / HTTP/1.0\r\n\r\n",
    )
    for answer in answers:
        with socket.create_connection(("127.0.0.1", port), 5) as stranger:
            assert len(json.loads(stranger.recv(1000))["nonce"]) == 32
            stranger.sendall(answer)
            with suppress(ConnectionResetError):
                assert stranger.recv(1000) == b""


def test_a_giver_that_lies_is_found_out(made: Callable[..., Nodes], scan: ScanResult) -> None:
    """Contents that are not what their hash reports are not taken; the node has them from here."""
    nodes = made(2)

    def damage(nodes: Nodes, giver: str) -> None:
        while not list((nodes.folder / giver).glob("runs/*/*/code")):  # it has looked at what it holds
            time.sleep(0.01)
        sha = next(entry.content for entry in scan.manifest.entries if entry.size == SIZE)
        with (nodes.folder / giver / "store" / sha[:2] / sha).open("r+b") as stored:
            stored.write(b"not what it was")

    nodes.meddle = damage
    brought = nodes.bring()
    assert nodes.code("gpu00") == nodes.code("gpu01")
    (notice,) = nodes.notices
    assert re.match(r"gpu0[01] could not fetch files from gpu0[01] \(a file changed in transfer", notice)
    assert sum(one.sent for one in brought.values()) >= scan.manifest.size + SIZE


def test_a_node_that_has_all_gives_at_once(made: Callable[..., Nodes]) -> None:
    """Where one node has the code already, nothing leaves here."""
    nodes = made(1, "direct")
    nodes.bring()
    nodes.end()
    more = made(4)
    nodes.folder.rename(more.folder)
    first = Watched(more, "gpu00", 0)
    more.sessions["gpu00"] = first
    send_tree(first, TreeUpload(more.scan, distribution=more.passing), node="gpu00")
    del more.names[0]
    assert [one.sent for one in more.bring().values()] == [0, 0, 0]


@pytest.mark.parametrize(
    ("via", "count", "size", "passes"),
    [
        ("auto", 2, 10**9, False),
        ("auto", 16, 8_000_000, False),
        ("auto", 8, 40_000_000, True),
        ("direct", 8, 10**9, False),
        ("tree", 2, 1, True),
        ("tree", 1, 1, False),
    ],
)
def test_when_the_code_is_passed_on(via: Any, count: int, size: int, passes: bool) -> None:
    """`auto` weighs what would be sent; the two others do as they say."""
    passing = Distribution(
        via, {f"n{place}": TransferAddress("192.0.2.1", (20000, 20100)) for place in range(count)}
    )
    offer = passing.offer("n0", size)
    assert (offer is not None) == passes
    if offer:
        assert offer == {"address": "192.0.2.1", "ports": (20000, 20100), "token": passing.token}
        assert passing.token not in repr(passing)
    assert passing.offer("unknown", size) is None


def chain_of(names: str) -> Distribution:
    """Make a distribution among nodes with names of one letter."""
    return Distribution("tree", {name: TransferAddress("192.0.2.1") for name in names})


def test_each_receives_from_the_last_before_it() -> None:
    """The first is sent it from here; one that has all joins the chain, and receives from none."""
    chain = chain_of("abcd")
    assert chain.join("a", 1, SIZE) is None
    assert chain.join("b", 2, SIZE) == at("a", 1)
    assert chain.join("c", 3, 0) is None
    assert chain.join("d", 4, SIZE) == at("c", 3)
    assert chain.replace_provider("d", "it does not answer") == at("b", 2)
    assert [chain.index_of(at(name, port)) for port, name in enumerate("abcd", 1)] == [1, 2, 3, 4]


def at(node: str, port: int) -> Provider:
    """Return a provider of the chain."""
    return Provider(node, "192.0.2.1", port)


def test_a_node_without_a_port_is_no_provider() -> None:
    """It could not listen: the next ones receive from the one before, as many as that takes; then from here."""
    chain = chain_of("abcdef")
    assert chain.join("a", 1, SIZE) is None
    assert [chain.join(name, None, SIZE) for name in "bcde"] == [at("a", 1)] * 3 + [None]
    chain.succeed("b")
    assert chain.join("f", None, SIZE) == at("a", 1)


def test_who_lacks_little_or_has_no_address_is_sent_it_from_here() -> None:
    """The chain is for what is worth it: with `auto`, much."""
    chain = replace(chain_of("abc"), via="auto")
    assert chain.join("a", 1, 10**9) is None
    assert chain.join("b", 2, 1000) is None
    assert chain.join("x", 3, 10**9) is None
    assert chain.join("c", 3, 10**9) == at("b", 2)


def test_a_source_is_its_own_provider() -> None:
    """A node copies to another directory of its own; when that fails the others still have the source."""
    chain = chain_of("ab")
    chain.add_source("a", 1)
    assert chain.join("a", 5, SIZE) == at("a", 1)
    chain.remove_node("a")
    assert chain.join("b", 2, SIZE) == at("a", 1)


def test_the_next_continues_with_the_one_before_a_node_that_failed() -> None:
    """Two in a row may fail; where no node is before it, the rest comes from here."""
    notices: list[str] = []
    chain = replace(chain_of("abcd"), notice=notices.append)
    for port, name in enumerate("abcd", 1):
        chain.join(name, port, SIZE)
    chain.succeed("b")
    chain.remove_node("c")
    assert chain.replace_provider("d", "it does not answer") == at("b", 2)
    assert chain.replace_provider("d", "it closed the connection") == at("a", 1)
    assert chain.replace_provider("d", "it is too slow") is None
    assert chain.replace_provider("d", "once more") is None
    assert [notice.partition(";")[2] for notice in notices] == [
        " it continues with b",
        " it continues with a",
        " they are sent from this machine",
    ]


def test_one_node_that_reaches_no_other_does_not_end_the_chain() -> None:
    """It complains of two; the others still receive from them."""
    chain = chain_of("abcd")
    for port, name in enumerate("abc", 1):
        chain.join(name, port, SIZE)
    assert chain.replace_provider("c", "it does not answer") == at("a", 1)
    assert chain.replace_provider("c", "it does not answer") is None
    assert chain.join("d", 4, SIZE) == at("c", 3)
    assert chain.replace_provider("d", "it does not answer") is None, "two nodes have had it from no other"


def test_nodes_that_do_not_reach_each_other_are_all_sent_it_from_here() -> None:
    """Two that took it from no one are enough: no other tries a provider that it cannot reach."""
    names = "abcdefgh"
    chain = chain_of(names)
    assert [chain.join(name, port, SIZE) is None for port, name in enumerate(names[:4], 1)] == [True] + [
        False
    ] * 3
    assert [chain.replace_provider(name, "it does not answer") for name in "bcd"] == [None] * 3
    assert [chain.join(name, 9, SIZE) for name in names[4:]] == [None] * 4


class Paused:
    """The contents of a tree; before the second half of the large one leaves, something happens."""

    def __init__(self, contents: Any, happen: Callable[[], None]) -> None:
        self._contents, self._happen = contents, happen
        self.listing = contents.listing

    def shipments(self, missing: Collection[str], held: Any) -> Iterator[Any]:
        """Yield what a node lacks."""
        for shipment in self._contents.shipments(missing, held):
            if shipment.header.get("at", 0) > 0:
                self._happen()
            yield shipment


def test_contents_are_sent_on_while_they_arrive(made: Callable[..., Nodes], scan: ScanResult) -> None:
    """All nodes have a part of a file of which the first has not had the rest, and the progress shows it."""
    nodes, seen = made(4), list[int]()

    def look() -> None:
        wait_until(lambda: all(map(nodes.has_part, nodes.names)))
        wait_until(lambda: sum(nodes.taken) >= 3 * HALF)
        seen.append(len(list(nodes.folder.glob("*/runs/*/*/code"))))

    nodes.scan = replace(scan, contents=Paused(scan.contents, look))  # type: ignore[arg-type]  # by its two members
    brought = nodes.bring()
    assert seen == [0]
    assert sum(nodes.taken) == 3 * scan.manifest.size
    assert sum(one.sent for one in brought.values()) == scan.manifest.size
    assert all(nodes.code(name) == nodes.code("gpu00") for name in nodes.names)
    assert nodes.notices == []


def test_the_next_node_continues_where_the_one_that_died_was(
    made: Callable[..., Nodes], scan: ScanResult
) -> None:
    """A middle node dies when all have a half: nothing leaves here twice, and nothing is asked for twice."""
    nodes = made(4)

    def end_one() -> None:
        wait_until(lambda: all(map(nodes.has_part, nodes.names)))
        kill(nodes, nodes.middle())

    nodes.scan = replace(scan, contents=Paused(scan.contents, end_one))  # type: ignore[arg-type]  # as above
    brought = nodes.bring()
    assert len(brought) == 3
    assert sum(one.sent for one in brought.values()) == scan.manifest.size
    assert all(nodes.code(name) == nodes.code(next(iter(brought))) for name in brought)
    (notice,) = nodes.notices
    assert "it continues with" in notice


def test_a_middle_node_that_stops_reading_is_passed_by(made: Callable[..., Nodes], scan: ScanResult) -> None:
    """It is halted when all have a half: the others have the code, and each byte has left here once."""
    nodes, halted = made(4), list[str]()

    def halt_one() -> None:
        wait_until(lambda: all(map(nodes.has_part, nodes.names)))
        halted.append(nodes.middle())
        nodes.sessions[halted[0]].process.send_signal(signal.SIGSTOP)
        threading.Thread(target=end_it, daemon=True).start()

    def end_it() -> None:
        wait_until(lambda: nodes.notices)
        kill(nodes, halted[0])

    nodes.scan = replace(scan, contents=Paused(scan.contents, halt_one))  # type: ignore[arg-type]  # as above
    brought = nodes.bring()
    assert brought.keys() == set(nodes.names) - set(halted)
    assert sum(one.sent for one in brought.values()) == scan.manifest.size
    assert all(nodes.code(name) == nodes.code(next(iter(brought))) for name in brought)
    (notice,) = nodes.notices
    assert f"from {halted[0]} (it does not answer); it continues with" in notice


def wait_until(happened: Callable[[], object]) -> None:
    """Wait for something."""
    deadline = time.monotonic() + HANG
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Clock:
    """A time that a test sets, in the place of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Return it."""
        return self.now


class SlowChain:
    """A chain whose receivers report every 2 s, by MB that have come and seconds of waiting, each a second's."""

    def __init__(self, names: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.notices: list[str] = []
        self.chain = replace(chain_of(names), notice=self.notices.append)
        self._clock = Clock()
        monkeypatch.setattr(distribution, "time", self._clock)
        self._totals = dict.fromkeys(names[1:], (0, 0.0))
        self.chain.add_source(names[0], 1)
        for port, name in enumerate(names[1:], 2):
            self.chain.join(name, port, SIZE)

    def report(self, rounds: int, **rates: tuple[float, float]) -> dict[str, str]:
        """Have all report some times; gives who was sent a new provider."""
        moved = {}
        for _ in range(rounds):
            self._clock.now += 2
            for name, (rate, waited) in rates.items():
                taken, all_waited = self._totals[name]
                self._totals[name] = taken + int(2e6 * rate), all_waited + 2 * waited
                provider = self.chain.report_progress(name, *self._totals[name])
                if provider is not None:
                    moved[name] = provider.node
        return moved


def test_a_node_that_receives_slowly_goes_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its receiver continues with its provider, it continues with the last, and its rate is in the notice."""
    slow = SlowChain("abcde", monkeypatch)
    behind = (4, 0.9)  # what passes the slow node; its receivers mostly wait
    assert slow.report(2, b=(40, 0), c=(4, 0), d=behind, e=behind) == {}
    assert slow.report(3, b=(40, 0), c=(4, 0), d=behind, e=behind) == {"c": "e", "d": "b"}
    (notice,) = slow.notices
    assert notice == "c receives 4.0 MB/s from b, most nodes 32.0 MB/s: no other node waits for it now"
    assert [slow.chain.index_of(at(name, port)) for port, name in enumerate("abcde", 1)] == [1, 2, 5, 3, 4]
    assert slow.report(9, b=(40, 0), c=(4, 0), d=(40, 0), e=(40, 0)) == {}
    assert len(slow.notices) == 1


def test_a_node_that_sends_slowly_loses_its_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of them that is slow could be at fault itself; the second shows that it is the provider."""
    slow = SlowChain("abcde", monkeypatch)
    slow.report(4, b=(40, 0), c=(4, 0), d=(4, 0.9), e=(4, 0.9))
    moved = slow.report(6, b=(40, 0), c=(40, 0), d=(4, 0), e=(4, 0.9))
    assert moved == {"d": "a"}
    assert slow.notices[1] == "b sends 4.0 MB/s, most nodes 40.0 MB/s: its receivers continue with a"
    assert slow.chain.replace_provider("d", "it does not answer") is None, "nothing is before it"


def test_equal_nodes_are_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the source is slow, all are; where few nodes receive, there is nothing to compare with."""
    slow = SlowChain("abcde", monkeypatch)
    assert slow.report(9, b=(4, 0), c=(4, 0), d=(5, 0.1), e=(5, 0.1)) == {}
    assert SlowChain("abc", monkeypatch).report(9, b=(40, 0), c=(4, 0)) == {}
    assert slow.notices == []


def test_the_last_node_may_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it: it is named once, and stays where it is."""
    slow = SlowChain("abcd", monkeypatch)
    assert slow.report(9, b=(40, 0), c=(40, 0), d=(4, 0)) == {}
    assert len(slow.notices) == 1


def test_a_failed_node_is_not_sent_where_it_was_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was to move, and reports a problem first: the provider that is next is chosen once."""
    slow = SlowChain("abcde", monkeypatch)
    slow.report(4, b=(40, 0), c=(4, 0), d=(4, 0.9), e=(4, 0.9))
    slow.chain.remove_node("d")
    assert slow.report(1, b=(40, 0), c=(4, 0)) == {}
    assert slow.chain.report_progress("d", 10**9, 0) is None
