"""What to run on the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from clusterctl.specs.inventory.model import Waiver

Launcher = Literal["torchrun", "launch", "python", "command", "ray", "mpirun"]
LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)
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

EnvironmentKind = Literal["venv", "uv", "conda"]
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


@dataclass(frozen=True, kw_only=True)
class Setup:
    """An environment of a `kind` from the `lock` file, then shell commands; paths are beside the job, times seconds."""

    kind: EnvironmentKind | None = None
    lock: str = ""
    wheelhouse: str | None = None
    system_site_packages: bool = False
    files: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    time_limit: float = 1800.0


@dataclass(frozen=True, kw_only=True)
class Hook:
    """Shell commands, and the seconds that they may take together."""

    run: tuple[str, ...]
    time_limit: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Restart:
    """When the nodes start a run again: `most` times, `on` these reasons, with so many `spares` in reserve."""

    most: int = 3
    on: tuple[Reason, ...] = DEFAULT_REASONS
    spares: int = 0
    progress: str = "**"


@dataclass(frozen=True, kw_only=True)
class Stall:
    """When a run counts as stalled, in seconds (0 for never), and what the nodes do then."""

    after: float = 600.0
    then: StallAction = "report"


@dataclass(frozen=True, kw_only=True)
class OnEnd:
    """A local command; time_limit is in seconds, an empty `when` means every end."""

    command: tuple[str, ...]
    when: tuple[str, ...] = ()
    time_limit: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Notify:
    """One notification; URL and secret are named, never held."""

    to: str
    url_from: str
    secret_from: str | None = None
    when: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Sync:
    """Which code goes to the nodes; source is relative to the job file."""

    source: str = "."
    exclude: tuple[str, ...] = ()
    via: Literal["auto", "direct", "tree"] = "auto"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job; `nodes` is a count if it is a number, else a pattern; times are in seconds,
    log_limit in bytes, 0 for none.
    """

    name: str
    file: str
    script: str | None = None
    module: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    nproc_per_node: int | Literal["gpu", "cpu"] = "gpu"
    nodes: int | str = "all"
    gpus: tuple[int, ...] = ()
    exclusive: bool = False
    launcher: Launcher = "torchrun"
    use_env: bool = False
    no_python: bool = False
    ends_with: Literal["all", "node 0"] = "all"
    start: StartMethod = "exec"
    preload: tuple[str, ...] = ()
    keep_warm: float | None = None
    backend: Literal["nccl", "gloo"] = "nccl"
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    sync: Sync = field(default_factory=Sync)
    setup: Setup | None = None
    before: Hook | None = None
    after: Hook | None = None
    grace: float = 30.0
    time_limit: float | None = None
    log_limit: int = 50 * 1000**3
    zombie_after: float = 30.0
    alone: Literal["fail", "ok", "suspected"] = "fail"  # suspected: by a check, see plans/checks/script.py
    stall: Stall = field(default_factory=Stall)
    diagnose: bool = True
    debug: bool = False
    metrics: Mapping[str, str] = field(default_factory=dict)
    restart: Restart | None = None
    on_end: OnEnd | None = None
    notify: tuple[Notify, ...] = ()
    waive: tuple[Waiver, ...] = ()
    python: str | None = None
    activate: str | None = None

    @property
    def is_single_process(self) -> bool:
        """Tell whether each node runs one process, which starts its own workers if it wants any."""
        return self.launcher in SINGLE_PROCESS_LAUNCHERS

    @property
    def runs_on_head(self) -> bool:
        """Tell whether the program of node 0 is served by the others, and ends the run."""
        return self.launcher in HEAD_LAUNCHERS
