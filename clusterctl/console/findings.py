"""`check` and `explain`: tables, findings, NICs, codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clusterctl.codes.lookup import families, family_of
from clusterctl.console.terminal import print_table
from clusterctl.console.text import sanitize
from clusterctl.plans.checks.framework import SEVERITIES, Finding
from clusterctl.plans.checks.nics import (
    describe_nccl_files,
    describe_nics,
    describe_other_nics,
    describe_rdma,
    explain_choice,
)
from clusterctl.plans.checks.registry import sort_findings
from clusterctl.plans.checks.torch import nccl_version
from clusterctl.plans.explain import Explanation
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.records import ActivateResult
from clusterctl.plans.launch.network import NodeNetwork, plan_hcas, resolve_network
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import plural

MOST_ENTRIES = 3  # entries of a path that are shown


def render_activated(console: Console, facts: Mapping[str, Facts]) -> None:
    """Print what `activate` gave, equal nodes as one; nothing where there is none."""
    names_by_lines: dict[tuple[str, ...], list[str]] = {}
    for name, node_facts in facts.items():
        if node_facts.activate.status is not None:
            names_by_lines.setdefault(tuple(describe_activated(node_facts.activate)), []).append(name)
    for lines, names in names_by_lines.items():
        console.print(Text.assemble("activate gave ", (f"({fold_names(names)})", "bold")))
        for line in lines:
            console.print(Text(f"  {sanitize(line)}"), soft_wrap=True)


def describe_activated(activated: ActivateResult) -> Iterator[str]:
    """Say it in lines."""
    if activated.conda:
        yield f"conda environment {activated.conda}"
    if activated.venv:
        yield f"venv {activated.venv}"
    yield f"CUDA toolkit {activated.cuda or 'none'}" + _at_path(activated.nvcc or activated.cuda_home)
    yield f"compiler {activated.compiler_version or 'none'}" + _at_path(activated.compiler)
    yield f"PATH {render_path_list(activated.path)}"
    if activated.libraries:
        yield f"LD_LIBRARY_PATH {render_path_list(activated.libraries)}"


def _at_path(path: str | None) -> str:
    return f" at {path}" if path else ""


def render_path_list(entries: tuple[str, ...]) -> str:
    """Join the first entries of a path and count the others."""
    hidden = len(entries) - MOST_ENTRIES
    return ":".join(entries[:MOST_ENTRIES]) + (f" and {hidden} more" if hidden > 0 else "")


SCHEMA = 1
FOLD_ABOVE = 16  # nodes; a longer table shows equal nodes as one row
STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
EMPTY = "-"
INDENT = 7  # columns before the text of a finding


@dataclass(frozen=True)
class NodeRow:
    """What the table tells of a node."""

    node: str
    address: str
    nics: str
    python: str
    torch: str
    cuda: str
    gpus: str
    verdict: str

    @property
    def group_key(self) -> tuple[str, ...]:
        """What must be equal for two nodes to share a row."""
        return (self.nics, self.python, self.torch, self.cuda, self.gpus, self.verdict)


HEADINGS = {
    "node": "node",
    "address": "address",
    "nics": "NIC",
    "python": "Python",
    "torch": "torch",
    "cuda": "CUDA / NCCL",
    "gpus": "GPUs",
    "verdict": "verdict",
}
OPTIONAL_COLUMNS = ("cuda", "gpus")  # left out where no node has any


def render_check(
    console: Console,
    nodes: Sequence[Node],
    facts: Mapping[str, Facts],
    findings: Sequence[Finding],
    print_network: Callable[[], None] = lambda: None,
) -> None:
    """Print the table, what `print_network` prints of the network, the findings, and last a line that sums up."""
    render_table(console, [_make_row(node, facts.get(node.name), findings) for node in nodes])
    render_activated(console, facts)
    print_network()
    render_findings(console, findings)
    console.print(Text(summarize(len(nodes), findings)))


def render_table(console: Console, rows: Sequence[NodeRow]) -> None:
    """Print a row per node, or per group of equal nodes where there are many."""
    shown_rows = merge_equal_rows(rows) if len(rows) > FOLD_ABOVE else list(rows)
    names = [
        name
        for name in HEADINGS
        if name not in OPTIONAL_COLUMNS or any(getattr(row, name) != EMPTY for row in shown_rows)
    ]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in names:
        table.add_column(HEADINGS[name], overflow="fold", no_wrap=False)
    for row in shown_rows:
        table.add_row(*(_cell(name, getattr(row, name)) for name in names))
    print_table(console, table)


def _cell(name: str, value: str) -> Text:
    if name != "verdict":
        return Text(sanitize(value))
    worst = next((severity for severity in SEVERITIES if severity in value), None)
    return Text(value, style=STYLES[worst] if worst else "bold red" if value == "no answer" else "green")


def merge_equal_rows(rows: Sequence[NodeRow]) -> list[NodeRow]:
    """Join rows that differ only in name and address."""
    groups: dict[tuple[str, ...], list[NodeRow]] = {}
    for row in rows:
        groups.setdefault(row.group_key, []).append(row)
    return [_merge_group(group) for group in groups.values()]


def _merge_group(group: Sequence[NodeRow]) -> NodeRow:
    first, others = group[0], len(group) - 1
    address = f"{first.address} +{others}" if others else first.address
    return NodeRow(fold_names(row.node for row in group), address, *first.group_key)


def _make_row(node: Node, facts: Facts | None, findings: Sequence[Finding]) -> NodeRow:
    network = resolve_network(node, facts)
    if facts is None:
        address = network.ip or node.host
        verdict = _verdict_without_facts(node.name, findings)
        return NodeRow(node.name, address, _nics(network), EMPTY, EMPTY, EMPTY, EMPTY, verdict)
    torch = facts.torch.version or "none"
    python = facts.interpreter.version or EMPTY
    verdict = _verdict(node.name, findings)
    return NodeRow(
        node.name, network.ip or EMPTY, _nics(network), python, torch, _cuda(facts), _gpus(facts), verdict
    )


def _nics(network: NodeNetwork) -> str:
    return ", ".join(network.nics) or EMPTY


def _cuda(facts: Facts) -> str:
    runtime = facts.torch.cuda or (facts.torch.hip and f"ROCm {facts.torch.hip}")
    return " / ".join(text for text in (runtime, nccl_version(facts)) if text) or EMPTY


def _gpus(facts: Facts) -> str:
    models = Counter((gpu.name or "GPU").removeprefix("NVIDIA ") for gpu in facts.gpus.devices)
    summary = ", ".join(f"{count} x {model}" for model, count in models.items())
    return summary or (str(facts.gpus.count) if facts.gpus.count else EMPTY)


def _verdict(name: str, findings: Sequence[Finding]) -> str:
    count = Counter(finding.severity for finding in findings if name in finding.nodes and not finding.waived)
    return next(
        (_render_count(count[severity], severity) for severity in ("error", "warning") if count[severity]),
        "fit",
    )


def _verdict_without_facts(name: str, findings: Sequence[Finding]) -> str:
    """Tell a node that gave no answer from one that was reached, but has no Python that could answer."""
    was_reached = any(name in finding.nodes and finding.code.startswith("CC-PY-") for finding in findings)
    return _verdict(name, findings) if was_reached else "no answer"


def _render_count(count: int, severity: str) -> str:
    return plural(count, "note" if severity == "info" else severity)


def render_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print the findings, worst first: what was seen, why it matters, what mends it."""
    for finding in sort_findings(findings):
        _render_finding(console, finding)


