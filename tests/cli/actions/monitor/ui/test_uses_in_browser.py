"""What a person does on the page of `ui`, in a real browser: filters, the log of a failure, copying, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from browser import NEEDS_BROWSER, Browser, start_browser
from page_client import find_known, serve_page

from clusterctl.cli.actions.monitor.ui import fragments, overview
from clusterctl.cli.actions.monitor.ui.feed import View, WholeLog
from clusterctl.console.run.listing import RunSummary
from clusterctl.plans.report.markup import Html, element
from clusterctl.plans.runs.progress import Progress
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import RunState

pytestmark = [
    pytest.mark.process,
    NEEDS_BROWSER,
]
RUN, OTHER = (RunId(f"digits-20261123T070708-{end}") for end in ("923c", "923d"))
STATES: tuple[tuple[RunState, str, str], ...] = (
    ("RUNNING", "digits", "you"), ("STALLED", "bert", "ann@laptop"), ("FAILED", "bert-large", "you")
)  # fmt: skip
HANDLED = ["Traceback (most recent call last):", "KeyError: 'retried'"]
NOISE = [f"step {number} loss=0.5" for number in range(200)]
FAILURE = ["Traceback (most recent call last):", '  File "train.py", line 3', "ValueError: label 11"]
SHOWN = "[...document.querySelectorAll('#runs tr:not([hidden]) a')].map(one => one.textContent).join()"


@dataclass
class Failed:
    """Three runs in the list; of each the log of a failure of rank 1, except of one that was removed."""

    is_empty: bool = False

    def follow(self, view: View) -> None:
        """Show all parts."""
        if view.run_id == OTHER:
            view.publish("summary", fragments.render_missing(OTHER))
        elif view.run_id:
            culprit = element("i", hidden="", data_node="gpu02", data_rank=1, data_text="label 11")
            view.publish("summary", element("div", element("h2", "failed")))
            view.publish("culprit", culprit)
            view.add_lines("gpu01", 0, "", NOISE, [1_790_000_000.0] * len(NOISE))
            view.add_lines("gpu01", 0, "stderr", ["Traceback (most recent call last):", "stopped"])
            view.add_lines("gpu02", 1, "stderr", ["a warning", *HANDLED, *FAILURE, "exit"])
            view.add_lines("gpu01", 0, "", NOISE)
        else:
            runs = [] if self.is_empty else list(make_runs())
            view.publish_rows("runs", overview.render_run_rows(runs))
            view.publish("runs-note", overview.render_runs_note(len(runs), "clusterctl"))
        while view.pause(0.05):
            pass

    def find(self, text: str) -> RunId:
        """Find the run by its short id too."""
        return find_known(text)

    def read_log(self, run_id: RunId) -> WholeLog:
        """Return a line."""
        return WholeLog(f"{one}\n" for one in [run_id])

    def diagnose(self, run_id: str) -> Html:
        """Do nothing."""
        return element("p", run_id)

    stop = diagnose


def make_runs() -> Iterator[RunSummary]:
    """Make a run in each of three states."""
    for number, (state, job, by) in enumerate(STATES):
        yield RunSummary(
            run_id=RunId(f"{job}-20261123T070708-92{number}c"), state=state, job=job, attempt=1, nodes="3/3",
            launched_by=by, is_own=by == "you", cause="", submitted=1_790_000_000.0 - number, began=1_790_000_000.0,
            seconds=60.0, progress=Progress(120, 500, (2.0, 1.0, 0.5)), quiet_since=None,
        )  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this file: its start takes longest."""
    with start_browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def enter(browser: Browser, name: str, text: str) -> None:
    """Fill in a field."""
    browser.run(
        "const one = document.getElementById(arguments[0]); one.value = arguments[1];"
        " one.dispatchEvent(new Event('input'))", name, text,
    )  # fmt: skip


def test_the_list_is_filtered_and_a_row_is_a_link(browser: Browser) -> None:
    """By state, job and person; the choice is in the address, and a click anywhere in a row leads to its run."""
    with serve_page(Failed(), "lab") as server:
        browser.show(server.url)
        browser.wait_for("document.querySelectorAll('#runs tr').length === 3", "the list")
        assert browser.run(f"return {SHOWN}") == "digits,bert-large,bert"  # one's own first
        row = browser.run("return document.querySelector('#runs tr').innerText")
        assert "120 of 500" in row and "0.5" in row and "RUNNING" in row
        assert (
            browser.run("return getComputedStyle(document.querySelector('.state-stalled')).color")
            == "rgb(138, 90, 0)"
        )
        enter(browser, "list-job", "bert")
        assert browser.run(f"return {SHOWN}") == "bert-large,bert"
        enter(browser, "list-by", "ann")
        assert browser.run(f"return {SHOWN}") == "bert"
        browser.show("about:blank")
        browser.show(f"{server.url}?state=live&job=dig")
        browser.wait_for("document.querySelectorAll('#runs tr').length === 3", "the list again")
        assert browser.run(f"return {SHOWN}") == "digits"
        assert browser.run("return document.getElementById('runs-count').textContent") == "1 of 3 runs"
        spot = "const box = document.querySelector('#runs tr').cells[5].getBoundingClientRect();"
        browser.run(f"{spot} document.elementFromPoint(box.left + 3, box.top + 3).click()")
        browser.wait_for("location.hash === '#920c' && location.search.includes('dig')", "the run")


