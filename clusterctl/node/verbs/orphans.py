"""The verb `orphans`: processes of runs that nobody watches over any more, and how they are ended.

request {"workdir", "node", "end": null}                     node {"orphans": [...], "others": {user: count}}
request {"workdir", "node", "end": [[pid, starttime], ...]}  node {"ended": [...], "left": [...]}, and beats before

An orphan bears the tag of a run on this node that has neither guardian nor agent here. Ended is only what was named,
still is an orphan of this account, and belongs to a run of this work directory.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from ..runtime.processes import LEFT_AFTER, Identity, Stat, Sweep, all_pids, as_left, look, read_stat
from ..runtime.stream import Stream, VerbError
from ..state.run_record import look_for_run, resolve

GRACE = 5.0  # seconds between TERM and KILL
LOOK = 0.05
BEAT = 2.0
MOST = 500  # processes told
MARK = b"CLUSTERCTL_RUN="

Orphan = Dict[str, Any]


def run(request: Dict[str, Any], stream: Stream) -> None:
    """List the orphans of this node, or end some."""
    found, others = find(request["workdir"], request["node"])
    if request.get("end") is None:
        stream.send({"orphans": found[:MOST], "others": others})
        return
    named = {(int(pid), int(starttime)) for pid, starttime in request["end"]}
    wanted = [one for one in found if (one["pid"], one["starttime"]) in named and one["known"]]
    for frame in end([Identity(one["pid"], one["starttime"]) for one in wanted]):
        stream.send(frame)


def find(workdir: str, node: str) -> Tuple[List[Orphan], Dict[str, int]]:
    """Look at every process once; gives this account's orphans, and how many others have, as far as can be seen."""
    watched, bearers = _survey()
    found: List[Orphan] = []
    others: Dict[str, int] = {}
    runs: Dict[str, Dict[str, Any]] = {}
    for pid, (uid, tag) in sorted(bearers.items()):
        run_id, _, rest = tag.partition("/")
        name, _, attempt = rest.rpartition("/")
        stat = read_stat(pid)
        if (run_id, name) in watched or name != node or stat is None or not stat.running:
            continue
        if uid != os.geteuid():
            user = _user(uid)
            others[user] = others.get(user, 0) + 1
            continue
        if run_id not in runs:
            runs[run_id] = _describe(workdir, run_id, node)
        found.append({"run": run_id, "attempt": attempt, **_tell(stat), **runs[run_id]})
    return found, others


def _survey() -> Tuple[Set[Tuple[str, str]], Dict[int, Tuple[int, str]]]:
    """Give the runs that are watched over, as (run, node), and the processes that bear a tag, with their account."""
    watched: Set[Tuple[str, str]] = set()
    bearers: Dict[int, Tuple[int, str]] = {}
    for pid in all_pids():
        with suppress(OSError):
            words = _words(pid, "cmdline")
            if len(words) > 3 and words[-3] == b"guardian":
                run_dir, leaf = os.path.split(os.fsdecode(words[-2]))
                watched.add((os.path.basename(run_dir), leaf.partition("-")[2]))
                continue
            tag = next((word[len(MARK) :] for word in _words(pid, "environ") if word.startswith(MARK)), b"")
            if tag and pid != os.getpid():
                bearers[pid] = (os.stat("/proc/%d" % pid).st_uid, os.fsdecode(tag))
    return watched, bearers


def _words(pid: int, file: str) -> List[bytes]:
    with open("/proc/%d/%s" % (pid, file), "rb") as source:
        return source.read().split(b"\0")[:-1]


def _describe(workdir: str, run_id: str, node: str) -> Dict[str, Any]:
    """Tell whose run it was, where this work directory knows it."""
    state: Optional[Dict[str, Any]] = None
    with suppress(OSError, VerbError):
        rundir = look_for_run(workdir, run_id, node)
        state = resolve(rundir) if rundir is not None else None
    told = {key: (state or {}).get(key) for key in ("job", "launched_by", "launched_id", "state")}
    return {"known": state is not None, **told}


def _tell(stat: Stat) -> Dict[str, Any]:
    command = b""
    with suppress(OSError):
        command = b" ".join(_words(stat.pid, "cmdline"))[:300]
    age = _uptime() - stat.starttime / os.sysconf("SC_CLK_TCK")
    text = command.decode("utf-8", "replace") or "[%s]" % stat.name
    return {"pid": stat.pid, "starttime": stat.starttime, "age": max(0.0, age), "command": text}


def _uptime() -> float:
    with open("/proc/uptime", "rb") as source:
        return float(source.read().split()[0])


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "uid %d" % uid


def end(wanted: List[Identity]) -> Iterator[Dict[str, Any]]:
    """Send TERM, and KILL to those that are still there after a while; yields beats, and the account at last."""
    sweep = Sweep("")
    begun = beaten = time.monotonic()
    rest = _running(wanted)
    sweep.ask(rest)
    while rest and time.monotonic() - begun < GRACE + LEFT_AFTER:
        time.sleep(LOOK)
        rest = _running(wanted)
        if time.monotonic() - begun > GRACE:
            sweep.kill(rest)
        if time.monotonic() - beaten > BEAT:
            beaten = time.monotonic()
            yield {"beat": int(beaten - begun)}
    left = as_left(rest)
    pids = {entry["pid"] for entry in left}
    yield {"ended": [entry for entry in sweep.account() if entry["pid"] not in pids], "left": left}


def _running(wanted: List[Identity]) -> List[Stat]:
    return [stat for stat in map(look, wanted) if stat is not None and stat.running]
