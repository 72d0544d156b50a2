"""The keys of `--json` that are names of fields: a renamed field is a broken contract, though no other test fails."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from clusterctl.client.cleanup import RemovalReport, UnusedStorage
from clusterctl.plans.checks.framework import Finding
from clusterctl.plans.explain import Explanation
from clusterctl.protocol.messages.checks import GroupResult
from clusterctl.protocol.messages.facts import Facts, Orphan, Sample
from clusterctl.protocol.messages.record import Record, fields_of

RECORDED = (Path(__file__).parent / "json_keys.txt").read_text(encoding="utf-8").split()
WRITTEN = {  # what is written as it is: check, top, explain, check --deep, clean
    "facts": Facts,
    "finding": Finding,
    "sample": Sample,
    "explain": Explanation,
    "group": GroupResult,
    "orphan": Orphan,
    "spare": UnusedStorage,
    "removed": RemovalReport,
}


def keys_of(kind: type, path: str) -> Iterator[str]:
    """Give the paths of a value's keys, those of the values in it included."""
    hints = typing.get_type_hints(kind)
    written = [field.name for field in fields(kind)] if is_dataclass(kind) else None
    for name in written or (hints if typing.is_typeddict(kind) else fields_of(kind)):
        yield f"{path}.{name}"
        for inner in values_in(hints[name]):
            yield from keys_of(inner, f"{path}.{name}")


def values_in(hint: Any) -> Iterator[type]:
    """Find the dataclasses, dictionaries and records in an annotation."""
    if typing.is_typeddict(hint) or (
        isinstance(hint, type) and (is_dataclass(hint) or issubclass(hint, Record))
    ):
        yield hint
    for argument in typing.get_args(hint):
        yield from values_in(argument)


def test_no_key_of_a_document_is_renamed_or_removed() -> None:
    """Schema 1 promises these; new keys may come, and are then recorded here."""
    written = [key for path, kind in WRITTEN.items() for key in keys_of(kind, path)]
    assert sorted(written) == sorted(RECORDED)
