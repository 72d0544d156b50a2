"""The page of `ui` over a real run: its state and lines arrive, stop ends it, and Ctrl-C leaves nothing."""

from __future__ import annotations

import signal
from pathlib import Path

from driving import STUBBED, cctl, leftovers, make_project, read_until, start_cctl
from page_client import ask, press, stream
from waiting import HANG

from clusterctl.lab.labs import Lab

TALKS = """
import os, time

print("<b>hello</b> from", os.environ["RANK"], flush=True)
time.sleep(600)
"""


def test_a_run_is_seen_and_stopped(cluster: Lab, tmp_path: Path) -> None:
    """Only a POST of the page itself stops it; the stream shows the end."""
    job = make_project(tmp_path, TALKS, env=STUBBED)
    launched = cctl(cluster, "launch", job, "-d", "--json")
    assert launched.code == 0, launched.err
    run = launched.json_lines()[-1]["run"]
    page = start_cctl(cluster, "ui", "--no-open")
    try:
        url = read_until(page, "http://").strip()
        with stream(url, "") as runs:
            assert f"#{run[-4:]}" in runs.read_part(f"runs/{run}", "RUNNING")
        with stream(url, run) as events:
            summary = events.read_part("summary", "RUNNING")
            assert 'data-live="yes"' in summary and "Stop it?" in summary
            assert "r2 running" in events.read_part("nodes", "gpu03")
            lines: list[str] = []
            while len(lines) < 3:
                lines += [row[4] for row in events.read("lines") if "hello" in row[4]]
            assert sorted(lines) == [f"<b>hello</b> from {rank}" for rank in range(3)]
            assert press(url, "stop", run, Origin="http://evil.example")[0] == 403
            assert ask(url, "GET", "stop")[0] == 405
            status, answer = press(url, "stop", run)
            assert status == 200 and f"{run}: stopped" in answer, answer
            events.read_part("summary", "STOPPED")
        page.send_signal(signal.SIGINT)
        assert page.wait(HANG) == 0
    finally:
        page.kill()
        page.communicate()
    assert leftovers(cluster) == {}
