"""The spec of one node, made of the template and of what all tasks reported."""

from __future__ import annotations

from typing import Any

import pytest

from clusterctl.node.slurm.spec import (
    Member,
    SlurmError,
    build_spec,
    choose_network,
    choose_peer_addresses,
    count_workers,
    fill,
    parse_addresses,
    parse_member,
    stop_by_slurm,
)
from clusterctl.protocol.untrusted import Untrusted

OWN = {"lo": [("127.0.0.1", 8)], "eth0": [("192.168.1.5", 24)], "ib0": [("10.20.0.5", 16)]}
MEMBERS = [
    Member(0, "gpu07", "10.20.0.7", ("ib0",), 2),
    Member(1, "gpu03", "10.20.0.3", ("ib1", "ib2"), 2),
    Member(2, "gpu09", "10.20.0.9", ("ib0",), 2),
]
TEMPLATE: dict[str, Any] = {
    "run": "j-20261123T070000-abcd",
    "nnodes": 3,
    "module": "torch.distributed.run",
    "ports": [20000, 20100],
    "argv": ["--nproc-per-node", [{"fill": "workers"}], "--master-addr", [{"fill": "master_addr"}]],
    "env": {
        "NCCL_SOCKET_IFNAME": ["=", {"fill": "nics"}],
        "TP_SOCKET_IFNAME": [{"fill": "nic"}],
        "WORLD": [{"fill": "world_size"}, " of ", {"fill": "run_dir"}],
    },
}


def test_a_spec_has_this_nodes_values() -> None:
    """What only the agent knows stays a hole."""
    spec = build_spec(TEMPLATE, MEMBERS, 1, "/usr/bin/python3")

    assert spec["argv"] == ["--nproc-per-node", "2", "--master-addr", [{"fill": "master_addr"}]]
    assert spec["env"] == {
        "NCCL_SOCKET_IFNAME": "=ib1,ib2",
        "TP_SOCKET_IFNAME": "ib1",
        "WORLD": ["6", " of ", {"fill": "run_dir"}],
    }
    assert (spec["node"], spec["node_rank"], spec["hub"], spec["master_addr"]) == (
        "gpu03",
        1,
        "gpu07",
        "10.20.0.7",
    )
    assert (spec["gang"], spec["world_size"], spec["nproc"]) == (True, 6, 2)
    assert spec["node_ports"][1] == {"slot": 1, "address": "10.20.0.3", "ports": [22, 20000]}
    assert "nodes" not in spec
    assert build_spec(TEMPLATE, MEMBERS, 0, "python3")["nodes"] == ["gpu07", "gpu03", "gpu09"]


def test_other_launchers_have_the_nodes_of_the_allocation() -> None:
    """mpirun as many ranks on each as Slurm gave it GPUs, and Ray's messages their names; spares have no part."""
    ray = {"gpus": None, "all_gpus": None, "ports": None, "own_ports": 10, "names": {}}
    restart = {"max": 3, "on": [], "progress": "**"}
    template: Any = {**TEMPLATE, "nnodes": 2, "restart": restart, "mpi": {"slots": [1, 1]}, "ray": ray}
    spec = build_spec(template, MEMBERS, 1, "python3")

    assert spec["mpi"] == {"slots": [2, 2]}
    assert spec["ray"] == {**ray, "names": {"10.20.0.7": "gpu07", "10.20.0.3": "gpu03"}}


def test_spares_are_the_last_nodes() -> None:
    """They have a slot and no rank; the world is without them."""
    template = {**TEMPLATE, "nnodes": 2, "restart": {"max": 3, "on": [], "progress": "**"}}
    spec = build_spec(template, MEMBERS, 2, "python3")

    assert (spec["spare"], spec["slots"], spec["world_size"]) == (True, 3, 4)
    assert [entry["node_rank"] for entry in spec["roster"]] == [0, 1, None]
    unequal = [*MEMBERS[:2], MEMBERS[2]._replace(workers=1)]
    with pytest.raises(SlurmError, match="spare"):
        build_spec(template, unequal, 2, "python3")


