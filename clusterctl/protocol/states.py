"""The states of a run, and of one node's part of it.

| state        | the node's part                                                              |
|--------------|------------------------------------------------------------------------------|
| SUBMITTED    | its directory is there; guardian and agent are starting                      |
| PREPARING    | locks, setup, gate; the code arrives                                         |
| WAITING      | for a lock, for the other nodes before another attempt, or as a spare        |
| RUNNING      | its workers were let go                                                      |
| SUCCEEDED    | everything ended with 0 and saw the planned WORLD_SIZE                       |
| FAILED       | something else                                                               |
| FAILED_SETUP | it failed before its workers were let go                                     |
| STOPPED      | a person, or another node's failure, stopped it                              |
| TIMEOUT      | the job's time limit stopped it                                              |
| LOST         | guardian and agent are gone, or the other nodes lost it                      |
| UNKNOWN      | the node was restarted meanwhile, or another machine that shares the home has it |

A run that is RUNNING and in which no rank has made progress for the job's `stall` is STALLED; its parts stay RUNNING.
"""

from __future__ import annotations

from typing import Literal

PROTOCOL = 4  # the format of spec.json and state.json; 1 and 2 have other keys, and 3 another state

RunState = Literal[
    "SUBMITTED",
    "PREPARING",
    "WAITING",
    "RUNNING",
    "STALLED",
    "SUCCEEDED",
    "FAILED",
    "FAILED_SETUP",
    "STOPPED",
    "TIMEOUT",
    "LOST",
    "UNKNOWN",
]

SUBMITTED: Literal["SUBMITTED"] = "SUBMITTED"
PREPARING: Literal["PREPARING"] = "PREPARING"
WAITING: Literal["WAITING"] = "WAITING"
RUNNING: Literal["RUNNING"] = "RUNNING"
STALLED: Literal["STALLED"] = "STALLED"
SUCCEEDED: Literal["SUCCEEDED"] = "SUCCEEDED"
FAILED: Literal["FAILED"] = "FAILED"
FAILED_SETUP: Literal["FAILED_SETUP"] = "FAILED_SETUP"
STOPPED: Literal["STOPPED"] = "STOPPED"
TIMEOUT: Literal["TIMEOUT"] = "TIMEOUT"
LOST: Literal["LOST"] = "LOST"
UNKNOWN: Literal["UNKNOWN"] = "UNKNOWN"

LIVE = (SUBMITTED, PREPARING, WAITING, RUNNING, STALLED)
NOT_SUCCEEDED = (FAILED, FAILED_SETUP, STOPPED, TIMEOUT, LOST, UNKNOWN)
FINAL = (SUCCEEDED, *NOT_SUCCEEDED)
STATES = (*FINAL, *LIVE)
