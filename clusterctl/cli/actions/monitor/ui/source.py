"""What a page shows, read from the nodes by the code of `ps`, `status`, `logs`, `report`, `diagnose` and `stop`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

from clusterctl.cli.actions.find_runs import (
    SEVERAL_RUNS,
    FoundRuns,
    fetch_end_record,
    find_runs,
    refuse_without_nodes,
)
from clusterctl.cli.actions.logs import LogQuery
from clusterctl.cli.actions.monitor.report import report_run
from clusterctl.cli.actions.monitor.status import diagnose_run
from clusterctl.cli.actions.monitor.ui import fragments
from clusterctl.cli.actions.monitor.ui.feed import UnknownRunError, View, WholeLog
from clusterctl.cli.actions.monitor.ui.listing import STEADY, ListFollower
from clusterctl.cli.actions.monitor.ui.log_text import hold_together, read_whole_log
from clusterctl.cli.actions.stop import stop_and_report
from clusterctl.cli.context.nodes import current_owner, interpreter
from clusterctl.cli.slurm.launch import stop_and_describe
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.rpc.tasks import RunHandle
from clusterctl.client.run_evidence import HistoryChoice, Records, fetch_records, load_hang
from clusterctl.client.watch.follower import LogLines, StateChange, Update
from clusterctl.client.watch.logs import LiveReader, ReorderWindow
from clusterctl.client.watch.streams import StreamEnd
from clusterctl.console.lines import describe_dropped
from clusterctl.console.run.status import describe_run, render_age, render_checkpoints, render_timing
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError
from clusterctl.plans.diagnose.hang import Judgement
from clusterctl.plans.diagnose.kept import KeptDiagnosis
from clusterctl.plans.report.markup import NOTHING, Html
from clusterctl.plans.report.reported_run import ReportedRun
from clusterctl.plans.report.result import render_head
from clusterctl.plans.runs.history import ReplacedLog
from clusterctl.plans.runs.judge_speed import JUDGED_STATES
from clusterctl.plans.runs.rows import list_node_rows
from clusterctl.plans.runs.selection import choose_run, is_live, may_have_processes
from clusterctl.plans.runs.state import NodeState, Parts, find_progress, find_stalls, run_seconds
from clusterctl.plans.runs.verdict import conclude
from clusterctl.protocol.run_id import RunId, parse_run_id
from clusterctl.protocol.states import LIVE
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.translation import tr

POLL, POLL_ENDED = 4.0, 15.0  # seconds between two questions for the runs
SOONEST = 1.0  # seconds between two, where a node reports a change
SOONEST_ON_SLURM = 5.0  # seconds: each asks Slurm's controller, which others need
DRAW, DRAW_PER_NODE, DRAW_SHARE = (
    8.0,
    0.3,
    15.0,
)  # seconds between two readings of samples; times what one took
POINTS, FEWER_POINTS, MANY_NODES = 160, 80, 16
TAIL, TAIL_OF_ALL, MIN_TAIL = 100, 2000, 5  # lines that come first: of each rank, and of all together
MAX_NOTICES = 3


class ClusterSource:
    """Reads from the nodes of an inventory; `label` is how a question calls it, `command` how commands begin."""

    def __init__(self, cluster: Cluster, inventory: Inventory, label: str, command: str) -> None:
        self.cluster, self.inventory, self.label, self.command = cluster, inventory, label, command
        self._asking = threading.Lock()
        self._found: tuple[float, FoundRuns] | None = None
        self._followers: dict[str, RunFollower] = {}  # of the runs that pages show

    def follow(self, view: View) -> None:
        """Keep the list of runs, or one run, up to date."""
        try:
            self._follow(view)
        except Exception as error:  # the page shows it, and the server continues
            view.publish("problem", fragments.render_problem(error))
            while view.pause(POLL_ENDED):
                pass

    def _follow(self, view: View) -> None:
        if not view.run_id:
            self._follow_list(view)
            return
        follower = self._followers[view.run_id] = RunFollower(self, view)
        try:
            follower.follow()
        finally:
            if self._followers.get(view.run_id) is follower:
                del self._followers[view.run_id]

    def find_runs(self, max_age: float) -> tuple[float, FoundRuns]:
        """Ask the nodes for their runs, unless that was done a moment ago; with the time when they were asked."""
        if self.inventory.slurm is not None:
            max_age = max(max_age, SOONEST_ON_SLURM)
        with self._asking:
            now = time.monotonic()
            if self._found is None or now - self._found[0] > max_age:
                nodes = self.inventory.nodes
                self._found = now, find_runs(self.cluster, nodes, None, pulse=True)
            return self._found

    def _follow_list(self, view: View) -> None:
        follower = ListFollower(
            self.cluster, self.inventory, view, lambda: self.find_runs(POLL / 2)[1], self.command
        )
        follower.follow(lambda found: fragments.render_away(found.errors))

    def find(self, text: str) -> RunId:
        """Return the run that a short id or the beginning of an id means; raises UnknownRunError."""
        if (run_id := parse_run_id(text)) is not None:
            return run_id
        _, found = self.find_runs(POLL)
        try:
            return choose_run(found.runs, text, current_owner())
        except ClusterctlError as error:
            choice = f"{error.message}; {error.fix}" if error.code == SEVERAL_RUNS else error.message
            raise UnknownRunError(choice) from error

    def read_log(self, run_id: RunId) -> WholeLog:
        """Return all lines of a run in the order of time; raises UnknownRunError if no node has any."""
        _, found = self.find_runs(POLL)
        if run_id not in found.runs or not found.holders(run_id):
            raise UnknownRunError(tr("{run} is not on these nodes", run=run_id))
        run = RunHandle(self.cluster, run_id, found.holders(run_id), found.pythons)
        held = {node.name for node in run.nodes}
        silent = tuple(name for name in found.runs[run_id] if name not in held)
        return WholeLog(read_whole_log(run, found.offsets, silent), silent)

    def diagnose(self, run_id: str) -> Html:
        """Ask the ranks of a run where they are, as `diagnose` does."""
        return self._answer(run_id, self._diagnose)

    def stop(self, run_id: str) -> Html:
        """Stop a run, as `stop` does after its question, which the page has asked."""
        return self._answer(run_id, self._stop)

    def _answer(self, run_id: str, work: Callable[[RunId], Html]) -> Html:
        """Return the answer to a button, for all pages that show the run; a failure is an answer too."""
        try:
            answer = work(RunId(run_id))
        except Exception as error:
            answer = fragments.render_problem(error)
        if (follower := self._followers.get(run_id)) is not None:
            follower.view.publish("answer", answer)
        return answer

    def _diagnose(self, run_id: RunId) -> Html:
        cluster, nodes = self.cluster, self.inventory.nodes
        found = find_runs(cluster, nodes, run_id, only_one=True)
        if run_id not in found.runs:
            return fragments.render_missing(run_id)
        refuse_without_nodes(found, run_id, "diagnose", self.command)
        diagnosis = diagnose_run(cluster, found, run_id, self.command, slow=False)
        if (follower := self._followers.get(run_id)) is not None:
            follower.mark(diagnosis.judgement)
        return fragments.render_diagnosis(diagnosis, time.strftime("%H:%M:%S"), self.command)

    def _stop(self, run_id: RunId) -> Html:
        cluster, nodes = self.cluster, self.inventory.nodes
        found = find_runs(cluster, nodes, run_id, only_one=True)
        parts = found.runs.get(run_id, {})
        if not is_live(parts):
            return fragments.render_missing(run_id)
        if self.inventory.slurm is not None:
            return fragments.render_lines(stop_and_describe(cluster, found, run_id))
        held = [node for node in nodes if may_have_processes(node.name, parts, found.pythons)]
        lines = stop_and_report(RunHandle(cluster, run_id, held, found.pythons))
        lines += [
            sanitize(tr("{subject}: {text}", subject=error.node, text=f"{error.code} {error.message}"))
            for error in found.errors
        ]
        return fragments.render_lines(lines)


class RunFollower:
    """Keeps one run up to date: its state by asking, its lines by a stream, its plots now and then."""

    def __init__(self, source: ClusterSource, view: View) -> None:
        self._source, self.view = source, view
        self._run_id = RunId(view.run_id)
        self._lock = threading.Lock()
        self._states: dict[str, tuple[float, NodeState]] = {}  # as they come by the streams
        self._found: tuple[float, FoundRuns] | None = None
        self._ended_parts: Parts | None = None
        self._stall: object = None  # which nodes have kept where their ranks are, and since when
        self._hang: KeptDiagnosis | None = None
        self._drawn: ReportedRun | None = None  # with the records that were read last
        self._judgement: Judgement | None = None  # the newest, by which ranks are marked
        self._judged_at = 0.0
        self._began: float | None = None  # of a live run, as the page counts from it
        self._notices: deque[str] = deque(maxlen=MAX_NOTICES)

    def follow(self) -> None:
        """Publish what is known until no page shows it any more."""
        has_begun = False
        while True:
            asked_at, found = self._source.find_runs(SOONEST / 2)
            self.view.publish("problem", fragments.render_away(found.errors))
            if self._run_id in found.runs:
                self._read_end(found)
                self._found = asked_at, found
                self._read_hang()
                self._publish_state()
                # in Slurm's queue no node has anything yet
                if not has_begun and not any(part.is_queued for part in self._parts().values() if part):
                    has_begun = True
                    self._start(self._read_lines)
                    self._start(self._draw)
            elif not has_begun or not found.errors:
                self.view.publish("head", NOTHING)
                self.view.publish("summary", fragments.render_missing(self._run_id))
            is_over = self._found is not None and not is_live(self._parts())
            if not self.view.pause(SOONEST) or not self.view.pause(
                (POLL_ENDED if is_over else POLL) - SOONEST, until_woken=True
            ):
                return

    def _start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception as error:
                found = fragments.describe_failure(error)
                self._notice(f"{found.code} {found.message}")

        threading.Thread(target=run, daemon=True).start()

    def _read_end(self, found: FoundRuns) -> None:
        """Read the record of the end once."""
        if self._ended_parts is None and not is_live(found.runs[self._run_id]):
            cluster, nodes = self._source.cluster, self._source.inventory.nodes
            self._ended_parts = fetch_end_record(cluster, nodes, found, self._run_id, named=False)

    def _read_hang(self) -> None:
        """Read where the ranks were when the run stalled, or before its end, whenever a node reports a new state."""
        parts = self._parts()
        stall = {
            name: (part.diagnosed, part.quiet_since)
            for name, part in parts.items()
            if part and part.diagnosed
        }
        if stall == self._stall:
            return
        self._hang = load_hang(self._handle(with_silent=False), parts) if stall else None
        self._stall = stall
        self._judgement = self._hang.judgement if self._hang is not None else None

    def mark(self, judgement: Judgement) -> None:
        """Mark the ranks that an answer of `diagnose` is about."""
        self._judgement, self._judged_at = judgement, time.time()
        if self._found is not None:
            self._publish_state()

    def _choose_marks(self, run: ReportedRun) -> Judgement | None:
        """Return the judgement by which ranks are marked: an answer only until one of its ranks writes a line."""
        if self._judgement is None or self._stall:
            return self._judgement
        named = {*self._judgement.suspects, *self._judgement.waiting}
        since = [
            (activity.written_at or 0.0) - run.offsets.get(part.node, 0.0)
            for part in run.known
            for activity in part.rank_activity
            if activity.rank in named
        ]
        return self._judgement if max(since, default=0.0) <= self._judged_at else None

    def _parts(self) -> Parts:
        """Return the newest state of each node."""
        if self._found is None:
            return {}
        asked_at, found = self._found
        parts = dict(found.runs[self._run_id])
        if self._ended_parts is not None and not is_live(parts):
            parts.update({name: part for name, part in self._ended_parts.items() if part})
        newer = {name: state for name, (at, state) in self._states.items() if at > asked_at}
        return {**parts, **{name: state for name, state in newer.items() if name in parts}}

    def _publish_state(self) -> None:
        with self._lock:
            run = self._report(self._parts(), Records({}, {}))
            run = replace(run, hang=self._hang)
            if self._drawn is not None:
                speed = self._drawn.speed if run.state in JUDGED_STATES else None
                run = replace(run, records=self._drawn.records, speed=speed)
            texts = [render_timing(run.parts, run.offsets, run.now)]
            texts += map(sanitize, render_checkpoints(run.parts, run.offsets, run.now))
            timing = tr("; ").join(filter(None, texts))
            question = describe_run(self._run_id, run.parts, self._source.label)
            self._publish_head(run)
            self.view.publish("summary", fragments.render_summary(run, timing, question))
            self.view.publish("culprit", fragments.render_culprit(run))
            stalls = find_stalls(run.parts, run.offsets, run.now)
            rows = list_node_rows(run.parts, stalls, run.verdict, render_age, self._choose_marks(run))
            self.view.publish("nodes", fragments.render_nodes(rows))

    def _publish_head(self, run: ReportedRun) -> None:
        seconds = run_seconds(run.parts, run.now, run.offsets)
        if run.state not in LIVE or seconds is None:
            self._began = None
        elif self._began is None or abs(run.now - seconds - self._began) > STEADY:
            self._began = run.now - seconds
        asked = self._found[1].runs[self._run_id] if self._found else {}
        progress = find_progress(asked)
        step = progress.step_text if progress else ""
        self.view.publish("head", render_head(run, "h2", self._began, step))

    def _report(self, parts: Parts, records: Records) -> ReportedRun:
        offsets = self._found[1].offsets if self._found else {}
        inventory = self._source.inventory
        names = {node.name for node in inventory.nodes} if inventory.slurm is None else set(parts)
        verdict = conclude(self._run_id, parts, names, offsets)
        return report_run(self._run_id, parts, verdict, offsets, records, self._source.command)

    def _handle(self, *, with_silent: bool) -> RunHandle:
        """Return the nodes of the run; each node's interpreter is the one that answered, else the inventory's."""
        found, parts = self._found[1] if self._found else None, self._parts()
        nodes: list[Node] = found.nodes_of(self._run_id) if found else []
        answered = found.pythons if found else {}
        nodes = [node for node in nodes if with_silent or (parts.get(node.name) and node.name in answered)]
        pythons = {node.name: answered.get(node.name) or interpreter(node) for node in nodes}
        return RunHandle(self._source.cluster, self._run_id, nodes, pythons)

    def _read_lines(self) -> None:
        ranks = sum(len(part.ranks) for part in self._parts().values() if part)
        query = LogQuery(
            ranks=None,
            tail=max(MIN_TAIL, min(TAIL, TAIL_OF_ALL // max(1, ranks))),
            grep=None,
            stream=None,
            follow=True,
            attempt=None,
            since=None,
            show_times=True,
            as_json=False,
        )
        reader = LiveReader(self._handle(with_silent=True), query.request(), notice=self._notice)
        window = ReorderWindow()  # at the beginning the last lines of all nodes come at once
        with closing(reader.updates_or_none(0.5)) as updates:
            for update in updates:
                if self.view.is_over:
                    return
                if isinstance(update, LogLines):
                    window.add(hold_together(update), time.monotonic(), time.time())
                elif update is not None:
                    self._on_update(update)
                for entry in window.pop_ready(time.monotonic()):
                    self._add_lines(entry)
        for entry in window.pop_all():
            self._add_lines(entry)

    def _add_lines(self, entry: LogLines) -> None:
        label = entry.stream if entry.stream == "stderr" else ""
        times = () if entry.times_guessed else entry.times
        if entry.gone:
            self.view.add_lines(
                entry.node, entry.rank, label, [f"~ {describe_dropped(entry.gone)}"], times[:1]
            )
        self.view.add_lines(entry.node, entry.rank, label, map(sanitize, entry.lines), times)

    def _on_update(self, update: Update) -> None:
        if isinstance(update, StateChange):
            # never changed in place: other threads read it
            self._states = {**self._states, update.node: (time.monotonic(), update.state)}
            self._publish_state()
            self.view.wake()
        elif isinstance(update, (ReplacedLog, StreamEnd)) and update.error is not None:
            problem = f"{update.error.code} {update.error.message}"
            self._notice(tr("{subject}: {text}", subject=update.node, text=problem))

    def _notice(self, text: str) -> None:
        self._notices.append(f"{time.strftime('%H:%M:%S')} {sanitize(text)}")
        self.view.publish("notices", fragments.render_lines(list(self._notices)))

    def _draw(self) -> None:
        """Read samples and numbers; the longer that takes, the longer is the pause: it costs the nodes something."""
        while True:
            began, was_live = time.monotonic(), is_live(self._parts())
            run = self._handle(with_silent=False)
            points = POINTS if len(run.nodes) <= MANY_NODES else FEWER_POINTS
            records = fetch_records(run, HistoryChoice(None, points, details=True))
            report = self._report(self._parts(), records)
            self._drawn = report
            fragments.publish_plots(self.view, report)
            self._publish_state()
            took = time.monotonic() - began
            if not was_live and not records.errors:
                return
            if not self.view.pause(max(DRAW, len(run.nodes) * DRAW_PER_NODE, took * DRAW_SHARE)):
                return
