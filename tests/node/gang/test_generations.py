"""Which checkpoints the nodes have, as the hub knows it, by plain values: what it orders, and what it chooses."""

from __future__ import annotations

import random
from collections import Counter, deque

import pytest
from memory_keepers import PORT, MemoryKeeper, digest_of

from clusterctl.node.gang.generation import is_sound
from clusterctl.node.gang.generations import MAX_RETRIES, Ledger
from clusterctl.protocol.messages.checkpoints import (
    MAX_SEALS,
    Address,
    Held,
    KeeperOrder,
    KeeperReport,
    Part,
    Restore,
    Seal,
)
from clusterctl.protocol.ranks import NodeRank, Slot

pytestmark = pytest.mark.unit


class Nodes:
    """Some nodes with a keeper each, and the ledger of their hub; the first slots have the node ranks."""

    def __init__(
        self, ranks: int = 3, spares: int = 0, copies: int = 2, keep: int = 2, needs: str = "all"
    ) -> None:
        self.ledger = Ledger(copies, keep, needs)
        self.reports: deque[tuple[int, KeeperReport]] = deque()
        self.keepers: dict[int, MemoryKeeper] = {}
        for slot in range(ranks + spares):
            MemoryKeeper(slot, self.keepers, lambda report, slot=slot: self.reports.append((slot, report)))
        self.ranks = {Slot(slot): NodeRank(slot) for slot in range(ranks)}
        self.seen: list[tuple[str, str, str]] = []
        self.begin(1)

    def begin(self, attempt: int) -> None:
        """Begin an attempt with the ranks as they are."""
        for slot, keeper in self.keepers.items():
            rank = self.ranks.get(Slot(slot), NodeRank(-1))
            keeper.on_order(KeeperOrder(do="begin", attempt=attempt, node_rank=rank))
        idle = [Slot(slot) for slot in self.keepers if slot not in self.ranks]
        self.ledger.begin(attempt, self.ranks, idle)
        self.settle()

    def settle(self) -> None:
        """Carry out orders and reports until there are none."""
        while self.ledger.orders or self.reports:
            orders, self.ledger.orders = self.ledger.orders, []
            for slot, order in orders:
                for receiver in list(self.keepers) if slot is None else [slot]:
                    if receiver in self.keepers:
                        self.keepers[receiver].on_order(order)
            while self.reports:
                slot, report = self.reports.popleft()
                self.hear(slot, report)
        self.seen += [(event["name"], str(event["state"]), event["note"]) for event in self.ledger.events]
        self.ledger.events.clear()

    def hear(self, slot: int, report: KeeperReport) -> None:
        """Hand a report to the ledger as a hub does."""
        self.ledger.set_address(Slot(slot), f"10.0.0.{slot}", report.port)
        self.ledger.on_report(Slot(slot), report)

    def save(self, name: str) -> None:
        """Report a checkpoint that all ranks have written, as the first one sees it."""
        self.write(name)
        self.settle()

    def write(self, name: str) -> None:
        """The same, before anything follows from it."""
        for slot in self.ranks:
            if slot in self.keepers:
                self.keepers[slot].write(name)
        self.keepers[min(set(self.keepers) & set(self.ranks))].mark(name)

    def lose(self, *slots: int) -> None:
        """Remove nodes."""
        for slot in slots:
            del self.keepers[slot]
        for slot in slots:
            self.ledger.on_lost(Slot(slot))
        self.settle()

    def choose(self, own: int | None = None) -> Restore | None:
        """Ask all that are left, and choose."""
        for keeper in self.keepers.values():
            keeper.on_order(KeeperOrder(do="conclude", attempt=keeper.attempt))
        self.settle()
        present = set(map(Slot, self.keepers))
        chosen = self.ledger.choose(present, Slot(min(present) if own is None else own))
        self.settle()
        return chosen

    def state(self, name: str) -> str:
        """Return the state of a generation by its name."""
        return next(state["state"] for state in self.ledger.states if state["name"] == name)

    def orders(self, slot: int, do: str) -> list[KeeperOrder]:
        """Return the orders of a kind that a node has had."""
        return [order for order in self.keepers[slot].orders if order.do == do]


def chosen_name(restore: Restore | None) -> str:
    """Name what was chosen."""
    return "" if restore is None else restore.seal.name


