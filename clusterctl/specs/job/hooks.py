"""Models of setup, before/after, on_end, notify."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from clusterctl.errors import Issue
from clusterctl.specs import codes, values
from clusterctl.specs.codes import BadValueError
from clusterctl.specs.fields import ANY_TEXT, FLAG, Entry, Leaf, OneOrMore, one_of, optional
from clusterctl.specs.job.model import Hook, Kind, Notify, OnEnd, Setup
from clusterctl.specs.yaml.tree import Listing, Table, quoted
from clusterctl.specs.yaml.validate import repeated, text_at

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


KINDS = ("venv", "uv", "conda")
_PATH = {"type": "string", "minLength": 1}
_COMMAND = {"type": "string", "minLength": 1}


def _parse_beside(text: str) -> str:
    path = PurePosixPath(values.parse_text(text))
    if path.is_absolute() or text.startswith(("~", "-")) or ".." in path.parts or not path.parts:
        fix = "a path beside or below the job file; a folder there may be a link"
        raise BadValueError(f"{quoted(text)} is not beside the job file", fix)
    return path.as_posix()


Beside = Annotated[str, Leaf("a path", _parse_beside, _PATH)]
MaybeBeside = Annotated[str | None, Leaf("a path", _parse_beside, _PATH, null=True)]
Command = Annotated[str, Leaf("a command", values.parse_text, _COMMAND)]
MaybeCommands = Annotated[tuple[Command, ...] | None, OneOrMore(_COMMAND)]
Commands = Annotated[tuple[Command, ...], OneOrMore(_COMMAND)]
Flag = Annotated[bool, FLAG]


class SetupEntry(Entry):
    """What is made on every node before the job starts, once for the same content."""

    model_config = ConfigDict(title="setup")

    venv: MaybeBeside = Field(
        None, description="Make a venv, and install by pip what this requirements file names."
    )
    uv: MaybeBeside = Field(
        None,
        description="Make it with uv: from a `uv.lock`, its `pyproject.toml` beside it, or a requirements file.",
    )
    conda: MaybeBeside = Field(
        None,
        description="Make a conda environment from an `environment.yml` or an explicit lock file, with micromamba, "
        "mamba or conda, whichever the node has.",
    )
    wheelhouse: MaybeBeside = Field(
        None,
        description="Folder of wheels that is sent along; `venv` and `uv` then install from it alone, with no network.",
    )
    system_site_packages: Flag = Field(
        False, description="Let the environment see the packages of the node's own Python, such as its torch."
    )
    files: tuple[Beside, ...] = Field(
        (), description="More files and folders beside the job that `run` needs; they count as content."
    )
    run: MaybeCommands = Field(
        None,
        description="Shell commands to run then, in the environment; the first that fails ends the launch.",
    )
    time_limit: Limit = Field(1800.0, description="How long all of it may take on a node.")


class HookEntry(Entry):
    """Shell commands on every node, once for each attempt."""

    model_config = ConfigDict(title="before and after")

    run: Commands = Field(
        description="Shell commands, run one after the other in the run's copy of the code, with the job's environment."
    )
    time_limit: Limit = Field(60.0, description="How long they may take together; then they are ended.")


def setup_of(entry: SetupEntry | None) -> Setup | None:
    """Give what a job wants made, if anything."""
    if entry is None:
        return None
    locks: dict[Kind, str | None] = {"venv": entry.venv, "uv": entry.uv, "conda": entry.conda}
    kind, lock = next(((kind, lock) for kind, lock in locks.items() if lock), (None, ""))
    return Setup(
        kind=kind,
        lock=lock or "",
        wheelhouse=entry.wheelhouse,
        system_site_packages=entry.system_site_packages,
        files=entry.files,
        run=entry.run or (),
        time_limit=entry.time_limit,
    )


def hook_of(entry: HookEntry | None) -> Hook | None:
    """Give the commands of `before` or `after`, if the job has them."""
    return Hook(run=entry.run, time_limit=entry.time_limit) if entry else None


def setup_issues(tree: Table) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    setup = tree.get("setup")
    if isinstance(setup, Table):
        yield from _setup_issues(setup)


def _setup_issues(setup: Table) -> Iterator[Issue]:
    kinds = [key for kind in KINDS if (key := setup.key(kind))]
    misspelled = setup.entries.keys() - SetupEntry.model_fields.keys()  # one of these, and told as that
    if not kinds and not setup.key("run") and not misspelled:
        fix = "such as setup: {venv: requirements.txt}, or run: for shell commands alone"
        yield Issue(codes.MISSING_KEY, "setup: neither venv nor uv nor conda nor run", setup.place, fix)
    for key in kinds[1:]:
        message = f"setup: one of venv, uv and conda, not both; the {kinds[0].text} is at {kinds[0].place}"
        yield Issue(codes.SETUP, message, key.place, "drop one of them")
    if kinds and kinds[0].text != "conda":
        return
    for name in ("wheelhouse", "system_site_packages"):
        if key := setup.key(name):
            fix = "drop it, or use venv or uv" if kinds else "add venv: requirements.txt, or drop it"
            yield Issue(codes.SETUP, f"setup.{name} is for venv and uv", key.place, fix)
