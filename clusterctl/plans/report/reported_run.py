"""A run as values for its report: its parts, records of its nodes, phases, and what happened when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.kept import KeptDiagnosis
from clusterctl.plans.diagnose.slow import Slowness
from clusterctl.plans.report.plot import Mark, Scale
from clusterctl.plans.runs.cause import Explanation
from clusterctl.plans.runs.checkpoints import describe_event as describe_checkpoint_event
from clusterctl.plans.runs.history import JournalEvent, NodeRecord
from clusterctl.plans.runs.speed import SpeedVerdict
from clusterctl.plans.runs.state import NodeState, Parts, attempts_of, run_seconds
from clusterctl.plans.runs.verdict import Verdict, judged_state
from clusterctl.protocol.exit_status import signal_name
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import LIVE, STOPPED, SUCCEEDED
from clusterctl.protocol.tracebacks import clip
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration, render_seconds
from clusterctl.translation import to_translate, tr

MAX_FACT = 300  # characters
MAX_MOMENTS = 200
MAX_SKIPPED = 5  # checkpoints of a node's journal; as many may follow as are saved
FAILURE_SIGN, STOP_SIGN = "✗", "■"
SOON = 10.0  # seconds
MAX_MARKS, MAX_LABEL = 24, 160  # of the attempts that have ended; characters
MAX_STALL = 1e9  # seconds
ENDS = frozenset({"attempt_ended", "ended"})  # of a node's part, which another node's failure may have caused
CHECKPOINT_EVENTS = frozenset({"checkpoint", "resume"})
STALL_ENDS = frozenset({"stall_over", "stopping", "torchrun_exited", "attempt_ended", "ended", "agent_lost"})


@dataclass(frozen=True)
class ReportedRun:
    """All that is known of a run; `offsets` are the nodes' clocks minus ours, `silent` is why nodes have no record.

    `explanation` is why it ended; `remarks` are what else a terminal shows of that.
    `hang` is where the ranks were when it stalled or was ended, `slow` how they arrived in their collectives,
    `speed` how fast it is by all that is known; `command` is how the commands begin that its texts advise.
    """

    run_id: RunId
    parts: Parts
    verdict: Verdict | None
    explanation: Explanation
    records: Mapping[str, NodeRecord]
    now: float
    date: Callable[[float], str]  # writes a moment; which zone that is in, this machine decides
    offsets: Mapping[str, float] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    hang: KeptDiagnosis | None = None
    slow: Slowness | None = None
    speed: SpeedVerdict | None = None
    command: str = "clusterctl"

    @property
    def known(self) -> list[NodeState]:
        """Return the parts that answered."""
        return [part for part in self.parts.values() if part]

    @property
    def latest(self) -> NodeState | None:
        """Return the part that got furthest."""
        return max(self.known, key=lambda part: part.attempt, default=None)

    @property
    def state(self) -> str:
        """Name the state of the run."""
        return judged_state(self.verdict, self.parts)

    @property
    def ended_at(self) -> float | None:
        """Return when the last part ended; None while one lives."""
        if any(part.live for part in self.known) or not self.known:
            return None
        return max(part.since - self.offsets.get(part.node, 0.0) for part in self.known)

    @property
    def began(self) -> float:
        """Return when it was launched."""
        times = [part.submitted for part in self.known if part.submitted]
        times += [event.time for record in self.records.values() for event in record.journal[:1]]
        return min(times, default=self.now)

    def is_cause(self, rank: int) -> bool:
        """Return whether a rank is why the run ended; without a known cause, whatever failed may be."""
        cause = self.verdict.cause if self.verdict else None
        return self.state != STOPPED if cause is None else cause.failure.rank == rank

    def is_cause_on(self, node: str) -> bool:
        """Return whether a node is why the run ended; without a known cause, each may be."""
        cause = self.verdict.cause if self.verdict else None
        return self.state != STOPPED if cause is None else cause.failure.node == node

    def was_stopped(self, rank: int) -> bool:
        """Return whether a rank ended only because the run was stopped."""
        cause = self.verdict.cause if self.verdict else None
        return cause is not None and any(failure.rank == rank for failure in cause.ended)

    @property
    def has_history(self) -> bool:
        """Return whether any node has samples."""
        return any(record.history.times for record in self.records.values())


@dataclass(frozen=True)
class Phase:
    """A part of a node's time."""

    name: str
    begin: float
    end: float


