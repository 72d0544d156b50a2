"""A tree of values against the dataclass that declares its keys: the value, or what is wrong and where."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from clusterctl.errors import InvalidValueError, Issue, Location
from clusterctl.specs.fields import Key, Kind, OneOrMore, ScalarType, ShortForm, groups_in, keys_of
from clusterctl.specs.text import did_you_mean, did_you_mean_exactly
from clusterctl.specs.yaml.reader import MAX_ISSUES
from clusterctl.specs.yaml.tree import YamlList, YamlMapping, YamlScalar, YamlTree, describe, quoted
from clusterctl.translation import tr

Model = TypeVar("Model")
KeyPath = tuple[str | int, ...]

MAX_LABEL = 40  # characters
MAX_ITEMS = 16  # of a list that is shown
_PLAIN = re.compile(r"[\w./=+-]+", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\0\n]{0,50}")


def validate(tree: YamlMapping, model: type[Model], **known: object) -> tuple[Model | None, list[Issue]]:
    """Read a tree as a dataclass; None when there are issues. `known`: values of the fields that are no keys."""
    reading = _Reading(known)
    value = reading.read_group(tree, model, ())
    if not reading.found:
        return value, []
    located = sorted(reading.found, key=lambda pair: pair[0])
    issues = [make() for _, make in located[:MAX_ISSUES]]
    # sort_issues only counts them
    omitted = [Issue("CC-SPEC-003", "", location) for location, _ in located[MAX_ISSUES:]]
    return None, [*issues, *omitted]


class _Reading:
    """One reading of a file: what is wrong is kept with its place, and put into words only if it is shown."""

    def __init__(self, known: Mapping[str, object]) -> None:
        self._known = known
        self.found: list[tuple[Location, Callable[[], Issue]]] = []

    def read_group(self, tree: YamlMapping, model: type[Model], path: KeyPath) -> Model:
        """Read keys and values."""
        keys = keys_of(model)
        values: dict[str, Any] = {one.field: None for one in keys.values() if one.required}
        for name, declared in keys.items():
            if name in tree.entries:
                values[declared.field] = self._read(declared.kind, tree, name, (*path, name))
            elif declared.required:
                self.found.append((tree.location, partial(missing_key, model, (*path, name), tree.location)))
        for name, (key, _) in tree.entries.items():
            if name not in keys:
                self.found.append((key.location, partial(_unknown_key, tree, model, name)))
        others = [field.name for field in dataclasses.fields(model) if not field.metadata]  # type: ignore[arg-type]
        return model(**values, **{name: self._known[name] for name in others if name in self._known})

    def _read(self, kind: Kind, parent: YamlMapping, name: str, path: KeyPath) -> Any:
        """Read the value of a key; a value that was left out is reported at its key."""
        key, tree = parent.entries[name]
        return self._read_value(kind, tree, path, key.location if is_omitted(tree) else tree.location)

    def _read_value(self, kind: Kind, tree: YamlTree, path: KeyPath, location: Location) -> Any:
        note, is_null = kind.note, isinstance(tree, YamlScalar) and tree.text is None
        if isinstance(note, ScalarType):
            return self._try(partial(note.read, tree), path, location)
        if is_null and kind.nullable:
            return () if isinstance(note, OneOrMore) else None
        if kind.is_list:
            return self._read_list(kind, tree, path, location)
        if kind.group is None:
            return self._read_table(kind, tree, path, location)
        return self._read_group(kind, tree, path, location)

    def _read_group(self, kind: Kind, tree: YamlTree, path: KeyPath, location: Location) -> Any:
        note, is_null = kind.note, isinstance(tree, YamlScalar) and tree.text is None
        assert kind.group is not None
        if isinstance(note, ShortForm) and isinstance(tree, YamlScalar) and not is_null:
            declared = keys_of(kind.group)[note.key]
            return kind.group(
                **{note.key: self._read_value(declared.kind, tree, (*path, note.key), location)}
            )
        if isinstance(tree, YamlMapping):
            return self.read_group(tree, kind.group, path)
        return self._refuse(partial(_wrong_kind, kind, path, tree, location), location)

    def _read_list(self, kind: Kind, tree: YamlTree, path: KeyPath, location: Location) -> Any:
        (item,) = kind.inner
        if isinstance(kind.note, OneOrMore):
            if isinstance(tree, YamlScalar) and tree.text is not None:
                return (self._read_value(item, tree, path, location),)
            if isinstance(tree, YamlList) and not tree.items:
                return self._refuse(
                    partial(_invalid, InvalidValueError("CC-SPEC-013", "empty"), path, location), location
                )
        if not isinstance(tree, YamlList):
            return self._refuse(partial(_wrong_kind, kind, path, tree, location), location)
        return tuple(
            self._read_value(item, one, (*path, index), one.location) for index, one in enumerate(tree.items)
        )

    def _read_table(self, kind: Kind, tree: YamlTree, path: KeyPath, location: Location) -> Any:
        """Read names and their values."""
        if not isinstance(tree, YamlMapping):
            return self._refuse(partial(_wrong_kind, kind, path, tree, location), location)
        name_kind, value_kind = kind.inner
        values = {}
        for name, (key, _) in tree.entries.items():
            read_name = self._read_value(name_kind, key, path, key.location)
            values[read_name] = self._read(value_kind, tree, name, (*path, name))
        return values

    def _try(self, read: Callable[[], object], path: KeyPath, location: Location) -> Any:
        try:
            return read()
        except InvalidValueError as error:
            return self._refuse(partial(_invalid, error, path, location), location)

    def _refuse(self, make: Callable[[], Issue], location: Location) -> None:
        self.found.append((location, make))


def _invalid(error: InvalidValueError, path: KeyPath, location: Location) -> Issue:
    """Report a value that its parser refused."""
    message = tr("{subject}: {text}", subject=render_path(path), text=error.message)
    return Issue(error.code, message, location, error.fix)


def _wrong_kind(kind: Kind, path: KeyPath, value: YamlTree, location: Location) -> Issue:
    """Report a value where a list, or keys and values, are expected."""
    label = render_path(path)
    if isinstance(value, YamlScalar) and value.text is None:
        return Issue.of("CC-SPEC-014", "list" if kind.is_list else "mapping", location, path=label)
    found = describe(value)
    if kind.is_list:
        return Issue.of(
            "CC-SPEC-012", "list", location, path=label, found=found, form=_suggest_list(path, value)
        )
    if kind.group is not None and isinstance(path[-1], str):
        keys = ", ".join(keys_of(kind.group))
        return Issue.of("CC-SPEC-012", "mapping-keys", location, path=label, found=found, keys=keys)
    form = _suggest_mapping(label, value)
    return Issue.of("CC-SPEC-012", "mapping", location, path=label, found=found, form=form)


def _suggest_list(path: KeyPath, value: YamlTree) -> str:
    """Write the list that is expected."""
    text = value.text if isinstance(value, YamlScalar) else None
    return f"{render_path(path)}: [{', '.join(_suggest_items(path, text)) if text else 'VALUE'}]"


def _suggest_mapping(label: str, value: YamlTree) -> str:
    """Write the keys and values that are expected; `NAME=VALUE` as was probably meant."""
    items = value.items if isinstance(value, YamlList) else (value,)
    texts = [item.text or "" for item in items[:MAX_ITEMS] if isinstance(item, YamlScalar)]
    pairs = [text.partition("=") for text in texts if _ASSIGNMENT.fullmatch(text)]
    return f"{label}: {{{', '.join(f'{name}: {quoted(text)}' for name, _, text in pairs) or 'KEY: VALUE'}}}"


def _suggest_items(path: KeyPath, text: str) -> list[str]:
    """Write a text as the entries of a list, as was probably meant: the words of a command, that many GPUs."""
    if path[-1:] == ("gpus",) and text in map(str, range(1, MAX_ITEMS)):
        return [str(index) for index in range(int(text))]
    items = [word if _PLAIN.fullmatch(word) else quoted(word) for word in text.split()]
    return items if len(items) <= MAX_ITEMS else [*items[:MAX_ITEMS], "..."]


def render_path(path: Sequence[str | int]) -> str:
    """Write the path of a value as users would: `ssh.port`, `nic[1]`; nodes are identified by place."""
    if len(path) > 2 and path[0] == "nodes":
        path = path[2:]
    return "".join(f"[{step}]" if isinstance(step, int) else f".{_render_key(step)}" for step in path).lstrip(
        "."
    )


def _render_key(key: str) -> str:
    return key if key.isprintable() and len(key) <= MAX_LABEL else quoted(key)


def missing_key(model: type[Any], path: KeyPath, location: Location) -> Issue:
    """Report a key that must be there."""
    name = str(path[-1])
    meaning = tr(keys_of(model)[name].text).rstrip(".。")
    return Issue.of(
        "CC-SPEC-011",
        "inside" if path[:-1] else "",
        location,
        key=quoted(name),
        parent=render_path(path[:-1]),
        name=name,
        meaning=f"{meaning[:1].lower()}{meaning[1:]}",
    )


def _unknown_key(tree: YamlMapping, model: type[Any], name: str) -> Issue:
    """Report a key that the model does not declare, with the one that was probably meant."""
    key, known = tree.entries[name][0], keys_of(model)
    if issue := _after_comma(tree, known, name):
        return issue
    nested_paths = (f"{outer}.{name}" for outer, group in groups_in(model) if name in keys_of(group))
    nested_path = next(nested_paths, None)
    suggestion = did_you_mean_exactly(nested_path) if nested_path else did_you_mean(name, known)
    if suggestion:
        return Issue.of("CC-SPEC-010", "near", key.location, key=quoted(name), suggestion=suggestion)
    return Issue.of("CC-SPEC-010", "", key.location, key=quoted(name), known=", ".join(known))


def _after_comma(tree: YamlMapping, known: Mapping[str, Key], name: str) -> Issue | None:
    """Report `{nic: eth0,eth1}`: inside braces a comma ends the value, and `eth1` is another key."""
    unknown_key, unknown_value = tree.entries[name]
    if not is_omitted(unknown_value):
        return None
    # a key on the line of another one: both are inside braces
    line = unknown_key.location.line
    same_line = [(key, value) for key, value in tree.entries.values() if key.location.line == line]
    start, texts = unknown_key, [""]
    for key, value in same_line:
        if is_omitted(value) and key.text not in known:
            texts.append(str(key.text))
        elif unknown_key.text in texts:
            break
        else:
            start, texts = key, [value.text or "" if isinstance(value, YamlScalar) else ""]
    if not texts[0]:
        return None
    facts = {"key": start.text, "value": ",".join(texts), "form": ", ".join(texts)}
    return Issue.of("CC-SPEC-010", "comma", start.location, **facts)


def is_omitted(value: YamlTree) -> bool:
    """Return whether a key has no value."""
    return isinstance(value, YamlScalar) and value.source == ""


def find_duplicates(sequence: YamlTree | None, name: str) -> Iterator[Issue]:
    """Report every text that is in a list twice."""
    texts: set[str] = set()
    for item in sequence.items if isinstance(sequence, YamlList) else ():
        text = item.text if isinstance(item, YamlScalar) else None
        if text is not None and text in texts:
            yield Issue.of("CC-SPEC-013", "twice", item.location, name=name, text=quoted(text))
        elif text is not None:
            texts.add(text)
