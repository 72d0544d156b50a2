"""Pydantic field types and the strict base model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import CoreSchema, core_schema

from clusterctl.errors import InvalidValueError
from clusterctl.protocol.run_id import NAME_PATTERN
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.values import LONGEST_NAME, parse_name, parse_python, parse_text
from clusterctl.specs.yaml.tree import quoted
from clusterctl.translation import to_translate, tr

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue


@dataclass(frozen=True, eq=False)
class ScalarType:
    """The pydantic annotation of one kind of scalar."""

    noun: str  # what is expected, for messages: translated there
    parse: Callable[[str], object]
    schema: dict[str, Any]
    nullable: bool = False
    null_fix: str = to_translate("give a value, or remove the key from the file")
    example: str = ""
    choices: tuple[str, ...] = ()  # what the noun is made of, if it is a choice

    @property
    def expected(self) -> str:
        """What is expected, in the language in use."""
        return _either(self.choices) if self.choices else tr(self.noun)

    def validate(self, raw: object) -> object:
        """Turn a text, or null where it may stand, into the value; raises InvalidValueError."""
        if isinstance(raw, str):
            return self.parse(raw)
        if raw is not None:
            found = tr("a list") if isinstance(raw, list) else tr("keys and values")
            case = "single-example" if self.example else "single"
            raise InvalidValueError(
                "CC-SPEC-012", case, noun=self.expected, found=found, example=self.example
            )
        if self.nullable:
            return None
        raise InvalidValueError("CC-SPEC-014", "nothing", noun=self.expected, way_out=tr(self.null_fix))

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.validate)

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [self.schema, {"type": "null"}]} if self.nullable else dict(self.schema)


@dataclass(frozen=True, eq=False)
class OneOrMore:
    """The pydantic annotation of a list that may be written as its only item, or taken away by null."""

    schema: dict[str, Any]  # of one item

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.to_list, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        array_schema = {"type": "array", "items": self.schema, "minItems": 1, "uniqueItems": True}
        return {"anyOf": [self.schema, array_schema, {"type": "null"}]}

    def to_list(self, raw: object) -> object:
        """Make a list of a single text; raises InvalidValueError for an empty list."""
        if raw == []:
            raise InvalidValueError("CC-SPEC-013", "empty")
        return [raw] if isinstance(raw, str) else raw


@dataclass(frozen=True, eq=False)
class ShortForm:
    """The pydantic annotation of a table that may be written as the value of one of its keys."""

    key: str
    schema: dict[str, Any]  # of that value

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.to_table, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [self.schema, handler(core)]}

    def to_table(self, raw: object) -> object:
        """Make a table of a single text."""
        return {self.key: raw} if isinstance(raw, str) else raw


JsonSchema = dict[str, Any]

ANY_TEXT: JsonSchema = {"type": ["string", "number", "boolean"]}  # 1e-4 and true keep their text


class StrictModel(BaseModel):
    """A mapping in a file: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)  # built when a file is read


def text_schema(pattern: str = "", **keywords: Any) -> JsonSchema:
    """Describe a text; a name such as 2024 may be written without quotes."""
    return {"type": ["string", "integer"], **({"pattern": f"^{pattern}$"} if pattern else {}), **keywords}


def whole_number_schema(**limits: int) -> JsonSchema:
    """Describe a whole number, which may be quoted."""
    return {"type": ["integer", "string"], "pattern": "^[0-9]+$", **limits}


def one_of(*choices: str, former: Mapping[str, str] = MappingProxyType({})) -> ScalarType:
    """Make the kind of a value that is one of a few words; `former`: what a word was called earlier."""

    def parse(word: str) -> str:
        word = former.get(word, word)
        if word in choices:
            return word
        raise InvalidValueError(
            "CC-SPEC-013",
            "choice",
            expected=_either(choices),
            word=quoted(word),
            suggestion=did_you_mean(word, choices),
        )

    noun = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    return ScalarType(noun, parse, {"enum": list(choices)}, choices=choices)


def _either(choices: tuple[str, ...]) -> str:
    """Write a choice between words."""
    return tr(" or ").join(filter(None, (tr(", ").join(choices[:-1]), choices[-1])))


def optional(noun: str, parse: Callable[[str], object], schema: JsonSchema, example: str = "") -> ScalarType:
    """Make the kind of a value that null takes away again."""
    return ScalarType(noun, parse, schema, nullable=True, example=example)


def _parse_flag(word: str) -> bool:
    if word not in ("true", "false"):
        raise InvalidValueError("CC-SPEC-012", "flag", word=quoted(word))
    return word == "true"


FLAG = ScalarType(to_translate("true or false"), _parse_flag, {"type": "boolean"})
NAME = ScalarType(to_translate("a name"), parse_name, text_schema(NAME_PATTERN, maxLength=LONGEST_NAME))
PYTHON = ScalarType(to_translate("an interpreter"), parse_python, {"type": "string"})
TEXT = ScalarType(to_translate("a text"), parse_text, {"type": "string", "minLength": 1})
OPTIONAL_TEXT = optional(to_translate("a text"), parse_text, {"type": "string", "minLength": 1})
