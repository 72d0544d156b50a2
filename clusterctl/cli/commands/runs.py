"""The verbs about runs: `ps`, `status`, `attach`, `logs`, `diagnose`, `report`, `stop` and `pull`."""

from __future__ import annotations

import re
from datetime import datetime

import click

from clusterctl.cli.context.load import load_chosen_inventory, load_inventory, refuse_on_slurm
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import (
    RANK,
    Seconds,
    WholeNumber,
    complete_run,
    complete_to_stop,
    json_option,
    run_argument,
    shared_options,
    with_node_options,
)
from clusterctl.errors import UsageError
from clusterctl.protocol.ranks import Rank
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate

MAX_REPORTED = 2  # runs in one report


@click.command(
    cls=VerbCommand,
    context_settings={"allow_extra_args": True},
    examples=[
        ("clusterctl ps", ""),
        ("clusterctl ps --json", "as JSON"),
    ],
)
@click.option("--orphans", is_flag=True, hidden=True)  # `clean --orphans --dry-run` of today
@json_option("Write the runs as JSON.")
@shared_options
def ps(settings: Settings, orphans: bool, as_json: bool) -> int:
    """List the runs on the nodes, the newest first; with -v full ids, nodes and directories."""
    if words := click.get_current_context().args:
        command = command_line("status", words[0], command=settings.command)
        raise UsageError("CC-USE-092", "option", words=" ".join(words), command=command)
    if orphans:
        from clusterctl.cli.actions.clean import list_orphans
        from clusterctl.cli.context.nodes import open_cluster

        inventory = load_inventory(settings, on_slurm=True)
        refuse_on_slurm(inventory, "ps --orphans")
        with open_cluster() as cluster:
            return list_orphans(cluster, inventory.nodes, as_json=as_json)
    from clusterctl.cli.actions.find_runs import list_runs

    return list_runs(settings, as_json=as_json)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl status", "your newest run"),
        ("clusterctl status train-2026", "the run with this prefix"),
        ("clusterctl status -w", "every change of state until the run ends"),
    ],
)
@run_argument
@click.option("-w", "--watch", is_flag=True, help="Print every change until the run ends.")
@json_option("Write JSON; with -w one line per change.")
@shared_options
def status(settings: Settings, run: str | None, watch: bool, as_json: bool) -> int:
    """Show one run: its nodes, its ranks and why it ended.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest run.
    """
    from clusterctl.cli.actions.monitor.status import show_run

    return show_run(settings, run, watch=watch, as_json=as_json)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl attach", "your newest live run"),
        ("clusterctl attach train-2026", "the run with this prefix"),
        ("clusterctl attach --json", "NDJSON, the result last"),
    ],
)
@run_argument
@json_option("Write NDJSON: log lines, then the result.")
@shared_options
def attach(settings: Settings, run: str | None, as_json: bool) -> int:
    """Follow a run until it ends, as `launch` does; from any machine that has the inventory.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest live run, else your newest run.
    While you are attached to your own run, the failure of one node stops all nodes. A run of another user must be
    named and is only shown. Ctrl-C does not stop the run.
    """
    from clusterctl.cli.actions.attach import attach_run
    from clusterctl.cli.context.run_output import RunOutput

    inventory = load_inventory(settings, on_slurm=True)
    output = RunOutput(as_json, settings.command)
    if inventory.slurm is None:
        return attach_run(inventory, run, output)
    from clusterctl.cli.slurm.launch import find_queued

    return attach_run(inventory, run, output, find_queued)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl logs --nodes 1", "one node"),
        ("clusterctl logs -f --rank 0", "follow one rank"),
        ("clusterctl logs --grep loss --tail 5", "the last matching lines of each rank"),
    ],
    former={"--node": "--nodes"},
)
@run_argument
@with_node_options
@click.option(
    "--rank",
    type=RANK,
    metavar="N",
    multiple=True,
    help="Only this global rank; may be repeated.",
)
@click.option(
    "--attempt",
    type=WholeNumber(to_translate("{value!r} is not the number of an attempt"), 1),
    metavar="N",
    help="This attempt of a restarted run; default: the last.",
)
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run ends.")
@click.option(
    "--tail",
    type=WholeNumber(to_translate("{value!r} is not a number of lines")),
    metavar="N",
    help="Only the last N lines of each file.",
)
@click.option(
    "--since",
    metavar="TIME",
    help="Only lines written since: 10m, 14:05 or 2026-11-21T14:05; sorted by time.",
)
@click.option("-t", "timed", is_flag=True, help="Print the time of each line; all nodes sorted by time.")
@click.option("--grep", metavar="RE", help="Only lines that match this regular expression.")
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), help="Only this stream.")
@json_option("Write NDJSON, one object per line.")
@shared_options
def logs(
    settings: Settings,
    run: str | None,
    pattern: str | None,
    exclude: str | None,
    rank: tuple[int, ...],
    attempt: int | None,
    follow: bool,
    tail: int | None,
    since: str | None,
    timed: bool,
    grep: str | None,
    stream: str | None,
    as_json: bool,
) -> int:
    """Show the output of a run's ranks.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest run. Node ranks in --nodes are
    those of the inventory.
    """
    from clusterctl.cli.actions.logs import LogQuery, read_logs

    query = LogQuery(
        ranks=tuple(map(Rank, rank)) or None,
        tail=tail,
        grep=_check_pattern(grep),
        stream=stream,
        follow=follow,
        attempt=attempt,
        since=_parse_since(since),
        show_times=timed,
        as_json=as_json,
    )
    return read_logs(
        load_inventory(settings, on_slurm=True), run, (pattern, exclude), query, settings.command
    )


