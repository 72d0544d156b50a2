"""Lets a rank show where it is: the half of `diagnose` that lives in the ranks; it does nothing until it is asked.

This file is also written into a run's directory, beside a `sitecustomize.py` that calls it, which the interpreter of a
worker imports before the script; a forked worker calls `install`. So it imports nothing of ours, and little else. Of
the process PID there are in the directory of the attempt:

    PID.json     written last: the process can be asked; and where the rank is, see `supervise/ranks/nested.py`
    PID.stacks   where faulthandler writes the stacks of all threads on SIGNAL, also while C code holds the GIL
    PID.ask      a FIFO: for each byte a thread answers, while the main thread waits in C
    PID.state    the first answer: whether an exception has ended the script, and whether SIGNAL is still ours; also
                 written at the exit after such an exception, because the thread does not live as long as destructors
    PID.records  the second answer, for RECORDS only: one line of JSON per recorder of torch, or why there is none

Not here: who asks (`query`).
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, MutableMapping

VARIABLE = "CLUSTERCTL_DIAGNOSE"  # the directory; a rank takes it away, so that what it starts is not asked
SITE = "site"  # the directory in it that comes first in PYTHONPATH
BREAKPOINT = "clusterctl_breakpoint"  # breakpoint.py there, if the run is one for `clusterctl debug`
MODULE = "clusterctl_rank"  # the name of this file there
GROUP = "clusterctl_group"  # group.py there
STARTER = """import os.path, sys
if sys.version_info >= (3, 8):
    from clusterctl_group import watch
    from clusterctl_rank import customize
    watch(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    customize(__file__)
"""  # an older Python that the job starts goes on without
# The next three are also in stacks.py, which has the other side: here this file is alone.
SIGNAL = 41  # SIGRTMIN + 7 as Python and glibc count; submitit, Lightning and verl use SIGUSR1 and SIGUSR2
STATE, RECORDS = b"s", b"?"  # what is asked for; RECORDS include the state
RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


def install(environ: MutableMapping[str, str]) -> None:
    """Make this process ready to be asked, if it is a rank; whatever prevents it must not prevent the rank."""
    folder = environ.get(VARIABLE)
    if not folder or "RANK" not in environ:
        return
    del environ[VARIABLE]
    try:
        _install(folder, environ)
    except Exception:  # noqa: BLE001, RUF100 - the job is more important than its diagnosis
        return


def _install(folder: str, environ: MutableMapping[str, str]) -> None:
    import _thread
    import atexit
    import faulthandler
    from _signal import getsignal  # type: ignore[import-not-found]  # it is not in typeshed; `signal` loads more

    rank, base = int(environ["RANK"]), os.path.join(folder, str(os.getpid()))
    if os.path.exists(base + ".state"):
        os.unlink(base + ".state")  # of an earlier process of this number
    state = _State(base, os.getpid(), getsignal)
    state.position = _position(environ)
    stacks = os.open(base + ".stacks", NEW_FILE | os.O_APPEND, 0o600)
    faulthandler.register(SIGNAL, file=stacks, all_threads=True, chain=False)
    # a short script ends before the thread writes it
    _write_marker(state, rank, stacks, 0, _thread.get_ident())
    try:
        os.mkfifo(base + ".ask", 0o600)
        requests = os.open(base + ".ask", os.O_RDWR | os.O_CLOEXEC)  # also for writing: so it never ends
    except OSError:  # a file system without FIFOs
        pass
    else:
        _thread.start_new_thread(_answer, (state, rank, stacks, requests, _thread.get_ident()))
    atexit.register(state.write_at_exit)
    debugger = os.path.join(folder, SITE, BREAKPOINT + ".py")
    if "PYTHONBREAKPOINT" not in environ and os.path.exists(debugger):
        with open(debugger, encoding="utf-8") as source:  # it installs itself
            exec(
                compile(source.read(), debugger, "exec"),
                {"__name__": BREAKPOINT, "ARGUMENTS": (folder, rank)},
            )


class _State:
    """What only the process itself knows."""

    position = (0, 0, "")

    def __init__(self, base: str, pid: int, getsignal: Callable[[int], object]) -> None:
        self.base, self._pid, self._getsignal = base, pid, getsignal
        self._handler = getsignal(SIGNAL)  # faulthandler's is not seen there, a later one is

    def write(self) -> None:
        """Write it; Python sets `sys.last_type` only for an exception that was not caught, before it prints it."""
        uncaught = hasattr(sys, "last_type") or hasattr(sys, "last_exc")
        ours = self._getsignal(SIGNAL) is self._handler
        text = '{"uncaught": %s, "ours": %s}' % (str(uncaught).lower(), str(ours).lower())
        _replace(self.base + ".state", text.encode("ascii"))

    def write_at_exit(self) -> None:
        """Write it after such an exception, unless this is a child of the rank."""
        try:
            if hasattr(sys, "last_type") and os.getpid() == self._pid:
                self.write()
        except Exception:  # noqa: BLE001, RUF100 - nothing may be printed after the traceback
            return


def _write_marker(state: _State, rank: int, stacks: int, thread: int, main: int) -> None:
    with open("/proc/self/stat", "rb") as source:
        starttime = int(source.read().rpartition(b")")[2].split()[19])
    facts = (rank, os.getpid(), starttime, stacks, thread, main, *state.position)
    keys = '{"rank": %d, "pid": %d, "starttime": %d, "stacks": %d, "thread": %d, "main": %d'
    marker = (keys + ', "local_rank": %d, "world_size": %d, "error_file": "%s"}') % facts
    _replace(state.base + ".json", marker.encode("ascii"))


def _position(environ: MutableMapping[str, str]) -> tuple[int, int, str]:
    """Return the local rank, the size of the world, and torchrun's file for errors, which lies beside the logs."""
    numbers = [environ.get(name, "") for name in ("LOCAL_RANK", "WORLD_SIZE")]
    local_rank, size = (int(text) if text.isdigit() else 0 for text in numbers)
    file = environ.get("TORCHELASTIC_ERROR_FILE", "")
    plain = file.isascii() and file.isprintable() and not {'"', "\\"} & set(file)
    return local_rank, size, file if plain else ""


def _answer(state: _State, rank: int, stacks: int, requests: int, main: int) -> None:
    """Write what is asked for by every byte that comes; the signal comes to this thread, so it disturbs no other."""
    import _thread

    try:
        _write_marker(state, rank, stacks, _thread.get_native_id(), main)
        while True:
            question = os.read(requests, 1)
            state.write()
            if question == RECORDS:
                _replace(state.base + ".records", _read_recorders())
    except OSError:
        return  # the directory is gone, or the disk full: diagnose reports that this rank does not answer


def _read_recorders() -> bytes:
    """Read torch's flight recorders as JSON, one a line; a line without braces is the reason why one is missing."""
    c10d: Any = sys.modules.get("torch._C._distributed_c10d")
    if c10d is None:
        return b"torch.distributed is not imported"
    lines = []
    for dump in filter(None, (getattr(c10d, name, None) for name in RECORDERS)):
        try:
            text = dump()
        except Exception as error:  # noqa: BLE001, RUF100 - whatever torch raises
            text = "%s: %s" % (type(error).__name__, error)
        content = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        lines.append(content.replace(b"\n", b" "))
    return b"\n".join(lines) or b"this torch has no flight recorder as JSON"


def _replace(path: str, content: bytes) -> None:
    import _thread

    new = "%s.%d.new" % (path, _thread.get_ident())
    descriptor = os.open(new, NEW_FILE | os.O_TRUNC, 0o600)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    finally:
        os.close(descriptor)
    os.rename(new, path)


def customize(file: str) -> None:
    """Get ready and remove our traces: the interpreter goes on with the next sitecustomize, if there is one."""
    here = os.path.dirname(os.path.abspath(file))
    install(os.environ)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    sys.path_importer_cache.pop(here, None)
    for name in (MODULE, GROUP, "sitecustomize"):
        del sys.modules[name]
    __import__("sitecustomize")  # where there is none, the error is what the interpreter expects
