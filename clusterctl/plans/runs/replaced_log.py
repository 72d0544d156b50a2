"""A log in whose place a process of the run has put something that is no file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusterctl.errors import NodeError
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.translation import to_translate, tr

LONGEST_PATH = 1000  # characters of a path below a run's directory
KINDS: Mapping[str, str] = {
    "link": to_translate("link"),
    "directory": to_translate("directory"),
    "pipe": to_translate("pipe"),
    "socket": to_translate("socket"),
    "device": to_translate("device"),
}


@dataclass(frozen=True)
class ReplacedLog:
    """The log, and what is there now: one of KINDS."""

    node: str
    file: str
    kind: str

    @property
    def error(self) -> NodeError:
        """Return what is reported of it."""
        return NodeError("CC-RUN-036", node=self.node, file=self.file, kind=tr(KINDS[self.kind]))


def parse_replaced(node: str, raw: Untrusted) -> ReplacedLog | None:
    """Parse what a node reports of a log; None if it is nothing that can be there."""
    kind = raw.one_of("replaced_by", tuple(KINDS))
    return ReplacedLog(node, raw.text("log", LONGEST_PATH), kind) if kind else None
