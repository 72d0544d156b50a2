"""Ranks that ran alone: none of a node's ranks was in a process group of the planned size, as they report themselves.

A group of the planned size has all ranks. So this is certain, if it is certain of every process of the attempt:

- each rank has torch.distributed imported, has reported its end, and its group, if it had one, was smaller, or had
  all its members on this node;
- no other Python process of the attempt had a larger one, or ended without a report (killed, `os._exit`).

All else is undecided: a rank without torch, with jax, mpi4py, ray and the like imported, one that had a group and
destroyed it, and all of a job with `diagnose: false`, `alone: ok`, Ray or mpirun, or whose servants end with node 0.
It is suspected where neither the job nor its script distinguishes the nodes (CC-RUN-050), and no process has reported
a group of more than this node.
What the processes write is in `node/diagnose/group.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Dict, Iterable, Mapping, Optional, Tuple

from ....protocol.exit_status import SUSPECTED
from ....protocol.untrusted import MalformedError, parse_object
from ...diagnose.group import SUFFIX
from ...probe.questions import list_folder, read_text
from ...runtime.processes import Identity
from .workers import Worker

if TYPE_CHECKING:
    from ....protocol.messages.files import AloneRecord, Spec

MOST_PROCESSES = 4096
LARGEST_NUMBER = 1 << 50


def find_alone(folder: str, spec: Spec, ranks: Iterable[Worker], *, started: bool) -> Optional[AloneRecord]:
    """Return how many ranks of this node ran alone, or in too small groups; None if it is not certain or suspected.

    `started` by torchrun, ours or the program's, so that each is a Python that reports; else it is the program itself.
    """
    # a program that starts its ranks itself need not start one for each GPU
    planned = spec["world_size"] if spec["module"] else spec["nnodes"]
    if planned is None or planned < 2 or not is_judged(spec):
        return None
    sizes = read_sizes(folder)
    largest, own = measure_largest(sizes)
    local = largest > 1 and own >= largest
    if largest >= planned and not local:
        return None
    identities = [worker.identity for worker in ranks]
    is_certain = (
        identities and min(sizes.values(), default=0) > 0 and (not started or set(identities) <= set(sizes))
    )
    ranks_of_node = max(len(identities), own if local else 0)
    if is_certain:
        return {"ranks": ranks_of_node, "largest": largest, "planned": max(planned, spec["nnodes"] * largest)}
    if spec.get("alone") == SUSPECTED and sizes and identities:
        return {"ranks": ranks_of_node, "largest": 0, "planned": planned}
    return None


def measure_largest(sizes: Mapping[Identity, int]) -> Tuple[int, int]:
    """Return the size of the largest process group, and how many processes of this node were in one of that size."""
    largest = max(sizes.values(), default=0)
    return largest, sum(size == largest for size in sizes.values())


def is_judged(spec: Spec) -> bool:
    """Return whether the ranks of a job are prepared, and expected to form one process group of torch."""
    if spec.get("diagnose") is False or spec.get("alone") == "ok":
        return False
    return not ("ray" in spec or "mpi" in spec or spec.get("ends_with") == "node 0")


def read_sizes(folder: str) -> Dict[Identity, int]:
    """Read what the processes have written; 0 for one that has not ended in order, or cannot be read."""
    sizes: Dict[Identity, int] = {}
    paths = list_folder(folder, "*" + SUFFIX)
    if len(paths) > MOST_PROCESSES:
        return {}
    for path in paths:
        try:
            content = parse_object((read_text(path) or "").encode("utf-8"))
        except MalformedError:
            return {}
        pid, starttime = (content.integer(name, 0, LARGEST_NUMBER) for name in ("pid", "starttime"))
        if pid is None or starttime is None or os.path.basename(path) != "%d%s" % (pid, SUFFIX):
            return {}
        sizes[Identity(pid, starttime)] = content.integer("size", 0, LARGEST_NUMBER) or 0
    return sizes
