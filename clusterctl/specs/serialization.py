"""Inventories and jobs as JSON can hold them, and back: for the check on a Slurm cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from clusterctl.specs.inventory import model as inventory_model
from clusterctl.specs.job import model as job_model

KINDS = {
    name: kind
    for home in (inventory_model, job_model)
    for name, kind in vars(home).items()
    if isinstance(kind, type) and is_dataclass(kind)
}


def to_plain(value: Any) -> Any:
    """Write a value as JSON can hold it: a list is a tuple, an object holds its type."""
    if is_dataclass(value):
        members = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        return {"is": type(value).__name__, "of": members}
    if isinstance(value, Mapping):
        return {"is": "", "of": dict(value)}
    return [to_plain(item) for item in value] if isinstance(value, tuple) else value


def from_plain(plain: Any) -> Any:
    """Read what `to_plain` has written; KeyError, TypeError or AttributeError for anything else."""
    if isinstance(plain, list):
        return tuple(from_plain(item) for item in plain)
    if not isinstance(plain, dict):
        return plain
    kind, members = plain["is"], plain["of"]  # type: ignore[record-key]  # `to_plain` writes them
    if not kind:
        return dict(members)
    return KINDS[kind](**{name: from_plain(item) for name, item in members.items()})
