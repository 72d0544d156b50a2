"""What a crashed run leaves on a node: shown by `ps --orphans`, ended by `clean`."""

from __future__ import annotations

import json
from pathlib import Path

from driving import cctl, kill_leftovers, leftovers, make_project, tagged
from waiting import wait_until

from clusterctl.lab.labs import Lab

SLEEP = "import time; time.sleep(3600)"


def test_orphans_are_shown_and_then_ended(cluster: Lab, tmp_path: Path) -> None:
    """All that watched over a run is killed at once; its worker is named, and goes with `clean -y`; live runs stay."""
    try:
        node = cluster.nodes[1]
        jobs = {
            name: make_project(tmp_path / name, SLEEP, name=name, launcher="python", nodes=node.name)
            for name in ("crashed", "lives")
        }
        crashed, lives = (cctl(cluster, "launch", "-d", job).out.strip() for job in jobs.values())
        wait_until(
            lambda: any(
                "train.py" in process.command for process in tagged(cluster, crashed).get(node.name, [])
            ),
            "its worker",
        )
        supervisors = [
            str(process.pid)
            for process in node.list_processes()
            if "/payload" in process.command
            and (crashed in process.command or process.run_id.startswith(crashed))
        ]
        assert len(supervisors) == 3, "guardian, agent, gate"
        node.run(["kill", "-STOP", *supervisors])
        node.run(["kill", "-KILL", *supervisors])
        wait_until(lambda: len(tagged(cluster, crashed)[node.name]) == 1, "only the worker is left")

        shown = cctl(cluster, "ps", "--orphans")
        (entry,) = json.loads(cctl(cluster, "ps", "--orphans", "--json").out)["orphans"]
        cleaned = cctl(cluster, "clean", "-y")

        assert (shown.code, shown.out.count("\n")) == (0, 1)
        assert f"{node.name}: pid {entry['pid']} of {crashed} (" in shown.out
        assert (entry["node"], entry["known"], entry["run"]) == (node.name, True, crashed)
        assert "train.py" in entry["command"]
        assert f"running without an agent: pid {entry['pid']} of {crashed}" in cleaned.out
        assert (cleaned.code, f"{node.name}: ended 1 orphan" in cleaned.out) == (0, True), cleaned
        assert list(tagged(cluster, crashed)) == []
        assert tagged(cluster, lives), "a run that lives is nobody's orphan"
        assert cctl(cluster, "stop", lives).code == 0
        assert leftovers(cluster) == {}
    finally:
        kill_leftovers(cluster)