def test_a_checkpoint_is_sealed_when_all_have_their_part_and_safe_when_all_parts_have_copies() -> None:
    """The next node of the ring takes each part, from the one that wrote it."""
    nodes = Nodes()
    nodes.save("step-100")

    (taken,) = nodes.orders(1, "take")
    assert (taken.part, taken.sources) == (
        Part(node_rank=NodeRank(0), manifest=digest_of("step-100", 1, 0), size=80, files=2, bytes=100),
        (Address(address="10.0.0.0", port=PORT),),
    )
    assert sorted(nodes.keepers[0].parts) == [("step-100", 1, 0), ("step-100", 1, 2)]
    (state,) = nodes.ledger.states
    assert (state["state"], state["nodes"], state["of"], state["copies"]) == ("safe", 3, 3, 2)
    assert (state["files"], state["bytes"], state["shared"]) == (6, 300, False)
    assert nodes.seen == [("step-100", "safe", "")]
    assert [order.name for order in nodes.orders(2, "safe")] == ["step-100"]


def test_status_shows_by_the_number_of_the_seal_which_is_newer_and_whether_the_hub_says_so() -> None:
    """A clock does neither."""
    nodes = Nodes()
    nodes.ledger.leads = True
    nodes.save("step-1")
    peer = Ledger(2, 2)
    for order in nodes.keepers[1].orders:
        peer.on_order(order)
    assert [[(state["number"], state["hub"]) for state in one.states] for one in (nodes.ledger, peer)] == [
        [(1, True)],
        [(1, False)],
    ]


def test_nothing_is_sealed_before_the_last_part_has_come() -> None:
    """A node that has not hashed its part may have none."""
    nodes = Nodes()
    nodes.keepers[2].silent = {"collect"}
    nodes.save("step-100")

    assert nodes.state("step-100") == "collecting"
    assert nodes.orders(0, "seal") == []
    assert chosen_name(nodes.choose()) == ""


def test_what_is_written_faster_than_it_can_be_copied_is_skipped() -> None:
    """The newest of those that wait follows, the others are skipped with a note."""
    nodes = Nodes()
    nodes.keepers[1].silent = {"take"}
    for name in ("step-1", "step-2", "step-3", "step-4"):
        nodes.save(name)
    nodes.hear(1, KeeperReport(event="held", name="step-1", attempt=1, node_rank=0))
    nodes.keepers[1].silent = set()
    nodes.settle()

    assert {name for name, state, _ in nodes.seen if state == "skipped"} == {"step-2", "step-3"}
    assert (nodes.state("step-1"), nodes.state("step-4")) == ("safe", "safe")


def test_many_that_are_skipped_while_one_is_copied_cost_neither_that_nor_the_safe_ones() -> None:
    """A copy that takes long ends as any other, the next one follows, and status shows both all the time."""
    nodes = Nodes(ranks=2)
    nodes.save("step-0")
    nodes.keepers[1].silent = {"take"}
    for number in range(1, 60):
        nodes.save(f"step-{number}")
    shown = [(state["name"], state["state"]) for state in nodes.ledger.states]
    assert shown[:2] == [("step-0", "safe"), ("step-1", "copying")]

    nodes.keepers[1].silent = set()
    nodes.hear(1, KeeperReport(event="held", name="step-1", attempt=1, node_rank=0))
    nodes.settle()
    assert [state["name"] for state in nodes.ledger.states if state["state"] == "safe"] == [
        "step-1",
        "step-59",
    ]
    assert len(nodes.ledger.states) <= MAX_SEALS


def test_many_whose_copies_find_no_room_are_forgotten_but_the_safe_one() -> None:
    """They are bounded, the oldest go first."""
    nodes = Nodes(ranks=2)
    nodes.save("step-0")
    nodes.keepers[1].full = True
    for number in range(1, 60):
        nodes.save(f"step-{number}")
    assert [one.key[0] for one in nodes.ledger._generations][:2] == ["step-0", "step-29"]


def test_many_that_are_skipped_do_not_cost_one_that_has_no_copies_yet() -> None:
    """It is sealed, and the next attempt resumes from it."""
    nodes = Nodes(ranks=2)
    nodes.keepers[1].full = True
    nodes.save("step-0")
    nodes.keepers[1].broken = "Input/output error"
    for number in range(1, 60):
        nodes.save(f"step-{number}")
    assert nodes.state("step-0") == "copying"
    assert chosen_name(nodes.choose()) == "step-0"


def test_a_spare_takes_its_place_in_the_ring_behind_the_last_node() -> None:
    """So that the last part is not on the first node."""
    nodes = Nodes(ranks=2, spares=1)
    nodes.save("step-1")
    assert [order.part.node_rank for order in nodes.orders(2, "take") if order.part] == [1]
    assert nodes.orders(0, "take") == []


