"""The verb `orphans`: processes of runs without guardian and agent, and how they are ended.

request {"workdir", "node", "end": null}                     node {"orphans": [...], "others": {user: count}}
request {"workdir", "node", "end": [[pid, starttime], ...]}  node {"ended": [...], "left": [...]}; beats before

An orphan has the tag of a run on this node that has neither guardian nor agent here. Ended is only what was named,
still is an orphan of this account, and belongs to a run of this work directory.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Dict, List, Set, Tuple

from ...protocol.messages.facts import Orphan
from ...protocol.messages.record import to_json
from ...protocol.run_paths import RunPaths
from ...protocol.states import LOST
from ..runtime.processes import (
    UNKILLABLE_AFTER,
    Identity,
    ProcessTree,
    Stat,
    all_pids,
    describe_leftovers,
    find_process,
    read_stat,
)
from ..runtime.stream import Stream
from ..state.run_files import run_dirs
from ..state.run_record import resolve_state, run_tag_prefix, with_leftovers

if TYPE_CHECKING:
    from ...protocol.messages.verbs import OrphansEnded, OrphansRequest

GRACE = 5.0  # seconds between TERM and KILL
POLL_INTERVAL = 0.05
MAX_ORPHANS = 500  # processes reported
TAG_PREFIX = b"CLUSTERCTL_RUN="


def run(request: OrphansRequest, stream: Stream) -> None:
    """List the orphans of this node, or end some."""
    orphans, others = find(request["workdir"], request["node"])
    end = request["end"]
    if end is None:
        stream.answer({"orphans": to_json(orphans[:MAX_ORPHANS]), "others": others})
        return
    known = {(orphan.pid, orphan.starttime) for orphan in orphans if orphan.known}
    named = sorted({(int(pid), int(starttime)) for pid, starttime in end})
    stream.answer(terminate([Identity(*identity) for identity in named if identity in known], stream))


def find(workdir: str, node: str) -> Tuple[List[Orphan], Dict[str, int]]:
    """Look at every process once; gives this account's orphans, and how many others have, as far as can be seen."""
    watched, tagged = _scan_processes()
    rundirs = run_dirs(os.path.realpath(os.path.expanduser(workdir)), None, node)
    states = {RunPaths(rundir).run_id: resolve_state(rundir) for rundir in rundirs}
    for state in filter(None, states.values()):
        # of a run that began on a warm node what is on record may have no tag
        for found in with_leftovers(state)["left"] if state["state"] == LOST else ():
            tagged.setdefault(
                found["pid"], (os.geteuid(), "%s%d" % (run_tag_prefix(state), state["attempt"]))
            )
    orphans: List[Orphan] = []
    others: Dict[str, int] = {}
    for pid, (uid, tag) in sorted(tagged.items()):
        run_id, _, node_and_attempt = tag.partition("/")
        name = node_and_attempt.rpartition("/")[0]
        stat = read_stat(pid)
        if (run_id, name) in watched or name != node or stat is None or not stat.running:
            continue
        if uid != os.geteuid():
            user = _user(uid)
            others[user] = others.get(user, 0) + 1
            continue
        known: Any = states.get(run_id) or {}
        fields = {key: known.get(key) for key in ("job", "launched_by", "launched_id", "state")}
        orphans.append(Orphan(run=run_id, known=bool(known), **fields, **_describe_process(stat)))
    return orphans, others


def _scan_processes() -> Tuple[Set[Tuple[str, str]], Dict[int, Tuple[int, str]]]:
    """Return the runs that are watched over, as (run, node), and the processes with a tag, with their account."""
    watched: Set[Tuple[str, str]] = set()
    tagged: Dict[int, Tuple[int, str]] = {}
    for pid in all_pids():
        with suppress(OSError):
            arguments = _read_fields(pid, "cmdline")
            if len(arguments) > 3 and arguments[-3] == b"guardian":
                paths = RunPaths(os.fsdecode(arguments[-2]))
                watched.add((paths.run_id, paths.node))
                continue
            tags = [entry for entry in _read_fields(pid, "environ") if entry.startswith(TAG_PREFIX)]
            if tags and pid != os.getpid():
                tag = os.fsdecode(tags[0][len(TAG_PREFIX) :])
                tagged[pid] = (os.stat("/proc/%d" % pid).st_uid, tag)
    return watched, tagged


def _read_fields(pid: int, file: str) -> List[bytes]:
    with open("/proc/%d/%s" % (pid, file), "rb") as source:
        return source.read().split(b"\0")[:-1]


def _describe_process(stat: Stat) -> Any:
    command = b""
    with suppress(OSError):
        command = b" ".join(_read_fields(stat.pid, "cmdline"))[:300]
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - stat.starttime / os.sysconf("SC_CLK_TCK")
    text = command.decode("utf-8", "replace") or "[%s]" % stat.name
    return {"pid": stat.pid, "starttime": stat.starttime, "age": max(0.0, age), "command": text}


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


def terminate(identities: List[Identity], stream: Stream) -> OrphansEnded:
    """Send TERM, and KILL to those that are still there after a while."""
    process_tree, started = ProcessTree(""), time.monotonic()
    while True:
        remaining = [stat for stat in map(find_process, identities) if stat is not None and stat.running]
        elapsed = time.monotonic() - started
        if not remaining or elapsed > GRACE + UNKILLABLE_AFTER:
            break
        if elapsed > GRACE:
            process_tree.kill(remaining)
        else:
            process_tree.terminate(remaining)
        stream.beat()
        time.sleep(POLL_INTERVAL)
    pids = {stat.pid for stat in remaining}
    ended = [entry for entry in process_tree.signalled() if entry["pid"] not in pids]
    return {"ended": ended, "left": describe_leftovers(remaining)}
