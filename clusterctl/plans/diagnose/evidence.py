"""What the nodes report of their ranks for `diagnose`: stacks, flight recorder, processes; read with distrust.

Not here: what it means (`hang`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from clusterctl.protocol.end_record import MAX_EXIT, MAX_RANK, MAX_SIGNAL
from clusterctl.protocol.untrusted import Row, Untrusted

MAX_RANKS = 256  # of a node
MAX_STACK = 32 << 10  # characters
MAX_THREADS, MAX_FRAMES = 128, 128
MAX_GROUPS, MAX_ENTRIES, MAX_RECENT = 32, 12, 256
MAX_CLOCKS, MAX_OFFSET = 4096, 10**12  # nodes; microseconds
MAX_AGE = 1e9  # seconds
WATCHERS = ("guardian", "agent", "torchrun")
_THREAD = re.compile(r"(?:Current t|T)hread\b.*\(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}) in (.*)')
MAX_FILE, MAX_FUNCTION = 1000, 200  # characters
RAY_LOOP = (
    "/ray/_private/worker.py"  # where the main thread of a worker waits; Ray Train runs the job in another
)
MAX_CALL, MAX_LEFT = 200, 8  # characters; threads and processes
MAX_CALL_RANKS = 4096
C10D = "/torch/distributed/distributed_c10d.py"  # its functions wait for other ranks
BREAKPOINT = "/clusterctl_breakpoint.py"  # see node/diagnose/breakpoint.py
JOINS = ("join", "result", "_shutdown")  # of a thread, of a future, of all threads at the end
_STANDARD = re.compile(r"^<|/lib\d*/python[\d.]+/(?!(?:site|dist)-packages/)")
_PREFIX = re.compile(r"/(?:(?:site|dist)-packages|lib\d*/python[\d.]+)(?=/)")
_LIBRARY = re.compile(r"^<|/(?:(?:site|dist)-packages|lib\d*/python[\d.]+)/")


@dataclass(frozen=True)
class Frame:
    """A line of a program; the path of a file of the job is relative to its code."""

    file: str
    line: int
    function: str

    @property
    def own(self) -> bool:
        """Return whether it is outside of Python's libraries, and of what lets `clusterctl debug` in."""
        return not (_LIBRARY.search(self.file) or self.file.endswith(BREAKPOINT))

    @property
    def standard(self) -> bool:
        """Return whether it is in Python's standard library."""
        return _STANDARD.search(self.file) is not None

    def __str__(self) -> str:
        function = "" if self.function == "<module>" else f" in {self.function}()"
        start = max((found.end() + 1 for found in _PREFIX.finditer(self.file)), default=0)
        return f"{self.file[start:]}:{self.line}{function}"


@dataclass(frozen=True)
class Entry:
    """A collective, or a send or receive, that a rank has entered `age` seconds ago; `done` if it is over.

    `backend` is what carries it out, such as nccl or gloo.
    """

    number: int
    pair: int | None
    operation: str
    sizes: str
    types: str
    done: bool
    age: float
    backend: str = ""

    @property
    def is_pair(self) -> bool:
        """Return whether it is a send or a receive."""
        return self.pair is not None

    @property
    def signature(self) -> tuple[str, str, str]:
        """Return what must be the same on all ranks."""
        return self.operation, self.sizes, self.types


@dataclass(frozen=True)
class GroupRecord:
    """What a rank has entered last in a process group, oldest first; `members` is empty if torch does not show them."""

    name: str
    about: str
    members: tuple[int, ...]
    entries: tuple[Entry, ...]

    @property
    def title(self) -> str:
        """Return the name that the job has for it; torch calls a group that has none `undefined`."""
        return self.name if self.about in ("", "undefined") else self.about


