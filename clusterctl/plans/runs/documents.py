"""Parts of the JSON documents of verbs that functions of `plans` make; whole documents are in `console/documents`."""

from __future__ import annotations

from typing_extensions import TypedDict

from clusterctl.protocol.messages.files import KeptReason
from clusterctl.protocol.states import RunState


class OutsideFilesEntry(TypedDict):
    """Files of one node that were not sent with the code, or changed since; `more`: not all were counted."""

    files: int
    bytes: int
    names: list[str]
    more: bool


class HangEntry(TypedDict):
    """Where the ranks were before the end, or are since they made no progress for `seconds`."""

    why: KeptReason
    seconds: float | None
    summary: str
    code: str
    sentence: str
    next: str
    suspects: list[int]


class AloneEntry(TypedDict):
    """How many ranks had no process group of more than `largest`, where `planned` were to be in one."""

    ranks: int
    largest: int
    planned: int
    code: str


class AttemptEntry(TypedDict):
    """One attempt that has ended; times are Unix seconds by the clock of the node that reported it."""

    attempt: int
    reason: str
    text: str
    node: str | None
    began: float | None
    ended: float | None
    progress: bool | None


class FailureEntry(TypedDict):
    """How a rank, or without one a node or its torchrun, ended; `time` in Unix seconds."""

    node: str
    rank: int | None
    ending: str
    time: float


class CauseEntry(FailureEntry):
    """What failed first, what it wrote, what is known of it, and what followed from it."""

    exception: str
    code: str | None
    meaning: str
    advice: str
    command: str
    stderr: list[str]
    consequences: list[FailureEntry]


class VerdictEntry(TypedDict):
    """How a run ended, by node where that differs; `recorded`: its nodes have the complete record of the end."""

    state: RunState
    exit_code: int
    seconds: float | None
    nodes: dict[str, RunState]
    reasons: dict[str, str]
    left: dict[str, list[str]]
    gpu_memory: dict[str, list[str]]
    attempt: int
    attempts: list[AttemptEntry]
    gave_up: str | None
    spares: list[str]
    after: dict[str, str]
    outside: dict[str, OutsideFilesEntry]
    world_sizes: dict[str, int]
    cause: CauseEntry | None
    alone: AloneEntry | None
    hang: HangEntry | None
    recorded: bool
    slow: str | None


class PlannedNode(TypedDict):
    """What one node would run; `<name>` in a text is what is known only when the run starts."""

    node: str
    node_rank: int | None
    spare: bool
    ip: str | None
    nic: list[str]
    activate: str | None
    env: dict[str, str]
    argv: list[str]


class LaunchPlanEntry(TypedDict):
    """What all nodes would run, in the order of their ranks, spares last."""

    job: str
    world_size: int | None
    nodes: list[PlannedNode]


class SetupEntry(TypedDict):
    """The commands that make the job's environment, and the files that they need."""

    content: str
    files: int
    bytes: int
    steps: list[str]


class OnEndEntry(TypedDict):
    """The command that is run on this machine at the end; `time_limit` in seconds, an empty `when` is every end."""

    command: list[str]
    when: list[str]
    time_limit: float


class NotifyEntry(TypedDict):
    """A notification of the end; URL and secret are names of variables."""

    to: str
    url_from: str
    secret_from: str | None
    when: list[str]


class HooksEntry(TypedDict):
    """What would be done on this machine at the end."""

    on_end: OnEndEntry | None
    notify: list[NotifyEntry]


class LaunchPreview(LaunchPlanEntry, HooksEntry):
    """What `launch` would do, without asking a node."""

    setup: SetupEntry | None
