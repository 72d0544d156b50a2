"""Follow a run until it ends: show its lines, report what happens, return the end that its nodes have recorded.

The nodes end a run, also when no client follows it: nothing is decided or stopped from here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.session import Interpreter
from clusterctl.client.run_evidence import StallNotice, load_speed
from clusterctl.client.watch.event_texts import describe_log_event, describe_start_event, read_event_name
from clusterctl.client.watch.follower import LogLines, NodeEvent, NodeStreams, StateChange, Update
from clusterctl.client.watch.streams import StreamEnd, can_reconnect, is_barren
from clusterctl.errors import ClusterctlError
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.diagnose.kept import KeptDiagnosis
from clusterctl.plans.runs.checkpoints import describe_event as describe_checkpoint_event
from clusterctl.plans.runs.history import ReplacedLog
from clusterctl.plans.runs.rows import describe_halted
from clusterctl.plans.runs.state import (
    Attempt,
    HaltedProcess,
    NodeState,
    SlotState,
    attempt_of,
    attempts_of,
    find_resumed,
    find_smaller,
    roster_of,
)
from clusterctl.plans.runs.verdict import Verdict, conclude_over, describe_world_event, is_recorded
from clusterctl.protocol.end_record import (
    MAX_ATTEMPTS,
    MAX_EXIT,
    MAX_SIGNAL,
    find_reported_loss,
    parse_rank,
)
from clusterctl.protocol.frames import SILENCE_LIMIT
from clusterctl.protocol.ranks import Rank
from clusterctl.protocol.reasons import NODE_0_ENDED
from clusterctl.protocol.redact import redact
from clusterctl.protocol.run_id import RunId
from clusterctl.protocol.states import FAILED, FAILED_SETUP, LOST, SUCCEEDED, TIMEOUT, UNKNOWN, WAITING
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.inventory.model import Node
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import render_duration
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import JournalEvent
    from clusterctl.protocol.messages.verbs import FollowChoice, LogChoice


SUPERVISOR_LOST: tuple[JournalEvent, ...] = ("guardian_lost", "agent_lost")
RETURN_LIMIT = 20.0  # seconds that a node may take to come back after the others have ended without a record
SHOWN_SILENCE = (
    5.0  # seconds after which a silent node is shown where there is a line for it; it beats every 2 s
)
NO_NODE_LIMIT = 600.0  # the same when no node responds, so that the fault is probably on our side
MAX_PAUSE = 2.0  # seconds between two tries to come back
END_WAIT = 5.0  # seconds after the record of the end in which a node that does not respond may come back
FAILED_STATES = (FAILED, FAILED_SETUP, LOST, UNKNOWN, TIMEOUT)
MAX_ATTEMPT_PAUSE = 30 * 86400.0  # seconds


@dataclass
class NodeReport:
    """One node's part, as far as it was received.

    `contacted` is whether anything ever came from it, `lost_reason` why it was given up.
    """

    node: Node
    state: NodeState | None = None
    done: bool = False
    lost_reason: str = ""
    contacted: bool = True
    stop_requested: bool = False
    suspended: set[Rank] = field(default_factory=set)  # ranks that SIGSTOP held, while they lived
    halted: tuple[HaltedProcess, ...] = ()  # guardian, agent, torchrun, as last reported
    attempt: int = 1
    serves_node_0: bool = False  # the end of its program does not count once node 0's has ended

    @property
    def has_ended(self) -> bool:
        """Return whether the node itself has reported that its part has ended."""
        return self.state is not None and not self.state.live

    def begin_attempt(self, number: int) -> None:
        """Forget what was received of the attempts before this one."""
        self.attempt, self.stop_requested = number, False
        self.suspended.clear()

    def newly_frozen(self, state: NodeState) -> list[int]:
        """Take notice of the ranks that a signal has stopped; return those that ran before."""
        if not state.live or self.stop_requested:
            return []
        previous, ended = self.suspended, {rank.rank for rank in state.ranks if rank.failed}
        self.suspended = {rank.rank for rank in state.ranks if rank.stopped} | (previous & ended)
        return sorted(self.suspended - previous)

    def newly_halted(self, state: NodeState) -> list[HaltedProcess]:
        """Take notice of the processes beside the ranks that are halted; gives those that ran before."""
        previous, self.halted = self.halted, state.halted if state.live else ()
        return [halted for halted in self.halted if halted not in previous]

    def on_event(self, event: Untrusted) -> str | None:
        """Take an event; return what failed by it, or nothing."""
        kind, name = read_event_name(event), self.node.name
        if kind == "attempt":
            self.begin_attempt(event.count("attempt", MAX_ATTEMPTS) or self.attempt)
        elif kind == "stopping":
            self.stop_requested = True
            self.serves_node_0 = self.serves_node_0 or event.text("reason", 1000) == NODE_0_ENDED
        elif kind == "failure_held":
            self.serves_node_0 = True
        elif kind in SUPERVISOR_LOST:
            return (
                tr("{node}: the guardian was lost", node=name)
                if kind == "guardian_lost"
                else tr("{node}: the agent was lost", node=name)
            )
        elif has_failed(event) and not (self.stop_requested or self.serves_node_0):
            rank = parse_rank(event)
            if kind == "rank_exited" and rank is not None:
                return tr("{node}: rank {rank} failed", node=name, rank=rank)
            if kind == "torchrun_exited":
                program = event.text("program", 40) or "torchrun"  # older nodes do not name it
                return tr("{node}: {program} failed", node=name, program=program)
        return None


def has_failed(event: Untrusted) -> bool:
    """Return whether an event reports a process that ended in any way but exit code 0."""
    code, number = event.integer("exit", -MAX_EXIT, MAX_EXIT), event.integer("signal", 1, MAX_SIGNAL)
    return bool(code) or number is not None


class AttemptTracker:
    """The attempts so far, each reported once, by the first node that sends it.

    A node sends its new state before the events and lines that led to it, and gets ready while the pause lasts. So the
    word that an attempt begins waits for its first line, or until it runs and nothing more comes. Events that are not
    there by then, of who comes late to a slow node, are too late: why the attempt before ended is in the state too.
    """

    def __init__(self, known: Mapping[str, NodeState | None], notice: Callable[[str], None]) -> None:
        self._notice = notice
        self._roster: tuple[SlotState, ...] = ()
        self._idle: set[str] = (
            set()
        )  # nodes that were spares when the attempt ran; the next gives them ranks before it begins
        self.number = max((part.attempt for part in known.values() if part), default=1)
        self._last_paused = self.number - 1
        self._ended: tuple[Attempt, ...] = ()
        # by attempt, and whether it ends or begins; the last is that the current attempt begins
        self._pending_notices: list[tuple[int, bool, str]] = []
        self._running = False

    @property
    def lost_nodes(self) -> Mapping[str, str]:
        """Why nodes are gone that took part in an earlier attempt, or would have had a place to take."""
        return {slot.node: slot.reason for slot in self._roster if slot.lost}

    @property
    def may_follow(self) -> bool:
        """Return whether the nodes may start the run again."""
        return bool(self._roster)

    def is_superseded(self, number: int) -> bool:
        """Return whether it is known that another attempt follows this one."""
        return number < self.number or number <= self._last_paused

    def is_not_participating(self, node: str) -> bool:
        """Return whether a node has no part in the current attempt, or none in the next: its failure ends nothing."""
        return any(slot.node == node and (slot.node_rank is None or slot.lost) for slot in self._roster)

    def on_state(self, states: Mapping[str, NodeState | None], newest: NodeState) -> bool:
        """Take the states of all nodes, of which one is new; return whether a new attempt has begun."""
        known = {name: state for name, state in states.items() if state is not None}
        roster = roster_of(known)
        number = max(state.attempt for state in known.values() if state.roster == roster)
        if number < self.number or not roster:
            return False
        self._roster, self._ended = roster, attempts_of(known)
        is_new, self.number = number > self.number, number
        self._running = newest.state != WAITING or (self._running and not is_new)
        if is_new:
            nodes, checkpoint = _render_participants(roster, self._idle), find_resumed(known)
            self._idle = set()
            notice = tr("attempt {n} begins on {nodes}", n=self.number, nodes=nodes)
            if smaller := find_smaller(known):
                notice = tr("{message}: {nodes} of {of} nodes", message=notice, **smaller)
            if checkpoint:
                notice = tr("{message}, from checkpoint {name}", message=notice, name=checkpoint)
            self._pending_notices.append((number, False, notice))
        self._idle |= {slot.node for slot in roster if slot.is_idle}
        return is_new

    def on_lines(self, file: str) -> None:
        """Take notice that lines of a log follow."""
        if attempt_of(file) == self.number:
            self.flush_notices()

    def on_idle(self) -> None:
        """Take notice that nothing more came for a moment."""
        if self._running:
            self.flush_notices()

    def flush_notices(self) -> None:
        """Report what was held back, in the order in which it happened."""
        if not self._pending_notices:
            return
        for ended in self._ended:
            if self._last_paused < ended.number < self.number:
                self._last_paused = ended.number
                self._pending_notices.append((ended.number, True, _render_end(ended.number, ended.text)))
        pending, self._pending_notices = sorted(self._pending_notices), []
        for *_, notice in pending:
            self._notice(notice)

    def on_event(self, event: Untrusted) -> bool:
        """Take a node's event; return whether the nodes have decided to start the run again; all nodes report it."""
        number, seconds = event.integer("attempt", 1), event.number("seconds", 0.0, MAX_ATTEMPT_PAUSE)
        if (
            read_event_name(event) != "pausing"
            or number is None
            or not self._last_paused < number <= self.number
        ):
            return False  # a state comes before the events that led to it, so that this may be an earlier attempt's
        if number == self.number:
            self.flush_notices()
        self._last_paused = number
        message = _render_end(number, event.text("reason", 1000))
        if number + 1 >= self.number and seconds is not None:
            pause = render_duration(seconds)
            message = tr(
                "{message}; attempt {n} begins in {pause}", message=message, n=number + 1, pause=pause
            )
        elif number + 1 >= self.number:
            message = tr("{message}; attempt {n} begins", message=message, n=number + 1)
        if self._pending_notices:
            self._pending_notices.append((number, True, message))
        else:
            self._notice(message)
        return True