def test_all_copies_are_on_every_node() -> None:
    """With `copies: all` spares have them too."""
    nodes = Nodes(ranks=2, spares=1, copies=0)
    nodes.save("step-1")
    assert all(len(keeper.parts) == 2 for keeper in nodes.keepers.values())


def test_where_the_disk_of_the_neighbour_is_full_the_next_node_takes_the_copy() -> None:
    """The run goes on, and so do the checkpoints."""
    nodes = Nodes()
    nodes.keepers[1].full = True
    nodes.save("step-1")
    assert nodes.state("step-1") == "safe"
    assert ("step-1", 1, 0) in nodes.keepers[2].parts


def test_where_no_node_can_take_a_copy_it_is_not_safe_and_says_why() -> None:
    """It can be restored as long as nothing is lost; the next one is tried again."""
    nodes = Nodes(ranks=2)
    nodes.keepers[1].full = True
    nodes.save("step-1")
    nodes.keepers[1].full = False
    nodes.save("step-2")

    assert nodes.seen == [("step-1", "copying", "No space left on device"), ("step-2", "safe", "")]
    assert chosen_name(nodes.choose()) == "step-2"


def test_a_checkpoint_that_a_node_cannot_read_is_skipped() -> None:
    """The script removed it while it was read."""
    nodes = Nodes()
    nodes.keepers[1].broken = "its files were removed while they were read"
    nodes.save("step-1")
    nodes.keepers[1].broken = ""
    nodes.save("step-2")
    assert nodes.seen == [
        ("step-1", "skipped", "its files were removed while they were read"),
        ("step-2", "safe", ""),
    ]


def test_two_neighbours_die_at_once_and_it_is_known_at_once_what_is_left() -> None:
    """A part and its only copy are gone: the generation is lost, and the one before, which all have, is named."""
    nodes = Nodes(ranks=4)
    nodes.save("step-1")
    for keeper in nodes.keepers.values():
        keeper.parts |= {("step-1", 1, rank) for rank in range(4)}
    nodes.choose()
    nodes.begin(2)
    nodes.save("step-2")
    nodes.lose(1, 2)

    assert nodes.seen[-1] == ("step-2", "lost", "step-1 is left")
    assert [order.lost for order in nodes.orders(0, "safe")] == [False, False, True]
    assert chosen_name(nodes.choose()) == "step-1"


def test_without_any_other_nothing_is_left() -> None:
    """The run begins from scratch."""
    nodes = Nodes(ranks=4)
    nodes.save("step-1")
    nodes.lose(1, 2)
    assert nodes.seen[-1] == ("step-1", "lost", "no checkpoint is left")
    assert nodes.choose() is None


def test_the_next_attempt_goes_on_from_the_newest_that_the_nodes_have_whole() -> None:
    """One node is lost: its part is on its neighbour, and every node gets its address."""
    nodes = Nodes()
    nodes.save("step-1")
    nodes.save("step-2")
    nodes.lose(1)
    chosen = nodes.choose()

    assert chosen is not None
    assert chosen.seal.name == "step-2"
    sources = {part.node_rank: {source.port - PORT for source in part.sources} for part in chosen.parts}
    assert sources == {0: {0}, 1: {2}, 2: {0, 2}}


def test_a_part_that_is_not_whole_any_more_leaves_the_generation_before() -> None:
    """What counts is what the nodes report at the end: a flipped byte, or files that the script has removed."""
    nodes = Nodes(copies=1)
    nodes.save("step-1")
    nodes.save("step-2")
    nodes.keepers[2].parts.discard(("step-2", 1, 2))
    assert chosen_name(nodes.choose()) == "step-1"
    assert nodes.seen[-1] == ("step-2", "lost", "step-1 is left")


def test_a_seal_that_only_one_other_node_reports_is_not_believed() -> None:
    """A node may offer what no other has seen; two, or this one, may not be wrong."""
    forged = Seal(
        name="step-9",
        attempt=1,
        number=9,
        nodes=1,
        parts=(Part(manifest="e" * 64, size=1, files=1, bytes=1),),
    )
    nodes = Nodes()
    nodes.save("step-1")
    nodes.keepers[1].seals["step-9", 1] = forged
    nodes.keepers[1].parts.add(("step-9", 1, 0))
    assert chosen_name(nodes.choose()) == "step-1"

    nodes.keepers[2].seals["step-9", 1] = forged
    assert chosen_name(nodes.choose()) == "step-9"