@dataclass(frozen=True)
class RankEvidence:
    """What is known of one rank; `problem` is why it could not be asked.

    `stack` is as it was written, `frames` are those of the main thread, innermost first. `call` is the source of the
    call in which that is, `peer` the rank to which it sends or from which it receives; a function of torch.distributed
    is for `call_ranks`, or `call_of_all` ranks; `left` has kind and name of the
    threads and processes for which it waits before it exits. `moved` is whether its stack was another one at the look
    before; None if there was none.
    """

    rank: int
    node: str
    pid: int | None = None
    problem: str = ""
    exit: int | None = None
    signal: int | None = None
    stderr: str = ""
    silent: float | None = None
    process: str = ""
    waits_in: str = ""
    traced: bool = False
    uncaught: bool = False
    cpu: float | None = None
    stack: str = ""
    frames: tuple[Frame, ...] = ()
    groups: tuple[GroupRecord, ...] = ()
    records_problem: str = ""
    call: str = ""
    peer: int | None = None
    call_ranks: tuple[int, ...] = ()
    call_of_all: bool = False
    left: tuple[tuple[str, str], ...] = ()
    moved: bool | None = None

    @cached_property
    def active(self) -> tuple[Frame, ...]:
        """Return the frames of the thread that counts: the main thread, unless it waits for another one."""
        if any(map(is_collective, self.frames)):
            return self.frames
        threads = list(read_threads(self.stack))[-MAX_THREADS:-1]
        others = [tuple(frames) for frames in threads if any(frame.own for frame in frames)]
        collective = [frames for frames in others if any(map(is_collective, frames))]
        if collective:
            return collective[0]
        is_joining = any(frame.standard and frame.function in JOINS for frame in self.frames)
        return others[0] if is_joining and len(others) == 1 else self.frames

    @property
    def where(self) -> Frame | None:
        """Return the line of the job at which the active thread is; of a library if there is none."""
        frames = self.active
        return next((frame for frame in frames if frame.own), frames[0] if frames else None)

    @property
    def waits_for_ranks(self) -> str:
        """Return the function of torch.distributed in which the active thread is; empty if it is in none."""
        found = [frame for frame in self.active if is_collective(frame)]
        return found[-1].function if found else ""

    @property
    def ended(self) -> bool:
        """Return whether its process is gone."""
        return self.exit is not None or self.signal is not None

    @property
    def has_ended(self) -> bool:
        """Return whether its process is gone, also if no one has seen how."""
        return self.ended or self.problem == "ended"


@dataclass(frozen=True)
class Watcher:
    """The guardian, the agent or torchrun of a node, which lives; `halted` by a signal or a debugger."""

    node: str
    process: str
    pid: int
    halted: bool


@dataclass(frozen=True)
class BusyProcess:
    """The process that uses most processors of a node and does not belong to the run."""

    name: str
    pid: int
    cores: float


@dataclass(frozen=True)
class NodeEvidence:
    """The ranks of one node, and how long they took to answer, in seconds.

    Ages count until `time`, by the node's clock; `clocks` are the hub's: the other nodes' clocks minus its own.
    """

    node: str
    ranks: tuple[RankEvidence, ...]
    took: float
    time: float = 0.0
    clocks: Mapping[str, float] = field(default_factory=dict)
    watchers: tuple[Watcher, ...] = ()
    busiest: BusyProcess | None = None


def compare_stacks(ranks: Iterable[RankEvidence], before: Iterable[RankEvidence]) -> list[RankEvidence]:
    """Return the ranks of a second look with whether they have moved since the first one.

    The thread that counts is compared: others may move in a rank that hangs. One that has answered only now has moved.
    """
    places = {(rank.rank, rank.node): (rank.active, rank.peer) for rank in before if rank.stack}
    return [
        replace(rank, moved=places.get((rank.rank, rank.node)) != (rank.active, rank.peer))
        if rank.stack
        else rank
        for rank in ranks
    ]


def is_collective(frame: Frame) -> bool:
    """Return whether a frame is of a function of torch.distributed that waits for ranks, and no import of it."""
    return frame.file.endswith(C10D) and frame.function != "<module>"


def parse_evidence(raw: Untrusted, node: str) -> NodeEvidence:
    """Read what a node sent."""
    code = raw.text("code")
    stacks = [stack.replace(f'"{code}', '"') if code else stack for stack in _texts(raw)]
    ranks = {
        rank.rank: rank
        for entry in raw.records("ranks", MAX_RANKS)
        if (rank := _parse_rank(entry, node, stacks)) is not None
    }
    took, time = raw.number("took", 0.0, MAX_AGE) or 0.0, raw.moment("time") or 0.0
    clocks = raw.named_integers("clocks", MAX_CLOCKS, -MAX_OFFSET, MAX_OFFSET)
    seconds = {name: microseconds / 1e6 for name, microseconds in clocks.items()}
    watchers = tuple(_parse_watchers(raw, node))
    busiest = _parse_busiest(raw.record("busiest"))
    return NodeEvidence(node, tuple(ranks.values()), took, time, seconds, watchers, busiest)


