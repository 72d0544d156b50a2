"""Logs over all nodes of a lab: times, their order, and a log that is too long."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from driving import STUBBED, cctl, make_project, start_cctl
from faulting import set_clock
from waiting import HANG, wait_until

from clusterctl.lab.labs import Lab

OFF = 20.0  # seconds; less than the minute by which a wrong clock is off

# Says in every line what time it is. Rank 1 writes more than the limit in between, and rank 2 redraws a bar.
TALKING = """
import os, sys, time
rank = int(os.environ["RANK"])
for number in range(80):
    print(f"{time.time():.3f} {number}", flush=True)
    if rank == 1:
        sys.stdout.write(f"{time.time():.3f} filler {'x' * 80}\\n" * 900)
    if rank == 2:
        sys.stderr.write(f"\\r{number:3} %")
        sys.stderr.flush()
    time.sleep(0.03)
"""


@pytest.fixture(scope="module")
def talked(cluster: Lab, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that has ended; gives its name."""
    folder = tmp_path_factory.mktemp("talked")
    job = make_project(folder, TALKING, env=STUBBED, log_limit="2MB")
    launched = cctl(cluster, "launch", "--ignore-checks", job)
    assert launched.code == 0, launched.err
    if "gpu02: its logs have reached log_limit (2MB)" not in launched.err:
        pytest.skip(f"the nodes' file system cannot free a part of a file: {launched.err}")
    return next(line.split()[1].rstrip(":") for line in launched.err.splitlines() if line.startswith("run "))


def said_at(entry: dict[str, Any]) -> float:
    """Give the time that a line itself tells."""
    return float(entry["line"].split()[0])


def test_all_lines_come_in_the_order_of_time(cluster: Lab, talked: str) -> None:
    """Over nodes and ranks; none is far off, none is missing where none was dropped."""
    shown = cctl(cluster, "logs", talked, "-t", "--json", "--stream", "stdout")
    entries = [entry for entry in shown.json_lines() if "dropped" not in entry]
    times = [entry["time"] for entry in entries]
    assert shown.code == 0, shown.err
    assert times == sorted(times)
    for rank in (0, 2):
        own = [entry for entry in entries if entry["rank"] == rank]
        assert [entry["line"].split()[1] for entry in own] == [str(number) for number in range(80)]
        assert max(abs(entry["time"] - said_at(entry)) for entry in own) < OFF
    (dropped,) = [entry for entry in shown.json_lines() if "dropped" in entry]
    assert (dropped["node"], dropped["line"]) == ("gpu02", "")
    assert dropped["dropped"] > 3_000_000


def test_since_shows_what_is_young_enough(cluster: Lab, talked: str) -> None:
    """From the middle of the run on, without the time of each line unless that is asked for."""
    whole = cctl(cluster, "logs", talked, "--json", "--rank", "0", "--stream", "stdout").json_lines()
    middle = whole[40]["time"]
    late = cctl(
        cluster, "logs", talked, "--rank", "0", "--stream", "stdout", "--since", iso(middle + 0.2)
    ).out
    numbers = [int(line.split()[-1]) for line in late.splitlines()]
    assert numbers[0] > 40 and numbers == list(range(numbers[0], 80))
    nothing = cctl(cluster, "logs", talked, "--since", iso(time.time() + 3600))
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing was written since then" in nothing.err


def test_a_log_that_is_too_long_says_what_is_missing(cluster: Lab, talked: str) -> None:
    """Its beginning and its end are there, the files take no more room than allowed, and a bar is one line."""
    lines = cctl(cluster, "logs", talked, "--node", "1").out.splitlines()
    (gap,) = [place for place, line in enumerate(lines) if line.startswith("gpu02 r1 ~ ")]
    assert "of this log are missing here: dropped to hold log_limit, or a hole in the file" in lines[gap]
    assert lines[0].endswith(" 0") and 0 < gap < len(lines) - 900
    assert any(line.split()[-1] == "79" for line in lines[-901:])
    assert not any("\0" in line for line in lines)
    usage = cluster.nodes[1].run(["sh", "-c", f"du -sB1 ~/.clusterctl/runs/{talked}/*/attempt-1"]).stdout
    assert int(usage.split()[0]) < 2_300_000
    assert cctl(cluster, "logs", talked, "--node", "2", "--stream", "stderr").out.splitlines() == [
        "gpu03 r2 !  79 %"
    ]


def test_following_tells_times_too(cluster: Lab, tmp_path: Path) -> None:
    """Of lines from before we came and of those that come."""
    job = make_project(tmp_path, TALKING.replace("rank == 1", "False"), env=STUBBED)
    run = cctl(cluster, "launch", "-d", "--ignore-checks", job).out.strip()
    time.sleep(1)
    followed = cctl(cluster, "logs", run, "-f", "--json", "--stream", "stdout").json_lines()
    off: dict[int, list[float]] = defaultdict(list)
    for entry in followed:
        off[entry["rank"]].append(abs(entry["time"] - said_at(entry)))
    assert {rank: len(found) for rank, found in off.items()} == {0: 80, 1: 80, 2: 80}
    assert max(max(found) for found in off.values()) < OFF


