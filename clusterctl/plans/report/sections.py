"""Sections that the report and the page of `ui` share: facts of a run, and where its ranks were."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.evidence import RankEvidence
from clusterctl.plans.diagnose.hang import Judgement, fold_numbers
from clusterctl.plans.diagnose.kept import render_advice
from clusterctl.plans.diagnose.slow import Lateness, Slowness
from clusterctl.plans.report.markup import Child, Html, element, join, join_lines, table, table_row
from clusterctl.plans.report.reported_run import ReportedRun
from clusterctl.plans.runs.checkpoints import describe_checkpoints
from clusterctl.plans.runs.history import NodeRecord
from clusterctl.plans.runs.rows import RankRow, fold_ranks, fold_stacks, rank_headings
from clusterctl.plans.runs.state import find_checkpoints, node_ranks
from clusterctl.protocol.states import PREPARING, RUNNING, STALLED, STOPPED, SUBMITTED, SUCCEEDED, WAITING
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.text import render_duration
from clusterctl.translation import to_translate, tr, trn

Facts = dict[str, str]
ABOUT: Mapping[str, str] = {  # what the launch recorded of each node, and what it is called
    "code": to_translate("code"),
    "nic": to_translate("network chosen by"),
    "python": "Python",
    "torch": "torch",
    "cuda": "CUDA",
    "nccl": "NCCL",
    "driver": to_translate("GPU driver"),
    "kernel": to_translate("kernel"),
    "clusterctl": "clusterctl",
}
# The class that colours a state; a state without one is a failure.
STATE_CLASSES: Mapping[str, str] = {
    SUBMITTED: "state-preparing",
    PREPARING: "state-preparing",
    WAITING: "state-preparing",
    RUNNING: "state-running",
    STALLED: "state-stalled",
    SUCCEEDED: "state-succeeded",
    STOPPED: "state-stopped",
}
FAILED_CLASS = "state-failed"
MAX_HASH = 16  # characters
MAX_ROWS, MAX_STACKS = 48, 12
MAX_STACK_LINES = 200


def state_class(state: str, *, is_cause: bool = True) -> str:
    """Return the class that colours a state; a failure that another one caused has the grey of what was stopped."""
    kind = STATE_CLASSES.get(state, FAILED_CLASS)
    return STATE_CLASSES[STOPPED] if kind == FAILED_CLASS and not is_cause else kind


def state_chip(state: str, *, is_cause: bool = True, text: str = "") -> Html:
    """Return a state as a chip in its colour, with other words if there are any; red is for the cause of the end."""
    return element("span", text or state, class_=f"chip {state_class(state, is_cause=is_cause)}")


def list_facts(run: ReportedRun) -> Facts:
    """Return the facts of a run in the order in which they are shown; those of its head are not among them."""
    latest = run.latest
    facts: Facts = {}
    if latest is not None:
        facts[tr("cluster")] = latest.cluster
        launched = tr("{user}, from {directory}", user=latest.launched_by, directory=latest.launched_from)
        facts[tr("launched by")] = launched if latest.launched_from else latest.launched_by
    facts[tr("launched")] = run.date(run.began)
    if run.ended_at is not None:
        facts[tr("ended at")] = run.date(run.ended_at)
    if latest is not None:
        facts[tr("ranks")] = str(latest.world_size if latest.world_size is not None else "?")
        facts[tr("staged")] = latest.staged
        if latest.attempt > 1:
            facts[tr("attempts")] = str(latest.attempt)
        if latest.time_limit:
            facts[tr("time limit")] = render_duration(latest.time_limit)
    facts[tr("checkpoints")] = describe_checkpoints(find_checkpoints(run.parts, run.offsets), run.now)
    facts[tr("GPUs")] = fold(run.records, _describe_gpus)
    facts[tr("training network")] = _describe_network(run)
    for key, name in ABOUT.items():
        facts[tr(name)] = fold(run.records, lambda record, key=key: _about(record, key))  # type: ignore[misc]  # key is bound
    return {name: value for name, value in facts.items() if value}


def _about(record: NodeRecord, key: str) -> str:
    value = record.launched.about.get(key, "")
    if key == "nic":
        return _describe_source(value)
    return value[:MAX_HASH] if key == "code" else translate_node_text(value)


def _describe_source(source: str) -> str:
    """Describe what the address and the NICs of a node were chosen by, as the launch has recorded it."""
    key, _, network = source.partition(": ")
    if key in ("host", "ip") and network in ("", "in the inventory"):
        return tr("{key} in the inventory", key=key)
    if key == "network":
        return tr("network in the inventory, {network}", network=network)
    return translate_node_text(source)


def fold(records: Mapping[str, NodeRecord], describe: Callable[[NodeRecord], str]) -> str:
    """Return what all nodes have in common, or each value with its nodes."""
    groups = group_values((describe(record), name) for name, record in records.items())
    groups.pop("", None)
    if len(groups) == 1:
        return next(iter(groups))
    return tr("; ").join(
        tr("{text} ({nodes})", text=text, nodes=fold_names(names)) for text, names in groups.items()
    )


def describe_nodes(run: ReportedRun) -> str:
    """Return how many nodes a run has, and which."""
    ranks = node_ranks(run.parts)
    names = sorted(run.parts, key=lambda name: (ranks[name] is None, ranks[name] or 0))
    return tr("{n} ({names})", n=len(names), names=fold_names(names)) if names else ""


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


def render_sentence(
    judgement: Judgement, command: str = "clusterctl", *, heading: str = "p", copies: bool = False
) -> list[Child]:
    """Return the answer as `diagnose` prints it: the sentence with its code, and what to do next."""
    text = tr("{sentence} ({code})", sentence=judgement.sentence, code=judgement.code)
    sentence = element("b", text) if heading == "p" else text
    return [
        element(heading, sentence, class_="bad" if judgement.hangs and heading == "p" else None),
        *(element("p", *mark_commands(text, copies=copies)) for text in render_advice(judgement, command)),
    ]


def mark_commands(text: str, *, copies: bool = False) -> list[Child]:
    """Show as code what a text of ours has between backticks; one that a rank wrote could offer its own command."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return [text]
    return [
        show_command(piece, copies=copies) if number % 2 else piece for number, piece in enumerate(pieces)
    ]


