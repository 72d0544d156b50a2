"""The keys of both files, from their models; placeholders; the variables that a node's NICs set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from tables import anchor, table

from clusterctl.plans.launch.launchers import VENDOR_NIC_RULES, network_env
from clusterctl.specs.fields import OneOrMore, ScalarType
from clusterctl.specs.inventory.schema import NodeEntry, NodeSettings
from clusterctl.specs.key_reference import FILES, default_of, group_in, short_form_of
from clusterctl.specs.placeholders import MEANINGS
from clusterctl.translation import tr

Groups = Mapping[type[BaseModel], list[str]]  # the keys that take a group of keys, by its model


def keys(file: str) -> str:
    """Write the keys of a file: those at its top level, then each group under its name."""
    top = FILES[file]
    found = groups(top)
    sections = (f"## {title(names)}\n\n{key_table(group, found)}" for group, names in found.items())
    return "\n".join([key_table(top, found), *sections])


def title(names: list[str]) -> str:
    """Return the heading of a group: the keys that take it."""
    return ", ".join(names)


def groups(model: type[BaseModel]) -> dict[type[BaseModel], list[str]]:
    """Find the groups of keys below a model, in the order of the keys that take them."""
    found: dict[type[BaseModel], list[str]] = {}
    for key, info in model.model_fields.items():
        inner = group_in(info.annotation)
        if inner is not None:
            for group, names in {inner: [key], **groups(inner)}.items():
                known = found.setdefault(group, [])
                known += [name for name in names if name not in known]
    return found


def key_table(model: type[BaseModel], found: Groups) -> str:
    """Write one group of keys."""
    rows = (
        (f"`{key}`", kind_of(info, found), default_cell(model, key), tr(str(info.description)))
        for key, info in model.model_fields.items()
    )
    return table((tr("key"), tr("value"), tr("default"), tr("meaning")), rows)


def kind_of(info: FieldInfo, found: Groups) -> str:
    """Return what kind of value a key takes."""
    annotation: Any = info.annotation
    if group := group_in(annotation):
        return kind_of_group(info, f"#{anchor(title(found[group]))}")
    if any(isinstance(note, OneOrMore) for note in info.metadata):
        nullable = type(None) in get_args(annotation)
        form = tr("{}, or a list of them, or null") if nullable else tr("{}, or a list of them")
        return form.format(noun_in(annotation))
    leaf = next((note for note in info.metadata if isinstance(note, ScalarType)), None)
    if leaf is not None:
        return tr("{}, or null").format(leaf.expected) if leaf.nullable else leaf.expected
    if getattr(annotation, "__origin__", None) is dict:
        return tr("names and their values")
    return tr("a list; each item {}").format(noun_in(annotation))


def kind_of_group(info: FieldInfo, link: str) -> str:
    """Return how a key takes a group of keys."""
    annotation: Any = info.annotation
    if annotation == tuple[NodeEntry, ...]:
        return tr("a list of [nodes]({})").format(link)
    if short := short_form_of(info):
        return tr("a value of `{}`, or [keys]({})").format(short.key, link)
    if isinstance(annotation, type):
        return tr("[keys]({})").format(link)
    nullable = type(None) in get_args(annotation)
    return (tr("[keys]({}), or null") if nullable else tr("a list of [keys]({})")).format(link)


def noun_in(annotation: Any) -> str:
    """Find the noun of the innermost kind of value."""
    for note in getattr(annotation, "__metadata__", ()):
        if isinstance(note, ScalarType):
            return note.expected
    return next((noun for inner in get_args(annotation) if (noun := noun_in(inner))), "")


def default_cell(model: type[BaseModel], key: str) -> str:
    """Write the default of a key."""
    if model is NodeEntry and key in NodeSettings.model_fields:
        return tr("as at the top level")
    if model.model_fields[key].is_required():
        return tr("required")
    default = default_of(model, key)
    return f"`{default}`" if default else tr("none")


def placeholders(_: str) -> str:
    """Write the placeholders of args and env."""
    rows = ((f"`${{{name}}}`", tr(text)) for name, text in MEANINGS.items())
    return table((tr("placeholder"), tr("value")), rows)


def variables(nics: str) -> str:
    """Write the network variables for some NICs, by vendor."""
    names = nics.split(",")
    headings = (tr("accelerators"), tr("variables for `nic: [{}]`").format(", ".join(names)))
    return table(headings, vendors(names))


def vendors(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each vendor with its variables, as cells of a table."""
    for vendor in VENDOR_NIC_RULES:
        yield vendor, "<br>".join(f"`{key}={value}`" for key, value in network_env(vendor, names).items())
