"""The page of `ui` in a real browser over a run that hangs: from the link that opens it once, to its stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import NEEDS_BROWSER, Browser, start_browser
from driving import cctl, leftovers, make_project, start_cctl
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

pytestmark = [
    pytest.mark.variant,  # of test_ui_lab and of test_page_in_browser together
    NEEDS_BROWSER,
]
HANGS = """
import time, torch, torch.distributed as dist

def load_batch():
    time.sleep(1000)

dist.init_process_group("gloo")
for step in range(20):
    dist.all_reduce(torch.ones(1000))
    print(f"step {step} loss={1 / (1 + step)}", flush=True)
    time.sleep(0.5)
if dist.get_rank() == 1:
    load_batch()
dist.all_reduce(torch.ones(1000))
"""
LOSS = "[...document.querySelectorAll('#plots path.line')].map(one => one.getAttribute('d')).join(' ')"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """Start a browser."""
    with start_browser(tmp_path / "profile") as started:
        yield started


def test_a_run_is_watched_diagnosed_and_stopped(cluster: Lab, tmp_path: Path, browser: Browser) -> None:
    """All that a page is for, in the order of a person; the console stays empty."""
    job = make_project(tmp_path / "job", HANGS, stall={"after": "2s"})
    launched = cctl(cluster, "launch", job, "-d", "--json")
    assert launched.code == 0, launched.err
    run = launched.json_lines()[-1]["run"]
    opener, link = tmp_path / "opener", tmp_path / "link"
    opener.write_text(f'#!/bin/sh\nprintf %s "$1" >{link}.part && mv {link}.part {link}\n', encoding="utf-8")
    opener.chmod(0o700)
    page = start_cctl(cluster, "ui", BROWSER=str(opener), SSH_CONNECTION="", SSH_TTY="")
    try:
        wait_until(link.exists, "a browser is opened")
        browser.show(link.read_text(encoding="utf-8"))
        browser.wait_for(f"document.querySelector('#runs a[href=\"#{run[-4:]}\"]')", "the run in the list")
        browser.wait_for("document.querySelectorAll('#machines .use').length === 3", "the machines")
        browser.wait_for("document.querySelector('#runs .sparkline')", "the loss in the list")
        browser.run("document.querySelector('#runs a').click()")
        browser.wait_for("document.querySelectorAll('#nodes .cell').length === 3", "the ranks")
        browser.wait_for("document.getElementById('lines').textContent.includes('loss=')", "lines")
        browser.run(
            "const one = document.getElementById('filter-rank'); one.value = '1';"
            " one.dispatchEvent(new Event('input'))"
        )
        shown = "[...document.querySelectorAll('#lines > :not([hidden]) .who')]"
        browser.wait_for(
            f"{shown}.length && {shown}.every(one => one.textContent === 'gpu02 r1')", "rank 1 only"
        )
        browser.wait_for(LOSS, "a plot")
        before = browser.run(f"return {LOSS}")
        browser.wait_for(f"{LOSS} !== {before!r}", "the plots move")
        browser.wait_for("document.querySelector('#summary .result.warn')", "the stall")
        browser.wait_for("document.querySelector('#head .state-stalled')", "its state")
        answer = browser.run("return document.querySelector('#summary .result').innerText")
        assert answer.startswith("rank 1 (gpu02) has not entered all_reduce") and "load_batch()" in answer
        assert "r1 running, suspect" in browser.run("return document.getElementById('nodes').innerText")
        browser.run("document.getElementById('diagnose').click()")
        browser.wait_for("document.querySelector('#answer table')", "the answer")
        assert "rank 1 (gpu02) has not entered" in browser.run(
            "return document.querySelector('#answer b').innerText"
        )
        browser.run("document.getElementById('stop').click()")
        question = browser.run("return document.getElementById('question').innerText")
        assert run in question and "Stop it?" in question
        browser.run("document.getElementById('confirm').click()")
        browser.wait_for("document.getElementById('summary').textContent.includes('STOPPED')", "the end")
        assert browser.list_complaints() == []
        page.send_signal(signal.SIGINT)
        assert page.wait(HANG) == 0
    finally:
        page.kill()
        page.communicate()
    assert leftovers(cluster) == {}
