"""A tree of values against a model: the model, or what is wrong and where, in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from clusterctl.errors import Issue, Place
from clusterctl.specs import codes
from clusterctl.specs.codes import BadValueError
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.yaml.reader import MOST_ISSUES
from clusterctl.specs.yaml.tree import Listing, Scalar, Table, Tree, describe, find, quoted, to_plain

Model = TypeVar("Model", bound=BaseModel)
Path = tuple[str | int, ...]

LONGEST_LABEL = 40
MOST_WORDS = 16  # of a list that is shown
_PLAIN = re.compile(r"[\w./=+-]+", re.ASCII)
_KEY = "[key]"  # what pydantic puts behind a key that is itself wrong


def examine(tree: Table, model: type[Model]) -> tuple[Model | None, list[Issue]]:
    """Validate a tree; the model is None when there are issues."""
    try:
        return model.model_validate(to_plain(tree)), []
    except ValidationError as error:
        details = [(_place(tree, detail), detail) for detail in error.errors()]
    placed = sorted(details, key=lambda pair: pair[0])
    issues = [_issue(tree, model, place, detail) for place, detail in placed[:MOST_ISSUES]]
    rest = [
        Issue(codes.TOO_LARGE, "", place) for place, _ in placed[MOST_ISSUES:]
    ]  # in_order only counts them
    return None, [*issues, *rest]


def _place(tree: Table, detail: ErrorDetails) -> Place:
    path = detail["loc"]
    about_key = detail["type"] == "extra_forbidden" or path[-1:] == (_KEY,)
    value, key = find(tree, path[:-1] if path[-1:] == (_KEY,) else path)
    nothing = isinstance(value, Scalar) and value.source == ""
    return key.place if key and (about_key or nothing) else value.place


def _issue(tree: Table, model: type[BaseModel], place: Place, detail: ErrorDetails) -> Issue:
    path = detail["loc"]
    if detail["type"] == "extra_forbidden":
        return _unknown_key(model, path, place)
    if detail["type"] == "missing":
        return _missing_key(model, path, place)
    path = _written(tree, path[:-2] if path[-1:] == (_KEY,) else path)
    wrong = detail.get("ctx", {}).get("error")
    if isinstance(wrong, BadValueError):
        return Issue(wrong.code, f"{label(path)}: {wrong.message}", place, wrong.fix)
    expected = "a list" if "list" in detail["type"] or "tuple" in detail["type"] else "keys and values"
    value, _ = find(tree, path)
    nothing = isinstance(value, Scalar) and value.text is None
    code = codes.NO_VALUE if nothing else codes.WRONG_TYPE
    fix = "give a value, or drop the line" if nothing else ""
    if expected == "a list" and isinstance(value, Scalar) and value.text:
        fix = f"{label(path)}: [{', '.join(_words(path, value.text))}]"
    return Issue(code, f"{label(path)}: expected {expected}, got {describe(value)}", place, fix)


def _words(path: Path, text: str) -> list[str]:
    """Write a text as the entries of a list, as its author may have meant it: a command's words, so many GPUs."""
    if path[-1:] == ("gpus",) and text in map(str, range(1, MOST_WORDS)):
        return [str(index) for index in range(int(text))]
    words = [word if _PLAIN.fullmatch(word) else quoted(word) for word in text.split()]
    return words if len(words) <= MOST_WORDS else [*words[:MOST_WORDS], "..."]


def _written(tree: Tree, path: Path) -> Path:
    """Cut a path where the file ends: the only NIC may stand without a list."""
    while path and isinstance(path[-1], int) and not isinstance(find(tree, path[:-1])[0], Listing):
        path = path[:-1]
    return path


def label(path: Sequence[str | int]) -> str:
    """Write the path of a value as users would: `ssh.port`, `nic[1]`; nodes are told apart by place."""
    if len(path) > 2 and path[0] == "nodes":
        path = path[2:]
    return "".join(f"[{step}]" if isinstance(step, int) else f".{_shown(step)}" for step in path).lstrip(".")


def _shown(key: str) -> str:
    return key if key.isprintable() and len(key) <= LONGEST_LABEL else quoted(key)


def _missing_key(model: type[BaseModel], path: Path, place: Place) -> Issue:
    key = str(path[-1])
    where = f" in {label(path[:-1])}" if path[:-1] else ""
    meaning = (_model_at(model, path[:-1]).model_fields[key].description or "").rstrip(".")
    fix = f"add {key}: {meaning[:1].lower()}{meaning[1:]}"
    return Issue(codes.MISSING_KEY, f"the key {quoted(key)} is missing{where}", place, fix)


def _unknown_key(model: type[BaseModel], path: Path, place: Place) -> Issue:
    key = str(path[-1])
    here = _model_at(model, path[:-1])
    below = (f"{name}.{key}" for name, inner in _inner_models(here) if key in inner.model_fields)
    home = next(below, None)
    guess = f", did you mean {quoted(home)}?" if home else did_you_mean(key, here.model_fields)
    known = ", ".join(here.model_fields)
    return Issue(codes.UNKNOWN_KEY, f"unknown key {quoted(key)}{guess}", place, f"known keys: {known}")


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel]:
    for step in path:
        if isinstance(step, str):
            model = dict(_inner_models(model)).get(step, model)
    return model


def _inner_models(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, info in model.model_fields.items():
        for kind in (info.annotation, *get_args(info.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield name, kind


def repeated(listing: Tree | None, name: str) -> Iterator[Issue]:
    """Point out every text that stands in a list a second time."""
    seen: set[str] = set()
    for item in listing.items if isinstance(listing, Listing) else ():
        text = item.text if isinstance(item, Scalar) else None
        if text is not None and text in seen:
            yield Issue(
                codes.WRONG_VALUE, f"{name}: {quoted(text)} stands here twice", item.place, "keep one"
            )
        elif text is not None:
            seen.add(text)


def text_at(tree: Tree, *path: str | int) -> Scalar | None:
    """Find the scalar at exactly this path, if there is one that is not null."""
    for step in path:
        if isinstance(step, str) and isinstance(tree, Table) and (below := tree.get(step)) is not None:
            tree = below
        else:
            return None
    return tree if isinstance(tree, Scalar) and tree.text is not None else None
