"""@check, Hit, Finding, context, majority vote, fix texts.

The terms of checks: a check is a function that looks at all nodes and yields hits; hits make findings.

@check("CC-TIME-001", needs=("clock",))
def clocks_differ(context: CheckContext) -> Iterator[Hit]:

Severity, title, reason and fixes of a code are in clusterctl/codes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from clusterctl.codes.entry import Entry, Severity
from clusterctl.codes.lookup import find_entry
from clusterctl.errors import ClusterctlError
from clusterctl.plans.diagnose.collective import DeepCheckResult
from clusterctl.plans.diagnose.mesh import MeshResult
from clusterctl.plans.facts.facts import ENVIRONMENT_ANSWERS, Facts
from clusterctl.plans.launch.network import NodeNetwork
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import command_line, quote_word
from clusterctl.translation import fill

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
    """What a check saw; `shared` evidence names its nodes itself, other evidence is about each node alone.

    The fix is a case of the check's code, with facts for its placeholders; without a case there is none.
    `severity` is None where it is that of the check.
    """

    nodes: tuple[str, ...]
    evidence: str
    case: str | None = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    shared: bool = False
    severity: Severity | None = None
    fix: str = ""

    def with_fix(self, code: str, context: CheckContext) -> Hit:
        """Word the fix; `{node}` is the first of the nodes, and a command runs on it."""
        if self.fix or self.case is None:
            return self
        node = next(node for node in context.nodes if node.name in self.nodes)
        template = find_entry(code).cases[self.case].fix.here
        facts = {"node": node.name, **self.facts}
        if not template.startswith(("$ ", "# ")):
            return replace(self, fix=fill(template, facts))
        command, *comment = (fill(part, facts) for part in template[2:].split("  # ", 1))
        as_user = template.startswith("$ ")
        shown = ssh_to(node, command) if as_user else as_root(node, context.facts[node.name], command)
        commented = "  # ".join((shown, *comment))
        return replace(self, fix=commented)


def on_node(node: Node, evidence: str, case: str | None = "", /, **facts: object) -> Hit:
    """Report something about one node."""
    return Hit((node.name,), evidence, case, facts)


def across_nodes(nodes: Iterable[str], evidence: str, case: str | None = "", /, **facts: object) -> Hit:
    """Report something that only a comparison shows; the evidence names the nodes itself."""
    return Hit(tuple(nodes), evidence, case, facts, shared=True)


@dataclass(frozen=True)
class LocalFacts:
    """What this machine adds: key files that others may read, with their modes, and names beside the job's script."""

    readable_keys: Mapping[str, int] = field(default_factory=dict)
    script_siblings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Observations:
    """What was found out: each node's facts, or why it gave none; the network and deep checks; this machine's facts."""

    facts: Mapping[str, Facts]
    failures: Mapping[str, ClusterctlError]
    mesh: MeshResult | None = None
    deep: DeepCheckResult | None = None
    local_facts: LocalFacts = field(default_factory=LocalFacts)


@dataclass(frozen=True)
class CheckContext:
    """Everything that checks may look at; `known` are the nodes that answered what the check needs."""

    nodes: tuple[Node, ...]
    facts: Mapping[str, Facts]
    failures: Mapping[str, ClusterctlError]
    networks: Mapping[str, NodeNetwork]
    job: Job | None = None
    known: tuple[tuple[Node, Facts], ...] = field(default=())
    mesh: MeshResult | None = None
    deep: DeepCheckResult | None = None
    local_facts: LocalFacts = field(default_factory=LocalFacts)

    def with_answers(self, needs: Iterable[str]) -> CheckContext:
        """Narrow `known` to the nodes that answered all these questions."""
        answered = [(node, self.facts[node.name]) for node in self.nodes if node.name in self.facts]
        required = frozenset(needs)
        known = tuple((node, facts) for node, facts in answered if not required & _unanswered(facts))
        return replace(self, known=known)

    def needs_gpus(self) -> bool:
        """Tell whether the job trains on GPUs; without a job, whether any node has some."""
        if self.job is None:
            return any(facts.gpus.count for _, facts in self.known)
        return self.job.backend == "nccl" or self.job.nproc_per_node == "gpu" or bool(self.job.gpus)


