"""Ranks that ran alone: none of a node's ranks was in a process group of the planned size, as they report themselves.

A group of the planned size has all ranks. So this is certain, if it is certain of every process of the attempt:

- each rank has torch.distributed imported, has reported its end, and its group, if it had one, was smaller, or had
  all its members on this node: all its ranks are reported here, by processes that lived at the same time;
- no other Python process of the attempt had a larger one, or ended without a report (killed, `os._exit`).

All else is undecided: a rank without torch, with jax, mpi4py, ray and the like imported, one that had a group and
destroyed it, and all of a job with `diagnose: false`, `alone: ok`, Ray or mpirun, or whose servants end with node 0.
It is suspected where neither the job nor its script distinguishes the nodes (CC-RUN-050), and no process has reported
a group of more than this node.
What the processes write is in `node/diagnose/rank.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterable, List, NamedTuple, Optional, Sequence

from ....protocol.exit_status import SUSPECTED
from ....protocol.untrusted import MalformedError, parse_object
from ...diagnose.rank import SUFFIX
from ...probe.questions import list_folder, read_text
from ...runtime.processes import Identity
from .workers import Worker

if TYPE_CHECKING:
    from ....protocol.messages.files import AloneRecord, Spec

MAX_PROCESSES = 4096
MAX_NUMBER = 1 << 50


class Group(NamedTuple):
    """What a process reports of its default group; `rank` is -1 and `ended` 0 where that is not known."""

    identity: Identity
    size: int
    rank: int
    ended: int  # ticks, as its start


def find_alone(folder: str, spec: Spec, ranks: Iterable[Worker], *, started: bool) -> Optional[AloneRecord]:
    """Return how many ranks of this node ran alone, or in too small groups; None if it is not certain or suspected.

    `started` by torchrun, ours or the program's, so that each is a Python that reports; else it is the program itself.
    """
    # a program that starts its ranks itself need not start one for each GPU
    planned = spec["world_size"] if spec["module"] else spec["nnodes"]
    if planned is None or planned < 2 or not is_judged(spec):
        return None
    groups = read_groups(folder)
    sizes = {one.identity: one.size for one in groups}
    largest, members = max(sizes.values(), default=0), find_members(groups)
    local = spec["nnodes"] > 1 and members > 0
    if largest >= planned and not local:
        return None
    identities = [worker.identity for worker in ranks]
    is_certain = (
        identities and min(sizes.values(), default=0) > 0 and (not started or set(identities) <= set(sizes))
    )
    ranks_of_node = max(len(identities), members if local else 0)
    if is_certain:
        return {"ranks": ranks_of_node, "largest": largest, "planned": max(planned, spec["nnodes"] * largest)}
    if spec.get("alone") == SUSPECTED and sizes and identities:
        return {"ranks": ranks_of_node, "largest": 0, "planned": planned}
    return None


def find_members(groups: Sequence[Group]) -> int:
    """Return the size of the largest group if all its members are among these processes; else 0."""
    size = max((one.size for one in groups), default=0)
    members = [one for one in groups if one.size == size]
    if size < 2 or sorted(one.rank for one in members) != list(range(size)):
        return 0
    return size if max(one.identity.starttime for one in members) < min(one.ended for one in members) else 0


def is_judged(spec: Spec) -> bool:
    """Return whether the ranks of a job are prepared, and expected to form one process group of torch."""
    if spec.get("diagnose") is False or spec.get("alone") == "ok":
        return False
    return not ("ray" in spec or "mpi" in spec or spec.get("ends_with") == "node 0")


def read_groups(folder: str) -> List[Group]:
    """Read what the processes have written; of size 0 one that has not ended in order, or cannot be read."""
    groups: List[Group] = []
    paths = list_folder(folder, "*" + SUFFIX)
    if len(paths) > MAX_PROCESSES:
        return []
    for path in paths:
        try:
            content = parse_object((read_text(path) or "").encode("utf-8"))
        except MalformedError:
            return []
        pid, starttime, size, rank, ended = (
            content.integer(name, 0, MAX_NUMBER) for name in ("pid", "starttime", "size", "rank", "ended")
        )
        if pid is None or starttime is None or os.path.basename(path) != "%d%s" % (pid, SUFFIX):
            return []
        identity, own_rank = Identity(pid, starttime), -1 if rank is None else rank
        groups.append(Group(identity, size or 0, own_rank, ended or 0))
    return groups
