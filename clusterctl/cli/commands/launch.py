"""The verbs of a job file: `check`, `launch`, `sync` with its code alone, `export` as a script."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clusterctl.cli.context.load import expand, is_script, load_inventory, load_job
from clusterctl.cli.context.run_output import LaunchOptions
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import RawArgumentsCommand, VerbCommand
from clusterctl.cli.options import (
    big_option,
    complete_job_file,
    json_option,
    recheck_option,
    refuse_surplus,
    set_option,
    shared_options,
    skip_option,
    split_job_file,
    with_node_options,
)
from clusterctl.console.documents.output import write_document
from clusterctl.console.text import make_visible
from clusterctl.errors import UsageError
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.runs import DryRunDocument, ExportDocument
    from clusterctl.plans.export.shell import Export, Target
    from clusterctl.plans.launch.placement import Member
    from clusterctl.plans.runs.documents import StagePreview
    from clusterctl.specs.inventory.model import Inventory, Node
    from clusterctl.specs.job.model import Job


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl check job.yaml", "can this job run?"),
        ("clusterctl check --deep --nodes gpu[01-04]", "measure the network of four nodes"),
        ("clusterctl check --skip NET-012", "ignore one check"),
    ],
)
@click.argument("job_file", metavar="[JOB.yaml|SCRIPT.py]", required=False, shell_complete=complete_job_file)
@with_node_options
@click.option(
    "--deep", is_flag=True, help="Then run a real all_reduce and report the slow or failing node or link."
)
@click.option(
    "--only",
    multiple=True,
    metavar="CODES",
    help="Run only these checks: codes, families such as NET, globs.",
)
@skip_option
@recheck_option
@set_option
@json_option("Write facts and findings as JSON.")
@shared_options
def check(
    settings: Settings,
    job_file: str | None,
    pattern: str | None,
    exclude: str | None,
    deep: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    recheck: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Check that all nodes are ready for a job, before anything starts.

    Without JOB.yaml, the job is job.yaml of this directory if there is one. One read-only pass over all nodes; network
    and GPU health are not tested again within 60 s after they have passed. With --deep, ready nodes then run a real
    all_reduce through torchrun, which takes about 10 s and leaves nothing on the nodes. Exit code 0: ready; 3: an error
    prevents a launch; 4: a node is unreachable. On a Slurm cluster a short job of a few minutes gathers the facts;
    Ctrl-C cancels it.
    """
    from clusterctl.cli.actions.check import CheckOptions, run_check

    options = CheckOptions(
        job_file=job_file,
        pattern=pattern,
        exclude=exclude,
        deep=deep,
        only=only,
        skip=skip,
        recheck=recheck,
        overrides=overrides,
        as_json=as_json,
    )
    return run_check(settings, options)


