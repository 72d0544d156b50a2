"""What `check` prints: the answer, nodes, findings, NICs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clusterctl.console.terminal import print_table, symbol
from clusterctl.console.text import COMMAND, UNBROKEN, sanitize, wrap_command, wrap_prose
from clusterctl.plans.checks.framework import SEVERITIES, Finding, fold_consequences, join_items
from clusterctl.plans.checks.nics import (
    describe_nccl_files,
    describe_nics,
    describe_other_nics,
    describe_rdma,
    explain_choice,
    render_speed,
)
from clusterctl.plans.checks.registry import sort_findings
from clusterctl.plans.checks.torch import nccl_version
from clusterctl.plans.launch.network import NodeNetwork, plan_hcas, resolve_network, training_nic
from clusterctl.protocol.messages.facts import ActivateResult, Facts
from clusterctl.protocol.messages.record import to_json
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import plural
from clusterctl.translation import to_translate, tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import CheckedNode, NodesAndFindings

MAX_ENTRIES = 3  # entries of a path that are shown


def render_activated(console: Console, facts: Mapping[str, Facts]) -> None:
    """Print the environment that `activate` made, equal nodes as one; nothing where there is none."""
    groups = group_values(
        (tuple(describe_activated(one.activate)), name)
        for name, one in facts.items()
        if one.activate.status is not None
    )
    for lines, names in groups.items():
        console.print(Text(tr("environment of `activate` on {nodes}:", nodes=fold_names(names))))
        for line in lines:
            console.print(Text(f"  {sanitize(line)}"), soft_wrap=True)


def describe_activated(activated: ActivateResult) -> Iterator[str]:
    """Describe it in lines."""
    if activated.conda:
        yield tr("conda environment {name}", name=activated.conda)
    if activated.venv:
        yield f"venv {activated.venv}"
    cuda_path = activated.nvcc or activated.cuda_home
    yield _at_path(tr("CUDA toolkit {version}", version=activated.cuda or tr("none")), cuda_path)
    compiler = tr("compiler {version}", version=activated.compiler_version or tr("none"))
    yield _at_path(compiler, activated.compiler)
    yield f"PATH {render_path_list(activated.path)}"
    if activated.libraries:
        yield f"LD_LIBRARY_PATH {render_path_list(activated.libraries)}"


def _at_path(text: str, path: str | None) -> str:
    return tr("{program} at {path}", program=text, path=path) if path else text


def render_path_list(entries: tuple[str, ...]) -> str:
    """Join the first entries of a path and count the others."""
    hidden = len(entries) - MAX_ENTRIES
    shown = ":".join(entries[:MAX_ENTRIES])
    return tr("{entries} and {count} more", entries=shown, count=hidden) if hidden > 0 else shown


MAX_LINES = 16  # lines of nodes; a longer table shows equal nodes as one row
MAX_NAMES = 3  # NICs and errors that a line of nodes names
STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
EMPTY = "-"
INDENT = 8  # columns before the text of a finding


@dataclass(frozen=True)
class NodeRow:
    """A node in the table of `check -v`."""

    node: str
    address: str
    nics: str
    result: str
    python: str = EMPTY
    torch: str = EMPTY
    cuda: str = EMPTY
    gpus: str = EMPTY

    @property
    def group_key(self) -> tuple[str, ...]:
        """What must be equal for two nodes to share a row."""
        return (self.nics, self.result, self.python, self.torch, self.cuda, self.gpus)


HEADINGS = {
    "node": to_translate("node"),
    "address": to_translate("address"),
    "nics": to_translate("NIC"),
    "python": "Python",
    "torch": "torch",
    "cuda": "CUDA / NCCL",
    "gpus": to_translate("GPUs"),
    "result": to_translate("result"),
}
OPTIONAL_COLUMNS = ("cuda", "gpus")  # left out where no node has any


def render_check(
    console: Console,
    nodes: Sequence[Node],
    facts: Mapping[str, Facts],
    findings: Sequence[Finding],
    print_network: Callable[[], None] = lambda: None,
    *,
    verbose: bool = False,
) -> None:
    """Print the answer, a line for equal nodes, what `print_network` prints of the network, and the findings.

    With `verbose` the nodes stand in a table, one a row.
    """
    _print_answer(console, nodes, findings)
    if verbose:
        render_table(console, [_make_row(node, facts.get(node.name), findings) for node in nodes])
        render_activated(console, facts)
    else:
        _print_node_lines(console, nodes, facts, findings)
    print_network()
    render_findings(console, findings)


def _print_answer(console: Console, nodes: Sequence[Node], findings: Sequence[Finding]) -> None:
    """Print in one line whether the nodes are ready."""
    failed = _list_failed(nodes, findings)
    mark = Text(
        symbol("failed" if failed else "ok", sys.stdout), style="bold red" if failed else "bold green"
    )
    console.print(Text.assemble(mark, (f" {summarize(nodes, findings)}", "bold")))


def _list_failed(nodes: Sequence[Node], findings: Sequence[Finding]) -> list[str]:
    """Name the nodes that an error is about."""
    errors = [finding for finding in findings if finding.severity == "error" and not finding.waived]
    return [node.name for node in nodes if any(node.name in finding.nodes for finding in errors)]


def summarize(nodes: Sequence[Node], findings: Sequence[Finding]) -> str:
    """Return in one line whether the nodes are ready, and how many findings there are."""
    count = Counter(finding.severity for finding in findings if not finding.waived)
    waived = sum(bool(finding.waived) for finding in findings)
    counts = [_count_of(severity, count[severity]) for severity in SEVERITIES if count[severity]]
    counts += [tr("{count} waived", count=waived)] if waived else []
    failed = _list_failed(nodes, findings)
    if count["error"]:
        answer = trn(
            "{count} of {n} node cannot take part",
            "{count} of {n} nodes cannot take part",
            len(nodes),
            count=len(failed),
        )
    else:
        answer = trn("{n} node is ready", "all {n} nodes are ready", len(nodes))
    return tr("{answer} ({counts})", answer=answer, counts=join_items(counts)) if counts else answer


def _count_of(severity: str, number: int) -> str:
    if severity == "error":
        return trn("{n} error", "{n} errors", number)
    if severity == "warning":
        return trn("{n} warning", "{n} warnings", number)
    return trn("{n} note", "{n} notes", number)


@dataclass(frozen=True)
class NodeLine:
    """A line of equal nodes: their errors, else what they have and their NICs' speed."""

    problems: tuple[str, ...]
    answered: bool
    facts: tuple[str, ...]
    speed: str