def test_another_seal_for_a_known_generation_changes_nothing() -> None:
    """Its own content counts, whatever the others say."""
    nodes = Nodes(ranks=2)
    nodes.save("step-1")
    real = nodes.keepers[1].seals["step-1", 1]
    parts = tuple(part.replace(manifest="e" * 64) for part in real.parts)
    nodes.keepers[1].seals["step-1", 1] = real.replace(parts=parts)
    chosen = nodes.choose()
    assert chosen is not None
    assert chosen.seal == real


@pytest.mark.parametrize(
    "change",
    [{"name": "../x"}, {"name": ".."}, {"name": ""}, {"nodes": 3}, {"parts": ()}, {"name": "a\nb"}],
)
def test_a_seal_that_no_hub_makes_is_no_seal(change: dict[str, object]) -> None:
    """A name is one component; each node rank has one part, with a hash."""
    parts = tuple(Part(node_rank=NodeRank(rank), manifest="a" * 64, files=1) for rank in range(2))
    whole = Seal(name="step-1", number=1, nodes=2, parts=parts)
    assert is_sound(whole)
    assert not is_sound(whole.replace(**change))
    assert not is_sound(whole.replace(parts=(parts[0], parts[1].replace(manifest="A" * 64))))


def test_the_next_hub_finds_what_there_is_and_goes_on_counting() -> None:
    """It was a peer before: it has the seals that it was sent, and learns from all who has which part."""
    nodes = Nodes()
    nodes.save("step-1")
    nodes.save("step-2")
    nodes.lose(0)
    successor = Ledger(2, 2)
    for order in nodes.keepers[1].orders:
        successor.on_order(order)
    shown = [(state["name"], state["state"], state["copies"]) for state in successor.states]
    nodes.ledger = successor

    assert shown == [("step-1", "safe", 2), ("step-2", "safe", 2)]
    assert chosen_name(nodes.choose()) == "step-2"
    nodes.ranks = {Slot(1): NodeRank(0), Slot(2): NodeRank(1)}
    nodes.begin(2)
    nodes.save("step-3")
    assert nodes.keepers[2].seals["step-3", 2].number == 3


def test_the_next_hub_voids_a_seal_without_files_that_came_late() -> None:
    """A node reports them when it concludes, to a hub that has not sealed it itself."""
    nodes = Nodes()
    nodes.save("step-1")
    nodes.keepers[0].write("step-2")
    nodes.keepers[1].write("step-2")
    nodes.keepers[0].mark("step-2")
    nodes.settle()
    nodes.lose(0)
    successor = Ledger(2, 2)
    for order in nodes.keepers[1].orders:
        successor.on_order(order)
    nodes.ledger = successor
    successor.conclude(1, nodes.ranks)
    nodes.hear(1, KeeperReport(event="late", name="step-2", attempt=1))
    assert nodes.state("step-2") == "safe"
    nodes.hear(2, KeeperReport(event="late", name="step-2", attempt=1))
    assert nodes.state("step-2") == "skipped"
    assert chosen_name(nodes.choose()) == "step-1"


def test_a_hub_that_has_just_begun_knows_of_no_loss() -> None:
    """Before the nodes have reported what they have, nothing is lost."""
    ledger = Ledger(2, 2)
    nodes = Nodes()
    nodes.save("step-1")
    for order in nodes.keepers[1].orders:
        ledger.on_order(order)
    ledger.on_lost(Slot(0))
    assert ledger.events == []


def test_nodes_that_see_the_same_files_copy_nothing() -> None:
    """It is sealed without the hash of the first, is safe at once, and that is noted once."""
    nodes = Nodes()
    for keeper in nodes.keepers.values():
        keeper.shared = True
    nodes.keepers[0].silent = {"collect"}
    nodes.save("step-1")
    nodes.save("step-2")

    assert nodes.seen == [
        ("step-1", "safe", "all nodes see the same files, nothing is copied"),
        ("step-2", "safe", ""),
    ]
    assert all(nodes.orders(slot, "take") == [] for slot in nodes.keepers)
    nodes.lose(0, 1)
    chosen = nodes.choose()
    assert chosen is not None
    assert (chosen.seal.shared, chosen.seal.name, chosen.parts) == (True, "step-2", ())


def test_two_nodes_of_three_that_share_have_their_files_once() -> None:
    """The one that saw them first has them all; the other has an empty part."""
    nodes = Nodes()
    nodes.keepers[0].shared = nodes.keepers[1].shared = True
    nodes.save("step-1")
    seal = nodes.keepers[2].seals["step-1", 1]
    assert [part.files for part in seal.parts] == [2, 0, 2]
    assert nodes.state("step-1") == "safe"


