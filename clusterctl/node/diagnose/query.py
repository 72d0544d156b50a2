"""Asks the ranks of a run on this node where they are, without stopping anything, and keeps what they answer.

All ranks are asked at once and have LIMIT seconds; what one does not answer is missing from its row. What ranks
write is passed on as it is, in bounded pieces. The verb `diagnose` sends it, the agent keeps it before it stops a run.

Stacks are asked for by a signal, whose default action ends a process. So it goes only to one that has written that it
takes it, is still that process, catches the signal now, and has the file for the stacks open; see `rank` for its side.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional, cast

from ...protocol.run_paths import RunPaths
from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..logs.log_file import read_tail
from ..probe.questions import list_folder, read_text
from ..runtime.processes import Identity, find_process
from ..state.run_record import parse_identity
from ..state.watchers import find_watchers

if TYPE_CHECKING:
    from ...protocol.messages.evidence import Diagnosis, RankEvidence, RecordedGroup
    from ...protocol.messages.files import RankMarker, RankRecord, State

LIMIT = 1.0  # seconds for the ranks' answers
STATE_LIMIT = 0.3  # seconds for the first answer; C code that holds the GIL lets none come
POLL = 0.01
MAX_RECORDS = 8 << 20  # bytes of flight recorders that are read
ENTRIES = 12  # of each process group, unless more are asked for
GROUPS = 32
MAX_MEMBERS = 4096  # characters
STDERR_BYTES = 2048
MAX_RANKS = 256
MAX_ENTRIES, MAX_VALUES = 20_000, 1_000_000
SIGNAL, STATE, RECORDS = 41, b"s", b"?"  # see rank.py
MARKER = ("rank", "pid", "starttime", "stacks", "thread")
MAIN = "main"  # the main thread's ident; runs that were started by an older clusterctl do not have it
MAX_MARKERS = 1024
MAX_STACK = 24 << 10  # bytes
MAX_FRAMES = 100  # of a thread; faulthandler leaves out the outermost
NO_FRAME = "  <no Python frame>"
THREAD = re.compile(r"(?:Current t|T)hread 0x([0-9a-f]{1,16})\b.{0,100}\(most recent call first\):")
STOPPED = "tT"
ADDRESS = re.compile(r"^((?:Current t|T)hread) 0x[0-9a-f]+", re.MULTILINE)
OURS = re.compile(  # below the script of a forked worker
    r'^  File "[^"\n]*clusterctl/node/fork/worker\.py", line \d+ in run_command$(?:\n  File .*)*\n?',
    re.MULTILINE,
)
ANSWERING = re.compile(
    r'/(?:clusterctl_rank|diagnose/rank)\.py", line \d+ in _answer\s*\Z'
)  # its own thread for us


def diagnose(rundir: str, state: State, selected: Optional[List[int]], entries: int = ENTRIES) -> Diagnosis:
    """Ask the ranks of this node, or the selected ones, and wait for at most LIMIT seconds; `entries` of each group."""
    started = time.monotonic()
    folder = RunPaths(rundir).diagnosis(state["attempt"])
    asked = [one for one in find_ranks(folder, state) if selected is None or one.rank in selected]
    for one in asked:
        one.request()
    waiting = asked
    while waiting and time.monotonic() - started < LIMIT:
        waiting = [one for one in waiting if not one.has_answered()]
        time.sleep(POLL)
    stacks: List[str] = []
    now, code = time.time(), RunPaths(rundir).code + "/"
    ranks = [one.describe(rundir, stacks, entries, now) for one in asked]
    took, watchers = time.monotonic() - started, find_watchers(state)
    return {"ranks": ranks, "watchers": watchers, "stacks": stacks, "code": code, "took": took, "time": now}


def find_ranks(folder: str, state: State) -> List[Asked]:
    """Find the ranks in the agent's record; ranks that a program of the job has started are known by themselves."""
    markers = read_markers(folder)
    by_rank: Dict[int, Asked] = {}
    for number, record in state["ranks"].items():
        identity = parse_identity(record)
        marker: RankMarker = markers.get(identity, {}) if identity is not None else {}
        by_rank[int(number)] = Asked(folder, int(number), identity, marker, record)
    known = {one.identity for one in by_rank.values()}
    others = {
        identity: marker
        for identity, marker in markers.items()
        if identity not in known and find_process(identity) is not None
    }
    if others and not any(one.marker for one in by_rank.values()):
        by_rank = {}  # the only recorded process has started them
    for identity, marker in sorted(others.items()):
        by_rank.setdefault(marker["rank"], Asked(folder, marker["rank"], identity, marker, None))
    return [by_rank[rank] for rank in sorted(by_rank)][:MAX_RANKS]


