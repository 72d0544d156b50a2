"""The verb `slurm_pulse`: what the login node of a Slurm cluster answers to `ps`, with how far the runs are.

The logs are in the directory that the login node shares with the nodes; of each run those of its first node are read.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from ...runtime.stream import Stream
from ...slurm.states import find_jobs, query_jobs, states_as_listed
from .pulse import add_progress

if TYPE_CHECKING:
    from ....protocol.messages.verbs import PsRequest


def run(request: PsRequest, stream: Stream) -> None:
    """Answer with one frame of states."""
    workdir = os.path.realpath(os.path.expanduser(request["workdir"]))
    jobs = query_jobs(list(find_jobs(workdir, request["run"])))
    states = states_as_listed(jobs, request["limit"])
    stream.answer({"runs": add_progress(workdir, states, node_rank=0), "time": time.time()})
