"""NIC variables by vendor."""

from __future__ import annotations

import pytest
from cases import healthy_answer

from clusterctl.node.fork.worker import LOAD_PREFIXES
from clusterctl.node.probe.system import WATCHED
from clusterctl.plans.facts.facts import parse_facts
from clusterctl.plans.launch.launchers import (
    VENDOR_NIC_RULES,
    VISIBLE_GPU_RULES,
    network_env,
    vendor_of,
    visible_env,
)
from clusterctl.specs.job.model import VISIBLE_DEVICES_VARIABLES


def test_nccl_gets_exact_names_and_gloo_plain_ones() -> None:
    """NCCL takes a bare name as a prefix, Gloo takes nothing but names."""
    assert network_env("nvidia", ("meth919", "meth920")) == {
        "GLOO_IFACE": "meth919,meth920",
        "GLOO_SOCKET_IFNAME": "meth919,meth920",
        "NCCL_SOCKET_IFNAME": "=meth919,meth920",
        "TP_SOCKET_IFNAME": "meth919",
    }


@pytest.mark.parametrize("vendor", VENDOR_NIC_RULES)
def test_gloo_gets_it_for_every_vendor(vendor: str) -> None:
    """CPU tensors travel by Gloo whatever the accelerator."""
    assert network_env(vendor, ("eth0",))["GLOO_SOCKET_IFNAME"] == "eth0"


def test_ascend_has_a_variable_of_its_own() -> None:
    """HCCL takes the place of NCCL."""
    env = network_env("ascend", ("eth0", "eth1"))
    assert env["HCCL_SOCKET_IFNAME"] == "eth0,eth1" and "NCCL_SOCKET_IFNAME" not in env


def test_no_nics_no_variables() -> None:
    """An empty name would select nothing and fail."""
    assert network_env("nvidia", ()) == {}


@pytest.mark.parametrize(
    ("changes", "vendor"),
    [
        ({}, "nvidia"),
        ({"gpus": {"vendor": None, "count": 0}}, "nvidia"),
        ({"gpus": {"vendor": "ascend", "count": 8}}, "ascend"),
        ({"gpus": None, "torch": {"version": "2.7", "hip": "6.3"}}, "amd"),
        ({"gpus": {"vendor": "toaster"}, "torch": None}, "cpu"),
        ({"gpus": None, "torch": {"version": "2.7.1+cpu"}, "packages": {"torch-npu": "2.7"}}, "ascend"),
    ],
)
def test_vendor(changes: dict[str, object], vendor: str) -> None:
    """The hardware reports whose it is, else torch."""
    assert vendor_of(parse_facts({**healthy_answer(1), **changes})) == vendor


@pytest.mark.parametrize(
    ("vendor", "wanted"),
    [
        ("nvidia", {"CUDA_VISIBLE_DEVICES": "0,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ("amd", {"HIP_VISIBLE_DEVICES": "0,2"}),
        ("ascend", {"ASCEND_RT_VISIBLE_DEVICES": "0,2"}),
    ],
)
def test_each_vendor_has_its_own_variable_for_gpus(vendor: str, wanted: dict[str, str]) -> None:
    """One variable each, and none for all GPUs."""
    assert visible_env(vendor, (0, 2)) == wanted
    assert visible_env(vendor, ()) == {}


def test_every_list_of_variables_has_those_of_every_vendor() -> None:
    """A job that selects GPUs itself, the probe and a forked worker know what the tables set."""
    selecting = {
        name for rules in VISIBLE_GPU_RULES.values() for name in rules if name.endswith("_VISIBLE_DEVICES")
    }
    for_nics = {name for rules in VENDOR_NIC_RULES.values() for name in rules}

    assert selecting <= set(VISIBLE_DEVICES_VARIABLES)
    assert [name for name in selecting | for_nics if not WATCHED.match(name)] == []
    assert [name for name in selecting if not name.startswith(LOAD_PREFIXES)] == []
