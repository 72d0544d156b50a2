"""Which verb writes which documents with `--json`, and the JSON Schema of them for `clusterctl help json`.

A new verb with `--json` gets a line in VERBS. A new type is also a part of Document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from clusterctl.console.documents.nodes import (
    CleanDocument,
    CleanOrphansDocument,
    CleanStagedDocument,
    CleanWarmDocument,
    CopyDocument,
    EndedLabsDocument,
    ExecDocument,
    HistoryDocument,
    InitDocument,
    InventoryDocument,
    LabsDocument,
    OrphansDocument,
    PullDocument,
    StageDocument,
    SyncDocument,
    TopDocument,
    VerifyDocument,
)
from clusterctl.console.documents.runs import (
    CheckDocument,
    CodesDocument,
    CommandEndLine,
    CommandLine,
    DetachedLine,
    DiagnoseDocument,
    DryRunDocument,
    EarlyEndLine,
    ErrorDocument,
    ExplanationDocument,
    ExportDocument,
    KeysDocument,
    LogLine,
    PsDocument,
    ReportDocument,
    SlownessDocument,
    StatusDocument,
    StopDocument,
    SubmittedLine,
    VerdictLine,
)
from clusterctl.specs.text import command_line

PROMISE = "Within schema 1 keys are added, never renamed or removed."
FAILING = "Where an error ends the verb before that, it writes the document of `clusterctl help json error`."
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
    | CleanStagedDocument
    | OrphansDocument
    | ExecDocument
    | CommandLine
    | CommandEndLine
    | SyncDocument
    | StageDocument
    | VerifyDocument
    | ExportDocument
    | InventoryDocument
    | ExplanationDocument
    | CodesDocument
    | KeysDocument
    | ErrorDocument
)


@dataclass(frozen=True)
class VerbJson:
    """The kinds of documents, or of lines, that a verb writes; `note` is when they are lines."""

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
    "clean": VerbJson(
        (CleanDocument, CleanWarmDocument, CleanOrphansDocument, CleanStagedDocument, OrphansDocument)
    ),
    "exec": VerbJson(
        (ExecDocument, CommandLine, CommandEndLine), f"One document; with --no-fold {ONE_PER_LINE}."
    ),
    "stage": VerbJson((StageDocument, VerifyDocument)),
    "sync": VerbJson((SyncDocument,)),
    "export": VerbJson((ExportDocument,)),
    "inventory show": VerbJson((InventoryDocument,)),
    "explain": VerbJson((ExplanationDocument, CodesDocument, KeysDocument)),
    ERROR: VerbJson((ErrorDocument,)),
}


class DocumentSchema(GenerateJsonSchema):
    """Describes what is written: every field of a dataclass is there, and no key has a title besides its name."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        """Return whether a key is always there; a default of a dataclass is written too."""
        return bool(field.get("required", total)) if field["type"] == "typed-dict-field" else True

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        """Return False: the title would repeat the key."""
        return False

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """Leave out the default, which means nothing in what is written."""
        return self.generate_inner(schema["schema"])


def make_schema(verb: str) -> dict[str, Any]:
    """Return the JSON Schema of what a verb of the catalogue writes."""
    entry = VERBS[verb]
    kinds: Any = reduce(or_, entry.kinds)
    schema = TypeAdapter(kinds).json_schema(mode="serialization", schema_generator=DocumentSchema)
    text = schema.pop("description", "")  # type: ignore[record-key]  # a key of JSON Schema
    texts = [text, entry.note, PROMISE, "" if verb == ERROR else FAILING]
    return {
        "$schema": DocumentSchema.schema_dialect,
        "title": "errors" if verb == ERROR else command_line(*verb.split(), "--json", command="clusterctl"),
        "description": " ".join(" ".join(filter(None, texts)).split()),
        **{key: value for key, value in schema.items() if key != "title"},
    }
