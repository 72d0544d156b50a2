"""What to run on the nodes: the job as its file declares it, key by key.

Times are in seconds, `log_limit` in bytes, 0 for none; `nodes` is a count if it is a number, else a pattern.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from clusterctl.specs import kinds
from clusterctl.specs.fields import ShortForm, documented
from clusterctl.specs.inventory.model import Waiver
from clusterctl.specs.job.checkpoints import Checkpoints
from clusterctl.specs.job.stage import Stage
from clusterctl.translation import to_translate

SINGLE_PROCESS_LAUNCHERS = (
    "python",
    "command",
    "ray",
    "mpirun",
)  # launchers that start one process on each node
HEAD_LAUNCHERS = ("ray", "mpirun")  # of these, those whose program on node 0 is served by the other nodes
VISIBLE_DEVICES_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is made on every node before the job starts, once for the same content."""

    venv: kinds.OptionalJobPath = field(
        default=None,
        metadata=documented(to_translate("Make a venv and install this requirements file with pip.")),
    )
    uv: kinds.OptionalJobPath = field(
        default=None,
        metadata=documented(
            to_translate(
                "Make it with uv: from a `uv.lock` and the `pyproject.toml` next to it, or a requirements file."
            )
        ),
    )
    conda: kinds.OptionalJobPath = field(
        default=None,
        metadata=documented(
            to_translate(
                "Make a conda environment from an `environment.yml` or an explicit lock file, with micromamba, "
                "mamba or conda, whichever the node has."
            )
        ),
    )
    wheelhouse: kinds.OptionalJobPath = field(
        default=None,
        metadata=documented(
            to_translate(
                "Folder of wheels that is sent along; `venv` and `uv` then install only from it, without network."
            )
        ),
    )
    system_site_packages: kinds.Flag = field(
        default=False,
        metadata=documented(
            to_translate("Let the environment see the packages of the node's own Python, such as its torch.")
        ),
    )
    files: tuple[kinds.JobPath, ...] = field(
        default=(),
        metadata=documented(
            to_translate(
                "More files and folders next to the job file that `run` needs; they count as content."
            )
        ),
    )
    run: kinds.OptionalCommands = field(
        default=(),
        metadata=documented(
            to_translate(
                "Shell commands to run then, in the environment; the first that fails ends the launch."
            )
        ),
    )
    time_limit: kinds.Limit = field(
        default=1800.0, metadata=documented(to_translate("Time limit for all of it on a node."))
    )

    @property
    def kind(self) -> kinds.EnvironmentKind | None:
        """Return the kind of environment that is made, if one is."""
        return next((kind for kind in kinds.ENVIRONMENT_KINDS if getattr(self, kind)), None)

    @property
    def lock(self) -> str:
        """Return the file that the environment is made from; empty without one."""
        return self.venv or self.uv or self.conda or ""


@dataclass(frozen=True, kw_only=True)
class Hook:
    """Shell commands on every node, once for each attempt."""

    run: kinds.Commands = field(
        metadata=documented(
            to_translate(
                "Shell commands, run one after the other in the run's copy of the code, with the job's environment."
            )
        )
    )
    time_limit: kinds.Limit = field(
        default=60.0, metadata=documented(to_translate("Time limit for all of them; then they are stopped."))
    )


