"""Results of `check` between nodes, the test of the network and the deep check; and of `diagnose`, all as JSON too.

Of `diagnose`: the sentence, a row for ranks that are alike, the stacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from clusterctl.client.rpc.cluster import Answers
from clusterctl.console.terminal import make_table, print_fitted_table, print_table, stdout
from clusterctl.console.text import ItemsCell, WrappedCell, sanitize, wrap_prose, wrap_text
from clusterctl.errors import ClusterctlError
from clusterctl.plans.checks.collective import render_rate, render_time
from clusterctl.plans.diagnose.evidence import NodeEvidence, RankEvidence
from clusterctl.plans.diagnose.hang import Judgement, fold_numbers
from clusterctl.plans.diagnose.network_tests import DeepCheckResult
from clusterctl.plans.diagnose.slow import Slowness
from clusterctl.plans.facts.facts import FULL_MESH_LIMIT
from clusterctl.plans.runs.rows import fold_ranks, fold_stacks, rank_headings
from clusterctl.protocol.messages.checks import (
    MASTER,
    MESH,
    GroupResult,
    MeshResult,
    SearchReport,
    bus_bandwidth,
)
from clusterctl.protocol.messages.facts import GpuUsage
from clusterctl.protocol.messages.record import to_json
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import begin_commands
from clusterctl.translation import english_of, to_translate, tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import (
        AskedNode,
        DeepCheck,
        DeepConclusion,
        DiagnoseDocument,
        EvidenceEntry,
        NetworkPath,
        NetworkTest,
        SlownessDocument,
    )

BANDWIDTH_FROM = 64 << 10  # bytes; less shows the latency, and no bandwidth


def render_deep(console: Console, deep: DeepCheckResult | None) -> None:
    """Print a line per size of the all_reduce of all nodes, and the slowest and the fastest pair."""
    if deep is None:
        console.print(Text(tr("deep check: skipped; fix the errors below first")))
        return
    all_nodes = deep.full_group
    if all_nodes is not None and not all_nodes.ok:
        console.print(Text(tr("deep check: all_reduce of {ranks} failed", ranks=_count_ranks(all_nodes))))
    elif all_nodes is not None:
        ranks = _count_ranks(all_nodes)
        nodes = trn("{n} node", "{n} nodes", len(all_nodes.nodes))
        console.print(Text(tr("deep check: all_reduce of {ranks} on {nodes}", ranks=ranks, nodes=nodes)))
        for size, seconds in all_nodes.rows:
            bandwidth = bus_bandwidth(size, seconds, all_nodes.ranks)
            has_rate = size >= BANDWIDTH_FROM and bandwidth
            rate = tr("{rate} bus bandwidth", rate=render_rate(bandwidth)) if has_rate else ""
            console.print(f"{_render_bytes(size):>10}  {render_time(seconds):>9}  {rate}".rstrip())
        _render_pairs(console, deep)


def _count_ranks(group: GroupResult) -> str:
    return trn("{n} rank", "{n} ranks", group.ranks)


def _render_pairs(console: Console, deep: DeepCheckResult) -> None:
    pairs = [group for group in deep.pairs if group.ok]
    if pairs:
        slowest, fastest = (choose(pairs, key=_bandwidth) for choose in (min, max))
        line = trn(
            "  {n} pair: {slowest} to {fastest}",
            "  {n} pairs: {slowest} to {fastest}",
            len(pairs),
            slowest=_describe_group(deep, slowest),
            fastest=_describe_group(deep, fastest),
        )
        console.print(Text(line), soft_wrap=True)


def _bandwidth(group: GroupResult) -> float:
    return group.bandwidth


def _describe_group(deep: DeepCheckResult, group: GroupResult) -> str:
    names = " - ".join(deep.name(node_index) for node_index in group.nodes)
    return f"{render_rate(group.bandwidth)} ({names})"


def _render_bytes(size: float) -> str:
    for unit, unit_size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= unit_size:
            return f"{size / unit_size:g} {unit}"
    return f"{size:g} B"


def deep_to_json(deep: DeepCheckResult) -> DeepCheck:
    """Return the deep check's place in `check --json`, nodes by name."""
    return {
        "backend": deep.backend,
        "ranks": deep.ranks,
        "trouble": deep.trouble or None,
        "rounds": [
            {
                "kind": round_result.round,
                "seconds": round_result.seconds,
                "groups": [
                    {**to_json(group), "nodes": _node_names(deep, group.nodes)}
                    for group in round_result.groups
                ],
            }
            for round_result in deep.rounds
        ],
        "found": None if deep.diagnosis is None else _conclusion_to_json(deep, deep.diagnosis),
    }


def _conclusion_to_json(deep: DeepCheckResult, conclusion: SearchReport) -> DeepConclusion:
    return {
        **to_json(conclusion),
        "nodes": _node_names(deep, conclusion.nodes),
        "links": [_node_names(deep, link) for link in conclusion.links],
        "slow_nodes": _node_names(deep, conclusion.slow_nodes),
        "slow_links": [_node_names(deep, link) for link in conclusion.slow_links],
    }


