"""A report in a real browser: nothing is cut, all can be read, the keyboard suffices, hostile texts do nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import NEEDS_BROWSER, Browser, start_browser
from reported import (
    HOSTILE,
    explain,
    make_hang,
    make_record,
    make_restarted,
    make_run,
    make_short,
    make_stalled,
)

from clusterctl.plans.report.page import render_report
from clusterctl.plans.report.reported_run import ReportedRun
from clusterctl.plans.runs.history import Launched, Machine
from clusterctl.translation import use_language

pytestmark = [
    pytest.mark.process,
    NEEDS_BROWSER,
]
ATTACKS = (
    "<script>window.hacked=1;alert(1)</script>",
    "\"><img src=https://evil.test/x onerror='window.hacked=1;alert(1)'>",
    "</pre></style><style>body{display:none!important}*{background:url(https://evil.test/css)}</style>",
    '<a href="javascript:window.hacked=1">click</a> javascript:alert(1)',
    "<svg onload=alert(1)><iframe src=//evil.test><link rel=stylesheet href=//evil.test>",
    "<meta http-equiv=refresh content='0;url=//evil.test'><object data=//evil.test><base href=//evil.test>",
    "\u202egnp.exe\u202d \u2066hidden\u2069 \u200b\ufeff &lt;script&gt; ]]> --> {{7*7}}",
    HOSTILE,
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this file: its start takes longest."""
    with start_browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


def make_hung() -> ReportedRun:
    """Make a run with all that a report can show at once: a stall, attempts, kept stacks, long names."""
    records = {name: make_stalled(name, over=True) for name in ("gpu01", "gpu02")}
    records["gpu03-with-a-name-that-is-long.example.org"] = make_record("gpu03", gpus=8)
    restarted = make_restarted(3)
    return replace(
        restarted, records=records, hang=make_hang(), remarks=("attempt 1: gpu03 is lost (node_lost)",)
    )


def make_hostile() -> ReportedRun:
    """Make a run of which every text is an attack."""
    text = " ".join(ATTACKS)
    record = make_record(text)
    launched = Launched(
        ATTACKS, text, text, dict.fromkeys(ATTACKS, text), (text,), text, 1, (), {"code": text}
    )
    machine = Machine(1, 1, ((text, None),))
    hostile = replace(
        record,
        launched=launched,
        output={0: {"stdout": ATTACKS, "stderr": ATTACKS}},
        history=replace(record.history, machine=machine),
        scalars=tuple(replace(record.scalars[0], name=attack) for attack in ATTACKS),
    )
    run = make_run({text: hostile, "gpu02": hostile}, silent={"gpu01": text}, explanation=explain(ATTACKS))
    return replace(run, hang=make_hang(text), remarks=ATTACKS)


def write_page(folder: Path, run: ReportedRun, other: ReportedRun | None = None) -> Path:
    """Write a report into a file."""
    file = folder / "report.html"
    file.write_text(render_report(run, other, "cctl", ()), encoding="utf-8")
    return file


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_everything_can_be_read(browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    """Nothing is cut, over something else, or wider than the window; axe-core finds nothing, contrast included."""
    run = make_hung()
    for page in (
        write_page(tmp_path, run),
        write_page(tmp_path, run, make_run({"gpu01": make_record("gpu01")})),
    ):
        browser.show(page, width, dark=dark)
        assert browser.find_broken_layout() == []
        assert browser.find_barriers() == []


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [1280, 400])
def test_a_short_run_is_read_at_a_glance(browser: Browser, tmp_path: Path, width: int, language: str) -> None:
    """Two screens when all is folded, in both languages; nothing is wider than a telephone, the timeline included."""
    use_language(language)
    try:
        page = write_page(tmp_path, make_short())
    finally:
        use_language("en")
    browser.show(page, width)
    assert browser.find_broken_layout() == []
    lanes = "[...document.querySelectorAll('.lanes svg')].map(one => one.getBoundingClientRect())"
    assert browser.run(
        f"return {lanes}.every(box => box.left >= 0 && box.right <= innerWidth && box.width > 200)"
    )
    opened = "[...document.querySelectorAll('details[open] > summary b')].map(one => one.textContent)"
    assert browser.run(f"return {opened}") == ["gpu02", "r1"]
    browser.run("document.querySelectorAll('details').forEach(one => { one.open = false })")
    height = browser.run("return document.documentElement.scrollHeight")
    assert height <= (2 * 800 if width == 1280 else 3 * 800)


