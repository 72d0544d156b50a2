"""The ranks that a program of the job has started itself, by torchrun, accelerate, deepspeed or a shell script.

They are found by what stands in their environment from their start, RANK above all: in new markers of `diagnose`,
which the ranks write themselves, at once; in all processes below the program now and then. What a script passes to
`init_process_group` as an argument, as after `mp.spawn`, or sets in its own `os.environ`, cannot be seen.

A torchrun below the program writes a log of each rank into the run's directory (PET_LOG_DIR, PET_TEE), and to the
program's output, which is kept back then. Of ranks without such logs the program's own is the log. Where two such
launchers run at once on a node, so that two live processes have one rank, the program counts alone.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Set

from ....protocol.ranks import Rank
from ....protocol.run_paths import ERROR_FILE, STDERR_LOG, STDOUT_LOG
from ....protocol.untrusted import MalformedError, parse_object
from ...probe.questions import read_text
from ...runtime.event_loop import Loop
from ...runtime.processes import Identity, Stat, descendants, is_alive, kernel_lists_children, read_stat
from .workers import Worker, Workers, WorkerWatch

MARKERS_INTERVAL = 0.5  # seconds between looks for new markers
FIRST_DELAY, MAX_DELAY = (
    1.0,
    64.0,
)  # seconds between two looks at all processes, each twice the one before
MAX_PROCESSES = 256  # processes that are looked into at a time
MAX_RANKS = 1024
MAX_NUMBER, MAX_PATH = 1 << 50, 4096
MAX_ENVIRON = 128 << 10  # bytes of an environment; Linux allows one variable as much
MAX_MAPS = 1 << 20  # bytes of a list of mapped files
POSITION = ("RANK", "LOCAL_RANK", "WORLD_SIZE")


class StartedRank(NamedTuple):
    """A rank, as it was started."""

    identity: Identity
    rank: Rank
    local_rank: int
    world_size: int
    error_file: str  # torchrun's, beside the logs; empty if unknown


class NestedRanks:
    """Looks for the program's ranks now and then."""

    def __init__(
        self,
        loop: Loop,
        rundir: str,
        markers: str,
        on_size: Callable[[int], None],
        on_found: Callable[[], None],
        on_end: Callable[[Worker], None],
    ) -> None:
        """`on_size` is called once for every other WORLD_SIZE."""
        self._loop, self._markers, self._on_size, self._on_found = loop, markers, on_size, on_found
        self._workers = Workers(rundir)
        self._watch = WorkerWatch(loop, self._workers, "nested", self._check)
        self._on_end = on_end
        self._known: Set[Identity] = set()
        self._seen_markers: Set[str] = set()
        self._delay = FIRST_DELAY
        self._folder = ""  # where the program's own log is
        self._inherited: Dict[str, str] = {}
        self._ambiguous = False
        self._started = False  # else the node's workers are torchrun's, which reports them
        self.sizes: Set[int] = set()

    @property
    def workers(self) -> Optional[Workers]:
        """The ranks; None if there are none, or none that can be distinguished."""
        return self._workers if self._workers.by_rank and not self._ambiguous else None

    def start(self, program: Worker) -> None:
        """Watch what the program starts."""
        self._started, self._folder = True, program.folder or ""
        self._loop.after(MARKERS_INTERVAL, "markers", lambda: self._poll_markers(program))
        if kernel_lists_children():  # else that would be a look at all processes of the machine
            self._loop.after(self._delay, "nested ranks", lambda: self._poll_processes(program))

    def stop(self) -> None:
        """Look no more."""
        for timer in ("markers", "nested ranks"):
            self._loop.cancel(timer)
        self._watch.stop()

    def on_child_exit(self, pid: int, status: int) -> None:
        """Take the end of a rank that became ours when its launcher ended first."""
        worker = self._workers.on_child_exit(pid, status)
        if worker is not None:
            self._watch.remove(worker)
            self._on_end(worker)

    def _check(self) -> None:
        for worker in self._watch.check():
            self._on_end(worker)

    def fill_unseen_ends(self, program: Worker, log: str) -> None:
        """Fill in what only the launcher saw: all ended well if the program did, else torchrun's own table shows it."""
        if not self._started:
            return
        self._read_markers(program)
        self._check()
        code = 0 if program.ended and not program.failed else 1
        self._workers.fill_unseen_ends(code, log)

    def _poll_markers(self, program: Worker) -> None:
        """Look into the processes that have written a marker since the last look."""
        self._loop.after(MARKERS_INTERVAL, "markers", lambda: self._poll_markers(program))
        self._read_markers(program)

    def _read_markers(self, program: Worker) -> None:
        names = {name for name in list_names(self._markers) if name.endswith(".json")}
        new, self._seen_markers = names - self._seen_markers, names
        markers = [read_marker(os.path.join(self._markers, name)) for name in sorted(new)[:MAX_PROCESSES]]
        started = [marker for marker in markers if marker is not None]
        known = {program.identity, *self._known}
        own = self._read_inherited(program)
        given = own.get("RANK"), own.get("WORLD_SIZE")  # by the job's own `env`, to all of its processes
        ranks = [rank for rank in started if (str(rank.rank), str(rank.world_size)) != given]
        found = [self._add(rank) for rank in sorted(ranks) if rank.identity not in known]
        if any(found):
            self._on_found()

    def _poll_processes(self, program: Worker) -> None:
        self._delay = min(2 * self._delay, MAX_DELAY)
        self._loop.after(self._delay, "nested ranks", lambda: self._poll_processes(program))
        self._inspect(program, descendants(program.identity.pid))

    def _read_inherited(self, program: Worker) -> Dict[str, str]:
        """Read the program's variables, which are those of its processes; they are kept for when it has ended."""
        self._inherited = read_environ(program.identity.pid) or self._inherited
        return self._inherited

    def _inspect(self, program: Worker, processes: Iterable[Stat]) -> None:
        inherited = self._read_inherited(program)
        new = [stat for stat in processes if stat.identity not in self._known]
        found = False
        for stat in new[:MAX_PROCESSES]:
            env = read_environ(stat.pid)
            if is_rank(env, inherited) and runs_torch(stat.pid) and is_same(stat):
                if is_child_of_rank(stat, env):
                    self._known.add(stat.identity)
                else:
                    found = self._add(read_position(stat.identity, env)) or found
        if found:
            self._on_found()

    def _add(self, started: StartedRank) -> bool:
        self._known.add(started.identity)
        if started.world_size and started.world_size not in self.sizes:
            self.sizes.add(started.world_size)
            self._on_size(started.world_size)
        if len(self._workers.by_rank) >= MAX_RANKS:
            return False
        earlier = self._workers.by_rank.get(started.rank)
        if earlier is not None and is_alive(earlier.identity):
            if not is_alive(started.identity):
                return False
            self._ambiguous = True
        elif earlier is not None and not any(is_alive(worker.identity) for worker in self._workers):
            self._workers.by_rank.clear()  # those of an earlier launcher, or of its earlier attempt
        folder = find_folder(self._workers.rundir, started.error_file) or self._folder
        worker = Worker(started.identity, started.rank, started.local_rank, started.world_size, folder)
        self._workers.by_rank[worker.rank] = worker
        self._watch.add(worker)
        return True


