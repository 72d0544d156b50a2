"""Which GPUs a run takes on a node, and who has them, in words."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.plans.facts.facts import describe_age, describe_holders, parse_facts, parse_holders
from clusterctl.plans.launch.placement import plan_devices
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.inventory.model import Node, Ssh
from clusterctl.specs.job.model import Job


def facts_of(count: int, **environment: str) -> Facts:
    """Describe a node with so many GPUs."""
    devices = [
        {"index": index, "uuid": f"GPU-{'abcdefgh'[index]}1", "memory_used": 4} for index in range(count)
    ]
    gpus = {"vendor": "nvidia", "count": count, "devices": devices}
    return parse_facts({"gpus": gpus, "environment": environment})


def chosen(job: dict[str, Any], facts: Facts, lent: int | None = None) -> list[str]:
    """Name what a job takes."""
    node = Node(name="n", index=0, host="h", ssh=Ssh(), gpus=lent)
    return [device.id for device in plan_devices(Job(name="j", file="f", script="t", **job), node, facts)]


def test_a_job_takes_all_that_the_node_lends() -> None:
    """All by default; no more than the inventory has; none for a job of CPUs."""
    four = facts_of(4)

    assert chosen({}, four) == ["GPU-a1", "GPU-b1", "GPU-c1", "GPU-d1"]
    assert chosen({"nproc_per_node": 1}, four, lent=2) == ["GPU-a1", "GPU-b1"]
    assert chosen({"backend": "gloo", "nproc_per_node": 2}, four) == []


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("1,3", ["GPU-b1", "GPU-d1"]),
        ("GPU-c", ["GPU-c1"]),
        ("MIG-1/2/3", ["MIG-1/2/3"]),
        ("0,7,1", ["GPU-a1"]),
        ("", []),
        ("-1", []),
        ("${local_rank}", ["GPU-a1", "GPU-b1", "GPU-c1", "GPU-d1"]),
    ],
)
def test_a_variable_chooses_as_for_cuda(shown: str, expected: list[str]) -> None:
    """Indices, UUIDs and their beginnings, slices; what follows a word that is none does not count."""
    assert chosen({"env": {"CUDA_VISIBLE_DEVICES": shown}}, facts_of(4)) == expected


def test_gpus_of_the_job_beat_the_nodes_own_variable() -> None:
    """`gpus:` counts, then the job's env, then what the node's start files set."""
    facts = facts_of(4, CUDA_VISIBLE_DEVICES="3")

    assert chosen({"gpus": (0, 1)}, facts) == ["GPU-a1", "GPU-b1"]
    assert chosen({"env": {"CUDA_VISIBLE_DEVICES": "2"}}, facts) == ["GPU-c1"]
    assert chosen({}, facts) == ["GPU-d1"]


def test_accelerators_without_uuids_go_by_their_index() -> None:
    """AMD and Ascend are counted by the probe, not named."""
    facts = parse_facts({"gpus": {"vendor": "ascend", "count": 2}})

    assert chosen({}, facts) == ["ascend-0", "ascend-1"]


def test_holders_are_read_with_distrust() -> None:
    """Whatever a process reports of itself, the line stays one line."""
    raw = [
        {"name": "clusterctl/gpu/x", "run": "a\x1b[31m\nb", "by": 7, "going": "yes", "age": 1e999},
        "?",
        None,
    ]
    (line,) = describe_holders(parse_holders(raw), {})

    assert line == "GPU x: run a\\x1b[31m\\x0ab of unknown, being prepared (in another container)"
    assert parse_holders({"no": "list"}) == ()


def test_ages_in_words() -> None:
    """Seconds to days."""
    ages = [describe_age(seconds) for seconds in (-1, 59.2, 60, 3600, 86400 * 3)]

    assert ages == ["for 0 s", "for 59 s", "for 1m", "for 1h", "for 3d"]
