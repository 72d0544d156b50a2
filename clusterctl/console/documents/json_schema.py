"""Makes the JSON Schema of what a verb writes from the declared types, for `clusterctl help json`."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from clusterctl.console.documents.catalogue import ERROR, VERBS
from clusterctl.specs.text import command_line

PROMISE = "Within schema 1 keys are added, never renamed or removed."
FAILING = "Where an error ends the verb before that, it writes the document of `clusterctl help json error`."


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
