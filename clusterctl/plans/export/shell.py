"""What the scripts for Slurm and for bare SSH share: one node's network, environment, commands and processes.

Every value of a user is quoted by `shlex`; what only the node can know is a variable of the shell, named as the
placeholder is (`${node_rank}` of a job becomes `"$node_rank"`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from clusterctl.plans.launch.launchers import (
    MODULES,
    count_chosen_gpus,
    one_process_env,
    plan_argv,
)
from clusterctl.plans.launch.placement import Member, plan_placement
from clusterctl.plans.launch.plan import torchrun_env
from clusterctl.plans.launch.setup import CONDAS, PYTHON, SetupPlan, Step
from clusterctl.plans.launch.template import (
    AgentValue,
    Segment,
    Template,
    fill_placeholders,
    make_template,
)
from clusterctl.protocol.messages.environment import CLEARED_NAMES, CLEARED_PREFIXES
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.job.model import VISIBLE_DEVICES_VARIABLES, Hook, Job, Restart
from clusterctl.specs.nodeset import fold_names, group_values
from clusterctl.specs.placeholders import MEANINGS, Placeholder, parse_template
from clusterctl.specs.text import command_line, quote_word, render_duration
from clusterctl.translation import tr

WIDTH = 100  # of comments
PORTS = (20000, 29999)  # below the ports that Linux gives to connections


Target = Literal["slurm", "bash"]


@dataclass(frozen=True)
class ExportNodes:
    """The nodes of a script: how many, those whose settings it has, and whether it names them to Slurm.

    `options` are those of sbatch that the inventory of a Slurm cluster gives.
    """

    count: int
    members: tuple[Member, ...] = ()
    named: bool = False
    options: tuple[str, ...] = ()


def choose_export_nodes(
    job: Job, inventory: Inventory | None, target: Target, choice: tuple[str | None, str | None]
) -> ExportNodes:
    """Choose the nodes as a launch does, without spares; Slurm may take any node where the job gives a number."""
    if inventory is None:
        return ExportNodes(int(job.nodes))
    pattern, exclude = choice
    without_spares = replace(job, restart=None)
    if target == "slurm" and pattern is None and isinstance(job.nodes, int):
        everyone = plan_placement(inventory, without_spares, pattern="*", exclude=exclude)
        return ExportNodes(job.nodes, everyone)
    members = plan_placement(inventory, without_spares, pattern=pattern, exclude=exclude)
    named = pattern is not None or exclude is not None or job.nodes != "all"
    return ExportNodes(len(members), members, named)


@dataclass(frozen=True)
class Export:
    """A job to be written as a script.

    `source` is the folder of the code, `folder` that of the job file, both relative to the script's own folder;
    `setup_files` are relative to the job file's. `file` is the name of the script.
    """

    job: Job
    nodes: ExportNodes
    file: str
    folder: str = "."
    source: str = "."
    setup: SetupPlan | None = None
    setup_files: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[Member, ...]:
        """The inventory's nodes."""
        return self.nodes.members


@dataclass(frozen=True)
class Script:
    """The text of a script, and what it leaves out."""

    text: str
    notes: tuple[str, ...]


def render_comment(text: str, *, hanging: str = "# ") -> list[str]:
    """Write a text as lines of comment."""
    import textwrap  # noqa: PLC0415 - only this verb needs it

    one_line = " ".join(text.split())
    return textwrap.wrap(one_line, WIDTH, initial_indent="# ", subsequent_indent=hanging)


def render_notes(notes: Sequence[str]) -> list[str]:
    """Write the notes as comments."""
    if not notes:
        return []
    lines = [line for note in notes for line in render_comment(f"- {note}", hanging="#   ")]
    return ["#", *render_comment(tr("What the job file asks for and this script does not do:")), *lines]


def shell_word(value: Template) -> str:
    """Write a text with holes as one word of bash."""
    return "".join(quote_word(part) if isinstance(part, str) else f'"${part.name}"' for part in value)


# ---- what the inventory has of the nodes ----

NO_SETTINGS = {"python": "python3", "nic": "", "network": "", "address": ""}


def render_node_settings(export: Export) -> list[str]:
    """Write the function that sets a node's variables from its name."""
    settings = {member.name: _settings_of(member, export.job) for member in export.members}
    shared = {**NO_SETTINGS, "nproc_per_node": default_nproc(export.job)}
    if export.job.python:
        shared["python"] = export.job.python
    for key in shared:
        values = {own[key] for own in settings.values()}
        if len(values) == 1:
            shared[key] = values.pop()
    groups = group_values(
        (_assignments({key: value for key, value in own.items() if value != shared[key]}), name)
        for name, own in settings.items()
    )
    cases = [
        f"    {'|'.join(map(quote_word, names))}) {words} ;;" for words, names in groups.items() if words
    ]
    body = ["    case $1 in", *cases, "    esac"] if cases else []
    return [
        "node_settings() { # NODE: what the inventory says about it; an empty nic is found by the route",
        f"    {_assignments(shared)}",
        *body,
        "}",
    ]