def test_a_run_that_may_shrink_counts_its_ranks_at_each_attempt() -> None:
    """The agents know how many ranks each node has, and put the number of all in themselves."""
    restart = {"max": 3, "on": [], "progress": "**"}
    spec = build_spec({**TEMPLATE, "restart": restart, "min_nodes": 2}, MEMBERS, 1, "python3")

    assert spec["env"]["WORLD"] == [{"fill": "world_size"}, " of ", {"fill": "run_dir"}]
    assert [entry["processes"] for entry in spec["roster"]] == [2, 2, 2]
    assert (spec["nnodes"], spec["world_size"], spec["min_nodes"]) == (3, 6, 2)


@pytest.mark.parametrize(
    ("nics", "network", "source", "expected"),
    [
        ([], None, "10.20.0.5", ("10.20.0.5", ("ib0",))),
        (["eth0", "ib0"], None, "10.20.0.5", ("192.168.1.5", ("eth0", "ib0"))),
        ([], "10.20.0.0/16", None, ("10.20.0.5", ("ib0",))),
        ([], None, None, ("127.0.0.1", ("lo",))),  # one node alone
    ],
)
def test_a_network_is_chosen(
    nics: list[str], network: str | None, source: str | None, expected: tuple[str, tuple[str, ...]]
) -> None:
    """The inventory's, else the one that routes to the others."""
    assert choose_network(OWN, nics, network, source) == expected


@pytest.mark.parametrize(
    ("nics", "network", "source"), [(["eth9"], None, None), ([], "10.99.0.0/16", None), ([], None, "1.2.3.4")]
)
def test_no_network_is_an_error_that_names_what_there_is(
    nics: list[str], network: str | None, source: str | None
) -> None:
    """A job must not begin with an interface that does not exist."""
    with pytest.raises(SlurmError):
        choose_network(OWN, nics, network, source)


def test_another_node_is_met_in_a_network_of_this_one() -> None:
    """Its other addresses come last, its loopback never."""
    peer = {"lo": [("127.0.0.1", 8)], "docker0": [("172.17.0.1", 16)], "ib3": [("10.20.0.9", 16)]}
    assert choose_peer_addresses(OWN, peer) == ["10.20.0.9", "172.17.0.1"]


def test_workers_are_counted() -> None:
    """A number, the GPUs that Slurm gave, or the CPUs."""
    assert (count_workers(4, None, 64), count_workers("cpu", None, 64), count_workers("gpu", 8, 64)) == (
        4,
        64,
        8,
    )
    with pytest.raises(SlurmError, match="no GPU"):
        count_workers("gpu", None, 64)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"node": "../x", "address": "10.0.0.1", "workers": 1},
        {"node": "a", "address": "ten", "workers": 1},
    ],
)
def test_a_damaged_message_is_none(raw: dict[str, Any]) -> None:
    """The folder is shared."""
    assert parse_member(Untrusted(raw), 0) is None
    assert parse_member(Untrusted(MEMBERS[1].as_dict()), 1) == MEMBERS[1]


def test_addresses_are_read() -> None:
    """What is no address is left out."""
    raw = {
        "addresses": [{"nic": "ib0", "ip": "10.0.0.1", "prefix": 16}, {"nic": "x", "ip": "y", "prefix": 1}, 7]
    }
    assert parse_addresses(Untrusted(raw)) == {"ib0": [("10.0.0.1", 16)]}


def test_our_end_comes_before_slurms() -> None:
    """The record must be written before SIGKILL."""
    assert stop_by_slurm("4711", 60.0, 30.0)["grace"] == 27.0
    assert stop_by_slurm("4711", 2.0, None)["grace"] == 2.0
    assert stop_by_slurm("4711", 9.0, 1.0)["grace"] == 1.0
    assert stop_by_slurm("4711", 9.0, 30.0)["reason"].startswith("stopped by ")


def test_a_text_without_holes_stays() -> None:
    """Also one that looks like a hole."""
    assert fill("{fill: nic}", {"nic": "ib0"}) == "{fill: nic}"
