"""Whether the ranks of this node get on: for how long none has, and where they were then, kept before anything ends.

A rank gets on, since a look at it or an answer of its flight recorder:

    output, or 1 MiB    recorder: an entry    in a collective     processor    gets on
    read and written    is new, or is over    that is not over    >= 5 %
    yes                 any                   any                 any          yes
    no                  yes                   any                 any          yes
    no                  no                    yes                 any          no: NCCL computes while it waits
    no                  no                    no, or not known    yes          yes: imports, loads, evaluates
    no                  no                    no, or not known    no           no: waits for a lock, a file, a process

So a rank in an endless loop gets on; it looks like one that evaluates for an hour.

Output, processor time and bytes cost a look at /proc now and then: 0.1 ms a rank. A node asks its ranks for their
records (34 ms each) once nothing but processor time has shown progress there for half of the limit; without a fresh
answer a node never reports the whole limit. The gang takes the smallest time of all nodes, see `node/gang/hub.py`; each
node receives it and does the rest itself: it keeps where its ranks are, and ends its part if the job wants that.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    FrozenSet,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Pattern,
    Tuple,
)

from ....protocol.run_paths import STDERR_LOG, STDOUT_LOG, RunPaths
from ...diagnose.busiest import ProcessorUse
from ...diagnose.query import (
    ENTRIES,
    LIMIT,
    POLL,
    diagnose,
    file_version,
    kept_path,
    read_markers,
    read_records,
    send_question,
)
from ...diagnose.rank import RECORDS
from ...probe.questions import read_text
from ...runtime.event_loop import Loop, call_in_thread, run_in_thread
from ...runtime.processes import descendants, find_process, running_descendants
from ...state.run_record import Record
from ...state.workdir import write_atomically
from .workers import Worker

if TYPE_CHECKING:
    from ....protocol.messages.files import KeptDiagnosis, KeptReason, Spec, State


# of every file its path, size and time of change; None if there are too many
FileMarks = Optional[FrozenSet[int]]
RecordedEntries = Dict[str, List[List[Any]]]  # of a flight recorder, by process group, see RecordedGroup

BUSY, MIN_BUSY = 0.05, 0.03  # processors; seconds, for a clock that counts in hundredths
MUCH = 1 << 20  # bytes between two looks
MIN_PAUSE, MAX_PAUSE = 0.25, 30.0  # seconds between two looks
LOOKS, ASKS = 8, 4  # within the limit
ASKED_AFTER = 0.5  # of the limit
KEEP_LIMIT = LIMIT + 4.0  # seconds for all answers, and to write them
SAMPLE_AFTER, SAMPLE_EVERY = 25.0, 1800.0  # seconds until the first sample, and at most between two
MAX_ENTRIES = 256  # collectives of a process group in a sample
KEPT_BEFORE = 3.0  # seconds before the time limit
END_AFTER = 2.0  # seconds after a stall is found: by then every node has kept where its ranks are
QUERY = "nvidia-smi"  # as the agent's own sampling runs it
MAX_KEPT = 8 << 20  # bytes of what is kept
MAX_FILES = 20000  # entries below the output directory that are looked at
SCAN_LIMIT = 5.0  # seconds for the look at them at the end


class Usage(NamedTuple):
    """Counters of a worker and all below it: bytes of output, seconds of processor time, bytes read and written."""

    output: int
    busy: float
    moved: int


class Recorded(NamedTuple):
    """What a worker's flight recorders say: whether it waits in a collective, the last entries, the newest's age."""

    waiting: bool
    mark: str
    age: float


class WorkerProgress:
    """When a worker has got on last; times by the monotonic clock."""

    def __init__(self, now: float) -> None:
        self._wrote = now  # when its output had grown
        self._recorded = self._busy = now
        self._usage: Optional[Usage] = None
        self._measured_at = now
        self._answer: Optional[Recorded] = None

    @property
    def certain(self) -> float:
        """Return when it got on last, processor time aside."""
        return max(self._wrote, self._recorded)

    @property
    def last(self) -> float:
        """Return when it got on last, by the table above."""
        waiting = self._answer is not None and self._answer.waiting
        return self.certain if waiting else max(self.certain, self._busy)

    def on_usage(self, now: float, usage: Usage) -> None:
        """Compare its counters with those before."""
        before, seconds = self._usage, max(1e-3, now - self._measured_at)
        self._usage, self._measured_at = usage, now
        if before is None or usage.output != before.output:
            self._wrote = now
        if before is None or usage.moved - before.moved >= MUCH:
            self._recorded = now
        if before is None or usage.busy - before.busy >= max(MIN_BUSY, BUSY * seconds):
            self._busy = now

    def on_asked(self, now: float, usage: Usage) -> None:
        """Take its counters after it was asked where it is: what the answer itself has cost is no progress."""
        known = self._usage or usage
        self.on_usage(now, known._replace(output=usage.output))
        self._usage = usage

    def on_answer(self, now: float, answer: Optional[Recorded], usage: Usage) -> None:
        """Take what its recorders say, None if they say nothing."""
        self.on_asked(now, usage)
        before, self._answer = self._answer, answer
        if answer is not None:
            is_new = before is not None and before.mark != answer.mark
            self._recorded = max(self._recorded, now if is_new else now - answer.age)


class StallWatch:
    """Looks at the ranks of one attempt now and then; `on_stalled` ends the attempt."""

    def __init__(self, loop: Loop, record: Record, spec: Spec, on_stalled: Callable[[float], None]) -> None:
        stall = spec.get("stall")
        self._loop, self._record, self._spec, self._on_stalled = loop, record, spec, on_stalled
        self._limit = float(stall["after"]) if stall else 0.0
        self._ends = bool(stall and stall["then"])
        self._pause = min(MAX_PAUSE, max(MIN_PAUSE, self._limit / LOOKS))
        self._workers: Callable[[], Iterable[Worker]] = tuple
        self._progress: Dict[int, WorkerProgress] = {}  # by pid
        self._excluded: Callable[[], Iterable[int]] = tuple
        self._pids: Dict[int, List[int]] = {}  # of each worker and below it; of daemons, by our own pid
        self._began = self._asked = self._answered = 0.0
        self._sample_pause = SAMPLE_AFTER
        self._keeping = self._found = self._requested = False
        self._is_stopped = False  # by a person: that the ranks end then is no progress
        self._since: Optional[float] = None  # of the stall that was found
        self._ended_at: Optional[float] = None  # when no rank ran any more, and torchrun had not exited

    # the looks

    def watch(
        self,
        workers: Callable[[], Iterable[Worker]],
        time_left: Optional[float],
        excluded: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        """Begin to look, unless the job switches it off; before the time limit keep where the ranks are.

        `excluded` gives the pids below the agent whose work is no progress.
        """
        self._workers, self._excluded = workers, excluded
        if self._record.state.get("diagnosed"):  # of an earlier attempt
            self._record.set({"diagnosed": None})
        if time_left is not None and self._spec.get("stall"):
            lead = min(KEPT_BEFORE, time_left / 4)
            self._loop.after(time_left - lead, "before the limit", lambda: self.keep("time_limit"))
        if self._spec.get("stall"):
            self._sample_pause = SAMPLE_AFTER
            self._loop.after(SAMPLE_AFTER, "sample", self._sample)
        if self._limit > 0:
            self._began = self._asked = self._answered = time.monotonic()
            self._ended_at = None
            self._scan()

    def stop(self) -> None:
        """Stop watching; no check is pending afterwards."""
        self._began = 0.0
        for name in ("stall", "before the limit", "stalled", "sample"):
            self._loop.cancel(name)

    def _scan(self) -> None:
        self._loop.after(self._pause, "stall", self._scan)
        if self._requested or self._keeping:
            return
        now = time.monotonic()
        self._pids = self._find_groups()
        self._progress = {pid: self._progress.get(pid) or WorkerProgress(now) for pid in self._pids}
        for pid, progress in self._progress.items():
            progress.on_usage(now, self._measure(pid))
        self._record_end(now)
        certain = max((each.certain for each in self._progress.values()), default=now)
        if now - certain >= self._limit * ASKED_AFTER:
            self._request_records()

    def _record_end(self, now: float) -> None:
        """Take notice that no rank runs any more: until the attempt ends here a halted torchrun is waited for."""
        ended = not self._progress and any(True for _ in self._workers())
        self._ended_at = (self._ended_at or now) if ended else None

    def _find_groups(self) -> Dict[int, List[int]]:
        """Find the processes of each worker, and as one more group what has daemonised: it is the agent's child."""
        running = [worker.identity.pid for worker in self._workers() if is_running(worker)]
        groups = {pid: [pid, *(stat.pid for stat in descendants(pid))] for pid in running}
        known = {*self._excluded(), *(pid for pids in groups.values() for pid in pids)}
        others = [stat.pid for stat in running_descendants(known) if stat.name != QUERY]
        if groups and others:
            groups[os.getpid()] = others
        return groups

    def _measure(self, group: int) -> Usage:
        used = [read_usage(pid, with_children=pid == group) for pid in self._pids[group]]
        folders = [worker.folder or "" for worker in self._workers() if worker.identity.pid == group]
        paths = [os.path.join(self._record.rundir, folder) for folder in folders]
        output = sum(size_of(os.path.join(path, name)) for path in paths for name in (STDOUT_LOG, STDERR_LOG))
        return Usage(output, sum(busy for busy, _ in used), sum(moved for _, moved in used))

    # what the gang is sent, and receives

    @property
    def quiet(self) -> float:
        """Return for how many seconds no rank here has got on; 0 where nothing is watched."""
        now = time.monotonic()
        if not self._began or not self._progress:
            return now - self._ended_at if self._began and self._ended_at is not None else 0.0
        seconds = now - max(each.last for each in self._progress.values())
        is_fresh = now - self._answered <= self._limit * ASKED_AFTER + LIMIT
        return seconds if is_fresh else min(seconds, self._limit * (1 - 1 / ASKS))

    def on_gang_quiet(self, seconds: float) -> None:
        """Take for how long no rank of the whole run has got on: after the limit keep where ours are."""
        if not self._began:
            return
        if seconds >= self._limit and not self._found:
            self._found = True
            self._since = time.time() - seconds
            self.keep("stall")
            if self._ends:
                self._loop.after(END_AFTER, "stalled", lambda: self._on_end_due(seconds))
        elif self._found and not self._is_stopped and seconds < self._limit * ASKED_AFTER:
            # 0 once the ranks end: they were not stuck
            self._found, self._since = False, None
            self._loop.cancel("stalled")
            self._record.set({"diagnosed": None})
            self._record.add_event("stall_over", {})

    def _on_end_due(self, seconds: float) -> None:
        """End the attempt, unless the ranks here ended since: the next beat of the gang may be too late for that."""
        if not any(map(is_running, self._workers())):
            self._progress = {}
            self._record_end(time.monotonic())
        if self.quiet < self._limit * ASKED_AFTER:
            self.on_gang_quiet(self.quiet)
        else:
            self._on_stalled(seconds)

    def _request_records(self) -> None:
        """Ask the ranks for their records, if that is due."""
        now = time.monotonic()
        if now - self._asked < self._limit / ASKS:
            return
        self._asked, self._requested = now, True
        folder = RunPaths(self._record.rundir).diagnosis(self._spec["attempt"])
        call_in_thread(self._loop, "records", KEEP_LIMIT, lambda: request_records(folder), self._on_records)

    def _on_records(self, by_pid: Optional[Dict[int, RecordedEntries]]) -> None:
        now = self._answered = time.monotonic()
        self._requested = False
        for group, progress in self._progress.items():
            answers = [(by_pid or {})[pid] for pid in self._pids[group] if pid in (by_pid or {})]
            progress.on_answer(now, summarize(answers), self._measure(group))

    # what is kept

    def _sample(self) -> None:
        """Keep the last collectives of the ranks: at the end of the run it is too late to find who was slow.

        Pauses double, so that the newest sample is of the second half of the run.
        """
        self._loop.after(self._sample_pause, "sample", self._sample)
        self._sample_pause = min(SAMPLE_EVERY, 2 * self._sample_pause)
        state: Any = dict(self._record.state)
        rundir = self._record.rundir

        def finish(written: Optional[bool]) -> None:
            if written:
                self._record.set({"sampled": time.time()})

        call_in_thread(self._loop, "sampling", KEEP_LIMIT, lambda: write_collectives(rundir, state), finish)

    def keep(self, why: KeptReason, then: Optional[Callable[[], None]] = None) -> None:
        """Write down where the ranks are now, in a thread, and record that it is there; on a full disk it is not."""
        self._is_stopped = self._is_stopped or why == "stop"
        if self._keeping:
            if then is not None:
                then()
            return
        self._keeping = True
        about: KeptDiagnosis = {"why": why, "time": time.time(), "since": self._since}
        state: Any = dict(self._record.state)
        rundir = self._record.rundir

        def finish(written: Optional[bool]) -> None:
            self._keeping = False
            # the ranks may have answered after their attempt: the record is the next one's then
            if self._record.state.get("attempt") == state.get("attempt"):
                for pid, progress in self._progress.items():
                    progress.on_asked(time.monotonic(), self._measure(pid))
                self._record_kept(about if written else None, why)
            if then is not None:
                then()

        call_in_thread(self._loop, "keep", KEEP_LIMIT, lambda: write_diagnosis(rundir, state, about), finish)

    def _record_kept(self, about: Optional[KeptDiagnosis], why: KeptReason) -> None:
        if why == "stall" and self._since is None:  # it was over before all had answered
            return
        if about is not None:
            self._record.set({"diagnosed": about})
        if why == "stall" and self._since is not None:
            self._record.add_event("stalled", {"seconds": round(time.time() - self._since, 1)})


