"""Hundreds of simulated nodes, some of which fail: every outcome is there, nothing grows with their number."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from simulated import DYING, REFUSED, SILENT, SimulatedCluster, Ways, simulated_nodes
from waiting import HANG

from clusterctl.cli.actions.preflight import PHASE, Questions, run_preflight
from clusterctl.cli.context.checks import select_checks
from clusterctl.client.launch import prepare
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import MAX_PARALLEL
from clusterctl.client.rpc.session import Interpreter
from clusterctl.client.rpc.tasks import CommandOutput, OutputCollector
from clusterctl.client.sync.scan import scan_source
from clusterctl.console.progress import Phases
from clusterctl.plans.launch.agent_spec import render_spec
from clusterctl.plans.launch.placement import Member
from clusterctl.plans.launch.plan import offline, plan_launch
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.job.model import Job, Restart

ROUGH = Ways(login=0.02, answer=0.01, refused=0.04, silent=0.02, slow=0.03, dying=0.04, patience=0.4)
CODES = {REFUSED: "CC-SSH-002", SILENT: "CC-SSH-004", DYING: "CC-SSH-015"}
PYTHON = Interpreter("python3", None)
HERE = Path(__file__).parents[2] / "support"
SPARE = 8  # threads and descriptors beside those of the nodes that are at work


def open_files() -> int:
    """Count the descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_every_node_has_its_outcome_and_the_right_ones_fail() -> None:
    """300 nodes, a tenth of which are refused, silent or cut; threads and descriptors are those of 128 at most."""
    nodes, most = simulated_nodes(300), {"threads": 0, "descriptors": 0}
    before = open_files()

    def ask(c: object, node: object) -> CommandOutput:
        kept = OutputCollector()
        answer = kept.finish(tasks.execute(c, node, PYTHON, ["hostname"], 1000, kept.append))
        most["threads"] = max(most["threads"], threading.active_count())
        most["descriptors"] = max(most["descriptors"], open_files())
        return answer

    with SimulatedCluster(ROUGH, seed=7) as cluster:
        outcomes = {outcome.node.name: outcome for outcome in cluster.each(nodes, ask, keep=False)}
        assert not cluster._connections  # none is kept that nobody needs
        fates = {node.name: cluster.fate(node).kind for node in nodes}
    assert list(fates) == sorted(outcomes)
    wanted = {name: CODES[kind] for name, kind in fates.items() if kind in CODES}
    assert len(wanted) > 20 and set(wanted.values()) == set(CODES.values())
    assert {name: one.error.code for name, one in outcomes.items() if one.error} == wanted
    assert all(one.error is None or one.error.node == name for name, one in outcomes.items())
    said = {name: one.value.stdout for name, one in outcomes.items() if one.value}
    assert said == {name: f"{name}\n".encode() for name in fates if name not in wanted}
    assert most["threads"] <= MAX_PARALLEL + SPARE
    assert most["descriptors"] <= before + 2 * MAX_PARALLEL + SPARE
    assert open_files() <= before + SPARE


def test_a_check_of_hundreds_names_those_that_fail(tmp_path: Path) -> None:
    """200 nodes tell their facts and call each other; the verdict speaks of those that could not be asked alone."""
    nodes = simulated_nodes(200)
    inventory = Inventory(cluster="simulated", file="inventory.yaml", nodes=nodes)
    with SimulatedCluster(ROUGH, seed=7) as cluster:
        phases = Phases([node.name for node in nodes])
        questions = Questions(nodes, None, select_checks(inventory, None))
        proof = run_preflight(cluster, questions, phases, tmp_path)
        lost = {node.name for node in nodes if cluster.fate(node).kind in CODES}
    assert PHASE == "check"
    assert set(proof.failures) == lost and set(proof.facts) == {node.name for node in nodes} - lost
    assert {name for finding in proof.findings for name in finding.nodes} == lost, proof.findings
    assert proof.mesh is not None and len(proof.mesh.nodes) == len(nodes) - len(lost)
    assert all(way.open for way in proof.mesh.paths) and not proof.mesh.absent


@pytest.mark.parametrize("restart", [None, Restart()])
def test_hundreds_come_to_go(tmp_path: Path, restart: Restart | None) -> None:
    """Where the run may start again all must have come before anybody is ready, however many may be at it at a time."""
    (tmp_path / "train.py").write_text("print()")
    job = Job(name="j", file="job.yaml", script="train.py", nproc_per_node=1, restart=restart)
    members = [Member(node, node.index) for node in simulated_nodes(MAX_PARALLEL + 60)]
    measured = {one.name: replace(offline(one), nics=("eth0",), python="/usr/bin/python3") for one in members}
    plan = plan_launch(job, members, measured, run_id="j-20261120T110000-ab12")
    specs = {node.name: render_spec(plan, node, {}) for node in plan.all_nodes}
    freight = prepare.LaunchInputs(specs, scan_source(tmp_path), {}, "token")
    phases = Phases(list(specs))
    phases.start("start", "code", "ready")
    pythons = dict.fromkeys(specs, PYTHON)
    with SimulatedCluster(Ways(login=0.01, answer=0.005)) as cluster:
        ready = prepare.prepare_all(cluster, plan, pythons, freight, phases)
        port = prepare.start_workers(cluster, plan, pythons, ready)
        prepare.close_sessions(ready.values())
    phases.stop()
    assert port == 29500 and list(specs) == sorted(ready)


FEW_FILES = """
import resource, sys
from simulated import SimulatedCluster, Ways, simulated_nodes
from clusterctl.errors import ClusterctlError
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.cluster import fan_out
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 400))
nodes = simulated_nodes(100)
try:
    Cluster(print).open_early(nodes)
except ClusterctlError as error:
    print(error.code, error.message, error.evidence)
kept = []
print({outcome.error.code for outcome in fan_out(nodes, lambda _: kept.extend(open("/dev/null") for _ in range(9)))
       if outcome.error})
"""


def test_a_machine_that_allows_too_few_files_says_so() -> None:
    """Before anything is opened where the number is hopeless, and for the node where it becomes too small."""
    words = [sys.executable, "-c", FEW_FILES]
    done = subprocess.run(words, capture_output=True, text=True, cwd=HERE, timeout=HANG, check=False)
    first, second = done.stdout.splitlines()
    assert first == (
        "CC-USE-080 this machine allows 400 open files, too few for so many nodes 100 nodes need at least 428"
    ), done.stderr
    assert second == "{'CC-USE-080'}"
