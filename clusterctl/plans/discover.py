"""From the facts of machines to an inventory: the fastest network that all have, and Pythons with the same torch."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from clusterctl.errors import ClusterctlError
from clusterctl.plans.checks.framework import join_items, join_parts
from clusterctl.plans.checks.nics import SIDE_NETWORKS, render_speed
from clusterctl.plans.facts.untrusted import clean_text, read_clean_many
from clusterctl.plans.launch.network import active_ports, plan_hcas, resolve_network
from clusterctl.protocol.messages.facts import Address, Facts, FoundPython, Nic
from clusterctl.protocol.messages.record import MAX_ITEMS
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.render import DiscoveredNode
from clusterctl.specs.values import accepts, parse_nic, parse_python
from clusterctl.translation import tr, trn

ACTIVE = "python3"  # the interpreter where the inventory names none
MAX_PATH = 255  # characters; longer texts of nodes are cut
_VERSION = re.compile(r"[\w.+!-]{1,64}")
_PATH = re.compile(r"[\w./~+@ -]+")
# Of a machine with any other error an SSH server answered.
NOT_REACHED = ("CC-SSH-001", "CC-SSH-002", "CC-SSH-003", "CC-SSH-004", "CC-SSH-005", "CC-SSH-013")
# What a package is called where it is installed from, if that is not the name that is imported.
PACKAGES: Mapping[str, str] = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "dotenv": "python-dotenv",
    "tensorboardX": "tensorboardX",
    "pytorch_lightning": "pytorch-lightning",
    "hydra": "hydra-core",
    "omegaconf": "omegaconf",
    "git": "gitpython",
    "bs4": "beautifulsoup4",
}
COMES_WITH_TORCH = frozenset({"torch", "functorch", "torchgen"})


@dataclass(frozen=True)
class CandidateAddress:
    """An address of a NIC that could carry training."""

    nic: Nic
    name: str
    ip: str
    network: IPv4Network


@dataclass(frozen=True)
class DiscoveredCluster:
    """What to write: by node, and as advice for all."""

    nodes: Mapping[str, DiscoveredNode]
    advice: tuple[str, ...]


def plan_discovery(
    nodes: Sequence[Node],
    facts: Mapping[str, Facts],
    failures: Mapping[str, ClusterctlError],
    pythons: Mapping[str, FoundPython] | None = None,
) -> DiscoveredCluster:
    """Choose each machine's NIC and address; `failures` is why a machine was not read, `pythons` what it is to use."""
    candidates = {node.name: list(_list_candidates(facts[node.name])) for node in nodes if node.name in facts}
    networks = rank_networks(candidates, {name: facts[name].machine.ssh_address for name in candidates})
    network = networks[0] if networks else None
    answered = {
        node.name: _describe_node(
            node, facts[node.name], candidates[node.name], network, (pythons or {}).get(node.name)
        )
        for node in nodes
        if node.name in facts
    }
    unanswered = {
        node.name: _describe_failure(failures[node.name]) for node in nodes if node.name in failures
    }
    return DiscoveredCluster({**answered, **unanswered}, tuple(_render_advice(networks, candidates)))


def _describe_failure(error: ClusterctlError) -> DiscoveredNode:
    text = clean_text(f"{error.code} {error.message}")
    return DiscoveredNode(failure=text, is_reached=error.code not in NOT_REACHED)


def _list_candidates(facts: Facts) -> Iterator[CandidateAddress]:
    """List where training could go: NICs that are on and linked, without loopback and the bridges of containers."""
    for nic in facts.nics:
        usable = nic.running and nic.kind != "loopback" and accepts(parse_nic, nic.name or "")
        for address in nic.addresses if usable else ():
            network = _network_of(address)
            if network is not None and not (nic.name or "").startswith(SIDE_NETWORKS):
                yield CandidateAddress(nic, nic.name or "", address.ip or "", network)


def _network_of(address: Address) -> IPv4Network | None:
    try:
        return (
            IPv4Network((address.ip or "", address.prefix or 0), strict=False)
            if address.family == 4
            else None
        )
    except ValueError:
        return None


