"""Where the ranks were when a run stalled, or before it was ended: what the nodes kept, judged as `diagnose` judges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clusterctl.plans.diagnose.evidence import LONGEST_AGE, NodeEvidence, RankEvidence, parse_evidence
from clusterctl.plans.diagnose.hang import Judgement, fold_numbers, judge
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration
from clusterctl.translation import english_of, tr, trn

STALL, TIME_LIMIT, STOP = "stall", "time_limit", "stop"
REASONS = (STALL, TIME_LIMIT, STOP)
MOST_SHOWN = 4  # suspects


@dataclass(frozen=True)
class KeptEvidence:
    """What one node has kept: why, for how many seconds no rank had made progress if that was known, and its ranks."""

    why: str
    seconds: float | None
    evidence: NodeEvidence


@dataclass(frozen=True)
class KeptDiagnosis:
    """What the evidence of all nodes means; `ranks` are those that it is about, or all if it is about none.

    `all_ranks` are all that were asked.
    """

    why: str
    seconds: float | None
    judgement: Judgement
    ranks: tuple[RankEvidence, ...]
    all_ranks: tuple[RankEvidence, ...] = ()

    @property
    def summary(self) -> str:
        """Say where the ranks were, and when."""
        shown = self.ranks[:MOST_SHOWN]
        where = next((str(rank.where) for rank in shown if rank.where is not None), "")
        names = fold_numbers([rank.rank for rank in shown])
        nodes = fold_names(dict.fromkeys(rank.node for rank in shown))
        facts = {"ranks": names, "nodes": nodes, "where": where or tr("an unknown line")}
        if self.why == STALL and self.seconds is not None:
            return trn(
                "when no rank had made progress for {span}, rank {ranks} ({nodes}) was at {where}",
                "when no rank had made progress for {span}, ranks {ranks} ({nodes}) were at {where}",
                len(shown),
                **facts,
                span=render_duration(round(self.seconds)),
            )
        if self.why == TIME_LIMIT:
            return trn(
                "just before the time limit, rank {ranks} ({nodes}) was at {where}",
                "just before the time limit, ranks {ranks} ({nodes}) were at {where}",
                len(shown),
                **facts,
            )
        return trn(
            "just before the stop, rank {ranks} ({nodes}) was at {where}",
            "just before the stop, ranks {ranks} ({nodes}) were at {where}",
            len(shown),
            **facts,
        )


def parse_kept(raw: Untrusted, node: str) -> KeptEvidence | None:
    """Read what a node has kept; None if it has nothing."""
    why, time, since = raw.one_of("why", REASONS), raw.moment("time"), raw.moment("since")
    if not why or time is None:
        return None
    seconds = None if since is None else min(LONGEST_AGE, max(0.0, time - since))
    return KeptEvidence(why, seconds, parse_evidence(raw.record("diagnosis"), node))


def judge_kept(
    kept: Sequence[KeptEvidence], silent_nodes: Sequence[str], world: int | None
) -> KeptDiagnosis | None:
    """Judge what the nodes have kept for the newest reason; None if they have nothing."""
    if not kept:
        return None
    ranks = sorted((rank for each in kept for rank in each.evidence.ranks), key=lambda rank: rank.rank)
    judgement = judge(ranks, silent_nodes, world)
    suspects = tuple(rank for rank in ranks if rank.rank in judgement.suspects)
    seconds = [each.seconds for each in kept if each.seconds is not None]
    longest = max(seconds, default=None)
    return KeptDiagnosis(kept[0].why, longest, judgement, suspects or tuple(ranks), tuple(ranks))


def kept_to_json(kept: KeptDiagnosis) -> dict[str, Any]:
    """Give its place in `status --json` and in the verdict."""
    return {
        "why": kept.why,
        "seconds": kept.seconds,
        "summary": english_of(kept.summary),
        "code": kept.judgement.code,
        "sentence": english_of(kept.judgement.sentence),
        "next": english_of(kept.judgement.fix),
        "suspects": list(kept.judgement.suspects),
    }


def render_kept(kept: KeptDiagnosis) -> list[str]:
    """Say where the ranks were, what that means, and what to do; nothing if they made progress until a time limit."""
    judgement = kept.judgement
    if kept.why == TIME_LIMIT and not judgement.hangs:
        return []
    lines = [kept.summary, f"{judgement.sentence} ({judgement.code})"]
    return [*lines, tr("next: {command}", command=judgement.fix)] if judgement.fix else lines
