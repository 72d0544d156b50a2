"""Documents about nodes: `inventory show`, `exec`, `top`, `init` and `lab`; and what lies on them: `pull`, `cp`, `sync`
and `clean`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typing_extensions import NotRequired, TypedDict

from clusterctl.client.cleanup import RemovalReport, UnusedStorage
from clusterctl.console.documents.runs import WarmProcess
from clusterctl.plans.checks.framework import Finding
from clusterctl.plans.runs.documents import FieldsOf, OutsideFilesEntry
from clusterctl.plans.sync.staged import StagedContent
from clusterctl.protocol.messages.facts import Orphan, Sample


class InventoryNode(TypedDict):
    """One node with all defaults; null is left to ssh, or found when it is needed."""

    name: str
    node_rank: int
    host: str
    port: int | None
    user: str | None
    key: str | None
    jump: str | None
    proxy_command: str | None
    config: str | None
    known_hosts: str | None
    host_keys: Literal["strict", "accept-new"] | None
    ip: str | None
    nic: list[str]
    network: str | None
    gpus: int | None
    ports: list[int] | None
    python: str
    activate: str | None
    workdir: str
    spare: bool


class InventoryDocument(TypedDict):
    """The cluster and its nodes, in the order of their ranks."""

    schema: Literal[1]
    cluster: str
    nodes: list[InventoryNode]


class InitDocument(TypedDict):
    """The files that were written, the nodes that they name, and the errors of machines by name."""

    schema: Literal[1]
    files: list[str]
    nodes: list[str]
    errors: dict[str, str]


class CommandAnswer(TypedDict):
    """What a command wrote on a node and how it ended; `cut` names streams that are longer, `left` what still runs."""

    node: str
    exit: int | None
    signal: int | None
    stdout: str
    stderr: str
    cut: list[str]
    left: list[str]
    error: str | None


class ExecDocument(TypedDict):
    """The output of a command on every node."""

    schema: Literal[1]
    nodes: list[CommandAnswer]


class BusyNode(TypedDict):
    """How busy a node is: its newest sample, which is `age` seconds old."""

    name: str
    node_rank: int
    answered: bool
    age: float | None
    error: str | None
    sample: Annotated[dict[str, Any], FieldsOf(Sample)] | None


class TopDocument(TypedDict):
    """How busy the nodes are at `time` (Unix seconds)."""

    schema: Literal[1]
    time: float
    nodes: list[BusyNode]


class Series(TypedDict):
    """One quantity of one thing over time; null is a value that is not known."""

    group: str
    name: str
    quantity: str
    values: list[float | None]


class NodeHistory(TypedDict):
    """How busy a node was: for each time (Unix seconds) a sample that covers `width` seconds."""

    name: str
    width: float
    times: list[float]
    series: list[Series]


class HistoryDocument(TypedDict):
    """How busy the nodes were during a run."""

    schema: Literal[1]
    run: str
    nodes: list[NodeHistory]


PowerState = Literal["on", "off"]


class LabNode(TypedDict):
    """One node of a lab, and the state of each NIC."""

    name: str
    host: str
    ip: str
    power: PowerState
    sshd: PowerState
    nics: dict[str, str]


class LabEntry(TypedDict):
    """One lab and its nodes."""

    name: str
    backend: str
    inventory: str
    nodes: list[LabNode]


class LabsDocument(TypedDict):
    """Running labs."""

    schema: Literal[1]
    labs: list[LabEntry]


class EndedLabsDocument(TypedDict):
    """The names of the labs that were stopped."""

    schema: Literal[1]
    ended: list[str]


class RefusedFile(TypedDict):
    """A file that was not downloaded, and why."""

    path: str
    why: str


class ReceivedFiles(TypedDict):
    """What was downloaded from a node: files with other content here were not replaced, or not read in one piece."""

    node: str
    files: int
    bytes: int
    unchanged: int
    changed_here: list[str]
    written_to: list[str]
    refused: list[RefusedFile]
    error: str | None


class PulledNode(ReceivedFiles):
    """What was downloaded from a node, and what lies there outside the output directory."""

    outside: OutsideFilesEntry | None


class PullDocument(TypedDict):
    """What was downloaded, by node, and into which directory; `run` is null where the job shares its outputs.

    With --checkpoint, `checkpoint` is its name.
    """

    schema: Literal[1]
    run: str | None
    job: str
    directory: str
    nodes: list[PulledNode]
    checkpoint: NotRequired[str]


class CopiedHere(ReceivedFiles):
    """What was copied from a node to this machine."""

    path: str


class CopiedThere(TypedDict):
    """What was copied to a node; `kept` files have other content there, `taken` bytes came from another node."""

    node: str
    path: str
    files: int
    bytes: int
    unchanged: int
    kept: int
    sent: int
    taken: int


class FailedNode(TypedDict):
    """A node that an error has kept from taking part."""

    node: str
    error: str


class CopyDocument(TypedDict):
    """What was copied; `conflicts` are files whose content differs between the nodes that have them."""

    schema: Literal[1]
    received: list[CopiedHere]
    sent: list[CopiedThere]
    conflicts: list[str]
    errors: list[FailedNode]


class StagedNode(TypedDict):
    """What a node has got, or would get: files and bytes, of which it took some from another node."""

    node: str
    files: int
    bytes: int
    unchanged: int
    replaced: int
    sent: int
    taken: int


_Source = TypedDict("_Source", {"from": str})


class StagedEntry(_Source):
    """An entry of the job's `stage`: `tree` is the hash of what was copied, `nodes` what each got of it."""

    to: str
    revision: str
    tree: str
    files: int
    bytes: int
    nodes: list[StagedNode]


