"""@check, Hit, Finding, context, majority vote, fix texts, and which findings follow from another one.

The terms of checks: a check is a function that looks at all nodes and yields hits; hits make findings.

@check("CC-TIME-001", needs=("clock",))
def clocks_differ(context: CheckContext) -> Iterator[Hit]:

Severity, title, reason and fixes of a code are in clusterctl/codes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterctl.codes.entry import Entry, Severity
from clusterctl.codes.lookup import find_entry
from clusterctl.errors import ClusterctlError
from clusterctl.plans.facts.facts import ENVIRONMENT_ANSWERS
from clusterctl.plans.launch.network import NodeNetwork
from clusterctl.plans.launch.placement import needs_gpus
from clusterctl.plans.launch.script import JobCode
from clusterctl.plans.sync.staged import StagedContent
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import command_line, quote_word
from clusterctl.translation import fill, tr

if TYPE_CHECKING:
    from clusterctl.plans.diagnose.network_tests import DeepCheckResult
    from clusterctl.protocol.messages.checks import MeshResult

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
REGISTERED: dict[str, Check] = {}
_CONNECTIONS = tuple(f"CC-NET-{number:03}" for number in (6, 7, 9, 30, 31, 32, 33, 34, 35, 36))
_WRONG_ENVIRONMENT = (
    *("CC-PY-010", "CC-PY-012", "CC-PY-013", "CC-PY-014", "CC-PY-015"),
    *(f"CC-TORCH-{number:03}" for number in range(1, 11)),
)
CONSEQUENCES: Mapping[str, tuple[str, ...]] = {
    "CC-NET-001": _CONNECTIONS,
    "CC-NET-002": ("CC-NET-004", "CC-NET-016", *_CONNECTIONS),
    "CC-NET-003": _CONNECTIONS,
    "CC-NET-004": _CONNECTIONS,
    "CC-NET-005": _CONNECTIONS,
    "CC-NET-009": ("CC-NET-031", "CC-NET-034"),
    "CC-NET-016": ("CC-NET-004", *_CONNECTIONS),
    "CC-SYS-001": ("CC-NET-008",),
    "CC-SYS-002": ("CC-NET-008",),
    "CC-PY-011": _WRONG_ENVIRONMENT,
    "CC-TORCH-001": ("CC-PY-015",),
    "CC-GPU-004": ("CC-GPU-001", "CC-GPU-003", "CC-GPU-008", "CC-GPU-009", "CC-GPU-016"),
    "CC-GPU-016": ("CC-GPU-003", "CC-GPU-008"),
    "CC-DISK-009": ("CC-DISK-008", "CC-SYS-011"),
    "CC-CODE-006": ("CC-CODE-003", "CC-CODE-004", "CC-RUN-050"),
}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; `nodes` are the ones to fix, in the inventory's order.

    `waived` is the reason for which it does not count, if one was given.
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
    A `command` is a shell line for the nodes: `fix` is then the comment behind it.
    `severity` is None where it is that of the check.
    """

    nodes: tuple[str, ...]
    evidence: str
    case: str | None = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    shared: bool = False
    severity: Severity | None = None
    fix: str = ""
    command: str = ""

    @property
    def command_nodes(self) -> tuple[str, ...]:
        """The nodes on which the command runs: of nodes that were compared the first one shows what there is."""
        return self.nodes[:1] if self.shared else self.nodes

    def with_fix(self, code: str, context: CheckContext) -> Hit:
        """Word the fix; `{node}` is the first of the nodes."""
        if self.fix or self.case is None:
            return self
        node = next(node for node in context.nodes if node.name in self.nodes)
        template = tr(find_entry(code).cases[self.case].fix)
        facts = {"node": node.name, **self.facts}
        if not template.startswith(("$ ", "# ")):
            return replace(self, fix=fill(template, facts))
        command, _, comment = (fill(part, facts) for part in template[2:].partition("  # "))
        as_user = template.startswith("$ ")
        line = command if as_user else as_root(context.facts[node.name], command)
        return replace(self, command=line, fix=comment)


