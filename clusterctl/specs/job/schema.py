"""Job.yaml as pydantic models, with the parsers of its values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from clusterctl.errors import InvalidValueError, Issue, UsageError
from clusterctl.specs import values
from clusterctl.specs.fields import (
    ANY_TEXT,
    FLAG,
    NAME,
    PYTHON,
    TEXT,
    ScalarType,
    ShortForm,
    StrictModel,
    one_of,
    optional,
    whole_number_schema,
)
from clusterctl.specs.inventory.schema import WaiveEntry
from clusterctl.specs.job.hooks import HookEntry, NotifyEntry, OnEndEntry, SetupEntry
from clusterctl.specs.job.model import (
    DEFAULT_REASONS,
    LAUNCHERS,
    REASONS,
    Launcher,
    Reason,
    Restart,
    StallAction,
    StartMethod,
)
from clusterctl.specs.nodeset import parse_pattern
from clusterctl.specs.patterns import is_slow
from clusterctl.specs.text import did_you_mean
from clusterctl.specs.values import SIZE_PATTERN, parse_size
from clusterctl.specs.yaml.tree import YamlList, YamlMapping, quoted
from clusterctl.specs.yaml.validate import find_duplicates, find_scalar
from clusterctl.translation import to_translate


def _parse_file_pattern(text: str) -> str:
    path = PurePosixPath(values.parse_text(text))
    if path.is_absolute() or ".." in path.parts:
        raise InvalidValueError("CC-SPEC-013", "leaves-output-directory", text=quoted(text))
    return text


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


class RestartEntry(StrictModel):
    """How the nodes start a failed run again by themselves."""

    model_config = ConfigDict(title="restart")

    max: RestartLimit = Field(3, description=to_translate("Maximum number of restarts."))
    on: tuple[ReasonName, ...] = Field(
        DEFAULT_REASONS,
        description=to_translate("For which reasons; an error of the script itself is never among them."),
        json_schema_extra={"uniqueItems": True, "minItems": 1},
    )
    spares: Count = Field(
        0, description=to_translate("Number of spare nodes that are prepared; each can replace a lost node.")
    )
    progress: FilePattern = Field(
        "**",
        description=to_translate(
            "Files below `${output_dir}` that change when the run gets on, such as `*.pt`; three attempts in "
            "a row that change none are the last."
        ),
    )


def _parse_stall_time(text: str) -> float:
    """Read the time without progress, in seconds; 0 is never."""
    return 0.0 if text == "off" else values.parse_duration(text)


_STALL_TIME = {
    "type": ["string", "number"],
    "pattern": f"^({values.DURATION_PATTERN}|off)$",
    "minLength": 1,
    "minimum": 0,
}
StallTime = Annotated[float, ScalarType(to_translate("a time, or off"), _parse_stall_time, _STALL_TIME)]


class StallEntry(StrictModel):
    """What happens when no rank makes progress."""

    model_config = ConfigDict(title="stall")

    after: StallTime = Field(
        600.0,
        description=to_translate(
            "Time without progress of any rank, such as `10m`; `off` or 0: not watched."
        ),
    )
    then: Annotated[StallAction, one_of("report", "restart", "stop")] = Field(
        "report",
        description=to_translate(
            "`report` ends nothing; `stop` ends the run as failed, `restart` lets it start again."
        ),
    )


def restart_of(entry: RestartEntry | None) -> Restart | None:
    """Give a job's restart policy, if it has one."""
    if entry is None:
        return None
    return Restart(most=entry.max, on=entry.on, spares=entry.spares, progress=entry.progress)


