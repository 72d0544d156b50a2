"""A run on real nodes that fails: it was sampled, and its report has the loss, the machines and the failure on both."""

from __future__ import annotations

import json
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
    assert page.index('state-failed">FAILED<') < page.index("ValueError: bad") < page.index("Timeline")
    titles = re.findall(r"<figcaption><b>([^<]*)</b>", page)
    assert "loss" in titles and titles.count("memory of the ranks") == titles.count("network") == 1
    assert page.count('class="mark failed"') == page.count('role="img"')
    assert "last: 0.12 at step 24" in page
    shown = cctl(cluster, "top", "--since", "10m")
    assert shown.code == 0 and re.findall(r"(?m)^gpu0\d +\d+ s .* GiB", shown.out), shown.out
    chips = re.findall(r"<b>(r\d)</b> [^<]*<span class=\"chip ([\w-]+)", page)
    assert chips == [("r1", "state-failed"), ("r0", "state-stopped"), ("r2", "state-stopped")]
    assert leftovers(cluster) == {}


def test_two_runs_are_compared(cluster: Lab, tmp_path: Path) -> None:
    """What a person has changed in the job and in the code is named, file by file; no secret is."""
    found = []
    for number in ("1", "2"):
        folder = tmp_path / number
        folder.mkdir()
        (folder / f"only_{number}.py").write_text("")
        env = {**STUBBED, "SEED": number, "MY_TOKEN": f"hidden{number}"}
        arguments = ["--lr", f"0.{number}"]
        job = make_project(folder, "print(1)", env=env, args=arguments, grace=f"{number}0s", alone="ok")
        assert cctl(cluster, "launch", job).code == 0
        found.append(json.loads(cctl(cluster, "status", "--json").out)["run"]["run"])
    done = cctl(cluster, "report", *found, "-o", tmp_path / "two.html")
    assert done.code == 0, done.err
    page = (tmp_path / "two.html").read_text()
    differing = re.sub(r"<[^>]*>+", " ", page.partition("<body>")[2].partition("What is equal")[0])
    words = " ".join(differing.split())
    for fact in ("--lr 0.1 0.2", "SEED 1 2", "grace 10 20", "only_1.py removed", "only_2.py added"):
        assert fact in words, (fact, words)
    assert "hidden" not in page and "RDZV" not in words and "ended at" not in words