def _render_end(number: int, reason: str) -> str:
    return tr("attempt {n}: {reason}", n=number, reason=translate_node_text(reason))


def _render_participants(roster: tuple[SlotState, ...], spares: Collection[str]) -> str:
    """Name the nodes of an attempt by their ranks, and who of them was a spare."""
    slots = sorted(
        (slot for slot in roster if slot.node_rank is not None), key=lambda slot: slot.node_rank or 0
    )
    regular = fold_names([slot.node for slot in slots if slot.node not in spares])
    promoted = [
        tr("{node} (spare, node {number})", node=slot.node, number=slot.node_rank)
        for slot in slots
        if slot.node in spares
    ]
    return ", ".join(filter(None, [regular, *promoted]))


@dataclass(frozen=True)
class MonitorOptions:
    """What is watched, and how: `offsets` are the nodes' clocks minus ours.

    `tail` leaves out all but the last lines (of each file) written before we came, `known_states` is what the nodes
    reported of the run before that; a node without an entry there has not responded yet, and is not waited for.
    `inventory_names` are the nodes of the inventory, as far as they are not watched.
    """

    run_id: RunId
    nodes: Sequence[Node]
    interpreters: Mapping[str, Interpreter]
    offsets: Mapping[str, float]
    secrets: Collection[str] = ()
    known_states: Mapping[str, NodeState | None] = field(default_factory=dict)
    tail: int | None = None
    inventory_names: Collection[str] = ()