def restart_issues(tree: YamlMapping) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    restart, stall = tree.get("restart"), tree.get("stall")
    then = find_scalar(stall, "then") if isinstance(stall, YamlMapping) else None
    if then is not None and then.text == "restart" and not isinstance(restart, YamlMapping):
        yield Issue.of("CC-SPEC-013", "stall-restart", then.location)
    reasons = restart.get("on") if isinstance(restart, YamlMapping) else None
    yield from find_duplicates(reasons, "restart.on")
    if isinstance(reasons, YamlList) and not reasons.items:
        yield Issue.of("CC-SPEC-014", "empty-restart-on", reasons.location)


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
ModuleName = Annotated[str, ScalarType("a module", values.parse_module, {"type": "string", "minLength": 1})]
Flag = Annotated[bool, FLAG]
GpuIndex = Annotated[
    int, ScalarType(to_translate("the index of a GPU"), values.parse_count, whole_number_schema(minimum=0))
]
Alone = Annotated[Literal["fail", "ok"], one_of("fail", "ok")]
Backend = Annotated[Literal["nccl", "gloo"], one_of("nccl", "gloo")]
Via = Annotated[Literal["auto", "direct", "tree"], one_of("auto", "direct", "tree")]
_DURATION = {
    "type": ["string", "number"],
    "pattern": f"^{values.DURATION_PATTERN}$",
    "minLength": 1,
    "minimum": 0,
}
Duration = Annotated[float, ScalarType(to_translate("a time"), values.parse_duration, _DURATION)]
Limit = Annotated[float | None, optional(to_translate("a time"), values.parse_limit, _DURATION)]
WarmTime = Annotated[float | None, optional(to_translate("a time"), values.parse_duration, _DURATION)]
_SIZE = {"type": ["string", "integer"], "pattern": f"^({SIZE_PATTERN})$", "minimum": 0, "maximum": 0}
ByteLimit = Annotated[int, ScalarType(to_translate("a size"), parse_size, _SIZE)]
Text = Annotated[str, TEXT]
OptionalPython = Annotated[str | None, PYTHON]
OptionalText = Annotated[str | None, TEXT]


class SyncEntry(StrictModel):
    """What of the job's directory goes to the nodes."""

    model_config = ConfigDict(title="sync")

    source: Text = Field(
        ".",
        description=to_translate(
            "Directory that is copied to every node, relative to the job file; the job runs there."
        ),
    )
    exclude: tuple[Text, ...] = Field(
        (),
        description=to_translate(
            "What is not sent, as patterns of `.gitignore`; `.gitignore` files apply too."
        ),
    )
    via: Via = Field(
        "auto",
        description=to_translate(
            "How the code travels: to every node from here (`direct`), or once, and then from node to node"
            " over the training network (`tree`); `auto` passes it on where that saves much sending."
        ),
    )


