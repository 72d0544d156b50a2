"""The crosshair over the plots of `ui` in a real browser: by pointer and by keys it shows the values of the samples."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from browser import NEEDS_BROWSER, Browser, start_browser
from page_client import serve_page

from clusterctl.cli.actions.monitor.report import report_run
from clusterctl.cli.actions.monitor.ui.feed import View, WholeLog
from clusterctl.cli.actions.monitor.ui.fragments import publish_plots, render_lines
from clusterctl.client.run_evidence import Records
from clusterctl.plans.report.axes import format_number, format_percent
from clusterctl.plans.report.markup import Html, element
from clusterctl.plans.runs.history import History, Machine, NodeRecord, ScalarPoint, Scalars
from clusterctl.plans.runs.state import Parts, parse_state
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import use_language

pytestmark = [
    pytest.mark.process,
    NEEDS_BROWSER,
]
RUN = RunId("digits-20261123T070708-923c")
BEGAN = time.time() - 70
NODES = ("gpu01", "gpu02", "gpu03")
STEPS = 100
# What the crosshair shows in each plot, and where it is.
READINGS = """
return [...document.querySelectorAll("figure.plot")].filter(one => one.querySelector(".reading")).map(one => ({
  title: one.querySelector("figcaption b").textContent,
  when: one.querySelector(".reading b").textContent,
  values: [...one.querySelectorAll(".reading div")].map(row => row.textContent.trim()),
  x: one.querySelector(".crosshair line").getBoundingClientRect().left,
}));
"""
DRAWN = "document.querySelectorAll('.reading').length"


def loss_at(step: int) -> float:
    """Return the loss that the run has printed at a step."""
    return 3 / (1 + step / 10)


def busy_at(second: float, node: int) -> float:
    """Return how busy the GPU of a node was."""
    return 50 + 40 * math.sin(second / 7 + node)


def make_record(name: str, number: int) -> NodeRecord:
    """Make samples of a minute, and on the first node a loss."""
    times = tuple(BEGAN + second for second in range(60))
    columns: dict[tuple[str, str, str], tuple[float | None, ...]] = {
        ("gpu", "0", "busy"): tuple(busy_at(second, number) for second in range(60)),
        ("node", "", "cpu"): tuple(second / 100 for second in range(60)),
    }
    points = tuple(ScalarPoint(BEGAN + step * 0.5, step, loss_at(step)) for step in range(STEPS))
    rates = tuple(ScalarPoint(BEGAN + step * 0.5, step, 1e-4 * step) for step in range(STEPS))
    return replace(
        NodeRecord(name),
        history=History(times, columns, 1.0, Machine(8, 64 << 30, (("H100", 80e9),))),
        scalars=(Scalars("loss", "log", STEPS, points), Scalars("lr", "log", STEPS, rates))
        if not number
        else (),
    )


def make_parts() -> Parts:
    """Make a run with a rank on each node."""
    common = {"run": RUN, "job": "digits", "nnodes": 3, "state": "RUNNING", "since": BEGAN, "began": BEGAN,
              "submitted": BEGAN}  # fmt: skip
    return {
        name: parse_state(Untrusted({**common, "node": name, "node_rank": number}))
        for number, name in enumerate(NODES)
    }


@dataclass
class PlotsOnly:
    """A source whose page shows the plots of a run, and nothing else."""

    views: list[View] = field(default_factory=list)

    def follow(self, view: View) -> None:
        """Show the plots."""
        self.views.append(view)
        self.publish(view)
        while view.pause(0.01):
            pass

    def publish(self, view: View, nodes: int = 3) -> None:
        """Draw the plots of some of the nodes."""
        records = {name: make_record(name, number) for number, name in enumerate(NODES[:nodes])}
        run = report_run(RUN, make_parts(), None, {}, Records(records, {}), "cctl")
        view.publish("summary", element("div", element("h2", RUN)))
        publish_plots(view, run)

    def find(self, text: str) -> RunId:
        """Find the only run, whatever it is called."""
        return RunId(text)

    def read_log(self, run_id: RunId) -> WholeLog:
        """Return nothing of note."""
        return WholeLog(piece for piece in [run_id])

    def diagnose(self, run_id: str) -> Html:
        """Answer nothing."""
        return render_lines([run_id])

    stop = diagnose


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this file: its start takes longest."""
    with start_browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def source(browser: Browser) -> Iterator[PlotsOnly]:
    """The page of a run with plots."""
    plots = PlotsOnly()
    with serve_page(plots, "lab") as server:
        browser.show("about:blank")
        browser.show(f"{server.url}#{RUN}")
        browser.wait_for("document.querySelector('#plots .drawing')", "the plots")
        yield plots
        assert browser.list_complaints() == []


