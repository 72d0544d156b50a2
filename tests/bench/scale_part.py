"""One part of `scale` at one size, in a process of its own: no bench itself.

python scale_part.py plan|exec|check|launch NODES prints JSON: seconds, processor time, memory in MB, most threads
and open files, how many nodes were well, and how many failed with which code.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from simulated import SimulatedCluster, Ways, address_of, simulated_nodes

from clusterctl.cli.actions.preflight import Questions, run_preflight, select_checks
from clusterctl.client.launch import prepare
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.session import Interpreter
from clusterctl.client.rpc.tasks import OutputCollector
from clusterctl.client.sync.scan import scan_source
from clusterctl.console.progress import Phases
from clusterctl.errors import ClusterctlError
from clusterctl.plans.launch.agent_spec import render_spec
from clusterctl.plans.launch.placement import Member
from clusterctl.plans.launch.plan import LaunchPlan, offline, plan_launch
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.model import Job

ROUGH = Ways(login=0.3, answer=0.1, refused=0.01, silent=0.01, slow=0.02, dying=0.01, patience=10.0)
FINE = Ways(login=0.3, answer=0.1)
SEED = 1
READABLE = 9000  # nodes: an inventory may have 50 000 values
PYTHON = Interpreter("python3", None)
JOB = Job(name="j", file="job.yaml", script="train.py", nproc_per_node=8)
TICK = 0.02
Ended = tuple[int, Iterable[ClusterctlError]]  # nodes that were well, and what the others failed with


def plan(count: int) -> Ended:
    """Read an inventory of so many nodes, plan a launch on them and write every agent's spec."""
    listed = "".join(f"  - {{host: {address_of(rank)}, name: gpu{rank:05}}}\n" for rank in range(count))
    text = f"cluster: many\nssh: {{user: alice}}\nnodes:\n{listed}"
    many = Inventory(cluster="many", file="inventory.yaml", nodes=simulated_nodes(count))
    inventory = parse_inventory(text, many.file) if count <= READABLE else many
    planned = make_plan(inventory)
    size = sum(len(json.dumps(render_spec(planned, node, {}))) for node in planned.nodes)
    assert size > count
    return count, ()


def make_plan(inventory: Inventory) -> LaunchPlan:
    """Plan a launch on all nodes."""
    members = [Member(node, node.index) for node in inventory.nodes]
    measured = {one.name: replace(offline(one), nics=("eth0",), python="/usr/bin/python3") for one in members}
    return plan_launch(JOB, members, measured, run_id="j-20261120T110000-ab12")


def execute(count: int) -> Ended:
    """Run a command everywhere."""

    def ask(c: Any, node: Any) -> object:
        kept = OutputCollector()
        return kept.finish(tasks.execute(c, node, PYTHON, ["hostname"], 1 << 20, kept.append))

    with SimulatedCluster(ROUGH, SEED) as cluster:
        outcomes = list(cluster.each(simulated_nodes(count), ask, keep=False))
    return sum(one.ok for one in outcomes), [one.error for one in outcomes if one.error]


def check(count: int) -> Ended:
    """Ask all for their facts, let them call each other, and judge."""
    nodes = simulated_nodes(count)
    inventory = Inventory(cluster="many", file="inventory.yaml", nodes=nodes)
    with SimulatedCluster(ROUGH, SEED) as cluster:
        questions = Questions(nodes, None, select_checks(inventory, None), recheck=True)
        phases = Phases([node.name for node in nodes])
        proof = run_preflight(cluster, questions, phases, Path(os.devnull))
    return len(proof.facts), list(proof.failures.values())


def launch(count: int) -> Ended:
    """Bring all to GO."""
    nodes = simulated_nodes(count)
    planned = make_plan(Inventory(cluster="many", file="inventory.yaml", nodes=nodes))
    specs = {node.name: render_spec(planned, node, {}) for node in planned.nodes}
    pythons = dict.fromkeys(specs, PYTHON)
    with tempfile.TemporaryDirectory() as folder, SimulatedCluster(FINE, SEED) as cluster:
        (Path(folder) / "train.py").write_text("print()")
        freight = prepare.LaunchInputs(specs, scan_source(folder), {}, "token")
        ready = prepare.prepare_all(cluster, planned, pythons, freight, Phases(list(specs)))
        prepare.start_workers(cluster, planned, pythons, ready)
        prepare.close_sessions(ready.values())
    return len(ready), ()


PARTS: dict[str, Callable[[int], Ended]] = {
    "plan": plan,
    "exec": execute,
    "check": check,
    "launch": launch,
}


class Peak:
    """The most threads and open files of this process, looked at every so often."""

    def __init__(self) -> None:
        self.threads = self.open_files = 0
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            self.threads = max(self.threads, threading.active_count() - 1)  # without this one
            self.open_files = max(self.open_files, len(list(Path("/proc/self/fd").iterdir())))
            time.sleep(TICK)


def memory_of(status: str) -> float:
    """Read the most memory that a process had, in MB; what `getrusage` tells begins with the parent's."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def main() -> None:
    """Do the part and print what it took."""
    peak, began, spent = Peak(), time.monotonic(), time.process_time()
    well, errors = PARTS[sys.argv[1]](int(sys.argv[2]))
    seconds, processor = time.monotonic() - began, time.process_time() - spent
    told = {
        "seconds": seconds,
        "cpu": processor,
        "memory": memory_of(Path("/proc/self/status").read_text()),
        "threads": peak.threads,
        "open_files": peak.open_files,
        "well": well,
        "failed": dict(Counter(error.code for error in errors)),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
