"""A tree of values against a model: the model, or what is wrong and where, in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from clusterctl.errors import InvalidValueError, Issue, Location
from clusterctl.specs.text import did_you_mean, did_you_mean_exactly
from clusterctl.specs.yaml.reader import MOST_ISSUES
from clusterctl.specs.yaml.tree import (
    YamlList,
    YamlMapping,
    YamlScalar,
    YamlTree,
    describe,
    follow_path,
    quoted,
    to_plain,
)
from clusterctl.translation import tr

Model = TypeVar("Model", bound=BaseModel)
KeyPath = tuple[str | int, ...]

LONGEST_LABEL = 40
MOST_ITEMS = 16  # of a list that is shown
_PLAIN = re.compile(r"[\w./=+-]+", re.ASCII)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[^\0\n]{0,50}")
_KEY_MARK = "[key]"  # what pydantic puts behind a key that is itself wrong


def validate(tree: YamlMapping, model: type[Model]) -> tuple[Model | None, list[Issue]]:
    """Validate a tree; the model is None when there are issues."""
    try:
        return model.model_validate(to_plain(tree)), []
    except ValidationError as error:
        details = [(_locate(tree, detail), detail) for detail in error.errors()]
    located = sorted(details, key=lambda pair: pair[0])
    issues = [_make_issue(tree, model, location, detail) for location, detail in located[:MOST_ISSUES]]
    # sort_issues only counts them
    omitted = [Issue("CC-SPEC-003", "", location) for location, _ in located[MOST_ISSUES:]]
    return None, [*issues, *omitted]


def _locate(tree: YamlMapping, detail: ErrorDetails) -> Location:
    path = detail["loc"]
    about_key = detail["type"] == "extra_forbidden" or path[-1:] == (_KEY_MARK,)
    value, key = follow_path(tree, path[:-1] if path[-1:] == (_KEY_MARK,) else path)
    is_empty = isinstance(value, YamlScalar) and value.source == ""
    return key.location if key and (about_key or is_empty) else value.location


def _make_issue(tree: YamlMapping, model: type[BaseModel], location: Location, detail: ErrorDetails) -> Issue:
    path = detail["loc"]
    if detail["type"] == "extra_forbidden":
        return _after_comma(tree, model, path) or _unknown_key(model, path, location)
    if detail["type"] == "missing":
        return missing_key(model, path, location)
    path = _existing_path(tree, path[:-2] if path[-1:] == (_KEY_MARK,) else path)
    error = detail.get("ctx", {}).get("error")  # type: ignore[record-key]  # of pydantic
    if isinstance(error, InvalidValueError):
        message = tr("{subject}: {text}", subject=render_path(path), text=error.message)
        return Issue(error.code, message, location, error.fix)
    value, _ = follow_path(tree, path)
    return _wrong_kind(model, path, value, location, detail["type"])


def _wrong_kind(
    model: type[BaseModel], path: KeyPath, value: YamlTree, location: Location, kind: str
) -> Issue:
    """Report a value where a list, or keys and values, are expected; `kind` is pydantic's name of the mistake."""
    label, wants_list = render_path(path), "list" in kind or "tuple" in kind
    if isinstance(value, YamlScalar) and value.text is None:
        return Issue.of("CC-SPEC-014", "list" if wants_list else "mapping", location, path=label)
    found = describe(value)
    if wants_list:
        return Issue.of(
            "CC-SPEC-012", "list", location, path=label, found=found, form=_suggest_list(path, value)
        )
    nested_model = dict(_nested_models(_model_at(model, path[:-1]))).get(str(path[-1])) if path else None
    if nested_model is not None:
        keys = ", ".join(nested_model.model_fields)
        return Issue.of("CC-SPEC-012", "mapping-keys", location, path=label, found=found, keys=keys)
    form = _suggest_mapping(label, value)
    return Issue.of("CC-SPEC-012", "mapping", location, path=label, found=found, form=form)


def _suggest_list(path: KeyPath, value: YamlTree) -> str:
    """Write the list that is expected."""
    text = value.text if isinstance(value, YamlScalar) else None
    return f"{render_path(path)}: [{', '.join(_suggest_items(path, text)) if text else 'VALUE'}]"


def _suggest_mapping(label: str, value: YamlTree) -> str:
    """Write the keys and values that are expected; `NAME=VALUE` as its author may have meant it."""
    items = value.items if isinstance(value, YamlList) else (value,)
    texts = [item.text or "" for item in items[:MOST_ITEMS] if isinstance(item, YamlScalar)]
    pairs = [text.partition("=") for text in texts if _ASSIGNMENT.fullmatch(text)]
    return f"{label}: {{{', '.join(f'{name}: {quoted(text)}' for name, _, text in pairs) or 'KEY: VALUE'}}}"


