"""As much of JSON Schema as the two schemas use, so that files can be held against them without a library."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
}
SILENT = {"$schema", "$defs", "title", "description", "default"}
LIMITS: dict[str, Callable[[Any, Any], bool]] = {
    "enum": lambda value, choices: value in choices,
    "pattern": lambda value, pattern: not isinstance(value, str) or re.search(pattern, value) is not None,
    "minLength": lambda value, least: not isinstance(value, str) or len(value) >= least,
    "maxLength": lambda value, most: not isinstance(value, str) or len(value) <= most,
    "minimum": lambda value, least: not TYPES["number"](value) or value >= least,
    "maximum": lambda value, most: not TYPES["number"](value) or value <= most,
    "minItems": lambda value, least: not isinstance(value, list) or len(value) >= least,
    "uniqueItems": lambda value, _: (
        not isinstance(value, list) or len({repr(item) for item in value}) == len(value)
    ),
    "required": lambda value, keys: not isinstance(value, dict) or all(key in value for key in keys),
}
BELOW = {"properties", "patternProperties", "additionalProperties", "items", "anyOf", "oneOf", "$ref", "type"}


def breaches(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "") -> Iterator[str]:
    """List where a value breaks a schema; an unknown word in the schema is a breach too."""
    yield from (
        f"{path}: the schema says {word}" for word in schema if word not in {*SILENT, *LIMITS, *BELOW}
    )
    if "$ref" in schema:
        yield from breaches(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    types = schema.get("type", list(TYPES))
    if not any(TYPES[name](value) for name in ([types] if isinstance(types, str) else types)):
        yield f"{path}: {value!r} is not {types}"
    for word, holds in LIMITS.items():
        if word in schema and not holds(value, schema[word]):
            yield f"{path}: {value!r} breaks {word}"
    for word, allowed in (("anyOf", range(1, 99)), ("oneOf", range(1, 2))):
        fitting = [one for one in schema.get(word, ()) if not list(breaches(value, one, root, path))]
        if word in schema and len(fitting) not in allowed:
            yield f"{path}: {value!r} breaks {word}"
    if isinstance(value, dict):
        yield from _breaches_below(value, schema, root, path)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from breaches(item, schema.get("items", {}), root, f"{path}[{index}]")


def _breaches_below(
    value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], path: str
) -> Iterator[str]:
    patterns = schema.get("patternProperties", {})
    for key, below in value.items():
        fitting = [one for pattern, one in patterns.items() if re.search(pattern, key)]
        fitting += [schema["properties"][key]] if key in schema.get("properties", {}) else []
        if not fitting and schema.get("additionalProperties") is False:
            yield f"{path}.{key}: unknown"
        for one in fitting:
            yield from breaches(below, one, root, f"{path}.{key}")