def test_only_files_of_this_attempt_begin_a_generation() -> None:
    """A late report, a name that leads elsewhere, and a node without a rank begin none."""
    nodes = Nodes(ranks=2, spares=1)
    nodes.begin(2)
    for slot, name, attempt in ((0, "step-1", 1), (0, "../step-1", 2), (2, "step-1", 2)):
        nodes.hear(slot, KeeperReport(event="marked", name=name, attempt=attempt, identity="x"))
    assert (nodes.ledger.orders, nodes.ledger.states) == ([], [])


def test_a_part_that_comes_when_the_attempt_has_ended_still_makes_a_seal() -> None:
    """It had settled while the ranks ran, and was hashed afterwards."""
    nodes = Nodes(ranks=2)
    nodes.keepers[1].silent = {"collect"}
    nodes.save("step-1")
    (order,) = nodes.orders(1, "collect")
    nodes.keepers[1].silent = set()
    nodes.keepers[1].on_order(order)
    nodes.settle()
    assert chosen_name(nodes.choose()) == "step-1"


def test_what_was_not_sealed_in_its_attempt_never_is() -> None:
    """A late part belongs to nothing any more."""
    nodes = Nodes(ranks=2)
    nodes.keepers[1].silent = {"collect"}
    nodes.save("step-1")
    nodes.begin(2)
    nodes.hear(1, KeeperReport(event="part", name="step-1", attempt=1, part=Part(node_rank=NodeRank(1))))

    assert nodes.seen == [("step-1", "skipped", "the attempt ended before every node had read its part")]
    assert nodes.choose() is None


def test_a_checkpoint_without_any_file_is_none() -> None:
    """All nodes have answered with an empty part."""
    nodes = Nodes()
    nodes.keepers[0].mark("step-1")
    nodes.settle()
    assert nodes.seen == [("step-1", "skipped", "it has no files")]


def test_a_copy_that_nobody_asked_for_does_not_count() -> None:
    """A node that reports to hold what it was not sent is not believed."""
    nodes = Nodes(ranks=4)
    for slot in (1, 2, 3, 0):
        nodes.keepers[slot].silent = {"take"}
    nodes.save("step-1")
    nodes.hear(3, KeeperReport(event="held", name="step-1", attempt=1, node_rank=0))
    (state,) = nodes.ledger.states
    assert (state["state"], state["copies"]) == ("copying", 1)


def test_a_later_attempt_first_makes_the_copies_again_that_a_lost_node_had() -> None:
    """Else the loss of another node would cost the generation that the run has just gone on from."""
    nodes = Nodes(ranks=3, spares=1, needs="own")
    nodes.save("step-1")
    nodes.lose(1)
    nodes.choose()
    nodes.keepers[3].parts.add(("step-1", 1, 1))
    nodes.ranks = {Slot(0): NodeRank(0), Slot(3): NodeRank(1), Slot(2): NodeRank(2)}
    nodes.begin(2)
    held = [
        sum(("step-1", 1, rank) in keeper.parts for keeper in nodes.keepers.values()) for rank in range(3)
    ]
    assert held == [2, 2, 2]


def test_what_all_nodes_have_restored_outlives_the_next_two() -> None:
    """It is in its place on every node of the attempt: nothing is copied, and it is named as what is left at once."""
    nodes = Nodes(ranks=4)
    nodes.save("step-1")
    chosen = nodes.choose()
    for keeper in nodes.keepers.values():
        keeper.on_order(KeeperOrder(do="restore", restore=chosen))
    taken = [len(nodes.orders(slot, "take")) for slot in nodes.keepers]
    nodes.begin(2)
    nodes.save("step-2")
    nodes.lose(1, 2)

    assert [len(nodes.orders(slot, "take")) for slot in nodes.keepers] == [taken[0] + 1, taken[3] + 1]
    assert nodes.seen[-1] == ("step-2", "lost", "step-1 is left")
    assert nodes.state("step-1") == "safe"


def test_what_was_restored_is_no_copy_the_script_may_remove_it() -> None:
    """The lost node had the only copy of a part: it is copied again although all have the files in their places."""
    nodes = Nodes(ranks=3, spares=1)
    nodes.save("step-1")
    nodes.lose(2)
    chosen = nodes.choose()
    mirrors = {slot: keeper.parts - {("step-1", 1, slot)} for slot, keeper in nodes.keepers.items()}
    asked = {slot: len(nodes.orders(slot, "take")) for slot in nodes.keepers}
    nodes.ranks = {Slot(0): NodeRank(0), Slot(1): NodeRank(1), Slot(3): NodeRank(2)}
    for keeper in nodes.keepers.values():
        keeper.on_order(KeeperOrder(do="restore", restore=chosen))
    nodes.begin(2)
    for slot, keeper in nodes.keepers.items():
        taken = {order.part.node_rank for order in nodes.orders(slot, "take")[asked[slot] :] if order.part}
        keeper.parts = mirrors[slot] | {("step-1", 1, rank) for rank in taken}

    assert (nodes.state("step-1"), nodes.ledger.states[0]["copies"]) == ("safe", 2)
    assert chosen_name(nodes.choose()) == "step-1"


