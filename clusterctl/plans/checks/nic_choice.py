"""Whether the NIC for training is the best that the node has, and whether the job's own variables fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterctl.plans.checks.check import Hit, Situation, check, on
from clusterctl.plans.checks.nics import SIDE_NETWORKS, told
from clusterctl.plans.checks.remedy import in_inventory
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_records import Nic
from clusterctl.plans.ifname import GLOO_READS, NCCL_READS, match_gloo, match_nccl
from clusterctl.plans.network import training_nic
from clusterctl.plans.rdma import active_ports
from clusterctl.specs.inventory import Node

VIRTUAL = ("veth", "tun", "wireguard", "vxlan", "dummy", "virtual")


def _chosen(seen: Situation) -> Iterator[tuple[Node, Facts, Nic]]:
    for node, facts in seen.known:
        nic = training_nic(seen.networks[node.name], facts)
        if nic is not None and nic.name and not seen.networks[node.name].problems:
            yield node, facts, nic


def _physical(facts: Facts) -> list[Nic]:
    """List the real NICs that could carry training as they are: on, linked, with an address."""
    return [nic for nic in facts.nics if nic.physical and nic.running and nic.ipv4]


@check(
    "CC-NET-018",
    "warning",
    "training uses a virtual NIC",
    why="Tunnels and virtual links cost bandwidth, and the node has a real NIC with an address.",
    needs=("nics",),
)
def nic_is_virtual(seen: Situation) -> Iterator[Hit]:
    """The chosen NIC is a tunnel, a VPN or a virtual link (tun, wireguard, vxlan, veth, dummy), beside a physical one.

    Right where the tunnel is the only way between the nodes; otherwise choose the physical NIC's address or name.
    """
    for node, facts, nic in _chosen(seen):
        real = _physical(facts)
        told_already = not node.nic and (nic.name or "").startswith(SIDE_NETWORKS)  # CC-NET-013
        if nic.kind in VIRTUAL and real and not told_already:
            fix = in_inventory(node, f"nic: [{real[0].name}]  # if the other nodes can be reached by it")
            yield on(node, f"{nic.name} ({nic.kind}); there is {told(real)}", fix)


@check(
    "CC-NET-019",
    "warning",
    "a faster NIC is not used",
    why="Gradients go over the chosen NIC; the faster one stays idle.",
    needs=("nics", "infiniband"),
)
def faster_nic(seen: Situation) -> Iterator[Hit]:
    """The node has a physical NIC, linked and with an address, whose speed is above that of the chosen one.

    Usual where SSH goes over a slow management network and `host:` is all that the inventory says: name the fast
    network by `network:` or the NIC by `nic:`. NCCL on InfiniBand or RoCE ports is not affected: it finds those by
    itself and uses the NIC only to set up.
    """
    for node, facts, nic in _chosen(seen):
        if nic.speed is None or (seen.wants_gpus() and active_ports(facts)):
            continue
        best = max(_physical(facts), key=lambda one: one.speed or 0, default=nic)
        if (best.speed or 0) > nic.speed and best.name not in seen.networks[node.name].nics:
            evidence = (
                f"{nic.name} {speed_text(nic.speed)}, {best.name} ({best.ipv4[0]}) {speed_text(best.speed)}"
            )
            yield on(node, evidence, in_inventory(node, f"nic: [{best.name}]"))


def speed_text(speed: int | None) -> str:
    """Write a speed, given in Mbit/s."""
    if speed is None:
        return "speed unknown"
    return f"{speed / 1000:g} Gbit/s" if speed >= 1000 else f"{speed} Mbit/s"


@check(
    "CC-NET-029",
    "error",
    "the job names NICs that a node does not have",
    why="A variable in the job's env beats the launch's own, and is the same on every node.",
    needs=("nics",),
)
def env_does_not_fit(seen: Situation) -> Iterator[Hit]:
    """NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME or TP_SOCKET_IFNAME in the job's `env:` matches no NIC of the node.

    Gloo and TensorPipe take exact names, comma-separated, and all of them must exist: `=eth0`, `^docker0` and `eth`
    are NCCL's grammar, in which a bare name is a prefix, `=` means exact and `^` everything but. Remove the variable:
    a launch sets each of them for each node in its own grammar.
    """
    env: Mapping[str, str] = seen.job.env if seen.job else {}
    for node, facts in seen.known:
        names = [nic.name for nic in facts.nics if nic.name]
        for variable in (*GLOO_READS, *NCCL_READS):
            value = env.get(variable, "")
            if value and "${" not in value and (why := _misfit(variable, value, names)):
                yield on(node, f"{variable}={value}: {why}", f"job: remove {variable} from env:")


def _misfit(variable: str, value: str, names: list[str]) -> str:
    if variable in NCCL_READS:
        return "" if match_nccl(value, names) else f"no NIC matches; there is {', '.join(names)}"
    missing = match_gloo(value, names)
    if not missing:
        return ""
    if value[:1] in "=^":
        return f"{value[0]!r} is NCCL's grammar, this variable takes exact names"
    return f"no NIC is called {', '.join(missing)}; there is {', '.join(names)}"