@click.command(
    cls=RawArgumentsCommand,
    examples=[
        ("clusterctl launch", "job.yaml of this directory: check, start, follow"),
        ("clusterctl launch train.py --hosts gpu01,gpu02", "without files"),
        ("clusterctl launch job.yaml --nodes 0-1 -- --epochs 3", "two nodes; an argument of the script"),
        ("clusterctl launch job.yaml --dry-run", "print the commands of each node"),
    ],
    former={"--no-check": "--ignore-checks"},
)
@click.argument("job_file", metavar="[JOB.yaml|SCRIPT.py]", required=False, shell_complete=complete_job_file)
@click.argument("script_args", metavar="[-- SCRIPT ARGS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--dry-run", is_flag=True, help="Print what would run on each node, and stop; uses no network.")
@click.option("-d", "--detach", is_flag=True, help="Return when the workers have started.")
@with_node_options
@click.option("--ignore-checks", is_flag=True, help="Run the checks but start even if they fail.")
@skip_option
@recheck_option
@click.option(
    "--keep-warm",
    metavar="TIME",
    help="Keep a process with torch imported on each node after the run, such as 15m, for the next launch.",
)
@click.option("--wait", is_flag=True, help="Wait until the GPUs or nodes that another run holds are free.")
@click.option("--debug", is_flag=True, help="Let a rank at breakpoint() wait for `clusterctl debug`.")
@big_option
@set_option
@click.option("--code", hidden=True)  # of `clusterctl.run`: the folder that is sent with its script
@json_option("Write NDJSON: log lines, then the result.")
@shared_options
def launch(
    settings: Settings,
    job_file: str | None,
    script_args: tuple[str, ...],
    dry_run: bool,
    detach: bool,
    pattern: str | None,
    exclude: str | None,
    ignore_checks: bool,
    skip: tuple[str, ...],
    recheck: bool,
    keep_warm: str | None,
    wait: bool,
    debug: bool,
    big: bool,
    overrides: tuple[str, ...],
    code: str | None,
    as_json: bool,
) -> int:
    """Send the code and start torchrun on every node.

    Without JOB.yaml, job.yaml of this directory; a script needs no file. Shows the output of all ranks until the run
    ends. Ctrl-C before the workers start cancels the launch; later it
    leaves the run going and prints how to attach again. Everything after -- is passed to your script.
    """
    from clusterctl.cli.context.nodes import notice
    from clusterctl.plans.launch.placement import explain_rank_pattern, plan_placement

    job_file, script_args = split_job_file(job_file, script_args)
    refuse_surplus(script_args, "launch")
    overrides += () if keep_warm is None else (f"keep_warm={keep_warm}",)
    overrides += ("debug=true",) if debug else ()
    inventory, job = _load(settings, job_file, overrides, script_args, code)
    if inventory.slurm is not None:
        options = LaunchOptions(detach, ignore_checks, as_json, wait, settings.command, big, skip=skip)
        return _launch_on_slurm(inventory, job, (pattern, exclude), options, dry_run=dry_run)
    members = plan_placement(inventory, job, pattern=pattern, exclude=exclude)
    if explanation := explain_rank_pattern(pattern, [member.node for member in members]):
        notice(explanation)
    if dry_run:
        return _show_plan(inventory, job, members, as_json, big=big)
    from clusterctl.cli.context.nodes import interpreter, open_cluster

    with open_cluster() as cluster:
        from clusterctl.client.rpc.tasks import start_ahead

        cluster.open_early(
            (member.node for member in members),
            then=lambda c, node: start_ahead(c, node, interpreter(node, job), 2),  # for `sync` and `start`
        )
        from clusterctl.cli.actions.launch import Launch  # loads while the connections are made

        options = LaunchOptions(
            detach, ignore_checks, as_json, wait, settings.command, allow_big=big, recheck=recheck, skip=skip
        )
        return Launch(inventory, job, members, options).run(cluster)


def _load(
    settings: Settings,
    job_file: str | None,
    overrides: Sequence[str],
    script_args: Sequence[str],
    code: str | None,
) -> tuple[Inventory, Job]:
    """Read the inventory and the job, or make a job for a script."""
    if is_script(job_file):
        from clusterctl.cli.actions.init.script import ScriptRun, load_script

        return load_script(settings, ScriptRun(str(job_file), overrides, script_args, code))
    job = load_job(job_file, overrides, script_args)
    return load_inventory(settings, on_slurm=True), job


