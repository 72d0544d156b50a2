"""Which nodes, which node_rank, which GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterctl.errors import UsageError
from clusterctl.plans.launch.launchers import vendor_of
from clusterctl.protocol.ranks import NodeRank, Slot
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.job.model import VISIBLE_DEVICES_VARIABLES, Job
from clusterctl.specs.nodeset import fold_names, select_nodes
from clusterctl.translation import tr, trn

if TYPE_CHECKING:  # its classes take 20 ms, and most verbs only choose nodes here
    from clusterctl.protocol.messages.facts import Facts, Gpu


@dataclass(frozen=True)
class Member:
    """A node of the inventory with its slot in one run; a `spare` has no rank until it takes another's place."""

    node: Node
    slot: Slot
    spare: bool = False

    @property
    def node_rank(self) -> NodeRank:
        """Return its rank in the first attempt, 0 for the master; of a spare the number that follows on the last."""
        return NodeRank(self.slot)

    @property
    def name(self) -> str:
        """The inventory's name of the node."""
        return self.node.name


def choose_nodes(inventory: Inventory, pattern: str | None, exclude: str | None) -> tuple[Node, ...]:
    """Pick nodes by pattern, keep the inventory's order; `None` picks all."""
    names = [node.name for node in inventory.nodes]
    selected = set(select_nodes(pattern, names)) if pattern is not None else set(range(len(names)))
    excluded = set(select_nodes(exclude, names)) if exclude else set()
    chosen = tuple(inventory.nodes[index] for index in sorted(selected - excluded))
    if not chosen:
        raise UsageError("CC-USE-004", exclude=exclude, nodes=fold_names(names))
    return chosen


def explain_rank_pattern(pattern: str | None, nodes: Sequence[Node]) -> str:
    """Return the note that a single number as `--nodes` is a node's rank, and how that many nodes are chosen."""
    text = (pattern or "").strip()
    if not (text.isascii() and text.isdecimal()) or int(text) < 2 or len(nodes) != 1:
        return ""
    return tr(
        "--nodes {number} is the one node with rank {number}, {node}; for {number} nodes: --nodes 0-{last}",
        number=int(text),
        node=nodes[0].name,
        last=int(text) - 1,
    )


def plan_placement(
    inventory: Inventory, job: Job, *, pattern: str | None = None, exclude: str | None = None
) -> tuple[Member, ...]:
    """Assign a node_rank to each chosen node; `--nodes` beats the job's `nodes:`, a count takes the first ones.

    Nodes that are kept in reserve are chosen only by name. The spares that the job wants come last.
    """
    selection = pattern if pattern is not None else (job.nodes if isinstance(job.nodes, str) else None)
    is_explicit = selection not in (None, "all")
    candidates = choose_nodes(inventory, selection if is_explicit else None, exclude)
    nodes = tuple(node for node in candidates if is_explicit or not node.spare)
    if not nodes:
        raise UsageError("CC-USE-004", "spares", nodes=fold_names([node.name for node in candidates]))
    if pattern is None and isinstance(job.nodes, int):
        nodes = _limit_count(nodes, job.nodes, inventory)
    spares = _choose_spares(inventory, job, nodes, exclude)
    chosen = tuple(Member(node, Slot(number)) for number, node in enumerate(nodes))
    return chosen + tuple(
        Member(node, Slot(number), spare=True) for number, node in enumerate(spares, len(nodes))
    )


def _choose_spares(
    inventory: Inventory, job: Job, nodes: Sequence[Node], exclude: str | None
) -> tuple[Node, ...]:
    """Take what the inventory keeps in reserve first, then what the job leaves over."""
    count = job.restart.spares if job.restart else 0
    if not count:
        return ()
    free = [node for node in choose_nodes(inventory, None, exclude) if node not in nodes]
    if count > len(free):
        raise UsageError(
            "CC-USE-032",
            spares=trn("{n} spare", "{n} spares", count),
            nodes=trn("{n} node", "{n} nodes", len(nodes)),
            available=tr("{count} of them", count=len(free)) if free else tr("none"),
        )
    return tuple(sorted(free, key=lambda node: not node.spare)[:count])


def _limit_count(nodes: Sequence[Node], count: int, inventory: Inventory) -> tuple[Node, ...]:
    if count > len(nodes):
        raise UsageError("CC-USE-005", count=count, usable=len(nodes), file=inventory.file)
    return tuple(nodes[:count])


@dataclass(frozen=True)
class Device:
    """One GPU, or a slice of one; `index` is None for a slice, `used` its memory in use before the run, in MiB."""

    index: int | None
    id: str
    used: int | None = None


def needs_gpus(job: Job) -> bool:
    """Return whether a job trains on GPUs."""
    return job.backend == "nccl" or job.nproc_per_node == "gpu" or bool(job.gpus)


def plan_devices(job: Job, node: Node, facts: Facts) -> tuple[Device, ...]:
    """Choose what a job takes of a node: its `gpus`, or what a variable shows it, else all that the node lends."""
    devices = _list_devices(facts)
    if not needs_gpus(job) or not devices:
        return ()
    lent = devices if node.gpus is None else devices[: node.gpus]
    if job.gpus:
        return tuple(device for device in devices if device.index in job.gpus)
    visible = next(
        (text for name in VISIBLE_DEVICES_VARIABLES if (text := job.env.get(name)) is not None), None
    )
    if visible is None:
        visible = next(
            (text for name in VISIBLE_DEVICES_VARIABLES if (text := facts.environment.get(name)) is not None),
            None,
        )
    return lent if visible is None or "${" in visible else _parse_visible_devices(visible, devices)


def _list_devices(facts: Facts) -> tuple[Device, ...]:
    """Name what the probe saw; where it saw no UUIDs, as of AMD and Ascend, the vendor and the index are the name."""
    with_uuid = [_device(gpu) for gpu in facts.gpus.devices if gpu.uuid]
    if with_uuid:
        return tuple(sorted(with_uuid, key=lambda device: device.index or 0))
    vendor = vendor_of(facts)
    return tuple(Device(index, f"{vendor}-{index}") for index in range(min(facts.gpus.count or 0, 64)))


def _device(gpu: Gpu) -> Device:
    return Device(gpu.index, gpu.uuid or "", gpu.memory_used)


def _parse_visible_devices(text: str, devices: Sequence[Device]) -> tuple[Device, ...]:
    """Read a list of indices, of UUIDs or their beginnings, and of slices, as CUDA does: to the first that is none."""
    chosen: list[Device] = []
    for word in (word.strip() for word in text.split(",")):
        if word.startswith("MIG-"):
            chosen.append(Device(None, word))
            continue
        matches = [device for device in devices if _matches_device(word, device)]
        if not matches:
            break
        chosen += matches[:1]
    return tuple(dict.fromkeys(chosen))


def _matches_device(word: str, device: Device) -> bool:
    if word.isdecimal():
        return device.index == int(word)
    return word.startswith("GPU-") and device.id.startswith(word)


def warn_of_losses(nodes: int, spares: int) -> str:
    """Return so if a run survives fewer lost nodes than it has spares: more than half of all must be left each time."""
    survived = min(spares, (nodes + spares - 1) // 2)
    if survived == spares:
        return ""
    return tr(
        "only {survived} of {spares} spares can replace lost nodes: "
        "more than half of all {total} nodes and spares must be left",
        survived=survived,
        spares=spares,
        total=nodes + spares,
    )