# What begins with an event of a node's journal; a name is also the class of its colour.
PHASES: Mapping[str, str] = {
    "preparing": "preparing",
    "setup": "setup",
    "setup_done": "preparing",
    "before": "setup",
    "ready": "waiting",
    "go_received": "starting",
    "workers": "running",
    "stopping": "stopping",
    "torchrun_exited": "stopping",
    "after": "after",
    "attempt_ended": "between",
    "pausing": "between",
    "attempt": "preparing",
    "ended": "",
    "agent_lost": "",
    "setup_failed": "",
    "gate_failed": "",
}
PHASE_TEXTS: Mapping[str, str] = {
    "preparing": to_translate("preparing"),
    "setup": to_translate("setup and before"),
    "waiting": to_translate("ready, waiting for the others"),
    "starting": to_translate("starting the workers"),
    "running": to_translate("running"),
    "stopping": to_translate("stopping"),
    "after": to_translate("after"),
    "between": to_translate("between two attempts"),
}


def find_phases(journal: Sequence[JournalEvent], end: float) -> list[Phase]:
    """Cut a node's time into phases; the last one lasts until the run's end, unless the node's own came before."""
    phases: list[Phase] = []
    current, begin = "", 0.0
    for event in journal:
        name = PHASES.get(event.name)
        if name is None or name == current:
            continue
        if current:
            phases.append(Phase(current, begin, event.time))
        current, begin = name, event.time
    if current and end > begin:
        phases.append(Phase(current, begin, end))
    if phases and phases[-1].name == "between":  # no attempt followed
        last = phases.pop()
        is_one = bool(phases) and phases[-1].name == "stopping"
        phases.append(Phase("stopping", phases.pop().begin if is_one else last.begin, last.end))
    return phases


@dataclass(frozen=True)
class Moment:
    """Something that happened: when, on which nodes, what, or how which ranks ended."""

    time: float
    nodes: tuple[str, ...]
    text: str
    bad: bool = False
    ranks: tuple[int, ...] = ()  # of which the text is the end

    @property
    def sentence(self) -> str:
        """Return the sentence about it."""
        if not self.ranks:
            return self.text
        ranks = fold_names([f"r{rank}" for rank in sorted(self.ranks)])
        return tr("{ranks} ended: {end}", ranks=ranks, end=self.text)

    @property
    def node_names(self) -> str:
        """Name the nodes."""
        return fold_names(self.nodes)


def describe_event(event: JournalEvent) -> tuple[str, bool]:
    """Return what an event of a journal is, and whether it is bad; empty where a report leaves it out."""
    facts = event.facts
    if event.name in RICH_TEXTS:
        return RICH_TEXTS[event.name](facts)
    if event.name in CHECKPOINT_EVENTS:
        is_regular = facts.text("state") == "safe" and not facts.text("note")  # the facts show the newest
        return ("", False) if is_regular else describe_checkpoint_event(facts)
    text, bad = EVENT_TEXTS.get(event.name, ("", False))
    reason = clip(translate_node_text(facts.text("reason", MAX_FACT)), MAX_FACT)
    if not text:
        return "", False
    return (tr("{text}: {reason}", text=tr(text), reason=reason) if reason else tr(text)), bad


def _rank_exited(facts: Untrusted) -> tuple[str, bool]:
    code, number = facts.integer("exit", -255, 255), facts.integer("signal", 1, 128)
    return signal_name(number) if number else tr("exit {code}", code=code), bool(code or number)


