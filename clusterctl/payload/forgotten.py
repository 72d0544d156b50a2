"""Runs whose directory was removed while they lived: found by their tag, and by the path given to their guardian."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Iterator, List, Set

from .ending import LEFT_AFTER, Sweep, as_left
from .processes import Identity, Stat, descendants, own_processes, tagged_below

LOOK = 0.05
BEAT = 2.0
GRACE = 10.0  # seconds between TERM and KILL; the job's own went with the directory

Request = Dict[str, Any]


def end_forgotten(workdir: str, request: Request) -> Iterator[Dict[str, Any]]:
    """Yield beats, and at last what was ended and what is left."""
    sweep = Sweep(f"{request['run']}/{request['node']}/")
    folder = os.path.join(workdir, "runs", request["run"])
    found = find(folder, request["node"], sweep.tag)
    supervisors = {stat.pid for stat in guardians(folder, request["node"])}
    sweep.ask(topmost(found, supervisors))
    grace = GRACE if request.get("grace") is None else float(request["grace"])
    begun = beaten = time.monotonic()
    while found and time.monotonic() - begun < grace + LEFT_AFTER:
        working = [stat for stat in found if stat.pid not in supervisors]
        if not working or time.monotonic() - begun > grace:
            sweep.kill(found)
        time.sleep(LOOK)
        if time.monotonic() - beaten > BEAT:
            beaten = time.monotonic()
            yield {"beat": int(beaten - begun)}
        found = find(folder, request["node"], sweep.tag)
    yield {"stopped": {"ended": sweep.account(), "left": as_left(found), "state": None}}


def find(folder: str, node: str, tag: str) -> List[Stat]:
    """Look at the run's supervisors, all that is below them, and all that bears the tag."""
    found: Dict[Identity, Stat] = {}
    for stat in guardians(folder, node):
        found.update((below.identity, below) for below in (stat, *descendants(stat.pid)))
    found.update((stat.identity, stat) for stat in tagged_below(tag))
    return [stat for stat in found.values() if stat.running]


def guardians(folder: str, node: str) -> Iterator[Stat]:
    """Look for guardian and agent: what was started with this run's directory on this node as its guardian's place."""

    def fits(words: List[bytes]) -> bool:
        place = os.fsdecode(words[-2]) if words[-3:-2] == [b"guardian"] else ""
        parent, name = os.path.split(place)
        return parent == folder and name.partition("-")[2] == node

    return own_processes("cmdline", fits)


def topmost(found: List[Stat], supervisors: Set[int]) -> List[Stat]:
    """Keep torchrun, or what is left without it: processes that no other of the run has started."""
    pids = {stat.pid for stat in found} - supervisors
    return [stat for stat in found if stat.pid in pids and stat.parent not in pids]