def _render_finding(console: Console, finding: Finding) -> None:
    if finding.waived:
        head = Text(f"waived {finding.code}", style="dim")
    else:
        head = Text(f"{finding.severity} {finding.code}", style=STYLES[finding.severity])
    console.print(
        Text.assemble(head, f" {sanitize(finding.title)} ", (f"({fold_names(finding.nodes)})", "bold"))
    )
    _print_labelled(console, "seen", finding.evidence)
    if finding.waived:
        _print_labelled(console, "waived", finding.waived)
        return
    _print_labelled(console, "why", finding.why)
    _print_labelled(console, "fix", finding.fix, wrap=False)


def _print_labelled(console: Console, label: str, text: str, *, wrap: bool = True) -> None:
    """Print a text behind a label; commands stay unwrapped, because they are there to be pasted."""
    lines = [Text(sanitize(line)) for line in text.split("\n")] if text else []
    width = max(20, console.width - INDENT)
    pieces = [piece for line in lines for piece in (line.wrap(console, width) if wrap else [line])]
    for index, piece in enumerate(pieces):
        piece.rstrip()
        label_cell = label if index == 0 else ""
        console.print(Text.assemble(f"{label_cell:>{INDENT - 1}} ", piece), soft_wrap=not wrap)


def summarize(nodes: int, findings: Sequence[Finding]) -> str:
    """Say in one line how it looks."""
    count = Counter(finding.severity for finding in findings if not finding.waived)
    counts = [_render_count(count[severity], severity) for severity in SEVERITIES if count[severity]]
    waived = sum(bool(finding.waived) for finding in findings)
    summary = ", ".join([*counts, f"{waived} waived"] if waived else counts)
    node_count = plural(nodes, "node")
    if count["error"]:
        return f"{node_count}: not fit: {summary}"
    return f"{node_count}: fit ({summary})" if summary else f"{node_count}: fit"


