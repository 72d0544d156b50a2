"""A new job as the text of its file, with the keys that are wanted next in comments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clusterctl.specs.kinds import Launcher
from clusterctl.specs.values import accepts, parse_name
from clusterctl.specs.yaml.tree import render_args, render_list, render_scalar
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
    setup: Mapping[str, str | Sequence[str]] = field(default_factory=dict)


COMMENT_COLUMN = 32
Lines = list[tuple[str, str]]  # a line of the file and its comment; an empty line has only that


def render_job(draft: JobDraft) -> str:
    """Write the job with comments for the keys that are wanted next; parse_job reads it."""
    optional: Lines = [
        ("", ""),
        ("# env: {NCCL_DEBUG: INFO}", ""),
        ("# secrets: [WANDB_API_KEY]", tr("from your environment, never stored")),
        ("# time_limit: 12h", ""),
        ("# restart: {max: 3}", tr("after a lost node, a killed worker, a broken network")),
        ("", ""),
        ("sync:", ""),
        ("  source: .", tr("this folder goes to every node")),
        ('  exclude: [data/, "*.pt", "*.ckpt"]', ""),
    ]
    name, *program = _render_program(draft)
    first = tr("# What to run:   clusterctl check     clusterctl launch")
    lines = [(first, ""), name, ("", ""), *program, ("", ""), *_render_workers(draft), *optional]
    return "\n".join(_with_comment(line, comment) if comment else line for line, comment in lines) + "\n"


def render_brief_job(draft: JobDraft) -> str:
    """Write only the keys that the job needs; parse_job reads it."""
    lines = [*_render_program(draft), *_render_workers(draft)]
    return "".join(f"{line}\n" for line, _ in lines)


def _render_program(draft: JobDraft) -> Lines:
    found = tr("found in the script")
    lines = [(f"name: {render_scalar(draft.name)}", "")]
    lines += [
        (f"script: {render_scalar(draft.script)}", "" if draft.script_exists else tr("does not exist yet"))
    ]
    lines += [(f"launcher: {draft.launcher}", found)] if draft.launcher != "torchrun" else []
    example = tr("such as {example}", example='[--epochs, 3, --output, "${output_dir}"]')
    lines += [(render_args(draft.args), found if draft.args else example)]
    if draft.setup:
        keys = ", ".join(
            f"{key}: {render_scalar(value) if isinstance(value, str) else render_list(value)}"
            for key, value in draft.setup.items()
        )
        lines += [(f"setup: {{{keys}}}", tr("made on every node before the first launch"))]
    return lines


def _render_workers(draft: JobDraft) -> Lines:
    workers, backend = ("gpu", "nccl") if draft.gpus else ("1", "gloo")
    per_node = tr("one worker for each GPU; or a number") if draft.gpus else tr("the nodes have no GPUs")
    if draft.nproc_per_node is not None:
        workers, per_node = str(draft.nproc_per_node), tr("as the script starts them")
    return [
        ("nodes: all", tr("or a count, names, ranges: 2, gpu01, 0-3")),
        (f"nproc_per_node: {workers}", per_node),
        (f"backend: {backend}", tr("what the script uses; check verifies it")),
    ]


def _with_comment(line: str, comment: str) -> str:
    return f"{line:<{COMMENT_COLUMN - 2}}  # {comment}"


def choose_job_name(*texts: str) -> str:
    """Return the first text that may name a job."""
    return next((text for text in texts if accepts(parse_name, text)), "train")
