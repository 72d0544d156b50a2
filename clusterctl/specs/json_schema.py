"""Both files for others, from the declared keys: JSON Schema for editors, what `explain` shows, values as JSON.

`python -m clusterctl.specs.json_schema inventory.schema.json` prints a schema, as it stands in schemas/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from clusterctl.protocol.exit_status import describe_duration
from clusterctl.specs.fields import JsonSchema, Key, Kind, OneOrMore, ScalarType, ShortForm, group_in, keys_of
from clusterctl.specs.inventory import model as inventory_model
from clusterctl.specs.inventory.model import InventoryFile, Node, NodeSettings, Waiver
from clusterctl.specs.job import model as job_model
from clusterctl.specs.job.model import Hook, Job, Stall
from clusterctl.specs.values import Size, parse_size
from clusterctl.translation import tr

KINDS = {
    name: kind
    for home in (inventory_model, job_model)
    for name, kind in vars(home).items()
    if isinstance(kind, type) and is_dataclass(kind)
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
FILES: Mapping[str, type[Any]] = {"inventory": InventoryFile, "job": Job}
_ONE_OF = {InventoryFile: ("nodes", "slurm"), Job: ("script", "module", "command")}
_TITLES = {
    InventoryFile: "clusterctl inventory",
    Job: "clusterctl job",
    Hook: "before and after",
    Waiver: "waive",
}  # of others: their name


def render_schemas() -> dict[str, str]:
    """Render the JSON Schema of each file, by the name it has in schemas/."""
    return {f"{name}.schema.json": _render_schema(model) for name, model in FILES.items()}


def _render_schema(model: type[Any]) -> str:
    groups = sorted(set(_groups_below(model)), key=lambda group: group.__name__)
    definitions = {group.__name__: _schema_of_group(group) for group in groups}
    one_of = {"oneOf": [{"required": [key]} for key in _ONE_OF[model]]}
    schema = dict(sorted({**_schema_of_group(model), **one_of}.items()))
    if model is InventoryFile:  # `nodes: [gpu01]`, which is taken apart before the model sees it
        nodes = schema["properties"]["nodes"]  # type: ignore[record-key]  # of JSON Schema
        nodes["items"] = {"anyOf": [{"type": "string", "minLength": 1}, nodes["items"]]}
    document = {"$schema": DIALECT, "$defs": definitions, **schema}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _groups_below(model: type[Any]) -> Iterator[type[Any]]:
    for declared in keys_of(model).values():
        if group := group_in(declared.kind):
            yield group
            yield from _groups_below(group)


def _schema_of_group(model: type[Any]) -> JsonSchema:
    keys = keys_of(model)
    required = [name for name, declared in keys.items() if declared.required]
    return {
        "additionalProperties": False,
        "description": model.__doc__,
        "properties": {name: _schema_of_key(model, name, declared) for name, declared in keys.items()},
        **({"required": required} if required else {}),
        "title": _TITLES.get(model, snake_case(model.__name__)),
        "type": "object",
    }


def _schema_of_key(model: type[Any], name: str, declared: Key) -> JsonSchema:
    default, inherits = declared.default, model is Node and name in keys_of(NodeSettings)
    nothing = default in (None, "") or (default == () and declared.kind.nullable)
    shown = {} if nothing or inherits or is_dataclass(default) else {"default": default}
    schema = {**_schema_of_kind(declared.kind), "description": declared.text, "title": name}
    return dict(sorted({**schema, **declared.keywords, **shown}.items()))


def _schema_of_kind(kind: Kind) -> JsonSchema:
    """Return the schema of one kind of value."""
    if isinstance(kind.note, ScalarType):
        schema = _sorted(kind.note.schema)
    elif kind.is_list:
        schema = _schema_of_list(kind)
    elif kind.group is not None:
        schema = {"$ref": f"#/$defs/{kind.group.__name__}"}
    else:
        names, values = map(_schema_of_kind, kind.inner)
        pattern = {names["pattern"]: values}  # type: ignore[record-key]  # of JSON Schema
        return {"additionalProperties": False, "patternProperties": pattern, "type": "object"}
    forms = [schema]
    if isinstance(kind.note, ShortForm) and kind.group:
        forms = [_schema_of_kind(keys_of(kind.group)[kind.note.key].kind), schema]
    if isinstance(kind.note, OneOrMore):
        forms = [_schema_of_kind(*kind.inner), schema]
    forms += [{"type": "null"}] if kind.nullable else []
    return {"anyOf": forms} if len(forms) > 1 else schema


def _sorted(schema: JsonSchema) -> JsonSchema:
    """Order the keywords by name, also those of a choice."""
    nested = {"anyOf": [_sorted(form) for form in schema["anyOf"]]} if "anyOf" in schema else {}  # type: ignore[record-key]  # of JSON Schema
    return dict(sorted({**schema, **nested}.items()))


def _schema_of_list(kind: Kind) -> JsonSchema:
    bounds = {"minItems": 1, "uniqueItems": True} if isinstance(kind.note, OneOrMore) else {}
    return dict(sorted({"items": _schema_of_kind(*kind.inner), "type": "array", **bounds}.items()))


def snake_case(name: str) -> str:
    """Write the name of a class as a key."""
    return "".join(f"_{sign.lower()}" if sign.isupper() else sign for sign in name).lstrip("_")


@dataclass(frozen=True)
class KeyEntry:
    """A key of a file; `below` are the keys of its group, each with its text."""

    path: str  # such as job.restart.max
    text: str
    value: str = ""  # the kind of value, where it is a single one
    default: str = ""  # as written in the file
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
    """Return the default of a key as written in the file; empty where there is none."""
    declared = keys_of(model)[key]
    default, note = declared.default, declared.kind.note
    if declared.required or (model is Node and key in keys_of(NodeSettings)):
        return ""
    default = default.after if isinstance(default, Stall) else default
    if default is None or is_dataclass(default) or default in ((), {}):
        return ""
    if isinstance(note, ScalarType) and note.parse is parse_size:
        return str(Size(default))
    if isinstance(default, tuple):
        return f"[{', '.join(default)}]"
    if isinstance(default, bool):
        return "true" if default else "false"
    return describe_duration(default).replace(" ", "") if isinstance(default, float) else str(default)


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


def main(arguments: list[str]) -> int:
    """Print a schema; returns the exit code."""
    texts = render_schemas()
    if len(arguments) != 1 or arguments[0] not in texts:
        sys.stderr.write(f"usage: python -m clusterctl.specs.json_schema {'|'.join(texts)}\n")
        return 2
    sys.stdout.write(texts[arguments[0]])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
