"""A value of an inventory or job file: how its text is read, and how an editor's schema describes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from clusterctl.specs import codes


class BadValueError(ValueError):
    """A text that is not what its key wants; the message follows the key's name and a colon."""

    def __init__(self, message: str, fix: str = "", code: str = codes.WRONG_VALUE) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.code = code


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
        if not self.null:
            return dict(self.schema)
        return {"anyOf": [dict(self.schema), {"type": "null"}]}
