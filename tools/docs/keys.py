"""The keys of both files, as they are declared; placeholders; the variables that a node's NICs set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tables import anchor, table

from clusterctl.plans.launch.launchers import VENDOR_NIC_RULES, network_env
from clusterctl.specs.fields import Kind, OneOrMore, ScalarType, ShortForm, group_in, groups_in, keys_of
from clusterctl.specs.inventory.model import Node, NodeSettings
from clusterctl.specs.json_schema import FILES, default_of
from clusterctl.specs.placeholders import MEANINGS
from clusterctl.translation import tr

Groups = Mapping[type[Any], list[str]]  # the keys that take a group of keys, by its dataclass


def keys(file: str) -> str:
    """Write the keys of a file: those at its top level, then each group under its name."""
    top = FILES[file]
    found = groups(top)
    sections = (f"## {title(names)}\n\n{key_table(group, found)}" for group, names in found.items())
    return "\n".join([key_table(top, found), *sections])


def title(names: list[str]) -> str:
    """Return the heading of a group: the keys that take it."""
    return ", ".join(names)


def groups(model: type[Any]) -> dict[type[Any], list[str]]:
    """Find the groups of keys below a model, in the order of the keys that take them."""
    found: dict[type[Any], list[str]] = {}
    for key, inner in groups_in(model):
        for group, names in {inner: [key], **groups(inner)}.items():
            known = found.setdefault(group, [])
            known += [name for name in names if name not in known]
    return found


def key_table(model: type[Any], found: Groups) -> str:
    """Write one group of keys."""
    rows = (
        (f"`{key}`", value_of(declared.kind, found), default_cell(model, key), tr(declared.text))
        for key, declared in keys_of(model).items()
    )
    return table((tr("key"), tr("value"), tr("default"), tr("meaning")), rows)


def value_of(kind: Kind, found: Groups) -> str:
    """Return what kind of value a key takes."""
    note = kind.note
    if group := group_in(kind):
        return value_of_group(kind, f"#{anchor(title(found[group]))}")
    if isinstance(note, OneOrMore):
        form = tr("{}, or a list of them, or null") if note.nullable else tr("{}, or a list of them")
        return form.format(expected_in(*kind.inner))
    if isinstance(note, ScalarType):
        return tr("{}, or null").format(note.expected) if note.nullable else note.expected
    if not kind.is_list:
        return tr("names and their values")
    return tr("a list; each item {}").format(expected_in(*kind.inner))


def value_of_group(kind: Kind, link: str) -> str:
    """Return how a key takes a group of keys."""
    if kind.is_list:
        nodes = kind.inner[0].group is Node
        return (tr("a list of [nodes]({})") if nodes else tr("a list of [keys]({})")).format(link)
    if isinstance(kind.note, ShortForm):
        return tr("a value of `{}`, or [keys]({})").format(kind.note.key, link)
    return (tr("[keys]({}), or null") if kind.nullable else tr("[keys]({})")).format(link)


def expected_in(kind: Kind) -> str:
    """Return the noun of the kind of value of an item."""
    assert isinstance(kind.note, ScalarType)
    return kind.note.expected


def default_cell(model: type[Any], key: str) -> str:
    """Write the default of a key."""
    if model is Node and key in keys_of(NodeSettings):
        return tr("as at the top level")
    if keys_of(model)[key].required:
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