def test_what_was_restored_is_copied_to_the_next_node_when_every_copy_is_lost() -> None:
    """Both nodes with a part are gone: it comes from one that has restored it, and counts as one copy before."""
    nodes = Nodes(ranks=4)
    nodes.save("step-1")
    chosen = nodes.choose()
    for keeper in nodes.keepers.values():
        keeper.on_order(KeeperOrder(do="restore", restore=chosen))
    nodes.begin(2)
    nodes.lose(1, 2)
    assert (nodes.state("step-1"), nodes.ledger.states[0]["copies"]) == ("safe", 1)
    assert chosen_name(nodes.choose()) == "step-1"
    nodes.ranks = {Slot(0): NodeRank(0), Slot(3): NodeRank(1)}
    nodes.begin(3)
    assert nodes.ledger.states[0]["copies"] == 2
    assert {order.part.node_rank for order in nodes.orders(0, "take")[1:] if order.part} == {1, 2}


def test_what_is_written_again_is_sealed_again_and_the_new_content_is_chosen() -> None:
    """Until the new seal has its copies, the one before it stays; another node's first look is no change."""
    nodes = Nodes()
    nodes.save("latest")
    nodes.keepers[1].mark("latest")
    nodes.settle()
    assert [order.seal.number for order in nodes.orders(0, "seal") if order.seal] == [1]

    nodes.keepers[1].silent = {"take"}
    nodes.save("latest")
    assert [state["state"] for state in nodes.ledger.states] == ["safe", "copying"]
    nodes.hear(1, KeeperReport(event="held", name="latest", attempt=1, node_rank=0))
    nodes.settle()
    assert [state["state"] for state in nodes.ledger.states] == ["safe"]
    chosen = nodes.choose()
    assert chosen is not None
    assert (chosen.seal.name, chosen.seal.number) == ("latest", 2)


def test_files_that_come_after_a_node_was_sealed_without_any_are_sealed() -> None:
    """It was slower than the others."""
    nodes = Nodes(ranks=2)
    nodes.keepers[0].write("step-1")
    nodes.keepers[0].mark("step-1")
    nodes.settle()
    nodes.keepers[1].write("step-1")
    nodes.keepers[1].mark("step-1")
    nodes.settle()
    chosen = nodes.choose()
    assert chosen is not None
    assert [part.files for part in chosen.seal.parts] == [2, 2]


def test_a_seal_without_files_that_came_later_is_void() -> None:
    """It is not chosen, by the next hub neither, although it had its copies; the one before it is."""
    nodes = Nodes()
    nodes.save("step-1")
    nodes.keepers[0].write("step-2")
    nodes.keepers[0].mark("step-2")
    nodes.settle()
    assert nodes.state("step-2") == "safe"
    nodes.hear(2, KeeperReport(event="late", name="step-2", attempt=1))
    nodes.settle()
    successor = Ledger(2, 2)
    for order in nodes.keepers[1].orders:
        successor.on_order(order)

    assert chosen_name(nodes.choose()) == "step-1"
    assert [seen[:2] for seen in nodes.seen if seen[0] == "step-2"] == [
        ("step-2", "safe"),
        ("step-2", "skipped"),
    ]
    nodes.ledger = successor
    nodes.lose(0)
    assert chosen_name(nodes.choose()) == "step-1"


def test_files_that_come_before_the_seal_begin_it_again() -> None:
    """What the other nodes had read is read again, and only that is sealed; the same report later is of no effect."""
    nodes = Nodes()
    nodes.keepers[1].silent = {"collect"}
    nodes.keepers[0].write("step-1")
    nodes.keepers[0].mark("step-1")
    nodes.settle()
    nodes.hear(2, KeeperReport(event="late", name="step-1", attempt=1))
    nodes.keepers[2].write("step-1")
    nodes.keepers[2].mark("step-1")
    nodes.keepers[1].silent = set()
    nodes.settle()
    nodes.hear(2, KeeperReport(event="late", name="step-1", attempt=1))
    nodes.hear(0, KeeperReport(event="late", name="step-1", attempt=1))
    chosen = nodes.choose()
    assert chosen is not None
    assert ([part.files for part in chosen.seal.parts], chosen.seal.number) == ([2, 0, 2], 1)


