"""What a launch records of each node for reports: versions, GPUs' driver, why these NICs, the code's hash."""

from __future__ import annotations

from collections.abc import Collection

from clusterctl import __version__
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.launch.network import resolve_network
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import english_of


def describe_node(node: Node, facts: Facts, code: str, secrets: Collection[str]) -> dict[str, str]:
    """Give what is known of a node by name; of secrets only the names of their variables, never a value."""
    values = {
        "code": code,
        "nic": english_of(resolve_network(node, facts).source),
        "python": facts.interpreter.version,
        "torch": facts.torch.version,
        "cuda": facts.torch.cuda or facts.torch.hip,
        "nccl": facts.nccl.version,
        "driver": facts.gpus.driver,
        "kernel": facts.platform.kernel,
        "clusterctl": __version__,
        "secrets": " ".join(secrets),
    }
    return {name: value for name, value in values.items() if value}
