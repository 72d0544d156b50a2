"""Parts of the JSON documents of verbs that functions here make; whole documents are in `console/documents`."""

from __future__ import annotations

from typing_extensions import TypedDict


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
