"""The files of one checkpoint, whose parts several nodes have: what is downloaded from which node, and what is missing.

Nodes list NODE_RANK/PATH. Ranks that wrote the same path with other content get a directory each, `node-0` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from clusterctl.plans.sync.listed_files import ListedEntry, find_refusal_reason

_LISTED = re.compile(r"([0-9]{1,9})/(.+)", re.DOTALL)

Holders = dict[str, ListedEntry]  # of one file, by node


@dataclass(frozen=True)
class CheckpointFiles:
    """The files of a checkpoint by their paths here, with those who have each.

    `differing`: nodes do not agree on it, `disputing` has one for each content. `files` and `bytes` count them as the
    parts do: a file that two ranks have counts twice.
    """

    holders: Mapping[str, Holders]
    files: int
    bytes: int
    differing: str = ""
    disputing: tuple[str, ...] = ()


def merge_parts(name: str, listings: Mapping[str, Sequence[ListedEntry]]) -> CheckpointFiles:
    """Put together what nodes have listed of a checkpoint; ValueError for what no part can hold."""
    by_part: dict[tuple[int, str], Holders] = {}
    for node, entries in listings.items():
        for entry in entries:
            rank, path = _parse_path(name, entry)
            by_part.setdefault((rank, path), {})[node] = entry
    contents = {key: {_content(entry) for entry in found.values()} for key, found in by_part.items()}
    differing = next((key for key, found in contents.items() if len(found) > 1), None)
    sizes = [next(iter(found.values())).size for found in by_part.values()]
    by_path: dict[str, set[tuple[str, int, str]]] = {}
    for (_, path), found in contents.items():
        by_path.setdefault(path, set()).update(found)
    apart = any(len(found) > 1 for found in by_path.values())
    holders: dict[str, Holders] = {}
    for (rank, path), parts in by_part.items():
        here = f"node-{rank}/{path}" if apart else path
        named = {node: replace(entry, path=here) for node, entry in parts.items()}
        holders[here] = {**holders.get(here, {}), **named}
    disputed = (differing[1], _name_disputing(by_part[differing])) if differing else ("", ())
    return CheckpointFiles(holders, len(by_part), sum(sizes), *disputed)


def _parse_path(name: str, entry: ListedEntry) -> tuple[int, str]:
    match = _LISTED.fullmatch(entry.path)
    if match is None or not f"{match[2]}/".startswith(f"{name}/") or entry.kind not in ("file", "link"):
        raise ValueError(f"no file of the checkpoint: {entry.path[:200]!r}")
    if reason := find_refusal_reason(replace(entry, path=match[2])):
        raise ValueError(f"{reason}: {entry.path[:200]!r}")
    return int(match[1]), match[2]


def _name_disputing(holders: Holders) -> tuple[str, ...]:
    """Return a node for each content."""
    return tuple({_content(holders[node]): node for node in sorted(holders, reverse=True)}.values())


def _content(entry: ListedEntry) -> tuple[str, int, str]:
    return entry.kind, entry.size, entry.content


def assign_files(
    files: CheckpointFiles,
    done: Collection[str],
    away: Collection[str],
    refused: Collection[tuple[str, str]] = (),
) -> dict[str, list[ListedEntry]]:
    """Return what each node sends: every file that is not done once, from the node that has the least to send.

    Nodes that are `away` send nothing, and no node sends what was `refused` of it (node, path). A file that only these
    have is left out.
    """
    chosen: dict[str, list[ListedEntry]] = {}
    load: dict[str, int] = {}
    for path, holders in files.holders.items():
        able = [node for node in holders if node not in away and (node, path) not in refused]
        if path in done or not able:
            continue
        node = min(able, key=lambda one: (load.get(one, 0), one))
        chosen.setdefault(node, []).append(holders[node])
        load[node] = load.get(node, 0) + holders[node].size
    return chosen
