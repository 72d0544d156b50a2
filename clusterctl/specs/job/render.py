"""A new job as the text of its file, with the keys that are wanted next in comments."""

from __future__ import annotations

from dataclasses import dataclass

from clusterctl.errors import InvalidValueError
from clusterctl.specs.inventory.render import render_scalar
from clusterctl.specs.values import parse_name
from clusterctl.translation import tr


@dataclass(frozen=True)
class JobDraft:
    """What is known of a job before its file exists; `gpus`: whether every node has some."""

    name: str
    script: str
    gpus: bool
    script_exists: bool = True


COMMENT_COLUMN = 32


def render_job(draft: JobDraft) -> str:
    """Write the job; parse_job reads it."""
    workers, backend = ("gpu", "nccl") if draft.gpus else ("1", "gloo")
    per_node = tr("one worker for each GPU; or a number") if draft.gpus else tr("the nodes have no GPUs")
    script = f"script: {render_scalar(draft.script)}"
    args = _with_comment(
        "args: []", tr("such as {example}", example='[--epochs, 3, --output, "${output_dir}"]')
    )
    lines = (
        tr("# What to run:   clusterctl check job.yaml     clusterctl launch job.yaml"),
        f"name: {render_scalar(draft.name)}",
        "",
        script if draft.script_exists else f"{script}                # {tr('does not exist yet')}",
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