def on_node(node: Node, evidence: str, case: str | None = "", /, **facts: object) -> Hit:
    """Report something about one node."""
    return Hit((node.name,), evidence, case, facts)


def across_nodes(nodes: Iterable[str], evidence: str, case: str | None = "", /, **facts: object) -> Hit:
    """Report something that only a comparison shows; the evidence names the nodes itself."""
    return Hit(tuple(nodes), evidence, case, facts, shared=True)


@dataclass(frozen=True)
class LocalFacts:
    """What this machine adds: modes of key files that others may read, names next to the job's script, the code."""

    readable_keys: Mapping[str, int] = field(default_factory=dict)
    script_siblings: tuple[str, ...] = ()
    code: JobCode | None = None


@dataclass(frozen=True)
class Observations:
    """What was found out: each node's facts, or why it gave none; the network and deep checks; this machine's facts.

    `staged` is what was staged on each node, if the job stages something.
    """

    facts: Mapping[str, Facts]
    failures: Mapping[str, ClusterctlError]
    mesh: MeshResult | None = None
    deep: DeepCheckResult | None = None
    local_facts: LocalFacts = field(default_factory=LocalFacts)
    staged: Mapping[str, tuple[StagedContent, ...]] = field(default_factory=dict)
    program: str = "clusterctl"  # how a command begins that uses the same inventory


@dataclass(frozen=True, kw_only=True)
class CheckContext(Observations):
    """Everything that checks may look at; `known` are the nodes that answered what the check needs."""

    nodes: tuple[Node, ...]
    networks: Mapping[str, NodeNetwork]
    job: Job | None
    known: tuple[tuple[Node, Facts], ...] = ()

    def with_answers(self, needs: Iterable[str]) -> CheckContext:
        """Narrow `known` to the nodes that answered all these questions."""
        answered = [(node, self.facts[node.name]) for node in self.nodes if node.name in self.facts]
        required = frozenset(needs)
        known = tuple((node, facts) for node, facts in answered if not required & _unanswered(facts))
        return replace(self, known=known)

    def needs_gpus(self) -> bool:
        """Return whether the job trains on GPUs; without a job, whether any node has some."""
        if self.job is None:
            return any(facts.gpus.count for _, facts in self.known)
        return needs_gpus(self.job)


def _unanswered(facts: Facts) -> frozenset[str]:
    """Name what a node could not report, or cannot report before `setup` has made its environment."""
    return frozenset(facts.problems) | (ENVIRONMENT_ANSWERS if facts.setup.pending else frozenset())


@dataclass(frozen=True)
class Check:
    """A registered check; `needs` is what a node must have answered."""

    code: str
    needs: tuple[str, ...]
    find: Callable[[CheckContext], Iterable[Hit]]

    @property
    def entry(self) -> Entry:
        """The entry of its code in the table."""
        return find_entry(self.code)


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


def compare_nodes(context: CheckContext, value: Callable[[Facts], str | None]) -> Split | None:
    """Compare a value of all nodes that have it; None if they agree."""
    return split_votes({node.name: value(facts) for node, facts in context.known})


def split_votes(values: Mapping[str, str | None]) -> Split | None:
    """Group nodes by value, without those that have none; None if all agree."""
    groups = group_values((value, name) for name, value in values.items() if value)
    if len(groups) < 2:
        return None
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[1]))
    (winner, voters), (_, second) = ranked[:2]
    if len(voters) == len(second):
        parts = join_parts(of_nodes(names, value) for value, names in groups.items())
        return Split(
            tuple(name for name in values if values[name]), None, tr("{groups}; no majority", groups=parts)
        )
    minority = join_parts(of_nodes(names, value) for value, names in groups.items() if value != winner)
    text = tr("{groups}; the other {count}: {value}", groups=minority, count=len(voters), value=winner)
    odd = tuple(name for name, value in values.items() if value and value != winner)
    return Split(odd, winner, text)


