"""InfiniBand and RoCE: ports that are not up, and nodes whose adapters do not match."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from clusterctl.plans.checks.check import Hit, Situation, across, check, on
from clusterctl.plans.checks.remedy import as_root, ask_first, ssh_to
from clusterctl.plans.checks.voting import Split, split_votes
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import InfinibandPort
from clusterctl.plans.rdma import ACTIVE, active_ports, rate_of

LINKED = "LinkUp"
GID_INDEX = "NCCL_IB_GID_INDEX"


def _votes(seen: Situation, value: Callable[[tuple[InfinibandPort, ...]], str]) -> Split | None:
    """Compare the nodes' active ports, where any node has some."""
    told = {node.name: value(active_ports(facts)) for node, facts in seen.known}
    return split_votes(told) if any(facts.infiniband for _, facts in seen.known) else None


def _name(port: InfinibandPort) -> str:
    return f"{port.adapter}:{port.port}"


@check(
    "CC-NET-023",
    "warning",
    "an InfiniBand port has a link but is not active",
    why="NCCL does not use it, and falls back to fewer ports or to plain TCP.",
    needs=("infiniband",),
)
def port_is_not_active(seen: Situation) -> Iterator[Hit]:
    """The cable is in and the link is up, but the port stays in INIT or ARMED.

    No subnet manager answers on this InfiniBand fabric, or it does not know the port. Ports without a cable are not
    reported, only counted.
    """
    for node, facts in seen.known:
        idle = [port for port in facts.infiniband if port.physical == LINKED and port.state != ACTIVE]
        if idle:
            evidence = ", ".join(f"{_name(port)} is {port.state or 'in an unknown state'}" for port in idle)
            yield on(node, evidence, as_root(node, facts, "ibstat; sminfo"))


@check(
    "CC-NET-024",
    "warning",
    "the nodes have different numbers of active InfiniBand ports",
    why="NCCL may refuse (`Detected mixed local Net device counts across ranks`) or use the smaller number.",
    needs=("infiniband",),
)
def port_counts_differ(seen: Situation) -> Iterator[Hit]:
    """Some nodes have more active InfiniBand or RoCE ports: a cable is out, an adapter or its driver is gone."""
    split = _votes(seen, lambda ports: str(len(ports)))
    if split:
        odd = [(node, facts) for node, facts in seen.known if node.name in split.odd]
        states = "; ".join(f"{node.name} has {_states(facts)}" for node, facts in odd[:4])
        look = ssh_to(odd[0][0], "grep . /sys/class/infiniband/*/ports/*/state")
        yield across(split.odd, f"{split.evidence} ({states})", look)


def _states(facts: Facts) -> str:
    return ", ".join(f"{_name(port)} {port.state}" for port in facts.infiniband) or "no adapter"


@check(
    "CC-NET-025",
    "error",
    "InfiniBand and RoCE are mixed",
    why="InfiniBand and Ethernet ports cannot talk to each other: `Attempted to connect incompatible devices`.",
    needs=("infiniband",),
)
def links_are_mixed(seen: Situation) -> Iterator[Hit]:
    """The active ports of some nodes are InfiniBand and those of others Ethernet (RoCE), with no kind that all have.

    Nodes that have both are fine as long as NCCL_IB_HCA names ports of one kind; `check` shows which ones there are.
    """
    kinds = {node.name: {port.link or "" for port in active_ports(facts)} for node, facts in seen.known}
    with_some = {name: found for name, found in kinds.items() if found}
    if seen.wants_gpus() and len(with_some) > 1 and not set.intersection(*with_some.values()):
        split = split_votes({name: "+".join(sorted(found)) for name, found in with_some.items()})
        if split:
            yield across(
                split.odd, split.evidence, "job: env: {NCCL_IB_DISABLE: 1}  # plain TCP, as a way out"
            )


@check(
    "CC-NET-026",
    "warning",
    "the rates of InfiniBand ports differ",
    why="The slowest port sets the pace of every all-reduce.",
    needs=("infiniband",),
)
def rates_differ(seen: Situation) -> Iterator[Hit]:
    """The slowest active port of some nodes has a lower rate than that of the others: a cable or a switch port made it
    fall back (`ibstatus` shows the same number).
    """
    slowest = {
        node.name: min(rates)
        for node, facts in seen.known
        if (rates := [rate for port in active_ports(facts) if (rate := rate_of(port))])
    }
    split = split_votes({name: f"{rate:g} Gbit/s" for name, rate in slowest.items()})
    if split:
        fix = f"look at cable and switch port; {ask_first(seen.nodes, split.odd, 'ibstatus')}"
        yield across(split.odd, split.evidence, fix)


@check(
    "CC-NET-027",
    "info",
    "network adapters do not reach GPU memory",
    why="Every byte is copied through the node's memory first: slower, without any error.",
    needs=("infiniband", "gpudirect", "gpus"),
)
def gpudirect_is_off(seen: Situation) -> Iterator[Hit]:
    """The node has NVIDIA GPUs and active InfiniBand or RoCE ports, and GPUDirect RDMA has no way: the module
    nvidia_peermem is not loaded, and the kernel driver is not the open one, which needs no module (DMA-BUF).
    """
    for node, facts in seen.known:
        way = facts.gpudirect.peermem or facts.gpudirect.open_driver
        if facts.gpus.count and facts.gpus.vendor == "nvidia" and active_ports(facts) and way is False:
            yield on(node, "nvidia_peermem is not loaded", as_root(node, facts, "modprobe nvidia-peermem"))


@check(
    "CC-NET-028",
    "info",
    "NCCL_IB_GID_INDEX is set",
    why="NCCL 2.21 and later find the right address themselves; a number that fits one node may not fit another.",
    needs=("infiniband", "environment"),
)
def gid_index_is_set(seen: Situation) -> Iterator[Hit]:
    """A fixed GID index chooses an address of the RoCE port by its place in a table that differs between nodes and
    changes with addresses. Wrong ones end in `ibv_modify_qp failed with error Invalid argument`.
    """
    job = (seen.job.env if seen.job else {}).get(GID_INDEX)
    for node, facts in seen.known:
        value = job or facts.environment.get(GID_INDEX)
        if value and active_ports(facts):
            where = "the job's env" if job else "the node's environment"
            yield on(node, f"{GID_INDEX}={value} in {where}", f"remove {GID_INDEX} from {where}")
