"""Runs seen from anywhere: by two watchers, by another person, over connections that break again and again."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from driving import (
    COMMAND,
    Result,
    cctl,
    environment,
    kill_leftovers,
    make_project,
    wait_for,
)

from clusterctl.lab.labs import Lab, LabNode

pytestmark = pytest.mark.lab

CUTS = 10

# Numbers its lines until it is told that it is enough; fails when it is told to.
COUNTING = """
import os, time
count, end = 0, None
while end is None or count < end:
    print("line", count, flush=True)
    count += 1
    time.sleep(0.01)
    if end is None and os.path.exists("/tmp/enough"):
        end = count + 50
    if os.path.exists("/tmp/fail"):
        raise ValueError("told to fail")
print("total", count)
"""


@pytest.fixture(autouse=True)
def clean_nodes(cluster: Lab) -> Iterator[None]:
    """Keep one test's leftovers out of the next."""
    yield
    kill_leftovers(cluster)
    for node in cluster.nodes:
        node.run(["rm", "-f", "/tmp/enough", "/tmp/fail"])


class Follower:
    """A command that follows a run, its output in files, so that it never waits for us."""

    def __init__(self, lab: Lab, folder: Path, *args: str, **env: str) -> None:
        self.out, self.err = folder / f"{'-'.join(args)}.out", folder / f"{'-'.join(args)}.err"
        with self.out.open("w") as out, self.err.open("w") as err:
            words = [*COMMAND, *args]
            self.process = subprocess.Popen(
                words, stdout=out, stderr=err, env=environment(lab, **env), stdin=subprocess.DEVNULL
            )

    def entries(self) -> list[dict[str, object]]:
        """Read the complete lines of NDJSON so far."""
        whole = self.out.read_text(encoding="utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def last(self, node: str) -> int:
        """Give the number of the last line heard of a node."""
        lines = [str(entry["line"]) for entry in self.entries() if entry.get("node") == node]
        return int(lines[-1].split()[1]) if lines else -1

    def end(self) -> Result:
        """Wait until it has ended."""
        code = self.process.wait(timeout=60)
        return Result(code, self.out.read_text(encoding="utf-8"), self.err.read_text(encoding="utf-8"), 0.0)


def is_past(follower: Follower, node: str, number: int) -> bool:
    """Tell whether a later line than that was heard of a node."""
    return follower.last(node) > number


def cut(node: LabNode) -> None:
    """Kill all SSH sessions of a node."""
    sessions = [
        process for process in node.processes() if process.command.startswith(("sshd: ", "sshd-session: "))
    ]
    node.run(["kill", "-9", *(str(process.pid) for process in sessions)], check=False)


def test_ten_cuts_lose_and_double_no_line(cluster: Lab, tmp_path: Path) -> None:
    """`logs -f` and `attach` over connections that are cut ten times: every line once, in order, and it is said."""
    run = cctl(cluster, "launch", "-d", make_project(tmp_path, COUNTING)).out.strip()
    followers = [
        Follower(cluster, tmp_path, "logs", "-f", "--json", run),
        Follower(cluster, tmp_path, "attach", "--json", run),
    ]

    heard = dict.fromkeys((node.name for node in cluster.nodes), 0)
    for turn in range(CUTS):
        node = cluster.nodes[turn % 3]
        for follower in followers:
            wait_for(partial(is_past, follower, node.name, heard[node.name]), 20, "lines after the last cut")
        cut(node)
        time.sleep(0.1)
        heard[node.name] = max(follower.last(node.name) for follower in followers)
    for node in cluster.nodes:
        node.run(["touch", "/tmp/enough"])
    logs, attach = (follower.end() for follower in followers)

    assert (logs.code, attach.code) == (0, 0), logs.err + attach.err
    assert logs.err.count("the connection broke") == CUTS, logs.err
    assert logs.err.count(": back") == CUTS
    for rank in range(3):
        lines = [entry["line"] for entry in followers[0].entries() if entry.get("rank") == rank]
        count = int(str(lines[-1]).split()[1])
        assert lines == [*(f"line {n}" for n in range(count)), f"total {count}"]
        late = [entry["line"] for entry in followers[1].entries() if entry.get("rank") == rank]
        assert len(late) > 100
        assert late == lines[-len(late) :]
    assert json.loads(attach.out.splitlines()[-1])["verdict"]["state"] == "SUCCEEDED"