def _print_node_lines(
    console: Console, nodes: Sequence[Node], facts: Mapping[str, Facts], findings: Sequence[Finding]
) -> None:
    folded = [finding for finding, _ in fold_consequences(sort_findings(findings))]
    errors = [finding for finding in folded if finding.severity == "error" and not finding.waived]
    groups: dict[NodeLine, list[Node]] = {}
    for node in nodes:
        problems = tuple(f"{one.title} {one.code}" for one in errors if node.name in one.nodes)
        groups.setdefault(_make_line(node, facts.get(node.name), problems), []).append(node)
    names = {line: fold_names(node.name for node in members) for line, members in groups.items()}
    width = min(max(map(len, names.values()), default=0), 24)
    for line, members in list(groups.items())[:MAX_LINES]:
        _print_node_line(console, line, f"{names[line]:{width}}", _describe_line(line, members, facts))
    hidden = len(groups) - MAX_LINES
    if hidden > 0:
        console.print(trn("  {n} more line: -v shows it", "  {n} more lines: -v shows them", hidden))


def _make_line(node: Node, facts: Facts | None, problems: tuple[str, ...]) -> NodeLine:
    if facts is None or problems:
        return NodeLine(problems, answered=facts is not None, facts=(), speed="")
    nccl = nccl_version(facts)
    described = (
        _gpus(facts) if facts.gpus.count else "",
        f"torch {facts.torch.version}" if facts.torch.version else tr("no torch"),
        f"NCCL {nccl}" if nccl else "",
        f"Python {facts.interpreter.version}" if facts.interpreter.version else "",
    )
    nic = training_nic(resolve_network(node, facts), facts)
    speed = render_speed(nic.speed) if nic and nic.speed else ""
    return NodeLine((), answered=True, facts=tuple(filter(None, described)), speed=speed)


