"""/proc, signals, process trees, tags."""

from __future__ import annotations

import os
import signal
import time
from collections import namedtuple
from typing import TYPE_CHECKING, Any, Callable, Container, Dict, Iterable, Iterator, List, Optional, Set

if TYPE_CHECKING:
    from ...protocol.messages.files import EndedProcess, LeftProcess, ProcessRecord

ENDED_STATES = "ZX"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


# Not of `typing`: loading it would take as long as all that a short verb does.
class Identity(namedtuple("Identity", "pid starttime")):
    """One process, for as long as the machine is up; `starttime` is in clock ticks since boot."""

    __slots__ = ()
    pid: int
    starttime: int

    def as_dict(self) -> ProcessRecord:
        """Render for state.json."""
        return {"pid": self.pid, "starttime": self.starttime}


class Stat(namedtuple("Stat", "pid name state parent threads starttime exit_code")):
    """One line of /proc/PID/stat; `exit_code` is a wait status and means something for zombies only."""

    __slots__ = ()
    pid: int
    name: str
    state: str
    parent: int
    threads: int
    starttime: int
    exit_code: int

    @property
    def identity(self) -> Identity:
        """Name the process."""
        return Identity(self.pid, self.starttime)

    @property
    def running(self) -> bool:
        """Whether anything of the process still runs: its first thread may be a zombie before the others."""
        return self.state not in ENDED_STATES or self.threads > 1


def parse_stat(line: bytes) -> Stat:
    """Read the kernel's line; the name may hold spaces and parentheses."""
    head, _, tail = line.rpartition(b")")
    pid, _, name = head.partition(b" (")
    fields = tail.split()
    parent, threads, starttime = int(fields[1]), int(fields[17]), int(fields[19])
    exit_code = int(fields[49]) if len(fields) > 49 else 0
    text = name.decode("utf-8", "replace")
    return Stat(int(pid), text, fields[0].decode("ascii"), parent, threads, starttime, exit_code)


def read_stat(pid: int) -> Optional[Stat]:
    """Look at a process; None if there is none of that pid."""
    content = _read(f"/proc/{pid}/stat")
    return parse_stat(content) if content else None


def identify(pid: int) -> Identity:
    """Name a process that is known to be there; ProcessLookupError if it is not."""
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"no process {pid}")
    return stat.identity


def find_process(identity: Identity) -> Optional[Stat]:
    """Look at exactly this process, zombie or not; None if it is gone."""
    stat = read_stat(identity.pid)
    return stat if stat is not None and stat.starttime == identity.starttime else None


def is_alive(identity: Optional[Identity]) -> bool:
    """Whether exactly this process still runs."""
    stat = find_process(identity) if identity is not None else None
    return stat is not None and stat.running


def boot_id() -> str:
    """Name this boot of this machine, and the pid namespace: containers share the boot, and each has a pid 100."""
    boot = (_read("/proc/sys/kernel/random/boot_id") or b"").decode("ascii").strip()
    try:
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return boot


def all_pids() -> List[int]:
    """List every process that this one may see."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(pid: int, exclude: Container[int] = ()) -> List[Stat]:
    """Look at every process below `pid`, parents first; `exclude` and nothing but it is left out."""
    list_children = _children_lister()
    stats: List[Stat] = []
    pending = list_children(pid)
    while pending:
        child = pending.pop(0)
        stat = read_stat(child)
        if stat is not None and child not in exclude:
            stats.append(stat)
        pending += list_children(child)
    return stats


def kernel_lists_children() -> bool:
    """Whether /proc has lists of children (CONFIG_PROC_CHILDREN)."""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _children_lister() -> Callable[[int], List[int]]:
    if kernel_lists_children():
        return _listed_children
    children: Dict[int, List[int]] = {}
    for stat in filter(None, map(read_stat, all_pids())):
        children.setdefault(stat.parent, []).append(stat.pid)
    return lambda pid: children.get(pid, [])


def _listed_children(pid: int) -> List[int]:
    lists = [_read(f"/proc/{pid}/task/{thread}/children") for thread in _list(f"/proc/{pid}/task")]
    return [int(pid_text) for pids in lists for pid_text in (pids or b"").split()]


def find_tagged(tag: str) -> Iterator[Stat]:
    """Look for processes of this account that were started with CLUSTERCTL_RUN=tag; scans /proc once."""
    variable = b"CLUSTERCTL_RUN=" + os.fsencode(tag)
    return own_processes("environ", lambda variables: variable in variables)


def find_tagged_below(tag: str) -> Iterator[Stat]:
    """Look for the same whose tag begins with `tag`."""
    variable = b"CLUSTERCTL_RUN=" + os.fsencode(tag)
    return own_processes("environ", lambda variables: any(entry.startswith(variable) for entry in variables))


def own_processes(file: str, matches: Callable[[List[bytes]], bool]) -> Iterator[Stat]:
    """Yield the running processes of this account, but this one, whose `environ` or `cmdline` fits."""
    for pid in all_pids():
        if pid == os.getpid() or not _is_own(pid):
            continue
        if matches((_read(f"/proc/{pid}/{file}") or b"").split(b"\0")[:-1]):
            stat = read_stat(pid)
            if stat is not None and stat.running:
                yield stat


def send_signal(identity: Identity, number: int) -> bool:
    """Signal exactly this process, not a later one with its pid; False if it is gone or not ours."""
    try:
        if not hasattr(os, "pidfd_open"):
            return _signal_by_pid(identity, number)
        descriptor = os.pidfd_open(identity.pid)
    except OSError:
        return _signal_by_pid(identity, number)
    try:
        if find_process(identity) is None:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _signal_by_pid(identity: Identity, number: int) -> bool:
    try:
        if find_process(identity) is None:
            return False
        os.kill(identity.pid, number)
    except OSError:
        return False
    return True


def set_subreaper(*, enabled: bool = True) -> bool:
    """Make orphans below this process its children, or no more; False where the kernel or Python cannot."""
    return _prctl(PR_SET_CHILD_SUBREAPER, int(enabled))


def set_parent_death_signal(number: int) -> bool:
    """Ask for a signal when the parent's thread that started this process ends."""
    return _prctl(PR_SET_PDEATHSIG, number)


