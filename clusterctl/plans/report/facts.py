"""Who, when, what and where of a run, by name: equal nodes share a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.report.reported_run import ReportedRun, describe_span
from clusterctl.plans.runs.history import NodeRecord
from clusterctl.plans.runs.state import node_ranks
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration
from clusterctl.translation import to_translate, tr, trn

Facts = dict[str, str]
ABOUT: Mapping[str, str] = {  # what the launch recorded of each node, and what it is called
    "code": to_translate("code"),
    "nic": to_translate("why these NICs"),
    "python": "Python",
    "torch": "torch",
    "cuda": "CUDA",
    "nccl": "NCCL",
    "driver": to_translate("GPU driver"),
    "kernel": to_translate("kernel"),
    "clusterctl": "clusterctl",
}
LONGEST_HASH = 16


def list_facts(run: ReportedRun) -> Facts:
    """List them in the order in which they are shown."""
    latest = run.latest
    facts: Facts = {tr("result"): run.state, tr("ran for"): describe_span(run)}
    if latest is not None:
        facts[tr("job")] = latest.job
        facts[tr("cluster")] = latest.cluster
        launched = tr("{user}, from {directory}", user=latest.launched_by, directory=latest.launched_from)
        facts[tr("launched by")] = launched if latest.launched_from else latest.launched_by
    facts[tr("launched")] = run.date(run.began)
    if run.ended_at is not None:
        facts[tr("ended at")] = run.date(run.ended_at)
    facts[tr("nodes")] = _describe_nodes(run)
    if latest is not None:
        facts[tr("ranks")] = str(latest.world_size if latest.world_size is not None else "?")
        if latest.attempt > 1:
            facts[tr("attempts")] = str(latest.attempt)
        if latest.time_limit:
            facts[tr("time limit")] = render_duration(latest.time_limit)
    facts[tr("GPUs")] = fold(run.records, _describe_gpus)
    facts[tr("training network")] = _describe_network(run)
    for key, name in ABOUT.items():
        facts[tr(name)] = fold(run.records, lambda record, key=key: _about(record, key))  # type: ignore[misc]  # key is bound
    return {name: value for name, value in facts.items() if value}


def _about(record: NodeRecord, key: str) -> str:
    value = record.launched.about.get(key, "")
    return value[:LONGEST_HASH] if key == "code" else translate_node_text(value)


def fold(records: Mapping[str, NodeRecord], describe: Callable[[NodeRecord], str]) -> str:
    """Return what all nodes have in common, or each value with its nodes."""
    groups: dict[str, list[str]] = {}
    for name, record in records.items():
        text = describe(record)
        if text:
            groups.setdefault(text, []).append(name)
    if len(groups) == 1:
        return next(iter(groups))
    return tr("; ").join(
        tr("{text} ({nodes})", text=text, nodes=fold_names(names)) for text, names in groups.items()
    )


def _describe_nodes(run: ReportedRun) -> str:
    ranks = node_ranks(run.parts)
    names = sorted(run.parts, key=lambda name: (ranks[name] is None, ranks[name] or 0))
    count = trn("{n} node", "{n} nodes", len(names))
    return tr("{subject}: {text}", subject=count, text=fold_names(names)) if names else ""


def _describe_gpus(record: NodeRecord) -> str:
    names = [name for name, _ in record.history.machine.gpus if name]
    kinds = [f"{names.count(name)} x {name}" for name in dict.fromkeys(names)]
    return ", ".join(kinds)


def _describe_network(run: ReportedRun) -> str:
    parts = [
        tr(
            "{subject}: {text}",
            subject=name,
            text=f"{', '.join(record.launched.nics)} {record.launched.address}".strip(),
        )
        for name, record in list(run.records.items())[:16]
        if record.launched.nics or record.launched.address
    ]
    more = len(run.records) - 16
    rest = [trn("and {n} more node", "and {n} more nodes", more)] if more > 0 and parts else []
    return tr("; ").join([*parts, *rest])
