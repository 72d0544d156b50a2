"""Documents of `clean`: runs, unused storage, leftover processes, warm processes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import TypedDict

from clusterctl.client.cleanup import RemovalReport, UnusedStorage
from clusterctl.console.documents.fields_of import FieldsOf
from clusterctl.console.documents.files import FailedNode
from clusterctl.console.documents.runs import WarmProcess
from clusterctl.plans.sync.documents import OutsideFilesEntry
from clusterctl.protocol.messages.facts import Orphan

UnusedStorageEntry = Annotated[dict[str, Any], FieldsOf(UnusedStorage)]


class KeptRun(TypedDict):
    """A run's part on a node, and why it is kept."""

    run: str
    node: str
    why: str


class RemovedRun(KeptRun):
    """A run's part on a node that is removed, and why; sizes in bytes."""

    bytes: int
    outside: OutsideFilesEntry | None


class CleanedNode(TypedDict):
    """What a node holds that no run uses; `removed` is null where nothing was removed."""

    node: str
    store: UnusedStorageEntry
    payloads: UnusedStorageEntry
    environments: UnusedStorageEntry
    removed: Annotated[dict[str, Any], FieldsOf(RemovalReport)] | None


class EndedOrphansEntry(TypedDict):
    """Leftover processes of a node; `left` could not be ended, and is null where nothing was ended."""

    node: str
    processes: list[Annotated[dict[str, Any], FieldsOf(Orphan)]]
    ended: list[str]
    left: list[str] | None


class CleanStorage(TypedDict):
    """What is or would be removed of runs and storage, and what is kept although it is beyond the limits."""

    schema: Literal[1]
    runs: list[RemovedRun]
    stays: list[KeptRun]
    nodes: list[CleanedNode]
    errors: list[FailedNode]


class CleanDocument(CleanStorage):
    """What `clean` removes or would remove: runs, unused storage, leftover processes, warm processes."""

    orphans: list[EndedOrphansEntry]
    warm: list[WarmProcess]


class CleanWarmDocument(TypedDict):
    """What `clean --warm` ends or would end."""

    schema: Literal[1]
    warm: list[WarmProcess]


class CleanOrphansDocument(TypedDict):
    """What `clean --orphans` has ended."""

    schema: Literal[1]
    orphans: list[EndedOrphansEntry]


class OtherOrphans(TypedDict):
    """How many leftover processes another user has on a node."""

    node: str
    user: str
    count: int


class OrphanOfNode(TypedDict):
    """A leftover process of a run: started in clock ticks since the boot, `age` in seconds."""

    node: str
    run: str | None
    pid: int | None
    starttime: int | None
    age: float | None
    command: str | None
    known: bool | None
    job: str | None
    state: str | None
    launched_by: str | None
    launched_id: str | None


class OrphansDocument(TypedDict):
    """Your leftover processes (`clean --orphans --dry-run`), and how many other users have."""

    schema: Literal[1]
    orphans: list[OrphanOfNode]
    others: list[OtherOrphans]