def rank_networks(
    candidates: Mapping[str, Sequence[CandidateAddress]], ssh_addresses: Mapping[str, str | None]
) -> list[IPv4Network]:
    """List the networks that all machines are in: the fastest first, among equals physical ones, then SSH's own.

    None if there is none, or only one machine.
    """
    networks_by_node = [{candidate.network for candidate in addresses} for addresses in candidates.values()]
    if len(networks_by_node) < 2:
        return []

    def rank(network: IPv4Network) -> tuple[int, bool, bool, str]:
        members = [
            (name, candidate)
            for name, addresses in candidates.items()
            for candidate in addresses
            if candidate.network == network
        ]
        by_ssh = any(ssh_addresses[name] == candidate.ip for name, candidate in members)
        return (
            _slowest_speed(network, candidates),
            all(candidate.nic.physical for _, candidate in members),
            by_ssh,
            str(network),
        )

    return sorted(set.intersection(*networks_by_node), key=rank, reverse=True)


def _slowest_speed(network: IPv4Network, candidates: Mapping[str, Sequence[CandidateAddress]]) -> int:
    """Return the speed of the slowest NIC in a network, in Mbit/s; 0 where one does not report it."""
    return min(
        candidate.nic.speed or 0
        for addresses in candidates.values()
        for candidate in addresses
        if candidate.network == network
    )


def _describe_node(
    node: Node,
    facts: Facts,
    candidates: Sequence[CandidateAddress],
    network: IPv4Network | None,
    python: FoundPython | None,
) -> DiscoveredNode:
    chosen = next(
        (candidate for candidate in candidates if candidate.network == network), None
    ) or _find_default_address(node, facts, candidates)
    ip = chosen.ip if chosen is not None and chosen.ip != node.host else None
    gpus = facts.gpus.count or None
    return DiscoveredNode(
        (chosen.name,) if chosen else (), ip, gpus, tuple(_notes(facts, candidates, chosen, python))
    )


def _find_default_address(
    node: Node, facts: Facts, candidates: Sequence[CandidateAddress]
) -> CandidateAddress | None:
    """Without a network that all are in, take what a bare `host:` would mean."""
    ip = resolve_network(node, facts).ip
    return next((candidate for candidate in candidates if candidate.ip == ip), None)


def _notes(
    facts: Facts,
    candidates: Sequence[CandidateAddress],
    chosen: CandidateAddress | None,
    python: FoundPython | None,
) -> Iterator[str]:
    if chosen:
        yield tr("{subject}: {text}", subject=chosen.name, text=_describe_candidate(chosen))
    else:
        yield tr("no NIC with an IPv4 address and a link was found")
    others = [
        f"{candidate.name} {candidate.ip}/{candidate.network.prefixlen} ({_describe_candidate(candidate)})"
        for candidate in candidates
        if candidate != chosen
    ]
    if others:
        yield tr("there is also: {nics}", nics=join_parts(others[:6]))
    ports = active_ports(facts)
    if ports:
        hcas = plan_hcas(facts, (chosen.name,) if chosen else ())
        port_texts = join_items(
            f"{port.adapter}:{port.port} {port.link} {port.rate or ''}".strip() for port in ports[:8]
        )
        if hcas:
            yield tr(
                "InfiniBand and RoCE: {ports}; NCCL_IB_HCA={hcas} selects them", ports=port_texts, hcas=hcas
            )
        else:
            yield tr("{subject}: {text}", subject="RoCE", text=port_texts)
    models = sorted({gpu.name or "GPU" for gpu in facts.gpus.devices})
    used = python or FoundPython(path=facts.interpreter.executable or "Python", torch=facts.torch.version)
    yield tr(
        "{gpus}; {python} has {torch}",
        gpus=join_items(models) or tr("no GPU"),
        python=used.path,
        torch=f"torch {used.torch}" if used.torch else tr("no torch"),
    )


def _describe_candidate(candidate: CandidateAddress) -> str:
    virtual = [] if candidate.nic.physical else [candidate.nic.kind or tr("virtual")]
    mtu = f"MTU {candidate.nic.mtu}" if candidate.nic.mtu else tr("MTU unknown")
    return join_items([*virtual, render_speed(candidate.nic.speed), mtu])


def _render_advice(
    networks: Sequence[IPv4Network], candidates: Mapping[str, Sequence[CandidateAddress]]
) -> Iterator[str]:
    yield tr("The order of the nodes is the node_rank: the first one is the master.")
    if networks:
        network_texts = [
            f"{network} ({render_speed(_slowest_speed(network, candidates) or None)})" for network in networks
        ]
        yield trn(
            "{n} node has an address in {network}: training uses it.",
            "All {n} nodes have an address in {network}: training uses it.",
            len(candidates),
            network=network_texts[0],
        )
        yield tr(
            "`network: {network}` instead of the nic: and ip: lines means the same.", network=networks[0]
        )
        if network_texts[1:]:
            yield tr("All of them are also in {networks}.", networks=join_items(network_texts[1:5]))
    elif len(candidates) > 1:
        yield tr("The nodes have no network in common: each uses the NIC of the route to its host:.")
    if candidates:
        yield tr("`clusterctl check` tests that the nodes can reach each other this way.")