class RunMonitor:
    """One run, watched: passes lines to `show`, reports problems through `notice`, ends in a verdict."""

    def __init__(
        self,
        cluster: Cluster,
        options: MonitorOptions,
        *,
        show: Callable[[LogLines], None],
        notice: Callable[[str], None],
        show_silence: Callable[[str], None] | None = None,
        on_stall: Callable[[KeptDiagnosis], None] | None = None,
        on_tick: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """`show_silence` shows one line about silent nodes in place of the line before; without it notices do.

        `on_stall` is called in a thread of its own when no rank makes progress, `on_tick` a few times a second with
        whether the run is being ended because a part of it failed.
        """
        self._options = options
        self._run = tasks.RunHandle(cluster, options.run_id, options.nodes, options.interpreters)
        known = options.known_states
        self._reports = {
            node.name: NodeReport(node, state, contacted=not known or state is not None)
            for node in options.nodes
            for state in [known.get(node.name)]
        }
        self._show, self._notice, self._secrets = show, notice, tuple(options.secrets)
        self._attempts = AttemptTracker(
            options.known_states, lambda text: notice(redact(text, self._secrets))
        )
        first_attempt = self._attempts.number  # it may be over before we come to look
        logs: LogChoice = {
            "ranks": None,
            "streams": ["stdout", "stderr"],
            "tail": options.tail,
            "since": first_attempt,
        }
        request: FollowChoice = {"events": 0, "logs": logs}
        self._show_silence, self._on_tick = show_silence, on_tick
        self._streams = NodeStreams(
            self._run, request, notice=self._on_connection_notice, longest_pause=MAX_PAUSE
        )
        self._no_node_since: float | None = None
        self._recorded_since: float | None = None  # since when the record of the run's end is known
        self._failure_shown = False  # of the current attempt
        self._shown: set[str] = set()  # messages of nodes that are shown once
        self._stall = StallNotice(self._run, on_stall)
        self._unheard_hubs: set[str] = set()  # those that another node has lost
        self._announced_losses: set[str] = set()

    @property
    def stopping(self) -> bool:
        """Return whether the run is being ended everywhere, because a part of it failed."""
        return self._failure_shown

    def watch(self) -> Verdict:
        """Follow until the run has ended, and return how; an exception out of here leaves the run alone."""
        self._streams.open_all()
        try:
            while not self._is_over(time.monotonic()):
                idle = True
                for update in self._streams.updates(0.2):
                    self._on_update(update)
                    idle = False
                if idle:
                    self._attempts.on_idle()
                self._mark_lost_nodes()
                self._on_tick(self.stopping)
                for line in self._stall.poll(self._states):
                    self._notice(redact(line, self._secrets))
                if self._show_silence is not None:
                    self._show_silence(self._describe_silence(time.monotonic()))
        finally:
            self._streams.close()
            if self._show_silence is not None:
                self._show_silence("")
        self._attempts.flush_notices()
        return self._conclude()

    def explain(self, verdict: Verdict) -> Verdict:
        """Add to the verdict of `watch` what the nodes have kept: how fast it was, or where the ranks were."""
        if verdict.state == SUCCEEDED:
            slow, speed = load_speed(self._run, verdict.state, self._answered, self._options.offsets)
            is_slow = slow is not None and bool(slow.judgement.suspects)
            return replace(verdict, slow=slow if is_slow else None, speed=speed)
        return replace(verdict, hang=self._stall.load(self._answered))

    def _is_over(self, now: float) -> bool:
        """Return whether all that can still come has come: the lines of nodes that respond are waited for."""
        waiting = [report for report in self._reports.values() if report.contacted and not report.done]
        if not waiting:
            return True
        if not is_recorded(self._states):
            return False
        self._recorded_since = self._recorded_since or now
        absent = self._absent_nodes(now)
        gone = all(report.node.name in absent or not report.has_ended for report in waiting)
        return gone and now - self._recorded_since > END_WAIT

    def _conclude(self) -> Verdict:
        options = self._options
        lost = {name: part.lost_reason for name, part in self._reports.items() if part.lost_reason}
        return conclude_over(options.run_id, self._answered, options.inventory_names, options.offsets, lost)

    @property
    def _answered(self) -> dict[str, NodeState | None]:
        """Return the newest state of each node that was not given up."""
        return {name: None if report.lost_reason else report.state for name, report in self._reports.items()}

    @property
    def _states(self) -> dict[str, NodeState | None]:
        """Return the newest state of each node."""
        return {name: report.state for name, report in self._reports.items()}

    def _on_connection_notice(self, text: str) -> None:
        """Report a connection that broke or came back, unless a line shows that all the time."""
        if self._show_silence is None:
            self._notice(text)

    def _describe_silence(self, now: float) -> str:
        """Return which nodes are silent, for how long, and when they count as lost; nothing if all respond."""
        silences = {
            name: seconds for name, seconds in self._silences(now).items() if not self._reports[name].done
        }
        if not silences:
            return ""
        nodes, seconds = fold_names(silences), max(silences.values())
        remaining = SILENCE_LIMIT - seconds
        if remaining > 0:
            return tr(
                "{nodes}: silent for {seconds:.0f} s; lost in at most {remaining:.0f} s",
                nodes=nodes,
                seconds=seconds,
                remaining=remaining,
            )
        return tr("{nodes}: silent for {seconds:.0f} s; reconnecting", nodes=nodes, seconds=seconds)

    def _silences(self, now: float) -> dict[str, float]:
        """Return the nodes that have missed two beats or more, and for how long they are silent."""
        ages = {name: now - moment for name, moment in self._streams.last_received.items()}
        return {name: age for name, age in ages.items() if age > SHOWN_SILENCE}

    # what the nodes report

    def _on_update(self, update: Update) -> None:
        report = self._reports[update.node]
        if isinstance(update, StreamEnd):
            self._on_stream_end(report, update.error)
            return
        self._no_node_since = None
        report.contacted = True
        if isinstance(update, LogLines):
            entry = replace(update, lines=tuple(redact(line, self._secrets) for line in update.lines))
            self._attempts.on_lines(entry.file)
            self._show(entry)
        elif isinstance(update, ReplacedLog):
            self._notice(tr("{subject}: {text}", subject=report.node.name, text=update.error.message))
        elif isinstance(update, StateChange):
            self._on_state(report, update.state)
        elif isinstance(update, NodeEvent):
            self._on_event(report, update.event)

    def _on_event(self, report: NodeReport, event: Untrusted) -> None:
        name, log_message = report.node.name, describe_log_event(event)
        if log_message:
            self._notice(tr("{subject}: {text}", subject=name, text=log_message))
        for message in (describe_world_event(event), describe_start_event(event)):
            if message and message not in self._shown:  # most often the same on all nodes
                self._shown.add(message)
                self._notice(tr("{subject}: {text}", subject=name, text=message))
        self._on_checkpoint(report, event)
        if self._attempts.on_event(event):
            self._failure_shown = False
        failure, reason = report.on_event(event), event.text("reason", 1000)
        if self._attempts.is_superseded(report.attempt):
            return
        if failure:
            self._on_failure(failure)
        elif read_event_name(event) == "stopping" and ": " in reason:
            self._on_gang_stop(name, reason)  # the nodes' word for what happened on one of them

    def _on_checkpoint(self, report: NodeReport, event: Untrusted) -> None:
        """Report of the checkpoints that are safe, or skipped for one reason, the first of each attempt."""
        text, _ = describe_checkpoint_event(event)
        state = event.text("state")
        if not text or read_event_name(event) != "checkpoint":
            return  # the notice that an attempt begins names what it resumes from
        is_frequent = state in ("safe", "skipped")
        key = f"{state} {event.text('note')} {report.attempt}" if is_frequent else text
        if key not in self._shown:
            self._shown.add(key)
            shown = text if state else tr("{subject}: {text}", subject=report.node.name, text=text)
            self._notice(redact(shown, self._secrets))

    def _on_state(self, report: NodeReport, state: NodeState) -> None:
        report.state = replace(state, reason=redact(state.reason, self._secrets))
        if self._attempts.on_state(self._states, report.state):
            self._failure_shown = False
        for rank in report.newly_frozen(state):
            self._notice(
                tr(
                    "{node}: rank {rank} is stopped (SIGSTOP); the others will wait for it",
                    node=report.node.name,
                    rank=rank,
                )
            )
        for halted in report.newly_halted(state):
            text = describe_halted(report.node.name, halted)
            self._notice(tr("{subject}: {text}", subject=report.node.name, text=text))
        if report.state.state in FAILED_STATES and not self._attempts.is_not_participating(report.node.name):
            self._on_failure(
                translate_node_text(f"{report.node.name}: {report.state.reason or report.state.state}")
            )

    def _on_gang_stop(self, node: str, reason: str) -> None:
        """Report why the nodes stop; that the hub is lost is one node's view while the hub answers."""
        loss = find_reported_loss(reason)
        if loss is None:
            self._on_failure(translate_node_text(reason))
        elif not loss.is_hub or not self._responds(loss.node):
            self._announced_losses.add(loss.node)
            self._on_failure(translate_node_text(f"{loss.node} is lost: {loss.why}"))
        elif not self._failure_shown and loss.node not in self._unheard_hubs:
            self._unheard_hubs.add(loss.node)
            why = translate_node_text(loss.why)
            lost = tr("{node} has lost its connection to {hub}: {why}", node=node, hub=loss.node, why=why)
            self._notice(redact(lost, self._secrets))

    def _responds(self, name: str) -> bool:
        report = self._reports.get(name)
        return report is not None and report.contacted and name not in self._absent_nodes(time.monotonic())

    def _absent_nodes(self, now: float) -> set[str]:
        """Return the nodes whose streams are broken or silent."""
        return {*self._streams.broke_at, *self._silences(now)}

    def _on_failure(self, reason: str) -> None:
        """Report the first failure of an attempt, which the nodes end."""
        if self._failure_shown or not self._is_running():
            return
        self._failure_shown = True
        shown = redact(reason, self._secrets)
        if self._attempts.may_follow:
            self._notice(tr("{reason}; the nodes are ending this attempt", reason=shown))
        else:
            self._notice(tr("{reason}; stopping all nodes", reason=shown))

    def _mark_lost_nodes(self) -> None:
        """Take the nodes' word for those that they lost, and that send nothing here either."""
        absent = self._absent_nodes(time.monotonic())
        if not absent:
            return
        records = [report.state.record for report in self._reports.values() if report.state]
        parts = [part for record in records if record is not None for part in record.parts]
        lost = {part.node: part.reason for part in parts if part.lost}
        for name, reason in {**self._attempts.lost_nodes, **lost}.items():
            report = self._reports.get(name)
            if report is not None and not report.done and name in absent:
                self._mark_lost(report, reason)

    def _on_stream_end(self, report: NodeReport, error: ClusterctlError | None) -> None:
        """Take the end of a stream as the end of the part only if the node has reported that end before."""
        if report.has_ended and error is None:
            report.done = True
        elif report.lost_reason:
            return
        elif can_reconnect(error) or self._others_decide(report, error):
            self._reconnect(report, error)
        else:
            self._mark_lost(report, error.english if error else "")

    def _others_decide(self, report: NodeReport, error: ClusterctlError | None) -> bool:
        """Return whether a stream without anything new may be opened again: the other nodes see whether it lives."""
        others = (other for other in self._reports.values() if other is not report)
        return is_barren(error) and any(other.contacted and not other.done for other in others)

    # streams that break

    def _reconnect(self, report: NodeReport, error: ClusterctlError | None) -> None:
        """Open a stream again, unless it is time to give its node up."""
        name, now = report.node.name, time.monotonic()
        seconds = now - self._streams.broke_at.get(name, now)
        others = [other for other in self._reports.values() if other is not report and other.contacted]
        others_ended = bool(others) and all(other.done for other in others)
        given_up = seconds >= RETURN_LIMIT and (  # while the others go on, they judge whether it is lost
            others_ended or (not self._others_responding(name, now - seconds) and self._no_node_for_long(now))
        )
        if report.contacted and given_up:
            self._mark_lost(report, "the connection was lost and not restored")
        else:
            self._streams.reopen(name, error)

    def _others_responding(self, name: str, broke_at: float) -> bool:
        """Return whether another node has sent something since this one broke off; if not, the fault may be here."""
        last_received = self._streams.last_received
        return any(other != name and last_received.get(other, 0.0) > broke_at for other in self._reports)

    def _no_node_for_long(self, now: float) -> bool:
        if self._no_node_since is None:
            self._no_node_since = now
            self._notice(
                tr("no node responds: is the network of this machine down? The run continues; reconnecting")
            )
        return now - self._no_node_since > NO_NODE_LIMIT

    def _mark_lost(self, report: NodeReport, reason: str) -> None:
        report.done, report.lost_reason = True, reason
        if report.node.name in self._announced_losses:
            return
        shown = tr(
            "{node} is lost: {why}; its processes could not be stopped from here",
            node=report.node.name,
            why=translate_node_text(reason),
        )
        self._notice(redact(shown, self._secrets))

    def _is_running(self) -> bool:
        """Return whether any part of the run may still live."""
        return not all(report.has_ended or report.lost_reason for report in self._reports.values())
