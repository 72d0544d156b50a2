"""A job as a script for sbatch: one task on each node, which finds its own network interface.

The batch script runs on the first node of the allocation, the functions that `srun` gets run on every node. A file
per task, because srun waits for every process that holds a shared pipe open, as a left data loader does.
"""

from __future__ import annotations

from math import ceil

from clusterctl.plans.export.shell import (
    CHOOSE_NETWORK,
    PORTS,
    Export,
    Script,
    default_nproc,
    hidden_variables,
    list_notes,
    render_activate,
    render_comment,
    render_node_settings,
    render_notes,
    render_program,
    render_run_job,
    render_setup,
    requeues,
    used_placeholders,
)
from clusterctl.plans.launch.placement import needs_gpus
from clusterctl.plans.launch.setup import SetupPlan
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.text import quote_word
from clusterctl.translation import tr


def render_slurm(export: Export) -> Script:
    """Write the script; it needs bash, iproute2 and Slurm 20.11 or later on the nodes."""
    notes = list_notes(export.job, export.nodes, "slurm")
    lines = [*_head(export), *render_notes(notes), *_options(export), "", *_functions(export), *_main(export)]
    return Script("\n".join(lines) + "\n", notes)


def _head(export: Export) -> list[str]:
    job = export.job
    return [
        # modules are functions of a login shell
        "#!/bin/bash -l" if render_activate(export) else "#!/bin/bash",
        *render_comment(
            tr(
                "The job {job} on Slurm, made by `clusterctl export slurm`. It runs without clusterctl:",
                job=job.name,
            )
        ),
        "#",
        f"#     sbatch {quote_word(export.file)} [ARGUMENTS]    # {tr('they follow the arguments of the job file')}",
        f"#     tail -F {job.name}-JOBID/*.out    # {tr('one file for each node')}",
        "#",
        *render_comment(
            tr(
                "Submit it in its own folder, which all nodes must share under the same path; the code is in {source!r} there. Options on the command line of sbatch take precedence over those below, such as `sbatch --partition gpu --account me`. The checks of `clusterctl check` are not included.",  # noqa: E501  one message
                source=export.source,
            )
        ),
    ]


def _options(export: Export) -> list[str]:
    job, given = export.job, export.nodes.options
    has_time = any(option.startswith("--time=") for option in given)
    options = [
        f"--job-name={job.name}",
        f"--nodes={export.nodes.count}",
        "--ntasks-per-node=1",
        *_resources(export),
        *([f"--time={render_time(job.time_limit)}"] if job.time_limit and not has_time else []),
        *given,
        *(
            ["--nodelist=" + fold_names(member.name for member in export.members)]
            if export.nodes.named
            else []
        ),
        "--requeue" if requeues(job.restart) else "--no-requeue",
        "--open-mode=append",
        "--output=%x-%j.out",
    ]
    hints = [] if given else ["##SBATCH --partition=gpu", "##SBATCH --account=me"]
    if any(option.startswith("--cpus-per-task") for option in options):
        hints += render_comment(tr("cpus-per-task is for all workers of a node: raise it for data loaders"))
    return ["#", *(f"#SBATCH {option}" for option in options), *hints]


def _resources(export: Export) -> list[str]:
    """Ask for whole nodes where the job takes all of a node, else for as much as its workers need at least."""
    job, nproc = export.job, default_nproc(export.job)
    lent = {member.node.gpus for member in export.members}
    gpus = next(iter(lent)) if nproc == "gpu" and len(lent) == 1 else None
    if nproc.isdecimal() and needs_gpus(job):
        gpus = int(nproc)
    whole = job.exclusive or not nproc.isdecimal()
    return [
        *([f"--gpus-per-node={gpus}"] if gpus else []),
        *(["--exclusive", "--mem=0"] if whole else [f"--cpus-per-task={nproc}"]),
    ]


def render_time(seconds: float) -> str:
    """Write a time as sbatch takes it."""
    minutes = max(1, ceil(seconds / 60))
    return f"{minutes // 60:02}:{minutes % 60:02}:00"


