"""Stacks of another process of this account, by a signal to it; see `rank` for its side.

The signal's default action ends a process. So it goes only to one that has written that it takes it, is still that
process, catches the signal now, and has the file for the stacks open.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Dict, NamedTuple, Optional, cast

from ...protocol.untrusted import MalformedError, parse_object
from ..probe.questions import list_folder, read_text
from ..runtime.processes import Identity, find_process

if TYPE_CHECKING:
    from ...protocol.messages.files import RankMarker

SIGNAL, STATE, RECORDS = 41, b"s", b"?"  # see rank.py
MARKER = ("rank", "pid", "starttime", "stacks", "thread")
MAIN = "main"  # the main thread's ident; runs that were started by an older clusterctl do not have it
MOST_MARKERS = 1024
LONGEST_STACK = 24 << 10  # bytes
MOST_FRAMES = 100  # of a thread; faulthandler leaves out the outermost
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


def read_markers(folder: str) -> Dict[Identity, RankMarker]:
    """Read what the processes of an attempt have written of themselves."""
    markers = {}
    for path in list_folder(folder, "*.json")[:MOST_MARKERS]:
        with suppress(MalformedError):
            content = parse_object((read_text(path) or "").encode("utf-8"))
            numbers = {name: content.integer(name, 0) for name in (*MARKER, MAIN)}
            marker = {name: number for name, number in numbers.items() if number is not None}
            if all(name in marker for name in MARKER):
                known = cast("RankMarker", marker)
                markers[Identity(known["pid"], known["starttime"])] = known
    return markers


class State(NamedTuple):
    """What a rank says of itself: whether an exception has ended its script, and whether the signal is still ours."""

    uncaught: bool
    ours: bool


def read_state(base: str) -> Optional[State]:
    """Read the newest answer of a rank; None if there is none."""
    with suppress(MalformedError):
        content = parse_object((read_text(base + ".state") or "").encode("utf-8"))
        return State(*map(content.flag, State._fields))
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
                source.seek(max(self._start, size - 4 * LONGEST_STACK))
                return OURS.sub("", source.read(4 * LONGEST_STACK).decode("utf-8", "replace"))
        except OSError:
            return ""

    def read(self) -> str:
        """Read what has come, without the addresses of threads and the thread that answers us; empty if nothing."""
        threads = ADDRESS.sub(r"\1", self._read_end()).split("\n\n")
        text = "\n\n".join(thread for thread in threads if not ANSWERING.search(thread))
        return (
            text if len(text) <= LONGEST_STACK else "...\n" + text[-LONGEST_STACK:]
        )  # the main thread is last


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
    return 0 < len(frames) < MOST_FRAMES and not any(frame.endswith(" in <module>") for frame in frames)


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
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
