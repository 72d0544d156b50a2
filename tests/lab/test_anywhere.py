"""Runs seen from anywhere: by two watchers, by another person, over connections that break again and again."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from driving import (
    COMMAND,
    STUBBED,
    Result,
    cctl,
    environment,
    kill_leftovers,
    leftovers,
    make_project,
    read_until,
    run_id,
    start_cctl,
)
from variants import VARIANT
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab, LabNode

CUTS = 10

# Numbers its lines until it is told that it is enough; fails when it is told to.
COUNTING = """
import os, time
count, end = 0, None
while end is None or count < end:
    print("line", count, flush=True)
    count += 1
    time.sleep(0.04)
    if end is None and os.path.exists("/tmp/enough"):
        end = count + 50
    if os.path.exists("/tmp/fail"):
        raise ValueError("failed on purpose")
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

    def __init__(self, lab: Lab, folder: Path, *args: str | Path, **env: str) -> None:
        self.out, self.err = (
            folder / f"{len(list(folder.iterdir()))}.out",
            folder / f"{len(list(folder.iterdir()))}.err",
        )
        with self.out.open("w") as out, self.err.open("w") as err:
            words = [*COMMAND, *map(str, args)]
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

    def has_returned(self, node: str, times: int) -> bool:
        """Tell whether a node was lost and regained so many times."""
        return self.err.read_text(encoding="utf-8").count(f"{node}: reconnected") == times

    def end(self) -> Result:
        """Wait until it has ended."""
        code = self.process.wait(HANG)
        return Result(code, self.out.read_text(encoding="utf-8"), self.err.read_text(encoding="utf-8"), 0.0)


def is_past(follower: Follower, node: str, number: int) -> bool:
    """Tell whether a later line than that was heard of a node."""
    return follower.last(node) > number


def cut(node: LabNode) -> None:
    """Kill all SSH sessions of a node."""
    sessions = [
        process
        for process in node.list_processes()
        if process.command.startswith(("sshd: ", "sshd-session: "))
    ]
    node.run(["kill", "-9", *(str(process.pid) for process in sessions)], check=False)