def _assignments(values: Mapping[str, str]) -> str:
    return " ".join(f"{key}={command_line(value)}" for key, value in values.items())


def _settings_of(member: Member, job: Job) -> dict[str, str]:
    node = member.node
    default = default_nproc(job)
    lends = default == "gpu" and node.gpus is not None
    return {
        "python": job.python or node.python,
        "nic": ",".join(node.nic),
        "network": node.network or "",
        "address": node.ip or "",
        "nproc_per_node": str(node.gpus) if lends else default,
    }


def default_nproc(job: Job) -> str:
    """Return the number of workers on a node as far as the job has it: a number, gpu or cpu."""
    chosen = count_chosen_gpus(job) if job.nproc_per_node == "gpu" else None
    return str(job.nproc_per_node if chosen is None else chosen)


def count_workers(export: Export) -> int | None:
    """Count the workers of all nodes, as far as the two files show."""
    if export.members:
        counts = [_settings_of(member, export.job)["nproc_per_node"] for member in export.members]
    else:
        counts = [default_nproc(export.job)] * export.nodes.count
    return sum(map(int, counts)) if all(count.isdecimal() for count in counts) else None


def render_activate(export: Export) -> list[str]:
    """Write the function that runs a node's `activate`, if any node has one."""
    groups = group_values(
        (member.node.activate, member.name) for member in export.members if member.node.activate
    )
    if export.job.activate:
        lines = [export.job.activate]
    elif len(groups) == 1 and len(next(iter(groups.values()))) == len(export.members):
        lines = list(groups)
    elif groups:
        cases = [
            line
            for text, names in groups.items()
            for line in (f"{'|'.join(map(quote_word, names))})", text, ";;")
        ]
        lines = ["case $1 in", *cases, "esac"]
    else:
        return []
    return [
        "activate_node() { # NODE: the lines of `activate`; such lines often rely on unset variables",
        "    set +eu",
        *(f"    {line}" for line in lines),
        "    set -eu",
        "}",
        "",
    ]


CHOOSE_NETWORK = r"""
choose_network() { # PEER: sets nic and address: as the inventory says, else the interface that routes to PEER
    local peer route
    if [ -z "$nic$network$address" ] && [ -z "$1" ]; then
        nic=lo address=127.0.0.1 # one node alone
    elif [ -z "$nic$network$address" ]; then
        # 127.0.1.1 is what Debian calls the machine itself
        peer=$(getent ahostsv4 "$1" | awk '$1 !~ /^127\.0\./ {print $1; exit}')
        route=$(ip -o -4 route get "${peer:-$1}")
        nic=$(sed -n 's/.* dev \([^ ]*\).*/\1/p' <<<"$route")
        address=$(sed -n 's/.* src \([^ ]*\).*/\1/p' <<<"$route")
    elif [ -z "$nic" ]; then
        read -r nic address < <(ip -o -4 addr show to "${network:-$address/32}" | awk '
            {sub("/.*", "", $4); names = names (names == "" ? "" : ",") $2; if (first == "") first = $4}
            END {print names, first}')
    elif [ -z "$address" ]; then
        address=$(ip -o -4 addr show dev "${nic%%,*}" | awk '{sub("/.*", "", $4); print $4; exit}')
    fi
    if [ -z "$nic" ] || [ -z "$address" ]; then
        echo "$node: no network interface to train with (nic '$nic', network '$network', peer '$1')" >&2
        return 1
    fi
}
""".strip().splitlines()


# ---- one node's processes ----


def render_run_job(export: Export, program_lines: Sequence[str], left_out: Sequence[str] = ()) -> list[str]:
    """Write the function that does the job's work on one node.

    `program_lines` start the program and set status; `left_out` are variables of the job that it does not get.
    """
    job = export.job
    steps = [
        "local status=0",
        'node_settings "$node"',
        *(['activate_node "$node"'] if render_activate(export) else []),
        'choose_network "$peer"',
        'cd "$code"',
        'mkdir -p "$output_dir"',
        "",
        *_environment_lines(export),
        *_job_env(job, left_out),
        *(["", "# the job's `before`", *_hook_lines(job.before)] if job.before else []),
        "",
        *program_lines,
        *(_after_lines(job.after) if job.after else []),
        'return "$status"',
    ]
    head = "run_job() { # ARGUMENTS...: this node's part of the job; they follow the arguments of the script"
    return [head, *indent(steps), "}", ""]


