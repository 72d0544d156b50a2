"""The kinds of value that the keys of a job take: their types, their parsers, their words."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal, get_args

from clusterctl.errors import InvalidValueError, UsageError
from clusterctl.specs import values
from clusterctl.specs.fields import (
    ANY_TEXT,
    FLAG,
    NAME,
    PYTHON,
    TEXT,
    OneOrMore,
    ScalarType,
    one_of,
    optional,
    whole_number_schema,
)
from clusterctl.specs.nodeset import parse_pattern
from clusterctl.specs.patterns import is_slow
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.values import SIZE_PATTERN, parse_size
from clusterctl.specs.yaml.tree import quoted
from clusterctl.translation import to_translate

Launcher = Literal["torchrun", "launch", "python", "command", "ray", "mpirun"]
LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)
EnvironmentKind = Literal["venv", "uv", "conda"]
ENVIRONMENT_KINDS: tuple[EnvironmentKind, ...] = get_args(EnvironmentKind)
StartMethod = Literal["exec", "fork", "auto"]
StallAction = Literal["report", "restart", "stop"]
Reason = Literal[
    "node_lost",
    "worker_killed",
    "worker_crashed",
    "agent_killed",
    "out_of_memory",
    "network",
    "gpu",
    "port_taken",
]
REASONS: tuple[Reason, ...] = get_args(Reason)
DEFAULT_REASONS: tuple[Reason, ...] = ("node_lost", "worker_killed", "network", "gpu", "port_taken")


def _parse_file_pattern(text: str) -> str:
    path = PurePosixPath(values.parse_text(text))
    if path.is_absolute() or ".." in path.parts:
        raise InvalidValueError("CC-SPEC-013", "leaves-output-directory", text=quoted(text))
    return text


def _parse_warm_time(text: str) -> float | None:
    """Read how long a process waits; 0 is none."""
    return values.parse_duration(text) or None


def _parse_stall_time(text: str) -> float:
    """Read the time without progress, in seconds; 0 is never."""
    return 0.0 if text == "off" else values.parse_duration(text)


def _parse_nproc(word: str) -> int | str:
    if word in ("gpu", "cpu"):
        return word
    if not any(character.isdigit() for character in word):
        suggestion = did_you_mean(word, ("gpu", "cpu"))
        raise InvalidValueError("CC-SPEC-013", "nproc", word=quoted(word), suggestion=suggestion)
    return values.parse_positive(word)


def _parse_nodes(pattern: str) -> int | str:
    if pattern.isdecimal():
        return values.parse_positive(pattern)
    try:
        parse_pattern(pattern)
    except UsageError as error:
        raise InvalidValueError(
            "CC-SPEC-013", "node-pattern", problem=error.message, way_out=error.fix
        ) from error
    return pattern


# `metrics`: a pattern runs on the nodes, on lines that anybody may have printed. So what is known to take exponential
# time is refused here: a repetition within a repetition. What remains is bounded there (node/history/scalars.py): short
# lines, and a timer.
LONGEST_PATTERN = 300
METRIC_NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9_./-]{0,47}"


def parse_metric_name(text: str) -> str:
    """Check the name of a number."""
    if not re.fullmatch(METRIC_NAME_PATTERN, text):
        raise InvalidValueError("CC-SPEC-013", "metric-name", text=quoted(text))
    return text


def parse_metric_pattern(text: str) -> str:
    """Check a pattern: one group, and no repetition of a repetition."""
    if len(text) > LONGEST_PATTERN:
        raise InvalidValueError("CC-SPEC-013", "too-long", text=quoted(text), max_length=LONGEST_PATTERN)
    try:
        count = re.compile(text).groups
        slow = is_slow(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidValueError("CC-SPEC-013", "metric-pattern", text=quoted(text), reason=error) from error
    if count != 1:
        raise InvalidValueError("CC-SPEC-013", "metric-group", text=quoted(text), count=count)
    if slow:
        raise InvalidValueError("CC-SPEC-013", "metric-slow", text=quoted(text))
    return text


_STALL_TIME = {
    "type": ["string", "number"],
    "pattern": f"^({values.DURATION_PATTERN}|off)$",
    "minLength": 1,
    "minimum": 0,
}
StallTime = Annotated[float, ScalarType(to_translate("a time, or off"), _parse_stall_time, _STALL_TIME)]
StallChoice = Annotated[StallAction, one_of("report", "restart", "stop")]
ReasonName = Annotated[Reason, one_of(*REASONS)]
RestartLimit = Annotated[
    int, ScalarType(to_translate("a whole number"), values.parse_positive, whole_number_schema(minimum=1))
]
Count = Annotated[
    int, ScalarType(to_translate("a whole number"), values.parse_count, whole_number_schema(minimum=0))
]
FilePattern = Annotated[
    str, ScalarType(to_translate("a pattern"), _parse_file_pattern, {"type": "string", "minLength": 1})
]


_EMPTY_ARG = to_translate("write '' for an empty argument, 'null' in quotes for the word")
_EMPTY_ENV = to_translate("write '' for an empty value, 'null' in quotes for the word")
_ENV_NAME = {"type": "string", "pattern": f"^{values.FREE_ENV_PATTERN}$"}

JobName = Annotated[str, NAME]
Script = Annotated[
    str | None, ScalarType(to_translate("a path"), values.parse_script, {"type": "string", "minLength": 1})
]
Module = Annotated[
    str | None, ScalarType(to_translate("a module"), values.parse_module, {"type": "string", "minLength": 1})
]
Arg = Annotated[str, ScalarType(to_translate("a text"), str, ANY_TEXT, null_fix=_EMPTY_ARG)]
Nproc = Annotated[
    int | Literal["gpu", "cpu"],
    ScalarType(
        to_translate("gpu, cpu or a whole number"),
        _parse_nproc,
        {"anyOf": [{"enum": ["gpu", "cpu"]}, whole_number_schema(minimum=1)]},
    ),
]
NodeChoice = Annotated[
    int | str,
    ScalarType(
        to_translate("a choice of nodes"),
        _parse_nodes,
        {"type": ["string", "integer"], "minLength": 1, "minimum": 1},
        example="gpu01,gpu[03-04]",
    ),
]
Variable = Annotated[
    str, ScalarType(to_translate("the name of a variable"), values.parse_env_name, _ENV_NAME)
]
EnvValue = Annotated[str, ScalarType(to_translate("a text"), str, ANY_TEXT, null_fix=_EMPTY_ENV)]
MetricName = Annotated[
    str,
    ScalarType(
        to_translate("a name"), parse_metric_name, {"type": "string", "pattern": f"^{METRIC_NAME_PATTERN}$"}
    ),
]
MetricPattern = Annotated[
    str,
    ScalarType(
        to_translate("a regular expression"), parse_metric_pattern, {"type": "string", "minLength": 1}
    ),
]
LauncherName = Annotated[Launcher, one_of(*LAUNCHERS)]
EndsWith = Annotated[Literal["all", "node 0"], one_of("all", "node 0")]
StartChoice = Annotated[StartMethod, one_of("exec", "fork", "auto")]
ModuleName = Annotated[
    str, ScalarType(to_translate("a module"), values.parse_module, {"type": "string", "minLength": 1})
]
Flag = Annotated[bool, FLAG]
GpuIndex = Annotated[
    int, ScalarType(to_translate("the index of a GPU"), values.parse_count, whole_number_schema(minimum=0))
]
# suspected: by a check, see plans/checks/script.py
Alone = Annotated[Literal["fail", "ok", "suspected"], one_of("fail", "ok")]
Backend = Annotated[Literal["nccl", "gloo"], one_of("nccl", "gloo")]
Via = Annotated[Literal["auto", "direct", "tree"], one_of("auto", "direct", "tree")]
_DURATION = {
    "type": ["string", "number"],
    "pattern": f"^{values.DURATION_PATTERN}$",
    "minLength": 1,
    "minimum": 0,
}
Limit = Annotated[float, ScalarType(to_translate("a time"), values.parse_limit, _DURATION)]
Duration = Annotated[float, ScalarType(to_translate("a time"), values.parse_duration, _DURATION)]
OptionalLimit = Annotated[float | None, optional(to_translate("a time"), values.parse_limit, _DURATION)]
WarmTime = Annotated[float | None, optional(to_translate("a time"), _parse_warm_time, _DURATION)]
_SIZE = {"type": ["string", "integer"], "pattern": f"^({SIZE_PATTERN})$", "minimum": 0, "maximum": 0}
ByteLimit = Annotated[int, ScalarType(to_translate("a size"), parse_size, _SIZE)]
Text = Annotated[str, TEXT]
OptionalPython = Annotated[str | None, PYTHON]
OptionalText = Annotated[str | None, TEXT]


SIGNED_SERVICES = ("feishu", "dingtalk")  # services that can check a signature
_RUN_ENDS = ("succeeded", "failed", "timeout", "stopped")
_FORMER_ENDS = {"cancelled": "stopped"}  # what earlier job files write
STALLED = "stalled"  # while it runs: of notifications alone
SERVICES = ("webhook", "slack", "feishu", "dingtalk", "wecom")

Ending = Literal["succeeded", "failed", "timeout", "stopped"]
Service = Literal["webhook", "slack", "feishu", "dingtalk", "wecom"]

WhenEnds = Annotated[tuple[Annotated[Ending, one_of(*_RUN_ENDS, former=_FORMER_ENDS)], ...], OneOrMore()]
CommandArgument = Annotated[
    str,
    ScalarType(
        to_translate("a text"), str, ANY_TEXT, null_fix=to_translate("write '' for an empty argument")
    ),
]
OptionalVariable = Annotated[
    str | None, optional(to_translate("the name of a variable"), values.parse_env_name, _ENV_NAME)
]


NotifyMoment = Literal["succeeded", "failed", "timeout", "stopped", "stalled"]
_MOMENTS = (*_RUN_ENDS, STALLED)
WhenNotified = Annotated[
    tuple[Annotated[NotifyMoment, one_of(*_MOMENTS, former=_FORMER_ENDS)], ...], OneOrMore()
]


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
OptionalCommands = Annotated[tuple[Command, ...], OneOrMore()]
Commands = Annotated[tuple[Command, ...], OneOrMore(nullable=False)]

ServiceName = Annotated[Service, one_of(*SERVICES)]
