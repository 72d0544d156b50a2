"""What open pages show: lines within bounds, each part only if it is new, and nothing while no page is open."""

from __future__ import annotations

import sys
import threading
from contextlib import closing

import pytest
from waiting import HANG

from clusterctl.cli.actions.monitor.ui import feed as feeds
from clusterctl.cli.actions.monitor.ui import listing
from clusterctl.cli.actions.monitor.ui.feed import (
    FOLD,
    MAX_LINE,
    MIN_LINES,
    Cursor,
    Feed,
    LineBuffer,
    TooManyError,
    View,
)
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.plans.report.markup import Html, element
from clusterctl.specs.inventory.model import Inventory


def test_a_talkative_node_does_not_push_out_the_others() -> None:
    """Each node keeps its share, long lines are cut, and what is given comes in order."""
    buffer = LineBuffer(200)
    buffer.add("gpu01", 0, "", ["quiet"])
    buffer.add("gpu02", 1, "", ["x" * 5000] * 1000)
    lines = buffer.after(0, 500)
    assert [line.number for line in lines] == [1, *range(902, 1002)]
    assert len(lines[-1].text) == MAX_LINE
    assert [line.number for line in buffer.after(1000)] == [1001]
    for number in range(100):
        buffer.add(f"node{number}", 0, "", ["x"] * 100)
    assert len(buffer.after(0, 10**6)) == 1 + 101 * MIN_LINES


def test_a_page_gets_a_part_once() -> None:
    """Only the newest of each counts, and the same again is nothing new."""
    view, cursor = View("a"), Cursor()
    view.publish("summary", element("p", "1"))
    view.publish("summary", element("p", "2"))
    assert view.read(cursor, 0) == ({"summary": "<p>2</p>"}, [])
    view.publish("summary", element("p", "2"))
    assert view.read(cursor, 0) == ({}, [])
    view.close()
    assert view.read(cursor, 0) is None


def test_rows_that_are_gone_are_not_kept() -> None:
    """A page that has one receives that once, and a row that comes back is shown."""
    view, cursor = View(""), Cursor()
    for number in range(1000):
        view.publish_rows("machines", {f"gpu{number}": element("tr", "1"), "here": element("tr", "2")})
        view.read(cursor, 0)
    assert set(view._parts) == set(cursor.versions) == {"machines/gpu999", "machines/here", "machines/"}
    view.publish_rows("machines", {})
    assert view.read(cursor, 0) == ({"machines/gpu999": "", "machines/here": ""}, [])
    assert view.read(cursor, 0) == ({}, [])
    view.publish_rows("machines", {"here": element("tr", "2")})
    assert view.read(cursor, 0) == ({"machines/here": "<tr>2</tr>"}, [])


def test_what_is_folded_is_sent_once_it_is_open() -> None:
    """Not before, then with each change, and once more that it is gone; a name that was made up opens nothing."""
    view, cursor = View("a"), Cursor()
    view.publish_rows(FOLD, {"node/gpu01": element("p", "1"), "more": element("p", "2")})
    assert view.read(cursor, 0) == ({}, [])
    view.open("node/gpu01")
    view.open("node/gpu02")
    assert view.read(cursor, 0) == ({"fold/node/gpu01": "<p>1</p>"}, [])
    view.publish_rows(FOLD, {"node/gpu02": element("p", "3"), "more": element("p", "4")})
    assert view.read(cursor, 0) == ({"fold/node/gpu01": ""}, [])
    view.open("more")
    assert view.read(cursor, 0) == ({"fold/more": "<p>4</p>"}, [])


def test_two_tables_are_filled_at_the_same_time() -> None:
    """By a thread each, as the first page is."""
    view, errors, usual = View(""), list[Exception](), sys.getswitchinterval()

    def fill(table: str) -> None:
        try:
            for begin in range(200):
                view.publish_rows(table, {f"{begin + number}": element("tr", "1") for number in range(20)})
        except RuntimeError as error:
            errors.append(error)

    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=fill, args=(table,)) for table in ("runs", "machines", "others")]
        for one in threads:
            one.start()
        for one in threads:
            one.join(HANG)
    finally:
        sys.setswitchinterval(usual)
    assert errors == [] and len(view._parts) == 63


def test_samples_that_come_no_more_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page says why instead."""
    monkeypatch.setattr(listing, "UtilizationMonitor", lambda *_, **__: 1 // 0)
    view = View("")
    view.publish_rows("machines", {"gpu01": element("tr", "1")})
    inventory = Inventory(file="lab.yaml", cluster="lab", nodes=())
    listing.ListFollower(Cluster(print), inventory, view, list, "clusterctl")._try_watching_machines()  # type: ignore[arg-type]  # no runs are asked for
    found = view.read(Cursor(), 0)
    assert found is not None and list(found[0]) == ["problem", "machines/"]
    assert "ZeroDivisionError" in found[0]["problem"]


@pytest.mark.parametrize(
    "event_id", ["", "x", "{epoch}", "{epoch}.", "{epoch}.x", "{epoch}.-1", "0.1", "{epoch}.²"]
)
def test_an_event_that_was_never_sent_is_the_beginning(event_id: str) -> None:
    """A browser repeats what it was given, another program anything."""
    view = View("a")
    view.add_lines("gpu01", 0, "", ["x"])
    assert view.resume(event_id.format(epoch=view.epoch)) == Cursor()
    assert view.resume(f"{view.epoch}.1").line == view.resume(f"{view.epoch}.999").line == 1


class Counting:
    """A source that counts how often it would ask the nodes."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.ended: list[str] = []

    def follow(self, view: View) -> None:
        """Ask again and again."""
        self.asked.release()
        while view.pause(0.0):
            self.asked.release()
        self.ended.append(view.run_id)

    def diagnose(self, run_id: str) -> Html:
        """Do nothing."""
        return element("p", run_id)

    stop = diagnose


def test_nothing_is_asked_while_no_page_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The view waits for its page to connect again, without asking."""
    monkeypatch.setattr(feeds, "TICK", 0.01)
    source = Counting()
    with closing(Feed(source)) as feed:
        with feed.watch("a") as view:
            for _ in range(3):
                assert source.asked.acquire(timeout=HANG)
        while source.asked.acquire(timeout=0.1):  # one that was under way
            pass
        assert not source.asked.acquire(timeout=0.1) and not source.ended
        with feed.watch("a") as same:
            assert same is view and source.asked.acquire(timeout=HANG)


def test_a_view_without_a_page_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many runs as pages show at a time are followed, not more."""
    monkeypatch.setattr(feeds, "MAX_VIEWS", 2)
    with closing(Feed(Counting())) as feed, feed.watch("a"):
        with feed.watch("b") as view, pytest.raises(TooManyError), feed.watch("c"):
            pass
        with feed.watch("c"):
            assert view.read(Cursor(), HANG) is None