def _parse_busiest(raw: Untrusted) -> BusyProcess | None:
    pid, cores = raw.integer("pid", 1, 1 << 22), raw.number("cores", 0.0, 1e5)
    return None if pid is None or cores is None else BusyProcess(raw.text("name", 64), pid, cores)


def _parse_watchers(raw: Untrusted, node: str) -> Iterator[Watcher]:
    for entry in raw.records("watchers", len(WATCHERS)):
        process, pid = entry.one_of("process", WATCHERS), entry.integer("pid", 1, 1 << 22)
        if process and pid is not None:
            yield Watcher(node, process, pid, entry.flag("halted"))


def _texts(raw: Untrusted) -> tuple[str, ...]:
    return raw.texts("stacks", MAX_RANKS, MAX_STACK)


def _parse_rank(raw: Untrusted, node: str, stacks: list[str]) -> RankEvidence | None:
    rank, index = raw.integer("rank", 0, MAX_RANK), raw.integer("stack", 0, len(stacks) - 1)
    if rank is None:
        return None
    stack = "" if index is None else stacks[index]
    return RankEvidence(
        rank=rank,
        node=node,
        pid=raw.integer("pid", 1, 1 << 22),
        problem=raw.text("problem", 100),
        exit=raw.integer("exit", -MAX_EXIT, MAX_EXIT),
        signal=raw.integer("signal", 1, MAX_SIGNAL),
        stderr=raw.text("stderr", 4096),
        silent=raw.number("silent", 0.0, MAX_AGE),
        process=raw.text("process", 1),
        waits_in=raw.text("waits_in", 100),
        traced=raw.flag("traced"),
        uncaught=raw.flag("uncaught"),
        cpu=raw.number("cpu", 0.0, 1e6),
        stack=stack,
        frames=main_frames(stack),
        groups=tuple(map(_parse_group, raw.records("groups", MAX_GROUPS))),
        records_problem=raw.text("records_problem", 300),
        call=raw.record("call").text("text", MAX_CALL),
        peer=raw.record("call").integer("peer", 0, MAX_RANK),
        call_ranks=raw.record("call").integers("ranks", MAX_CALL_RANKS),
        call_of_all=raw.record("call").flag("all"),
        left=tuple((row.text(0, 10), row.text(1, 100)) for row in raw.rows("left", MAX_LEFT)),
    )


def _parse_group(raw: Untrusted) -> GroupRecord:
    members = tuple(int(word) for word in re.findall(r"\d{1,7}", raw.text("members", 4096)))
    entries = tuple(filter(None, map(_parse_entry, raw.rows("entries", MAX_RECENT))))
    return GroupRecord(raw.text("name", 100), raw.text("about", 100), members, entries)


def _parse_entry(row: Row) -> Entry | None:
    number, age = row.integer(0, 0), row.number(6, -MAX_AGE, MAX_AGE)
    if number is None or age is None:
        return None
    name = row.text(2, 80)
    backend, _, operation = name.partition(":")
    return Entry(
        number=number,
        pair=row.integer(1, 0),
        operation=operation or name,
        sizes=row.text(3, 200),
        types=row.text(4, 60),
        done=row.flag(5),
        age=max(0.0, age),
        backend=backend if operation else "",
    )


def read_threads(stack: str) -> Iterator[list[Frame]]:
    """Yield the threads of a text of faulthandler, each with its frames, innermost first; the main thread is last."""
    frames: list[Frame] | None = None
    for line in stack.splitlines():
        if _THREAD.match(line[:MAX_FILE]):
            if frames is not None:
                yield frames
            frames = []
        elif frames is not None and len(frames) < MAX_FRAMES and (frame := _parse_frame(line)) is not None:
            frames.append(frame)
    if frames is not None:
        yield frames


def _parse_frame(line: str) -> Frame | None:
    """Read a line of a stack; a name that no program has is dropped before a pattern runs over it."""
    found = _FRAME.match(line) if len(line) <= MAX_FILE + MAX_FUNCTION + 40 else None
    if found is None or len(found[1]) > MAX_FILE or len(found[3]) > MAX_FUNCTION:
        return None
    return Frame(found[1], int(found[2]), found[3])


def main_frames(stack: str) -> tuple[Frame, ...]:
    """Return the frames of the main thread, of a worker of Ray of the job's thread; empty while it runs no Python."""
    threads = list(read_threads(stack))[-MAX_THREADS:]
    main = threads[-1] if threads else []
    if main and main[0].file.endswith(RAY_LOOP):
        main = next((thread for thread in threads if any(frame.own for frame in thread)), main)
    return tuple(main)