class Asked:
    """A rank: its process, what that has written of itself, what the agent has recorded, and what it has answered."""

    def __init__(
        self,
        folder: str,
        rank: int,
        identity: Optional[Identity],
        marker: RankMarker,
        record: Optional[RankRecord],
    ) -> None:
        self.rank, self.identity, self.marker, self._record = rank, identity, marker, record
        self._base = os.path.join(folder, str(identity.pid)) if identity else ""
        self._stacks = StackRequest(folder, identity, marker) if identity else None
        self._ticks = read_ticks(identity)
        self._asked_at = time.monotonic()
        self._records_before = self._state_before = file_version("")
        self._waits_for_state = self._waits_for_stack = self._waits_for_records = False
        self._problem = ""

    def request(self) -> None:
        """Send the byte, if this process takes it; the signal follows once it has reported that it takes that too."""
        self._problem = self._stacks.find_obstacle() if self._stacks is not None else "ended"
        if self._stacks is None or self._problem:
            return
        self._records_before = file_version(self._base + ".records")
        self._state_before = file_version(self._base + ".state")
        self._waits_for_state = self._waits_for_records = send_question(self._base, RECORDS)
        if not self._waits_for_state:
            self._waits_for_stack = self._stacks.send()

    def _request_stacks(self, stacks: StackRequest) -> None:
        """Send the signal, unless the process has answered that it goes to a handler of the job."""
        state = read_state(self._base) if self._has_state() else None
        self._waits_for_state = False
        if state is not None and not state.ours:
            self._problem = "its program handles the signal for stacks"
        else:
            self._waits_for_stack = stacks.send()

    def _has_state(self) -> bool:
        return file_version(self._base + ".state") != self._state_before

    def has_answered(self) -> bool:
        """Whether nothing is missing any more."""
        if self._waits_for_state and self._stacks is not None:
            if not self._has_state() and time.monotonic() - self._asked_at < STATE_LIMIT:
                return False
            self._request_stacks(self._stacks)
        if self._waits_for_records and file_version(self._base + ".records") != self._records_before:
            self._waits_for_records = False
        if self._waits_for_stack and self._stacks is not None:
            self._waits_for_stack = not self._stacks.is_complete()
        return not self._waits_for_records and not self._waits_for_stack

    def describe(self, rundir: str, stacks: List[str], entries: int, now: float) -> RankEvidence:
        """Return all that is known; equal stacks are kept once."""
        identity, record = self.identity, self._record
        row: RankEvidence = {
            "rank": self.rank,
            "pid": identity.pid if identity else None,
            "problem": self._problem or ("no answer" if self._waits_for_stack else ""),
        }
        if record is not None:
            row["exit"], row["signal"] = record["exit"], record["signal"]
            row["stderr"], row["silent"] = self._read_output(rundir, record)
        if self._problem == "ended" or identity is None:
            return row
        stat = find_process(identity)
        if stat is not None:
            row["process"] = stat.state
            row["waits_in"] = read_text("/proc/%d/wchan" % stat.pid) or ""
            row["traced"] = status_number(stat.pid, "TracerPid", 10) > 0
            state = read_state(self._base)
            row["uncaught"] = state is not None and state.uncaught
        row["cpu"] = self._measure_cpu()
        if not row["problem"] and self._stacks is not None:
            text = self._stacks.read()
            stacks.extend([] if text in stacks else [text])
            row["stack"] = stacks.index(text)
            row["records_problem"] = "no answer" if self._waits_for_records else ""
            if not self._waits_for_records:
                row["groups"], row["records_problem"] = read_groups(self._base + ".records", entries, now)
        return row

    def _measure_cpu(self) -> Optional[float]:
        ticks = read_ticks(self.identity)
        if ticks is None or self._ticks is None:
            return None
        seconds = (ticks - self._ticks) / os.sysconf("SC_CLK_TCK")
        return seconds / max(0.001, time.monotonic() - self._asked_at)

    def _read_output(self, rundir: str, record: RankRecord) -> Any:
        """Read the end of stderr, and for how many seconds nothing was written."""
        paths = [os.path.join(rundir, name) for name in (record["stdout"], record["stderr"]) if name]
        times = [found.st_mtime for found in map(stat_file, paths) if found is not None]
        end = read_tail(os.path.join(rundir, record["stderr"]), STDERR_BYTES) if record["stderr"] else ""
        return end, max(0.0, time.time() - max(times)) if times else None