@dataclass(frozen=True)
class FoundPythons:
    """The interpreters of a node, and environment modules with torch in their name."""

    pythons: tuple[FoundPython, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class PythonChoice:
    """The Python of each node, and their torch; `without` are nodes without it, or with another one."""

    pythons: Mapping[str, FoundPython]
    torch: str | None
    without: tuple[str, ...]


def parse_pythons(raw_pythons: object, raw_modules: object) -> FoundPythons:
    """Read a node's answer; never raises. What an inventory cannot hold is left out."""
    pythons = read_clean_many(FoundPython, raw_pythons)
    modules = raw_modules[:MAX_ITEMS] if isinstance(raw_modules, list) else []
    names = tuple(
        name for name in modules if isinstance(name, str) and re.fullmatch(r"[\w./+-]{1,128}", name)
    )
    return FoundPythons(tuple(filter(_is_usable, pythons)), names)


def _is_usable(python: FoundPython) -> bool:
    """Return whether an inventory can hold the path, and the versions are versions."""
    path = python.path or ""
    versions = (python.version or "", *([python.torch] if python.torch is not None else []))
    usable = accepts(parse_python, path) and bool(_PATH.fullmatch(path)) and len(path) <= MAX_PATH
    return usable and all(map(_VERSION.fullmatch, versions))


def choose_pythons(facts: Mapping[str, Facts], found: Mapping[str, FoundPythons]) -> PythonChoice:
    """Choose the torch that most nodes have, and on each node a Python that has it; `python3` where that does.

    Of several torches that equally many nodes have, the one of `python3` is chosen, then the newest. Where no torch is
    the same on all nodes, Pythons of one version are chosen, from which equal environments can be made.
    """
    options = {name: _options(facts[name], found.get(name, FoundPythons())) for name in facts}
    torch = _most_common(options, lambda one: one.torch)
    having = {name: [one for one in own if torch and one.torch == torch] for name, own in options.items()}
    without = tuple(name for name, own in having.items() if not own)
    candidates = options if without else having
    version = _most_common(candidates, lambda one: one.version)
    pythons = {name: _prefer(own, version, torch) for name, own in candidates.items()}
    return PythonChoice(pythons, torch, without)


def _options(facts: Facts, found: FoundPythons) -> list[FoundPython]:
    """List the Pythons of a node, first the one that answered."""
    version = ".".join((facts.interpreter.version or "").split(".")[:2])
    return [FoundPython(path=ACTIVE, version=version, torch=facts.torch.version), *found.pythons]


def _most_common(
    options: Mapping[str, Sequence[FoundPython]], version_of: Callable[[FoundPython], str | None]
) -> str | None:
    """Return the version that most nodes have; of several that of `python3`, then the newest."""
    counts = Counter(version for own in options.values() for version in set(map(version_of, own)) if version)
    active = Counter(version_of(own[0]) for own in options.values() if own)
    return max(
        counts, key=lambda version: (counts[version], active[version], _numbers(version)), default=None
    )


def _prefer(pythons: Sequence[FoundPython], version: str | None, torch: str | None) -> FoundPython:
    """Return the Python of the common version, with the common torch if possible; of several the first."""
    return min(pythons, key=lambda one: (one.version != version, one.torch != torch))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:4])


def list_imports(source: bytes, local: Collection[str]) -> tuple[str, ...]:
    """List the packages that a script imports: not of the standard library, nor `local`, which are next to it."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add((node.module or "").partition(".")[0])
    return tuple(sorted(names - {"", *local} - sys.stdlib_module_names))


def list_requirements(imports: Iterable[str], torch: str | None) -> tuple[str, ...]:
    """List what an environment for a script needs: torch, and the packages that it imports at the top.

    `imports` are names of modules that are neither in the standard library nor next to the script; of torch the public
    version is required, since its builds have names that only PyTorch's own index knows.
    """
    public = (torch or "").partition("+")[0]
    packages = {PACKAGES.get(name, name) for name in imports if name not in COMES_WITH_TORCH}
    return (f"torch=={public}" if public else "torch", *sorted({*packages, "numpy"}))