def test_ten_cuts_lose_and_double_no_line(cluster: Lab, tmp_path: Path) -> None:
    """`logs -f` and `attach` over connections that are cut ten times: every line once, in order, and it is said."""
    run = cctl(cluster, "launch", "-d", make_project(tmp_path, COUNTING, env=STUBBED)).out.strip()
    followers = [
        Follower(cluster, tmp_path, "logs", "-f", "--json", run),
        Follower(cluster, tmp_path, "attach", "--json", run),
        Follower(cluster, tmp_path, "logs", "-f", "--tail", "1", "--json", run),
    ]

    for turn in range(CUTS):
        node = cluster.nodes[turn % 3]
        for follower in followers:
            wait_until(partial(is_past, follower, node.name, 0), "lines")
            wait_until(partial(follower.has_returned, node.name, turn // 3), "return from the last cut")
        cut(node)
    for node in cluster.nodes:
        node.run(["touch", "/tmp/enough"])
    logs, attach, tail = (follower.end() for follower in followers)

    assert (logs.code, attach.code, tail.code) == (0, 0, 0), logs.err + attach.err + tail.err
    assert logs.err.count(": connection lost") == CUTS, logs.err
    assert logs.err.count(": reconnected") == CUTS
    for rank in range(3):
        lines = [entry["line"] for entry in followers[0].entries() if entry.get("rank") == rank]
        count = int(str(lines[-1]).split()[1])
        assert lines == [*(f"line {n}" for n in range(count)), f"total {count}"]
        for follower in followers[
            1:
        ]:  # a tail is measured once: what comes after a cut goes on where it broke
            late = [entry["line"] for entry in follower.entries() if entry.get("rank") == rank]
            assert len(late) > 100
            assert late == lines[-len(late) :]
    assert json.loads(attach.out.splitlines()[-1])["verdict"]["state"] == "SUCCEEDED"


@VARIANT  # of test_every_verb_reports_the_same_end in test_fault_matrix.py
def test_two_watchers_and_a_stranger_see_one_failure(cluster: Lab, tmp_path: Path) -> None:
    """A launch, an attach and a stranger watch the same failure; all three name the same cause."""
    other = {
        "LOGNAME": "bob",
        "HOME": str(tmp_path / "bob"),
        "XDG_STATE_HOME": str(tmp_path / "bob" / "state"),
    }
    launch = Follower(cluster, tmp_path, "launch", make_project(tmp_path, COUNTING, env=STUBBED), "--json")
    run = wait_until(
        lambda: "run " in launch.err.read_text() and run_id(launch.err.read_text()), "the run's name"
    )
    wait_until(lambda: launch.last(cluster.nodes[1].name) > 0, "lines")
    unnamed = cctl(cluster, "attach", **other)
    refused = cctl(cluster, "stop", run, **other)
    attach = Follower(cluster, tmp_path, "attach", "--json")
    stranger = Follower(cluster, tmp_path, "attach", "--json", run, **other)
    for follower in (attach, stranger):
        wait_until(partial(is_past, follower, cluster.nodes[1].name, 0), "lines at the watchers")
    cluster.nodes[1].run(["touch", "/tmp/fail"])
    ends = [follower.end() for follower in (launch, attach, stranger)]

    assert (unnamed.code, "CC-USE-020" in unnamed.err) == (2, True)
    assert (refused.code, "CC-USE-025" in refused.err) == (2, True)
    assert re.search(rf"{run} was launched by \S+ \d.* ago", refused.err)
    for end in ends:
        verdict = json.loads(end.out.splitlines()[-1])["verdict"]
        assert (end.code, verdict["state"], verdict["cause"]["exception"]) == (
            1,
            "FAILED",
            "ValueError: failed on purpose",
        )
        assert (verdict["cause"]["rank"], len(verdict["cause"]["consequences"])) == (1, 2)
    assert all("stopping all nodes" in end.err for end in ends)  # the nodes do that, whoever watches
    assert leftovers(cluster) == {}
    again = cctl(cluster, "attach", "--json", run, **other)
    assert (again.code, "stopping" in again.err) == (1, False)
    verdict = again.verdict()
    assert (again.json_lines()[0], verdict["cause"]["exception"]) == (
        again.json_lines()[-1],
        "ValueError: failed on purpose",
    )


def test_a_shared_home_keeps_runs_apart(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """Two runs at once from one home: the code is sent once, states are apart, and swapped names stop nothing."""
    lab = make_lab(n=2, name="shared", shared_home=True)
    job = make_project(tmp_path / "p", COUNTING, env=STUBBED)
    (tmp_path / "p" / "weights.bin").write_bytes(os.urandom(3_000_000))
    first = cctl(lab, "launch", "-d", job)
    launching = start_cctl(lab, "launch", job)
    watching = Follower(lab, tmp_path, "status", "-w", first.out.strip())
    read_until(launching, "line 5")
    runs = json.loads(cctl(lab, "ps", "--json").out)["runs"]
    second = runs[0]["run"]
    swapped = swap_names(lab, tmp_path)
    confused = cctl(None, "-i", swapped, "stop", second, "-y")
    logs = cctl(lab, "logs", second, "--node", "1", "--stream", "stdout", "--json")
    stopped = cctl(lab, "stop", second, "-y", LOGNAME="bob")
    _, err = launching.communicate(timeout=HANG)
    state = json.loads(cctl(lab, "status", first.out.strip(), "--json").out)["run"]["state"]
    ended = cctl(lab, "stop", first.out.strip())

    assert re.search(r"3\.0 MB; 3\.0 MB sent", first.err), first.err
    assert [(entry["run"], entry["state"]) for entry in runs][1] == (first.out.strip(), "RUNNING")
    assert (confused.code, confused.err.count("CC-RUN-015")) == (5, 2), confused.err
    assert {entry["node"] for entry in logs.json_lines()} == {lab.nodes[1].name}
    assert (stopped.code, state, ended.code) == (0, "RUNNING", 0)
    assert launching.returncode == 1
    assert "stopped by bob@" in err
    assert "STOPPED after" in err
    watched = watching.end()
    assert (watched.code, watched.out.splitlines()[-1].split()[1:]) == (0, [first.out.strip(), "STOPPED"])
    assert leftovers(lab) == {}


def swap_names(lab: Lab, folder: Path) -> Path:
    """Write an inventory in which two nodes bear each other's names."""
    one, two = (node.name for node in lab.nodes)
    text = lab.inventory.read_text(encoding="utf-8")
    for old, new in ((one, "\0"), (two, one), ("\0", two)):
        text = text.replace(f"name: {old},", f"name: {new},")
    path = folder / "swapped.yaml"
    path.write_text(text, encoding="utf-8")
    return path