def _suggest_items(path: KeyPath, text: str) -> list[str]:
    """Write a text as the entries of a list, as its author may have meant it: a command's words, so many GPUs."""
    if path[-1:] == ("gpus",) and text in map(str, range(1, MOST_ITEMS)):
        return [str(index) for index in range(int(text))]
    items = [word if _PLAIN.fullmatch(word) else quoted(word) for word in text.split()]
    return items if len(items) <= MOST_ITEMS else [*items[:MOST_ITEMS], "..."]


def _existing_path(tree: YamlTree, path: KeyPath) -> KeyPath:
    """Cut a path where the file ends: the only NIC may stand without a list."""
    while path and isinstance(path[-1], int) and not isinstance(follow_path(tree, path[:-1])[0], YamlList):
        path = path[:-1]
    return path


def render_path(path: Sequence[str | int]) -> str:
    """Write the path of a value as users would: `ssh.port`, `nic[1]`; nodes are identified by place."""
    if len(path) > 2 and path[0] == "nodes":
        path = path[2:]
    return "".join(f"[{step}]" if isinstance(step, int) else f".{_render_key(step)}" for step in path).lstrip(
        "."
    )


def _render_key(key: str) -> str:
    return key if key.isprintable() and len(key) <= LONGEST_LABEL else quoted(key)


def missing_key(model: type[BaseModel], path: KeyPath, location: Location) -> Issue:
    """Report a key that must be there."""
    name = str(path[-1])
    meaning = tr(_model_at(model, path[:-1]).model_fields[name].description or "").rstrip(".。")
    return Issue.of(
        "CC-SPEC-011",
        "inside" if path[:-1] else "",
        location,
        key=quoted(name),
        parent=render_path(path[:-1]),
        name=name,
        meaning=f"{meaning[:1].lower()}{meaning[1:]}",
    )


def _after_comma(tree: YamlMapping, model: type[BaseModel], path: KeyPath) -> Issue | None:
    """Report `{nic: eth0,eth1}`: inside braces a comma ends the value, and `eth1` is another key."""
    value, unknown_key = follow_path(tree, path)
    if unknown_key is None or not _is_empty(value):
        return None
    enclosing, _ = follow_path(tree, path[:-1])
    entries = list(enclosing.entries.values()) if isinstance(enclosing, YamlMapping) else []
    line, known = unknown_key.location.line, _model_at(model, path[:-1]).model_fields
    # a key on the line of another one: both are inside braces
    same_line = [(key, value) for key, value in entries if key.location.line == line]
    start, texts = unknown_key, [""]
    for key, value in same_line:
        if _is_empty(value) and key.text not in known:
            texts.append(str(key.text))
        elif unknown_key.text in texts:
            break
        else:
            start, texts = key, [value.text or "" if isinstance(value, YamlScalar) else ""]
    if not texts[0]:
        return None
    facts = {"key": start.text, "value": ",".join(texts), "form": ", ".join(texts)}
    return Issue.of("CC-SPEC-010", "comma", start.location, **facts)


def _is_empty(value: YamlTree) -> bool:
    return isinstance(value, YamlScalar) and value.source == ""


def _unknown_key(model: type[BaseModel], path: KeyPath, location: Location) -> Issue:
    key = str(path[-1])
    enclosing = _model_at(model, path[:-1])
    nested_paths = (
        f"{name}.{key}"
        for name, nested_model in _nested_models(enclosing)
        if key in nested_model.model_fields
    )
    nested_path = next(nested_paths, None)
    suggestion = (
        did_you_mean_exactly(nested_path) if nested_path else did_you_mean(key, enclosing.model_fields)
    )
    if suggestion:
        return Issue.of("CC-SPEC-010", "near", location, key=quoted(key), suggestion=suggestion)
    known = ", ".join(enclosing.model_fields)
    return Issue.of("CC-SPEC-010", "", location, key=quoted(key), known=known)


def _model_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel]:
    for step in path:
        if isinstance(step, str):
            model = dict(_nested_models(model)).get(step, model)
    return model


def _nested_models(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, info in model.model_fields.items():
        for annotation in (info.annotation, *get_args(info.annotation)):
            if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                yield name, annotation


def find_duplicates(sequence: YamlTree | None, name: str) -> Iterator[Issue]:
    """Point out every text that is in a list a second time."""
    texts: set[str] = set()
    for item in sequence.items if isinstance(sequence, YamlList) else ():
        text = item.text if isinstance(item, YamlScalar) else None
        if text is not None and text in texts:
            yield Issue.of("CC-SPEC-013", "twice", item.location, name=name, text=quoted(text))
        elif text is not None:
            texts.add(text)


def find_scalar(tree: YamlTree, *path: str | int) -> YamlScalar | None:
    """Find the scalar at exactly this path, if there is one that is not null."""
    for step in path:
        if isinstance(step, str) and isinstance(tree, YamlMapping) and (child := tree.get(step)) is not None:
            tree = child
        else:
            return None
    return tree if isinstance(tree, YamlScalar) and tree.text is not None else None
