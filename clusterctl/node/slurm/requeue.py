"""A job that Slurm starts again: every start is an attempt of the same run.

Slurm stops a job to run another (preemption), when a node fails, or by `scontrol requeue`, and puts it back into the
queue with the same number. The agents have recorded the end of their attempt by then, or are gone. In the queue the run
is shown as SUBMITTED with the next attempt; its tasks then put the records of the old start aside, each on its node.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, List, NamedTuple, cast

from ...protocol.reasons import REQUEUED, STOPPED_BY_SLURM
from ...protocol.run_paths import ATTEMPT, RunPaths, part_name
from ...protocol.states import FINAL
from ..state.run_record import read_state
from ..state.workdir import make_below, make_private
from .job_files import JobFiles

if TYPE_CHECKING:
    from ...protocol.messages.files import AttemptRecord, State
    from .spec import Member

EARLIER = "earlier"  # the folder of parts whose nodes Slurm did not give again
TEMPORARY_FAILURE = 75  # of a task that Slurm has stopped: the job may start again (EX_TEMPFAIL)


class Earlier(NamedTuple):
    """What is known of earlier starts: the number of their last attempt, 0 without one, and all that have ended."""

    attempt: int
    attempts: List[AttemptRecord]


def was_stopped_by_slurm(state: State) -> bool:
    """Whether this part ended by Slurm's own signal."""
    return state["state"] in FINAL and STOPPED_BY_SLURM in state["reason"]


def read_earlier(files: JobFiles, own: str, number: str) -> Earlier:
    """Read of a part's own directory, or of the first one, which attempts there were before this start."""
    paths = files.part_folders()
    chosen = os.path.join(files.run_folder, own)
    for path in [chosen] if chosen in paths else paths[:1]:
        state = read_state(path)
        if state is not None:
            return earlier_of(state, number, own=path == chosen)
    return Earlier(0, [])


def earlier_of(state: State, number: str, *, own: bool = True) -> Earlier:
    """Return the attempts up to the one that Slurm has ended; ranks and files only of a part's own."""
    attempts = [*(state.get("attempts") or []), interrupted_attempt(state, number)]
    if not own:
        attempts = [cast("AttemptRecord", {**one, "ranks": {}}) for one in attempts]
    return Earlier(state["attempt"], attempts)


def interrupted_attempt(state: State, number: str) -> AttemptRecord:
    """Record the attempt that was under way when Slurm took the nodes away."""
    return {
        "attempt": state["attempt"],
        "began": state["began"],
        "ended": state["since"] if state["state"] in FINAL else None,
        "node_rank": state["node_rank"],
        "state": state["state"],
        "reason": state["reason"],
        "cause_reason": REQUEUED,
        "node": state["node"],
        "text": f"Slurm stopped job {number} and put it back into the queue",
        "progress": None,
        "ranks": state["ranks"],
    }


def archive_old_parts(files: JobFiles, key: str, own: Member, members: List[Member]) -> None:
    """Move the records of the old start away: a part's own beside its logs, by node 0 those of nodes that are gone."""
    rundir = os.path.join(files.run_folder, part_name(own.slot, own.node))
    state = read_state(rundir)
    if state is not None:
        keep_with_attempt(rundir, state["attempt"])
    if own.slot != 0:
        return
    current = {part_name(member.slot, member.node) for member in members}
    for path in files.part_folders():
        if os.path.basename(path) not in current:
            folder = make_below(make_private(os.path.join(files.folder, EARLIER)), key)
            with suppress(OSError):
                os.rename(path, os.path.join(folder, os.path.basename(path)))


def keep_with_attempt(rundir: str, attempt: int) -> None:
    """Move what an agent wrote to the folder of its last attempt, so that the next agent begins without it."""
    paths = RunPaths(rundir)
    folder = make_below(rundir, f"{ATTEMPT}{attempt}")
    for path in (
        paths.spec,
        paths.events,
        paths.gang_record,
        paths.stop_request,
        paths.agent_log,
        paths.state,
    ):
        with suppress(FileNotFoundError):
            os.rename(path, os.path.join(folder, os.path.basename(path)))
