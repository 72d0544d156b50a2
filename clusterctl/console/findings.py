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

from clusterctl.console.terminal import print_table
from clusterctl.console.text import sanitize
from clusterctl.plans.checks.framework import SEVERITIES, Finding
from clusterctl.plans.checks.nics import (
    describe_nics,
    describe_others,
    describe_rdma,
    describe_settings,
    explain_choice,
)
from clusterctl.plans.checks.registry import in_order
from clusterctl.plans.checks.torch import nccl_version
from clusterctl.plans.explain import Explanation, family_of
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.records import Activate
from clusterctl.plans.launch.network import NodeNetwork, plan_hcas, resolve_network
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import counted

FIRST = 3  # entries of a path that are shown


def render_activated(console: Console, facts: Mapping[str, Facts]) -> None:
    """Print what `activate` gave, equal nodes as one; nothing where there is none."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, one in facts.items():
        if one.activate.status is not None:
            groups.setdefault(tuple(describe(one.activate)), []).append(name)
    for lines, names in groups.items():
        console.print(Text.assemble("activate gave ", (f"({fold_names(names)})", "bold")))
        for line in lines:
            console.print(Text(f"  {sanitize(line)}"), soft_wrap=True)


def describe(given: Activate) -> Iterator[str]:
    """Say it in lines."""
    if given.conda:
        yield f"conda environment {given.conda}"
    if given.venv:
        yield f"venv {given.venv}"
    yield f"CUDA toolkit {given.cuda or 'none'}" + _at(given.nvcc or given.cuda_home)
    yield f"compiler {given.compiler_version or 'none'}" + _at(given.compiler)
    yield f"PATH {shorten(given.path)}"
    if given.libraries:
        yield f"LD_LIBRARY_PATH {shorten(given.libraries)}"


def _at(place: str | None) -> str:
    return f" at {place}" if place else ""


def shorten(entries: tuple[str, ...]) -> str:
    """Join the first entries of a path and count the others."""
    more = len(entries) - FIRST
    return ":".join(entries[:FIRST]) + (f" and {more} more" if more > 0 else "")


SCHEMA = 1
FOLD_ABOVE = 16  # nodes; a longer table shows equal nodes as one row
STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
NOTHING = "-"
INDENT = 7  # columns before the text of a finding


@dataclass(frozen=True)
class Row:
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
    def kind(self) -> tuple[str, ...]:
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
OPTIONAL = ("cuda", "gpus")  # left out where no node has any


def render_check(
    console: Console,
    nodes: Sequence[Node],
    facts: Mapping[str, Facts],
    findings: Sequence[Finding],
    about: Callable[[], None] = lambda: None,
) -> None:
    """Print the table, what `about` prints of the network, the findings, and last a line that sums up."""
    render_table(console, [_row(node, facts.get(node.name), findings) for node in nodes])
    render_activated(console, facts)
    about()
    render_findings(console, findings)
    console.print(Text(sum_up(len(nodes), findings)))


def render_table(console: Console, rows: Sequence[Row]) -> None:
    """Print a row per node, or per group of equal nodes where there are many."""
    shown = fold_rows(rows) if len(rows) > FOLD_ABOVE else list(rows)
    names = [
        name
        for name in HEADINGS
        if name not in OPTIONAL or any(getattr(row, name) != NOTHING for row in shown)
    ]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in names:
        table.add_column(HEADINGS[name], overflow="fold", no_wrap=False)
    for row in shown:
        table.add_row(*(_cell(name, getattr(row, name)) for name in names))
    print_table(console, table)


def _cell(name: str, value: str) -> Text:
    if name != "verdict":
        return Text(sanitize(value))
    worst = next((severity for severity in SEVERITIES if severity in value), None)
    return Text(value, style=STYLES[worst] if worst else "bold red" if value == "no answer" else "green")


def fold_rows(rows: Sequence[Row]) -> list[Row]:
    """Join rows that differ only in name and address."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.kind, []).append(row)
    return [_joined(group) for group in groups.values()]


def _joined(group: Sequence[Row]) -> Row:
    first, more = group[0], len(group) - 1
    address = f"{first.address} +{more}" if more else first.address
    return Row(fold_names(row.node for row in group), address, *first.kind)


def _row(node: Node, facts: Facts | None, findings: Sequence[Finding]) -> Row:
    network = resolve_network(node, facts)
    if facts is None:
        address = network.ip or node.host
        return Row(node.name, address, _nics(network), NOTHING, NOTHING, NOTHING, NOTHING, "no answer")
    torch = facts.torch.version or "none"
    python = facts.interpreter.version or NOTHING
    verdict = _verdict(node.name, findings)
    return Row(
        node.name, network.ip or NOTHING, _nics(network), python, torch, _cuda(facts), _gpus(facts), verdict
    )