def _node_names(deep: DeepCheckResult, node_indices: Sequence[int]) -> list[str]:
    return [deep.name(node_index) for node_index in node_indices]


def render_mesh(console: Console, mesh: MeshResult | None) -> None:
    """Print the result of the test of the network, if there was one."""
    if mesh is not None:
        for line in wrap_text(describe_mesh(mesh), console.width, indent="    "):
            console.print(Text(line), soft_wrap=True)


_CONNECTIONS: Mapping[
    tuple[bool, bool], str
] = {  # by whether all work, and whether there are several networks
    (True, False): to_translate("network: all {total} connections work"),
    (True, True): to_translate("network: all {total} connections in {networks} networks work"),
    (False, False): to_translate("network: {open} of {total} connections work"),
    (False, True): to_translate("network: {open} of {total} connections in {networks} networks work"),
}


def describe_mesh(mesh: MeshResult) -> str:
    """Return in one line how many connections work and how long a round trip takes."""
    paths = [path for rail in mesh.rails for path in mesh.select_paths(MESH, rail)]
    if not paths:
        return tr("network: no connection could be tested")
    open_paths = [path for path in paths if path.open]
    message = _CONNECTIONS[len(open_paths) == len(paths), len(mesh.rails) > 1]
    line = tr(message, open=len(open_paths), total=len(paths), networks=len(mesh.rails))
    if len(mesh.nodes) > FULL_MESH_LIMIT:
        line = tr("{line} (a sample)", line=line)
    round_trips = sorted(path.least_rtt for path in open_paths if path.least_rtt)
    if not round_trips:
        return line
    low, high = round_trips[0] / 1000, round_trips[-1] / 1000
    return tr("{line}, round trip {low:.2f} to {high:.2f} ms", line=line, low=low, high=high)


def mesh_to_json(mesh: MeshResult | None) -> NetworkTest | None:
    """Return every connection that was tried; times in seconds, round trips in microseconds."""
    if mesh is None:
        return None
    paths: list[NetworkPath] = [
        {
            "from": path.caller,
            "to": path.peer,
            "network": path.rail or None,
            "port": "master" if path.listener == MASTER else "ephemeral",
            "open": path.open,
            "error": path.error,
            "connect": path.connect,
            "seconds": path.seconds,
            "rtt_us": path.least_rtt,
            "mss": path.mss,
            "retransmitted": path.lost,
        }
        for path in mesh.paths
    ]
    return {"nodes": list(mesh.nodes), "absent": dict(mesh.absent), "seconds": mesh.seconds, "ways": paths}


MAX_ROWS = 24


def show_diagnosis(
    judgement: Judgement,
    ranks: Sequence[RankEvidence],
    answers: Answers[NodeEvidence],
    command: str,
    *,
    with_stacks: bool,
) -> None:
    """Print the sentence, a table of the ranks, and the stacks if they are wanted; `command` is how hints begin."""
    _show_judgement(judgement, command, stacks_shown=with_stacks)
    _show_ranks(ranks, judgement)
    for line in describe_asked(answers):
        _print_prose(stdout(), line, "dim")
    if with_stacks:
        _show_stacks(ranks)


def _show_judgement(judgement: Judgement, command: str, *, stacks_shown: bool) -> None:
    """Print the sentence with its code, and what to do next."""
    style = "bold red" if judgement.hangs else "bold"
    console = stdout()
    _print_prose(console, tr("{sentence} ({code})", sentence=judgement.sentence, code=judgement.code), style)
    if judgement.fix and not (stacks_shown and "--stacks" in judgement.fix):
        advice = begin_commands(judgement.fix, command)
        _print_prose(console, tr("next: {command}", command=advice), "", indent="  ")


def _print_prose(console: Console, text: str, style: str, *, indent: str = "") -> None:
    """Print a text, on a terminal in lines that break between words."""
    line, room = sanitize(text), console.width - len(indent)
    for piece in wrap_prose(line, room, "  ") if console.is_terminal else [line]:
        console.print(Text(f"{indent}{piece}", style), soft_wrap=True)


def _show_ranks(ranks: Sequence[RankEvidence], judgement: Judgement) -> None:
    rows = [tuple(map(sanitize, row.cells)) for row in fold_ranks(ranks, judgement.suspects)]
    table = make_table(*rank_headings())
    for *names, place, collective in rows[:MAX_ROWS]:
        table.add_row(*(ItemsCell([name]) for name in names), WrappedCell(place), WrappedCell(collective))
    if ranks:
        print_fitted_table(stdout(), table)
    if len(rows) > MAX_ROWS:
        more = len(rows) - MAX_ROWS
        stdout().print(
            Text(trn("and {n} more row; --json has all", "and {n} more rows; --json has all", more))
        )


def describe_asked(answers: Answers[NodeEvidence]) -> list[str]:
    """Return how many ranks were asked and how long that took, and whose first of two answers is shown."""
    line = trn(
        "queried {n} rank in {seconds:.2f} s; nothing was stopped",
        "queried {n} ranks in {seconds:.2f} s; nothing was stopped",
        sum(len(node.ranks) for node in answers.nodes.values()),
        seconds=max((node.took for node in answers.nodes.values()), default=0.0),
    )
    seen_once = [name for name in answers.nodes if name in answers.errors]
    note = tr("no answer to the second query, the first one is shown: {nodes}", nodes=fold_names(seen_once))
    return [line, note] if seen_once else [line]


