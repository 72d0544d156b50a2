"""Asks the ranks of a run on this node where they are, without stopping anything, and keeps what they answer.

All ranks are asked at once and have LIMIT seconds; what one does not answer is missing from its row. What ranks
write is passed on as it is, in bounded pieces. The verb `diagnose` sends it, the agent keeps it before it stops a run.

A thread of the rank answers, which needs the GIL. Where C code holds it the stacks are asked for by a signal: they are
read without the GIL then, which ends a process that executes Python meanwhile (measured: 1 of 24 times with Python
3.13), and its default action ends any. So it goes only to a process that has written that it takes it, is still that
process, catches the signal now, has the file for the stacks open, and whose threads all sleep or have computed for long
without releasing the GIL; see `rank` for its side.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, cast

from ...protocol.run_paths import RunPaths
from ...protocol.untrusted import MalformedError, Untrusted, parse_object
from ..logs.log_file import read_tail
from ..runtime.processes import Identity, find_process
from ..state.run_record import parse_identity
from ..state.watchers import find_watchers

if TYPE_CHECKING:
    from ...protocol.messages.evidence import Diagnosis, RankCall, RankEvidence, RecordedGroup
    from ...protocol.messages.files import RankMarker, RankRecord, State

LIMIT = 1.0  # seconds for the ranks' answers
STATE_LIMIT = 0.3  # seconds for the first answer; C code that holds the GIL lets none come
STILL_TIME = 0.2  # seconds between two looks at the threads of a process that has not answered
STILL_TICKS = 5  # of processor time, 50 ms: Python releases the GIL each 5 ms if it is wanted
POLL = 0.01
MAX_RECORDS = 8 << 20  # bytes of flight recorders that are read
ENTRIES = 12  # of each process group, unless more are asked for
GROUPS = 32
IS_OVER = 5  # the index in a condensed entry
MAX_MEMBERS = 4096  # characters, and ranks
MAX_CALL, MAX_NAME, MAX_LEFT = 200, 100, 8  # characters; threads and processes
STDERR_BYTES = 2048
MAX_RANKS = 256
MAX_TEXT = 65536  # bytes of a small file
MAX_ENTRIES, MAX_VALUES = 20_000, 1_000_000
SIGNAL, STATE, STACKS, RECORDS = 41, b"s", b"t", b"?"  # see rank.py
MARKER = ("pid", "starttime", "stacks", "thread")
# Of a rank that was started as one; and the main thread's ident, which an older clusterctl does not write.
OPTIONAL = ("rank", "world_size", "main")
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


def diagnose(
    rundir: str,
    state: State,
    selected: Optional[List[int]],
    entries: int = ENTRIES,
    *,
    by_signal: bool = True,
) -> Diagnosis:
    """Ask the ranks of this node, or the selected ones, and wait for at most LIMIT seconds; `entries` of each group."""
    started = time.monotonic()
    folder = RunPaths(rundir).diagnosis(state["attempt"])
    asked = [one for one in find_ranks(folder, state) if selected is None or one.rank in selected]
    for one in asked:
        one.request(by_signal=by_signal)
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
    """Find the ranks in the agent's record; ranks that a program of the job has started are known by themselves.

    A recorded program that is no rank counts under the number of its node, until processes below it are ranks.
    """
    markers = read_markers(folder)
    positions = read_positions(folder, markers)
    by_rank: Dict[int, Asked] = {}
    for number, record in state["ranks"].items():
        identity = find_program(markers, parse_identity(record))
        rank = int(number) if identity is None else positions.get(identity, int(number))
        marker: RankMarker = markers.get(identity, {}) if identity is not None else {}
        by_rank[rank] = Asked(folder, rank, identity, marker, record)
    known = {one.identity for one in by_rank.values()}
    others = {identity: rank for identity, rank in positions.items() if identity not in known}
    if others and not known & set(positions):
        by_rank = {}  # the only recorded process has started them
    for identity, rank in others.items():
        by_rank.setdefault(rank, Asked(folder, rank, identity, markers[identity], None))
    return [by_rank[rank] for rank in sorted(by_rank)][:MAX_RANKS]


def find_program(markers: Mapping[Identity, RankMarker], program: Optional[Identity]) -> Optional[Identity]:
    """Return what is asked in the place of a program: itself, or the first Python of its session, as after `uv run`."""
    if program is None or (program in markers and catches_signal(program.pid)):
        return program
    session = [one for one in markers if session_of(one.pid) == program.pid and one != program]
    return min(filter(find_process, session), key=lambda one: one.starttime, default=program)


def session_of(pid: int) -> int:
    """Return the session of a process; 0 if it is gone."""
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def read_positions(folder: str, markers: Mapping[Identity, RankMarker]) -> Dict[Identity, int]:
    """Return the rank of each living process that has one: as it was started, else as it reports now.

    The first are those of the largest world: a program may have several, as where Ray trains and generates.
    """
    living = [identity for identity in markers if find_process(identity) is not None]
    bases = {one: os.path.join(folder, str(one.pid)) for one in living if "rank" not in markers[one]}
    before = {base: file_version(base + ".state") for base in bases.values()}
    waiting = [base for base in before if send_question(base, STATE)]
    deadline = time.monotonic() + STATE_LIMIT
    while waiting and time.monotonic() < deadline:
        time.sleep(POLL)
        waiting = [base for base in waiting if file_version(base + ".state") == before[base]]
    found = [(markers[one] if one not in bases else read_position(bases[one]), one) for one in living]
    ranks = [(-marker.get("world_size", 0), one, marker["rank"]) for marker, one in found if "rank" in marker]
    return {identity: rank for _, identity, rank in sorted(ranks)}


def read_position(base: str) -> RankMarker:
    """Read the rank of a process and the size of its world, as it has reported them last; nothing if it has none."""
    with suppress(MalformedError):
        content = parse_object(read_text(base + ".state").encode("utf-8"))
        rank, size = content.integer("rank", 0), content.integer("size", 0)
        return {} if rank is None or size is None else {"rank": rank, "world_size": size}
    return {}


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
        self._used = self._measure_used()
        self._asked_at = time.monotonic()
        self._before: Dict[str, object] = {}  # versions of the answers
        self._waits_for_stack = self._waits_for_records = False
        self._may_signal = self._is_signalled = self._lacks_stack = False
        self._problem = ""

    def request(self, *, by_signal: bool) -> None:
        """Ask its thread; without an answer the signal may follow."""
        self._problem = self._stacks.find_obstacle() if self._stacks is not None else "ended"
        if self._stacks is None or self._problem:
            return
        self._before = {suffix: file_version(self._base + suffix) for suffix in (".state", ".records")}
        self._waits_for_stack, self._may_signal = True, by_signal
        self._waits_for_records = self._stacks.request(STACKS + RECORDS)

    def _has_new(self, suffix: str) -> bool:
        return file_version(self._base + suffix) != self._before[suffix]

    def has_answered(self) -> bool:
        """Whether nothing is missing any more."""
        if self._waits_for_stack and self._stacks is not None:
            self._check_stack(self._stacks)
        if self._waits_for_records and self._has_new(".records"):
            self._waits_for_records = False
        return not self._waits_for_records and not self._waits_for_stack

    def _check_stack(self, stacks: StackRequest) -> None:
        """Look for the stacks, which the thread writes before its state; send the signal if neither comes."""
        if self._has_new(".state"):
            self._waits_for_stack, self._lacks_stack = False, not stacks.has_grown()
        elif self._is_signalled:
            self._waits_for_stack = not stacks.is_complete()
        elif self._may_signal and time.monotonic() - self._asked_at >= STATE_LIMIT:
            self._is_signalled = stacks.send_if_still()

    def _find_problem(self) -> str:
        """Return the reason why there are no stacks; empty if there are."""
        if self._stacks is None or not (self._waits_for_stack or self._lacks_stack):
            return self._problem
        return "no answer" if self._stacks.takes_signal() else "does not take the signal"

    def describe(self, rundir: str, stacks: List[str], entries: int, now: float) -> RankEvidence:
        """Return all that is known; equal stacks are kept once."""
        identity, record = self.identity, self._record
        row: RankEvidence = {
            "rank": self.rank,
            "pid": identity.pid if identity else None,
            "problem": self._find_problem(),
        }
        if record is not None:
            row["exit"], row["signal"] = record["exit"], record["signal"]
            row["stderr"], row["silent"] = self._read_output(rundir, record)
        if self._problem == "ended" or identity is None:
            return row
        stat = find_process(identity)
        if stat is not None:
            row["process"] = stat.state
            row["waits_in"] = read_text("/proc/%d/wchan" % stat.pid)
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
                records = read_records(self._base + ".records", entries, now)
                row["groups"], row["records_problem"] = records.groups, records.problem
                row["call"], row["left"] = records.call, records.left
        return row

    def _measure_cpu(self) -> Optional[float]:
        used = self._measure_used()
        if used is None or self._used is None:
            return None
        return max(0.0, used - self._used) / max(0.001, time.monotonic() - self._asked_at)

    def _measure_used(self) -> Optional[float]:
        return read_used(self.identity, self.marker.get("thread", 0)) if self.identity else None

    def _read_output(self, rundir: str, record: RankRecord) -> Any:
        """Read the end of stderr, and for how many seconds nothing was written."""
        paths = [os.path.join(rundir, name) for name in (record["stdout"], record["stderr"]) if name]
        times = [found.st_mtime for found in map(stat_file, paths) if found is not None]
        end = read_tail(os.path.join(rundir, record["stderr"]), STDERR_BYTES) if record["stderr"] else ""
        return end, max(0.0, time.time() - max(times)) if times else None


def read_used(identity: Identity, without: int) -> Optional[float]:
    """Read the processor time of a process in seconds, without that of a thread; None if it cannot be read.

    The kernel counts it in nanoseconds; in /proc/PID/stat it is in hundredths, too coarse for the time of a question.
    """
    threads = [name for name in list_names("/proc/%d/task" % identity.pid) if name != str(without)]
    texts = [read_text("/proc/%d/task/%s/schedstat" % (identity.pid, name)) for name in threads]
    used = [int(text.split()[0]) for text in texts if text]
    return sum(used) / 1e9 if used else None


def list_names(folder: str) -> List[str]:
    """List a directory in order; empty if it cannot be read."""
    with suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def read_text(path: str) -> str:
    """Read the start of a file; empty if it cannot be read."""
    with suppress(OSError), open(path, "rb") as source:
        return source.read(MAX_TEXT).decode("utf-8", "replace").strip()
    return ""


def file_version(path: str) -> object:
    """Return the difference between two contents of a file that is always replaced as a whole."""
    found = stat_file(path)
    return None if found is None else (found.st_ino, found.st_mtime_ns)


class Records(NamedTuple):
    """What a rank has answered: its process groups with their last entries, and why some are missing.

    `call` is the call in which its main thread is, `left` what it waits for before it exits; see rank.py.
    """

    groups: List[RecordedGroup]
    problem: str
    call: RankCall
    left: List[List[str]]


def read_records(path: str, entries: int, now: float) -> Records:
    """Read what a rank has answered."""
    try:
        with open(path, "rb") as source:
            lines = source.read(MAX_RECORDS).split(b"\n")
    except OSError as error:
        return Records([], str(error.strerror), {}, [])
    groups: List[RecordedGroup] = []
    problems, about = [], Untrusted({})
    for line in lines:
        try:
            recorder = parse_object(line, MAX_RECORDS, MAX_VALUES)
        except MalformedError:
            problems.append(line.decode("utf-8", "replace")[:200])
            continue
        about = recorder if recorder.has_record("members") else about
        groups += condense(recorder, now, entries)
    members = about.record("members")
    for group in groups:
        ranks = str(list(members.integers(group["name"], MAX_MEMBERS)))
        group["members"] = ranks if 2 < len(ranks) <= MAX_MEMBERS else group["members"]
    groups.sort(
        key=lambda group: all(entry[IS_OVER] for entry in group["entries"])
    )  # those with a wait come first
    problems += [f"more than {GROUPS} process groups"] * (len(groups) > GROUPS)
    return Records(groups[:GROUPS], "; ".join(problems), *_read_call(about))


def _read_call(about: Untrusted) -> Tuple[RankCall, List[List[str]]]:
    call = about.record("call")
    left = [[row.text(0, MAX_NAME), row.text(1, MAX_NAME)] for row in about.rows("left", MAX_LEFT)]
    inside = about.record("inside")
    ranks = list(inside.integers("ranks", MAX_MEMBERS))
    text, peer = call.text("text", MAX_CALL), call.integer("peer", 0)
    return {"text": text, "peer": peer, "all": inside.flag("all"), "ranks": ranks}, left


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
    names = [name for name in list_names(folder) if name.endswith(".json")]
    for path in (os.path.join(folder, name) for name in names[:MAX_MARKERS]):
        with suppress(MalformedError):
            content = parse_object((read_text(path) or "").encode("utf-8"))
            numbers = {name: content.integer(name, 0) for name in (*MARKER, *OPTIONAL)}
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
        content = parse_object(read_text(base + ".state").encode("utf-8"))
        return RankState(*map(content.flag, RankState._fields))
    return None


def send_question(base: str, question: bytes) -> bool:
    """Ask a rank for what it knows, a byte each; False if the question is not read."""
    try:
        descriptor = os.open(base + ".ask", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.write(descriptor, question) == len(question)
        finally:
            os.close(descriptor)
    except OSError:
        return False


class StackRequest:
    """A process that is asked for its stacks, and how far they have come."""

    def __init__(self, folder: str, identity: Identity, marker: RankMarker) -> None:
        self._identity, self._marker = identity, marker
        self._base = os.path.join(folder, str(identity.pid))
        self._path = self._base + ".stacks"
        self._start = self._size = 0
        self._threads: Dict[int, ThreadUse] = {}  # at the first look
        self._next_check = 0.0

    def find_obstacle(self) -> str:
        """Return the reason why this process cannot be asked; empty if it can."""
        stat = find_process(self._identity)
        if stat is None or not stat.running:
            return "ended"
        if stat.state in STOPPED:
            return "stopped"
        return "" if self._marker else "not prepared"

    def request(self, question: bytes) -> bool:
        """Ask its thread; False if there is none: it ends before destructors run."""
        self._start = self._size = file_size(self._path)
        return self._has_thread() and send_question(self._base, question)

    def _has_thread(self) -> bool:
        return os.path.exists("/proc/%d/task/%d" % (self._identity.pid, self._marker["thread"]))

    def takes_signal(self) -> bool:
        """Whether the signal is for us, and ends nothing."""
        pid, state = self._identity.pid, read_state(self._base)
        is_ours = state is None or state.ours
        return is_ours and catches_signal(pid) and has_open(pid, self._marker["stacks"], self._path)

    def send_if_still(self) -> bool:
        """Send the signal if no thread executes Python, by two looks at least; returns whether it was sent."""
        if time.monotonic() < self._next_check:
            return False
        self._next_check = time.monotonic() + STILL_TIME
        threads, is_first = read_threads(self._identity.pid), not self._threads
        self._threads = self._threads or threads
        still = not is_first and is_still(self._threads, threads, self._marker["thread"])
        return still and self.takes_signal() and self._send()

    def _send(self) -> bool:
        """Send the signal, to a thread that only waits for this, so that no call of the others is interrupted."""
        self._start = self._size = file_size(self._path)
        pid = self._identity.pid
        targets = [self._marker["thread"]] if self._has_thread() else []
        for target in (*targets, pid):
            try:
                os.kill(target, SIGNAL)
            except OSError:
                continue
            return True
        return False

    def has_grown(self) -> bool:
        """Whether stacks have come."""
        return file_size(self._path) > self._start

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


class ThreadUse(NamedTuple):
    """The kernel's letter for a thread, and its processor time in clock ticks."""

    state: str
    ticks: int


