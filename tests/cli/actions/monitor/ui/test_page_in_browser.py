"""The page of `ui` in a real browser: it can be read and used by the keyboard, and what nodes send does nothing."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from browser import NEEDS_BROWSER, Browser, start_browser
from loopback import LoopbackServer
from page_client import find_known, serve_page
from waiting import wait_until

from clusterctl.cli.actions.monitor.report import report_run
from clusterctl.cli.actions.monitor.status import Diagnosis
from clusterctl.cli.actions.monitor.ui import fragments, overview
from clusterctl.cli.actions.monitor.ui.feed import View, WholeLog
from clusterctl.client.rpc.cluster import Answers
from clusterctl.client.run_evidence import Records
from clusterctl.console.run.listing import summarize_runs
from clusterctl.console.run.status import describe_run, render_age
from clusterctl.console.text import sanitize
from clusterctl.plans.diagnose.evidence import Entry, Frame, GroupRecord, NodeEvidence, RankEvidence
from clusterctl.plans.diagnose.hang import judge
from clusterctl.plans.diagnose.kept import STALL, KeptDiagnosis
from clusterctl.plans.facts.utilization import NodeUsage, parse_sample
from clusterctl.plans.report.markup import Html
from clusterctl.plans.report.result import render_head
from clusterctl.plans.runs.history import History, Launched, Machine, NodeRecord, ScalarPoint, Scalars
from clusterctl.plans.runs.rows import list_node_rows
from clusterctl.plans.runs.selection import Owner
from clusterctl.plans.runs.state import Parts, parse_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import use_language

pytestmark = [
    pytest.mark.process,
    NEEDS_BROWSER,
]
RUN = RunId("digits-20261123T070708-923c")
NOW = time.time()
ATTACKS = (
    "<script>window.hacked=1;alert(1)</script></script>",
    "\"><img src=https://evil.test/x onerror='window.hacked=1;alert(1)'>",
    "</pre></style><style>body{display:none!important}*{background:url(https://evil.test/css)}</style>",
    '<a href="javascript:window.hacked=1">click</a><svg onload=alert(1)><iframe src=//evil.test>',
    "\u202egnp.exe\u202d \u2066hidden\u2069 \u200b \x1b[2J\x1b]0;title\x07\x1b[31mred",
    "</td></tr></table></div><dialog open>stop?</dialog>",
)


@dataclass
class Contents:
    """What a page shows, drawn from plain values as from those of nodes; notes which buttons were pressed."""

    names: tuple[str, ...] = ("gpu01", "gpu02")
    text: str = "digits"
    lines: tuple[str, ...] = ("step 1 loss=2.5",)
    pressed: list[str] = field(default_factory=list)
    views: list[View] = field(default_factory=list)

    def follow(self, view: View) -> None:
        """Show all parts."""
        self.views.append(view)
        parts = make_parts(self.names, self.text)
        runs = summarize_runs(dict.fromkeys([RUN, RunId(f"{RUN[:-1]}d")], parts), Owner("me"), self.names)
        view.publish_rows("runs", overview.render_run_rows(runs))
        view.publish_rows("machines", overview.render_machine_rows(make_machines(), {}, {"cpu02": NOW}, 15.0))
        view.publish("machines-strip", overview.render_strip(make_machines(), {}, {"cpu02": NOW}, 15.0))
        view.publish("machines-note", overview.render_shared_note())
        run = replace(report_run(RUN, parts, None, {}, self._records(), "cctl"), hang=self._hang())
        view.publish("head", render_head(run, "h2"))
        view.publish("summary", fragments.render_summary(run, "", describe_run(RUN, parts, self.text)))
        judgement = judge(make_ranks(self.names), (), len(self.names))
        rows_of_nodes = list_node_rows(parts, {}, None, render_age, judgement)
        view.publish("nodes", fragments.render_nodes(rows_of_nodes))
        fragments.publish_plots(view, run)
        for rank, name in enumerate(self.names[:4]):
            # of a stream only the lines are foreign: the names are those of the inventory
            view.add_lines(sanitize(name), rank, "stderr" if rank else "", map(sanitize, self.lines))
        while view.pause(0.01):
            pass

    def _records(self) -> Records:
        return Records({name: make_record(name, self.text) for name in self.names[:12]}, {})

    def _hang(self) -> KeptDiagnosis:
        ranks = tuple(make_ranks(self.names))
        return KeptDiagnosis(STALL, 600.0, judge(ranks, (), len(ranks)), ranks[1:2], ranks)

    def find(self, text: str) -> RunId:
        """Find the run by its short id too."""
        return find_known(text)

    def read_log(self, run_id: RunId) -> WholeLog:
        """Return the lines."""
        self.pressed.append(f"log {run_id}")
        return WholeLog(f"{sanitize(line)}\n" for line in self.lines)

    def diagnose(self, run_id: str) -> Html:
        """Answer as `diagnose` does."""
        self.pressed.append(f"diagnose {run_id}")
        ranks = make_ranks(self.names)
        nodes = {rank.node: NodeEvidence(rank.node, (rank,), 0.1) for rank in ranks}
        return fragments.render_diagnosis(
            Diagnosis(Answers(nodes, {}), judge(ranks, (), len(ranks)), {}, len(ranks)),
            "14:03:05",
            "clusterctl",
        )

    def stop(self, run_id: str) -> Html:
        """Answer as `stop` does."""
        self.pressed.append(f"stop {run_id}")
        return fragments.render_lines([f"{run_id}: stopped"])


def make_machines() -> list[NodeUsage]:
    """Make a node with GPUs, one without, and one that is down."""
    gpu = {"busy": 57, "memory_used": 40_000, "memory": 81_559, "temperature": 61}
    gpus = [{"index": number, **gpu} for number in range(8)]
    busy = parse_sample({"cpu": 0.4, "memory": 64 << 30, "memory_free": 32 << 30, "gpus": gpus})
    plain = parse_sample({"cpu": 0.9, "memory": 64 << 30, "memory_free": 32 << 30})
    nodes = [
        Node(name=name, index=number, host=f"10.0.0.{number}")
        for number, name in enumerate(("gpu01", "cpu01", "cpu02"))
    ]
    assert busy is not None and plain is not None
    return [
        NodeUsage(nodes[0]).with_sample(busy, time.monotonic() + 1000),
        NodeUsage(nodes[1]).with_sample(plain, time.monotonic() + 1000),
        NodeUsage(nodes[2]).with_error("CC-SSH-013 no connection"),
    ]


def make_ranks(names: tuple[str, ...]) -> list[RankEvidence]:
    """Make ranks of which all but the second wait for it."""
    entry = Entry(4, None, "all_reduce", "[[1]]", "Float", done=False, age=601.0)
    waits = {
        "frames": (Frame("train.py", 12, "step"),),
        "groups": (GroupRecord("0", "default_pg", (), (entry,)),),
    }
    found: list[RankEvidence] = []
    for rank, name in enumerate(names):
        more: dict[str, Any] = waits if rank != 1 else {"frames": (Frame(f"{name}.py", 4, name),)}
        found.append(RankEvidence(rank, name, process="S", stack=f"in {name}", **more))
    return found


def make_parts(names: tuple[str, ...], text: str) -> Parts:
    """Make a run with a rank on each node."""
    return {
        name: parse_state(
            Untrusted(
                {
                    "run": RUN, "job": text, "cluster": "lab", "nnodes": len(names), "state": "RUNNING",
                    "since": NOW - 60, "submitted": NOW - 70, "began": NOW - 60, "launched_by": text,
                    "launched_from": text, "node": name, "node_rank": number, "world_size": len(names),
                    "reason": text if text != "digits" else "",
                    "ranks": {str(number): {"local_rank": 0, "pid": 7}},
                }
            )
        )
        for number, name in enumerate(names)
    }  # fmt: skip


def make_record(name: str, text: str) -> NodeRecord:
    """Make samples of a minute, and a loss."""
    times = tuple(NOW - 60 + number for number in range(60))
    wave = tuple(50 + 40 * math.sin(number / 7) for number in range(60))
    columns: dict[tuple[str, str, str], tuple[float | None, ...]] = {
        ("node", "", "cpu"): tuple(value / 100 for value in wave),
        ("nic", text, "received"): tuple(value * 1e6 for value in wave),
        ("gpu", "0", "busy"): wave,
    }
    losses = tuple(ScalarPoint(NOW - 60 + number, number, 3 / (1 + number)) for number in range(50))
    return replace(
        NodeRecord(name),
        history=History(times, columns, 1.0, Machine(8, 64 << 30, ((text, 80e9),))),
        launched=Launched((text,), about={"code": text}),
        scalars=(Scalars(text, text, 50, losses),),
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this file: its start takes longest."""
    with start_browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def show_run(browser: Browser, address: str, width: int = 1280, *, dark: bool = False) -> None:
    """Open the page of the run, and wait until all of it is there."""
    browser.show("about:blank")  # else another part of the same page would load nothing
    browser.show(f"{address}#{RUN}", width, dark=dark)
    for name in ("summary", "nodes", "lines", "numbers", "about"):
        browser.wait_for(f"document.getElementById('{name}').firstChild", f"{name} of the run")


