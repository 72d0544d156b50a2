"""What to run on the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from clusterctl.errors import Issue, SpecError
from clusterctl.specs import codes, placeholders
from clusterctl.specs.document import in_order, read_document
from clusterctl.specs.examine import examine, repeated
from clusterctl.specs.job_file import JobFile
from clusterctl.specs.override import apply_overrides
from clusterctl.specs.tree import Listing, Scalar, Table, Tree, place_within, quoted


@dataclass(frozen=True, kw_only=True)
class Sync:
    """Which code goes to the nodes; source is relative to the job file."""

    source: str = "."
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job; `nodes` is a count if it is a number, else a pattern; grace is in seconds."""

    name: str
    file: str
    script: str | None = None
    module: str | None = None
    args: tuple[str, ...] = ()
    nproc_per_node: int | Literal["gpu", "cpu"] = "gpu"
    nodes: int | str = "all"
    launcher: Literal["torchrun"] = "torchrun"
    backend: Literal["nccl", "gloo"] = "nccl"
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    sync: Sync = field(default_factory=Sync)
    grace: float = 30.0
    python: str | None = None
    activate: str | None = None


def parse_job(text: str, file: str, overrides: Sequence[tuple[str, str]] = ()) -> Job:
    """Read a job, with keys set on the command line; raises SpecError with all that is wrong."""
    written, issues = read_document(text, file)
    tree, refused = apply_overrides(written, overrides)
    entry, found = examine(tree, JobFile)
    issues = in_order(
        (*issues, *refused, *found, *_program_issues(tree), *_secret_issues(tree), *_hole_issues(tree))
    )
    if issues or entry is None:
        raise SpecError(issues)
    return Job(
        name=entry.name,
        file=file,
        script=entry.script,
        module=entry.module,
        args=entry.args,
        nproc_per_node=entry.nproc_per_node,
        nodes=entry.nodes,
        launcher=entry.launcher,
        backend=entry.backend,
        env=entry.env,
        secrets=entry.secrets,
        sync=Sync(source=entry.sync.source, exclude=entry.sync.exclude),
        grace=entry.grace,
        python=entry.python,
        activate=entry.activate,
    )


def _program_issues(tree: Table) -> Iterator[Issue]:
    script, module = tree.key("script"), tree.key("module")
    if script and module:
        message = f"a job has a script or a module, not both; the script is at {script.place}"
        yield Issue(codes.SCRIPT_OR_MODULE, message, module.place, "drop one of them")
    if not script and not module:
        fix = "add script: train.py or module: pkg.train"
        yield Issue(codes.SCRIPT_OR_MODULE, "the job has neither a script nor a module", tree.place, fix)


def _secret_issues(tree: Table) -> Iterator[Issue]:
    env, secrets = tree.get("env"), tree.get("secrets")
    yield from repeated(secrets, "secrets")
    if not isinstance(env, Table) or not isinstance(secrets, Listing):
        return
    named = [secret for secret in secrets.items if isinstance(secret, Scalar)]
    for secret in named:
        name = secret.text or ""
        if key := env.key(name):
            message = f"{quoted(name)} is a secret and has a value in env at {key.place}"
            yield Issue(
                codes.SECRET_IN_ENV,
                message,
                secret.place,
                "drop it from env; the value comes from your own environment",
            )


def _hole_issues(tree: Table) -> Iterator[Issue]:
    for scalar in _templates(tree):
        for problem in placeholders.find_problems(scalar.text or ""):
            place = place_within(scalar, _opening_offset(scalar.source, problem.opening))
            yield Issue(codes.PLACEHOLDER, problem.message, place, problem.fix)


def _templates(tree: Table) -> Iterator[Scalar]:
    args, env = tree.get("args"), tree.get("env")
    values: list[Tree] = [*args.items] if isinstance(args, Listing) else []
    values += [value for _, value in env.entries.values()] if isinstance(env, Table) else []
    yield from (value for value in values if isinstance(value, Scalar))


def _opening_offset(source: str, opening: int) -> int:
    """Find the n-th `${` as it was written; 0 if the text was written with escapes."""
    offset = -1
    for _ in range(opening + 1):
        offset = source.find("${", offset + 1)
        if offset < 0:
            return 0
    return offset
