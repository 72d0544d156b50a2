"""What `--json` writes to stdout: one document, or lines of NDJSON; where a verb fails before that, its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterctl.console.errors import ERRORS
from clusterctl.console.text import json_text
from clusterctl.errors import ClusterctlError, SpecError
from clusterctl.translation import english_of

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import ErrorDocument, ErrorEntry
    from clusterctl.console.documents.schema import Document


def write_document(document: Document) -> None:
    """Write the one document of a verb."""
    ERRORS.has_result = ERRORS.has_document = True
    print(json_text(document, indent=2), flush=True)


def write_line(entry: Document) -> None:
    """Write one line of NDJSON."""
    ERRORS.has_result = True
    print(json_text(entry), flush=True)


def write_failure() -> None:
    """Write the error that ended a verb, or all that were shown where a verb has no other result."""
    ending = ERRORS.ending
    if ERRORS.has_document:  # a second one could not be read: stderr and the exit code report what came after
        return
    if ending is not None and not ending.in_document:
        write_line(errors_to_json([ending]))
    elif ending is None and not ERRORS.has_result and ERRORS.shown:
        write_line(errors_to_json(ERRORS.shown))


def errors_to_json(errors: Sequence[ClusterctlError]) -> ErrorDocument:
    """Return the document of errors, the first of them also alone."""
    entries = [entry for error in errors for entry in error_to_json(error)]
    return {"schema": 1, "error": entries[0], "errors": entries}


def error_to_json(error: ClusterctlError) -> list[ErrorEntry]:
    """Return one error in English; of a wrong file every problem with its place."""
    if isinstance(error, SpecError):
        return [
            _entry(issue.code, issue.message, str(issue.location or "") or None, "", issue.fix)
            for issue in error.issues
        ]
    return [_entry(error.code, error.message, error.node or None, error.evidence, error.fix)]


def _entry(code: str, text: str, location: str | None, evidence: str, fix: str) -> ErrorEntry:
    return {
        "code": code,
        "text": english_of(text),
        "place": location,
        "evidence": evidence or None,
        "fix": english_of(fix) or None,
    }