@pytest.mark.parametrize(
    ("width", "dark", "language"),
    [(1280, False, "en"), (1280, True, "zh"), (400, False, "zh"), (400, True, "en")],
)
def test_everything_can_be_read(
    browser: Browser, request: pytest.FixtureRequest, width: int, dark: bool, language: str
) -> None:
    """Nothing is cut or wider than the window; axe-core finds nothing, contrast included; no policy is broken."""
    request.addfinalizer(lambda: use_language("en"))
    use_language(language)
    with serve_page(Contents(), "lab") as server:
        browser.show(server.url, width, dark=dark)
        browser.wait_for(
            "document.querySelector('#runs a') && document.querySelector('#machines tr')", "the list"
        )
        found = [*browser.find_broken_layout(), *browser.find_barriers()]
        show_run(browser, server.url, width, dark=dark)
        browser.run("document.getElementById('diagnose').click()")
        browser.wait_for("document.querySelector('#answer table')", "the answer")
        browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        found += [*browser.find_broken_layout(), *browser.find_barriers()]
        browser.run("document.getElementById('stop').click()")
        found += [*browser.find_broken_layout(), *browser.find_barriers(), *browser.list_complaints()]
    assert found == []


def test_a_fold_is_filled_once_it_is_open(browser: Browser) -> None:
    """That of the suspect's node is from the beginning; the numbers over time come once they are chosen."""
    with serve_page(Contents(), "lab") as server:
        show_run(browser, server.url)
        browser.wait_for("document.querySelector('#plots [data-fold=\"node/gpu02\"] figure')", "its plots")
        assert browser.run("return document.querySelectorAll('[data-fold=more] figure').length") == 0
        browser.run("document.querySelector('[data-fold=more] summary').click()")
        browser.wait_for("document.querySelector('[data-fold=more] figure')", "the plots of the fold")
        shown = (
            "return [...document.querySelectorAll('.numbers figure')].filter(one => one.offsetParent).length"
        )
        axis = "return document.querySelector('.numbers > .over-{} .drawing').textContent.includes('step')"
        assert browser.run(shown) == 1 and browser.run(axis.format("steps"))
        browser.run("document.querySelector('.choose-time').click()")
        browser.wait_for("document.querySelector('.numbers > .over-time figure')", "the loss over the time")
        assert browser.run(shown) == 1 and not browser.run(axis.format("time"))