class StageDocument(TypedDict):
    """What was staged, or with `dry_run` would be: each entry of the job with its hash, and what each node got."""

    schema: Literal[1]
    dry_run: bool
    staged: list[StagedEntry]
    errors: list[FailedNode]


class SyncedNode(TypedDict):
    """What a node holds: `tree` is the hash of the code, null where it does not hold it; sizes in bytes."""

    node: str
    tree: str | None
    sent: int | None
    taken: int | None
    taken_from: str | None
    error: str | None


class SyncDocument(TypedDict):
    """The code that was sent, and what every node holds."""

    schema: Literal[1]
    tree: str
    files: int
    bytes: int
    nodes: list[SyncedNode]


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


class CleanDocument(TypedDict):
    """What `clean` removes or would remove: runs, unused storage, leftover processes, warm processes."""

    schema: Literal[1]
    runs: list[RemovedRun]
    stays: list[KeptRun]
    nodes: list[CleanedNode]
    errors: list[FailedNode]
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


StagedOfNode = Annotated[
    dict[str, Any],
    FieldsOf(
        StagedContent,
        (("node", str),),
        "StagedOfNode",
        "Content that was staged on a node; of `differing` files that are not as they were, `problems` are the first.",
    ),
]


class VerifyDocument(TypedDict):
    """What was staged from the job's sources, and in what nodes differ from it or from each other."""

    schema: Literal[1]
    staged: list[StagedOfNode]
    findings: list[Annotated[dict[str, Any], FieldsOf(Finding)]]
    errors: list[FailedNode]


class RemovedStaged(TypedDict):
    """What a node has removed of staged content; null where nothing was removed."""

    node: str
    removed: Annotated[dict[str, Any], FieldsOf(RemovalReport)] | None


class CleanStagedDocument(TypedDict):
    """What `clean --staged` removes or would remove."""

    schema: Literal[1]
    staged: list[StagedOfNode]
    nodes: list[RemovedStaged]
    errors: list[FailedNode]


class OtherOrphans(TypedDict):
    """How many leftover processes another user has on a node."""

    node: str
    user: str
    count: int


OrphanOfNode = Annotated[
    dict[str, Any],
    FieldsOf(
        Orphan,
        (("node", str),),
        "OrphanOfNode",
        "A leftover process of a run: started in clock ticks since the boot, `age` in seconds.",
    ),
]


class OrphansDocument(TypedDict):
    """Your leftover processes (`clean --orphans --dry-run`), and how many other users have."""

    schema: Literal[1]
    orphans: list[OrphanOfNode]
    others: list[OtherOrphans]