def _attempt_ended(facts: Untrusted) -> tuple[str, bool]:
    number, reason = facts.count("attempt"), translate_node_text(facts.text("reason", MAX_FACT))
    if not reason:
        return tr("attempt {n} ended", n=number), False
    return tr("attempt {n} ended: {reason}", n=number, reason=clip(reason, MAX_FACT)), True


def _ended(facts: Untrusted) -> tuple[str, bool]:
    state = facts.text("state", 20).replace("CANCELLED", STOPPED)  # its name in older journals
    return tr("ended: {state}", state=state), state not in (SUCCEEDED, STOPPED)


def _stalled(facts: Untrusted) -> tuple[str, bool]:
    span = render_duration(round(facts.number("seconds", 0.0, MAX_STALL) or 0.0))
    return tr("no rank has made progress for {span}", span=span), True


RICH_TEXTS: Mapping[str, Callable[[Untrusted], tuple[str, bool]]] = {
    "rank_exited": _rank_exited,
    "rank_stuck": lambda facts: (
        tr("rank {rank} has failed and does not exit", rank=facts.count("rank")),
        True,
    ),
    "attempt_ended": _attempt_ended,
    "attempt": lambda facts: (tr("attempt {n} begins", n=facts.count("attempt")), False),
    "smaller": lambda facts: (
        tr("goes on with {nodes} of {of} nodes", nodes=facts.count("nodes"), of=facts.count("of")),
        False,
    ),
    "ended": _ended,
    "stalled": _stalled,
}
EVENT_TEXTS: Mapping[str, tuple[str, bool]] = {
    "preparing": (to_translate("the agent starts"), False),
    "setup": (to_translate("setup begins"), False),
    "setup_done": (to_translate("setup is done"), False),
    "setup_failed": (to_translate("setup failed"), True),
    "ready": (to_translate("ready to start"), False),
    "gate_failed": (to_translate("the start failed"), True),
    "workers": (to_translate("the workers start"), False),
    "stall_over": (to_translate("the ranks make progress again"), False),
    "stopping": (to_translate("stopping"), False),
    "busy": (to_translate("waits: another run uses the node"), False),
    "logs_cut": (to_translate("the logs reached their limit; the middle of the longest is dropped"), False),
    "gpu_memory": (to_translate("GPU memory is still in use after the end"), True),
    "agent_failed": (to_translate("the agent failed"), True),
    "agent_lost": (to_translate("the agent is gone"), True),
    "guardian_lost": (to_translate("the guardian is gone"), True),
    "after_failed": (to_translate("a command of after failed"), True),
}


def find_moments(run: ReportedRun) -> list[Moment]:
    """List what happened in the order of time; the same on several nodes within seconds is one moment."""
    found = [
        moment for name, record in run.records.items() for moment in _node_moments(run, name, record.journal)
    ]
    moments: list[Moment] = []
    newest: dict[tuple[str, bool, bool], int] = {}  # of each text, in `moments`
    for moment in sorted(found, key=lambda moment: moment.time):
        key = moment.text, moment.bad, bool(moment.ranks)
        index = newest.get(key)
        before = moments[index] if index is not None else None
        if index is None or before is None or not _is_same(before, moment):
            newest[key] = len(moments)
            moments.append(moment)
        else:
            nodes = tuple(dict.fromkeys((*before.nodes, *moment.nodes)))
            moments[index] = replace(
                before, nodes=nodes, ranks=tuple(dict.fromkeys(before.ranks + moment.ranks))
            )
    return moments[:MAX_MOMENTS]


def _node_moments(run: ReportedRun, node: str, journal: Sequence[JournalEvent]) -> list[Moment]:
    """List what happened on a node; what only followed from the stop, or from another node's failure, is not bad."""
    moments: list[Moment] = []
    last = max((event.facts.count("attempt") for event in journal if event.name == "attempt"), default=1)
    is_stopping, attempt, skipped = False, 1, 0
    for event in journal:
        text, bad = describe_event(event)
        if event.name == "checkpoint" and event.facts.text("state") == "skipped":
            skipped += 1
            text = text if skipped <= MAX_SKIPPED else ""
        ranks = (event.facts.count("rank"),) if event.name == "rank_exited" else ()
        if event.name == "attempt":
            is_stopping, attempt = False, event.facts.count("attempt")
        if ranks:
            bad = bad and not is_stopping and (attempt < last or run.is_cause(ranks[0]))
        elif event.name in ENDS and attempt == last:
            bad = bad and run.is_cause_on(node)
        is_stopping = is_stopping or event.name == "stopping"
        if text:
            moments.append(Moment(event.time, (node,), text, bad, ranks))
    return moments


