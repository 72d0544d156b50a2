"""The keys of a file as the frozen dataclass declares them: kind of value, default, text for people; no pydantic.

A key is a field whose metadata is `documented(...)`; the other fields of the dataclass are known from elsewhere,
such as the name of the file.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, NoneType
from typing import Any, get_args, get_origin, get_type_hints

from clusterctl.errors import InvalidValueError
from clusterctl.protocol.run_id import NAME_PATTERN
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.values import MAX_NAME, parse_name, parse_python, parse_text
from clusterctl.specs.yaml.tree import YamlList, YamlScalar, YamlTree, quoted
from clusterctl.translation import to_translate, tr

JsonSchema = dict[str, Any]

ANY_TEXT: JsonSchema = {"type": ["string", "number", "boolean"]}  # 1e-4 and true keep their text


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

    def read(self, tree: YamlTree) -> object:
        """Turn a text, or null where it may stand, into the value; raises InvalidValueError."""
        if not isinstance(tree, YamlScalar):
            found = tr("a list") if isinstance(tree, YamlList) else tr("keys and values")
            case = "single-example" if self.example else "single"
            raise InvalidValueError(
                "CC-SPEC-012", case, noun=self.expected, found=found, example=self.example
            )
        if tree.text is not None:
            return self.parse(tree.text)
        if self.nullable:
            return None
        raise InvalidValueError("CC-SPEC-014", "nothing", noun=self.expected, way_out=tr(self.null_fix))


@dataclass(frozen=True, eq=False)
class OneOrMore:
    """The annotation of a list that may be written as its only item; null makes it empty where that may stand."""

    nullable: bool = True


@dataclass(frozen=True, eq=False)
class ShortForm:
    """The annotation of a group of keys that may be written as the value of one of them."""

    key: str


Note = ScalarType | OneOrMore | ShortForm


@dataclass(frozen=True)
class Kind:
    """What a key or an item takes: a note on it, and its type without that."""

    annotation: Any
    note: Note | None

    @property
    def nullable(self) -> bool:
        """Return whether null is allowed."""
        noted = isinstance(self.note, ScalarType | OneOrMore) and self.note.nullable
        return noted or (self.group is not None and NoneType in get_args(self.annotation))

    @property
    def group(self) -> type[Any] | None:
        """Return the dataclass of a group of keys, if the key takes one."""
        found = (inner for inner in (self.annotation, *get_args(self.annotation)) if is_group(inner))
        return next(found, None) if not self.is_list else None

    @property
    def is_list(self) -> bool:
        """Return whether it takes a list."""
        return not isinstance(self.note, ScalarType) and get_origin(self.annotation) is tuple

    @property
    def inner(self) -> tuple[Kind, ...]:
        """Return the kind of a list's items, or those of a table's names and values."""
        return tuple(kind_of(hint) for hint in get_args(self.annotation) if hint is not Ellipsis)


@dataclass(frozen=True)
class Key:
    """One key: its field, its text in English, and further keywords of its JSON Schema."""

    field: str
    text: str
    kind: Kind
    required: bool
    default: Any
    keywords: Mapping[str, Any]


def documented(text: str, *, key: str = "", **keywords: Any) -> dict[str, Any]:
    """Return the metadata of a field that is a key of the file; `key` is its name where Python reserves the word."""
    return {"text": text, "key": key, "keywords": keywords}


def keys_of(model: type[Any]) -> Mapping[str, Key]:
    """Return the keys that a dataclass declares, in their order."""
    return _keys_of(model)  # type: ignore[arg-type]  # mypy takes no type for Hashable


@cache
def _keys_of(model: type[Any]) -> Mapping[str, Key]:
    hints = get_type_hints(model, include_extras=True)
    return {
        field.metadata["key"] or field.name: _key_of(field, kind_of(hints[field.name]))
        for field in dataclasses.fields(model)
        if field.metadata
    }


def _key_of(field: dataclasses.Field[Any], kind: Kind) -> Key:
    missing = dataclasses.MISSING
    made = field.default if field.default_factory is missing else field.default_factory()
    default = None if made is missing else made
    return Key(field.name, field.metadata["text"], kind, made is missing, default, field.metadata["keywords"])


def kind_of(hint: Any) -> Kind:
    """Return the kind of an annotation."""
    notes = getattr(hint, "__metadata__", ())
    return Kind(hint.__origin__, notes[0]) if notes else Kind(hint, None)


def is_group(hint: Any) -> bool:
    """Return whether an annotation is a dataclass that declares keys."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def groups_in(model: type[Any]) -> Iterator[tuple[str, type[Any]]]:
    """Yield the keys that take a group of keys, or a list of such groups, each with the group's dataclass."""
    for name, declared in keys_of(model).items():
        if group := group_in(declared.kind):
            yield name, group


def group_in(kind: Kind) -> type[Any] | None:
    """Return the dataclass of a group of keys, also of one in a list."""
    return kind.group or (kind.inner[0].group if kind.is_list else None)


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
NAME = ScalarType(to_translate("a name"), parse_name, text_schema(NAME_PATTERN, maxLength=MAX_NAME))
PYTHON = ScalarType(to_translate("an interpreter"), parse_python, {"type": "string"})
TEXT = ScalarType(to_translate("a text"), parse_text, {"type": "string", "minLength": 1})
OPTIONAL_TEXT = optional(to_translate("a text"), parse_text, {"type": "string", "minLength": 1})
