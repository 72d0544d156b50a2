"""What to run on the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from clusterctl.errors import SpecError
from clusterctl.specs.document import in_order, read_document
from clusterctl.specs.examine import examine
from clusterctl.specs.job_end import Notify, OnEnd, notify_of, on_end_of
from clusterctl.specs.job_file import JobFile
from clusterctl.specs.job_restart import Restart, restart_of
from clusterctl.specs.job_rules import ONE_PROCESS, broken_rules
from clusterctl.specs.job_setup import Hook, Setup, hook_of, setup_of
from clusterctl.specs.override import apply_overrides
from clusterctl.specs.waive import Waiver, waivers_of


@dataclass(frozen=True, kw_only=True)
class Sync:
    """Which code goes to the nodes; source is relative to the job file."""

    source: str = "."
    exclude: tuple[str, ...] = ()
    via: Literal["auto", "direct", "tree"] = "auto"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job; `nodes` is a count if it is a number, else a pattern; grace and time_limit are in seconds,
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
    launcher: Literal["torchrun", "launch", "python", "command"] = "torchrun"
    use_env: bool = False
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
    restart: Restart | None = None
    on_end: OnEnd | None = None
    notify: tuple[Notify, ...] = ()
    waive: tuple[Waiver, ...] = ()
    python: str | None = None
    activate: str | None = None

    @property
    def one_process(self) -> bool:
        """Tell whether each node runs one process, which starts its own workers if it wants any."""
        return self.launcher in ONE_PROCESS


def parse_job(text: str, file: str, overrides: Sequence[tuple[str, str]] = ()) -> Job:
    """Read a job, with keys set on the command line; raises SpecError with all that is wrong."""
    written, issues = read_document(text, file)
    tree, refused = apply_overrides(written, overrides)
    entry, found = examine(tree, JobFile)
    issues = in_order((*issues, *refused, *found, *broken_rules(tree)))
    if issues or entry is None:
        raise SpecError(issues)
    return Job(
        name=entry.name,
        file=file,
        script=entry.script,
        module=entry.module,
        command=entry.command,
        args=entry.args,
        nproc_per_node=entry.nproc_per_node,
        nodes=entry.nodes,
        gpus=entry.gpus,
        exclusive=entry.exclusive,
        launcher=entry.launcher,
        use_env=entry.use_env,
        backend=entry.backend,
        env=entry.env,
        secrets=entry.secrets,
        sync=Sync(source=entry.sync.source, exclude=entry.sync.exclude, via=entry.sync.via),
        setup=setup_of(entry.setup),
        before=hook_of(entry.before),
        after=hook_of(entry.after),
        grace=entry.grace,
        time_limit=entry.time_limit,
        log_limit=entry.log_limit,
        restart=restart_of(entry.restart),
        on_end=on_end_of(entry.on_end),
        notify=notify_of(entry.notify),
        waive=waivers_of(entry.waive, file),
        python=entry.python,
        activate=entry.activate,
    )