def test_what_is_older_than_the_job_keeps_is_forgotten() -> None:
    """Of the newest two that are safe both stay."""
    nodes = Nodes(keep=2)
    for number in range(5):
        nodes.save(f"step-{number}")
    assert [state["name"] for state in nodes.ledger.states] == ["step-3", "step-4"]


@pytest.mark.parametrize("seed", range(60))
def test_no_safe_generation_is_lost_with_one_node_and_nothing_wrong_is_ever_chosen(seed: int) -> None:
    """Nodes die at any moment, one in each attempt; spares follow; some orders are never answered."""
    rng = random.Random(seed)
    nodes = Nodes(ranks=3, spares=4, copies=2)
    newest = 0
    for attempt in range(1, 5):
        for _ in range(rng.randrange(4)):
            newest += 1
            for keeper in nodes.keepers.values():
                keeper.silent = {word for word in ("collect", "take") if rng.random() < 0.1}
                keeper.full = rng.random() < 0.1
            nodes.save(f"step-{newest}")
        safe = [int(state["name"][5:]) for state in nodes.ledger.states if state["state"] == "safe"]
        victim = rng.choice(sorted(nodes.ranks))
        nodes.lose(victim)
        chosen = nodes.choose()
        number = int(chosen.seal.name[5:]) if chosen is not None else 0
        assert number >= max(safe, default=0), "a safe generation is lost"
        rank = nodes.ranks.pop(victim)
        nodes.ranks[min(Slot(slot) for slot in nodes.keepers if slot not in nodes.ranks)] = rank
        if chosen is not None:
            seal = chosen.seal
            assert {part.node_rank for part in chosen.parts} == {
                part.node_rank for part in seal.parts if part.files
            }
            assert all(
                part.manifest == digest_of(seal.name, seal.attempt, part.node_rank)
                for part in seal.parts
                if part.files
            )
            for slot in nodes.ranks:
                nodes.keepers[slot].on_order(KeeperOrder(do="restore", restore=chosen))
        nodes.begin(attempt + 1)


def test_what_could_not_be_restored_is_not_chosen_again() -> None:
    """Its copies are wrong on all nodes that have them: the generation before is next, and the node is not at fault."""
    nodes = Nodes()
    nodes.save("step-1")
    nodes.save("step-2")
    chosen = nodes.choose()
    assert chosen is not None
    full_disk = KeeperReport(event="restored", code="CC-DISK-001", why="No space left on device")
    wrong = KeeperReport(event="restored", code="CC-CKPT-013", why="no node gives the files")
    assert [nodes.ledger.reject(Slot(1), report, chosen.seal) for report in (full_disk, wrong)] == [
        False,
        True,
    ]
    assert chosen_name(nodes.choose()) == "step-1"
    assert nodes.seen[-1] == ("step-2", "lost", "no node gives the files")


def test_one_node_that_can_restore_nothing_does_not_use_up_what_the_others_have() -> None:
    """The first time the checkpoint is at fault, the second time the node: what it rejects stays."""
    nodes = Nodes()
    nodes.save("step-1")
    nodes.save("step-2")
    wrong = KeeperReport(event="restored", code="CC-CKPT-013", why="no node gives the files")
    rejected = []
    for slot in (1, 1, 1, 2):
        chosen = nodes.choose()
        assert chosen is not None
        rejected.append((chosen.seal.name, nodes.ledger.reject(Slot(slot), wrong, chosen.seal)))
    assert rejected == [("step-2", True), ("step-1", False), ("step-1", False), ("step-1", True)]


def test_what_two_nodes_reject_at_once_is_journaled_once() -> None:
    """The second one has not used up its word."""
    nodes = Nodes()
    nodes.save("step-1")
    nodes.save("step-2")
    wrong = KeeperReport(event="restored", code="CC-CKPT-013", why="no node gives the files")
    for number, slots in ((2, (1, 2)), (1, (2,))):
        chosen = nodes.choose()
        assert chosen is not None
        assert [nodes.ledger.reject(Slot(slot), wrong, chosen.seal) for slot in slots] == [True] * len(slots)
        nodes.settle()
        assert nodes.seen.count((f"step-{number}", "lost", "no node gives the files")) == 1


def test_what_a_node_holds_is_read_from_its_report_alone() -> None:
    """An empty report takes back what was known before."""
    nodes = Nodes(ranks=2, copies=1)
    nodes.save("step-1")
    nodes.hear(1, KeeperReport(event="kept", held=()))
    assert nodes.ledger.choose({Slot(0), Slot(1)}, Slot(0)) is None
    seal = nodes.keepers[0].seals["step-1", 1]
    nodes.hear(1, KeeperReport(event="kept", held=(Held(seal=seal, parts=(NodeRank(1),)),)))
    assert chosen_name(nodes.ledger.choose({Slot(0), Slot(1)}, Slot(0))) == "step-1"


