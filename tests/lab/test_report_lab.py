"""A run on real nodes that fails: it was sampled, and its report has the loss, the machines and the failure on both."""

from __future__ import annotations

import re
from pathlib import Path

from driving import STUBBED, cctl, leftovers, make_project

from clusterctl.lab.labs import Lab

FAILS = """
import os, time

for step in range(25):
    if os.environ["RANK"] == "0":
        print({"loss": 3.0 / (1 + step), "step": step}, flush=True)
    time.sleep(0.1)
if os.environ["RANK"] == "1":
    raise ValueError("bad <b>batch</b>")
time.sleep(60)
"""


def test_a_failed_run_is_reported(cluster: Lab, tmp_path: Path) -> None:
    """One file without a script: cause, who, phases, plots of every node and of the loss, with the failure on all."""
    job = make_project(tmp_path, FAILS, env=STUBBED)
    assert cctl(cluster, "launch", job).code == 1
    done = cctl(cluster, "report", "-o", tmp_path / "run.html")
    assert done.code == 0, done.err
    page = (tmp_path / "run.html").read_text()
    assert "rank 1 on gpu02: ValueError: bad &lt;b&gt;batch&lt;/b&gt;" in page
    assert "<script" not in page and "<b>batch" not in page
    assert page.index("FAILED after") < page.index("launched by") < page.index("Timeline")
    titles = re.findall(r"<figcaption><b>([^<]*)</b>", page)
    assert "loss" in titles and titles.count("memory of the ranks") == 3 and titles.count("network") >= 3
    assert page.count('class="mark failed"') == page.count("<svg")
    assert "last: 0.12 at step 24" in page
    shown = cctl(cluster, "top", "--since", "10m")
    assert shown.code == 0 and re.findall(r"(?m)^gpu0\d +\d+ s .* GiB", shown.out), shown.out
    assert leftovers(cluster) == {}