def read_ticks(identity: Optional[Identity]) -> Optional[int]:
    """Read the processor time of a process, in clock ticks; None if it is gone."""
    line = read_text("/proc/%d/stat" % identity.pid) if identity is not None else None
    return sum(map(int, line.rpartition(")")[2].split()[11:13])) if line else None


def file_version(path: str) -> object:
    """Return the difference between two contents of a file that is always replaced as a whole."""
    found = stat_file(path)
    return None if found is None else (found.st_ino, found.st_mtime_ns)


def read_groups(path: str, entries: int, now: float) -> Any:
    """Read the flight recorders of a rank: its process groups with their last entries, and why one is missing."""
    groups: List[RecordedGroup] = []
    problems = []
    try:
        with open(path, "rb") as source:
            lines = source.read(MAX_RECORDS).split(b"\n")
    except OSError as error:
        return [], str(error.strerror)
    for line in lines:
        try:
            groups += condense(parse_object(line, MAX_RECORDS, MAX_VALUES), now, entries)
        except MalformedError:
            problems.append(line.decode("utf-8", "replace")[:200])
    return groups[:GROUPS], "; ".join(problems)


def condense(recorder: Untrusted, now: float, most: int) -> List[RecordedGroup]:
    """Keep of each process group the last entries, and how old they are."""
    entries: Dict[str, List[Untrusted]] = {}
    for entry in recorder.records("entries", MAX_ENTRIES):
        entries.setdefault("".join(entry.texts("process_group", 1)), []).append(entry)
    most = max(ENTRIES, most * 4 // max(4, len(entries)))
    configs = recorder.named_records("pg_config", MAX_ENTRIES)
    members = {name: config.text("ranks", MAX_MEMBERS) for name, config in configs.items()}
    return [
        {
            "name": name,
            "about": "".join(last[-1].texts("process_group", 2)[1:])[:100],
            "members": members.get(name, "") if members.get(name, "").endswith("]") else "",
            "entries": [_condense_entry(entry, now) for entry in last[-most:]],
        }
        for name, last in entries.items()
    ]


def _condense_entry(entry: Untrusted, now: float) -> List[Any]:
    """Return number, number among the sends and receives or null, operation, sizes, type, whether it is over, age."""
    pair = entry.integer("p2p_seq_id", 0) if entry.flag("is_p2p") else None
    done = entry.flag("retired") or entry.text("state") == "completed"
    sizes = str([list(row.integers(8)) for row in entry.rows("input_sizes", 8)])[:200]
    operation, types = entry.text("profiling_name", 80), ",".join(entry.texts("input_dtypes", 4, 12))
    age = now - (entry.number("time_created_ns") or 0.0) / 1e9
    return [entry.integer("collective_seq_id", 0), pair, operation, sizes, types, done, age]


def kept_path(rundir: str, state: State, what: str) -> str:
    """Name the file in which the agent keeps where the ranks of an attempt were, or with `collectives` how they met."""
    return os.path.join(RunPaths(rundir).attempt(state["attempt"]), what + ".json")


if TYPE_CHECKING:
    from ...protocol.messages.files import RankMarker


def read_markers(folder: str) -> Dict[Identity, RankMarker]:
    """Read what the processes of an attempt have written of themselves."""
    markers = {}
    for path in list_folder(folder, "*.json")[:MAX_MARKERS]:
        with suppress(MalformedError):
            content = parse_object((read_text(path) or "").encode("utf-8"))
            numbers = {name: content.integer(name, 0) for name in (*MARKER, MAIN)}
            marker = {name: number for name, number in numbers.items() if number is not None}
            if all(name in marker for name in MARKER):
                known = cast("RankMarker", marker)
                markers[Identity(known["pid"], known["starttime"])] = known
    return markers


class RankState(NamedTuple):
    """What a rank reports: whether an exception has ended its script, and whether the signal is still ours."""

    uncaught: bool
    ours: bool


def read_state(base: str) -> Optional[RankState]:
    """Read the newest answer of a rank; None if there is none."""
    with suppress(MalformedError):
        content = parse_object((read_text(base + ".state") or "").encode("utf-8"))
        return RankState(*map(content.flag, RankState._fields))
    return None


def send_question(base: str, question: bytes) -> bool:
    """Ask a rank for what it knows; False if the question is not read."""
    try:
        descriptor = os.open(base + ".ask", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.write(descriptor, question) == 1
        finally:
            os.close(descriptor)
    except OSError:
        return False


class StackRequest:
    """A process that is asked for its stacks, and how far they have come."""

    def __init__(self, folder: str, identity: Identity, marker: RankMarker) -> None:
        self._identity, self._marker = identity, marker
        self._path = os.path.join(folder, "%d.stacks" % identity.pid)
        self._start = self._size = 0

    def find_obstacle(self) -> str:
        """Return the reason why this process must not be sent the signal; empty if it may."""
        stat = find_process(self._identity)
        if stat is None or not stat.running:
            return "ended"
        if stat.state in STOPPED:
            return "stopped"
        if not self._marker:
            return "not prepared"
        catches = catches_signal(stat.pid) and has_open(stat.pid, self._marker["stacks"], self._path)
        return "" if catches else "does not take the signal"

    def send(self) -> bool:
        """Send the signal, to a thread that only waits for this, so that no call of the others is interrupted."""
        self._start = self._size = file_size(self._path)
        pid, thread = self._identity.pid, self._marker["thread"]
        targets = [thread] if os.path.exists("/proc/%d/task/%d" % (pid, thread)) else []
        for target in (*targets, pid):  # the thread ends before destructors run
            try:
                os.kill(target, SIGNAL)
            except OSError:
                continue
            return True
        return False

    def is_complete(self) -> bool:
        """Whether stacks have come and have not grown since the last look."""
        size = file_size(self._path)
        complete = self._start < size == self._size
        self._size = size
        return complete

    def read_main(self) -> str:
        """Read the stack of the main thread; empty if it has not come, or not whole."""
        return find_thread(self._read_end(), self._marker.get("main", 0))

    def _read_end(self) -> str:
        """Read what has come, of a long text the end, without frames of ours: the main thread is last."""
        try:
            with open(self._path, "rb") as source:
                size = source.seek(0, os.SEEK_END)
                source.seek(max(self._start, size - 4 * MAX_STACK))
                return OURS.sub("", source.read(4 * MAX_STACK).decode("utf-8", "replace"))
        except OSError:
            return ""

    def read(self) -> str:
        """Read what has come, without the addresses of threads and the thread that answers us; empty if nothing."""
        threads = ADDRESS.sub(r"\1", self._read_end()).split("\n\n")
        text = "\n\n".join(thread for thread in threads if not ANSWERING.search(thread))
        return text if len(text) <= MAX_STACK else "...\n" + text[-MAX_STACK:]  # the main thread is last


def find_thread(stacks: str, ident: int) -> str:
    """Find the frames of a thread in a text of faulthandler; empty unless all lines of it are there and are frames."""
    frames, inside = [], False
    for line in stacks.split("\n")[:-1]:  # the last is empty, or cut
        found = THREAD.match(line)
        if inside and (found or not line):
            break
        if inside:
            frames.append(line)
        inside = inside or (found is not None and int(found[1], 16) == ident)
    is_cut = not stacks.endswith("\n") or not all(
        line.startswith('  File "') or line == NO_FRAME for line in frames
    )
    return "" if is_cut else "\n".join(frames)


def is_script_over(main_stack: str) -> bool:
    """Whether the main thread is known to have left the script: no frame of a module is in its stack."""
    frames = main_stack.split("\n") if main_stack else []
    return 0 < len(frames) < MAX_FRAMES and not any(frame.endswith(" in <module>") for frame in frames)


def catches_signal(pid: int) -> bool:
    """Whether a process has a handler for the signal now; after an exec it has none."""
    return bool(status_number(pid, "SigCgt", 16) >> (SIGNAL - 1) & 1)


def status_number(pid: int, name: str, base: int) -> int:
    """Read a number of /proc/PID/status; 0 if there is none."""
    found = re.search(r"^%s:\s*([0-9a-f]+)$" % name, read_text("/proc/%d/status" % pid) or "", re.MULTILINE)
    return int(found[1], base) if found else 0


def has_open(pid: int, descriptor: int, path: str) -> bool:
    """Whether a descriptor of a process is this file; it may have been closed, and be another file now."""
    try:
        return os.path.samefile("/proc/%d/fd/%d" % (pid, descriptor), path)
    except OSError:
        return False


def file_size(path: str) -> int:
    """Look how long a file is; 0 if there is none."""
    found = stat_file(path)
    return found.st_size if found is not None else 0


def stat_file(path: str) -> Optional[os.stat_result]:
    """Look at a file; None if that is not possible."""
    try:
        return os.stat(path)
    except OSError:
        return None
