"""Which verb writes which documents with `--json`; a new verb with `--json` gets a line in VERBS.

A new type is also a part of Document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterctl.console.documents.check import CheckDocument
from clusterctl.console.documents.cleanup import (
    CleanDocument,
    CleanOrphansDocument,
    CleanWarmDocument,
    OrphansDocument,
)
from clusterctl.console.documents.diagnose import DiagnoseDocument, SlownessDocument
from clusterctl.console.documents.error import ErrorDocument
from clusterctl.console.documents.explain import CodesDocument, ExplanationDocument, KeysDocument
from clusterctl.console.documents.export import ExportDocument
from clusterctl.console.documents.files import CopyDocument, PullDocument, SyncDocument
from clusterctl.console.documents.lab import EndedLabsDocument, LabsDocument
from clusterctl.console.documents.logs import CommandEndLine, CommandLine, LogLine
from clusterctl.console.documents.nodes import (
    ExecDocument,
    HistoryDocument,
    InitDocument,
    InventoryDocument,
    TopDocument,
)
from clusterctl.console.documents.runs import (
    DetachedLine,
    DryRunDocument,
    EarlyEndLine,
    PsDocument,
    ReportDocument,
    StatusDocument,
    StopDocument,
    SubmittedLine,
    VerdictLine,
)

ERROR = "error"  # stands for the document of a verb that an error has ended
ONE_PER_LINE = "NDJSON: one object per line"
_FOLLOWED = (LogLine, DetachedLine, SubmittedLine, VerdictLine, EarlyEndLine)

# All that `write_document` and `write_line` take, so that a verb cannot write what is not declared.
Document = (
    InitDocument
    | CheckDocument
    | DryRunDocument
    | LogLine
    | DetachedLine
    | SubmittedLine
    | VerdictLine
    | EarlyEndLine
    | StatusDocument
    | PsDocument
    | StopDocument
    | PullDocument
    | TopDocument
    | HistoryDocument
    | DiagnoseDocument
    | SlownessDocument
    | ReportDocument
    | LabsDocument
    | EndedLabsDocument
    | CopyDocument
    | CleanDocument
    | CleanWarmDocument
    | CleanOrphansDocument
    | OrphansDocument
    | ExecDocument
    | CommandLine
    | CommandEndLine
    | SyncDocument
    | ExportDocument
    | InventoryDocument
    | ExplanationDocument
    | CodesDocument
    | KeysDocument
    | ErrorDocument
)


@dataclass(frozen=True)
class VerbJson:
    """The kinds of documents, or of lines, that a verb writes; `note` says when they are lines."""

    kinds: tuple[Any, ...]
    note: str = ""


VERBS: Mapping[str, VerbJson] = {
    "init": VerbJson((InitDocument,)),
    "check": VerbJson((CheckDocument,)),
    "launch": VerbJson((*_FOLLOWED, DryRunDocument), f"{ONE_PER_LINE}; with --dry-run one document."),
    "logs": VerbJson((LogLine,), f"{ONE_PER_LINE}."),
    "status": VerbJson((StatusDocument,), f"With -w {ONE_PER_LINE}, whenever something has changed."),
    "ps": VerbJson((PsDocument,)),
    "stop": VerbJson((StopDocument,)),
    "pull": VerbJson((PullDocument,)),
    "top": VerbJson(
        (TopDocument, HistoryDocument), f"{ONE_PER_LINE}; with --once or a run one document in a line."
    ),
    "diagnose": VerbJson((DiagnoseDocument, SlownessDocument)),
    "report": VerbJson((ReportDocument,)),
    "lab up": VerbJson((LabsDocument,)),
    "lab down": VerbJson((EndedLabsDocument,)),
    "lab status": VerbJson((LabsDocument,)),
    "lab break": VerbJson((LabsDocument,)),
    "lab heal": VerbJson((LabsDocument,)),
    "attach": VerbJson(_FOLLOWED, f"{ONE_PER_LINE}."),
    "cp": VerbJson((CopyDocument,)),
    "clean": VerbJson((CleanDocument, CleanWarmDocument, CleanOrphansDocument, OrphansDocument)),
    "exec": VerbJson(
        (ExecDocument, CommandLine, CommandEndLine), f"One document; with --no-fold {ONE_PER_LINE}."
    ),
    "sync": VerbJson((SyncDocument,)),
    "export": VerbJson((ExportDocument,)),
    "inventory show": VerbJson((InventoryDocument,)),
    "explain": VerbJson((ExplanationDocument, CodesDocument, KeysDocument)),
    ERROR: VerbJson((ErrorDocument,)),
}