def test_an_empty_list_leads_on(browser: Browser) -> None:
    """The command is copied, or selected where the browser does not allow that; a status says which."""
    with serve_page(Failed(is_empty=True), "lab") as server:
        browser.show(server.url)
        browser.wait_for("document.querySelector('#runs-note button.copy')", "the button")
        assert (
            browser.run("return document.querySelector('#runs-note code').textContent")
            == "clusterctl launch job.yaml"
        )
        browser.run("document.querySelector('#runs-note button.copy').click()")
        browser.wait_for("document.getElementById('said').textContent", "an answer")
        said = browser.run("return document.getElementById('said').textContent")
        assert said in ("copied", "selected: copy it with the keyboard")
        assert browser.find_barriers() == []


def test_the_log_opens_at_the_failure_and_is_searched(browser: Browser) -> None:
    """Of the rank that is the cause; search goes from match to match, and switches leave out and show."""
    visible = (
        "const one = document.querySelector('#lines .culprit').getBoundingClientRect(),"
        " box = document.getElementById('lines').getBoundingClientRect();"
        " return one.top >= box.top && one.bottom <= box.bottom"
    )
    with serve_page(Failed(), "lab") as server:
        browser.show("about:blank")
        browser.show(f"{server.url}#923c")
        browser.wait_for("document.querySelectorAll('#lines > div').length > 400", "the lines")
        culprit = browser.run("return document.querySelector('#lines .culprit').innerText")
        assert "gpu02 r1" in culprit and "Traceback" in culprit and browser.run(visible)
        below = "return document.querySelector('#lines .culprit').nextElementSibling.innerText"
        assert "train.py" in browser.run(below)  # not an exception that it survived
        assert browser.run("return document.getElementById('follow').textContent") == "Follow"
        assert browser.run(
            "return document.getElementById('stop').hidden && document.getElementById('diagnose').hidden"
        )
        enter(browser, "search", "LOSS=0.5")
        browser.run("document.getElementById('next').click()")
        assert browser.run("return document.getElementById('hits').textContent") == "1 of 400"
        browser.run("document.getElementById('previous').click()")
        assert browser.run("return document.getElementById('hits').textContent") == "400 of 400"
        browser.run("document.getElementById('log-stderr').click()")
        assert browser.run("return document.getElementById('count').textContent").startswith("9 of ")
        browser.run(
            "document.getElementById('log-times').click(); document.getElementById('log-stderr').click()"
        )
        time = browser.run("return document.querySelector('#lines .when').innerText")
        assert len(time) == 8 and time.count(":") == 2
        assert browser.run("return document.getElementById('download').href") == f"{server.url}log?run={RUN}"


def test_every_refusal_says_why(browser: Browser) -> None:
    """A mistyped id and a run that was removed have a sentence and a way back, and neither a log nor buttons."""
    with serve_page(Failed(), "lab") as server:
        browser.show("about:blank")
        browser.show(f"{server.url}#1acx")
        browser.wait_for("!document.getElementById('refused').hidden", "the refusal")
        assert browser.run("return document.getElementById('refusal').textContent") == "no run is called 1acx"
        assert browser.run(
            "return document.getElementById('run').hidden && document.getElementById('list').hidden"
        )
        assert browser.find_barriers() == []
        browser.run("document.querySelector('#refused a').click()")
        browser.wait_for("document.querySelectorAll('#runs tr').length === 3", "the way back")
        browser.run("location.hash = '#923d'")
        browser.wait_for("document.querySelector('[data-missing]')", "a run that is gone")
        hidden = browser.run(
            "return ['log', 'stop', 'diagnose'].map(one => document.getElementById(one).hidden)"
        )
        assert hidden == [True, True, True]
        assert "was removed" in browser.run("return document.getElementById('summary').innerText")


def test_the_controls_of_the_log_take_two_lines_of_a_telephone(browser: Browser) -> None:
    """Also while something is sought; the switches come below the first line with a button."""
    rows = (
        "return new Set([...document.querySelectorAll('#log .filters > *, #log .options > *')].filter("
        "one => one.getClientRects().length && !one.matches('.options')).map(one => {"
        " const box = one.getBoundingClientRect(); return Math.round((box.top + box.bottom) / 20); })).size"
    )
    with serve_page(Failed(), "lab") as server:
        browser.show("about:blank")
        browser.show(f"{server.url}#923c", 400)
        browser.wait_for("document.querySelectorAll('#lines > div').length > 400", "the lines")
        assert browser.run(rows) == 2
        enter(browser, "search", "loss=0.5")
        assert browser.run(rows) == 2 and not browser.run(
            "return document.getElementById('log-wrap').offsetParent"
        )
        browser.run("document.getElementById('options').click()")
        assert browser.run("return document.getElementById('log-wrap').offsetParent") is not None
        assert browser.run("return document.getElementById('options').ariaExpanded") == "true"
        assert (browser.find_broken_layout(), browser.find_barriers()) == ([], [])