def test_two_runs_are_compared_on_any_screen(browser: Browser, tmp_path: Path) -> None:
    """With both reports open, too, and without a barrier."""
    for width, dark in ((1280, True), (400, False)):
        browser.show(
            write_page(tmp_path, make_short(), make_run({"gpu01": make_record("gpu01")})), width, dark=dark
        )
        assert browser.find_broken_layout() == []
        browser.run("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert browser.find_broken_layout() == []
        assert browser.find_barriers() == []


def test_the_keyboard_reaches_everything_and_is_not_trapped(browser: Browser, tmp_path: Path) -> None:
    """Tab visits what can be opened or scrolled, in the order of the page, visibly; Enter opens and closes."""
    browser.show(write_page(tmp_path, make_hung()), 400)
    steps = browser.walk()
    places = [step["place"] for step in steps]
    assert places == sorted(places) and len(places) == len(set(places))
    assert [step for step in steps if not step["visible"]] == []
    wanted = browser.run("return document.querySelectorAll('summary').length")
    assert sum(step["tag"] == "summary" for step in steps) == wanted > 3
    browser.run("document.querySelector('summary').focus()")
    opened = "return document.querySelector('details').open"
    before = browser.run(opened)
    browser.driver.switch_to.active_element.send_keys("\n")
    assert browser.run(opened) is not before


def test_hostile_texts_do_nothing(browser: Browser, tmp_path: Path) -> None:
    """No script, dialog, request, style or link, whatever names, lines and reasons are; all of them can be seen."""
    page = write_page(tmp_path, make_hostile())
    browser.show(page, 400)
    for summary in browser.run("return [...document.querySelectorAll('summary')]"):
        browser.run(
            "arguments[0].parentElement.open = true; arguments[0].click(); arguments[0].click()", summary
        )
    seen: dict[str, Any] = browser.run(
        "return {hacked: typeof window.hacked, text: document.body.innerText,"
        " shown: getComputedStyle(document.body).display, styles: document.querySelectorAll('style').length,"
        " active: document.querySelectorAll('script,iframe,img,a,link,object,embed,form,base').length}"
    )
    assert (seen["hacked"], seen["shown"], seen["styles"], seen["active"]) == ("undefined", "block", 1, 0)
    assert "<script>window.hacked=1;alert(1)</script>" in seen["text"] and "\u202e" not in seen["text"]
    assert browser.list_requests() == [page.as_uri()]
    assert browser.list_complaints() == []  # an open dialog would have failed each command above
    assert [found for found in browser.find_broken_layout() if "window" in found] == []


def test_it_prints(browser: Browser, tmp_path: Path) -> None:
    """On A4, black on white for a reader who prefers dark: all on few pages, nothing wider than the paper."""
    browser.show(write_page(tmp_path, make_hung()), 1280, dark=True)
    browser.print_to(tmp_path / "report.pdf")
    pages = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "report.pdf").read_bytes()))
    assert 3 <= pages <= 12
    size = {"width": 718, "height": 1000, "deviceScaleFactor": 1, "mobile": False}  # A4 without its margins
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [dark]})
    assert browser.find_broken_layout() == []
    scrolled = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth)"
    assert browser.run(f"return {scrolled}.length") == 0
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_short_run_is_three_sheets_of_paper(browser: Browser, tmp_path: Path) -> None:
    """Facts and moments are printed though they are folded: paper cannot be opened."""
    browser.show(write_page(tmp_path, make_short()), 1280)
    browser.print_to(tmp_path / "short.pdf")
    assert len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "short.pdf").read_bytes())) <= 3
    folded = "[...document.querySelectorAll('details:not([open]) :is(dl, table)')]"
    shown = f"return {folded}.map(one => one.checkVisibility({{contentVisibilityAuto: true}}))"
    assert browser.run(shown) == [False, False]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.run(shown) == [True, True]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
