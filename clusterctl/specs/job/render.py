"""A new job as the text of its file, with the keys that are wanted next in comments."""

from __future__ import annotations

from dataclasses import dataclass

from clusterctl.errors import InvalidValueError
from clusterctl.specs.job.model import Launcher
from clusterctl.specs.values import parse_name
from clusterctl.specs.yaml.scalars import render_args, render_scalar
from clusterctl.translation import tr


@dataclass(frozen=True)
class JobDraft:
    """What is known of a job before its file exists; `gpus`: whether every node has some.

    `launcher`, `args` and `nproc_per_node` are what the script shows; None where the nodes decide.
    """

    name: str
    script: str
    gpus: bool
    script_exists: bool = True
    launcher: Launcher = "torchrun"
    args: tuple[str, ...] = ()
    nproc_per_node: int | None = None


COMMENT_COLUMN = 32


def render_job(draft: JobDraft) -> str:
    """Write the job; parse_job reads it."""
    workers, backend = ("gpu", "nccl") if draft.gpus else ("1", "gloo")
    per_node = tr("one worker for each GPU; or a number") if draft.gpus else tr("the nodes have no GPUs")
    if draft.nproc_per_node is not None:
        workers, per_node = str(draft.nproc_per_node), tr("as the script starts them")
    script = f"script: {render_scalar(draft.script)}"
    example = '[--epochs, 3, --output, "${output_dir}"]'
    found = tr("found in the script")
    args = (
        _with_comment(render_args(draft.args), found)
        if draft.args
        else _with_comment("args: []", tr("such as {example}", example=example))
    )
    launcher = [_with_comment(f"launcher: {draft.launcher}", found)] if draft.launcher != "torchrun" else []
    lines = (
        tr("# What to run:   clusterctl check job.yaml     clusterctl launch job.yaml"),
        f"name: {render_scalar(draft.name)}",
        "",
        script if draft.script_exists else f"{script}                # {tr('does not exist yet')}",
        *launcher,
        args,
        "",
        _with_comment("nodes: all", tr("or a count, names, ranges: 2, gpu01, 0-3")),
        _with_comment(f"nproc_per_node: {workers}", per_node),
        _with_comment(f"backend: {backend}", tr("what the script uses; check verifies it")),
        "",
        "# env: {NCCL_DEBUG: INFO}",
        _with_comment("# secrets: [WANDB_API_KEY]", tr("from your environment, never stored")),
        "# time_limit: 12h",
        _with_comment("# restart: {max: 3}", tr("after a lost node, a killed worker, a broken network")),
        "",
        "sync:",
        _with_comment("  source: .", tr("this folder goes to every node")),
        '  exclude: [data/, "*.pt", "*.ckpt"]',
    )
    return "\n".join(lines) + "\n"


def _with_comment(line: str, comment: str) -> str:
    return f"{line:<{COMMENT_COLUMN}}# {comment}"


def choose_job_name(*texts: str) -> str:
    """Give the first text that may name a job."""
    for text in texts:
        try:
            return parse_name(text)
        except InvalidValueError:
            continue
    return "train"
