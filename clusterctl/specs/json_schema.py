"""What editors and the documentation know of both files, taken from the declared keys.

`python -m clusterctl.specs.json_schema inventory.schema.json` prints a schema, as it stands in schemas/.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from typing import Any

from clusterctl.specs.fields import JsonSchema, Key, Kind, OneOrMore, ScalarType, ShortForm, group_in, keys_of
from clusterctl.specs.inventory.model import InventoryFile, Node, NodeSettings, Waiver
from clusterctl.specs.job.model import Hook, Job

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMAS: dict[str, type[Any]] = {"inventory.schema.json": InventoryFile, "job.schema.json": Job}
_ONE_OF = {InventoryFile: ("nodes", "slurm"), Job: ("script", "module", "command")}
_TITLES = {
    InventoryFile: "clusterctl inventory",
    Job: "clusterctl job",
    Hook: "before and after",
    Waiver: "waive",
}  # of others: their name


def render_schemas() -> dict[str, str]:
    """Render the JSON Schema of each file, by the name it has in schemas/."""
    return {name: _render_schema(model) for name, model in SCHEMAS.items()}


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
    shown = {} if nothing or inherits or dataclasses.is_dataclass(default) else {"default": default}
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