def _is_same(before: Moment, moment: Moment) -> bool:
    """Return whether two are one: soon after each other, and on other nodes unless they are about ranks."""
    soon = moment.time - before.time < SOON
    return soon and (bool(moment.ranks) or moment.nodes[0] not in before.nodes)


def make_scale(run: ReportedRun) -> Scale:
    """Choose the time that all plots show, with the moments that are marked on them."""
    times = [
        time
        for record in run.records.values()
        for time in record.history.times[:: max(1, len(record.history.times) - 1)]
    ]
    begin = min([run.began, *times]) if times else run.began
    end = run.ended_at or run.now
    workers = [
        event.time for record in run.records.values() for event in record.journal if event.name == "workers"
    ]
    marks, stalls = tuple(find_marks(run)), tuple(find_stall_spans(run, end))
    return Scale(begin, max(end, begin + 1.0), marks, stalls, trains_from=min(workers, default=None))


def find_stall_spans(run: ReportedRun, end: float) -> list[tuple[float, float]]:
    """Find when no rank made progress, as the nodes noticed it; what several nodes noticed is one."""
    spans: list[tuple[float, float]] = []
    found = [span for record in run.records.values() for span in _node_stalls(record.journal, end)]
    for begin, until in sorted(found):
        if spans and begin <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], until)
        else:
            spans.append((begin, until))
    return spans[:MAX_MARKS]


def _node_stalls(journal: Sequence[JournalEvent], end: float) -> list[tuple[float, float]]:
    spans, begin = [], None
    for event in journal:
        if event.name == "stalled" and begin is None:
            begin = event.time - (event.facts.number("seconds", 0.0, MAX_STALL) or 0.0)
        elif begin is not None and event.name in STALL_ENDS:
            spans.append((begin, event.time))
            begin = None
    return spans if begin is None else [*spans, (begin, max(begin, end))]


def find_marks(run: ReportedRun) -> list[Mark]:
    """Find the failure and the ends of earlier attempts, of many the last ones."""
    marks = [
        Mark(
            attempt.ended - run.offsets.get(attempt.node, 0.0),
            tr(
                "attempt {n} ended: {reason}",
                n=attempt.number,
                reason=clip(translate_node_text(attempt.text), MAX_LABEL),
            ),
            failed=True,
            sign=str(attempt.number),
        )
        for attempt in attempts_of(run.parts)[-MAX_MARKS:]
        if attempt.ended is not None
    ]
    cause = run.verdict.cause if run.verdict else None
    if cause is not None:
        headline = run.explanation.headline or run.state
        moment = (
            cause.failure.last_seen if cause.failure.lost and cause.failure.last_seen else cause.failure.time
        )
        marks.append(Mark(moment, clip(headline, MAX_LABEL), failed=True, sign=FAILURE_SIGN))
    elif run.state not in (SUCCEEDED, *LIVE) and run.ended_at is not None:
        is_failure = run.state != STOPPED
        sign = FAILURE_SIGN if is_failure else STOP_SIGN
        marks.append(Mark(run.ended_at, run.state, failed=is_failure, sign=sign))
    return marks


def describe_span(run: ReportedRun) -> str:
    """Return how long the workers ran, as text."""
    seconds = run_seconds({part.node: part for part in run.known}, run.now, run.offsets)
    if seconds is None and any(part.began for part in run.known):
        return tr("unknown")
    return tr("the workers never started") if seconds is None else render_seconds(seconds)
