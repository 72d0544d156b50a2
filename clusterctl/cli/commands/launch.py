"""The verbs `launch` and `sync`: with a job's code on the nodes, or that alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from clusterctl.cli.completion import complete_job_file
from clusterctl.cli.context.load import load_inventory, load_job
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import RawArgumentsCommand, VerbCommand
from clusterctl.cli.options import (
    big_option,
    json_option,
    refuse_surplus,
    set_option,
    shared_options,
    with_node_options,
)
from clusterctl.console.text import json_text, make_visible
from clusterctl.translation import trn

if TYPE_CHECKING:
    from clusterctl.plans.launch.placement import Member
    from clusterctl.specs.job.model import Job


@click.command(
    cls=RawArgumentsCommand,
    examples=[
        ("clusterctl launch job.yaml", "check, start, follow"),
        ("clusterctl launch job.yaml --nodes 0-1 -- --epochs 3", "two nodes; an argument of the script"),
        ("clusterctl launch job.yaml --dry-run", "print the commands of each node"),
    ],
)
@click.argument("job_file", metavar="JOB.yaml", shell_complete=complete_job_file)
@click.argument("script_args", metavar="[-- SCRIPT ARGS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--dry-run", is_flag=True, help="Print what would run on each node, and stop; uses no network.")
@click.option("-d", "--detach", is_flag=True, help="Return when the workers have started.")
@with_node_options
@click.option("--no-check", is_flag=True, help="Run the checks but start even if they fail.")
@click.option("--wait", is_flag=True, help="Wait until the GPUs or nodes that another run holds are free.")
@big_option
@set_option
@json_option("Write NDJSON: log lines, then the result.")
@shared_options
def launch(
    settings: Settings,
    job_file: str,
    script_args: tuple[str, ...],
    dry_run: bool,
    detach: bool,
    pattern: str | None,
    exclude: str | None,
    no_check: bool,
    wait: bool,
    big: bool,
    overrides: tuple[str, ...],
    as_json: bool,
) -> int:
    """Send the code and start torchrun on every node.

    Follows all ranks until the run ends. Ctrl-C does not stop the run and prints how to attach again; before the
    workers start it cancels. Everything after -- is passed to your script.
    """
    from clusterctl.plans.launch.placement import plan_placement

    refuse_surplus(script_args, "launch")
    job = load_job(job_file, overrides, script_args)
    inventory = load_inventory(settings)
    members = plan_placement(inventory, job, pattern=pattern, exclude=exclude)
    if dry_run:
        return _show_plan(job, members, as_json, big=big)
    from clusterctl.cli.context.nodes import open_cluster

    with open_cluster() as cluster:
        cluster.open_early(member.node for member in members)
        from clusterctl.cli.actions.launch import (  # loads while the connections are made
            Launch,
            LaunchOptions,
        )

        options = LaunchOptions(detach, no_check, as_json, wait, settings.command, big)
        return Launch(inventory, job, members, options).run(cluster)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl sync job.yaml", "all nodes of the job"),
        ("clusterctl sync job.yaml --nodes gpu05", "a new node"),
        ("clusterctl sync job.yaml --json", "as JSON"),
    ],
)
@click.argument("job_file", metavar="JOB.yaml", shell_complete=complete_job_file)
@with_node_options
@set_option
@big_option
@json_option("Write what every node has as JSON.")
@shared_options
def sync(
    settings: Settings,
    job_file: str,
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


def _show_plan(job: Job, members: Sequence[Member], as_json: bool, *, big: bool) -> int:
    from clusterctl.cli.context.code import read_code, read_job_setup, warn_not_distributed
    from clusterctl.console.progress import render_size
    from clusterctl.plans.launch.plan import offline, plan_launch, plan_to_json, render_plan
    from clusterctl.plans.launch.setup import render_attempt_hooks, render_setup, setup_to_json
    from clusterctl.plans.notify import hooks_to_json, render_hooks

    scan, setup_files = read_code(job, big=big), read_job_setup(job)
    warn_not_distributed(job, sum(not member.spare for member in members), scan)
    setup = (setup_files.plan, setup_files.scan.manifest) if setup_files else None
    plan = plan_launch(job, members, {member.name: offline(member) for member in members}, run_id=None)
    if as_json:
        setup_document = {"setup": setup_to_json(*setup) if setup else None}
        plan_document = {**plan_to_json(plan), **setup_document, **hooks_to_json(job.on_end, job.notify)}
        click.echo(json_text({"schema": 1, "plan": plan_document}, indent=2))
    else:
        code_line = trn(
            "# code: {n} file, {size}, from {root}",
            "# code: {n} files, {size}, from {root}",
            scan.manifest.files,
            size=render_size(scan.manifest.size),
            root=scan.root,
        )
        click.echo(make_visible(code_line))
        for line in render_setup(*setup) if setup else ():
            click.echo(make_visible(line))
        for line in render_attempt_hooks(job):
            click.echo(make_visible(line))
        click.echo(make_visible(render_plan(plan)), nl=False)
        for line in render_hooks(job.on_end, job.notify):
            click.echo(make_visible(line))
    return 0
