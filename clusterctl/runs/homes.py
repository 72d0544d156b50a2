"""Under which name the outputs of a work directory are kept here, when several nodes share it.

That nodes share one is believed only if one of them has seen what the other has put there: each is given a mark that no
other node is told, and the first to come leaves its own for the others to find. So a node can say that it shares its
directory with another one only where that is so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clusterctl.runs.landing import OURS
from clusterctl.runs.private_files import read_own, write_aside
from clusterctl.runs.pull import Listed


@dataclass(frozen=True)
class Home:
    """The name under which a work directory's outputs are kept, and the nodes that shared it."""

    name: str
    nodes: frozenset[str]


def group_homes(listed: Mapping[str, Listed], marks: Mapping[str, str]) -> list[list[str]]:
    """Put nodes together that share a work directory: they found the same mark, as did the node that was given it."""
    given = {mark: name for name, mark in marks.items()}
    groups: dict[str, list[str]] = {}
    for name, one in listed.items():
        first = given.get(one.mark)
        agreed = first is not None and first in listed and listed[first].mark == one.mark
        groups.setdefault(first if first is not None and agreed else f"{name}/", []).append(name)
    return list(groups.values())


def name_homes(groups: Sequence[Sequence[str]], listed: Mapping[str, Listed], target: Path) -> dict[str, str]:
    """Name each group by its first node, or as it was named before, also by one that does not answer now.

    Gives the names by each group's first node. A name of before counts for those alone who shared the directory then:
    by its id, which a node may lie about, nobody comes by the name of another.
    """
    file = target / OURS / "homes.json"
    known = _load(file)
    names: dict[str, str] = {}
    for group in groups:
        place = listed[group[0]].place
        home = known.get(place) if place else None
        before = home.name if home and home.nodes & set(group) else ""
        mine = before in group or (before and before not in listed and before not in names.values())
        names[group[0]] = before if mine else group[0]
        if place and len(group) > 1:
            shared = {*group, *(home.nodes if home and before else ())}
            known[place] = Home(names[group[0]], frozenset(shared))
    if known:
        with suppress(OSError):
            write_aside(
                file, json.dumps({place: [one.name, sorted(one.nodes)] for place, one in known.items()})
            )
    return names


def choose_bringer(group: Sequence[str], home: str) -> str:
    """Choose who brings a group's outputs: whose name they bear, for he alone writes below it anyway."""
    return home if home in group else group[0]


def _load(file: Path) -> dict[str, Home]:
    """Read who shared which work directory; an older version wrote the name alone."""
    try:
        raw = json.loads(read_own(file))
        pairs = ((str(place), (one, [one]) if isinstance(one, str) else one) for place, one in raw.items())
        homes = {place: Home(str(name), frozenset(map(str, nodes))) for place, (name, nodes) in pairs}
        return {place: home for place, home in homes.items() if _is_name(home.name)}
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
