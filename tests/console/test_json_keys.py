"""The keys of `--json` that are names of fields: a renamed field is a broken contract, though no other test fails."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

from clusterctl.client.cleanup import RemovalReport, UnusedStorage
from clusterctl.plans.checks.framework import Finding
from clusterctl.plans.cleanup import Orphan
from clusterctl.plans.diagnose.collective import Group
from clusterctl.plans.explain import Explanation
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.utilization import Sample

RECORDED = (Path(__file__).parent / "json_keys.txt").read_text(encoding="utf-8").split()
WRITTEN = {  # what is written with `asdict` or `vars`: check, top, explain, check --deep, clean
    "facts": Facts,
    "finding": Finding,
    "sample": Sample,
    "explain": Explanation,
    "group": Group,
    "orphan": Orphan,
    "spare": UnusedStorage,
    "removed": RemovalReport,
}


def keys_of(kind: type, path: str) -> Iterator[str]:
    """Give the paths of a value's keys, those of the values in it included."""
    hints = typing.get_type_hints(kind)
    for field in fields(kind):
        yield f"{path}.{field.name}"
        for inner in values_in(hints[field.name]):
            yield from keys_of(inner, f"{path}.{field.name}")


def values_in(hint: object) -> Iterator[type]:
    """Find the dataclasses in an annotation."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for argument in typing.get_args(hint):
        yield from values_in(argument)


def test_no_key_of_a_document_is_renamed_or_removed() -> None:
    """Schema 1 promises these; new keys may come, and are then recorded here."""
    written = [key for path, kind in WRITTEN.items() for key in keys_of(kind, path)]
    assert sorted(written) == sorted(RECORDED)