def _after_lines(after: Hook) -> list[str]:
    return [
        "",
        "# the job's `after`",
        "export CLUSTERCTL_STATE=SUCCEEDED CLUSTERCTL_REASON=''",
        '[ "$status" = 0 ] || CLUSTERCTL_STATE=FAILED CLUSTERCTL_REASON="exit $status"',
        *(f"{line} || echo 'after: a command failed' >&2" for line in _hook_lines(after)),
    ]


def indent(lines: Iterable[str]) -> list[str]:
    """Move lines of code four columns to the right."""
    return [f"    {line}" if line else "" for line in lines]


def _hook_lines(hook: Hook) -> list[str]:
    return [f"timeout {ceil(hook.time_limit)} bash -e -c {quote_word(command)}" for command in hook.run]


def _environment_lines(export: Export) -> list[str]:
    job = export.job
    prefixes = [f'"${{!{prefix}@}}"' for prefix in CLEARED_PREFIXES]
    env = {**torchrun_env(job), **one_process_env(job, PLACEHOLDERS)}
    return [
        "# what another job may have left in the environment would change this one",
        f"unset {' '.join(CLEARED_NAMES[:6])} \\",
        f"    {' '.join([*CLEARED_NAMES[6:], *prefixes])}",
        *_enter_environment(export.setup),
        *_count_lines(export),
        "export PYTHONUNBUFFERED=1",
        "# NCCL takes a name without = as a prefix: eth1 would also be eth10",
        'export NCCL_SOCKET_IFNAME="=$nic"',
        'export GLOO_SOCKET_IFNAME="$nic" GLOO_IFACE="$nic" TP_SOCKET_IFNAME="${nic%%,*}"',
        "# the variables that clusterctl gives to a job",
        'export CLUSTERCTL_NODE="$node" CLUSTERCTL_NODE_RANK="$node_rank" CLUSTERCTL_NNODES="$nnodes"',
        'export CLUSTERCTL_RUN_ID="$run_id" CLUSTERCTL_ATTEMPT="$attempt"',
        'export CLUSTERCTL_OUTPUT_DIR="$output_dir"',
        *(f"export {key}={shell_word(value)}" for key, value in env.items()),
    ]


def _enter_environment(plan: SetupPlan | None) -> list[str]:
    if plan is None or not plan.setup.kind:
        return []
    variable = "CONDA_PREFIX" if plan.setup.kind == "conda" else "VIRTUAL_ENV"
    return [
        f'export {variable}="$environment" PATH="$environment/bin:$PATH"',
        "python=$environment/bin/python",
    ]


def _job_env(job: Job, left_out: Sequence[str]) -> list[str]:
    env = {key: value for key, value in job.env.items() if key not in left_out}
    lines = [f"export {key}={shell_word(fill_placeholders(env[key], PLACEHOLDERS))}" for key in env]
    return ["# the job's `env`", *lines] if lines else []


def _count_lines(export: Export) -> list[str]:
    """Count this node's workers where torchrun does not do it, and those of all nodes where the job asks for it."""
    job, used = export.job, used_placeholders(export.job)
    lines, default = [], default_nproc(job)
    if default == "cpu":
        lines += ["nproc_per_node=$(nproc)"]
    elif default == "gpu" and (job.is_single_process or used & {"nproc_per_node", "world_size"}):
        count = "import torch; print(torch.cuda.device_count())"
        lines += [f'[ "$nproc_per_node" != gpu ] || nproc_per_node=$("$python" -c \'{count}\')']
    if job.is_single_process or "world_size" in used:
        workers = count_workers(export)
        lines += [f"world_size={'$((nnodes * nproc_per_node))' if workers is None else workers}"]
    return lines


def used_placeholders(job: Job) -> set[str]:
    """Return the placeholders in the job's texts."""
    texts = (*job.args, *job.command, *job.env.values())
    return {part.name for text in texts for part in parse_template(text) if isinstance(part, Placeholder)}


def render_program(export: Export) -> list[str]:
    """Write the command line of one node; the script's further arguments follow."""
    job = export.job
    argv = plan_argv(job, make_template(PYTHON), PLACEHOLDERS, own_logs=False)
    module = MODULES.get(job.launcher)
    if module is None:
        return [" ".join([*map(shell_word, argv), '"$@"'])]
    flags = argv[: argv.index(make_template("--"))]
    program = argv[len(flags) :]
    lines = [f"{shell_word(make_template(PYTHON))} -m {module}"]
    for word in map(shell_word, flags):
        if word.startswith("--"):
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    lines.append("    " + " ".join([*map(shell_word, program), '"$@"']))
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


# ---- the job's `setup` ----


