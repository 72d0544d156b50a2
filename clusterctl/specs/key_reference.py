"""The keys of both files, found by name: what `clusterctl explain job.restart` shows, from the models themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from clusterctl.protocol.exit_status import describe_duration
from clusterctl.specs.fields import ScalarType, ShortForm
from clusterctl.specs.inventory.schema import InventoryFile, NodeEntry, NodeSettings
from clusterctl.specs.job.schema import JobFile, StallEntry
from clusterctl.specs.values import Size, parse_size
from clusterctl.translation import tr

FILES: Mapping[str, type[BaseModel]] = {"inventory": InventoryFile, "job": JobFile}


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


def _paths(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for key, info in model.model_fields.items():
        yield f"{prefix}.{key}"
        if group := group_in(info.annotation):
            yield from _paths(group, f"{prefix}.{key}")


def _find_below(model: type[BaseModel], names: list[str], prefix: str) -> Iterator[KeyEntry]:
    name, *rest = names
    info = model.model_fields.get(name)
    if info is None:
        return
    path, group = f"{prefix}.{name}", group_in(info.annotation)
    if rest:
        yield from _find_below(group, rest, path) if group else ()
        return
    yield KeyEntry(
        path,
        tr(str(info.description)),
        value=tr(noun) if (noun := noun_in(info)) else "",
        default=default_of(model, name),
        required=info.is_required(),
        below=_texts(group) if group else (),
    )


def _texts(model: type[BaseModel]) -> tuple[tuple[str, str], ...]:
    return tuple((key, tr(str(info.description))) for key, info in model.model_fields.items())


def group_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model in the type of a key, if it takes a group of keys."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := group_in(inner))), None)


def short_form_of(info: FieldInfo) -> ShortForm | None:
    """Return the short form of a key, if it has one."""
    return next((note for note in info.metadata if isinstance(note, ShortForm)), None)


def noun_in(info: FieldInfo) -> str:
    """Return the noun of the kind of value that a key takes, of a list that of an item; empty for a group."""
    if group_in(info.annotation):
        return ""
    notes = [*info.metadata, *_notes(info.annotation)]
    return next((note.noun for note in notes if isinstance(note, ScalarType)), "")


def _notes(annotation: Any) -> Iterator[object]:
    yield from getattr(annotation, "__metadata__", ())
    for inner in get_args(annotation):
        yield from _notes(inner)


def default_of(model: type[BaseModel], key: str) -> str:
    """Return the default of a key as it would stand in the file; empty where there is none."""
    info = model.model_fields[key]
    if info.is_required() or (model is NodeEntry and key in NodeSettings.model_fields):
        return ""
    default: Any = info.get_default(call_default_factory=True)
    default = default.after if isinstance(default, StallEntry) else default
    if default is None or isinstance(default, BaseModel) or default in ((), {}):
        return ""
    if any(isinstance(note, ScalarType) and note.parse is parse_size for note in info.metadata):
        return str(Size(default))
    if isinstance(default, tuple):
        return f"[{', '.join(default)}]"
    if isinstance(default, bool):
        return "true" if default else "false"
    return describe_duration(default).replace(" ", "") if isinstance(default, float) else str(default)