def _functions(export: Export) -> list[str]:
    program = render_program(export)
    program[-1] += " || status=$?"
    if export.job.after:
        # bash waits for the program, and does not end with it when Slurm sends TERM to both
        program = ["trap : TERM", *program]
    return [
        *(render_setup(export.setup) if export.setup else []),
        *render_node_settings(export),
        "",
        *render_activate(export),
        *CHOOSE_NETWORK,
        "",
        *render_run_job(export, program, hidden_variables(export.job)),
        *TASK,
    ]


TASK = r"""
run_task() { # ARGUMENTS...: what srun starts on every node; NODEID of the step, not of the batch script
    set -euo pipefail
    node=$SLURMD_NODENAME node_rank=$SLURM_NODEID nnodes=$SLURM_STEP_NUM_NODES peer=$master_addr
    [ "$node_rank" != 0 ] || peer=${hosts[1]:-}
    # the first one that fails writes how: srun's exit code is often that of a task that it killed
    trap 'code=$?; [ "$code" = 0 ] || (set -C; echo "$code $node" >"$first_failure") 2>/dev/null || true' EXIT
    run_job "$@"
}
""".strip().splitlines()


def _main(export: Export) -> list[str]:
    job = export.job
    low, high = next((member.node.ports for member in export.members if member.node.ports), None) or PORTS
    variables = "hosts first_failure code output_dir run_id attempt master_addr master_port"
    functions = "node_settings choose_network run_job run_task"
    functions += " activate_node" if render_activate(export) else ""
    variables += " environment" if export.setup else ""
    uses_stage = bool(used_placeholders(job) & {"stage_dir"})
    variables += " stage_dir" if uses_stage else ""
    shell = "bash -lc" if render_activate(export) else "bash -c"
    return [
        "",
        "set -euo pipefail",
        *(_secret_lines(job) if job.secrets else []),
        "",
        "folder=$SLURM_SUBMIT_DIR",
        f"code=$folder/{quote_word(export.source)}",
        f"output_dir=$folder/outputs/{job.name} # ${{output_dir}} of the job file",
        *(["stage_dir=$folder/stage # ${stage_dir} of the job file"] if uses_stage else []),
        f"run_id={job.name}-$SLURM_JOB_ID",
        "attempt=$((${SLURM_RESTART_COUNT:-0} + 1))",
        "logs=$folder/$run_id",
        'mkdir -p "$logs"',
        "first_failure=$logs/first-failure.$attempt",
        "",
        "# This script runs on the first node: the address of its training interface is the master's.",
        'mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "node=$SLURMD_NODENAME",
        'node_settings "$node"',
        'choose_network "${hosts[1]:-}"',
        "master_addr=$address",
        f"master_port=$(({low} + SLURM_JOB_ID % {high - low + 1}))",
        *(["", *_setup_lines(export, export.setup)] if export.setup else []),
        "",
        "# since 22.05 srun does not take --cpus-per-task from the job",
        'if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi',
        f'task="$(declare -p {variables}); $(declare -f {functions}); run_task \\"\\$@\\""',
        "# one failed task ends all; a file per task, because a child that is left behind keeps a shared pipe open",
        "status=0",
        "srun --export=ALL --ntasks-per-node=1 --kill-on-bad-exit=1 --wait=60 --cpu-bind=none \\",
        f'    --output="$logs/%j.%t.out" {shell} "$task" run_task "$@" || status=$?',
        'if [ "$status" != 0 ]; then',
        '    failed="a node"',
        '    if [ -s "$first_failure" ]; then read -r status failed <"$first_failure"; fi',
        '    echo "$failed: exit $status; the output of node N is $logs/$SLURM_JOB_ID.N.out" >&2',
        "fi",
        'exit "$status"',
    ]


def _secret_lines(job: Job) -> list[str]:
    remark = tr("Secrets: export them before sbatch, which passes them on; no value is in this file.")
    required = (f': "${{{name}:?export it before sbatch}}"' for name in job.secrets)
    return ["", *render_comment(remark), *required]


def _setup_lines(export: Export, setup: SetupPlan) -> list[str]:
    return [
        f"environment=$folder/.environments/{setup.content_hash[:12]}",
        'mkdir -p "$folder/.environments"',
        *(['activate_node "$node"'] if render_activate(export) else []),
        f'cd "$folder"/{quote_word(export.folder)}',
        "make_environment",
        'cd "$folder"',
    ]
