"""Ranks that ran alone: none of a node's ranks was in a process group of the planned size, as they report themselves.

A group of the planned size has all ranks. So this is certain, if it is certain of every process of the attempt:

- each rank has torch.distributed imported, has reported its end, and its group, if it had one, was smaller;
- no other Python process of the attempt had a larger one, or ended without a report (killed, `os._exit`).

All else is undecided: a rank without torch, with jax, mpi4py, ray and the like imported, one that had a group and
destroyed it, and all of a job with `diagnose: false`, `alone: ok`, Ray or mpirun, or whose servants end with node 0.
What the processes write is in `node/diagnose/group.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Dict, Iterable, Optional

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
    """Return how many ranks of this node ran alone, or in too small groups; None if that is not certain.

    `started` by torchrun, ours or the program's, so that each is a Python that reports; else it is the program itself.
    """
    # a program that starts its ranks itself need not start one for each GPU
    planned = spec["world_size"] if spec["module"] else spec["nnodes"]
    if planned is None or planned < 2 or not is_judged(spec):
        return None
    sizes = read_sizes(folder)
    if not sizes or min(sizes.values()) < 1 or max(sizes.values()) >= planned:
        return None
    identities = [worker.identity for worker in ranks]
    if not identities or (started and not set(identities) <= set(sizes)):
        return None
    return {"ranks": len(identities), "largest": max(sizes.values()), "planned": planned}


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
