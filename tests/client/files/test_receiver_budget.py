"""What is free on the disk here, among honest nodes and one that announces what it never sends."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from clusterctl.client.files.receiver import HONOURED, HONOURED_RATE, DiskBudget
from clusterctl.errors import NodeError

Usage = namedtuple("Usage", "total used free")


class Disk:
    """A disk of this many free bytes, and a clock that goes on while a download waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
        self.free, self.now, self.waits = free, 0.0, 0
        monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, self.free))
        self.budget = DiskBudget(Path("/nowhere"), lambda: self.now)
        monkeypatch.setattr(self.budget._changed, "wait", self.wait)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.waits += 1
        self.now += 10 * seconds

    def write(self, expect: object, count: int) -> None:
        """Receive and write."""
        assert callable(expect)
        expect(count)
        self.free -= count


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Give one of 100 bytes."""
    return Disk(monkeypatch, 100)


def test_an_absurd_size_is_reported_before_a_byte_comes(disk: Disk) -> None:
    """There is no room for it, and it is the node's alone: the others are let in."""
    with pytest.raises(NodeError) as caught, disk.budget.expecting(101):
        pass
    assert caught.value.code == "CC-PULL-002"
    with disk.budget.expecting(100):
        assert not disk.waits


def test_who_announces_much_and_sends_nothing_keeps_nobody_out(disk: Disk) -> None:
    """The other begins after a moment, gets all of its room, and the first what is left."""
    with disk.budget.expecting(90) as liar:
        with disk.budget.expecting(60) as honest:
            assert HONOURED <= disk.now <= HONOURED + 20
            disk.write(liar, 40)
            with pytest.raises(NodeError) as caught:
                liar(1)
            disk.write(honest, 60)
        assert (caught.value.code, disk.free) == ("CC-PULL-002", 0)


def test_who_gets_on_keeps_its_room(disk: Disk) -> None:
    """The second waits as long as the first will have sent all within an hour, and no longer."""
    with disk.budget.expecting(90) as first:
        disk.write(first, 10)
        with disk.budget.expecting(15):
            assert disk.now >= HONOURED_RATE * 10 / 80
        disk.write(first, 75)


def test_what_was_not_sent_is_free_again(disk: Disk) -> None:
    """At the end of one download only what it wrote is gone."""
    with disk.budget.expecting(90) as first:
        disk.write(first, 30)
    with disk.budget.expecting(70):
        assert not disk.waits