def _unanswered(facts: Facts) -> frozenset[str]:
    """Name what a node could not tell, or cannot tell before `setup` has made its environment."""
    return frozenset(facts.problems) | (ENVIRONMENT_ANSWERS if facts.setup.pending else frozenset())


@dataclass(frozen=True)
class Check:
    """A check as the registry knows it; `needs` is what a node must have answered."""

    code: str
    needs: tuple[str, ...]
    find: Callable[[CheckContext], Iterable[Hit]]

    @property
    def entry(self) -> Entry:
        """What the table says about its code."""
        return find_entry(self.code)


REGISTERED: dict[str, Check] = {}


Finder = Callable[[CheckContext], Iterable[Hit]]


def check(code: str, *, needs: tuple[str, ...] = ()) -> Callable[[Finder], Finder]:
    """Register a check; `needs` is what a node must have answered."""

    def register(find: Finder) -> Finder:
        if code in REGISTERED:
            raise ValueError(f"{code} is taken twice")
        REGISTERED[code] = Check(code, needs, find)
        return find

    return register


@dataclass(frozen=True)
class Split:
    """Nodes that do not agree; `majority` is `None` when there is none, and then all are odd."""

    odd: tuple[str, ...]
    majority: str | None
    evidence: str


def split_votes(values: Mapping[str, str]) -> Split | None:
    """Group nodes by value; `None` if all agree."""
    groups: dict[str, list[str]] = {}
    for name, value in values.items():
        groups.setdefault(value, []).append(name)
    if len(groups) < 2:
        return None
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    (winner, voters), (_, second) = ranked[:2]
    if len(voters) == len(second):
        text = "; ".join(f"{fold_names(names)}: {value}" for value, names in groups.items())
        return Split(tuple(values), None, f"{text}; no majority")
    minority = [(value, names) for value, names in groups.items() if value != winner]
    text = "; ".join(f"{fold_names(names)}: {value}" for value, names in minority)
    odd = tuple(name for name, value in values.items() if value != winner)
    return Split(odd, winner, f"{text}; the other {len(voters)}: {winner}")


def ssh_to(node: Node, command: str) -> str:
    """Give the ssh command that runs something on a node."""
    argv = ["ssh"]
    if node.ssh.config:
        argv += ["-F", node.ssh.config]
    if node.ssh.port not in {None, 22}:
        argv += ["-p", str(node.ssh.port)]
    if node.ssh.key:
        argv += ["-i", node.ssh.key]
    if node.ssh.jump:
        argv += ["-J", node.ssh.jump]
    if node.ssh.proxy_command:
        argv += ["-o", f"ProxyCommand={node.ssh.proxy_command}"]
    target = f"{node.ssh.user}@{node.host}" if node.ssh.user else node.host
    return f"{command_line(*argv, target)} {quote_word(command)}"


def ssh_to_first(nodes: Iterable[Node], names: Collection[str], command: str) -> str:
    """Give the ssh command that runs something on the first of the named nodes."""
    return ssh_to(next(node for node in nodes if node.name in names), command)


def exclude_option(names: Iterable[str]) -> str:
    """Give the option that leaves nodes out."""
    return command_line("--exclude", fold_names(list(names)))


def as_root(node: Node, facts: Facts, command: str) -> str:
    """Give the ssh command that runs something as root on a node."""
    return ssh_to(node, command if facts.account.uid == 0 else f"sudo {command}")


def pip_install(node: Node, facts: Facts, *packages: str) -> str:
    """Give the command that installs packages for the node's interpreter."""
    python = facts.interpreter.executable or node.python
    return ssh_to(node, command_line(python, "-m", "pip", "install", *packages))


def install_torch(node: Node, facts: Facts, version: str | None) -> str:
    """Give the command that installs torch, in the given version if there is one.

    A local tag such as +cu126 is only in PyTorch's own index or a mirror of it, which the user must choose.
    """
    command = pip_install(node, facts, f"torch=={version}" if version else "torch")
    return f"{command}  # with --index-url: PyTorch's index" if "+" in (version or "") else command


def in_inventory(node: Node, line: str) -> str:
    """Say which line to write in the inventory."""
    return f"inventory, node {node.name}: {line}"
