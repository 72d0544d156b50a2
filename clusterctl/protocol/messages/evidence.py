"""What a node knows of a run's ranks and of its own load: the answers of the verbs `diagnose` and `history`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from .files import HaltedProcess, KeptDiagnosis

if TYPE_CHECKING:
    from typing_extensions import NotRequired


class RecordedGroup(TypedDict):
    """A process group in torch's flight recorder: `about` is its description, `members` its ranks if they are known.

    An entry is [number, number among sends and receives or null, operation, sizes, types, whether it is over, seconds
    since it was entered].
    """

    name: str
    about: str
    members: str
    entries: list[list[Any]]


class RankCall(TypedDict, total=False):
    """The call in which a rank's main thread is: its text in the job's code, or which rank it sends to or gets from.

    Of a function of torch.distributed also its ranks: `all` of the job, or `ranks`.
    """

    text: str
    peer: int | None
    all: bool
    ranks: list[int]


class RankEvidence(TypedDict):
    """Where a rank is: `stack` is an index into the stacks, `cpu` the processors that it used meanwhile.

    `waits_in` is a function of the kernel, `silent` the seconds since its last output; `uncaught` is whether it reports
    that an exception has ended its script; `left` has kind and name of what it waits for before it exits.
    """

    rank: int
    pid: int | None
    problem: str
    exit: NotRequired[int | None]
    signal: NotRequired[int | None]
    stderr: NotRequired[str]
    silent: NotRequired[float | None]
    process: NotRequired[str]
    waits_in: NotRequired[str]
    traced: NotRequired[bool]
    uncaught: NotRequired[bool]
    cpu: NotRequired[float | None]
    stack: NotRequired[int]
    groups: NotRequired[list[RecordedGroup]]
    records_problem: NotRequired[str]
    call: NotRequired[RankCall]
    left: NotRequired[list[list[str]]]


class WatcherEvidence(HaltedProcess):
    """The guardian, the agent or torchrun of a node, which lives; `halted` by a signal or a debugger."""

    halted: bool


class BusyProcess(TypedDict):
    """The process that used most processors for a moment, and is none of the run; `cores` is how many."""

    pid: int
    name: str
    cores: float


class Diagnosis(TypedDict, total=False):
    """The ranks of a node; equal stacks stand there once. `code` is the run's code, `took` is in seconds.

    Nothing of it is there where nothing of the run was ever started; ages count until `time`, by the node's clock.
    `clocks` are the hub's: the other nodes' clocks minus its own, in microseconds. `busiest` is kept with collectives.
    """

    ranks: list[RankEvidence]
    watchers: list[WatcherEvidence]
    stacks: list[str]
    code: str
    took: float
    time: float
    clocks: dict[str, int]
    busiest: BusyProcess | None


class KeptCollectives(TypedDict):
    """What the agent has kept while the run went on: the last collectives of the ranks."""

    diagnosis: Diagnosis


class KeptEvidence(KeptDiagnosis):
    """What the agent has kept, and why: where the ranks were."""

    diagnosis: Diagnosis


class GpuAbout(TypedDict):
    """A GPU; memory in bytes, and how many PCIe lanes it can use."""

    name: str
    memory: float | None
    lanes: int | None


class MachineAbout(TypedDict):
    """What does not change of a node; memory in bytes."""

    cores: int | None
    memory: int | None
    gpus: list[GpuAbout]


class HistoryHeader(TypedDict):
    """The body is zlib of all times (doubles), then for each column its values (floats; not-a-number is unknown).

    A column is [group, name, quantity], as ["gpu", "0", "busy"]; `width` is the seconds that a value stands for.
    """

    columns: list[list[str]]
    about: MachineAbout
    width: float
    rows: int
    time: float


class LaunchedWith(TypedDict):
    """What was started on this node, from the spec."""

    argv: list[str]
    module: str | None
    python: str
    env: dict[str, str]
    nic: list[str]
    address: str | None
    nproc: int | None
    gpus: list[int | None]
    about: dict[str, str]
    job: dict[str, str]  # other keys of the job's file, each as a text


class RankOutput(TypedDict):
    """The last lines of a rank."""

    stdout: list[str]
    stderr: list[str]


class ReplacedLogRecord(TypedDict):
    """A log that is no file any more, and what is there."""

    log: str
    replaced_by: str


class OutputFrame(TypedDict):
    """The last lines of each rank."""

    output: dict[str, RankOutput]
    replaced: list[ReplacedLogRecord]


class ScalarSeries(TypedDict):
    """Numbers of the run: of a rank's log or of TensorBoard.

    A point is [time, step or null, value or null], and the epoch behind these where it has no step.
    """

    name: str
    source: str
    count: int
    points: list[list[Any]]


class PrintedProgress(TypedDict):
    """How far a training is by its own log, each as far as it prints it."""

    step: int | None
    total: int | None
    epoch: float | None
    epochs: int | None


class ScalarsFrame(TypedDict):
    """All numbers; `cut` if there was no time to read all."""

    scalars: list[ScalarSeries]
    progress: PrintedProgress | None
    cut: bool
