"""What is to be done on the launching machine when a run has ended: as values, as kept in a file, as shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypedDict, cast

from clusterctl.plans.launch.template import make_template, quote_template
from clusterctl.specs.job.model import Notify, OnEnd
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.plans.runs.documents import HooksEntry, NotifyEntry, OnEndEntry

VERSION = 1


@dataclass(frozen=True)
class Hooks:
    """The hooks of one run; `folder` is where the job file lies and the command is run."""

    job: str
    cluster: str
    folder: str
    on_end: OnEnd | None
    notify: tuple[Notify, ...]

    @property
    def has_any(self) -> bool:
        """Return whether there is anything to do."""
        return self.on_end is not None or bool(self.notify)


class HooksRecord(TypedDict):
    """What is kept of a run's hooks on the launching machine."""

    version: int
    job: str
    cluster: str
    folder: str
    on_end: dict[str, Any] | None
    notify: list[dict[str, Any]]


def hooks_to_record(hooks: Hooks) -> dict[str, Any]:
    """Return what is written down."""
    return {"version": VERSION, **asdict(hooks)}


def hooks_from_record(raw: Any) -> Hooks | None:
    """Read what was written down; None if it is not that."""
    try:
        record = cast("HooksRecord", raw)
        if record["version"] != VERSION:
            return None
        on_end, notify = record["on_end"], record["notify"]
        command = None if on_end is None else OnEnd(**_lists_to_tuples(on_end, "command", "when"))
        notices = tuple(Notify(**_lists_to_tuples(entry, "when")) for entry in notify)
        return Hooks(str(record["job"]), str(record["cluster"]), str(record["folder"]), command, notices)
    except (TypeError, KeyError, ValueError, IndexError):
        return None


def _lists_to_tuples(entry: Mapping[str, Any], *list_keys: str) -> dict[str, Any]:
    for name in list_keys:
        if not isinstance(entry[name], list):
            raise TypeError(name)
    return {key: tuple(map(str, value)) if key in list_keys else value for key, value in entry.items()}


def render_hooks(on_end: OnEnd | None, notify: Sequence[Notify]) -> list[str]:
    """Return what would be done, as comments for `launch --dry-run`."""
    lines = []
    if on_end is not None:
        command = " ".join(quote_template(make_template(word)) for word in on_end.command)
        lines.append(
            tr(
                "# when it has ended{states}, on this machine: {command}",
                states=_render_when(on_end.when),
                command=command,
            )
        )
    for entry in notify:
        states, what = _render_when(entry.when), describe_notification(entry)
        secret = tr(", signed with {variable}", variable=f"${entry.secret_from}") if entry.secret_from else ""
        lines.append(
            tr("# when it has ended{states}: {what}{secret}", states=states, what=what, secret=secret)
        )
    return lines


def describe_on_end(on_end: OnEnd) -> str:
    """Return before a launch what the job runs on this machine: another person may have written it."""
    command = " ".join(quote_template(make_template(word)) for word in on_end.command)
    return tr(
        "will run here when it ends{states}: {command}", states=_render_when(on_end.when), command=command
    )


def describe_notification(entry: Notify) -> str:
    """Name a notification without its URL."""
    return tr(
        "a message to {service}, its URL from {variable}", service=entry.to, variable=f"${entry.url_from}"
    )


def _render_when(when: Sequence[str]) -> str:
    return tr(" ({states})", states=", ".join(when)) if when else ""


def hooks_to_json(on_end: OnEnd | None, notify: Sequence[Notify]) -> HooksEntry:
    """Return their part of `launch --dry-run --json`."""
    return {
        "on_end": None if on_end is None else _on_end_to_json(on_end),
        "notify": [_notify_to_json(entry) for entry in notify],
    }


def _on_end_to_json(on_end: OnEnd) -> OnEndEntry:
    return {
        "command": list(on_end.command),
        "when": list(on_end.when),
        "time_limit": on_end.time_limit,
    }


def _notify_to_json(entry: Notify) -> NotifyEntry:
    return {
        "to": entry.to,
        "url_from": entry.url_from,
        "secret_from": entry.secret_from,
        "when": list(entry.when),
    }
