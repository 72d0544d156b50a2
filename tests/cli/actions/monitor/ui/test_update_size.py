"""How many bytes an update of a running page takes on its connection, and the page of a large run in all."""

from __future__ import annotations

import json
import random
import time
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from urllib.parse import urlsplit

import pytest
from page_client import find_known, press, serve_page
from waiting import HANG

from clusterctl.cli.actions.monitor.report import report_run
from clusterctl.cli.actions.monitor.ui.feed import Cursor, View, WholeLog
from clusterctl.cli.actions.monitor.ui.fragments import (
    publish_plots,
    render_lines,
    render_nodes,
    render_summary,
)
from clusterctl.cli.actions.monitor.ui.server import _events
from clusterctl.cli.actions.monitor.ui.skeleton import render_page
from clusterctl.cli.actions.monitor.ui.source import FEWER_POINTS, POINTS
from clusterctl.client.run_evidence import Records
from clusterctl.console.run.status import render_age
from clusterctl.plans.report.markup import Html
from clusterctl.plans.report.result import render_head
from clusterctl.plans.runs.history import History, Machine, NodeRecord, ScalarPoint, Scalars, Values
from clusterctl.plans.runs.rows import list_node_rows
from clusterctl.plans.runs.state import parse_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted

RUN = RunId("digits-20261123T070708-923c")
GPUS = 8
MAX_UPDATE, MAX_PAGE = 20_000, 300_000  # bytes
NUMBERS = ("loss", "lr", "grad_norm", "tokens_per_second", "accuracy")
QUANTITIES = {
    "gpu": ("busy", "memory", "power", "temperature"),
    "rank": ("rss", "cpu"),
    "nic": ("received", "sent"),
    "disk": ("read", "written"),
    "node": ("cpu", "memory"),
}


def make_record(name: str, number: int, points: int, seed: int) -> NodeRecord:
    """Make samples and numbers that nothing can be foreseen of, so that they are packed as badly as can be."""
    chance, began = random.Random(f"{name} {seed}"), time.time() - 3600

    def draw() -> Values:
        return tuple(100 * chance.random() for _ in range(points))

    columns = {
        (group, member, quantity): draw()
        for group, quantities in QUANTITIES.items()
        for quantity in quantities
        for member in (
            map(str, range(GPUS)) if group in ("gpu", "rank") else ["eth0" if group == "nic" else ""]
        )
    }
    times = tuple(began + 3600 * point / points for point in range(points))
    scalars = tuple(
        Scalars(one, "log", points, tuple(ScalarPoint(time, 10 * step, value)
                for step, (time, value) in enumerate(zip(times, draw(), strict=True))))
        for one in NUMBERS
    )  # fmt: skip
    history = History(times, columns, 22.5, Machine(96, 64 << 30, (("H100", 80e9),) * GPUS))
    return NodeRecord(name, history, scalars=() if number else scalars)


def publish(view: View, nodes: int, points: int, seed: int) -> None:
    """Show all parts of a run that trains."""
    names = [f"gpu{number:03}" for number in range(nodes)]
    common = {"run": RUN, "job": "digits", "nnodes": nodes, "state": "RUNNING", "since": time.time() - 3600,
              "began": time.time() - 3600, "submitted": time.time() - 3600, "world_size": GPUS * nodes}  # fmt: skip
    parts = {}
    for number, name in enumerate(names):
        ranks = {str(number * GPUS + local): {"local_rank": local, "pid": 7} for local in range(GPUS)}
        parts[name] = parse_state(Untrusted({**common, "node": name, "node_rank": number, "ranks": ranks}))
    records = {name: make_record(name, number, points, seed) for number, name in enumerate(names)}
    run = report_run(RUN, parts, None, {}, Records(records, {}), "clusterctl")
    view.publish("head", render_head(run, "h2", step=str(seed)))
    view.publish("summary", render_summary(run, f"update {seed}", ["Stop?"]))
    view.publish("nodes", render_nodes(list_node_rows(parts, {}, None, render_age)))
    publish_plots(view, run)
    view.publish("notices", render_lines([f"update {seed}"]))


@dataclass
class Training:
    """A source whose page shows a run that trains; `nodes` of them."""

    views: list[View] = field(default_factory=list)

    def follow(self, view: View) -> None:
        """Show it once; the test goes on."""
        publish(view, 3, POINTS, 0)
        self.views.append(view)
        while view.pause(0.01):
            pass

    def find(self, text: str) -> RunId:
        """Find the run."""
        return find_known(text)

    def read_log(self, run_id: RunId) -> WholeLog:
        """Return nothing of note."""
        return WholeLog(piece for piece in [run_id])

    def diagnose(self, run_id: str) -> Html:
        """Answer nothing."""
        return render_lines([run_id])

    stop = diagnose


class PackedEvents:
    """A stream of events as a browser takes it; counts the bytes of the connection."""

    def __init__(self, answer: HTTPResponse) -> None:
        self._answer, self._unpack, self._text = answer, zlib.decompressobj(31), ""
        assert answer.headers["Content-Encoding"] == "gzip"

    def read_until(self, text: str) -> tuple[int, str]:
        """Read until a text has come; return how many bytes that were, and what they hold."""
        count, before = 0, len(self._text)
        while text not in self._text[before:]:
            piece = self._answer.read1(1 << 16)
            assert piece, "the stream has ended"
            count += len(piece)
            self._text += self._unpack.decompress(piece).decode()
        return count, self._text[before:]


def list_parts(events: str) -> Sequence[str]:
    """Name the parts in events."""
    datas = (line.removeprefix("data: ") for line in events.splitlines() if line.startswith("data: {"))
    return [data["name"] for data in map(json.loads, datas) if "name" in data]


@pytest.mark.process
def test_an_update_of_a_running_page_is_small() -> None:
    """Three nodes with 8 GPUs each, all of whose values have changed; also with all that is folded."""
    source = Training()
    with serve_page(source, "lab") as server:
        address = urlsplit(server.url)
        with closing(HTTPConnection(address.netloc, timeout=HANG)) as connection:
            connection.request("GET", f"{address.path}events?run={RUN}", headers={"Accept-Encoding": "gzip"})
            with connection.getresponse() as answer:
                events = PackedEvents(answer)
                first, content = events.read_until("update 0</div>")
                publish(source.views[0], 3, POINTS, 1)
                again, update = events.read_until("update 1</div>")
                folds = [name for name in list_parts(update) if name.startswith("fold/")]
                assert max(first, again) <= MAX_UPDATE and folds == []
                assert {"numbers", "node-plots", "nodes"} <= set(list_parts(content))
                assert update.count("data-samples=") == len(NUMBERS) + 3
                body = f'{{"run": "{RUN}", "name": "more"}}'.encode()
                assert press(server.url, "open", RUN, body)[0] == 200
                opened, update = events.read_until('"fold/more"')
                assert opened <= MAX_UPDATE


def test_the_page_of_a_large_run_is_light() -> None:
    """200 nodes: the page and all its contents."""
    view = View(RUN)
    publish(view, 200, FEWER_POINTS, 0)
    found = view.read(Cursor(), 0)
    assert found is not None and len(_events(view, *found)) + len(render_page("lab").encode()) <= MAX_PAGE