def test_a_page_that_connects_again_has_no_row_of_before(browser: Browser) -> None:
    """A run that went away meanwhile goes away; the others stay, as does what a person has chosen."""
    contents = Contents()
    with serve_page(contents, "lab") as server:
        browser.show(server.url)
        browser.wait_for("document.querySelectorAll('#runs tr').length === 2", "both runs")
        browser.run("state.stream.close(); document.querySelector('#runs tr').dataset.old = 'yes'")
        runs = summarize_runs({RUN: make_parts(contents.names, contents.text)}, Owner("me"), contents.names)
        contents.views[0].publish_rows("runs", overview.render_run_rows(runs))
        assert browser.run("return document.querySelectorAll('#runs tr').length") == 2
        browser.run("connect()")
        browser.wait_for("document.querySelectorAll('#runs tr').length === 1", "the one that is left")
        assert browser.run("return document.querySelector('#runs tr').dataset.id") == RUN
        assert browser.run("return document.querySelectorAll('#machines tr').length") == 3


def focused(browser: Browser) -> str:
    """Give the id of what has the focus, or its text."""
    return str(browser.run("return document.activeElement.id || document.activeElement.textContent"))


def test_the_keyboard_is_enough(browser: Browser) -> None:
    """Tab goes through the page in its order, visibly; the question before a stop keeps the focus, and Escape is no."""
    contents = Contents()
    with serve_page(contents, "lab") as server:
        browser.show(server.url)
        browser.wait_for("document.querySelector('#runs a')", "the list of runs")
        for _ in range(6):  # past the link to the contents, three filters, and the table, which scrolls
            browser.press("Tab")
        assert browser.run("return document.activeElement.hash") == "#923c"
        assert (
            browser.run("return getComputedStyle(document.activeElement.closest('tr')).outlineStyle")
            != "none"
        )
        browser.press("Enter")
        browser.wait_for("document.getElementById('about').firstChild", "the run")
        browser.run("document.activeElement.blur(); document.getSelection().removeAllRanges()")
        steps = browser.walk()
        places = [step["place"] for step in steps]
        assert places == sorted(places) and [step for step in steps if not step["visible"]] == []
        assert [step["tag"] for step in steps].count(
            "input"
        ) == 8  # rank, node, four switches, the search, and the x axis
        browser.run("document.getElementById('stop').focus()")
        browser.press("Enter")
        browser.wait_for("document.getElementById('ask').open", "the question")
        assert focused(browser) == "keep"
        browser.press("Escape")
        browser.wait_for("!document.getElementById('ask').open", "no")
        assert focused(browser) == "stop" and contents.pressed == []
        browser.press("Enter")
        browser.press("Enter")  # the answer that is chosen is no
        browser.wait_for("!document.getElementById('ask').open", "no")
        assert contents.pressed == []
        browser.press("Enter")
        browser.press("Tab")
        assert focused(browser) == "confirm"
        browser.press("Enter")
        wait_until(lambda: contents.pressed == [f"stop {RUN}"], "yes")
        browser.wait_for("document.getElementById('answer').textContent.includes('stopped')", "the answer")


