"""Which NICs the nodes train with and why, equal nodes folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from clusterctl.console.sanitize import sanitize
from clusterctl.plans.facts import Facts
from clusterctl.plans.network import resolve_network
from clusterctl.plans.nic_words import (
    describe_nics,
    describe_others,
    describe_rdma,
    describe_settings,
    explain_choice,
)
from clusterctl.specs.inventory import Node
from clusterctl.specs.nodeset import fold_names


def render_nics(
    console: Console, nodes: Sequence[Node], facts: Mapping[str, Facts], *, verbose: bool = False
) -> None:
    """Print a line for the choice and one for InfiniBand and NCCL's files, with `verbose` also what was not chosen."""
    told: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        if node.name in facts:
            told.setdefault(tuple(_lines(node, facts[node.name], verbose=verbose)), []).append(node.name)
    for lines, names in told.items():
        for place, line in enumerate(lines):
            who = Text.assemble("NIC ", (f"({fold_names(names)})", "bold"), " ")
            console.print(Text.assemble(" " * 4 if place else who, sanitize(line)), soft_wrap=True)


def _lines(node: Node, facts: Facts, *, verbose: bool) -> Iterator[str]:
    network = resolve_network(node, facts)
    about = describe_nics(facts, network)
    yield f"{about or 'none'}: {explain_choice(node, network)}"
    for line in (describe_rdma(facts, network), *describe_settings(facts)):
        if line:
            yield line
    others = describe_others(facts, network)
    if verbose and others:
        yield f"not chosen: {others}"