def test_a_clock_that_is_off_changes_no_order(cluster: Lab, tmp_path: Path) -> None:
    """Node 1 lives a minute later: its lines stand among the others' where they belong, by our clock."""
    setting = set_clock(cluster, cluster.nodes, tmp_path)
    job = make_project(tmp_path, TALKING.replace("rank == 1", "False").replace("80", "25"), env=STUBBED)
    assert cctl(cluster, "-i", str(setting.inventory), "launch", "--ignore-checks", job).code == 0
    shown = cctl(cluster, "-i", str(setting.inventory), "logs", "-t", "--json", "--stream", "stdout")
    entries, off = shown.json_lines(), {"gpu01": 0, "gpu02": 60, "gpu03": 0}
    assert len(entries) == 75
    assert [entry["time"] for entry in entries] == sorted(entry["time"] for entry in entries)
    assert max(abs(entry["time"] + off[entry["node"]] - said_at(entry)) for entry in entries) < OFF


def test_a_pager_that_nobody_turns_over_ends_nothing(cluster: Lab, talked: str) -> None:
    """The node hangs up when nobody reads for long; who reads on gets the rest, nothing twice."""
    whole = cctl(cluster, "logs", talked, "--rank", "1").out
    reading = start_cctl(cluster, "logs", talked, "--rank", "1")
    assert reading.stdout is not None
    first = os.read(reading.stdout.fileno(), 1).decode()  # nothing more is read: the rest waits on the node
    for pid in verbs_on(cluster, "gpu02"):
        cluster.nodes[1].run(["kill", "-9", str(pid)], check=False)
    out, err = reading.communicate(timeout=HANG)
    assert (reading.returncode, first + out) == (0, whole), err[-2000:]


def verbs_on(lab: Lab, name: str) -> list[int]:
    """List the processes by which a node answers us."""
    node = next(node for node in lab.nodes if node.name == name)
    return [process.pid for process in node.list_processes() if "clusterctl-boot" in process.command]


def iso(moment: float) -> str:
    """Write a time as `--since` takes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment)) + f".{int(moment % 1 * 1000):03}"


HALVES = """
import os, pathlib, time
for half in (0, 1):
    while half and not pathlib.Path("/tmp/second-half").exists():
        time.sleep(0.05)
    for number in range(40):
        print("line", 40 * half + number, flush=True)
        time.sleep(0.02)
"""


def test_followed_lines_come_in_the_order_of_time(cluster: Lab, tmp_path: Path) -> None:
    """What is there comes in its order, then what follows; none is lost at the seam, or doubled."""
    job = make_project(tmp_path, HALVES, launcher="python", nodes=2)
    run = cctl(cluster, "launch", "-d", job).out.strip()
    wait_until(lambda: cctl(cluster, "logs", run, "--grep", "line 39$").out.count("line 39") == 2, "a half")
    following = start_cctl(cluster, "logs", run, "-f", "-t", "--json")
    assert following.stdout is not None
    entries = [json.loads(following.stdout.readline()) for _ in range(80)]
    times = [entry["time"] for entry in entries]
    assert times == sorted(times)

    for node in cluster.nodes[:2]:
        node.run(["touch", "/tmp/second-half"])
    entries += [json.loads(line) for line in following.stdout]
    assert following.wait(HANG) == 0
    for rank in (0, 1):
        own = [entry["line"] for entry in entries if entry["rank"] == rank]
        assert own == [f"line {number}" for number in range(80)]


# Rank 0 stays as it is, 1 puts a pipe in place of its log, and 2 makes it a sparse file of terabytes.
REPLACING = """
import os
rank, log = int(os.environ["RANK"]), os.readlink("/proc/self/fd/1")
print("before", flush=True)
if rank == 1:
    os.unlink(log)
    os.mkfifo(log)
if rank == 2:
    os.truncate(log, 8 << 40)
print("after", flush=True)
"""


def test_logs_that_ranks_have_replaced_keep_no_verb(cluster: Lab, tmp_path: Path) -> None:
    """Every verb that reads logs ends and names the one; the run is none the worse, and the other logs are shown."""
    job = make_project(tmp_path, REPLACING, env=STUBBED)
    launched = cctl(cluster, "launch", "--ignore-checks", job)
    assert launched.code == 0, launched.err
    run = next(line.split()[1].rstrip(":") for line in launched.err.splitlines() if line.startswith("run "))
    attached = cctl(cluster, "attach", run)
    assert attached.code == 0, attached.err
    assert "stdout.log is a pipe and not a file any more" in attached.err
    for words in (
        ("logs", run),
        ("logs", run, "-t"),
        ("logs", run, "--tail", "9"),
        ("report", run, "-o", tmp_path / "r.html"),
    ):
        shown = cctl(cluster, *words)
        assert (words[0], shown.code) == (words[0], 5), shown.err
        assert "CC-RUN-036" in shown.err and "gpu02" in shown.err, shown.err
        assert words[0] == "report" or shown.out.count("before") == 2, shown.out
