"""Declares a part of a document that `dataclasses.asdict` or `vars` makes of a dataclass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FieldsOf:
    """Marks a record that has the fields of a dataclass: `Annotated[dict[str, Any], FieldsOf(Facts)]`.

    The dataclass is then the one declaration: pydantic reads it for the schema, so a new field is in both.
    """

    kind: type

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], Any]) -> Any:
        """Return pydantic's schema of the dataclass."""
        return handler(self.kind)
