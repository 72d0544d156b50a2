"""Verb `clean`: lists what a work directory holds that could go, and removes what the client then names.

CleanRequest -> `found`; `remove` -> `removed`: see protocol/messages/verbs.py. Meanwhile the node sends Beat every 2 s.

`age` is the seconds since a run's part last wrote anything, by the node's own clock; `blocked` is why a part must
stay in any case; `outside` is what it has left outside its output directory, see outside_files.py. Of the
store and the payloads the node itself decides: what was not used for `unused` seconds and at least a day goes, and
whatever is in use now was used within that day.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, List, Optional, Set, Tuple, cast

from ...protocol.run_paths import RunPaths, WorkdirPaths
from ...protocol.states import FINAL, LOST, UNKNOWN
from ...protocol.untrusted import Untrusted
from ..runtime.heartbeat import Heartbeat
from ..runtime.processes import all_pids
from ..runtime.stream import Stream, VerbError
from ..state.run_files import read_spec, run_dirs
from ..state.run_record import resolve_state, run_tag_prefix, with_leftovers
from ..state.temp_dirs import PREFIX, remove_all
from ..state.workdir import component, make_private, read_bytes
from ..sync.checkpoints.folders import mirror_folder
from ..sync.outside_files import summarise
from ..sync.removal import Step, grant_owner_access, list_entries, remove_quietly, remove_tree

if TYPE_CHECKING:
    from ...protocol.messages.files import State
    from ...protocol.messages.stored import Cleanable, CleanReport, Removal, StoredRun, Unused
    from ...protocol.messages.verbs import CleanRequest, PlainClientFrame


DAY = 86400.0
ID = re.compile(rb"[0-9a-f]{16}\Z")
SHA = re.compile(r"[0-9a-f]{64}\Z")
REPORTED_KEYS = (
    "run",
    "job",
    "node",
    "node_rank",
    "nnodes",
    "state",
    "submitted",
    "launched_by",
    "launched_id",
)


def run(request: CleanRequest, stream: Stream) -> None:
    """Serve one client."""
    serve(request, stream, Cleaner)


def serve(request: CleanRequest, stream: Stream, make_cleaner: Callable[..., Cleaner]) -> None:
    """List what could go, and remove what the client then names."""
    with Heartbeat(stream) as heartbeat:
        workdir = open_existing_workdir(request["workdir"])
        if workdir is None:
            heartbeat.send({"found": None})
            return
        cleaner = make_cleaner(workdir, request, heartbeat.step)
        heartbeat.send({"found": cleaner.find()})
        frame = stream.receive()
        if frame is not None:
            order = cast("PlainClientFrame", frame[0])
            heartbeat.send({"removed": cleaner.remove(order["remove"])})


def open_existing_workdir(text: str) -> Optional[str]:
    """Return the work directory; None if there is none, VerbError if it is not one of ours."""
    path = os.path.realpath(os.path.expanduser(text))
    if not os.path.isdir(path):
        return None
    if path in ("/", os.path.realpath(os.path.expanduser("~"))):
        raise VerbError("CC-CLEAN-001", f"{path} cannot be a work directory of clusterctl")
    if not ID.match(read_bytes(WorkdirPaths(path).id) or b""):
        raise VerbError(
            "CC-CLEAN-001", f"{path} has no file `id`, which marks a work directory of clusterctl"
        )
    return make_private(path)


class Cleaner:
    """What can be removed of a work directory, by whom it is not used."""

    def __init__(self, workdir: str, request: CleanRequest, step: Step) -> None:
        self.workdir = workdir
        self._node = str(request["node"])
        self._unused = max(DAY, float(request["unused"]))
        self._payload = str(request["payload"])
        self._step = step

    def find(self) -> Cleanable:
        """Describe what could go."""
        return {
            "workdir_id": (read_bytes(WorkdirPaths(self.workdir).id) or b"").decode("ascii"),
            "runs": self.list_runs(find_live_tags(self.workdir)),
            "store": count_unused(self._contents()),
            "payloads": count_unused(self._payloads()),
            "environments": count_unused(self._environments()),
        }

    def list_runs(self, tags: Set[str]) -> List[StoredRun]:
        """Describe the parts of runs that this node has; `tags` are those of living processes."""
        return [
            self.describe(rundir, resolve_state(rundir), has_processes([rundir], tags))
            for rundir in run_dirs(self.workdir, None, self._node)
        ]

    def describe(self, rundir: str, state: Optional[State], blocked: str, whole: str = "") -> StoredRun:
        """Describe what would go with one part; `whole` is the folder that goes if it is not the part's own."""
        size, newest, forbidden = self._measure(whole or rundir)
        mirror = mirror_folder(self.workdir, whole or rundir)
        if os.path.lexists(mirror):
            mirrored, _, forbidden_there = self._measure(mirror)
            size, forbidden = size + mirrored, forbidden or forbidden_there
        return {
            "run": RunPaths(rundir).run_id,
            "node_dir": os.path.basename(rundir),
            "state": state and {key: state.get(key) for key in REPORTED_KEYS},
            "age": max(0.0, time.time() - newest),
            "bytes": size,
            "blocked": forbidden or blocked,
            "outside": summarise(rundir, self._step),
        }

    def _measure(self, root: str) -> Tuple[int, float, str]:
        """Add up what lies below; gives bytes, the newest time, and what forbids to remove it."""
        root_status = os.lstat(root)
        size, newest, blocked = (
            0,
            root_status.st_mtime,
            "" if stat.S_ISDIR(root_status.st_mode) else f"{root} is a link",
        )
        folders = [root]
        while folders:
            for entry in scan(folders.pop()):
                self._step()
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                size += status.st_size
                newest = max(newest, status.st_mtime) if stat.S_ISREG(status.st_mode) else newest
                if status.st_uid != root_status.st_uid or root_status.st_uid != os.geteuid():
                    blocked = f"{entry.path} belongs to another account"
                if status.st_dev != root_status.st_dev:
                    blocked = f"{entry.path} is another file system"
                if stat.S_ISDIR(status.st_mode) and status.st_dev == root_status.st_dev:
                    folders.append(entry.path)
        return size, newest, blocked

    def _contents(self) -> Iterator[Tuple[str, int]]:
        """Yield the stored contents that have not been used for long; what is in use is at most a day old."""
        root = WorkdirPaths(self.workdir).store
        for folder in scan(root):
            if len(folder.name) == 2 and folder.is_dir(follow_symlinks=False):
                for entry in scan(folder.path):
                    if SHA.match(entry.name) and entry.name.startswith(folder.name):
                        yield from self._if_old(entry.path)
        for entry in scan(os.path.join(root, "incoming")):  # what transfers that broke off have left
            yield from self._if_old(entry.path)

    def _payloads(self) -> Iterator[Tuple[str, int]]:
        """Yield old versions of our own part; while a run lives here or elsewhere, it may need any of them."""
        if self.may_need_payload():
            return
        for entry in scan(WorkdirPaths(self.workdir).payloads):
            if SHA.match(entry.name) and entry.name != self._payload:
                for file in scan(entry.path):
                    if file.name.startswith("payload") and file.name.endswith((".zip", ".new")):
                        yield from self._if_old(file.path)

    def _environments(self) -> Iterator[Tuple[str, int]]:
        """Yield environments that were not used for long, and that no run needs which lives, or may live elsewhere."""
        contents, tags = set(), find_live_tags(self.workdir)
        for rundir in run_dirs(self.workdir, None, None):
            content = Untrusted(read_spec(rundir)).record("setup").text("content")
            if content and (may_be_live(resolve_state(rundir)) or has_processes([rundir], tags)):
                contents.add(content)
        for entry in scan(WorkdirPaths(self.workdir).environments):
            begin = entry.name.partition("-")[0]
            is_needed = any(content.startswith(begin) for content in contents)
            if entry.is_dir(follow_symlinks=False) and not is_needed and self._is_old_environment(entry.path):
                with suppress(FileNotFoundError):
                    size, _, blocked = self._measure(entry.path)
                    if not blocked:
                        yield entry.path, size

    def _is_old_environment(self, folder: str) -> bool:
        """Whether it was not used for long: the file that marks it as complete is as old as its last use."""
        newest = 0.0
        for path in (*(entry.path for entry in scan(folder)), folder):
            with suppress(OSError):
                status = os.lstat(path)
                if status.st_uid != os.geteuid():
                    return False
                if stat.S_ISREG(status.st_mode) or (path == folder and not newest):
                    newest = max(newest, status.st_mtime)
        return time.time() - newest > self._unused

    def may_need_payload(self) -> bool:
        """Whether a run lives here or elsewhere, or waits in the queue of a Slurm cluster."""
        rundirs = list(run_dirs(self.workdir, None, None))
        return any(map(may_wait_in_queue, rundirs)) or any(
            may_be_live(resolve_state(path)) for path in rundirs
        )

    def _if_old(self, path: str) -> Iterator[Tuple[str, int]]:
        self._step()
        with suppress(OSError):
            status = os.lstat(path)
            old = time.time() - status.st_mtime > self._unused
            if old and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                yield path, status.st_size

    def remove(self, request: Removal) -> CleanReport:
        """Remove the parts of runs that are named and, if wished, what the store and `bin` can spare."""
        report: CleanReport = {"runs": 0, "bytes": 0, "contents": 0, "failed": []}
        tags = find_live_tags(self.workdir)
        for run_id, leaf in request["runs"]:
            try:
                rundir = WorkdirPaths(self.workdir).run(component(run_id), component(leaf))
                size = self.remove_run(rundir, tags)
            except (OSError, VerbError) as error:
                report["failed"].append([f"{run_id}/{leaf}", str(getattr(error, "strerror", None) or error)])
                continue
            report["runs"] += 1
            report["bytes"] += size
        remove_all(PREFIX)
        if request["rest"]:
            self._remove_rest(report)
        self._empty_trash(report)
        return report

    def remove_run(self, rundir: str, tags: Set[str]) -> int:
        """Take a part of a run out of sight; it is looked at again, much may have happened since."""
        if RunPaths(rundir).node != self._node:
            raise VerbError("CC-CLEAN-002", "it belongs to another node")
        found = self.describe(rundir, resolve_state(rundir), has_processes([rundir], tags))
        size = self.remove_described(found, rundir)
        with suppress(OSError):
            os.rmdir(os.path.dirname(rundir))  # the last one takes the run's directory with it
        return size

    def remove_described(self, stored_run: StoredRun, folder: str) -> int:
        """Take a folder out of sight in one step, unless its run is live or may be."""
        state = cast("Optional[State]", stored_run["state"])
        if state is not None and state["state"] not in FINAL:
            raise VerbError("CC-CLEAN-002", "it is still running")
        if state is None and stored_run["age"] < DAY:
            raise VerbError("CC-CLEAN-002", "it may be starting")
        if may_be_live(state) and stored_run["age"] < DAY:
            raise VerbError("CC-CLEAN-002", "it may be running on another machine")
        if stored_run["blocked"]:
            raise VerbError("CC-CLEAN-002", stored_run["blocked"])
        self._move_to_trash(folder)
        mirror = mirror_folder(self.workdir, folder)
        if os.path.lexists(mirror):
            self._move_to_trash(mirror)
            with suppress(OSError):
                os.rmdir(os.path.dirname(mirror))
        return int(stored_run["bytes"])

    def _move_to_trash(self, folder: str) -> str:
        """Take a folder out of sight in one step; returns where it is."""
        path = os.path.join(make_private(WorkdirPaths(self.workdir).trash), os.urandom(8).hex())
        grant_owner_access(folder)  # without it, it cannot be moved
        os.rename(folder, path)
        return path

    def _empty_trash(self, report: CleanReport) -> None:
        def on_error(path: str, error: OSError) -> None:
            report["failed"].append([path, error.strerror or str(error)])

        for entry in scan(WorkdirPaths(self.workdir).trash):
            self._step()
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path, self._step, on_error)
            else:
                remove_quietly(entry.path)

    def _remove_rest(self, report: CleanReport) -> None:
        for path, size in [*self._contents(), *self._payloads()]:
            if not any(self._if_old(path)):
                continue  # used since it was found
            with suppress(FileNotFoundError):
                os.unlink(path)
                report["contents"] += 1
                report["bytes"] += size
            if os.path.basename(path).startswith("payload"):
                with suppress(OSError):
                    os.rmdir(os.path.dirname(path))
        report["environments"] = 0
        for folder, size in list(self._environments()):
            try:
                moved = self._move_to_trash(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                report["failed"].append([folder, error.strerror or str(error)])
                continue
            if not self._is_old_environment(moved):
                os.rename(moved, folder)  # a run has just found it
                continue
            report["environments"] += 1
            report["bytes"] += size


def count_unused(found: Iterator[Tuple[str, int]]) -> Unused:
    """Count what could go, and its bytes."""
    sizes = [size for _, size in found]
    return {"contents": len(sizes), "bytes": sum(sizes)}


def may_be_live(state: Optional[State]) -> bool:
    """Whether a part of a run lives, or lives perhaps on another machine that shares the directory."""
    return state is not None and (state["state"] not in FINAL or state["state"] == UNKNOWN)


def may_wait_in_queue(rundir: str) -> bool:
    """Whether this is the folder of a Slurm job that has not ended: it starts with the payload of its launch."""
    is_job = RunPaths(rundir).node.startswith(".")  # see node/slurm/job_files.py
    return is_job and not os.path.exists(os.path.join(rundir, "ended.json"))


def has_processes(rundirs: Iterable[str], tags: Set[str]) -> str:
    """Return that processes of these parts of a run are left; empty without any."""
    specs = [spec for spec in map(read_spec, rundirs) if spec is not None]
    left = any(tag.startswith(run_tag_prefix(spec)) for spec in specs for tag in tags)
    return "some of its processes are still running" if left else ""


def find_live_tags(workdir: str) -> Set[str]:
    """Return the tags of all processes of runs that this account has here, and what those of recorded ones begin with.

    The latter may have been forked before the run was known, and have no tag.
    """
    tags: Set[str] = set()
    for state in filter(None, map(resolve_state, run_dirs(workdir, None, None))):
        if state["state"] == LOST and with_leftovers(state)["left"]:
            tags.add(run_tag_prefix(state))
    prefix = b"CLUSTERCTL_RUN="
    for pid in all_pids():
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as source:
            variables = source.read().split(b"\0")
            tags.update(
                os.fsdecode(variable[len(prefix) :]) for variable in variables if variable.startswith(prefix)
            )
    return tags


def scan(folder: str) -> List[Any]:
    """List a directory that may be gone; nothing if it is a link, which leads to what is not ours to remove."""
    return [] if os.path.islink(folder) else list_entries(folder)