def render_setup(plan: SetupPlan) -> list[str]:
    """Write the function that makes the environment where it is not there yet, in the folder of the setup's files."""
    limit = ceil(plan.setup.time_limit)
    steps = [f"timeout {limit} {render_step(step)}" for step in plan.steps]
    uses_conda = plan.setup.kind == "conda"
    found = " || ".join(f"command -v {name}" for name in CONDAS)
    conda = [f"conda=$({found})"] if uses_conda else []
    path = ['PATH="$environment/bin:$PATH"'] if plan.setup.kind else []
    body = [
        "local conda" if uses_conda else "",
        'exec 5>"$environment.lock"; flock 5 # another job may be making it',
        'if [ -e "$environment.complete" ]; then return; fi',
        'rm -rf "$environment"',
        *conda,
        *path,
        *steps,
        'touch "$environment.complete"',
    ]
    head = "make_environment() ( # once for the same content; PYTHON and ENVIRONMENT are set"
    return [head, *indent(["set -eu", *filter(None, body)]), ")", ""]


def render_step(step: Step) -> str:
    """Write one command of the setup."""
    program = '"$conda"' if len(step.programs) == len(CONDAS) else shell_word(step.programs[0])
    return " ".join([program, *map(shell_word, step.words)])


PLACEHOLDERS: Mapping[str, Segment] = {**{name: AgentValue(name) for name in MEANINGS}, "resume": ""}


_DEFAULTS = Job(name="x", file="")


def list_notes(job: Job, nodes: ExportNodes, target: Target) -> tuple[str, ...]:
    """List what the script leaves out or does differently, in the language of the user."""
    own = _slurm_notes(job, nodes) if target == "slurm" else _bash_notes(job)
    return (*_restart_notes(job.restart, target), *own, *_common_notes(job))


def _restart_notes(restart: Restart | None, target: Target) -> Iterator[str]:
    if restart is None:
        return
    if target == "slurm" and requeues(restart):
        yield tr(
            "restart: Slurm starts the job again after a lost node or a preemption (--requeue), "
            "not after a failed worker, and does not count"
        )
    else:
        yield tr("restart: the script never starts the job again")
    if restart.spares:
        yield tr("restart.spares: no spare nodes are reserved")


def requeues(restart: Restart | None) -> bool:
    """Return whether Slurm starts the job again when a node is lost."""
    return restart is not None and restart.max > 0 and "node_lost" in restart.on


def _slurm_notes(job: Job, nodes: ExportNodes) -> Iterator[str]:
    if nodes.named:
        yield tr("nodes: Slurm numbers the nodes itself; the node_rank may differ from the inventory's")
    if job.gpus:
        yield tr("gpus: Slurm chooses {count} GPUs of each node itself", count=len(job.gpus))
    for name in hidden_variables(job):
        yield tr("env.{name}: left out, Slurm sets the visible GPUs", name=name)
    lent = group_values((member.node.gpus, member.name) for member in nodes.members)
    if job.nproc_per_node == "gpu" and len(lent) > 1 and not job.gpus:
        listing = "; ".join(
            f"{fold_names(names)}: {'?' if count is None else count}" for count, names in lent.items()
        )
        yield tr(
            "the nodes have different numbers of GPUs ({listing}); Slurm gives whole nodes", listing=listing
        )
    if job.grace != _DEFAULTS.grace:
        yield tr(
            "grace: the time between SIGTERM and SIGKILL is KillWait of the Slurm cluster, not {grace}",
            grace=render_duration(job.grace),
        )


def hidden_variables(job: Job) -> tuple[str, ...]:
    """Name the job's variables that would contradict Slurm's choice of GPUs."""
    return tuple(name for name in VISIBLE_DEVICES_VARIABLES if name in job.env)


def _bash_notes(job: Job) -> Iterator[str]:
    if job.exclusive or job.gpus or job.nproc_per_node == "gpu":
        yield tr("GPUs are not locked: another run may use the same ones")
    if any(pattern.startswith("!") for pattern in job.sync.exclude):
        yield tr("sync.exclude: patterns with ! are left out, tar has none")


def _common_notes(job: Job) -> Iterator[str]:
    if job.start != "exec":
        yield tr("start: {start} is left out, every worker starts a new interpreter", start=job.start)
    if job.log_limit != _DEFAULTS.log_limit:
        yield tr("log_limit: the output is not limited")
    if job.stage:
        yield tr("stage: the script copies nothing; what the job reads must be on every node before")
    if job.checkpoints is not None:
        yield tr("checkpoints: the script copies nothing, and ${resume} is empty")
    if job.on_end is not None:
        yield tr("on_end: the script does not run this command")
    if job.notify:
        yield tr("notify: no message is sent")
