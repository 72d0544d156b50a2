"""A value of an inventory or job file: how its text is read, and how an editor's schema describes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import CoreSchema, core_schema

from clusterctl.specs import codes
from clusterctl.specs.bad_value import BadValueError

if TYPE_CHECKING:  # pydantic.json_schema is slow to import, and only the schemas need it
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
