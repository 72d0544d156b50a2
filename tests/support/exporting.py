"""Jobs to export, as plain values."""

from __future__ import annotations

from clusterctl.plans.export.shell import Export, Target, choose_export_nodes
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job

INVENTORY = parse_inventory(
    """
cluster: lab-a
ssh: {user: me}
nodes:
  - {host: 192.168.10.235, name: gpu01, nic: [meth919, meth920], gpus: 4, ports: 20000-20100}
  - {host: 192.168.10.236, name: gpu02, nic: meth917, gpus: 4, python: ~/torch/bin/python}
  - {host: gpu03.example, name: gpu03, network: 10.20.0.0/16, gpus: 2, activate: module load cuda}
  - {host: gpu04, name: gpu04, spare: true}
""",
    "inventory.yaml",
)


def make_export(
    job: str, target: Target, inventory: Inventory | None, *, pattern: str | None = None
) -> Export:
    """Give what is to be written for a job with these further keys."""
    script = "" if "module:" in job else "script: t.py, "
    parsed = parse_job(f"{{name: j, {script}{job}}}", "job.yaml")
    nodes = choose_export_nodes(parsed, inventory, target, (pattern, None))
    return Export(parsed, nodes, file="job.sbatch" if target == "slurm" else "job.sh")


def option_lines(text: str) -> list[str]:
    """List the options of sbatch in a script."""
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]