def show_command(command: str, *, copies: bool = False) -> Html:
    """Show a command as code; with `copies` next to a button that copies it, for a page with a script."""
    code = element("code", command)
    if not copies or " " not in command:
        return code
    return join([code, " ", element("button", tr("copy"), type="button", class_="copy", data_copy=command)])


def render_ranks(ranks: Sequence[RankEvidence], judgement: Judgement, *, opens: bool = True) -> list[Child]:
    """Return the ranks as `diagnose` shows them, and the stacks, those of the suspects first, and open if wanted."""
    suspects = judgement.suspects
    rows = fold_ranks(ranks, suspects)
    more = len(rows) - MAX_ROWS
    ordered = sorted(ranks, key=lambda rank: (rank.rank not in suspects, rank.rank))
    stacks = list(fold_stacks(ordered).items())[:MAX_STACKS]
    return [
        table(rank_headings(), map(_rank_row, rows[:MAX_ROWS])) if rows else None,
        element("p", trn("and {n} more row", "and {n} more rows", more), class_="faint")
        if more > 0
        else None,
        *(_stack(stack, numbers, is_open=opens and numbers[0] in suspects) for stack, numbers in stacks),
    ]


def _rank_row(folded: RankRow) -> Html:
    cells = (folded.ranks, folded.nodes, folded.process, element("code", folded.at), folded.collective)
    return table_row(*cells, class_="bad" if folded.is_suspect else None)


def _stack(stack: str, ranks: list[int], *, is_open: bool) -> Html:
    title = trn("stacks of rank {ranks}", "stacks of ranks {ranks}", len(ranks), ranks=fold_numbers(ranks))
    content = element("pre", join_lines(stack.splitlines()[:MAX_STACK_LINES]))
    return element("details", element("summary", title), content, open="" if is_open else None)


def render_slowness(slowness: Slowness, *, has_sentence: bool) -> list[Child]:
    """Return how each rank arrives that was ever last, if wanted after the sentence of `diagnose --slow`."""
    judgement = slowness.judgement
    headings = (tr("RANK"), tr("NODE"), tr("LAST IN"), tr("BEHIND"), tr("LOSS"))
    note = tr(
        "{count} collectives in {seconds:.1f} s; GPU time after the launch of a kernel is not included",
        count=slowness.collectives,
        seconds=slowness.seconds,
    )
    rows = [_late_row(late, is_suspect=late.rank in judgement.suspects) for late in slowness.rows[:MAX_ROWS]]
    kind = "bad" if judgement.suspects else None
    return [
        element("p", tr("{sentence} ({code})", sentence=judgement.sentence, code=judgement.code), class_=kind)
        if has_sentence
        else None,
        table(headings, rows) if rows else None,
        element("p", note, class_="faint") if rows else None,
    ]


def _late_row(late: Lateness, *, is_suspect: bool) -> Html:
    shares = f"{late.last * 100:.0f} %", f"{late.delay * 1000:.1f} ms", f"{late.loss * 100:.1f} %"
    return table_row(str(late.rank), late.node, *shares, class_="bad" if is_suspect else None)
