"""What the nodes kept when a run stalled, or before it was ended: where its ranks were, and what that means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from clusterctl.plans.diagnose.evidence import MAX_AGE, NodeEvidence, RankEvidence, parse_evidence
from clusterctl.plans.diagnose.hang import WATCHERS_CODE, Judgement, describe_quiet, fold_numbers, judge
from clusterctl.plans.diagnose.waits import PATIENCE
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import begin_commands, render_duration
from clusterctl.translation import english_of, tr, trn

if TYPE_CHECKING:
    from clusterctl.plans.runs.documents import HangEntry
    from clusterctl.protocol.messages.files import KeptReason

MIN_STALLED_WAIT = 1.0  # seconds, where the nodes have seen no progress for as long as the job allows
STALL: Final = "stall"
TIME_LIMIT: Final = "time_limit"
STOP: Final = "stop"
REASONS: tuple[KeptReason, ...] = (STALL, TIME_LIMIT, STOP)
MAX_SHOWN = 4  # suspects


@dataclass(frozen=True)
class KeptEvidence:
    """What one node has kept: why, for how many seconds no rank had made progress if that was known, and its ranks."""

    why: KeptReason
    seconds: float | None
    evidence: NodeEvidence


@dataclass(frozen=True)
class KeptDiagnosis:
    """What the evidence of all nodes means; `ranks` are those that it is about, or all if it is about none.

    `all_ranks` are all that were asked.
    """

    why: KeptReason
    seconds: float | None
    judgement: Judgement
    ranks: tuple[RankEvidence, ...]
    all_ranks: tuple[RankEvidence, ...] = ()

    @property
    def summary(self) -> str:
        """Return where the ranks were, and when."""
        shown = self.ranks[:MAX_SHOWN]
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


def choose_least_wait(reasons: Iterable[str]) -> float:
    """Return the seconds after which a rank that waits may be a hang, by why each node has kept where its ranks are.

    Only nodes with a living agent count: it reports a stall as long as that lasts, a lost one's report may be old.
    """
    return MIN_STALLED_WAIT if STALL in reasons else PATIENCE


def parse_kept(raw: Untrusted, node: str) -> KeptEvidence | None:
    """Read what a node has kept; None if it has nothing."""
    why, time, since = raw.one_of("why", REASONS), raw.moment("time"), raw.moment("since")
    if not why or time is None:
        return None
    seconds = None if since is None else min(MAX_AGE, max(0.0, time - since))
    return KeptEvidence(why, seconds, parse_evidence(raw.record("diagnosis"), node))


def judge_kept(
    kept: Sequence[KeptEvidence], silent_nodes: Sequence[str], world: int | None
) -> KeptDiagnosis | None:
    """Judge what the nodes have kept for the newest reason; None if they have nothing."""
    if not kept:
        return None
    ranks = sorted((rank for each in kept for rank in each.evidence.ranks), key=lambda rank: rank.rank)
    seconds = [each.seconds for each in kept if each.seconds is not None]
    longest = max(seconds, default=None)
    # of a stall the nodes have waited as long as the job allows
    least_wait = min(PATIENCE, longest) if longest else PATIENCE
    watchers = [watcher for each in kept for watcher in each.evidence.watchers]
    judgement = judge(ranks, silent_nodes, world, least_wait, watchers)
    if (
        kept[0].why != STALL and judgement.is_thin
    ):  # nothing shows that it stood still, and no second look can
        judgement = describe_quiet([rank for rank in ranks if not rank.has_ended])
    suspects = tuple(rank for rank in ranks if rank.rank in judgement.suspects)
    return KeptDiagnosis(kept[0].why, longest, judgement, suspects or tuple(ranks), tuple(ranks))


def kept_to_json(kept: KeptDiagnosis) -> HangEntry:
    """Return its place in `status --json` and in the verdict."""
    return {
        "why": kept.why,
        "seconds": kept.seconds,
        "summary": english_of(kept.summary),
        "code": kept.judgement.code,
        "sentence": english_of(kept.judgement.sentence),
        "next": english_of(kept.judgement.fix),
        "suspects": list(kept.judgement.suspects),
    }


def render_kept(kept: KeptDiagnosis, command: str = "clusterctl") -> list[str]:
    """Return where ranks were, what that means, and what to do; nothing if they made progress until a time limit."""
    lines = describe_kept(kept)
    return [*lines, *render_advice(kept.judgement, command)] if lines else []


def describe_kept(kept: KeptDiagnosis) -> list[str]:
    """Return where ranks were, and what that means: texts with what ranks wrote in them."""
    judgement = kept.judgement
    if kept.why == TIME_LIMIT and not judgement.hangs:
        return []
    places = [] if judgement.code == WATCHERS_CODE else [kept.summary]  # it is about no rank
    return [*places, tr("{sentence} ({code})", sentence=judgement.sentence, code=judgement.code)]


def render_advice(judgement: Judgement, command: str) -> list[str]:
    """Return what to do, if there is something: a text of ours, with commands between backticks."""
    advice = begin_commands(judgement.fix, command)
    return [tr("next: {command}", command=advice)] if advice else []
