"""Whether a silent node is gone: what follows from who got an answer, and connections to ports as they are."""

from __future__ import annotations

import errno
import socket

import pytest

from clusterctl.node.gang.node_check import (
    NodeCheck,
    Outcome,
    Suspicion,
    Target,
    choose_witnesses,
    judge_error,
)
from clusterctl.node.runtime.event_loop import Loop
from clusterctl.protocol.ranks import Slot

HUB, ONE, TWO, THREE = map(Slot, range(4))
ASKED = Suspicion(frozenset({HUB, ONE, TWO}))
ALL = {HUB, ONE, TWO}


@pytest.mark.unit
@pytest.mark.parametrize(
    ("reports", "present", "gone"),
    [
        ([], ALL, False),
        ([(ONE, False), (TWO, False)], ALL, False),  # the hub's own check is still running, or got an answer
        ([(HUB, False)], ALL, False),
        ([(HUB, False), (ONE, False)], ALL, False),
        ([(HUB, False), (ONE, False), (TWO, False)], ALL, True),
        ([(HUB, False), (ONE, False), (TWO, True)], ALL, False),
        ([(HUB, False), (ONE, True), (ONE, False), (TWO, False)], ALL, False),  # an answer stays one
        ([(HUB, False), (ONE, False), (THREE, True)], ALL - {TWO}, True),  # of one that nobody asked
        ([(HUB, False), (ONE, False)], ALL - {TWO}, True),  # a witness that is silent itself
        ([(HUB, False), (ONE, True)], ALL - {ONE, TWO}, False),  # it had an answer before it fell silent
        ([(HUB, False)], {HUB}, True),  # nobody else is left
    ],
)
def test_a_node_is_gone_when_it_answers_nobody(
    reports: list[tuple[Slot, bool]], present: set[Slot], gone: bool
) -> None:
    """No witness decides against the hub's own check, and one that got an answer is enough to wait."""
    suspicion = ASKED
    for slot, answers in reports:
        suspicion = suspicion.record(slot, answers=answers)
    assert suspicion.is_gone(present) is gone


@pytest.mark.unit
def test_witnesses_are_the_next_nodes() -> None:
    """So that a node that reports falsehoods about one is not asked about all."""
    others = set(map(Slot, (1, 2, 4, 5)))
    assert choose_witnesses(THREE, others, 6) == [4, 5]
    assert choose_witnesses(Slot(5), others - {5}, 6) == [1, 2]
    assert choose_witnesses(ONE, [], 2) == []


@pytest.mark.unit
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (0, Outcome.ANSWERED),
        (errno.ECONNREFUSED, Outcome.ANSWERED),
        (errno.ETIMEDOUT, Outcome.SILENT),
        (errno.EHOSTUNREACH, Outcome.SILENT),  # also what a router or firewall sends in its place
        (errno.EADDRNOTAVAIL, Outcome.SILENT),
        (errno.EPERM, Outcome.UNKNOWN),  # our own firewall
        (errno.EMFILE, Outcome.UNKNOWN),
    ],
)
def test_only_its_kernel_accepts_or_refuses(error: int, outcome: Outcome) -> None:
    """What could not be found out delays a loss, and does not show that the node ever answers."""
    assert judge_error(error) is outcome


def check(*rounds: list[Target], source: str = "127.0.0.1") -> Outcome:
    """Check a node, with a real loop."""
    loop, results = Loop(), []

    def finish(outcome: Outcome) -> None:
        results.append(outcome)
        loop.stop()

    NodeCheck(loop, ONE, rounds, source).start(0.4, finish)
    loop.run()
    assert len(results) == 1
    assert not loop._readers
    assert not loop._writers
    return results[0]


@pytest.mark.process
def test_an_accepted_and_a_refused_connection_are_answers() -> None:
    """Whatever comes back, its kernel has sent it; one port of many is enough."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        port = server.getsockname()[1]
        assert check([("127.0.0.2", port)]) is Outcome.ANSWERED
    assert check([("127.0.0.2", port)]) is Outcome.ANSWERED


@pytest.mark.process
def test_where_nothing_comes_back() -> None:
    """A full queue drops what comes, as a node without power does; a missing address of ours is a cut."""
    with socket.create_server(("127.0.0.2", 0), backlog=0) as full:
        target = ("127.0.0.2", full.getsockname()[1])
        with socket.create_connection(target):
            assert check([target], [target]) is Outcome.SILENT
            assert check([target, ("127.0.0.2", 1)]) is Outcome.ANSWERED
            assert check([target], [("127.0.0.2", 1)]) is Outcome.ANSWERED
    assert check([("127.0.0.2", 1)], source="192.0.2.1") is Outcome.SILENT


@pytest.mark.process
def test_an_answer_ends_a_check() -> None:
    """The ports of later rounds, as that of sshd in a check of a node that responds, see no connection."""
    with socket.create_server(("127.0.0.2", 0)) as server:
        server.setblocking(False)
        assert check([("127.0.0.2", 1)], [server.getsockname()]) is Outcome.ANSWERED
        with pytest.raises(BlockingIOError):
            server.accept()
