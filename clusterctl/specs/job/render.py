"""A new job as the text of its file, with the keys that are wanted next in comments."""

from __future__ import annotations

from dataclasses import dataclass

from clusterctl.specs.codes import InvalidValueError
from clusterctl.specs.inventory.render import render_scalar
from clusterctl.specs.values import parse_name


@dataclass(frozen=True)
class JobDraft:
    """What is known of a job that nobody has written yet; `gpus` tells whether every node has some."""

    name: str
    script: str
    gpus: bool
    script_exists: bool = True


def render_job(draft: JobDraft) -> str:
    """Write the job; parse_job reads it."""
    workers, backend = ("gpu", "nccl") if draft.gpus else ("1", "gloo")
    workers_comment = "one worker for each GPU; or a number" if draft.gpus else "the nodes have no GPUs"
    script_comment = "" if draft.script_exists else "                # not there yet"
    return f"""\
# What to run:   clusterctl check job.yaml     clusterctl launch job.yaml
name: {render_scalar(draft.name)}

script: {render_scalar(draft.script)}{script_comment}
args: []                        # such as [--epochs, 3, --output, "${{output_dir}}"]

nodes: all                      # or a count, names, ranges: 2, gpu01, 0-3
nproc_per_node: {workers:<16}# {workers_comment}
backend: {backend:<23}# what the script uses; check looks for it

# env: {{NCCL_DEBUG: INFO}}
# secrets: [WANDB_API_KEY]      # taken from your environment, never stored
# time_limit: 12h
# restart: {{max: 3}}             # after a lost node, a killed worker, a broken network

sync:
  source: .                     # this folder goes to every node
  exclude: [data/, "*.pt", "*.ckpt"]
"""


def choose_job_name(*texts: str) -> str:
    """Give the first text that may name a job."""
    for text in texts:
        try:
            return parse_name(text)
        except InvalidValueError:
            continue
    return "train"