@dataclass(frozen=True, kw_only=True)
class Restart:
    """How the nodes start a failed run again by themselves."""

    max: kinds.RestartLimit = field(
        default=3, metadata=documented(to_translate("Maximum number of restarts."))
    )
    on: tuple[kinds.ReasonName, ...] = field(
        default=kinds.DEFAULT_REASONS,
        metadata=documented(
            to_translate("For which reasons; an error of the script itself is never among them."),
            uniqueItems=True,
            minItems=1,
        ),
    )
    spares: kinds.Count = field(
        default=0,
        metadata=documented(
            to_translate("Number of spare nodes that are prepared; each can replace a lost node.")
        ),
    )
    progress: kinds.FilePattern = field(
        default="**",
        metadata=documented(
            to_translate(
                "Files below `${output_dir}` that change when the run gets on, such as `*.pt`; three attempts in "
                "a row that change none are the last."
            )
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Stall:
    """What happens when no rank makes progress."""

    after: kinds.StallTime = field(
        default=600.0,
        metadata=documented(
            to_translate("Time without progress of any rank, such as `10m`; `off` or 0: not watched.")
        ),
    )
    then: kinds.StallChoice = field(
        default="report",
        metadata=documented(
            to_translate(
                "`report` ends nothing; `stop` ends the run as failed, `restart` lets it start again."
            )
        ),
    )


@dataclass(frozen=True, kw_only=True)
class OnEnd:
    """A command of your own, run here when a run has ended."""

    command: tuple[kinds.CommandArgument, ...] = field(
        metadata=documented(
            to_translate(
                "A program and its arguments, run on the launching machine, in the job file's directory; no shell."
            ),
            minItems=1,
        )
    )
    when: kinds.WhenEnds = field(
        default=(),
        metadata=documented(
            to_translate("For which results: succeeded, failed, timeout, stopped; default: all.")
        ),
    )
    time_limit: kinds.Limit = field(
        default=60.0, metadata=documented(to_translate("Time limit; then it is stopped."))
    )


@dataclass(frozen=True, kw_only=True)
class Notify:
    """One message to a chat or a web service when a run has ended."""

    to: kinds.ServiceName = field(
        metadata=documented(to_translate("The kind of service, which decides the form of the message."))
    )
    url_from: kinds.Variable = field(
        metadata=documented(
            to_translate(
                "Name of the variable in your own environment that holds the URL; it is never shown or stored."
            )
        )
    )
    secret_from: kinds.OptionalVariable = field(
        default=None,
        metadata=documented(
            to_translate("For `feishu` and `dingtalk`: name of the variable that holds the signing secret.")
        ),
    )
    when: kinds.WhenNotified = field(
        default=(),
        metadata=documented(
            to_translate(
                "For which results: succeeded, failed, timeout, stopped (default: all four); or `stalled`."
            )
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Sync:
    """What of the job's directory goes to the nodes."""

    source: kinds.Text = field(
        default=".",
        metadata=documented(
            to_translate(
                "Directory that is copied to every node, relative to the job file; the job runs there."
            )
        ),
    )
    exclude: tuple[kinds.Text, ...] = field(
        default=(),
        metadata=documented(
            to_translate("What is not sent, as patterns of `.gitignore`; `.gitignore` files apply too.")
        ),
    )
    via: kinds.Via = field(
        default="auto",
        metadata=documented(
            to_translate(
                "How the code travels: to every node from here (`direct`), or once, and then from node to node"
                " over the training network (`tree`); `auto` passes it on where that saves much sending."
            )
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to run on the nodes, and how; exactly one of `script`, `module` and `command` is given."""

    file: str
    name: kinds.Name = field(
        metadata=documented(to_translate("Name of the job, the first part of the name of each of its runs."))
    )
    script: kinds.Script = field(
        default=None,
        metadata=documented(
            to_translate("Training script: a path inside `sync.source`, or an absolute path on the nodes.")
        ),
    )
    module: kinds.Module = field(
        default=None,
        metadata=documented(to_translate("Python module to run instead of a script, such as `pkg.train`.")),
    )
    command: tuple[kinds.Arg, ...] = field(
        default=(),
        metadata=documented(
            to_translate(
                "For `launcher: command`: a program and its arguments, run once on each node; with `ray` on node 0"
                " only, with `mpirun` once per rank."
            )
        ),
    )
    args: tuple[kinds.Arg, ...] = field(
        default=(),
        metadata=documented(
            to_translate("Arguments of the script, kept as written; placeholders are filled in.")
        ),
    )
    nproc_per_node: kinds.Nproc = field(
        default="gpu",
        metadata=documented(
            to_translate("Workers on each node: one per GPU (`gpu`), one per CPU core (`cpu`), or a number.")
        ),
    )
    nodes: kinds.NodeChoice = field(
        default="all",
        metadata=documented(
            to_translate("Which nodes: `all`, a count, or names, ranges and globs such as `gpu[01-04]`.")
        ),
    )
    gpus: tuple[kinds.GpuIndex, ...] = field(
        default=(),
        metadata=documented(
            to_translate(
                "Indices of the GPUs to use, the same on each node, such as `[0, 1]`; "
                "default: as many as `gpus` of the inventory, else all."
            ),
            uniqueItems=True,
            minItems=1,
        ),
    )
    exclusive: kinds.Flag = field(
        default=False,
        metadata=documented(
            to_translate("Use each node exclusively: no other run may be on it, whatever it uses.")
        ),
    )
    launcher: kinds.LauncherName = field(
        default="torchrun", metadata=documented(to_translate("What starts the workers on a node."))
    )
    use_env: kinds.Flag = field(
        default=False,
        metadata=documented(
            to_translate("For `launcher: launch`: leave `--local-rank` out; LOCAL_RANK is always set.")
        ),
    )
    no_python: kinds.Flag = field(
        default=False,
        metadata=documented(
            to_translate(
                "For torchrun: `script` is a program or shell script, run without Python once per rank."
            )
        ),
    )
    ends_with: kinds.EndsWith = field(
        default="all",
        metadata=documented(
            to_translate(
                "For `python` and `command`: the run ends when the program has ended on all nodes (`all`), or when"
                " node 0's has (`node 0`); always `node 0` with `ray` and `mpirun`."
            )
        ),
    )
    start: kinds.StartChoice = field(
        default="exec",
        metadata=documented(
            to_translate(
                "How torchrun starts its workers: each with a new interpreter (`exec`), or forked from a process "
                "that has torch imported (`fork`), where that is possible."
            )
        ),
    )
    preload: tuple[kinds.ModuleName, ...] = field(
        default=(),
        metadata=documented(
            to_translate("For `start: fork`: modules to import once per node, such as `transformers`."),
            uniqueItems=True,
        ),
    )
    keep_warm: kinds.WarmTime = field(
        default=None,
        metadata=documented(
            to_translate(
                "How long a process with torch imported waits on each node after a run, such as `15m`, for the next"
                " launch to begin with; `0` for none. `start` is then `fork` unless set."
            )
        ),
    )
    backend: kinds.Backend = field(
        default="nccl",
        metadata=documented(to_translate("Backend that the script uses; `check` looks for what it needs.")),
    )
    env: Mapping[kinds.Variable, kinds.EnvValue] = field(
        default_factory=dict,
        metadata=documented(
            to_translate("Environment variables of the job, kept as written; placeholders are filled in.")
        ),
    )
    secrets: tuple[kinds.Variable, ...] = field(
        default=(),
        metadata=documented(
            to_translate(
                "Names of variables that are taken from your environment and never shown or stored."
            ),
            uniqueItems=True,
        ),
    )
    sync: Sync = field(
        default_factory=Sync, metadata=documented(to_translate("Which code goes to the nodes."))
    )
    stage: tuple[Stage, ...] = field(
        default=(),
        metadata=documented(
            to_translate(
                "Models and data that every node has before the job starts, in the time of one copy."
            )
        ),
    )
    setup: Setup | None = field(
        default=None,
        metadata=documented(
            to_translate("What is made on every node before the job starts, such as a venv from a lock file.")
        ),
    )
    before: Hook | None = field(
        default=None,
        metadata=documented(
            to_translate(
                "Shell commands on every node before torchrun starts, in each attempt; one that fails ends it."
            )
        ),
    )
    after: Hook | None = field(
        default=None,
        metadata=documented(
            to_translate("Shell commands on every node after all its ranks have ended, whatever the result.")
        ),
    )
    grace: kinds.Duration = field(
        default=30.0,
        metadata=documented(
            to_translate("Time from the request to stop to the kill, such as `2m`; a bare number is seconds.")
        ),
    )
    time_limit: kinds.OptionalLimit = field(
        default=None,
        metadata=documented(
            to_translate(
                "How long the workers may run, such as `12h`; then they are stopped as by `stop`: `TIMEOUT`."
            )
        ),
    )
    log_limit: kinds.ByteLimit = field(
        default=50 * 1000**3,
        metadata=documented(
            to_translate(
                "How long the logs of a run may be on each node, such as `20GB`; beyond that the middle of the"
                " longest is dropped. `0` for no limit."
            )
        ),
    )
    zombie_after: kinds.Duration = field(
        default=30.0,
        metadata=documented(
            to_translate(
                "When a rank that has written its traceback and does not exit is ended; `0` for never."
            )
        ),
    )
    alone: kinds.Alone = field(
        default="fail",
        metadata=documented(
            to_translate(
                "Whether a run fails whose ranks all end with 0 and formed no process group: `fail`, or `ok` where"
                " each rank works alone on purpose."
            )
        ),
    )
    stall: Annotated[Stall, ShortForm("after")] = field(
        default_factory=Stall,
        metadata=documented(
            to_translate("When a run counts as stalled: a time such as `10m`, `off`, or a table.")
        ),
    )
    diagnose: kinds.Flag = field(
        default=True,
        metadata=documented(
            to_translate(
                "Prepare the Python processes of the ranks for `clusterctl diagnose`; `false`: change nothing"
                " in them."
            )
        ),
    )
    debug: kinds.Flag = field(
        default=False,
        metadata=documented(
            to_translate("Let a rank at `breakpoint()` wait for `clusterctl debug`; also `launch --debug`.")
        ),
    )
    metrics: Mapping[kinds.MetricName, kinds.MetricPattern] = field(
        default_factory=dict,
        metadata=documented(
            to_translate(
                "Numbers to plot in `report`, found in the log: a name, and a regular expression whose group is the"
                " number. Losses and rates of the usual trainers are found without it."
            )
        ),
    )
    restart: Restart | None = field(
        default=None,
        metadata=documented(
            to_translate("When the nodes restart a failed run by themselves, and with how many spare nodes.")
        ),
    )
    min_nodes: kinds.OptionalCount = field(
        default=None,
        metadata=documented(
            to_translate(
                "With `restart`: when a node is lost and no spare is left, the run goes on with the others, if they are"
                " at least this many."
            )
        ),
    )
    checkpoints: Checkpoints | None = field(
        default=None,
        metadata=documented(
            to_translate("Which files the nodes keep for each other, so that a restart resumes from them.")
        ),
    )
    on_end: OnEnd | None = field(
        default=None,
        metadata=documented(
            to_translate(
                "A command of your own that is run when a run has ended, with the result on its stdin."
            )
        ),
    )
    notify: tuple[Notify, ...] = field(
        default=(), metadata=documented(to_translate("Messages to send when a run has ended."))
    )
    waive: tuple[Waiver, ...] = field(
        default=(), metadata=documented(to_translate("Findings of `check` to ignore, and why."))
    )
    python: kinds.OptionalPython = field(
        default=None,
        metadata=documented(to_translate("Interpreter for this job; takes precedence over the inventory's.")),
    )
    activate: kinds.OptionalText = field(
        default=None,
        metadata=documented(
            to_translate("Shell line run before Python; takes precedence over the inventory's.")
        ),
    )

    @property
    def is_single_process(self) -> bool:
        """Return whether each node runs one process, which starts its own workers if it wants any."""
        return self.launcher in SINGLE_PROCESS_LAUNCHERS

    @property
    def runs_on_head(self) -> bool:
        """Return whether the program of node 0 is served by the others, and ends the run."""
        return self.launcher in HEAD_LAUNCHERS