def read_marker(path: str) -> Optional[StartedRank]:
    """Read what a rank has written of itself, if it has how it was started."""
    try:
        content = parse_object((read_text(path) or "").encode("utf-8"))
    except MalformedError:
        return None
    names = ("pid", "starttime", "rank", "local_rank", "world_size")
    numbers = [content.integer(name, 0, MAX_NUMBER) for name in names]
    pid, starttime, rank, local_rank, size = (0 if number is None else number for number in numbers)
    if None in numbers or not size:
        return None
    identity = Identity(pid, starttime)
    return StartedRank(identity, Rank(rank), local_rank, size, content.text("error_file", MAX_PATH))


def read_position(identity: Identity, env: Dict[str, str]) -> StartedRank:
    """Read where a rank is from its environment."""
    local_rank, file = env.get("LOCAL_RANK", ""), env.get("TORCHELASTIC_ERROR_FILE", "")
    local = int(local_rank) if is_number(local_rank) else 0
    return StartedRank(identity, Rank(int(env["RANK"])), local, int(env["WORLD_SIZE"]), file)


def is_rank(env: Dict[str, str], inherited: Dict[str, str]) -> bool:
    """Whether a process was started as a rank; one that has its position from the job's own `env` was not."""
    numbers = is_number(env.get("RANK", "")) and is_number(env.get("WORLD_SIZE", ""))
    if not numbers or env.get("CLUSTERCTL_RUN") != inherited.get("CLUSTERCTL_RUN"):
        return False
    return any(env.get(name) != inherited.get(name) for name in POSITION)


def is_child_of_rank(stat: Stat, env: Dict[str, str]) -> bool:
    """Whether it is a data loader or the like: its parent has the same position, and is no shell."""
    parent = read_environ(stat.parent)
    return all(parent.get(name) == env.get(name) for name in POSITION) and runs_torch(stat.parent)


def is_number(text: str) -> bool:
    """Whether a variable has a number that a rank or a size may be."""
    return text.isdigit() and text.isascii() and len(text) < 10


def is_same(stat: Stat) -> bool:
    """Whether the process that was read is still the one that was found."""
    current = read_stat(stat.pid)
    return current is not None and current.identity == stat.identity


def find_folder(rundir: str, error_file: str) -> str:
    """Find the logs of a rank by the file that torchrun names to it, if they are in the run's directory."""
    folder = os.path.realpath(os.path.dirname(error_file)) if error_file.endswith("/" + ERROR_FILE) else ""
    relative = os.path.relpath(folder, os.path.realpath(rundir)) if folder else ""
    if not relative or relative.startswith(os.pardir):
        return ""
    has_logs = all(os.path.isfile(os.path.join(folder, name)) for name in (STDOUT_LOG, STDERR_LOG))
    return relative if has_logs else ""


def read_environ(pid: int) -> Dict[str, str]:
    """Read the variables that a process was started with; nothing if it is gone or not ours."""
    entries = _read("/proc/%d/environ" % pid, MAX_ENVIRON).decode("utf-8", "replace").split("\0")
    return dict(entry.partition("=")[::2] for entry in entries if "=" in entry)


def runs_torch(pid: int) -> bool:
    """Whether a process is a Python, or has torch's library loaded."""
    try:
        name = os.path.basename(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        return False
    return name.startswith(("python", "pypy")) or b"libtorch" in _read("/proc/%d/maps" % pid, MAX_MAPS)


def list_names(folder: str) -> List[str]:
    """List a directory; nothing if there is none."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str, most: int) -> bytes:
    try:
        with open(path, "rb") as source:
            return source.read(most)
    except OSError:
        return b""
