"""The kinds of value that the keys of inventory and job take: their types, their parsers, their JSON Schema."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, get_args

from clusterctl.errors import InvalidValueError, UsageError
from clusterctl.protocol.run_id import NAME_PATTERN
from clusterctl.specs import values
from clusterctl.specs.fields import (
    ANY_TEXT,
    FLAG,
    NAME,
    OPTIONAL_TEXT,
    PYTHON,
    TEXT,
    OneOrMore,
    ScalarType,
    one_of,
    optional,
    text_schema,
    whole_number_schema,
)
from clusterctl.specs.nodeset import parse_pattern
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.yaml.tree import quoted
from clusterctl.translation import to_translate

# ---- both files, and the inventory ----

SLURM_NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.,:@+-]*"
# What clusterctl sets itself, or what would make another kind of job.
OWN_SBATCH_OPTIONS = (
    *(
        "--array",
        "--chdir",
        "--error",
        "--export",
        "--input",
        "--job-name",
        "--kill-on-invalid-dep",
        "--nodelist",
    ),
    *("--nodes", "--ntasks", "--ntasks-per-node", "--open-mode", "--output", "--parsable", "--requeue"),
    *("--no-requeue", "--test-only", "--wait", "--wrap", "--partition", "--account", "--qos", "--time"),
)

CODE = r"CC-[A-Z]+-[0-9]{3}"
MAX_REASON = 300  # characters


def _parse_code(word: str) -> str:
    if re.fullmatch(CODE, word.upper()):
        return word.upper()
    raise InvalidValueError("CC-SPEC-013", "code", word=word)


def _parse_waived_nodes(word: str) -> str:
    try:
        parse_pattern(word)
    except UsageError as error:
        raise InvalidValueError("CC-SPEC-013", "node-pattern", problem=error.message, way_out="") from error
    return word


def _parse_reason(word: str) -> str:
    if word.strip() and len(word) <= MAX_REASON and word.isprintable():
        return word.strip()
    raise InvalidValueError("CC-SPEC-013", "reason", longest_reason=MAX_REASON)


def parse_slurm_name(word: str) -> str:
    """Read the name of a partition, account or QOS; several partitions are separated by commas."""
    if re.fullmatch(SLURM_NAME_PATTERN, word):
        return word
    raise InvalidValueError("CC-SLURM-002", "name", word=word)


def parse_sbatch_option(word: str) -> str:
    """Read one further option of sbatch, in one word; what clusterctl sets itself is refused."""
    name = word.partition("=")[0]
    if not re.fullmatch(r"--[a-z][a-z0-9-]*", name) or not word.isprintable():
        raise InvalidValueError("CC-SLURM-002", "option", word=word)
    if name in OWN_SBATCH_OPTIONS:
        raise InvalidValueError("CC-SLURM-002", "own-option", name=name)
    return word


Code = Annotated[
    str,
    ScalarType(
        to_translate("the code of a finding"), _parse_code, {"type": "string", "pattern": f"^{CODE}$"}
    ),
]
NodePattern = Annotated[
    str,
    ScalarType(to_translate("a choice of nodes"), _parse_waived_nodes, {"type": "string", "minLength": 1}),
]
WaiverReason = Annotated[
    str,
    ScalarType(
        to_translate("a reason"),
        _parse_reason,
        {"type": "string", "minLength": 1, "maxLength": MAX_REASON},
    ),
]

_NIC_SCHEMA = {"type": "string", "pattern": f"^{values.NIC_PATTERN}$"}

Name = Annotated[str, NAME]
NodeName = Annotated[
    str,
    ScalarType(
        to_translate("a name"), values.parse_node_name, {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
    ),
]
Host = Annotated[
    str,
    ScalarType(to_translate("a host name or address"), values.parse_host, {"type": "string", "minLength": 1}),
]
User = Annotated[
    str | None,
    optional(to_translate("a user name"), values.parse_user, text_schema(values.USER_PATTERN)),
]
Port = Annotated[
    int | None,
    ScalarType(to_translate("a port"), values.parse_port, whole_number_schema(minimum=1, maximum=65535)),
]
Jump = Annotated[
    str | None, optional(to_translate("a bastion"), values.parse_jump, {"type": "string", "minLength": 1})
]
NullableText = Annotated[str | None, OPTIONAL_TEXT]
ProxyCommand = Annotated[
    str | None,
    optional(to_translate("a command"), values.parse_proxy_command, {"type": "string", "minLength": 1}),
]
HostKeys = Annotated[Literal["strict", "accept-new"] | None, one_of("strict", "accept-new")]
Transport = Annotated[Literal["paramiko", "openssh"], one_of("paramiko", "openssh")]
TrainingIp = Annotated[
    str | None,
    optional(
        to_translate("an IPv4 address"),
        values.parse_training_ip,
        {"type": "string", "pattern": f"^{values.IPV4_PATTERN}$"},
    ),
]
Network = Annotated[
    str | None,
    optional(
        to_translate("an IPv4 network"),
        values.parse_network,
        {"type": "string", "pattern": f"^{values.IPV4_PATTERN}/[0-9]{{1,2}}$"},
    ),
]
Nic = Annotated[str, ScalarType(to_translate("the name of a NIC"), values.parse_nic, _NIC_SCHEMA)]
Nics = Annotated[tuple[Nic, ...], OneOrMore()]
Gpus = Annotated[
    int | None, optional(to_translate("a whole number"), values.parse_count, whole_number_schema(minimum=0))
]
Ports = Annotated[
    tuple[int, int] | None,
    optional(
        to_translate("a range of ports"),
        values.parse_ports,
        {"type": "string", "pattern": f"^{values.PORTS_PATTERN}$"},
        "20000-20100",
    ),
]
Workdir = Annotated[
    str, ScalarType(to_translate("a path"), values.parse_workdir, {"type": "string", "pattern": "^(/|~/)."})
]
SlurmWorkdir = Annotated[
    str | None,
    optional(to_translate("a path"), values.parse_workdir, {"type": "string", "pattern": "^(/|~/)."}),
]
SlurmName = Annotated[
    str | None, optional(to_translate("a name"), parse_slurm_name, text_schema(SLURM_NAME_PATTERN))
]
TimeLimit = Annotated[
    float | None,
    optional(
        to_translate("a time"),
        values.parse_limit,
        {"type": ["string", "number"], "pattern": f"^{values.DURATION_PATTERN}$"},
    ),
]
SbatchOption = Annotated[
    str,
    ScalarType(
        to_translate("an option of sbatch"), parse_sbatch_option, {"type": "string", "pattern": "^--[a-z]"}
    ),
]
Python = Annotated[str, PYTHON]
Flag = Annotated[bool, FLAG]


# ---- the job ----

Launcher = Literal["torchrun", "launch", "python", "command", "ray", "mpirun"]
LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)
EnvironmentKind = Literal["venv", "uv", "conda"]
ENVIRONMENT_KINDS: tuple[EnvironmentKind, ...] = get_args(EnvironmentKind)
StartMethod = Literal["exec", "fork"]
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


# `metrics`: a pattern runs on the nodes, on lines that any program may print. So what is known to take exponential
# time is refused here: a repetition within a repetition. What remains is bounded there (node/history/scalars.py): short
# lines, and a timer.
MAX_PATTERN = 300  # characters
MAX_INNER_REPEAT = 20  # of a repetition that may stand within another one
METRIC_NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9_./-]{0,47}"
_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")


def is_slow(pattern: str) -> bool:
    """Return whether a pattern is known to take exponential time; raises what `re.compile` raises."""
    return _repeats_a_repetition(_parser.parse(pattern), inside=False)


def _repeats_a_repetition(part: Any, *, inside: bool) -> bool:
    """Return whether a repetition without a small limit stands within another one."""
    part = part.data if isinstance(part, _parser.SubPattern) else part
    if not isinstance(part, (tuple, list)) or not part:
        return False
    is_repetition = part[0] is _parser.MAX_REPEAT or part[0] is _parser.MIN_REPEAT
    repeats = is_repetition and part[1][1] > MAX_INNER_REPEAT
    return (repeats and inside) or any(_repeats_a_repetition(one, inside=inside or repeats) for one in part)


def parse_metric_name(text: str) -> str:
    """Check the name of a number."""
    if not re.fullmatch(METRIC_NAME_PATTERN, text):
        raise InvalidValueError("CC-SPEC-013", "metric-name", text=quoted(text))
    return text


def parse_metric_pattern(text: str) -> str:
    """Check a pattern: one group, and no repetition of a repetition."""
    if len(text) > MAX_PATTERN:
        raise InvalidValueError("CC-SPEC-013", "too-long", text=quoted(text), max_length=MAX_PATTERN)
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
StartChoice = Annotated[StartMethod, one_of("exec", "fork", former={"auto": "fork"})]
ModuleName = Annotated[
    str, ScalarType(to_translate("a module"), values.parse_module, {"type": "string", "minLength": 1})
]
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
OptionalCount = Annotated[
    int | None,
    optional(to_translate("a whole number"), values.parse_positive, whole_number_schema(minimum=1)),
]
OptionalLimit = Annotated[float | None, optional(to_translate("a time"), values.parse_limit, _DURATION)]
WarmTime = Annotated[float | None, optional(to_translate("a time"), _parse_warm_time, _DURATION)]
_SIZE = {"type": ["string", "integer"], "pattern": f"^({values.SIZE_PATTERN})$", "minimum": 0, "maximum": 0}
ByteLimit = Annotated[int, ScalarType(to_translate("a size"), values.parse_size, _SIZE)]
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