def _show_stacks(ranks: Sequence[RankEvidence]) -> None:
    """Print each stack once, with the ranks that are in it."""
    for stack, numbers in fold_stacks(ranks).items():
        title = trn(
            "stacks of rank {ranks}", "stacks of ranks {ranks}", len(numbers), ranks=fold_numbers(numbers)
        )
        stdout().print(Text("\n" + title, "bold"))
        for line in stack.splitlines():
            stdout().print(Text(sanitize(line)), soft_wrap=True)


def show_gpus(gpus: Mapping[str, Sequence[GpuUsage]]) -> None:
    """Print how busy the GPUs of each node are, one line for each node."""
    for line in list_gpu_lines(gpus):
        _print_prose(stdout(), line, "dim")


def list_gpu_lines(gpus: Mapping[str, Sequence[GpuUsage]]) -> list[str]:
    """Return how busy the GPUs of each node are."""
    return [
        sanitize(tr("GPUs of {node}: {gpus}", node=name, gpus=tr("; ").join(map(_describe_gpu, node_gpus))))
        for name, node_gpus in list(gpus.items())[:MAX_ROWS]
    ]


def _describe_gpu(gpu: GpuUsage) -> str:
    """Write `0: 100 % busy, 1024 of 81559 MiB`."""
    values = {"index": gpu.index, "busy": gpu.busy, "used": gpu.memory_used, "total": gpu.memory}
    shown = {name: "?" if value is None else value for name, value in values.items()}
    return tr("{index}: {busy} % busy, {used} of {total} MiB", **shown)


def show_slowness(slowness: Slowness, command: str) -> None:
    """Print the sentence of `diagnose --slow`, and how each rank arrives that was ever last."""
    _show_judgement(slowness.judgement, command, stacks_shown=False)
    table = make_table(tr("RANK"), tr("NODE"), tr("LAST IN"), tr("BEHIND"), tr("LOSS"), no_wrap=True)
    for row in slowness.rows[:MAX_ROWS]:
        cells = (row.last * 100, row.delay * 1000, row.loss * 100)
        shown = (f"{cells[0]:.0f} %", f"{cells[1]:.1f} ms", f"{cells[2]:.1f} %")
        table.add_row(str(row.rank), Text(sanitize(row.node)), *shown)
    if slowness.rows:
        print_table(stdout(), table)
        text = tr(
            "{count} collectives in {seconds:.1f} s; GPU time after the launch of a kernel is not included",
            count=slowness.collectives,
            seconds=slowness.seconds,
        )
        stdout().print(Text(text, "dim"))


def slowness_to_json(run_id: str, slowness: Slowness) -> SlownessDocument:
    """Return the document of `diagnose --slow --json`; times in seconds, shares from 0 to 1."""
    judgement = slowness.judgement
    return {
        "schema": 1,
        "run": run_id,
        "code": judgement.code,
        "sentence": english_of(judgement.sentence),
        "next": english_of(judgement.fix),
        "suspects": list(judgement.suspects),
        "collectives": slowness.collectives,
        "seconds": round(slowness.seconds, 3),
        "ranks": [asdict(row) for row in slowness.rows],
    }


def diagnosis_to_json(
    run_id: str,
    judgement: Judgement,
    ranks: Sequence[RankEvidence],
    nodes: Mapping[str, NodeEvidence],
    errors: Mapping[str, ClusterctlError],
    gpus: Mapping[str, Sequence[GpuUsage]],
) -> DiagnoseDocument:
    """Return the document of `diagnose --json`; there are `gpus` only where the run hangs."""
    answered: list[AskedNode] = [
        {"name": name, "answered": True, "took": node.took, "error": _error_of(name, errors)}
        for name, node in nodes.items()
    ]
    failed: list[AskedNode] = [
        {"name": name, "answered": False, "took": None, "error": _error_of(name, errors)}
        for name in errors
        if name not in nodes
    ]
    return {
        "schema": 1,
        "run": run_id,
        "code": judgement.code,
        "hangs": judgement.hangs,
        "sentence": english_of(judgement.sentence),
        "next": english_of(judgement.fix),
        "suspects": list(judgement.suspects),
        "waiting": list(judgement.waiting),
        "seconds": judgement.seconds,
        "nodes": answered + failed,
        "ranks": [rank_to_json(rank) for rank in ranks],
        "gpus": {name: to_json(node_gpus) for name, node_gpus in gpus.items()},
    }


def _error_of(name: str, errors: Mapping[str, ClusterctlError]) -> str | None:
    return f"{errors[name].code} {errors[name].english}" if name in errors else None


def rank_to_json(rank: RankEvidence) -> EvidenceEntry:
    """Return what is known of one rank; `where` is the line of the job at which its main thread is."""
    return {**asdict(rank), "where": None if rank.where is None else asdict(rank.where)}