def _nics(network: NodeNetwork) -> str:
    return ", ".join(network.nics) or NOTHING


def _cuda(facts: Facts) -> str:
    runtime = facts.torch.cuda or (facts.torch.hip and f"ROCm {facts.torch.hip}")
    return " / ".join(text for text in (runtime, nccl_version(facts)) if text) or NOTHING


def _gpus(facts: Facts) -> str:
    models = Counter((gpu.name or "GPU").removeprefix("NVIDIA ") for gpu in facts.gpus.devices)
    told = ", ".join(f"{count} x {model}" for model, count in models.items())
    return told or (str(facts.gpus.count) if facts.gpus.count else NOTHING)


def _verdict(name: str, findings: Sequence[Finding]) -> str:
    count = Counter(one.severity for one in findings if name in one.nodes and not one.waived)
    return next((_counted(count[kind], kind) for kind in ("error", "warning") if count[kind]), "fit")


def _counted(count: int, kind: str) -> str:
    return counted(count, "note" if kind == "info" else kind)


def render_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print the findings, worst first: what was seen, why it matters, what mends it."""
    for finding in in_order(findings):
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
    for place, piece in enumerate(pieces):
        piece.rstrip()
        start = label if place == 0 else ""
        console.print(Text.assemble(f"{start:>{INDENT - 1}} ", piece), soft_wrap=not wrap)


def sum_up(nodes: int, findings: Sequence[Finding]) -> str:
    """Say in one line how it looks."""
    count = Counter(finding.severity for finding in findings if not finding.waived)
    parts = [_counted(count[severity], severity) for severity in SEVERITIES if count[severity]]
    waived = sum(bool(finding.waived) for finding in findings)
    told = ", ".join([*parts, f"{waived} waived"] if waived else parts)
    many = counted(nodes, "node")
    if count["error"]:
        return f"{many}: not fit: {told}"
    return f"{many}: fit ({told})" if told else f"{many}: fit"


def to_json(nodes: Sequence[Node], facts: Mapping[str, Facts], findings: Sequence[Finding]) -> dict[str, Any]:
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
        "node_rank": node.node_rank,
        "host": node.host,
        "answered": facts is not None,
        "ip": network.ip,
        "nics": list(network.nics),
        "chosen_by": network.source,
        "nccl_ib_hca": plan_hcas(facts, network.nics) if facts else None,
        "verdict": _verdict(node.name, findings) if facts else "no answer",
        "facts": asdict(facts) if facts else None,
    }


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


EXPLAIN_INDENT = 10  # columns before a text


def render_explanation(console: Console, one: Explanation) -> None:
    """Print a code in full; commands stay unwrapped, because they are there to be pasted."""
    console.print(Text.assemble((one.code, "bold"), f"  {one.title}", (f"  ({one.kind})", "dim")))
    console.print()
    _print(console, "effect", one.effect)
    _print(console, "why", one.why)
    _print(console, "what", one.text)
    _print(console, "do", one.do)
    _print(console, "in life", "\n".join(one.happens))
    if one.example is not None:
        _print(console, "example", one.example.seen)
        _print(console, "fix", one.example.fix, wrap=False)
    _print(console, "try", one.command, wrap=False)
    _print(console, "see", f"clusterctl explain {one.see}" if one.see else "", wrap=False)


def _print(console: Console, label: str, text: str, *, wrap: bool = True) -> None:
    width = max(20, min(console.width, 100) - EXPLAIN_INDENT)
    lines = [Text(line) for line in text.split("\n")] if text else []
    pieces = [piece for line in lines for piece in (line.wrap(console, width) if wrap else [line])]
    for place, piece in enumerate(pieces):
        piece.rstrip()
        head = (f"{label:>{EXPLAIN_INDENT - 2}}  " if place == 0 else " " * EXPLAIN_INDENT, "cyan")
        console.print(Text.assemble(head, piece), soft_wrap=True)


def render_codes(
    console: Console, families: Mapping[str, str], titles: Mapping[str, str], family: str
) -> None:
    """List the codes of a family, or of all."""
    for name, heading in families.items():
        codes = [code for code in titles if family_of(code) == name]
        if codes and family in ("", name):
            console.print(Text(f"{heading}", style="bold"))
            for code in codes:
                console.print(Text.assemble((f"  {code}  ", "cyan"), titles[code]), soft_wrap=True)
    console.print(Text("clusterctl explain CODE tells more of one."), style="dim")


def explanation_to_json(one: Explanation) -> dict[str, Any]:
    """Give an explanation as `explain --json` prints it."""
    return {"schema": SCHEMA, **asdict(one)}
