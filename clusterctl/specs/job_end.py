"""What a job wants done when a run of it has ended: a command of the user's own, and notifications."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from clusterctl.errors import Issue
from clusterctl.specs import codes, values
from clusterctl.specs.entry import ANY_TEXT, Entry, one_of, optional
from clusterctl.specs.examine import repeated, text_at
from clusterctl.specs.job import Notify, OnEnd
from clusterctl.specs.leaf import Leaf, OneOrMore
from clusterctl.specs.tree import Listing, Table

SIGNING = ("feishu", "dingtalk")  # services that can check a signature
_ENDS = ("succeeded", "failed", "timeout", "cancelled")
_SERVICES = ("webhook", "slack", "feishu", "dingtalk", "wecom")
_VARIABLE = {"type": "string", "pattern": f"^{values.FREE_ENV_PATTERN}$"}
_DURATION = {"type": ["string", "number"], "pattern": f"^{values.DURATION_PATTERN}$", "minLength": 1}

Ending = Literal["succeeded", "failed", "timeout", "cancelled"]
Service = Literal["webhook", "slack", "feishu", "dingtalk", "wecom"]

When = Annotated[
    tuple[Annotated[Ending, one_of(*_ENDS)], ...] | None,
    OneOrMore({"enum": list(_ENDS)}),
]
Word = Annotated[str, Leaf("a text", str, ANY_TEXT, if_nothing="write '' for an empty argument")]
Variable = Annotated[str, Leaf("the name of a variable", values.parse_env_name, _VARIABLE)]
MaybeVariable = Annotated[str | None, optional("the name of a variable", values.parse_env_name, _VARIABLE)]
Limit = Annotated[float, Leaf("a time", values.parse_limit, {**_DURATION, "minimum": 0})]


class OnEndEntry(Entry):
    """A command of your own, run here when a run has ended."""

    model_config = ConfigDict(title="on_end")

    command: tuple[Word, ...] = Field(
        description="A program and its arguments, run on the launching machine, beside the job file; no shell.",
        json_schema_extra={"minItems": 1},
    )
    when: When = Field(
        None, description="Which ends it is for: succeeded, failed, timeout, cancelled; without it all."
    )
    time_limit: Limit = Field(60.0, description="How long it may take; then it is ended.")


class NotifyEntry(Entry):
    """One message to a chat or a web service when a run has ended."""

    model_config = ConfigDict(title="notify")

    to: Annotated[Service, one_of(*_SERVICES)] = Field(
        description="The kind of service, which decides the form of the message."
    )
    url_from: Variable = Field(
        description="Name of the variable in your own environment that holds the URL; it is never shown or stored."
    )
    secret_from: MaybeVariable = Field(
        None, description="For `feishu` and `dingtalk`: name of the variable that holds the signing secret."
    )
    when: When = Field(
        None, description="Which ends it is for: succeeded, failed, timeout, cancelled; without it all."
    )


def on_end_of(entry: OnEndEntry | None) -> OnEnd | None:
    """Give the command of a job, if it has one."""
    if entry is None:
        return None
    return OnEnd(command=entry.command, when=entry.when or (), time_limit=entry.time_limit)


def notify_of(entries: tuple[NotifyEntry, ...]) -> tuple[Notify, ...]:
    """Give the notifications of a job."""
    return tuple(
        Notify(to=entry.to, url_from=entry.url_from, secret_from=entry.secret_from, when=entry.when or ())
        for entry in entries
    )


def end_issues(tree: Table) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    on_end, notify = tree.get("on_end"), tree.get("notify")
    if isinstance(on_end, Table):
        command, key = on_end.get("command"), on_end.key("command")
        if key and isinstance(command, Listing) and not command.items:
            yield Issue(
                codes.NO_VALUE, "on_end.command: expected at least a program", key.place, "[./tell.sh]"
            )
        yield from repeated(on_end.get("when"), "on_end.when")
    for entry in notify.items if isinstance(notify, Listing) else ():
        if isinstance(entry, Table):
            yield from _notify_issues(entry)


def _notify_issues(entry: Table) -> Iterator[Issue]:
    service, secret = text_at(entry, "to"), entry.key("secret_from")
    yield from repeated(entry.get("when"), "notify.when")
    if service and service.text in _SERVICES and service.text not in SIGNING and secret:
        message = f"notify: {service.text} messages are not signed"
        fix = "drop secret_from; the URL itself is the secret there"
        yield Issue(codes.WRONG_VALUE, message, secret.place, fix)