def _launch_on_slurm(
    inventory: Inventory,
    job: Job,
    choice: tuple[str | None, str | None],
    options: LaunchOptions,
    *,
    dry_run: bool,
) -> int:
    from clusterctl.cli.context.nodes import open_cluster
    from clusterctl.cli.slurm.launch import SlurmLaunch, refuse_options

    refuse_options(options)
    assert inventory.slurm is not None
    launch = SlurmLaunch(inventory, inventory.slurm, job, choice, options)
    if dry_run:
        _echo_staging(_preview_staging(inventory, job, inventory.nodes))
        click.echo(make_visible(launch.show_plan()))
        return 0
    with open_cluster() as cluster:
        return launch.run(cluster)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl sync job.yaml", "all nodes of the job"),
        ("clusterctl sync job.yaml --nodes gpu05", "a new node"),
        ("clusterctl sync job.yaml --json", "as JSON"),
    ],
)
@click.argument("job_file", metavar="[JOB.yaml]", required=False, shell_complete=complete_job_file)
@with_node_options
@set_option
@big_option
@json_option("Write what every node has as JSON.")
@shared_options
def sync(
    settings: Settings,
    job_file: str | None,
    pattern: str | None,
    exclude: str | None,
    overrides: tuple[str, ...],
    big: bool,
    as_json: bool,
) -> int:
    """Send a job's code to the nodes without starting it.

    The next launch sends only what changed since. The files go to the store that all runs share; no run is created.
    Every node confirms its copy by the hash of the file tree.
    """
    from clusterctl.cli.actions.sync import sync_code
    from clusterctl.cli.context.code import read_code
    from clusterctl.plans.launch.placement import plan_placement

    job = load_job(job_file, overrides, ())
    inventory = load_inventory(settings)
    members = plan_placement(inventory, job, pattern=pattern, exclude=exclude)
    return sync_code(job, members, read_code(job, big=big), as_json=as_json)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl stage job.yaml", "all nodes of the job"),
        ("clusterctl stage job.yaml --dry-run", "what would be copied where"),
        ("clusterctl stage job.yaml --nodes gpu05", "a new node"),
        ("clusterctl stage job.yaml --verify", "hash all files: which node differs in which"),
    ],
)
@click.argument("job_file", metavar="[JOB.yaml]", required=False, shell_complete=complete_job_file)
@click.option(
    "--dry-run", is_flag=True, help="Print what would be copied to which node, and stop; writes nothing."
)
@click.option(
    "--verify",
    is_flag=True,
    help="Only hash what was staged: exits with 3 if a node differs; copies nothing.",
)
@with_node_options
@set_option
@json_option("Write what every node has got as JSON.")
@shared_options
def stage(
    settings: Settings,
    job_file: str | None,
    dry_run: bool,
    verify: bool,
    pattern: str | None,
    exclude: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Copy the models and data that a job names to its nodes.

    What `stage:` of the job lists comes from this machine, from a node, or from a hub that one node downloads from;
    the nodes pass it on to each other while it comes, so that all have it in the time of one copy. What is there
    already is not copied again, and a transfer that was interrupted is continued. `launch` does the same before it
    starts a run.
    """
    from clusterctl.cli.actions.files.stage import StageOptions, stage_job
    from clusterctl.plans.launch.placement import plan_placement

    if dry_run and verify:
        raise click.UsageError(
            tr("--dry-run and --verify: use only one of them"), click.get_current_context()
        )
    job = load_job(job_file, overrides, ())
    inventory = load_inventory(settings, on_slurm=True)
    if not job.stage:
        raise UsageError("CC-USE-037", file=job.file)
    on_slurm = inventory.slurm is not None
    nodes = (
        inventory.nodes
        if on_slurm
        else [member.node for member in plan_placement(inventory, job, pattern=pattern, exclude=exclude)]
    )
    if verify:
        from clusterctl.cli.actions.files.verify import verify_staged

        return verify_staged(job, inventory, nodes, settings.command, as_json=as_json)
    return stage_job(job, inventory, nodes, StageOptions(dry_run, as_json))


@click.command(
    cls=RawArgumentsCommand,
    examples=[
        ("clusterctl export slurm job.yaml -o job.sbatch", "then: sbatch job.sbatch"),
        ("clusterctl export slurm job.yaml --set nodes=4", "without an inventory"),
        ("clusterctl export bash job.yaml -o job.sh", "then: bash job.sh"),
    ],
)
@click.argument("target", metavar="slurm|bash", type=click.Choice(["slurm", "bash"]))
@click.argument("job_file", metavar="[JOB.yaml]", required=False, shell_complete=complete_job_file)
@click.argument("script_args", metavar="[-- SCRIPT ARGS]", nargs=-1, type=click.UNPROCESSED)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option("--force", is_flag=True, help="Replace an existing FILE of -o.")
@with_node_options
@set_option
@json_option("Write the script and its notes as JSON.")
@shared_options
def export(
    settings: Settings,
    target: Target,
    job_file: str | None,
    script_args: tuple[str, ...],
    output: str | None,
    force: bool,
    pattern: str | None,
    exclude: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Write a script that runs this job without clusterctl.

    `slurm` writes a script for sbatch; without an inventory, or with that of a Slurm cluster, whose partition and
    account it has, the job must give the number of nodes. `bash` writes one that starts the nodes of the inventory by
    ssh and stops all of them when one fails or the script ends. What the script leaves out is a comment in it and a
    note on the screen. Secrets are not in it. No node is contacted.
    """
    from clusterctl.cli.actions.init.write_files import write_new_file
    from clusterctl.cli.context.nodes import hint_next, notice
    from clusterctl.console.terminal import info
    from clusterctl.plans.export.bash import render_bash
    from clusterctl.plans.export.slurm import render_slurm

    job_file, script_args = split_job_file(job_file, script_args)
    refuse_surplus(script_args, "export")
    job = load_job(job_file, overrides, script_args)
    if job.runs_on_head:
        raise UsageError("CC-USE-036", launcher=job.launcher)
    inventory = _load_inventory_if_needed(settings, job, target)
    plan = _plan_export(job, inventory, target, (pattern, exclude), output)
    script = render_slurm(plan) if target == "slurm" else render_bash(plan)
    if output is not None:
        write_new_file(script.text, output, force=force)
    if as_json:
        document: ExportDocument = {
            "schema": 1,
            "target": target,
            "file": output,
            "script": script.text,
            "notes": list(script.notes),
        }
        write_document(document)
    elif output is None:
        click.echo(script.text, nl=False)
    for note in script.notes:
        notice(note)
    if output is not None:
        info(tr("wrote {path}", path=output))
        hint_next(command_line("sbatch" if target == "slurm" else "bash", output))
    return 0


SUFFIXES: Mapping[Target, str] = {"slurm": "sbatch", "bash": "sh"}


def _load_inventory_if_needed(settings: Settings, job: Job, target: Target) -> Inventory | None:
    """Read the inventory; Slurm has one of its own, so that a number of nodes will do."""
    try:
        inventory = load_inventory(settings, on_slurm=True)
    except UsageError as error:
        if error.code != "CC-USE-002" or target != "slurm":
            raise
        if not isinstance(job.nodes, int):
            raise UsageError("CC-USE-002", "slurm", nodes=job.nodes, file=job.file) from None
        return None
    if inventory.slurm is not None and target != "slurm":
        raise UsageError("CC-SLURM-007", "export", file=inventory.file)
    return inventory


def _plan_export(
    job: Job,
    inventory: Inventory | None,
    target: Target,
    choice: tuple[str | None, str | None],
    output: str | None,
) -> Export:
    from clusterctl.cli.context.code import read_code, read_job_setup
    from clusterctl.plans.export.shell import Export, choose_export_nodes
    from clusterctl.plans.slurm.submission import choose_script_nodes

    # only for its errors: the script copies what is there when it runs, and only the source
    read_code(job, big=True, only_source=True)
    setup = read_job_setup(job)
    here = Path(output).parent if output is not None else Path(job.file).parent
    folder = os.path.relpath(Path(job.file).parent, here)
    paths = [entry.path for entry in setup.scan.manifest.entries] if setup else []
    if inventory is not None and inventory.slurm is not None:
        nodes = choose_script_nodes(job, inventory.slurm, inventory.nodes[0], *choice)
    else:
        nodes = choose_export_nodes(job, inventory, target, choice)
    return Export(
        job,
        nodes,
        folder=folder,
        source=os.path.normpath(Path(folder) / expand(job.sync.source)),
        setup=setup.plan if setup else None,
        setup_files=tuple(paths),
        file=Path(output).name if output is not None else f"{job.name}.{SUFFIXES[target]}",
    )


def _show_plan(inventory: Inventory, job: Job, members: Sequence[Member], as_json: bool, *, big: bool) -> int:
    from clusterctl.cli.context.checks import report_code, select_checks
    from clusterctl.cli.context.code import read_code, read_job_code, read_job_setup
    from clusterctl.plans.launch.plan import offline, plan_launch, plan_to_json, render_plan
    from clusterctl.plans.launch.setup import render_attempt_hooks, render_setup, setup_to_json
    from clusterctl.plans.notify import hooks_to_json, render_hooks
    from clusterctl.specs.text import render_size

    scan, setup_files = read_code(job, big=big), read_job_setup(job)
    code = read_job_code(job, sum(not member.spare for member in members), scan)
    report_code([member.node for member in members], job, code, select_checks(inventory, job))
    setup = (setup_files.plan, setup_files.scan.manifest) if setup_files else None
    staged = _preview_staging(inventory, job, [member.node for member in members])
    plan = plan_launch(job, members, {member.name: offline(member) for member in members}, run_id=None)
    if as_json:
        document: DryRunDocument = {
            "schema": 1,
            "plan": {
                **plan_to_json(plan),
                "setup": setup_to_json(*setup) if setup else None,
                "stage": staged,
                **hooks_to_json(job.on_end, job.notify),
            },
        }
        write_document(document)
    else:
        code_line = trn(
            "# code: {n} file, {size}, from {root}",
            "# code: {n} files, {size}, from {root}",
            scan.manifest.files,
            size=render_size(scan.manifest.size),
            root=scan.root,
        )
        click.echo(make_visible(code_line))
        _echo_staging(staged)
        for line in render_setup(*setup) if setup else ():
            click.echo(make_visible(line))
        for line in render_attempt_hooks(job):
            click.echo(make_visible(line))
        click.echo(make_visible(render_plan(plan)), nl=False)
        for line in render_hooks(job.on_end, job.notify):
            click.echo(make_visible(line))
    return 0


def _preview_staging(inventory: Inventory, job: Job, nodes: Sequence[Node]) -> list[StagePreview]:
    if not job.stage:
        return []
    from clusterctl.cli.actions.files.stage import Staging  # imports the engine of `cp`

    return Staging(job, inventory, nodes).preview


def _echo_staging(previews: Sequence[StagePreview]) -> None:
    if previews:
        from clusterctl.console.staging import render_preview

        for line in render_preview(previews):
            click.echo(make_visible(line))