def of_nodes(names: Iterable[str], text: str) -> str:
    """Write which nodes a text is about: `gpu[01-03]: no torch`."""
    return tr("{subject}: {text}", subject=fold_names(names), text=text)


def join_items(items: Iterable[str]) -> str:
    """Join the items of a list."""
    return tr(", ").join(items)


def join_parts(parts: Iterable[str]) -> str:
    """Join parts that may be lists themselves."""
    return tr("; ").join(parts)


def parse_version(text: str | None) -> tuple[int, int] | None:
    """Return the first two numbers of a version."""
    match = re.search(r"(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else None


def first_few(items: Sequence[str], most: int) -> list[str]:
    """Return the first items of a list, and how many more there are."""
    more = [tr("{count} more", count=len(items) - most)] if len(items) > most else []
    return [*items[:most], *more]


def ssh_to(node: Node, command: str) -> str:
    """Return the ssh command that runs something on a node."""
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


def run_on_nodes(program: str, names: Iterable[str], line: str) -> str:
    """Return the command that runs a shell line on nodes."""
    nodes = fold_names(list(names))
    return f"{command_line('exec', '--nodes', nodes, command=program)} -- {_as_arguments(line)}"


def _as_arguments(line: str) -> str:
    """Write a shell line after `exec --`: plain words as they are, anything else as one word, which `sh` runs."""
    try:
        words = shlex.split(line)
    except ValueError:
        return quote_word(line)
    return line if len(words) > 1 and shlex.join(words) == line else quote_word(line)


def run_on_each(context: CheckContext, lines: Mapping[str, str]) -> str:
    """Return the commands that run each node's line on it; equal lines are one command."""
    names_by_line = group_values((line, name) for name, line in lines.items())
    return "\n".join(run_on_nodes(context.program, names, line) for line, names in names_by_line.items())


def exclude_option(names: Iterable[str]) -> str:
    """Return the option that leaves nodes out."""
    return command_line("--exclude", fold_names(list(names)))


def as_root(facts: Facts, line: str) -> str:
    """Return the line that runs something as root."""
    return line if facts.account.uid == 0 else f"sudo {line}"


def pip_install(node: Node, facts: Facts, *packages: str) -> str:
    """Return the line that installs packages for the node's interpreter."""
    python = facts.interpreter.executable or node.python
    return command_line(python, "-m", "pip", "install", *packages)


def in_inventory(node: Node, line: str) -> str:
    """Return which line to write in the inventory."""
    return tr("inventory, node {node}: {line}", node=node.name, line=line)


def fold_consequences(findings: Sequence[Finding]) -> list[tuple[Finding, tuple[Finding, ...]]]:
    """Return each finding with those that follow from it; these are not in the list themselves.

    A finding follows from one that is as severe, about at least the same nodes, and has no cause itself.
    """
    causes = {id(finding): _find_cause(finding, findings) for finding in findings}
    return [
        (finding, tuple(other for other in findings if causes[id(other)] is finding))
        for finding in findings
        if causes[id(finding)] is None
    ]


def _find_cause(finding: Finding, findings: Sequence[Finding]) -> Finding | None:
    found = (cause for cause in findings if _is_caused_by(finding, cause))
    return next(
        (cause for cause in found if not any(_is_caused_by(cause, other) for other in findings)), None
    )


def _is_caused_by(finding: Finding, cause: Finding) -> bool:
    return (
        finding.code in CONSEQUENCES.get(cause.code, ())
        and not finding.waived
        and not cause.waived
        and SEVERITIES.index(cause.severity) <= SEVERITIES.index(finding.severity)
        and set(finding.nodes) <= set(cause.nodes)
    )
