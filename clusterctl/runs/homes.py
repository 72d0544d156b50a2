"""Under which name the outputs of a work directory are kept here, when several nodes share it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from clusterctl.runs.landing import OURS
from clusterctl.runs.private_files import read_own, write_aside
from clusterctl.runs.pull import Listed


def group_homes(listed: Mapping[str, Listed]) -> list[list[str]]:
    """Put nodes together that share a work directory: they agree on who was first, and so does he."""
    groups: dict[str, list[str]] = {}
    for name, one in listed.items():
        first = listed.get(one.first)
        agreed = first is not None and first.first == one.first
        groups.setdefault(one.first if agreed else f"{name}/", []).append(name)
    return list(groups.values())


def name_homes(groups: Sequence[Sequence[str]], listed: Mapping[str, Listed], target: Path) -> dict[str, str]:
    """Name each group by its first node, or as it was named before by one that does not answer now.

    Gives the names by each group's first node.
    """
    file = target / OURS / "homes.json"
    known = _load(file)
    names: dict[str, str] = {}
    for group in groups:
        place = listed[group[0]].place
        before = known.get(place, "") if place else ""
        mine = before in group or (before and before not in listed and before not in names.values())
        names[group[0]] = before if mine else group[0]
        if place and len(group) > 1:
            known[place] = names[group[0]]
    if known:
        with suppress(OSError):
            write_aside(file, json.dumps(known))
    return names


def choose_bringer(group: Sequence[str], home: str) -> str:
    """Choose who brings a group's outputs: whose name they bear, for he alone writes below it anyway."""
    return home if home in group else group[0]


def _load(file: Path) -> dict[str, str]:
    try:
        raw = json.loads(read_own(file))
        return {str(place): str(name) for place, name in raw.items() if _is_name(str(name))}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _is_name(name: str) -> bool:
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name
