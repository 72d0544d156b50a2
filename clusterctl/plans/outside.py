"""What a run has left on its nodes outside the output directory: read with distrust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterctl.protocol.untrusted import Untrusted

NAMED = 5
LONGEST_NAME = 200
MOST = 1 << 63


@dataclass(frozen=True)
class Outside:
    """The files of one node that were not sent with the code, or changed since; `more`: not all were counted."""

    files: int
    bytes: int
    names: tuple[str, ...]
    more: bool = False


def parse_outside(raw: Untrusted) -> Outside | None:
    """Read what a node says; None if it knows nothing, or if that makes no sense."""
    files, size = raw.integer("files", 0, MOST), raw.integer("bytes", 0, MOST)
    if files is None or size is None or not raw.is_list("names"):
        return None
    return Outside(files, size, raw.texts("names", NAMED, LONGEST_NAME), raw.flag("more"))


def found_outside(parts: Mapping[str, Outside | None]) -> dict[str, Outside]:
    """Keep the nodes that have such files."""
    return {name: one for name, one in parts.items() if one is not None and (one.files or one.more)}


def outside_to_json(one: Outside | None) -> dict[str, Any] | None:
    """Give one node's; null where nothing is known."""
    return (
        None
        if one is None
        else {"files": one.files, "bytes": one.bytes, "names": list(one.names), "more": one.more}
    )