def read_threads(pid: int) -> Dict[int, ThreadUse]:
    """Look at all threads of a process."""
    threads = {}
    for name in list_names("/proc/%d/task" % pid):
        fields = read_text("/proc/%d/task/%s/stat" % (pid, name)).rpartition(")")[2].split()
        if len(fields) > 12:
            threads[int(name)] = ThreadUse(fields[0], sum(map(int, fields[11:13])))
    return threads


def is_still(before: Mapping[int, ThreadUse], now: Mapping[int, ThreadUse], answering: int) -> bool:
    """Whether no thread executes Python: each sleeps, or has computed without releasing the GIL, which is C code then.

    The thread that answers must wait for the GIL; one that only lacks a processor is on its way.
    """
    for thread, use in now.items():
        has_computed = thread in before and use.ticks - before[thread].ticks >= STILL_TICKS
        if use.state == "R" and (thread == answering or not has_computed):
            return False
    return bool(now)


def catches_signal(pid: int) -> bool:
    """Whether a process has a handler for the signal now; after an exec it has none."""
    return bool(status_number(pid, "SigCgt", 16) >> (SIGNAL - 1) & 1)


def status_number(pid: int, name: str, base: int) -> int:
    """Read a number of /proc/PID/status; 0 if there is none."""
    found = re.search(r"^%s:\s*([0-9a-f]+)$" % name, read_text("/proc/%d/status" % pid), re.MULTILINE)
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
