"""Whether what a node really sends and keeps is what protocol/messages reports of it: keys, and types of values."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import repeat
from typing import Any, ForwardRef, Literal, Union, get_args, get_origin

from typing_extensions import NotRequired, get_type_hints

from clusterctl.protocol.messages import facts, files, gang, network, stored, verbs
from clusterctl.protocol.messages.record import Record, fields_of

NAMES = {
    name: kind
    for module in (gang, facts, files, network, stored, verbs)
    for name, kind in vars(module).items()
}
ONLY_FOR_TYPES = {"NotRequired": NotRequired}
HAND_MADE = ("State",)  # tests write some of these by hand, with fewer keys
COPIED = files.CopiedFromSpec.__annotations__.keys()  # null where the spec of a test lacks the key
VERBS = get_args(verbs.VerbName)  # tests bring further ones


def problems(kind: Any, value: Any, place: str = "") -> Iterator[str]:
    """Say where a value is not of a type of protocol/messages."""
    kind = resolve(kind)
    origin, parts = get_origin(kind), get_args(kind)
    if kind is Any:
        return
    if origin in (Union, types.UnionType):
        found = [list(problems(part, value, place)) for part in parts]
        if all(found):
            yield from min(
                zip(found, parts, strict=True),
                key=lambda pair: (not shares_key(pair[1], value), len(pair[0])),
            )[0]
    elif origin is Literal:
        if value not in parts:
            yield f"{place}: {value!r} is none of {parts}"
    elif isinstance(kind, type) and hasattr(kind, "__required_keys__"):
        yield from record_problems(kind, value, place)
    elif isinstance(kind, type) and issubclass(kind, Record):
        yield from declared_problems(kind, value, place)
    elif isinstance(value, CONTAINERS.get(origin, ())):
        for part, item in members(origin, parts, value):
            yield from problems(part, item, f"{place}[]")
    elif not is_scalar(kind, value):
        yield f"{place}: {str(value)[:60]!r} is no {kind}"


def shares_key(kind: Any, value: Any) -> bool:
    """Return whether an object has a key of a message: it is then most likely this one."""
    keys = getattr(resolve(kind), "__annotations__", {})
    return isinstance(value, dict) and bool(keys.keys() & value.keys())


CONTAINERS: dict[Any, Any] = {
    list: list,
    tuple: list,
    dict: dict,
    Mapping: dict,
}  # of a type, as JSON has them


def members(origin: Any, parts: tuple[Any, ...], value: Any) -> Iterator[tuple[Any, Any]]:
    """Give what a list or an object holds, each with the type that it must be of."""
    if origin is tuple and parts[-1:] != (...,):
        return zip(parts, value, strict=True)
    if origin is tuple:
        return zip(repeat(parts[0]), value, strict=False)
    return zip(repeat(parts[-1]), value.values() if isinstance(value, dict) else value, strict=False)


def record_problems(kind: Any, value: Any, place: str) -> Iterator[str]:
    """Say which keys of an object are missing, unknown or of another type."""
    if not isinstance(value, dict):
        yield f"{place}: {str(value)[:60]!r} is no {kind.__name__}"
        return
    known = hints(kind)
    required = () if kind.__name__ in HAND_MADE else required_keys(kind) - value.keys()
    yield from (f"{place}: {kind.__name__} without {key}" for key in required)
    yield from (f"{place}: {kind.__name__} with {key}" for key in value.keys() - known.keys())
    for key in known.keys() & value.keys():
        if value[key] is not None or key not in COPIED:
            yield from problems(known[key], value[key], f"{place}.{key}")


def declared_problems(kind: type[Record], value: Any, place: str) -> Iterator[str]:
    """Yield the keys of an object that are no fields of a record, or of another type; a Problem may stand for it."""
    if not isinstance(value, dict):
        yield f"{place}: {str(value)[:60]!r} is no {kind.__name__}"
        return
    known = typing.get_type_hints(kind)
    yield from (f"{place}: {kind.__name__} with {key}" for key in value.keys() - fields_of(kind).keys())
    for key in fields_of(kind).keys() & value.keys():
        if value[key] is not None and not (isinstance(value[key], dict) and value[key].keys() == {"problem"}):
            yield from problems(known[key], value[key], f"{place}.{key}")


def is_scalar(kind: Any, value: Any) -> bool:
    """Return whether a text, a number or null is of a type; a whole number is a float too."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    if kind in (None, type(None)):
        return value is None
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind


@cache
def hints(kind: Any) -> dict[str, Any]:
    """Return the types of a message's keys."""
    return get_type_hints(kind, NAMES, ONLY_FOR_TYPES)


@cache
def required_keys(kind: Any) -> frozenset[str]:
    """Return the keys that a message always has; Python itself does not evaluate `NotRequired` in annotations."""
    full: dict[str, Any] = get_type_hints(kind, NAMES, ONLY_FOR_TYPES, include_extras=True)
    optional = {key for key, hint in full.items() if get_origin(hint) == NotRequired}
    return frozenset(kind.__required_keys__ - optional)


def resolve(kind: Any) -> Any:
    """Give the type behind a name."""
    if isinstance(kind, ForwardRef):
        kind = kind.__forward_arg__
    return eval(kind, NAMES) if isinstance(kind, str) else kind


def frame_problems(verb: str, header: dict[str, Any], body: bytes = b"") -> list[str]:
    """Say what of a frame of a node is in no message of protocol/messages."""
    if verb not in VERBS:
        return []
    found = list(problems(verbs.NodeFrame, header, verb))
    if verb == "follow" and "events" in header:
        for line in body.splitlines():
            found += problems(files.JournalEntry, json.loads(line), "journal")
    for state in states(header):
        for attempt in state.get("attempts") or ():
            found += problems(files.AttemptRecord, attempt, "attempt")
    return found


def states(header: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give the states of runs that a frame holds."""
    stopped = header.get("stopped") or {}
    for state in (header.get("state"), stopped.get("state"), *(header.get("runs") or ())):
        if isinstance(state, dict):
            yield state