def _describe_line(line: NodeLine, members: Sequence[Node], facts: Mapping[str, Facts]) -> str:
    if line.problems or not line.answered:
        more = ["..."] if len(line.problems) > MAX_NAMES else []
        return join_items([*line.problems[:MAX_NAMES], *more]) or tr("no answer")
    networks = [resolve_network(node, facts[node.name]) for node in members]
    names = list(dict.fromkeys(name for network in networks for name in network.nics))
    shown = ", ".join(names[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
    nic = f"{line.speed} ({shown})" if line.speed and shown else line.speed or shown
    return join_items(filter(None, [*line.facts, nic]))


def _print_node_line(console: Console, line: NodeLine, names: str, description: str) -> None:
    is_ok = line.answered and not line.problems
    mark = Text(symbol("ok" if is_ok else "failed", sys.stdout), style="green" if is_ok else "bold red")
    print_behind(console, Text.assemble("  ", mark, f" {names}  "), description, indent=4 + len(names) + 2)


def render_table(console: Console, rows: Sequence[NodeRow]) -> None:
    """Print a row per node, or per group of equal nodes where there are many."""
    shown_rows = merge_equal_rows(rows) if len(rows) > MAX_LINES else list(rows)
    names = [
        name
        for name in HEADINGS
        if name not in OPTIONAL_COLUMNS or any(getattr(row, name) != EMPTY for row in shown_rows)
    ]
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in names:
        table.add_column(tr(HEADINGS[name]), overflow="fold", no_wrap=False)
    for row in shown_rows:
        table.add_row(*(_cell(name, getattr(row, name)) for name in names))
    print_table(console, table)


def _cell(name: str, value: str) -> Text:
    return Text(sanitize(value), style="green" if name == "result" and value == tr("ok") else "")


def merge_equal_rows(rows: Sequence[NodeRow]) -> list[NodeRow]:
    """Join rows that differ only in name and address."""
    return [_merge_group(group) for group in group_values((row.group_key, row) for row in rows).values()]


def _merge_group(group: Sequence[NodeRow]) -> NodeRow:
    first, others = group[0], len(group) - 1
    address = f"{first.address} +{others}" if others else first.address
    return NodeRow(fold_names(row.node for row in group), address, *first.group_key)


def _make_row(node: Node, facts: Facts | None, findings: Sequence[Finding]) -> NodeRow:
    network = resolve_network(node, facts)
    result = _node_result(node.name, findings, answered=facts is not None)
    if facts is None:
        address = network.ip or node.host
        return NodeRow(node=node.name, address=address, nics=_nics(network), result=result)
    torch = facts.torch.version or tr("none")
    python = facts.interpreter.version or EMPTY
    address, cuda, gpus = network.ip or EMPTY, _cuda(facts), _gpus(facts)
    return NodeRow(
        node=node.name,
        address=address,
        nics=_nics(network),
        python=python,
        torch=torch,
        cuda=cuda,
        gpus=gpus,
        result=result,
    )


def _node_result(name: str, findings: Sequence[Finding], *, answered: bool) -> str:
    if not answered and not _was_reached(name, findings):
        return tr("no answer")
    worst, number = _worst_of(name, findings)
    return _count_of(worst, number) if worst else tr("ok")


def _nics(network: NodeNetwork) -> str:
    return ", ".join(network.nics) or EMPTY


def _cuda(facts: Facts) -> str:
    runtime = facts.torch.cuda or (facts.torch.hip and f"ROCm {facts.torch.hip}")
    return " / ".join(text for text in (runtime, nccl_version(facts)) if text) or EMPTY


def _gpus(facts: Facts) -> str:
    models = Counter((gpu.name or "GPU").removeprefix("NVIDIA ") for gpu in facts.gpus.devices)
    summary = ", ".join(f"{count} x {model}" for model, count in models.items())
    return summary or (str(facts.gpus.count) if facts.gpus.count else EMPTY)


def _verdict(name: str, findings: Sequence[Finding], *, answered: bool) -> str:
    """Return a node's result as it stands in the JSON."""
    if not answered and not _was_reached(name, findings):
        return "no answer"
    worst, number = _worst_of(name, findings)
    return plural(number, worst) if worst else "fit"


def _worst_of(name: str, findings: Sequence[Finding]) -> tuple[str, int]:
    """Return the worst severity of what a node has, and how often it has it; notes do not count."""
    count = Counter(finding.severity for finding in findings if name in finding.nodes and not finding.waived)
    return next(
        ((severity, count[severity]) for severity in ("error", "warning") if count[severity]), ("", 0)
    )


def _was_reached(name: str, findings: Sequence[Finding]) -> bool:
    """Distinguish a node that was reached but has no usable Python from one that did not answer."""
    return any(name in finding.nodes and finding.code.startswith("CC-PY-") for finding in findings)


def render_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print the findings, worst first: what was seen, why it matters, how to fix it; what follows from it in a line."""
    for finding, consequences in fold_consequences(sort_findings(findings)):
        console.print()
        _render_finding(console, finding, consequences)


SEVERITY_NAMES: Mapping[str, str] = {
    "error": to_translate("error"),
    "warning": to_translate("warning"),
    "info": to_translate("note"),
}


def _render_finding(console: Console, finding: Finding, consequences: Sequence[Finding]) -> None:
    severity = tr(SEVERITY_NAMES[finding.severity])
    head = (tr("waived"), "dim") if finding.waived else (severity, STYLES[finding.severity])
    title = tr("{subject}: {text}", subject=finding.code, text=sanitize(finding.title))
    names = (tr(" ({text})", text=fold_names(finding.nodes)), "bold") if finding.nodes else ""
    console.print(Text.assemble(head, f" {title}", names), soft_wrap=True)
    _print_labelled(console, tr("seen:"), finding.evidence)
    if finding.waived:
        _print_labelled(console, tr("waived:"), finding.waived)
        return
    _print_labelled(console, tr("why:"), finding.why)
    _print_labelled(console, tr("fix:"), finding.fix, break_fix)
    if consequences:
        also = join_items(f"{other.title} {other.code}" for other in consequences)
        _print_labelled(console, tr("also:"), tr("same cause: {findings}", findings=also))


def break_fix(line: str, width: int) -> list[str]:
    """Keep a command whole, because it is there to be pasted; prose that begins with the name of a program is none."""
    return wrap_command(line, width) if COMMAND.match(line) else wrap_prose(line, width)


def print_behind(
    console: Console,
    start: Text,
    text: str,
    break_line: Callable[[str, int], list[str]] = wrap_prose,
    *,
    indent: int,
    widest: int = UNBROKEN,
) -> None:
    """Print a text behind its label, `start`; its other lines are indented."""
    width = max(20, min(console.width, widest) - indent)
    lines = [sanitize(line) for line in text.split("\n")] if text else []
    for index, piece in enumerate(piece for line in lines for piece in break_line(line, width)):
        console.print(Text.assemble(start if index == 0 else " " * indent, piece), soft_wrap=True)


def _print_labelled(
    console: Console, label: str, text: str, break_line: Callable[[str, int], list[str]] = wrap_prose
) -> None:
    first = f"  {label}"
    padding = " " * max(int(first.endswith(":")), INDENT - cell_len(first))
    print_behind(console, Text(f"{first}{padding}"), text, break_line, indent=INDENT)


def check_to_json(
    nodes: Sequence[Node], facts: Mapping[str, Facts], findings: Sequence[Finding]
) -> NodesAndFindings:
    """Return nodes and findings as `check --json` prints them."""
    return {
        "schema": 1,
        "nodes": [_node_to_json(node, facts.get(node.name), findings) for node in nodes],
        "findings": [asdict(finding) for finding in findings],
    }


def _node_to_json(node: Node, facts: Facts | None, findings: Sequence[Finding]) -> CheckedNode:
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
        "verdict": _verdict(node.name, findings, answered=facts is not None),
        "facts": to_json(facts),
    }


def render_nics(
    console: Console, nodes: Sequence[Node], facts: Mapping[str, Facts], *, verbose: bool = False
) -> None:
    """Print a line for InfiniBand and NCCL's files, with `verbose` also why the NICs were chosen and which were not."""
    groups = group_values(
        (tuple(_nic_lines(node, facts[node.name], verbose=verbose)), node.name)
        for node in nodes
        if node.name in facts
    )
    for lines, names in groups.items():
        head = tr("NIC ({nodes}) ", nodes=fold_names(names))
        for index, line in enumerate(lines):
            indent, text = (4, f"{head}{line}") if index == 0 else (8, line)
            print_behind(console, Text("" if index == 0 else "    "), text, indent=indent)


def _nic_lines(node: Node, facts: Facts, *, verbose: bool) -> Iterator[str]:
    network = resolve_network(node, facts)
    if verbose:
        description = describe_nics(facts, network) or tr("none")
        yield tr("{subject}: {text}", subject=description, text=explain_choice(node, network))
    for line in (describe_rdma(facts, network), *describe_nccl_files(facts)):
        if line:
            yield line
    not_chosen = describe_other_nics(facts, network)
    if verbose and not_chosen:
        yield tr("not chosen: {nics}", nics=not_chosen)
