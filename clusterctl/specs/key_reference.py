"""The keys of both files, found by name: what `clusterctl explain job.restart` shows, as they are declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from clusterctl.protocol.exit_status import describe_duration
from clusterctl.specs.fields import Kind, ScalarType, group_in, keys_of
from clusterctl.specs.inventory.model import InventoryFile, Node, NodeSettings
from clusterctl.specs.job.model import Job, Stall
from clusterctl.specs.values import Size, parse_size
from clusterctl.translation import tr

FILES: Mapping[str, type[Any]] = {"inventory": InventoryFile, "job": Job}


@dataclass(frozen=True)
class KeyEntry:
    """A key of a file; `below` are the keys of its group, each with its text."""

    path: str  # such as job.restart.max
    text: str
    value: str = ""  # the kind of value, where it is a single one
    default: str = ""  # as it would stand in the file
    required: bool = False
    below: tuple[tuple[str, str], ...] = ()


def find_keys(words: str) -> list[KeyEntry]:
    """Return the keys that a path means: `job.restart`, `restart.max` of any file, `job` for all of its keys."""
    file, _, rest = words.partition(".")
    if file in FILES and not rest:
        return [KeyEntry(file, tr("keys of {file}.yaml", file=file), below=_texts(FILES[file]))]
    names = rest.split(".") if file in FILES else words.split(".")
    files = (file,) if file in FILES else tuple(FILES)
    return [entry for name in files for entry in _find_below(FILES[name], names, name)]


def all_paths() -> list[str]:
    """Return the path of every key of both files."""
    return [path for name, model in FILES.items() for path in _paths(model, name)]


def _paths(model: type[Any], prefix: str) -> Iterator[str]:
    for key, declared in keys_of(model).items():
        yield f"{prefix}.{key}"
        if group := group_in(declared.kind):
            yield from _paths(group, f"{prefix}.{key}")


def _find_below(model: type[Any], names: list[str], prefix: str) -> Iterator[KeyEntry]:
    name, *rest = names
    declared = keys_of(model).get(name)
    if declared is None:
        return
    path, group = f"{prefix}.{name}", group_in(declared.kind)
    if rest:
        yield from _find_below(group, rest, path) if group else ()
        return
    yield KeyEntry(
        path,
        tr(declared.text),
        value=tr(noun) if (noun := noun_in(declared.kind)) else "",
        default=default_of(model, name),
        required=declared.required,
        below=_texts(group) if group else (),
    )


def _texts(model: type[Any]) -> tuple[tuple[str, str], ...]:
    return tuple((key, tr(declared.text)) for key, declared in keys_of(model).items())


def noun_in(kind: Kind) -> str:
    """Return the noun of the kind of value that a key takes, of a list that of an item; empty for a group."""
    if isinstance(kind.note, ScalarType):
        return kind.note.noun
    return "" if group_in(kind) else noun_in(kind.inner[0])


def default_of(model: type[Any], key: str) -> str:
    """Return the default of a key as it would stand in the file; empty where there is none."""
    declared = keys_of(model)[key]
    default, note = declared.default, declared.kind.note
    if declared.required or (model is Node and key in keys_of(NodeSettings)):
        return ""
    default = default.after if isinstance(default, Stall) else default
    if default is None or dataclasses.is_dataclass(default) or default in ((), {}):
        return ""
    if isinstance(note, ScalarType) and note.parse is parse_size:
        return str(Size(default))
    if isinstance(default, tuple):
        return f"[{', '.join(default)}]"
    if isinstance(default, bool):
        return "true" if default else "false"
    return describe_duration(default).replace(" ", "") if isinstance(default, float) else str(default)
