"""The public Python API: what is promised can be used, and importing the package loads nothing."""

from __future__ import annotations

import clusterctl


def test_every_promised_name_loads() -> None:
    """All names of __all__ exist, and no other name is invented."""
    assert all(getattr(clusterctl, name) is not None for name in clusterctl.__all__)
    assert not hasattr(clusterctl, "no_such_name")


def test_a_plan_is_made_offline() -> None:
    """A plan needs no node."""
    inventory = clusterctl.parse_inventory(
        "{cluster: c, nodes: [{host: 192.0.2.1, nic: eth0, gpus: 2}]}", "i"
    )
    job = clusterctl.parse_job("{name: j, script: t.py}", "j")
    members = clusterctl.plan_placement(inventory, job)
    plan = clusterctl.plan_launch(job, members, {m.name: clusterctl.offline(m) for m in members}, run_id=None)

    assert "--nproc-per-node 2" in clusterctl.render_plan(plan)
