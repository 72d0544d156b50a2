"""Files that a run left outside its output directory: not sent with the code, or changed since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterctl.protocol.untrusted import Untrusted

if TYPE_CHECKING:
    from clusterctl.plans.runs.documents import OutsideFilesEntry

MAX_NAMED = 5
LONGEST_FILE_NAME = 200
MAX_NUMBER = 1 << 63


@dataclass(frozen=True)
class OutsideFiles:
    """The files of one node that were not sent with the code, or changed since; `more`: not all were counted."""

    files: int
    bytes: int
    names: tuple[str, ...]
    more: bool = False


def parse_outside(raw: Untrusted) -> OutsideFiles | None:
    """Read what a node reports; None if it knows nothing, or if that makes no sense."""
    files, size = raw.integer("files", 0, MAX_NUMBER), raw.integer("bytes", 0, MAX_NUMBER)
    if files is None or size is None or not raw.is_list("names"):
        return None
    return OutsideFiles(files, size, raw.texts("names", MAX_NAMED, LONGEST_FILE_NAME), raw.flag("more"))


def with_outside_files(parts: Mapping[str, OutsideFiles | None]) -> dict[str, OutsideFiles]:
    """Keep the nodes that have such files."""
    return {name: files for name, files in parts.items() if files is not None and (files.files or files.more)}


def outside_to_json(files: OutsideFiles | None) -> OutsideFilesEntry | None:
    """Return the entry of one node; None where nothing is known."""
    return (
        None
        if files is None
        else {"files": files.files, "bytes": files.bytes, "names": list(files.names), "more": files.more}
    )
