"""Warm nodes: the next launch starts from what waits after the last one, until that is stopped or its time is up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from driving import HELLO, cctl, leftovers, make_project, run_id, said, wait_until_gone
from waiting import wait_until

from clusterctl.lab.labs import Lab


def list_warm(lab: Lab) -> dict[str, int]:
    """Give the pids that `ps` lists as warm, by node."""
    listed = json.loads(cctl(lab, "ps", "--json").out)["warm"]
    return {entry["node"]: entry["pid"] for entry in listed}


def wait_until_warm(lab: Lab, nodes: set[str]) -> dict[str, int]:
    """Wait until these nodes are warm, and return the pids."""
    wait_until(lambda: set(list_warm(lab)) == nodes, "warm nodes")
    return list_warm(lab)


def launch(lab: Lab, job: Path, *options: str) -> tuple[list[float], dict[str, tuple[str, str]]]:
    """Launch and wait; gives what each rank has computed, and how each gate was started where one was warm."""
    result = cctl(lab, "launch", job, "--json", *options)
    assert result.code == 0, result.err
    run = run_id(result.err)
    found: dict[str, tuple[str, str]] = {}
    for node in lab.nodes[:2]:
        events = node.run(["sh", "-c", f"cat ~/.clusterctl/runs/{run}/*/events.jsonl"]).stdout
        entries: list[dict[str, Any]] = [json.loads(line) for line in events.splitlines()]
        for entry in entries:
            if entry["event"] == "warm":
                found[node.name] = (entry["method"], entry["text"])
    return [json.loads(line)["sum"] for line in said(result.json_lines())], found


def test_the_next_launch_starts_from_what_is_warm(cluster: Lab, tmp_path: Path) -> None:
    """`stop --warm` and the clock end it, and then nothing is left; it is never an orphan.

    What makes a node start from nothing is in node/fork: test_imports.py decides, test_standby_run.py shows it.
    """
    job = make_project(tmp_path, HELLO, nodes=2, start="fork")
    first, second = (node.name for node in cluster.nodes[:2])
    assert launch(cluster, job, "--keep-warm", "2m") == ([3.0, 3.0], {})
    warm = wait_until_warm(cluster, {first, second})
    assert "warm for" in cctl(cluster, "ps").out
    assert json.loads(cctl(cluster, "ps", "--orphans", "--json").out)["orphans"] == []

    stopped = cctl(cluster, "stop", "--warm", first)
    assert (stopped.code, stopped.out) == (0, f"{first}: no longer warm\n")
    assert list_warm(cluster) == {second: warm[second]}

    assert launch(cluster, job, "--keep-warm", "1s") == ([3.0, 3.0], {second: ("fork", "")})
    assert warm[second] not in list_warm(cluster).values(), "that has become the run"
    wait_until_gone(cluster)
    assert list_warm(cluster) == {}
    assert leftovers(cluster) == {}
