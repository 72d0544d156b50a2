"""A new job as the text of its file, with the keys that are wanted next in comments."""

from __future__ import annotations

from dataclasses import dataclass

from clusterctl.specs.codes import BadValueError
from clusterctl.specs.inventory.render import scalar
from clusterctl.specs.values import parse_name


@dataclass(frozen=True)
class Beginning:
    """What is known of a job that nobody has written yet; `gpus` tells whether every node has some."""

    name: str
    script: str
    gpus: bool
    script_is_there: bool = True


def render_job(beginning: Beginning) -> str:
    """Write the job; parse_job reads it."""
    workers, backend = ("gpu", "nccl") if beginning.gpus else ("1", "gloo")
    how_many = "one worker for each GPU; or a number" if beginning.gpus else "the nodes have no GPUs"
    later = "" if beginning.script_is_there else "                # not there yet"
    return f"""\
# What to run:   clusterctl check job.yaml     clusterctl launch job.yaml
name: {scalar(beginning.name)}

script: {scalar(beginning.script)}{later}
args: []                        # such as [--epochs, 3, --output, "${{output_dir}}"]

nodes: all                      # or a count, names, ranges: 2, gpu01, 0-3
nproc_per_node: {workers:<16}# {how_many}
backend: {backend:<23}# what the script uses; check looks for it

# env: {{NCCL_DEBUG: INFO}}
# secrets: [WANDB_API_KEY]      # taken from your environment, never stored
# time_limit: 12h
# restart: {{max: 3}}             # after a lost node, a killed worker, a broken network

sync:
  source: .                     # this folder goes to every node
  exclude: [data/, "*.pt", "*.ckpt"]
"""


def job_name(*texts: str) -> str:
    """Give the first text that may name a job."""
    for text in texts:
        try:
            return parse_name(text)
        except BadValueError:
            continue
    return "train"
