"""Declares a part of a document that is a value of the program as it is: a dataclass or a record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import reduce
from operator import or_
from types import MappingProxyType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from typing_extensions import TypedDict

from clusterctl.protocol.messages.record import Record, fields_of

NO_KEYS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class FieldsOf:
    """Marks a part of a document that has the fields of a class: `Annotated[dict[str, Any], FieldsOf(Facts)]`.

    The class is then the one declaration: pydantic reads it for the schema, so a new field is in both. `other` are the
    keys that have another type in the document, as nodes by name for nodes by number, or that the class lacks; such a
    part has its own name and description.
    """

    kind: type
    other: tuple[tuple[str, Any], ...] = ()
    name: str = ""
    text: str = ""

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], Any]) -> Any:
        """Return pydantic's schema of the class."""
        if not self.other:
            return handler(_without_records(self.kind))
        return handler(_as_typed_dict(self.kind, self.name, self.text, dict(self.other)))


def _without_records(hint: Any) -> Any:
    """Return a type in which a TypedDict, which pydantic knows, stands for each record."""
    if isinstance(hint, type) and issubclass(hint, Record):
        return _as_typed_dict(hint)
    arguments = tuple(_without_records(argument) for argument in get_args(hint))
    if not arguments:
        return hint
    origin: Any = get_origin(hint)
    return reduce(or_, arguments) if origin in (Union, UnionType) else origin[arguments]


def _as_typed_dict(kind: type, name: str = "", text: str = "", other: Mapping[str, Any] = NO_KEYS) -> Any:
    value_class: Any = kind
    names = fields_of(kind) if issubclass(kind, Record) else [field.name for field in fields(value_class)]
    hints = get_type_hints(kind)
    make: Any = TypedDict  # by its name a type checker allows it for literals alone
    document = make(name or kind.__name__, {**{key: _without_records(hints[key]) for key in names}, **other})
    document.__doc__ = text or kind.__doc__
    return document