def test_what_nodes_send_does_nothing(browser: Browser) -> None:
    """No script, dialog, request, style or title, whatever names, lines and numbers are called; they can be seen."""
    text = " ".join(ATTACKS)
    contents = Contents(names=(text, "gpu02"), text=text, lines=(*ATTACKS, "x" * (1 << 20)))
    with serve_page(contents, text) as server:
        browser.show(server.url, 400)
        browser.wait_for("document.querySelector('#runs a')", "the list of runs")
        found = browser.find_broken_layout()
        show_run(browser, server.url, 400)
        browser.run("document.getElementById('diagnose').click()")
        browser.wait_for("document.querySelector('#answer table')", "the answer")
        browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        found += browser.find_broken_layout()
        seen: dict[str, Any] = browser.run(
            "return {hacked: typeof window.hacked, text: document.body.innerText, title: document.title,"
            " shown: getComputedStyle(document.body).display, open: document.querySelectorAll('dialog').length,"
            " active: document.querySelectorAll('style,iframe,img,object,embed,form,base,svg[onload]').length,"
            " links: [...document.querySelectorAll('a:not(#download)')].filter(one => !one.hash"
            " && one.getAttribute('href') !== '#').length, log: document.getElementById('download').href,"
            " longest: Math.max(...[...document.querySelectorAll('.what')].map(one => one.textContent.length))}"
        )
        requests = {address.split("?")[0] for address in browser.list_requests()}
        assert (seen["hacked"], seen["shown"], seen["open"], seen["active"]) == ("undefined", "block", 1, 0)
        assert seen["log"] == f"{server.url}log?run={RUN}"
        assert seen["links"] == 0 and "title" not in seen["title"] and seen["longest"] <= 1000
        assert "<script>window.hacked=1;alert(1)</script>" in seen["text"]
        assert "\u202e" not in seen["text"] and "\x1b" not in seen["text"]
        assert all(address.startswith((server.url, "about:")) for address in requests)
        assert browser.list_complaints() == []  # an open dialog would have failed each command above
        assert [one for one in found if "window" in one] == []


class Forward:
    """A forwarded port, as `ssh -L` makes one; it can be cut, and be there again."""

    def __init__(self, port: int) -> None:
        self._port, self._pairs, self.is_up = port, list[socket.socket](), True
        self.server = LoopbackServer(self._carry)

    def _carry(self, visitor: socket.socket) -> None:
        if not self.is_up:
            return
        with socket.create_connection(("127.0.0.1", self._port)) as far:
            self._pairs += [visitor, far]
            threading.Thread(target=self._copy, args=(far, visitor), daemon=True).start()
            self._copy(visitor, far)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Cut all connections, and let no new one in."""
        self.is_up = False
        for end in self._pairs:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_a_connection_that_is_cut_comes_back(browser: Browser) -> None:
    """The page says so, and goes on after the last line it has: none is missing, none is there twice."""
    contents = Contents()
    with serve_page(contents, "lab") as server:
        forward = Forward(server.port)
        show_run(browser, server.url.replace(f":{server.port}/", f":{forward.server.port}/"))
        browser.wait_for("document.getElementById('lines').childElementCount === 2", "the first lines")
        forward.cut()
        browser.wait_for("document.getElementById('connection').className === 'bad'", "it is cut")
        view = next(view for view in contents.views if view.run_id == RUN)
        view.add_lines("gpu01", 0, "", ["while it was cut"])
        forward.is_up = True
        browser.wait_for("document.getElementById('connection').className === 'good'", "it is back")
        view.add_lines("gpu01", 0, "", ["after that"])
        browser.wait_for("document.getElementById('lines').textContent.includes('after that')", "new lines")
        shown = browser.run(
            "return [...document.querySelectorAll('#lines .what')].map(one => one.textContent)"
        )
        assert shown == ["step 1 loss=2.5", "step 1 loss=2.5", "while it was cut", "after that"]
        forward.server.close()


def test_200_nodes_fold(browser: Browser) -> None:
    """To a row for those that are alike, and one for the rank that the others wait for."""
    names = tuple(f"gpu{number:03}" for number in range(200))
    with serve_page(Contents(names=names), "lab") as server:
        show_run(browser, server.url, 400)
        rows = browser.run(
            "return [...document.querySelectorAll('#nodes tbody tr')].map(one => one.innerText)"
        )
        assert len(rows) == 2 and "gpu[000,002-199]" in rows[0] and "r1 running, suspect" in rows[1]
        assert browser.find_broken_layout() == []
