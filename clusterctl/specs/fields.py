"""Pydantic field types and the strict base model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import CoreSchema, core_schema

from clusterctl.protocol.run_id import NAME_PATTERN
from clusterctl.specs import codes
from clusterctl.specs.codes import BadValueError
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.values import LONGEST_NAME, parse_name, parse_python, parse_text
from clusterctl.specs.yaml.tree import quoted

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue


@dataclass(frozen=True, eq=False)
class Leaf:
    """The pydantic annotation of one kind of scalar."""

    noun: str  # what is expected, for messages
    parse: Callable[[str], object]
    schema: dict[str, Any]
    null: bool = False
    if_nothing: str = "give a value, or drop the line"

    def read(self, raw: object) -> object:
        """Turn a text, or null where it may stand, into the value; raises BadValueError."""
        if isinstance(raw, str):
            return self.parse(raw)
        if raw is not None:
            got = "a list" if isinstance(raw, list) else "keys and values"
            raise BadValueError(f"expected {self.noun}, got {got}", code=codes.WRONG_TYPE)
        if self.null:
            return None
        raise BadValueError(f"expected {self.noun}, got nothing", self.if_nothing, codes.NO_VALUE)

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [self.schema, {"type": "null"}]} if self.null else dict(self.schema)


@dataclass(frozen=True, eq=False)
class OneOrMore:
    """The pydantic annotation of a list that may be written as its only item, or taken away by null."""

    schema: dict[str, Any]  # of one item

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        several = {"type": "array", "items": self.schema, "minItems": 1, "uniqueItems": True}
        return {"anyOf": [self.schema, several, {"type": "null"}]}

    def read(self, raw: object) -> object:
        """Make a list of a single text; raises BadValueError for an empty list."""
        if raw == []:
            raise BadValueError("expected at least one, got an empty list", "name one, or drop the line")
        return [raw] if isinstance(raw, str) else raw


Schema = dict[str, Any]

ANY_TEXT: Schema = {"type": ["string", "number", "boolean"]}  # 1e-4 and true keep their text


class Entry(BaseModel):
    """A mapping in a file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # built when a file is read


def text(pattern: str = "", **more: Any) -> Schema:
    """Describe a text; a name such as 2024 may be written without quotes."""
    return {"type": ["string", "integer"], **({"pattern": f"^{pattern}$"} if pattern else {}), **more}


def whole_number(**limits: int) -> Schema:
    """Describe a whole number, which may be quoted."""
    return {"type": ["integer", "string"], "pattern": "^[0-9]+$", **limits}


def one_of(*choices: str) -> Leaf:
    """Make the kind of a value that is one of a few words."""
    expected = " or ".join((", ".join(choices[:-1]), choices[-1])) if len(choices) > 1 else choices[0]

    def parse(word: str) -> str:
        if word in choices:
            return word
        raise BadValueError(f"expected {expected}, got {quoted(word)}{did_you_mean(word, choices)}")

    return Leaf(expected, parse, {"enum": list(choices)})


def optional(noun: str, parse: Callable[[str], object], schema: Schema) -> Leaf:
    """Make the kind of a value that null takes away again."""
    return Leaf(noun, parse, schema, null=True)


def _parse_flag(word: str) -> bool:
    if word not in ("true", "false"):
        raise BadValueError(f"expected true or false, got {quoted(word)}", code=codes.WRONG_TYPE)
    return word == "true"


FLAG = Leaf("true or false", _parse_flag, {"type": "boolean"})
NAME = Leaf("a name", parse_name, text(NAME_PATTERN, maxLength=LONGEST_NAME))
PYTHON = Leaf("an interpreter", parse_python, {"type": "string"})
TEXT = Leaf("a text", parse_text, {"type": "string", "minLength": 1})
OPTIONAL_TEXT = optional("a text", parse_text, {"type": "string", "minLength": 1})
