"""The terms of checks: a check is a function that looks at all nodes and yields hits; hits make findings.

@check("CC-TIME-001", "warning", "the clocks differ", why="...", needs=("clock",))
def clocks_differ(seen: Situation) -> Iterator[Hit]:
    '''What `explain` prints.'''
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from clusterctl.errors import ClusterctlError
from clusterctl.plans.deep import Deep
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_setup import PACKAGES
from clusterctl.plans.network import NodeNetwork
from clusterctl.plans.wire import Wire
from clusterctl.specs.inventory import Node
from clusterctl.specs.job import Job

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be; `nodes` are the ones to mend, in the inventory's order.

    `waived` is the reason for which it does not count, where somebody gave one.
    """

    code: str
    severity: Severity
    nodes: tuple[str, ...]
    evidence: str
    why: str
    fix: str
    title: str
    waived: str = ""


@dataclass(frozen=True)
class Hit:
    """What a check saw; `shared` evidence names its nodes itself, other evidence is about each node alone."""

    nodes: tuple[str, ...]
    evidence: str
    fix: str = ""
    shared: bool = False


def on(node: Node, evidence: str, fix: str = "") -> Hit:
    """Report something about one node."""
    return Hit((node.name,), evidence, fix)


def across(nodes: Iterable[str], evidence: str, fix: str = "") -> Hit:
    """Report something that only a comparison shows; the evidence names the nodes itself."""
    return Hit(tuple(nodes), evidence, fix, shared=True)


@dataclass(frozen=True)
class Here:
    """What this machine adds: key files that others may read, with their modes, and names beside the job's script."""

    open_keys: Mapping[str, int] = field(default_factory=dict)
    beside_script: tuple[str, ...] = ()


@dataclass(frozen=True)
class Situation:
    """Everything that checks may look at; `known` are the nodes that answered what the check needs."""

    nodes: tuple[Node, ...]
    facts: Mapping[str, Facts]
    failures: Mapping[str, ClusterctlError]
    networks: Mapping[str, NodeNetwork]
    job: Job | None = None
    known: tuple[tuple[Node, Facts], ...] = field(default=())
    wire: Wire | None = None
    deep: Deep | None = None
    here: Here = field(default_factory=Here)

    def knowing(self, needs: Iterable[str]) -> Situation:
        """Narrow `known` to the nodes that answered all these questions."""
        asked = [(node, self.facts[node.name]) for node in self.nodes if node.name in self.facts]
        wanted = frozenset(needs)
        known = tuple((node, facts) for node, facts in asked if not wanted & _unknown(facts))
        return replace(self, known=known)

    def wants_gpus(self) -> bool:
        """Tell whether the job trains on GPUs; without a job, whether any node has some."""
        if self.job is None:
            return any(facts.gpus.count for _, facts in self.known)
        return self.job.backend == "nccl" or self.job.nproc_per_node == "gpu" or bool(self.job.gpus)


def _unknown(facts: Facts) -> frozenset[str]:
    """Name what a node could not tell, or cannot tell before `setup` has made its environment."""
    return frozenset(facts.problems) | (PACKAGES if facts.setup.pending else frozenset())


@dataclass(frozen=True)
class Check:
    """A check as the registry and `explain` know it."""

    code: str
    severity: Severity
    title: str
    why: str
    explanation: str
    needs: tuple[str, ...]
    find: Callable[[Situation], Iterable[Hit]]


REGISTERED: dict[str, Check] = {}


def check(
    code: str, severity: Severity, title: str, *, why: str, needs: tuple[str, ...] = ()
) -> Callable[[Callable[[Situation], Iterable[Hit]]], Callable[[Situation], Iterable[Hit]]]:
    """Register a check; its docstring is the explanation, `needs` what a node must have answered."""

    def register(find: Callable[[Situation], Iterable[Hit]]) -> Callable[[Situation], Iterable[Hit]]:
        if code in REGISTERED:
            raise ValueError(f"{code} is taken by {REGISTERED[code].find.__name__}")
        REGISTERED[code] = Check(code, severity, title, why, inspect.getdoc(find) or "", needs, find)
        return find

    return register
