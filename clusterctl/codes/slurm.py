"""Slurm clusters: CC-SLURM."""

from __future__ import annotations

from collections.abc import Mapping

from clusterctl.codes.entry import Case, Entry, Same

ENTRIES: Mapping[str, Entry] = {
    "CC-SLURM-001": Entry(
        "error",
        "the job file uses something that a run on Slurm does not support",
        why="On a Slurm cluster Slurm chooses the nodes and their GPUs; some features of runs over SSH do not exist "
        "there",
        do="Change the job file, or the value with --set",
        cases={
            "all": Case(
                "nodes: all means nothing on a Slurm cluster",
                "give a number in {file}, or on the command line: --set nodes=4",
            ),
            "spares": Case(
                "{names}: no node is left besides {spares} spares", "name more nodes, or lower restart.spares"
            ),
            "pattern": Case(
                "{pattern}: only names and ranges can be given to Slurm",
                "write them as gpu01,gpu[03-08], or give a number",
            ),
            "deep-setup": Case(
                "--deep: the job's `setup` makes its environment only when the job starts",
                "give a Python with torch: --set setup=null --set python=PATH",
            ),
            "gpus": Case(
                "gpus: Slurm chooses the GPUs of a job",
                "remove gpus from {file}, and set nproc_per_node to their number",
            ),
            "gpus-per-node": Case(
                "nproc_per_node: gpu needs the number of GPUs to ask Slurm for",
                "set slurm.gpus_per_node in the inventory, or a number: --set nproc_per_node=8",
            ),
            "wait": Case("--wait: on a Slurm cluster every job waits for its nodes", "remove --wait"),
            "skip": Case(
                "--skip: on a Slurm cluster the nodes of the job make the checks",
                "write the codes as `waive` in the job file",
            ),
        },
    ),
    "CC-SLURM-002": Entry(
        "error",
        "`slurm` in the inventory is wrong",
        do="Correct the value that is shown",
        cases={
            "name": Case(
                "{word!r} is not a name of Slurm's",
                "use letters, digits, '.', '_', '-', '@', '+', ':' and ','",
            ),
            "option": Case(
                "{word!r} is not an option of sbatch in one word", "write it as --constraint=a100"
            ),
            "own-option": Case(
                "clusterctl sets {name} itself",
                "remove it; partition, account, qos and time are keys of `slurm`, the number of nodes is the job's",
            ),
            "both": Case(
                "an inventory has either nodes or slurm, not both",
                "keep one; use another file for the other cluster",
            ),
        },
    ),
    "CC-SLURM-003": Entry(
        "error",
        "Slurm's programs are not found on the login node",
        do="Check that `slurm.login` is a login node of the cluster, and that `ssh LOGIN sbatch --version` works",
    ),
    "CC-SLURM-004": Entry(
        "error",
        "a program of Slurm's did not answer in time",
        do="Look whether the controller is up: `scontrol ping`",
    ),
    "CC-SLURM-005": Entry(
        "error",
        "Slurm did not take the job",
        why="sbatch reports why: an unknown partition or account, more nodes or time than the partition allows, a "
        "controller that is away",
        do="Correct partition, account, qos, time or gpus_per_node in the inventory; `sinfo` shows what there is",
    ),
    "CC-SLURM-006": Entry(
        "error",
        "Slurm did not cancel the job",
        do="Run `scancel` on the login node",
    ),
    "CC-SLURM-007": Entry(
        "error",
        "this verb does not work on a Slurm cluster",
        do="Use Slurm's own programs on the login node, or an inventory with `nodes`",
        cases={
            "": Case(
                "`{verb}` does not work on a Slurm cluster ({file})",
                "use Slurm's own programs on the login node, or an inventory with nodes",
            ),
            "nodes": Case(
                "`clean` on a Slurm cluster removes a run on all its nodes, not on some",
                "remove --nodes and --exclude",
            ),
        },
    ),
    "CC-SLURM-008": Entry(
        "error",
        "no node of this run has begun",
        why="A run on a Slurm cluster has output only when Slurm has given it nodes",
        do="Wait for it with `clusterctl attach`",
        cases={
            "": Case("{verb}: no node of {run} has begun; {reason}", Same("{command}")),
        },
    ),
    "CC-SLURM-009": Entry(
        "error",
        "no run of yours has nodes now",
        why="The nodes of a Slurm cluster can be reached only while Slurm has given them to a run",
        do="Launch a run, or wait for one that is in the queue",
        cases={
            "": Case(
                "no run of yours has nodes of this Slurm cluster now ({file})",
                "launch a run, or wait for one with `attach`",
            ),
            "ended": Case(
                "{verb}: {run} has ended, and its nodes are Slurm's again", "what is on record: {command}"
            ),
        },
    ),
    "CC-SLURM-010": Entry(
        "error",
        "the job is of another Slurm cluster",
        why="Two Slurm clusters use the same work directory; numbers of their jobs repeat, so nothing is cancelled from "
        "the wrong login node",
        do="Use the inventory whose `slurm.login` is of that cluster, and give each cluster its own `slurm.workdir`",
    ),
}