def point_at(browser: Browser, number: int, share: float) -> None:
    """Move the pointer over a plot: how far across its lines."""
    x, y = browser.run(
        "const one = document.querySelectorAll('.drawing')[arguments[0]]; one.scrollIntoView({block: 'center'});"
        "const box = one.querySelector('.lines').getBoundingClientRect();"
        "return [box.left + arguments[1] * box.width, box.top + box.height / 2];",
        number,
        share,
    )
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})


def read_crosshair(browser: Browser) -> list[dict[str, Any]]:
    """Return what all plots show."""
    browser.wait_for(DRAWN, "the crosshair")
    found: list[dict[str, Any]] = browser.run(READINGS)
    return found


def step_of(reading: dict[str, Any]) -> int:
    """Return the step of a reading: `25 s, step 50`."""
    return int(reading["when"].rpartition("step ")[2])


@pytest.mark.usefixtures("source")
def test_the_pointer_shows_the_values_of_all_plots_at_its_moment(browser: Browser) -> None:
    """They are those of the samples; beside the plots it is gone."""
    point_at(browser, 0, 0.5)
    loss, rate, *nodes = read_crosshair(browser)
    step = step_of(loss)
    assert loss["title"] == "loss" and abs(step - STEPS / 2) <= 2
    assert loss["values"] == [format_number(loss_at(step))]
    assert rate["title"] == "lr" and rate["values"] == [format_number(1e-4 * step_of(rate))]
    assert abs(step_of(rate) - step) <= 2
    second = step // 2
    busy = [one for one in nodes if one["title"] in NODES][:3]
    for number, node in enumerate(busy):
        shown = float(node["values"][0].removesuffix(" %"))
        near = [float(format_percent(busy_at(second + late, number))[:-2]) for late in (-2, -1, 0, 1, 2)]
        assert min(near) - 1 <= shown <= max(near) + 1, (node, near)
    assert busy == nodes and len(busy) == 3  # what is folded has none
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 2, "y": 2})
    browser.wait_for(f"!{DRAWN}", "no crosshair")


@pytest.mark.usefixtures("source")
def test_the_arrow_keys_go_from_sample_to_sample(browser: Browser) -> None:
    """A plot that has the focus says time, step and values; the end is the last sample; Escape ends it."""
    browser.run("document.querySelector('.drawing').focus()")
    browser.press("End")
    last = read_crosshair(browser)[0]
    assert step_of(last) == STEPS - 1 and last["values"] == [format_number(loss_at(STEPS - 1))]
    browser.press("ArrowLeft")
    browser.wait_for("document.querySelector('.reading b').textContent.endsWith('step 98')", "one before")
    spoken = browser.run("return document.querySelector('.spoken').textContent")
    assert spoken == f"loss: 49 s, step 98: {format_number(loss_at(98))}"
    browser.press("Home")
    browser.wait_for("document.querySelector('.reading b').textContent.endsWith('step 0')", "the first")
    assert read_crosshair(browser)[0]["values"] == ["3"]
    browser.press("Escape")
    browser.wait_for(f"!{DRAWN}", "no crosshair")


def test_an_update_keeps_the_crosshair_and_the_focus(browser: Browser, source: PlotsOnly) -> None:
    """The server replaces the plots of the machines at once; also where there are fewer nodes than before."""
    browser.run("document.querySelector('#node-plots .drawing').focus()")
    browser.press("End")
    browser.wait_for(DRAWN, "the crosshair")
    browser.run("document.querySelector('#node-plots .drawing').dataset.old = 'yes'")
    source.publish(next(view for view in source.views if view.run_id == RUN), nodes=2)
    browser.wait_for(
        f"!document.querySelector('[data-old]') && {DRAWN} && document.activeElement.matches('.drawing')",
        "the new plots with it",
    )
    assert step_of(read_crosshair(browser)[0]) == STEPS - 1


@pytest.mark.parametrize(
    ("width", "dark", "language"), [(1280, True, "zh"), (400, False, "en"), (400, True, "zh")]
)
def test_what_it_shows_can_be_read(
    browser: Browser, request: pytest.FixtureRequest, width: int, dark: bool, language: str
) -> None:
    """Nothing is cut or leaves the window, and axe-core finds nothing, with the crosshair over all plots."""
    request.addfinalizer(lambda: use_language("en"))
    use_language(language)
    with serve_page(PlotsOnly(), "lab") as server:
        browser.show("about:blank")
        browser.show(f"{server.url}#{RUN}", width, dark=dark)
        browser.wait_for("document.querySelector('#plots .drawing')", "the plots")
        browser.run("document.querySelectorAll('details').forEach(one => one.open = true)")
        browser.run("document.querySelector('.drawing').focus()")
        browser.press("End")
        browser.wait_for(DRAWN, "the crosshair")
        outside = browser.run(
            "return [...document.querySelectorAll('.reading')].filter(one => {"
            " const box = one.getBoundingClientRect();"
            " return box.left < 0 || box.right > document.documentElement.clientWidth; }).length"
        )
        assert (browser.find_broken_layout(), browser.find_barriers(), outside) == ([], [], 0)