def check_to_json(
    nodes: Sequence[Node], facts: Mapping[str, Facts], findings: Sequence[Finding]
) -> dict[str, Any]:
    """Give nodes and findings as `check --json` prints them."""
    return {
        "schema": SCHEMA,
        "nodes": [_node_to_json(node, facts.get(node.name), findings) for node in nodes],
        "findings": [asdict(finding) for finding in findings],
    }


def _node_to_json(node: Node, facts: Facts | None, findings: Sequence[Finding]) -> dict[str, Any]:
    network = resolve_network(node, facts)
    return {
        "name": node.name,
        "node_rank": node.index,
        "host": node.host,
        "answered": facts is not None,
        "ip": network.ip,
        "nics": list(network.nics),
        "chosen_by": network.source,
        "nccl_ib_hca": plan_hcas(facts, network.nics) if facts else None,
        "verdict": _verdict(node.name, findings) if facts else _verdict_without_facts(node.name, findings),
        "facts": asdict(facts) if facts else None,
    }


def render_nics(
    console: Console, nodes: Sequence[Node], facts: Mapping[str, Facts], *, verbose: bool = False
) -> None:
    """Print a line for the choice and one for InfiniBand and NCCL's files, with `verbose` also what was not chosen."""
    names_by_lines: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        if node.name in facts:
            names_by_lines.setdefault(tuple(_nic_lines(node, facts[node.name], verbose=verbose)), []).append(
                node.name
            )
    for lines, names in names_by_lines.items():
        for index, line in enumerate(lines):
            prefix = Text.assemble("NIC ", (f"({fold_names(names)})", "bold"), " ")
            console.print(Text.assemble(" " * 4 if index else prefix, sanitize(line)), soft_wrap=True)


def _nic_lines(node: Node, facts: Facts, *, verbose: bool) -> Iterator[str]:
    network = resolve_network(node, facts)
    description = describe_nics(facts, network)
    yield f"{description or 'none'}: {explain_choice(node, network)}"
    for line in (describe_rdma(facts, network), *describe_nccl_files(facts)):
        if line:
            yield line
    not_chosen = describe_other_nics(facts, network)
    if verbose and not_chosen:
        yield f"not chosen: {not_chosen}"


EXPLAIN_INDENT = 10  # columns before a text


def render_explanation(console: Console, explanation: Explanation) -> None:
    """Print a code in full; commands stay unwrapped, because they are there to be pasted."""
    console.print(
        Text.assemble(
            (explanation.code, "bold"), f"  {explanation.title}", (f"  ({explanation.kind})", "dim")
        )
    )
    console.print()
    _print_text(console, "effect", explanation.effect)
    _print_text(console, "why", explanation.why)
    _print_text(console, "what", explanation.text)
    _print_text(console, "do", explanation.do)
    _print_text(console, "in life", "\n".join(explanation.happens))
    if explanation.example is not None:
        _print_text(console, "example", explanation.example.seen)
        _print_text(console, "fix", explanation.example.fix, wrap=False)
    _print_text(console, "try", explanation.command, wrap=False)
    _print_text(
        console, "see", f"clusterctl explain {explanation.see}" if explanation.see else "", wrap=False
    )


def _print_text(console: Console, label: str, text: str, *, wrap: bool = True) -> None:
    width = max(20, min(console.width, 100) - EXPLAIN_INDENT)
    lines = [Text(line) for line in text.split("\n")] if text else []
    pieces = [piece for line in lines for piece in (line.wrap(console, width) if wrap else [line])]
    for index, piece in enumerate(pieces):
        piece.rstrip()
        label_cell = (f"{label:>{EXPLAIN_INDENT - 2}}  " if index == 0 else " " * EXPLAIN_INDENT, "cyan")
        console.print(Text.assemble(label_cell, piece), soft_wrap=True)


def render_codes(console: Console, titles: Mapping[str, str], family: str) -> None:
    """List the codes of a family, or of all."""
    for name, heading in families().items():
        codes = [code for code in titles if family_of(code) == name]
        if codes and family in ("", name):
            console.print(Text(heading.here, style="bold"))
            for code in codes:
                console.print(Text.assemble((f"  {code}  ", "cyan"), titles[code]), soft_wrap=True)
    console.print(Text("clusterctl explain CODE tells more of one."), style="dim")


def explanation_to_json(explanation: Explanation) -> dict[str, Any]:
    """Give an explanation as `explain --json` prints it."""
    return {"schema": SCHEMA, **asdict(explanation)}
