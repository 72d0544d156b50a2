"""Which WORLD_SIZE the workers saw that a job has started itself, where it is not the planned one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from clusterctl.codes.lookup import word
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.nodeset import fold_names
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import JournalEvent


def describe_world_event(event: Untrusted) -> str:
    """Return that processes of a node were started with another WORLD_SIZE; nothing for any other event."""
    observed, planned = event.integer("seen", 0), event.integer("planned", 0)
    if cast("JournalEvent", event.text("event", 40)) != "world_size" or observed is None or planned is None:
        return ""
    return describe_unplanned(observed, planned)


def describe_unplanned(observed: int, planned: int) -> str:
    """Return what was seen and what it means."""
    message, fix = word("CC-RUN-051", "", {"observed": observed, "planned": planned})
    return tr("{code}: {text}; {fix}", code="CC-RUN-051", text=message, fix=fix)


def render_unplanned(world_sizes: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return the check of a run that has ended; `world_sizes` are what was seen and what was planned, by node."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, pair in world_sizes.items():
        groups.setdefault(pair, []).append(name)
    return [f"{fold_names(names)}: {describe_unplanned(*pair)}" for pair, names in groups.items()]
