"""CC-SYS-005 names exactly the variables of a session that a launch clears."""

from __future__ import annotations

import pytest
from cases import judge

from clusterctl.node.probe.system import environment
from clusterctl.node.supervise.spawn import AttemptPaths, plan_environment
from clusterctl.plans.launch.agent_spec import render_spec
from clusterctl.plans.launch.placement import plan_placement
from clusterctl.plans.launch.plan import PlanFacts, plan_launch
from clusterctl.protocol.messages.environment import CLEARED_NAMES, CLEARED_PREFIXES
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job

INVENTORY = parse_inventory("{cluster: lab, nodes: [{host: 10.0.0.1, name: gpu1}]}", "inventory.yaml")
JOB = parse_job("{name: j, launcher: command, command: [./t.sh], nproc_per_node: 1}", "job.yaml")
# What torchrun sets for each worker (torch/distributed/elastic/agent/server/local_elastic_agent.py, torch 2.13).
OF_TORCHRUN = (
    *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME", "LOCAL_WORLD_SIZE", "WORLD_SIZE"),
    *("GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
    *("TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE"),
)
OTHERS = (
    "MASTER_KEY",
    "GROUP_NAME",
    "ROLE_ARN",
    "NCCL_DEBUG",
    "NCCL_HOSTID",
    "PYTHONPATH",
    "HOME",
    "RANKING",
)


def is_inherited(name: str) -> bool:
    """Return whether a worker of a planned launch still has a variable of the node's session."""
    members = plan_placement(INVENTORY, JOB)
    facts = {member.name: PlanFacts("10.0.0.1", ("eth0",), 1, 1, "/opt/py") for member in members}
    plan = plan_launch(JOB, members, facts, run_id="r-1")
    spec = render_spec(plan, plan.nodes[0], {})  # type: ignore[typeddict-item]  # who launched it
    env, _ = plan_environment({name: "stale"}, spec, {}, AttemptPaths("", "", "", "", {}))
    return env.get(name) == "stale"


@pytest.mark.parametrize(
    "name",
    [*dict.fromkeys((*OF_TORCHRUN, *CLEARED_NAMES)), *(f"{prefix}X" for prefix in CLEARED_PREFIXES), *OTHERS],
)
def test_a_variable_is_reported_as_cleared_if_a_launch_clears_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe reports it, the check names it, and no worker has it; or the check does not and the worker does."""
    monkeypatch.setenv(name, "stale")
    reported = {key: value for key, value in environment().items() if key == name}
    findings = judge({"name": name, "facts": {"gpu2": {"environment": reported}}})
    named = [finding for finding in findings if finding.code == "CC-SYS-005" and name in finding.evidence]
    assert bool(named) is not is_inherited(name)
    assert bool(named) is (name not in OTHERS)