def write_diagnosis(rundir: str, state: State, about: KeptDiagnosis) -> bool:
    """Ask the ranks where they are, and write that down unless it is too long."""
    return _write(
        kept_path(rundir, state, "diagnosis"), {**about, "diagnosis": diagnose(rundir, state, None)}
    )


def write_collectives(rundir: str, state: State) -> bool:
    """Ask the ranks for their last collectives, and write them down with how far the nodes' clocks are apart."""
    load = ProcessorUse(state["run"])
    diagnosis: Any = diagnose(rundir, state, None, MAX_ENTRIES, by_signal=False)
    diagnosis["clocks"] = state.get("clocks", {})
    diagnosis["busiest"] = load.find_busiest()
    return _write(kept_path(rundir, state, "collectives"), {"diagnosis": diagnosis})


def _write(path: str, content: Any) -> bool:
    text = json.dumps(content).encode("utf-8")
    if len(text) <= MAX_KEPT:
        write_atomically(path, text)
    return len(text) <= MAX_KEPT


def is_running(worker: Worker) -> bool:
    """Whether a worker's process is there and has not ended."""
    stat = None if worker.ended else find_process(worker.identity)
    return stat is not None and stat.running


def read_usage(pid: int, *, with_children: bool) -> Tuple[float, int]:
    """Read the processor time of a process, of its ended children too, and the bytes that it read and wrote."""
    fields = (read_text("/proc/%d/stat" % pid) or "").rpartition(")")[2].split()
    ticks = sum(map(int, fields[11 : 15 if with_children else 13]))
    lines = (read_text("/proc/%d/io" % pid) or "").split("\n")
    moved = [
        int(line.partition(":")[2])
        for line in lines
        if line.startswith(("rchar", "wchar", "read_b", "write_b"))
    ]
    return ticks / os.sysconf("SC_CLK_TCK"), sum(moved)


