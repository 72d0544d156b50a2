"""How fast a real run is: the rank for which the others wait is named at the end, and none of a healthy one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from driving import STUBBED, cctl, leftovers, make_project
from variants import VARIANT

from clusterctl.lab.labs import Lab

# Steps of two collectives until 34 s are over, which rank 0 decides for all; one rank may be late for each of them.
TRAINS = """
import sys, time
import torch, torch.distributed as dist

late, delay = int(sys.argv[1]), float(sys.argv[2])
dist.init_process_group("gloo")
rank, began, step = dist.get_rank(), time.monotonic(), 0
goes_on = torch.ones(1)
while goes_on.item() > 0:
    time.sleep(0.05 + (delay if rank == late else 0.0))
    dist.all_reduce(torch.ones(64))
    goes_on.fill_(float(time.monotonic() - began < 34))
    dist.broadcast(goes_on, 0)
    step += 1
    if rank == 0 and step % 20 == 0:
        print(f"step {step} loss {1 / step:.4f} tokens_per_second {4000 + step % 7}", flush=True)
dist.destroy_process_group()
"""


def measured(text: str) -> re.Match[str] | None:
    """Find the sentence."""
    return re.search(r"(?m)^\s*speed: .*$", text)


# That no rank is named in a healthy run, whatever chance does, is in plans/diagnose/test_slow.py.
@pytest.mark.parametrize(("late", "named"), [("1", True), pytest.param("-1", False, marks=VARIANT)])
def test_the_end_names_the_rank_that_the_others_wait_for(
    cluster: Lab, tmp_path: Path, late: str, *, named: bool
) -> None:
    """At the end of `launch`, by `status`, in JSON and in the report it is the same sentence."""
    job = make_project(tmp_path, TRAINS, args=[late, "0.05"], start="fork")
    done = cctl(cluster, "launch", job)
    assert done.code == 0, done.err
    found = measured(done.err)
    assert found is not None, done.err
    sentence = found.group().strip()
    assert "k tokens/s" in sentence and "steps/s" in sentence
    assert ("for rank 1 (gpu02)" in sentence) == named
    assert re.search(r"ranks waited \d+ % (?:\(at most \d+ %\) )?of each step", sentence), sentence
    shown = cctl(cluster, "status")
    assert sentence in shown.out, shown.out
    document = json.loads(cctl(cluster, "status", "--json").out)
    assert document["speed"]["sentence"] == sentence
    assert document["speed"]["waited_for"] == ([1] if named else [])
    assert (document["speed"]["waited"] >= 0.25) == named
    assert cctl(cluster, "report", "-o", tmp_path / "run.html").code == 0
    assert sentence.removeprefix("speed: ") in (tmp_path / "run.html").read_text()
    assert leftovers(cluster) == {}


def test_a_short_run_has_no_speed(cluster: Lab, tmp_path: Path) -> None:
    """Nothing is printed where there is nothing to judge by."""
    done = cctl(cluster, "launch", make_project(tmp_path, "print('loss 0.1')", env=STUBBED))
    assert done.code == 0 and measured(done.err) is None, done.err
    document = json.loads(cctl(cluster, "status", "--json").out)
    assert document["speed"] is None
