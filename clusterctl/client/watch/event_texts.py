"""Events of a node's journal in words: its logs, and how its workers start."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.values import Size
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import JournalEvent

LOG_EVENTS: tuple[JournalEvent, ...] = ("logs_cut", "logs_unbounded")


def read_event_name(event: Untrusted) -> JournalEvent:
    """Read which event a line of the journal is; any other text is one that is not looked at."""
    return cast("JournalEvent", event.text("event", 40))


def describe_log_event(event: Untrusted) -> str:
    """Return what happens to a node's logs; nothing for an event that is about something else."""
    kind, limit = event.one_of("event", LOG_EVENTS), event.integer("limit", 0)
    if not kind or limit is None:
        return ""
    if kind == "logs_cut":
        return tr(
            "its logs have reached log_limit ({limit}): the middle of the longest is dropped from now on",
            limit=Size(limit),
        )
    return tr(
        "its logs have reached log_limit ({limit}) and continue to grow: the middle cannot be dropped: {why}",
        limit=Size(limit),
        why=event.text("why", 300),
    )


def describe_start_event(event: Untrusted) -> str:
    """Return why a node's workers are not forked, or not from what is warm; nothing for another event."""
    name, reason = read_event_name(event), event.text("text", 300)
    if event.text("method") != "exec":
        return ""
    if name == "warm":
        return tr("torch is imported again: {reason}", reason=reason)
    if name != "start_method":
        return ""
    if event.flag("keep_warm"):
        return tr("workers are not forked, so keep_warm saves nothing: {reason}", reason=reason)
    return tr("workers are not forked: {reason}", reason=reason)
