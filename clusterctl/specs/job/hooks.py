"""Models of setup, before/after, on_end, notify."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from clusterctl.errors import InvalidValueError, Issue
from clusterctl.specs import values
from clusterctl.specs.fields import ANY_TEXT, FLAG, OneOrMore, ScalarType, StrictModel, one_of, optional
from clusterctl.specs.job.model import EnvironmentKind, Hook, Notify, OnEnd, Setup
from clusterctl.specs.yaml.tree import YamlList, YamlMapping, quoted
from clusterctl.specs.yaml.validate import find_duplicates, find_scalar
from clusterctl.translation import to_translate

SIGNED_SERVICES = ("feishu", "dingtalk")  # services that can check a signature
_RUN_ENDS = ("succeeded", "failed", "timeout", "stopped")
_FORMER_ENDS = {"cancelled": "stopped"}  # what earlier job files write
STALLED = "stalled"  # while it runs: of notifications alone
_SERVICES = ("webhook", "slack", "feishu", "dingtalk", "wecom")
_VARIABLE = {"type": "string", "pattern": f"^{values.FREE_ENV_PATTERN}$"}
_DURATION = {"type": ["string", "number"], "pattern": f"^{values.DURATION_PATTERN}$", "minLength": 1}

Ending = Literal["succeeded", "failed", "timeout", "stopped"]
Service = Literal["webhook", "slack", "feishu", "dingtalk", "wecom"]

WhenEnds = Annotated[
    tuple[Annotated[Ending, one_of(*_RUN_ENDS, former=_FORMER_ENDS)], ...] | None,
    OneOrMore({"enum": list(_RUN_ENDS)}),
]
CommandArgument = Annotated[
    str,
    ScalarType(
        to_translate("a text"), str, ANY_TEXT, null_fix=to_translate("write '' for an empty argument")
    ),
]
Variable = Annotated[
    str, ScalarType(to_translate("the name of a variable"), values.parse_env_name, _VARIABLE)
]
OptionalVariable = Annotated[
    str | None, optional(to_translate("the name of a variable"), values.parse_env_name, _VARIABLE)
]
Limit = Annotated[float, ScalarType(to_translate("a time"), values.parse_limit, {**_DURATION, "minimum": 0})]


NotifyMoment = Literal["succeeded", "failed", "timeout", "stopped", "stalled"]
_MOMENTS = (*_RUN_ENDS, STALLED)
WhenNotified = Annotated[
    tuple[Annotated[NotifyMoment, one_of(*_MOMENTS, former=_FORMER_ENDS)], ...] | None,
    OneOrMore({"enum": list(_MOMENTS)}),
]


class OnEndEntry(StrictModel):
    """A command of your own, run here when a run has ended."""

    model_config = ConfigDict(title="on_end")

    command: tuple[CommandArgument, ...] = Field(
        description=to_translate(
            "A program and its arguments, run on the launching machine, in the job file's directory; no shell."
        ),
        json_schema_extra={"minItems": 1},
    )
    when: WhenEnds = Field(
        None,
        description=to_translate("For which results: succeeded, failed, timeout, stopped; default: all."),
    )
    time_limit: Limit = Field(60.0, description=to_translate("Time limit; then it is stopped."))


class NotifyEntry(StrictModel):
    """One message to a chat or a web service when a run has ended."""

    model_config = ConfigDict(title="notify")

    to: Annotated[Service, one_of(*_SERVICES)] = Field(
        description=to_translate("The kind of service, which decides the form of the message.")
    )
    url_from: Variable = Field(
        description=to_translate(
            "Name of the variable in your own environment that holds the URL; it is never shown or stored."
        )
    )
    secret_from: OptionalVariable = Field(
        None,
        description=to_translate(
            "For `feishu` and `dingtalk`: name of the variable that holds the signing secret."
        ),
    )
    when: WhenNotified = Field(
        None,
        description=to_translate(
            "For which results: succeeded, failed, timeout, stopped (default: all four); or `stalled`."
        ),
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


def find_end_issues(tree: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    on_end, notify = tree.get("on_end"), tree.get("notify")
    if isinstance(on_end, YamlMapping):
        command, key = on_end.get("command"), on_end.get_key("command")
        if key and isinstance(command, YamlList) and not command.items:
            yield Issue.of("CC-SPEC-014", "empty-on-end", key.location)
        yield from find_duplicates(on_end.get("when"), "on_end.when")
    for entry in notify.items if isinstance(notify, YamlList) else ():
        if isinstance(entry, YamlMapping):
            yield from _notify_issues(entry)


def _notify_issues(entry: YamlMapping) -> Iterator[Issue]:
    service, secret = find_scalar(entry, "to"), entry.get_key("secret_from")
    yield from find_duplicates(entry.get("when"), "notify.when")
    if service and service.text in _SERVICES and service.text not in SIGNED_SERVICES and secret:
        yield Issue.of("CC-SPEC-013", "unsigned-service", secret.location, text=service.text)


ENVIRONMENT_KINDS = ("venv", "uv", "conda")
_PATH = {"type": "string", "minLength": 1}
_COMMAND = {"type": "string", "minLength": 1}


def _parse_job_path(text: str) -> str:
    path = PurePosixPath(values.parse_text(text))
    if path.is_absolute() or text.startswith(("~", "-")) or ".." in path.parts or not path.parts:
        raise InvalidValueError("CC-SPEC-013", "not-beside-job-file", text=quoted(text))
    return path.as_posix()


JobPath = Annotated[str, ScalarType(to_translate("a path"), _parse_job_path, _PATH)]
OptionalJobPath = Annotated[
    str | None, ScalarType(to_translate("a path"), _parse_job_path, _PATH, nullable=True)
]
Command = Annotated[str, ScalarType(to_translate("a command"), values.parse_text, _COMMAND)]
OptionalCommands = Annotated[tuple[Command, ...] | None, OneOrMore(_COMMAND)]
Commands = Annotated[tuple[Command, ...], OneOrMore(_COMMAND)]
Flag = Annotated[bool, FLAG]


class SetupEntry(StrictModel):
    """What is made on every node before the job starts, once for the same content."""

    model_config = ConfigDict(title="setup")

    venv: OptionalJobPath = Field(
        None, description=to_translate("Make a venv and install this requirements file with pip.")
    )
    uv: OptionalJobPath = Field(
        None,
        description=to_translate(
            "Make it with uv: from a `uv.lock` and the `pyproject.toml` next to it, or a requirements file."
        ),
    )
    conda: OptionalJobPath = Field(
        None,
        description=to_translate(
            "Make a conda environment from an `environment.yml` or an explicit lock file, with micromamba, "
            "mamba or conda, whichever the node has."
        ),
    )
    wheelhouse: OptionalJobPath = Field(
        None,
        description=to_translate(
            "Folder of wheels that is sent along; `venv` and `uv` then install only from it, without network."
        ),
    )
    system_site_packages: Flag = Field(
        False,
        description=to_translate(
            "Let the environment see the packages of the node's own Python, such as its torch."
        ),
    )
    files: tuple[JobPath, ...] = Field(
        (),
        description=to_translate(
            "More files and folders next to the job file that `run` needs; they count as content."
        ),
    )
    run: OptionalCommands = Field(
        None,
        description=to_translate(
            "Shell commands to run then, in the environment; the first that fails ends the launch."
        ),
    )
    time_limit: Limit = Field(1800.0, description=to_translate("Time limit for all of it on a node."))


class HookEntry(StrictModel):
    """Shell commands on every node, once for each attempt."""

    model_config = ConfigDict(title="before and after")

    run: Commands = Field(
        description=to_translate(
            "Shell commands, run one after the other in the run's copy of the code, with the job's environment."
        )
    )
    time_limit: Limit = Field(
        60.0, description=to_translate("Time limit for all of them; then they are stopped.")
    )


def setup_of(entry: SetupEntry | None) -> Setup | None:
    """Give what a job wants made, if anything."""
    if entry is None:
        return None
    locks: dict[EnvironmentKind, str | None] = {"venv": entry.venv, "uv": entry.uv, "conda": entry.conda}
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


def setup_issues(tree: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    setup = tree.get("setup")
    if isinstance(setup, YamlMapping):
        yield from _setup_issues(setup)


def _setup_issues(setup: YamlMapping) -> Iterator[Issue]:
    kinds = [key for kind in ENVIRONMENT_KINDS if (key := setup.get_key(kind))]
    misspelled = setup.entries.keys() - SetupEntry.model_fields.keys()  # one of these, and reported as that
    if not kinds and not setup.get_key("run") and not misspelled:
        yield Issue.of("CC-SPEC-011", "empty-setup", setup.location)
    for key in kinds[1:]:
        yield Issue.of(
            "CC-SPEC-036", "several-kinds", key.location, text=kinds[0].text, location=kinds[0].location
        )
    if kinds and kinds[0].text != "conda":
        return
    for name in ("wheelhouse", "system_site_packages"):
        if key := setup.get_key(name):
            yield Issue.of("CC-SPEC-036", "not-conda" if kinds else "no-kind", key.location, name=name)