class JobFile(StrictModel):
    """What to run on the nodes, and how; exactly one of `script`, `module` and `command` is given."""

    model_config = ConfigDict(
        title="clusterctl job",
        json_schema_extra={"oneOf": [{"required": [key]} for key in ("script", "module", "command")]},
    )

    name: JobName = Field(
        description=to_translate("Name of the job, the first part of the name of each of its runs.")
    )
    script: Script = Field(
        None,
        description=to_translate(
            "Training script: a path inside `sync.source`, or an absolute path on the nodes."
        ),
    )
    module: Module = Field(
        None, description=to_translate("Python module to run instead of a script, such as `pkg.train`.")
    )
    command: tuple[Arg, ...] = Field(
        (),
        description=to_translate(
            "For `launcher: command`: a program and its arguments, run once on each node; with `ray` on node 0"
            " only, with `mpirun` once per rank."
        ),
    )
    args: tuple[Arg, ...] = Field(
        (), description=to_translate("Arguments of the script, kept as written; placeholders are filled in.")
    )
    nproc_per_node: Nproc = Field(
        "gpu",
        description=to_translate(
            "Workers on each node: one per GPU (`gpu`), one per CPU core (`cpu`), or a number."
        ),
    )
    nodes: NodeChoice = Field(
        "all",
        description=to_translate(
            "Which nodes: `all`, a count, or names, ranges and globs such as `gpu[01-04]`."
        ),
    )
    gpus: tuple[GpuIndex, ...] = Field(
        (),
        description=to_translate(
            "Indices of the GPUs to use, the same on each node, such as `[0, 1]`; "
            "default: as many as `gpus` of the inventory, else all."
        ),
        json_schema_extra={"uniqueItems": True, "minItems": 1},
    )
    exclusive: Flag = Field(
        False,
        description=to_translate("Use each node exclusively: no other run may be on it, whatever it uses."),
    )
    launcher: LauncherName = Field("torchrun", description=to_translate("What starts the workers on a node."))
    use_env: Flag = Field(
        False,
        description=to_translate(
            "For `launcher: launch`: leave `--local-rank` out; LOCAL_RANK is always set."
        ),
    )
    no_python: Flag = Field(
        False,
        description=to_translate(
            "For torchrun: `script` is a program or shell script, run without Python once per rank."
        ),
    )
    ends_with: EndsWith = Field(
        "all",
        description=to_translate(
            "For `python` and `command`: the run ends when the program has ended on all nodes (`all`), or when"
            " node 0's has (`node 0`); always `node 0` with `ray` and `mpirun`."
        ),
    )
    start: StartChoice = Field(
        "exec",
        description=to_translate(
            "How torchrun starts its workers: each with a new interpreter (`exec`), or forked from a process "
            "that has torch imported (`fork`, `auto`)."
        ),
    )
    preload: tuple[ModuleName, ...] = Field(
        (),
        description=to_translate(
            "For `start: fork` and `auto`: modules to import once per node, such as `transformers`."
        ),
        json_schema_extra={"uniqueItems": True},
    )
    keep_warm: WarmTime = Field(
        None,
        description=to_translate(
            "How long a process with torch imported waits on each node after a run, such as `15m`, for the next"
            " launch to begin with; `0` for none. `start` is then `auto` unless set."
        ),
    )
    backend: Backend = Field(
        "nccl", description=to_translate("Backend that the script uses; `check` looks for what it needs.")
    )
    env: dict[Variable, EnvValue] = Field(
        {},
        description=to_translate(
            "Environment variables of the job, kept as written; placeholders are filled in."
        ),
        json_schema_extra={"additionalProperties": False},
    )
    secrets: tuple[Variable, ...] = Field(
        (),
        description=to_translate(
            "Names of variables that are taken from your environment and never shown or stored."
        ),
        json_schema_extra={"uniqueItems": True},
    )
    sync: SyncEntry = Field(
        default_factory=SyncEntry, description=to_translate("Which code goes to the nodes.")
    )
    setup: SetupEntry | None = Field(
        None,
        description=to_translate(
            "What is made on every node before the job starts, such as a venv from a lock file."
        ),
    )
    before: HookEntry | None = Field(
        None,
        description=to_translate(
            "Shell commands on every node before torchrun starts, in each attempt; one that fails ends it."
        ),
    )
    after: HookEntry | None = Field(
        None,
        description=to_translate(
            "Shell commands on every node after all its ranks have ended, whatever the result."
        ),
    )
    grace: Duration = Field(
        30.0,
        description=to_translate(
            "Time from the request to stop to the kill, such as `2m`; a bare number is seconds."
        ),
    )
    time_limit: Limit = Field(
        None,
        description=to_translate(
            "How long the workers may run, such as `12h`; then they are stopped as by `stop`: `TIMEOUT`."
        ),
    )
    log_limit: ByteLimit = Field(
        50 * 1000**3,
        description=to_translate(
            "How long the logs of a run may be on each node, such as `20GB`; beyond that the middle of the"
            " longest is dropped. `0` for no limit."
        ),
    )
    zombie_after: Duration = Field(
        30.0,
        description=to_translate(
            "When a rank that has written its traceback and does not exit is ended; `0` for never."
        ),
    )
    alone: Alone = Field(
        "fail",
        description=to_translate(
            "Whether a run fails whose ranks all end with 0 and formed no process group: `fail`, or `ok` where"
            " each rank works alone on purpose."
        ),
    )
    stall: Annotated[StallEntry, ShortForm("after", _STALL_TIME)] = Field(
        default_factory=StallEntry,
        description=to_translate("When a run counts as stalled: a time such as `10m`, `off`, or a table."),
    )
    diagnose: Flag = Field(
        True,
        description=to_translate(
            "Prepare the Python processes of the ranks for `clusterctl diagnose`; `false`: change nothing"
            " in them."
        ),
    )
    debug: Flag = Field(
        False,
        description=to_translate(
            "Let a rank at `breakpoint()` wait for `clusterctl debug`; also `launch --debug`."
        ),
    )
    metrics: dict[MetricName, MetricPattern] = Field(
        {},
        description=to_translate(
            "Numbers to plot in `report`, found in the log: a name, and a regular expression whose group is the"
            " number. Losses and rates of the usual trainers are found without it."
        ),
        json_schema_extra={"additionalProperties": False},
    )
    restart: RestartEntry | None = Field(
        None,
        description=to_translate(
            "When the nodes restart a failed run by themselves, and with how many spare nodes."
        ),
    )
    on_end: OnEndEntry | None = Field(
        None,
        description=to_translate(
            "A command of your own that is run when a run has ended, with the result on its stdin."
        ),
    )
    notify: tuple[NotifyEntry, ...] = Field(
        (), description=to_translate("Messages to send when a run has ended.")
    )
    waive: tuple[WaiveEntry, ...] = Field(
        (), description=to_translate("Findings of `check` to ignore, and why.")
    )
    python: OptionalPython = Field(
        None, description=to_translate("Interpreter for this job; takes precedence over the inventory's.")
    )
    activate: OptionalText = Field(
        None, description=to_translate("Shell line run before Python; takes precedence over the inventory's.")
    )
