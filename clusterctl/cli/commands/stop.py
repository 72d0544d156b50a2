"""The verb `stop`: stop a run on every node."""

from __future__ import annotations

import click

from clusterctl.cli.completion import complete_to_stop
from clusterctl.cli.context.load import Settings, load_chosen_inventory
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import Seconds, json_option, shared_options


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl stop", "your only live run"),
        ("clusterctl stop train-2026", "the run with this prefix"),
        ("clusterctl stop --grace 60 -y", "60 s to write a checkpoint, no question"),
        ("clusterctl stop --dump", "a run that hangs: save where its ranks are, then stop it"),
    ],
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=complete_to_stop)
@click.option(
    "--grace",
    type=Seconds(),
    metavar="SECONDS",
    help="Seconds between SIGTERM and SIGKILL; default: the job's grace.",
)
@click.option("--dump", is_flag=True, help="Before the stop, save where each rank is; `status` shows it.")
@click.option(
    "-y",
    "--yes",
    is_flag=True,
    help="Do not ask for confirmation, even if no run is named or another user started it.",
)
@json_option("Write what was stopped as JSON.")
@click.option("--warm", is_flag=True, hidden=True)  # `clean --warm` of today; RUN is then a choice of nodes
@shared_options
def stop(
    settings: Settings,
    run: str | None,
    grace: float | None,
    dump: bool,
    yes: bool,
    as_json: bool,
    warm: bool,
) -> int:
    """Stop a run on every node and print what was stopped.

    RUN is a run id, its short form or an unambiguous prefix; default: your only live run, after confirmation. Other
    runs and other users are not touched.
    """
    if warm:
        from clusterctl.cli.actions.clean import clean_warm
        from clusterctl.plans.launch.placement import choose_nodes

        return clean_warm(choose_nodes(load_chosen_inventory(settings)[0], run, None), as_json=as_json)
    from clusterctl.cli.actions.find_runs import find_runs
    from clusterctl.cli.actions.stop import KnownParts, choose_to_stop, confirm_stop, stop_run
    from clusterctl.cli.context.nodes import open_cluster, report_failures
    from clusterctl.client.rpc.tasks import RunHandle
    from clusterctl.plans.runs.selection import is_live, may_have_processes

    inventory, inventory_choice = load_chosen_inventory(settings)
    with open_cluster() as cluster:
        found_runs = find_runs(cluster, inventory.nodes, run, only_one=True)
        report_failures(found_runs.errors)
        if not found_runs.answered:
            return 4
        run_id = choose_to_stop(found_runs.runs, run, inventory_choice.label)
        parts = found_runs.runs.get(run_id, {})
        if not yes:
            confirm_stop(
                run_id, parts, named=run is not None, label=inventory_choice.label, command=settings.command
            )
        if inventory.slurm is not None:
            from clusterctl.cli.slurm.follow import stop_slurm_run

            return stop_slurm_run(cluster, found_runs, run_id, grace, settings.command, as_json=as_json)
        nodes = [node for node in inventory.nodes if may_have_processes(node.name, parts, found_runs.pythons)]
        known = KnownParts(
            unanswered=[name for name, part in parts.items() if part is None],
            was_live=is_live(parts),
            ended=[name for name, part in parts.items() if part and not part.live],
        )
        handle = RunHandle(cluster, run_id, nodes, found_runs.pythons)
        return stop_run(handle, known, grace, dump=dump, command=settings.command, as_json=as_json)
