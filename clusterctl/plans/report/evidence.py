"""What the nodes have kept of the ranks: where each was when the run stalled or was ended, and which arrived late."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.plans.diagnose.evidence import RankEvidence
from clusterctl.plans.diagnose.hang import Judgement, fold_numbers
from clusterctl.plans.diagnose.rank_rows import RankRow, fold_ranks, fold_stacks, rank_headings
from clusterctl.plans.diagnose.slow import Lateness, Slowness
from clusterctl.plans.report.markup import Child, Html, element, join, table
from clusterctl.specs.text import begin_commands
from clusterctl.translation import tr, trn

MOST_ROWS, MOST_STACKS = 48, 12
MOST_STACK_LINES = 200


def render_sentence(judgement: Judgement, command: str = "clusterctl") -> list[Child]:
    """Return the answer as `diagnose` prints it: the sentence with its code, and what to do next."""
    sentence = element("b", tr("{sentence} ({code})", sentence=judgement.sentence, code=judgement.code))
    fix = begin_commands(judgement.fix, command)
    return [
        element("p", sentence, class_="bad" if judgement.hangs else None),
        element("p", *mark_commands(tr("next: {command}", command=fix))) if fix else None,
    ]


def mark_commands(text: str) -> list[Child]:
    """Show as code what a text has between backticks."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return [text]
    return [element("code", piece) if number % 2 else piece for number, piece in enumerate(pieces)]


def render_ranks(ranks: Sequence[RankEvidence], judgement: Judgement, *, opens: bool = True) -> list[Child]:
    """Return the ranks as `diagnose` shows them, and the stacks, those of the suspects first, and open if wanted."""
    suspects = judgement.suspects
    rows = fold_ranks(ranks, suspects)
    more = len(rows) - MOST_ROWS
    ordered = sorted(ranks, key=lambda rank: (rank.rank not in suspects, rank.rank))
    stacks = list(fold_stacks(ordered).items())[:MOST_STACKS]
    return [
        table(rank_headings(), map(_rank_row, rows[:MOST_ROWS])) if rows else None,
        element("p", trn("and {n} more row", "and {n} more rows", more), class_="faint")
        if more > 0
        else None,
        *(_stack(stack, numbers, is_open=opens and numbers[0] in suspects) for stack, numbers in stacks),
    ]


def _rank_row(row: RankRow) -> Html:
    cells = (row.ranks, row.nodes, row.process, element("code", row.at), row.collective)
    return element("tr", *(element("td", cell) for cell in cells), class_="bad" if row.is_suspect else None)


def _stack(stack: str, ranks: list[int], *, is_open: bool) -> Html:
    title = trn("stacks of rank {ranks}", "stacks of ranks {ranks}", len(ranks), ranks=fold_numbers(ranks))
    lines: list[Child] = []
    for line in stack.splitlines()[:MOST_STACK_LINES]:
        lines += [line, element("br")]
    return element(
        "details",
        element("summary", title),
        element("pre", join(lines[:-1])),
        open="" if is_open else None,
    )


def render_slowness(slowness: Slowness) -> list[Child]:
    """Return the sentence of `diagnose --slow`, and how each rank arrives that was ever last."""
    judgement = slowness.judgement
    headings = (tr("RANK"), tr("NODE"), tr("LAST IN"), tr("BEHIND"), tr("LOSS"))
    note = tr(
        "{count} collectives in {seconds:.1f} s; GPU time after the launch of a kernel is not included",
        count=slowness.collectives,
        seconds=slowness.seconds,
    )
    rows = [_late_row(row, is_suspect=row.rank in judgement.suspects) for row in slowness.rows[:MOST_ROWS]]
    kind = "bad" if judgement.suspects else None
    return [
        element(
            "p", tr("{sentence} ({code})", sentence=judgement.sentence, code=judgement.code), class_=kind
        ),
        table(headings, rows) if rows else None,
        element("p", note, class_="faint") if rows else None,
    ]


def _late_row(row: Lateness, *, is_suspect: bool) -> Html:
    shares = f"{row.last * 100:.0f} %", f"{row.delay * 1000:.1f} ms", f"{row.loss * 100:.1f} %"
    cells = (str(row.rank), row.node, *shares)
    return element("tr", *(element("td", cell) for cell in cells), class_="bad" if is_suspect else None)
