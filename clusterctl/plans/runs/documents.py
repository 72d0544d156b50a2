"""Parts of the JSON documents of verbs that functions of `plans` make, and how a part is declared by a class.

Whole documents are in `console/documents`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from typing_extensions import TypedDict

from clusterctl.plans.sync.listed_files import OutsideFiles
from clusterctl.protocol.messages.files import AloneRecord, KeptReason
from clusterctl.protocol.messages.record import Record, fields_of
from clusterctl.protocol.states import RunState

NO_KEYS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class FieldsOf:
    """Marks a part of a document that has the fields of a class: `Annotated[dict[str, Any], FieldsOf(Facts)]`.

    The class is then the one declaration: pydantic reads it for the schema, so a new field is in both. `other` are the
    keys that have another type in the document, as nodes by name for nodes by number, or that the class lacks; such a
    part has its own name and description.
    """

    kind: type
    other: tuple[tuple[str, Any], ...] = ()
    name: str = ""
    text: str = ""

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], Any]) -> Any:
        """Return pydantic's schema of the class."""
        if not (self.other or self.name):
            return handler(_without_records(self.kind))
        return handler(_as_typed_dict(self.kind, self.name, self.text, dict(self.other)))


def _without_records(hint: Any) -> Any:
    """Return a type in which a TypedDict, which pydantic knows, stands for each record."""
    if isinstance(hint, type) and issubclass(hint, Record):
        return _as_typed_dict(hint)
    arguments = tuple(_without_records(argument) for argument in get_args(hint))
    if not arguments:
        return hint
    origin: Any = get_origin(hint)
    return reduce(or_, arguments) if origin in (Union, UnionType) else origin[arguments]


def _as_typed_dict(kind: type, name: str = "", text: str = "", other: Mapping[str, Any] = NO_KEYS) -> Any:
    hints = get_type_hints(kind)
    names = fields_of(kind) if issubclass(kind, Record) else hints
    make: Any = TypedDict  # by its name a type checker allows it for literals alone
    document = make(name or kind.__name__, {**{key: _without_records(hints[key]) for key in names}, **other})
    document.__doc__ = text or kind.__doc__
    return document


OutsideFilesEntry = Annotated[dict[str, Any], FieldsOf(OutsideFiles, name="OutsideFilesEntry")]
AloneEntry = Annotated[dict[str, Any], FieldsOf(AloneRecord, (("code", str),), "AloneEntry")]


class HangEntry(TypedDict):
    """Where the ranks were before the end, or are since they made no progress for `seconds`."""

    why: KeptReason
    seconds: float | None
    summary: str
    code: str
    sentence: str
    next: str
    suspects: list[int]


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
    """What failed first, what it wrote, what is known of it, and what followed from it.

    `file` and `line` are where the exception was raised in the user's own code.
    """

    exception: str
    file: str | None
    line: int | None
    code: str | None
    meaning: str
    advice: str
    command: str
    stderr: list[str]
    consequences: list[FailureEntry]


class SpeedEntry(TypedDict):
    """How fast a run is: rates by unit, shares from 0 to 1, and for which ranks the others waited, and why."""

    sentence: str
    rates: dict[str, float]
    gpu_busy: float | None
    gpu_watts: float | None
    waited: float | None
    waited_most: float | None
    waited_for: list[int]
    waited_nodes: list[str]
    reason: Literal["heat", "hardware", "pcie", "loader", "process", "cpu"] | None
    reason_node: str | None


class SmallerEntry(TypedDict):
    """With how many nodes the latest attempt runs or ran, of how many that the job has."""

    nodes: int
    of: int


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
    smaller: SmallerEntry | None
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
    speed: SpeedEntry | None


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


_Source = TypedDict("_Source", {"from": str})


class StagePreview(_Source):
    """An entry of `stage` that nodes would get; files and bytes are null where no node was asked for them."""

    to: str
    files: int | None
    bytes: int | None
    nodes: list[str]


class LaunchPreview(LaunchPlanEntry, HooksEntry):
    """What `launch` would do, without asking a node."""

    setup: SetupEntry | None
    stage: list[StagePreview]