class Rounds:
    """Has all takers of a round take at the same time, and counts how often each node gives something."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.given: list[Counter[int]] = []

    def copy(self, name: str) -> None:
        """Save a checkpoint, and take its copies round by round."""
        for keeper in self.nodes.keepers.values():
            keeper.silent = {"take"}
        self.nodes.save(name)
        done = dict.fromkeys(self.nodes.keepers, 0)
        while True:
            taken = [(slot, self.nodes.orders(slot, "take")[done[slot] :]) for slot in done]
            done = {slot: done[slot] + len(orders) for slot, orders in taken}
            if not any(orders for _, orders in taken):
                return
            self.given.append(
                Counter(order.sources[0].port - PORT for _, orders in taken for order in orders)
            )
            for slot, orders in taken:
                for order in orders:
                    self.nodes.keepers[slot].on_take(order)
            self.nodes.settle()


def test_copies_on_all_of_many_nodes_do_not_all_come_from_the_one_that_wrote() -> None:
    """What one node has written is on eight after three rounds, and each node gives it to one at a time."""
    nodes = Nodes(ranks=8, copies=0)
    nodes.ranks = {slot: rank for slot, rank in nodes.ranks.items() if slot == 0}
    nodes.begin(2)
    rounds = Rounds(nodes)
    rounds.copy("step-1")
    assert nodes.state("step-1") == "safe"
    assert [sorted(given.values()) for given in rounds.given] == [[1], [1, 1], [1, 1, 1, 1]]


@pytest.mark.parametrize("ranks", [6, 9])
def test_copies_of_all_parts_on_all_nodes(ranks: int) -> None:
    """Every node takes the others' parts once, and none gives much more than it takes."""
    nodes = Nodes(ranks=ranks, copies=0)
    rounds = Rounds(nodes)
    rounds.copy("step-1")
    assert nodes.state("step-1") == "safe"
    assert [len(nodes.orders(slot, "take")) for slot in nodes.keepers] == [ranks - 1] * ranks
    given = sum(rounds.given, Counter())
    assert max(given.values()) <= 1.5 * ranks, rounds.given


def test_a_copy_that_no_node_can_take_now_is_taken_later() -> None:
    """Each time after a longer while; a newer checkpoint does not wait for it."""
    nodes = Nodes(ranks=2)
    nodes.keepers[1].full = True
    nodes.keepers[1].silent = {"take"}
    nodes.save("step-1")
    for number in range(3):
        nodes.keepers[1].on_take(nodes.orders(1, "take")[-1])
        nodes.settle()
        assert nodes.orders(1, "take")[-1].serial == number + 1
    nodes.keepers[1].full = False
    nodes.keepers[1].on_take(nodes.orders(1, "take")[-1])
    nodes.settle()
    assert nodes.seen == [("step-1", "copying", "No space left on device"), ("step-1", "safe", "")]


def test_a_copy_is_not_asked_for_without_end() -> None:
    """Nor when there is a newer checkpoint."""
    nodes = Nodes(ranks=2)
    nodes.keepers[1].full = True
    nodes.save("step-1")
    assert [order.serial for order in nodes.orders(1, "take")] == list(range(MAX_RETRIES + 1))
    nodes.keepers[1].silent = {"take"}
    nodes.save("step-2")
    refused = nodes.orders(1, "take")[-1]
    nodes.keepers[1].on_take(refused)
    nodes.settle()
    nodes.save("step-3")
    nodes.keepers[1].on_take(nodes.orders(1, "take")[-2])
    nodes.settle()
    names = [(order.name, order.serial) for order in nodes.orders(1, "take")[MAX_RETRIES + 1 :]]
    assert names == [("step-2", 0), ("step-2", 1), ("step-3", 0)]


def test_a_mark_of_what_is_known_is_answered_and_changes_nothing() -> None:
    """The end of a run waits for what was marked: it is sealed already, or it was skipped."""
    nodes = Nodes(ranks=2)
    nodes.save("step-1")
    nodes.hear(1, KeeperReport(event="marked", attempt=1, name="step-1", identity="?"))
    assert nodes.ledger.orders == [(1, KeeperOrder(do="skip", attempt=1, name="step-1"))]
    assert [one["state"] for one in nodes.ledger.states] == ["safe"]