def reap() -> Iterator[Any]:
    """Yield (pid, wait status) of every child that has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, status


def wake_on(*signals: int) -> int:
    """Turn signals into bytes on a descriptor, which is returned."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _prctl(option: int, value: int) -> bool:
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def _is_own(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


def _list(path: str) -> List[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _read(path: str) -> Optional[bytes]:
    try:
        with open(path, "rb") as source:
            return source.read()
    except OSError:
        return None


PRIVATE_ENV = ("CLUSTERCTL_ACTIVATE_STATUS",)


UNKILLABLE_AFTER = 10.0  # seconds after which a killed process that is still there counts as left
KILL_INTERVAL = 0.005


class ProcessTree:
    """Signals to the processes of one run but those in `spared`, and the account of them."""

    def __init__(self, tag: str, spared: Container[int] = ()) -> None:
        self.tag, self._spared = tag, spared
        self.ended: Dict[Identity, str] = {}
        self._terminated: Set[Identity] = set()

    def terminate(self, processes: Iterable[Stat]) -> None:
        """Send SIGTERM to each process, once in its life."""
        for stat in processes:
            if stat.identity not in self._terminated:
                self._terminated.add(stat.identity)
                self._send(stat, signal.SIGTERM)

    def kill(self, processes: Iterable[Stat]) -> None:
        """Send SIGKILL to each process."""
        for stat in processes:
            self._send(stat, signal.SIGKILL)

    def remaining(self) -> List[Stat]:
        """Look at what is below this process; when that is nothing, at what has the tag."""
        tagged = (stat for stat in self._tagged() if stat.pid not in self._spared)
        return running_descendants(self._spared) or list(tagged)

    def _tagged(self) -> Iterator[Stat]:
        """Look for the tag; one that ends with a slash stands for those of all attempts, any other for itself alone."""
        return find_tagged_below(self.tag) if self.tag.endswith("/") else find_tagged(self.tag)

    def signalled(self) -> List[EndedProcess]:
        """Render what was signalled."""
        return [{"pid": identity.pid, "name": name} for identity, name in self.ended.items()]

    def kill_all(self) -> List[Stat]:
        """Kill until nothing is left, reaping on the way; returns what cannot be ended."""
        deadline = time.monotonic() + UNKILLABLE_AFTER
        while True:
            for _ in reap():
                pass
            remaining = self.remaining()
            if not remaining or time.monotonic() > deadline:
                return remaining
            self.kill(remaining)
            time.sleep(KILL_INTERVAL)

    def _send(self, stat: Stat, number: int) -> None:
        if send_signal(stat.identity, number):
            self.ended[stat.identity] = stat.name


def running_descendants(exclude: Container[int] = ()) -> List[Stat]:
    """Look at every process below this one that still runs, those in `exclude` left out."""
    return [stat for stat in descendants(os.getpid(), exclude) if stat.running]


def describe_leftovers(processes: Iterable[Stat]) -> List[LeftProcess]:
    """Render processes that could not be ended."""
    return [{"pid": stat.pid, "name": stat.name, "state": stat.state} for stat in processes]


def interpreter_options() -> List[str]:
    """Keep the guardian apart from the account's Python settings, save a home it cannot run without."""
    return ["-S", "-X", "utf8"] if "PYTHONHOME" in os.environ else ["-I", "-S", "-X", "utf8"]


def restore_signals() -> None:
    """Reset every signal to its default action and block none."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_DFL)
        except OSError:
            continue  # the C library keeps some for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
