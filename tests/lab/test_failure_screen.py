"""A failed run on a terminal of 80 columns and 24 lines: the cause is on it, and what the other ranks wrote is not."""

from __future__ import annotations

import re
from pathlib import Path

from driving import COMMAND, cctl, environment, leftovers, make_project
from terminal import act_on, what_remains

from clusterctl.lab.labs import Lab

FAILING = """
import torch, torch.distributed as dist

def load_batch(rank):
    if rank == 1:
        raise ValueError("bad batch 1024")

dist.init_process_group("gloo")
dist.barrier()
load_batch(dist.get_rank())
dist.all_reduce(torch.ones(4))
"""
COLUMNS, LINES = 80, 24


def test_a_failure_fits_on_one_screen(cluster: Lab, tmp_path: Path) -> None:
    """One traceback, with the paths of the project; the command for the rest shows it, and the duration is one."""
    job = make_project(tmp_path, FAILING, nodes=3, start="fork")
    words = [*COMMAND, "launch", str(job)]
    code, seen = act_on(words, environment(cluster, TERM="xterm", COLUMNS=str(COLUMNS), NO_COLOR="1"), [])
    left = [line for line in what_remains(seen) if line.strip()]
    text = "\n".join(left)

    assert code == 1, seen
    assert sum(-(-len(line) // COLUMNS) for line in left) <= LINES, text
    assert [line.split()[1] for line in left if "Traceback (most recent call last)" in line] == ["r1"], text
    assert re.search(r'File "train\.py", line \d+', text) and "/runs/" not in text, text
    (end,) = re.findall(r"FAILED after (.+?)   ", text)
    assert "ValueError: bad batch 1024" in text
    command = re.search(r"\(\d+ lines of other ranks and of torchrun: .* logs (\w+)\)", text)
    assert command is not None, text

    logs = cctl(cluster, "logs", command[1], "--stream", "stderr").out
    assert {line.split()[1] for line in logs.splitlines() if "Traceback (most" in line} - {"-"} == {
        "r0",
        "r1",
        "r2",
    }
    assert f"ran {end}" in cctl(cluster, "status", command[1]).out
    assert leftovers(cluster) == {}
