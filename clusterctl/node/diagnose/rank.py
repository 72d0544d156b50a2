"""Lets a rank show where it is: the half of `diagnose` that lives in the ranks; it does nothing until it is asked.

This file is also written into a run's directory, beside a `sitecustomize.py` that calls it, which the interpreter of a
worker imports before the script; a forked worker calls `install`. So it imports nothing of ours, and little else. Of
the process PID there are in the directory of the attempt:

    PID.json     written last: the process can be asked; and where the rank is, see `supervise/ranks/nested.py`; rank is
                 null in a process that was started without RANK
    PID.stacks   where faulthandler writes the stacks of all threads: called by the thread that answers, which holds
                 the GIL then, or on SIGNAL, while C code holds it; while Python runs that ends the process now and then
    PID.ask      a FIFO: for each byte a thread answers, while the main thread waits in C
    PID.state    the answer to each: whether an exception has ended the script, whether SIGNAL is still ours, and rank
                 and size of the world as they are now, null where there are none; also written at the exit after such
                 an exception, because the thread does not live as long as destructors
    PID.records  the answer to RECORDS, after that: a line of JSON with what torch does not record, then one for each
                 of its recorders, or why there is none. The first has members: the ranks of each process group; call:
                 in which the main thread is, its text and the rank that it sends to or receives from; left: threads
                 and processes for which the interpreter waits before it exits
    PID.group    {"pid", "starttime", "size", "rank", "ended"}: its process group of torch, which it has at its exit;
                 size: null until it exits, 0 where it is not known, 1 if torch.distributed is imported and was never
                 initialized, else the ranks of its default group; rank: its own in that group, else null; ended: when
                 it exits, in the ticks of starttime

The last is written by every Python process of an attempt, not only the ranks: a rank may leave the training to a
process that it starts. A process that has not imported torch.distributed removes it at its exit.

A process without RANK may be a rank as well: the only one of its node under `launcher: python`, as with JAX, or one
of Ray or mp.spawn, which gets its rank after its start. So all processes are prepared down to those that are started
with RANK; what these start is not. A process that is no rank at its exit removes its files.

Not here: who asks (`query`), and who reads the groups (`supervise/ranks/groups.py`).
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from types import FrameType
    from typing import Any, Callable, Dict, List, Mapping, MutableMapping, Optional, Sequence

VARIABLE = "CLUSTERCTL_DIAGNOSE"  # the directory; with RANK it is taken away, so that what a rank starts is not asked
SITE = "site"  # the directory in it that comes first in PYTHONPATH
BREAKPOINT = "clusterctl_breakpoint"  # breakpoint.py there, if the run is one for `clusterctl debug`
MODULE = "clusterctl_rank"  # the name of this file there
STARTER = """import os.path, sys
if sys.version_info >= (3, 8):
    from clusterctl_rank import customize, watch
    watch(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    customize(__file__)
"""  # an older Python that the job starts goes on without
# The next three are also in query.py, which has the other side: here this file is alone.
SIGNAL = 41  # SIGRTMIN + 7 as Python and glibc count; submitit, Lightning and verl use SIGUSR1 and SIGUSR2
STATE, STACKS, RECORDS = b"s", b"t", b"?"  # what is asked for; each is answered with the state as well
RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
MAX_GROUPS, MAX_MEMBERS, MAX_FRAMES, MAX_LEFT = 64, 1024, 128, 8
MAX_CALL, MAX_KEY, MAX_NAME = 120, 60, 60  # characters
EXIT_LIMIT = 1.0  # seconds for the thread to write what it is writing
GROUP, LOCAL = "group", "use_local_synchronization"  # arguments
LIBRARIES = ("<", "/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python")
C10D_FILE = "/torch/distributed/distributed_c10d.py"
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
SUFFIXES = (".json", ".ask", ".state", ".stacks", ".records")
SUFFIX = ".group"
C10D, RPC = "torch.distributed.distributed_c10d", "torch.distributed.rpc"
# What is set by init_process_group and kept by destroy_process_group, in torch 2.2 to 2.15; None before. A torch that
# has it otherwise is one of which nothing is known.
KEPT_MARKS = ("_backend", "_default_pg_init_method")
TRACKER, FORK_SERVER = b"multiprocessing.resource_tracker", b"multiprocessing.forkserver"
# Ranks that have one of these may communicate by it.
OTHER_LIBRARIES = (
    *("jax", "jaxlib", "mpi4py", "horovod", "ray", "tensorflow"),
    *("torch_xla", "mxnet", "paddle", "mindspore"),
)


def install(environ: MutableMapping[str, str]) -> None:
    """Make this process ready to be asked; whatever prevents it must not prevent the rank."""
    folder = environ.get(VARIABLE)
    if not folder:
        return
    if "RANK" in environ:
        del environ[VARIABLE]
    try:
        if "RANK" in environ or not _serves_others():
            _install(folder, environ)
    except Exception:  # noqa: BLE001, RUF100 - the job is more important than its diagnosis
        return


def _install(folder: str, environ: MutableMapping[str, str]) -> None:
    import _thread
    import atexit
    import faulthandler
    from _signal import getsignal  # type: ignore[import-not-found]  # it is not in typeshed; `signal` loads more

    rank = int(environ["RANK"]) if "RANK" in environ else None
    state = _State(os.path.join(folder, str(os.getpid())), rank, getsignal, _thread.allocate_lock())
    base, state.position = state.base, _position(environ)
    state.remove()  # of an earlier process of this number
    stacks = os.open(base + ".stacks", NEW_FILE | os.O_APPEND, 0o600)
    faulthandler.register(SIGNAL, file=stacks, all_threads=True, chain=False)
    # a short script ends before the thread writes it
    _write_marker(state, stacks, 0, _thread.get_ident())
    try:
        os.mkfifo(base + ".ask", 0o600)
        requests = os.open(base + ".ask", os.O_RDWR | os.O_CLOEXEC)  # also for writing: so it never ends
    except OSError:  # a file system without FIFOs
        pass
    else:
        _thread.start_new_thread(_answer, (state, stacks, requests, _thread.get_ident()))
    atexit.register(state.write_at_exit)
    debugger = os.path.join(folder, SITE, BREAKPOINT + ".py")
    if rank is not None and "PYTHONBREAKPOINT" not in environ and os.path.exists(debugger):
        with open(debugger, encoding="utf-8") as source:  # it installs itself
            exec(
                compile(source.read(), debugger, "exec"),
                {"__name__": BREAKPOINT, "ARGUMENTS": (folder, rank)},
            )


class _State:
    """What only the process itself knows."""

    position = (0, 0, "")

    def __init__(
        self, base: str, rank: Optional[int], getsignal: Callable[[int], object], lock: LockType
    ) -> None:
        self.base, self.rank, self._getsignal = base, rank, getsignal
        self.lock, self.removed = lock, False  # the thread may begin to run when the process ends
        self._pid = os.getpid()
        self._handler = getsignal(SIGNAL)  # faulthandler's is not seen there, a later one is

    def write(self) -> None:
        """Write it; Python sets `sys.last_type` only for an exception that was not caught, before it prints it."""
        uncaught = hasattr(sys, "last_type") or hasattr(sys, "last_exc")
        ours = self._getsignal(SIGNAL) is self._handler
        facts = (str(uncaught).lower(), str(ours).lower(), *map(_to_json, read_position()))
        text = '{"uncaught": %s, "ours": %s, "rank": %s, "size": %s}' % facts
        _replace(self.base + ".state", text.encode("ascii"))

    def write_at_exit(self) -> None:
        """Write it after such an exception; remove all of one that is no rank; do nothing in a child of the rank."""
        try:
            if os.getpid() != self._pid:
                return
            if hasattr(sys, "last_type"):
                self.write()
            elif self.rank is None and read_position()[0] is None and os.getsid(0) != self._pid:
                is_locked = self.lock.acquire(True, EXIT_LIMIT)
                self.removed = True
                self.remove()  # a job may start thousands of these; the first of a session is a node's program
                if is_locked:
                    self.lock.release()
        except Exception:  # noqa: BLE001, RUF100 - nothing may be printed after the traceback
            return

    def remove(self) -> None:
        """Remove what is there under the number of this process."""
        for suffix in SUFFIXES:
            if os.path.exists(self.base + suffix):
                os.unlink(self.base + suffix)


def _to_json(number: Optional[int]) -> str:
    return "null" if number is None else str(number)


def _write_marker(state: _State, stacks: int, thread: int, main: int) -> None:
    facts = (_to_json(state.rank), os.getpid(), _starttime(), stacks, thread, main, *state.position)
    keys = '{"rank": %s, "pid": %d, "starttime": %d, "stacks": %d, "thread": %d, "main": %d'
    marker = (keys + ', "local_rank": %d, "world_size": %d, "error_file": "%s"}') % facts
    _replace(state.base + ".json", marker.encode("ascii"))


def _starttime() -> int:
    with open("/proc/self/stat", "rb") as source:
        return int(source.read().rpartition(b")")[2].split()[19])


def _position(environ: MutableMapping[str, str]) -> tuple[int, int, str]:
    """Return the local rank, the size of the world, and torchrun's file for errors, which lies beside the logs."""
    numbers = [environ.get(name, "") for name in ("LOCAL_RANK", "WORLD_SIZE")]
    local_rank, size = (int(text) if text.isdigit() else 0 for text in numbers)
    file = environ.get("TORCHELASTIC_ERROR_FILE", "")
    plain = file.isascii() and file.isprintable() and not {'"', "\\"} & set(file)
    return local_rank, size, file if plain else ""


def _answer(state: _State, stacks: int, requests: int, main: int) -> None:
    """Write what is asked for by every byte that comes; the signal comes to this thread, so it disturbs no other."""
    import _thread
    import faulthandler

    try:
        with state.lock:
            if state.removed:
                return
            _write_marker(state, stacks, _thread.get_native_id(), main)
        file = os.fstat(stacks)
        while True:
            question = os.read(requests, 1)
            if question == STACKS and os.path.samestat(os.fstat(stacks), file) and _has_gil():
                faulthandler.dump_traceback(file=stacks, all_threads=True)
            state.write()
            if question == RECORDS:
                _replace(state.base + ".records", _describe(main) + _read_recorders())
    except OSError:
        return  # the directory is gone, or the disk full: diagnose reports that this rank does not answer


def _has_gil() -> bool:
    """Return whether no other thread runs Python while this one does; an interpreter may be built without the GIL."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _describe(main: int) -> bytes:
    """Return a line of JSON with what torch does not record; empty if nothing can be found out."""
    try:
        import json

        if not _has_gil():  # frames of a thread that runs may be read only while it cannot
            return b""
        frames = _list_frames(sys._current_frames().get(main))
        reads = {"members": _read_members, "inside": _read_inside, "left": _read_left}
        about = {name: _attempt(read, frames) for name, read in reads.items()}
        call = _attempt(_read_call, frames)
        del frames  # the disk with the job's file may hang: the tensors of a step must not stay for as long
        about["call"] = {"text": _read_source(*call)} if isinstance(call, tuple) else call
        return json.dumps(about).encode("ascii") + b"\n"
    except Exception:  # noqa: BLE001, RUF100 - the interpreter may be about to exit
        return b""


def _attempt(read: Callable[[Sequence[FrameType]], Any], frames: Sequence[FrameType]) -> Any:
    """Return what can be read, None where this Python or torch has it otherwise."""
    try:
        return read(frames)
    except Exception:  # noqa: BLE001, RUF100 - as above
        return None


def _list_frames(frame: Optional[FrameType]) -> List[FrameType]:
    """List the frames of a thread, innermost first."""
    frames: List[FrameType] = []
    while frame is not None and len(frames) < MAX_FRAMES:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _read_members(_: Sequence[FrameType]) -> Dict[str, List[int]]:
    """Return the ranks of the process groups, in their order, by the names that the recorders have for them."""
    c10d: Any = sys.modules.get(C10D)
    names = list(c10d._world.pg_names.items())[-MAX_GROUPS:] if c10d is not None else []
    members = {str(name): list(map(int, c10d.get_process_group_ranks(group))) for group, name in names}
    return {name: ranks for name, ranks in members.items() if len(ranks) <= MAX_MEMBERS}


def _read_call(frames: Sequence[FrameType]) -> Any:
    """Return to which rank a function of torch.distributed sends, or from which it receives; else where a call is."""
    outermost = _find_c10d(frames)
    if outermost is not None:
        return {"peer": _find_peer(outermost.f_locals)}
    file = frames[0].f_code.co_filename if frames else "<"
    return {} if any(part in file for part in LIBRARIES) else _locate(frames[0])


def _find_c10d(frames: Sequence[FrameType]) -> Optional[FrameType]:
    """Return the outermost frame of torch.distributed: the function that the job has called."""
    found = [frame for frame in frames if frame.f_code.co_filename.endswith(C10D_FILE)]
    return found[-1] if found else None


def _read_inside(frames: Sequence[FrameType]) -> Dict[str, object]:
    """Return for which ranks the function of torch.distributed is: all of the job, or a list."""
    outermost = _find_c10d(frames)
    if outermost is None:
        return {}
    arguments, name = outermost.f_locals, outermost.f_code.co_name
    if name == "init_process_group" or (name == "new_group" and not arguments.get(LOCAL)):
        return {"all": True}
    if GROUP not in arguments:
        return {}
    group: Any = arguments.get(GROUP)
    c10d: Any = sys.modules[C10D]
    ranks = [] if group is None else list(map(int, c10d.get_process_group_ranks(group)))
    return {"all": group is None, "ranks": ranks[:MAX_MEMBERS]}


def _find_peer(arguments: Mapping[str, Any]) -> Optional[int]:
    """Find the other rank among the arguments, as a number in the whole job."""
    for name in ("src", "dst"):
        peer, place = arguments.get(name), arguments.get("group_" + name)
        if type(peer) is int:
            return peer
        if type(place) is int:
            c10d: Any = sys.modules[C10D]
            return int(c10d.get_process_group_ranks(arguments.get(GROUP))[place])
    return None


def _locate(frame: FrameType) -> tuple[str, int, Any, Dict[str, str]]:
    """Return where the call is in which a frame is: file, line, and from Python 3.11 on columns; and its arguments."""
    from itertools import islice

    code, columns = frame.f_code, None
    if hasattr(code, "co_positions"):
        first, last, start, end = next(islice(code.co_positions(), frame.f_lasti // 2, None))
        columns = (start, end) if None not in (start, end) and first == last == frame.f_lineno else None
    # before Python 3.13, reading the names of a frame changes what locals() has returned there
    names = frame.f_locals if sys.version_info >= (3, 13) else {}
    keys = {name: value[:MAX_KEY] for name, value in names.items() if type(value) is str}
    return code.co_filename, frame.f_lineno, columns, keys


def _read_source(file: str, number: int, columns: Any, keys: Mapping[str, str]) -> str:
    """Return the text of a call, of a key that it waits for the value."""
    import linecache

    line = linecache.getline(file, number)
    if columns:
        start, end = columns
        line = line.encode("utf-8")[start:end].decode("utf-8")
    text = line.strip()
    called, _, argument = text[:-1].rpartition("(")
    if text.endswith(")") and called.endswith((".get", ".wait")) and argument in keys:
        text = "%s(%r)" % (called, keys[argument])
    return text[:MAX_CALL]


def _read_left(frames: Sequence[FrameType]) -> List[List[str]]:
    """Return kind and name of what the interpreter waits for before it exits."""
    places = {(os.path.basename(frame.f_code.co_filename), frame.f_code.co_name) for frame in frames}
    found: List[Any] = []
    if ("threading.py", "_shutdown") in places:
        main = sys.modules["threading"].main_thread()
        threads = [one for one in list(sys.modules["threading"]._active.values()) if one is not main]
        found += [("thread", one) for one in threads if not one.daemon]
    if ("util.py", "_exit_function") in places:
        children = list(sys.modules["multiprocessing.process"]._children)
        found += [("process", one) for one in children if not one.daemon]
    return [[kind, str(one.name)[:MAX_NAME]] for kind, one in found[:MAX_LEFT]]


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


def watch(folder: str) -> None:
    """Begin to watch this process; whatever prevents it must not prevent the job."""
    import atexit

    try:
        if TRACKER in _read_command():  # it outlives the others, and is killed
            return
        process = _Process(folder)
        process.write(None)
        atexit.register(process.write_at_exit)
        os.register_at_fork(after_in_child=process.on_fork)
    except Exception:  # noqa: BLE001, RUF100 - the job is more important
        return


def read_size() -> Optional[int]:
    """Return the size of this process's group as PID.group has it; None if torch.distributed is not imported."""
    c10d: Any = sys.modules.get(C10D)
    if c10d is None:
        return None
    if c10d.is_initialized():
        return int(c10d.get_world_size())
    other = any(name in sys.modules for name in OTHER_LIBRARIES)
    used = any(getattr(c10d, name, "") is not None for name in KEPT_MARKS)
    has_rpc = getattr(sys.modules.get(RPC), "_init_counter", 0) > 0
    return 0 if other or used or has_rpc else 1


def read_position() -> tuple[Optional[int], Optional[int]]:
    """Return rank and size of the world, of more than one: of the default group, else as the variables are now."""
    try:
        size = read_size() or 0
        rank = read_rank() if size > 1 else None
    except Exception:  # noqa: BLE001, RUF100 - torch is being imported
        rank = None
    if rank is not None:
        return rank, size
    numbers = [os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE")]
    rank, size = (int(text) if text.isdigit() and text.isascii() else -1 for text in numbers)
    return (rank, size) if size > 1 and rank >= 0 else (None, None)


def read_rank() -> Optional[int]:
    """Return the rank of this process in its default group; None if it is in none."""
    c10d: Any = sys.modules.get(C10D)
    return int(c10d.get_rank()) if c10d is not None and c10d.is_initialized() else None


def _serves_others() -> bool:
    """Return whether this process is never a rank: it cleans up after others, forks or starts them."""
    words = _read_command().split(b"\0")
    if words[1:2] and words[1].endswith(b".zip"):  # our payload
        return words[2] in (b"ray", b"mpi")
    return any(name in word for name in (TRACKER, FORK_SERVER) for word in words)


def _read_command() -> bytes:
    with open("/proc/self/cmdline", "rb") as source:
        return source.read(4096)


class _Process:
    """This process, also after a fork."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._inherited: Optional[int] = None  # the size when it was forked
        self._forked = False

    def write(self, size: Optional[int]) -> None:
        """Write the file."""
        ended = rank = None
        if size is not None:
            ended = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
            rank = read_rank() if size > 1 else None
        facts = tuple(map(_to_json, (os.getpid(), _starttime(), size, rank, ended)))
        content = '{"pid": %s, "starttime": %s, "size": %s, "rank": %s, "ended": %s}' % facts
        _replace(self._path(), content.encode("ascii"))

    def write_at_exit(self) -> None:
        """Write the size, or remove the file; a forked process, such as a data loader's, only what is new."""
        try:
            size = read_size()
            if size is None and not self._forked:
                os.unlink(self._path())
            elif size is not None and not (self._forked and size == self._inherited):
                self.write(size)
        except Exception:  # noqa: BLE001, RUF100 - nothing may be printed at the exit
            return

    def on_fork(self) -> None:
        """Take notice that this is another process, in which multiprocessing may leave no time for `atexit`."""
        try:
            self._forked, self._inherited = True, read_size()
            util: Any = sys.modules.get("multiprocessing.util")
            if util is not None:  # it forgets all finalizers just after the fork, then calls this
                util.register_after_fork(self, _finalize)
        except Exception:  # noqa: BLE001, RUF100 - see watch
            return

    def _path(self) -> str:
        return os.path.join(self._folder, "%d%s" % (os.getpid(), SUFFIX))


def _finalize(process: _Process) -> None:
    util: Any = sys.modules["multiprocessing.util"]
    util.Finalize(None, process.write_at_exit, exitpriority=-100)


def customize(file: str) -> None:
    """Get ready and remove our traces: the interpreter goes on with the next sitecustomize, if there is one."""
    here = os.path.dirname(os.path.abspath(file))
    install(os.environ)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    sys.path_importer_cache.pop(here, None)
    for name in (MODULE, "sitecustomize"):
        del sys.modules[name]
    __import__("sitecustomize")  # where there is none, the error is what the interpreter expects
