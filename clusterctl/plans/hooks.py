"""What is to be done when a run has ended, as it is kept until then: names of variables, never their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from clusterctl.plans.text import quote, text
from clusterctl.specs.job import Notify, OnEnd

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
    def any(self) -> bool:
        """Tell whether there is anything to do."""
        return self.on_end is not None or bool(self.notify)


def to_record(hooks: Hooks) -> dict[str, Any]:
    """Give what is written down."""
    return {"version": VERSION, **asdict(hooks)}


def hooks_from_record(raw: Any) -> Hooks | None:
    """Read what was written down; None if it is not that."""
    try:
        if raw["version"] != VERSION:
            return None
        on_end, notify = raw["on_end"], raw["notify"]
        command = None if on_end is None else OnEnd(**_tuples(on_end, "command", "when"))
        notices = tuple(Notify(**_tuples(entry, "when")) for entry in notify)
        return Hooks(str(raw["job"]), str(raw["cluster"]), str(raw["folder"]), command, notices)
    except (TypeError, KeyError, ValueError, IndexError):
        return None


def _tuples(entry: Mapping[str, Any], *lists: str) -> dict[str, Any]:
    for name in lists:
        if not isinstance(entry[name], list):
            raise TypeError(name)
    return {key: tuple(map(str, value)) if key in lists else value for key, value in entry.items()}


def render_hooks(on_end: OnEnd | None, notify: Sequence[Notify]) -> list[str]:
    """Say what would be done, as comments for `launch --dry-run`."""
    lines = []
    if on_end is not None:
        words = " ".join(quote(text(word)) for word in on_end.command)
        lines.append(f"# when it has ended{_ends(on_end.when)}, here: {words}")
    for entry in notify:
        secret = f", signed with ${entry.secret_from}" if entry.secret_from else ""
        lines.append(f"# when it has ended{_ends(entry.when)}: {describe(entry)}{secret}")
    return lines


def announce(on_end: OnEnd) -> str:
    """Say before a launch what the job has run on this machine: somebody else may have written it."""
    words = " ".join(quote(text(word)) for word in on_end.command)
    return f"will run here when it ends{_ends(on_end.when)}: {words}"


def describe(entry: Notify) -> str:
    """Name a notification without its URL."""
    return f"a message to {entry.to}, its URL from ${entry.url_from}"


def _ends(when: Sequence[str]) -> str:
    return f" ({', '.join(when)})" if when else ""


def hooks_to_json(on_end: OnEnd | None, notify: Sequence[Notify]) -> dict[str, Any]:
    """Give their place in `launch --dry-run --json`."""
    return {
        "on_end": None if on_end is None else asdict(on_end),
        "notify": [asdict(entry) for entry in notify],
    }