def size_of(path: str) -> int:
    """Return the size of a file in bytes; 0 if there is no such file."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def request_records(folder: str) -> Dict[int, RecordedEntries]:
    """Ask the living ranks of an attempt for their flight recorders alone: the entries of each, by pid and group."""
    deadline = time.monotonic() + LIMIT
    waiting: Dict[int, object] = {}
    found: Dict[int, RecordedEntries] = {}
    for identity in read_markers(folder):
        base = os.path.join(folder, str(identity.pid))
        version, process = file_version(base + ".records"), find_process(identity)
        if process is not None and process.running and send_question(base, RECORDS):
            waiting[identity.pid] = version
    while waiting and time.monotonic() < deadline:
        time.sleep(POLL)
        for pid, version in list(waiting.items()):
            path = os.path.join(folder, "%d.records" % pid)
            if file_version(path) != version:
                del waiting[pid]
                groups = read_records(path, ENTRIES, time.time()).groups
                found[pid] = {group["name"]: group["entries"] for group in groups}
    return found


def summarize(answers: List[RecordedEntries]) -> Optional[Recorded]:
    """Put the recorders of the processes below one worker together; None if none has anything."""
    recorded = [groups for groups in answers if groups]
    if not recorded:
        return None
    ages = [entry[-1] for groups in recorded for entries in groups.values() for entry in entries]
    marks = [
        [name, [entry[:-1] for entry in entries]] for groups in recorded for name, entries in groups.items()
    ]
    waiting = [any(not entries[-1][5] for entries in groups.values() if entries) for groups in recorded]
    return Recorded(all(waiting), json.dumps(marks), max(0.0, min(ages, default=0.0)))


class OutputProgress:
    """Whether an attempt made or changed any file below the output directory that matters.

    The walk runs in a thread of its own, is bounded, and may hang in a file system without harm: then nothing is known.
    """

    def __init__(self, loop: Loop, root: str, pattern: str) -> None:
        self._loop = loop
        self._root = root
        self._pattern = glob_to_regex(pattern)
        self._before: List[FileMarks] = []

    def begin(self) -> None:
        """Look at what is there."""
        run_in_thread(lambda: self._before.append(self._scan()))

    def finish(self, on_result: Callable[[Optional[bool]], None]) -> None:
        """Call `on_result` with whether anything is new; with None if that is not known in time."""
        call_in_thread(
            self._loop, "progress", SCAN_LIMIT, self._scan, lambda after: on_result(self._compare(after))
        )

    def _scan(self) -> FileMarks:
        """Look at the directory; only here, for its path alone may lead through a file system that hangs."""
        return scan_files(os.path.realpath(os.path.expanduser(self._root)), self._pattern)

    def _compare(self, after: FileMarks) -> Optional[bool]:
        before = self._before[0] if self._before else None
        return None if before is None or after is None else bool(after - before)


def scan_files(root: str, pattern: Pattern[str]) -> FileMarks:
    """Mark every file below a directory whose path from there is wanted."""
    file_marks = set()
    for count, entry in enumerate(_walk(root)):
        if count >= MAX_FILES:
            return None
        path = os.path.relpath(entry.path, root)
        with suppress(OSError):
            if pattern.fullmatch(path):
                status = entry.stat(follow_symlinks=False)
                file_marks.add(hash((path, status.st_size, status.st_mtime_ns)))
    return frozenset(file_marks)


def _walk(root: str) -> Iterator[os.DirEntry[str]]:
    directories = [root]
    while directories:
        with suppress(OSError), os.scandir(directories.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.path)
                yield entry


def glob_to_regex(pattern: str) -> Pattern[str]:
    """Turn a glob into a regular expression for paths: `*` stays within a name, `**` does not."""
    text, position = "", 0
    for match in re.finditer(r"\*\*/|\*\*|\*|\?", pattern):
        text += re.escape(pattern[position : match.start()])
        text += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}[match[0]]
        position = match.end()
    return re.compile(text + re.escape(pattern[position:]), re.DOTALL)
