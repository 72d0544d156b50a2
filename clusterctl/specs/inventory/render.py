"""Inventory or discovered machines to inventory.yaml text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import PurePath

from clusterctl.errors import Issue, Place, SpecError
from clusterctl.specs import codes
from clusterctl.specs.codes import BadValueError
from clusterctl.specs.importers.imported import Foreign, ForeignHost, Remark
from clusterctl.specs.text import counted
from clusterctl.specs.values import parse_name, parse_node_name
from clusterctl.specs.yaml.reader import MOST_BYTES
from clusterctl.specs.yaml.tree import quoted

MOST_REMARKS = 40
MOST_GROUPS = 12

_PLAIN = re.compile(r"[A-Za-z0-9_/~][A-Za-z0-9._/~@+-]*")
_NULLS = frozenset(("~", "null", "Null", "NULL"))
_NODE_KEYS = ("gpus", "python")
SSH_KEYS = ("user", "port", "key", "jump", "proxy_command", "config", "known_hosts", "host_keys")
_ADVICE = (
    "The order of the nodes is the node_rank: the first one is the master.",
    "Often to be added: python (the interpreter that has torch), nic or network (what carries the training).",
)

Pairs = list[tuple[str, object]]


def render_inventory(foreign: Foreign, cluster: str = "") -> str:
    """Write the machines as an inventory that parse_inventory reads; raises SpecError if it would be too large."""
    names, renamed = name_nodes(foreign.hosts)
    shared = {key: shared_value(foreign.hosts, key) for key in (*_NODE_KEYS, *SSH_KEYS)}
    remarks = (*foreign.remarks, *renamed)
    head = [comment(f"Made by `clusterctl inventory import` from {quoted(foreign.file)}, {foreign.kind}.")]
    head += map(comment, _ADVICE)
    head += [comment(describe_groups(foreign))] if foreign.groups else []
    head += ["#", "# Not taken over, or guessed:", *_comments(remarks)] if remarks else []
    top: Pairs = [(key, shared[key]) for key in _NODE_KEYS if shared[key] is not None]
    ssh = {key: shared[key] for key in SSH_KEYS if shared[key] is not None}
    lines = [*head, "", f"cluster: {scalar(cluster_name(foreign.file, cluster))}"]
    lines += [f"ssh: {flow(list(ssh.items()))}"] if ssh else []
    lines += [f"{key}: {scalar(value)}" for key, value in top]
    lines += [
        "nodes:",
        *(f"  - {_node(host, name, shared)}" for host, name in zip(foreign.hosts, names, strict=True)),
    ]
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > MOST_BYTES:
        message, place = (
            f"the inventory would be larger than {MOST_BYTES >> 10} KiB",
            Place(foreign.file, 1, 1),
        )
        raise SpecError([Issue(codes.TOO_LARGE, message, place, "is this the right file?")])
    return text


def describe_groups(foreign: Foreign) -> str:
    """Name the groups of which one may hold the machines that train, where all hosts were taken."""
    named = [f"{name} ({count})" for name, count in foreign.groups[:MOST_GROUPS] if name.isprintable()]
    more = f" and {len(foreign.groups) - MOST_GROUPS} more" if len(foreign.groups) > MOST_GROUPS else ""
    every = f"All {counted(len(foreign.hosts), 'host')} were taken."
    return (
        f"{every} To leave login and storage nodes out, take one group by --group: {', '.join(named)}{more}."
    )


def shared_value(hosts: Sequence[ForeignHost], key: str) -> object:
    """Give the value that all hosts have, if they have one and the same."""
    found = {getattr(host, key) for host in hosts}
    return found.pop() if len(found) == 1 else None


def _node(host: ForeignHost, name: str, shared: dict[str, object]) -> str:
    pairs: Pairs = [("host", host.host)] if name == host.host else [("name", name), ("host", host.host)]
    own = {key: getattr(host, key) for key in (*_NODE_KEYS, *SSH_KEYS) if shared[key] is None}
    pairs += [(key, own[key]) for key in _NODE_KEYS if own.get(key) is not None]
    ssh: Pairs = [(key, own[key]) for key in SSH_KEYS if own.get(key) is not None]
    return flow([*pairs, ("ssh", ssh)] if ssh else pairs)


def flow(pairs: Pairs) -> str:
    """Write keys and values in one line."""
    return "{" + ", ".join(f"{key}: {_value(value)}" for key, value in pairs) + "}"


def _value(value: object) -> str:
    return flow(value) if isinstance(value, list) else scalar(value)


def scalar(value: object) -> str:
    """Write a text so that it is read as that text: plain where that is safe, else in double quotes."""
    text = str(value)
    plain = _PLAIN.fullmatch(text) and text not in _NULLS
    return text if plain else json.dumps(text).replace("\x7f", "\\x7f")  # JSON lets it stand, YAML does not


def comment(text: str) -> str:
    """Write a comment; whatever the text holds, it is one line, can be read as YAML, and moves no cursor."""
    return "# " + "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def cluster_name(file: str, wanted: str) -> str:
    """Name the cluster as wanted, or after the file, if that may be a name."""
    for text in (wanted, PurePath(file).name.partition(".")[0]):
        try:
            return parse_name(text)
        except BadValueError:
            continue
    return "imported"


def name_nodes(hosts: Sequence[ForeignHost]) -> tuple[list[str], list[Remark]]:
    """Give each node a name that may stand in our inventory and belongs to it alone."""
    names: dict[str, None] = {}
    remarks = []
    for rank, host in enumerate(hosts):
        name = next(one for one in _candidates(host, rank) if one not in names and _may_be_named(one))
        if name != host.name:
            remarks.append(Remark(f"{quoted(host.name)} is called {name} here", host.place))
        names[name] = None
    return list(names), remarks


def _candidates(host: ForeignHost, rank: int) -> Iterator[str]:
    yield host.name
    if host.port:
        yield f"{host.name}-{host.port}"
    yield f"node{rank}"
    yield from (f"node{rank}-{number}" for number in count(1))


def _may_be_named(text: str) -> bool:
    try:
        parse_node_name(text)
    except BadValueError:
        return False
    return True


def _comments(remarks: Sequence[Remark]) -> Iterator[str]:
    """Write each remark once, with the place of the first and the number of the others."""
    places: dict[str, list[Place]] = {}
    for remark in dict.fromkeys(remarks):
        places.setdefault(remark.message, []).append(remark.place)
    for message, found in list(places.items())[:MOST_REMARKS]:
        more = f" (and {counted(len(found) - 1, 'more time')})" if len(found) > 1 else ""
        yield comment(f"- line {found[0].line}: {message}{more}")
    if len(places) > MOST_REMARKS:
        yield comment(f"- and {counted(len(places) - MOST_REMARKS, 'more remark')}")


@dataclass(frozen=True)
class Discovered:
    """What a machine said; a machine that did not answer has a `failure` and no more."""

    nic: tuple[str, ...] = ()
    ip: str | None = None
    gpus: int | None = None
    notes: tuple[str, ...] = ()
    failure: str = ""


def render_discovered(
    foreign: Foreign, cluster: str, found: Mapping[str, Discovered], advice: tuple[str, ...] = ()
) -> str:
    """Write the inventory; `found` is by node name. Machines that did not answer stand in comments at the end."""
    names, _ = name_nodes(foreign.hosts)
    known = list(zip(foreign.hosts, names, strict=True))
    ssh = {key: shared_value(foreign.hosts, key) for key in SSH_KEYS}
    lines = ["# Made by `clusterctl inventory discover`.", *map(comment, advice), ""]
    lines.append(f"cluster: {scalar(cluster_name('', cluster))}")
    common: Pairs = [(key, value) for key, value in ssh.items() if value is not None]
    lines += [f"ssh: {flow(common)}"] if common else []
    python = shared_value(foreign.hosts, "python")
    lines += [f"python: {scalar(python)}"] if python else []
    shared = {**ssh, "python": python}
    lines.append("nodes:")
    for host, name in known:
        if not found[name].failure:
            lines += _discovered_node(host, name, shared, found[name])
    lost = [(host, name) for host, name in known if found[name].failure]
    lines += ["", "# Not reached, and so left out:"] if lost else []
    for host, name in lost:
        entry = _discovered_node(host, name, shared, Discovered(notes=(found[name].failure,)))
        lines += [f"#{line}" for line in entry]
    return "\n".join(lines) + "\n"


def _discovered_node(
    host: ForeignHost, name: str, shared: Mapping[str, object], said: Discovered
) -> Iterator[str]:
    """Write a node, a key a line, with its notes below."""
    pairs: Pairs = [("host", host.host)] if name == host.host else [("name", name), ("host", host.host)]
    own: Pairs = [(key, getattr(host, key)) for key in SSH_KEYS if shared[key] is None]
    ssh: Pairs = [(key, value) for key, value in own if value is not None]
    texts = [f"{key}: {scalar(value)}" for key, value in pairs]
    texts += [f"ssh: {flow(ssh)}"] if ssh else []
    texts += [f"python: {scalar(host.python)}"] if host.python and shared["python"] is None else []
    texts += [f"nic: [{', '.join(map(scalar, said.nic))}]"] if said.nic else []
    texts += [f"ip: {scalar(said.ip)}"] if said.ip else []
    texts += [f"gpus: {said.gpus}"] if said.gpus else []
    texts += map(comment, said.notes)
    for place, text in enumerate(texts):
        yield f"  {'  ' if place else '- '}{text}"
