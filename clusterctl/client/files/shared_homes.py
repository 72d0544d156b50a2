"""Nodes that share a work directory: which do, and under which name its outputs are kept here.

That nodes share one is accepted only if one of them has found the other's file there: each gets a mark that no
other node knows, and the first to come leaves its own for the others to find. So a node can say that it shares its
directory with another one only where that is so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clusterctl.client.files.node_files import NodeListing
from clusterctl.client.local.private_files import read_own, write_atomically
from clusterctl.plans.sync.received_names import META_FOLDER


@dataclass(frozen=True)
class SharedHome:
    """The name under which a work directory's outputs are kept, and the nodes that shared it."""

    name: str
    nodes: frozenset[str]


def group_by_workdir(listed: Mapping[str, NodeListing], marks: Mapping[str, str]) -> list[list[str]]:
    """Put nodes together that share a work directory: they found the same mark, as did the node that was given it."""
    owners = {mark: name for name, mark in marks.items()}
    groups: dict[str, list[str]] = {}
    for name, listing in listed.items():
        first = owners.get(listing.mark)
        confirmed = first is not None and first in listed and listed[first].mark == listing.mark
        groups.setdefault(first if first is not None and confirmed else f"{name}/", []).append(name)
    return list(groups.values())


def name_shared_homes(
    groups: Sequence[Sequence[str]], listed: Mapping[str, NodeListing], target: Path
) -> dict[str, str]:
    """Name each group by its first node, or as it was named before, also by one that does not answer now.

    Gives the names by each group's first node. A name of before counts for those alone who shared the directory then:
    by its id, which a node may forge, none gets the name of another.
    """
    file = target / META_FOLDER / "homes.json"
    homes = _load(file)
    names: dict[str, str] = {}
    for group in groups:
        workdir_id = listed[group[0]].workdir_id
        home = homes.get(workdir_id) if workdir_id else None
        previous = home.name if home and home.nodes & set(group) else ""
        keeps_name = previous in group or (
            previous and previous not in listed and previous not in names.values()
        )
        names[group[0]] = previous if keeps_name else group[0]
        if workdir_id and len(group) > 1:
            sharing = {*group, *(home.nodes if home and previous else ())}
            homes[workdir_id] = SharedHome(names[group[0]], frozenset(sharing))
    if homes:
        with suppress(OSError):
            write_atomically(
                file,
                json.dumps(
                    {
                        workdir_id: [shared_home.name, sorted(shared_home.nodes)]
                        for workdir_id, shared_home in homes.items()
                    }
                ),
            )
    return names


def choose_fetching_node(group: Sequence[str], home: str) -> str:
    """Choose the node that sends a group's outputs: the one whose name they have, the only one that writes there."""
    return home if home in group else group[0]


def _load(file: Path) -> dict[str, SharedHome]:
    """Read who shared which work directory; an older version wrote the name alone."""
    try:
        raw = json.loads(read_own(file))
        pairs = (
            (str(workdir_id), (entry, [entry]) if isinstance(entry, str) else entry)
            for workdir_id, entry in raw.items()
        )
        homes = {
            workdir_id: SharedHome(str(name), frozenset(map(str, nodes)))
            for workdir_id, (name, nodes) in pairs
        }
        return {workdir_id: home for workdir_id, home in homes.items() if _is_name(home.name)}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