def _parse_since(text: str | None) -> float | None:
    from clusterctl.cli.actions.logs import parse_since

    return None if text is None else parse_since(text, datetime.now())


def _check_pattern(grep: str | None) -> str | None:

    from clusterctl.errors import UsageError
    from clusterctl.specs.kinds import is_slow

    try:
        re.compile(grep or "")
        slow = is_slow(grep or "")
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError("CC-USE-026", grep=grep, reason=error) from error
    if slow:
        raise UsageError("CC-USE-026", "slow", grep=grep)
    return grep


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl diagnose", "which rank the others wait for, and where it is"),
        ("clusterctl diagnose --stacks", "the stacks of all threads"),
        ("clusterctl diagnose --slow", "which rank the others wait for in each step"),
        ("clusterctl diagnose --save hang/", "everything in files, for a bug report"),
    ],
)
@run_argument
@click.option(
    "--rank",
    type=RANK,
    metavar="N",
    multiple=True,
    help="Show only this global rank; may be repeated.",
)
@click.option("--stacks", is_flag=True, help="Print the stacks of all threads; equal ones once.")
@click.option(
    "--slow",
    is_flag=True,
    help="Find the rank that arrives last in the collectives of a run that makes progress.",
)
@click.option(
    "--save", metavar="DIR", type=click.Path(file_okay=False), help="Write stacks and evidence to files."
)
@json_option("Write the answer and the evidence of every rank as JSON.")
@shared_options
def diagnose(
    settings: Settings,
    run: str | None,
    rank: tuple[int, ...],
    stacks: bool,
    slow: bool,
    save: str | None,
    as_json: bool,
) -> int:
    """Find out why a run makes no progress: which rank, which collective, which line.

    Reads every rank's stacks and torch's record of its collectives. Nothing is stopped, and no rank is
    slowed down. RUN is a run id, its short form or an unambiguous prefix; default: your newest run.
    """
    from clusterctl.cli.actions.monitor import status

    options = status.DiagnoseOptions(rank, stacks, slow, save, as_json)
    return status.diagnose(settings, run, options)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl report", "your newest run"),
        ("clusterctl report a017 -o run.html", ""),
        ("clusterctl report a017 716d", "two runs side by side"),
    ],
)
@click.argument("runs", metavar="[RUN] [RUN2]", nargs=-1, shell_complete=complete_run)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="Where to write it; default: the run's short id with .html.",
)
@json_option("Write where the file is as JSON.")
@shared_options
def report(settings: Settings, runs: tuple[str, ...], output: str | None, as_json: bool) -> int:
    """Write one HTML file about a run: why it ended, when what happened, and plots of all nodes.

    It needs no network and no script, and secrets are removed, so that it can be sent. With two runs it puts them
    side by side. RUN is a run id, its short form or an unambiguous prefix; default: your newest run.
    """
    if len(runs) > MAX_REPORTED:
        raise UsageError(
            "CC-USE-092",
            "option",
            words=" ".join(runs[MAX_REPORTED:]),
            command=f"{settings.command} report {' '.join(runs[:MAX_REPORTED])}",
        )
    from clusterctl.cli.actions.monitor.report import write_report

    return write_report(
        load_inventory(settings, on_slurm=True), runs, output, settings.command, as_json=as_json
    )


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
            from clusterctl.cli.slurm.launch import stop_slurm_run

            return stop_slurm_run(cluster, found_runs, run_id, grace, settings.command, as_json=as_json)
        # a node that is lost for good may yet answer, and have processes
        skipped = [name for name in found_runs.skipped if name in parts]
        nodes = [
            node
            for node in inventory.nodes
            if node.name in skipped or may_have_processes(node.name, parts, found_runs.pythons)
        ]
        known = KnownParts(
            unanswered=[name for name, part in parts.items() if part is None and name not in skipped],
            was_live=is_live(parts),
            ended=[name for name, part in parts.items() if part and not part.live],
        )
        handle = RunHandle(cluster, run_id, nodes, found_runs.pythons)
        return stop_run(handle, known, grace, dump=dump, command=settings.command, as_json=as_json)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl pull", "your newest run"),
        ("clusterctl pull train-2026 ./results --logs", "with logs, to another folder"),
        ("clusterctl pull --nodes gpu01", "one node"),
        (
            "clusterctl pull train-2026 --checkpoint",
            "its newest checkpoint, whole",
        ),
    ],
)
@run_argument
@click.argument("folder", metavar="[DIR]", required=False)
@click.option("--logs", is_flag=True, help="Also download the logs, to DIR/<node>/logs-<run>.")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also download the logs, and files outside ${output_dir} to DIR/<node>/code-<run>.",
)
@click.option(
    "--checkpoint",
    metavar="[NAME]",
    is_flag=False,
    flag_value="",
    help="Only the newest checkpoint that the nodes keep (`checkpoints` of the job), or that of this name, whole.",
)
@click.option("--job", metavar="NAME", help="The outputs of this job, even if its runs were removed.")
@with_node_options
@click.option("--overwrite", is_flag=True, help="Replace files that were changed on this machine.")
@click.option("--no-limit", is_flag=True, help="Allow more than 100 000 files or 100 GiB from a node.")
@json_option("Write what was downloaded as JSON.")
@shared_options
def pull(
    settings: Settings,
    run: str | None,
    folder: str | None,
    logs: bool,
    everything: bool,
    checkpoint: str | None,
    job: str | None,
    pattern: str | None,
    exclude: str | None,
    overwrite: bool,
    no_limit: bool,
    as_json: bool,
) -> int:
    """Download a run's outputs: the directory CLUSTERCTL_OUTPUT_DIR of every node.

    RUN is a run id, its short form or an unambiguous prefix; default: your newest run. Files that DIR/<node>/ has
    already are skipped, and an interrupted download is resumed. DIR is outputs/<job> by default; a single argument
    with a slash, such as ./results, is DIR. Files that the run wrote into its copy of the code are listed, and
    downloaded only with --all. A checkpoint goes to outputs/<job>/checkpoints by default.
    """
    from clusterctl.cli.actions.files.pull import Pull, PullOptions

    if run and not folder and (job or "/" in run or run in (".", "..")):
        run, folder = None, run  # no run has a name like that
    if job and (run or logs or everything or checkpoint is not None):
        raise UsageError("CC-USE-029")
    options = PullOptions(
        run_prefix=run,
        job=job,
        folder=folder,
        logs=logs,
        everything=everything,
        overwrite=overwrite,
        no_limit=no_limit,
        as_json=as_json,
        checkpoint=checkpoint,
        command=settings.command,
    )
    return Pull(load_inventory(settings, on_slurm=True), options).run(pattern, exclude)
