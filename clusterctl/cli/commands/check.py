"""The verb `check`: are these nodes ready for training, or for this job?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from clusterctl.cli.completion import complete_job_file
from clusterctl.cli.context.load import LOCAL_JOB, Settings, checks_dir, is_script, load_inventory, load_job
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import (
    json_option,
    recheck_option,
    set_option,
    shared_options,
    skip_option,
    with_node_options,
)
from clusterctl.console.documents.output import write_document
from clusterctl.errors import UsageError
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.cli.actions.preflight import Preflight
    from clusterctl.console.documents.check import CheckDocument
    from clusterctl.plans.launch.script import JobCode
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
    from clusterctl.cli.context.code import read_job_setup
    from clusterctl.cli.context.nodes import hint_next, notice, open_cluster
    from clusterctl.plans.launch.placement import explain_rank_pattern

    job, inventory = _load(settings, job_file, overrides)
    if inventory.slurm is not None:
        nodes, result = _check_on_slurm(
            inventory, job, (pattern, exclude), (only, skip), settings.command, deep=deep
        )
        return _report(settings, nodes, result, as_json=as_json, deep=deep)
    nodes, code = _choose_nodes(inventory, job, pattern, exclude)
    if explanation := explain_rank_pattern(pattern, nodes):
        notice(explanation)
    setup = read_job_setup(job) if job else None
    with open_cluster() as cluster:
        cluster.open_early(nodes)
        # these load while the connections are made
        from clusterctl.cli.actions.preflight import PHASE, Questions, run_preflight, select_checks
        from clusterctl.console.progress import Phases

        selection, phases = select_checks(inventory, job, only, skip), Phases([node.name for node in nodes])
        with phases.display_phase(PHASE, cluster.steps):
            plan = setup.plan if setup else None
            questions = Questions(nodes, job, selection, plan, settings.command, recheck, code=code)
            result = run_preflight(cluster, questions, phases, checks_dir())
        if deep and result.exit_code == 0:
            from clusterctl.cli.actions.deep_check import run_deep_check

            result = run_deep_check(cluster, nodes, job, result)
    _report(settings, nodes, result, as_json=as_json, deep=deep)
    if result.exit_code == 0 and not as_json:
        options = [("--nodes", pattern), ("--exclude", exclude), *(("--set", text) for text in overrides)]
        given = [word for name, value in options if value is not None for word in (name, value)]
        job_words = [job_file or "JOB.yaml"] if job_file or job is None else []
        hint_next(command_line("launch", *job_words, *given, command=settings.command))
    return result.exit_code


def _choose_nodes(
    inventory: Inventory, job: Job | None, pattern: str | None, exclude: str | None
) -> tuple[tuple[Node, ...], JobCode | None]:
    """Choose the nodes, and read the code that the job would send to them."""
    from clusterctl.cli.context.code import read_code, read_job_code
    from clusterctl.plans.launch.placement import choose_nodes, plan_placement

    if job is None:
        return tuple(choose_nodes(inventory, pattern, exclude)), None
    members = plan_placement(inventory, job, pattern=pattern, exclude=exclude)
    scan = read_code(job, big=True)  # `launch` limits how much may be sent
    code = read_job_code(job, sum(not member.spare for member in members), scan)
    return tuple(member.node for member in members), code


def _check_on_slurm(
    inventory: Inventory,
    job: Job | None,
    choice: tuple[str | None, str | None],
    selected: tuple[tuple[str, ...], tuple[str, ...]],
    program: str,
    *,
    deep: bool,
) -> tuple[Sequence[Node], Preflight]:
    """Check nodes that Slurm gives for a short job."""
    from clusterctl.cli.context.code import read_code, read_job_setup
    from clusterctl.cli.context.nodes import open_cluster
    from clusterctl.cli.slurm.check import SlurmCheck

    assert inventory.slurm is not None
    setup = scan = None
    if job is not None:
        scan = read_code(job, big=True)
        setup = read_job_setup(job)
        if deep and setup is not None:
            raise UsageError("CC-SLURM-001", "deep-setup")
    with open_cluster() as cluster:
        check = SlurmCheck(inventory, inventory.slurm, job, setup.plan if setup else None, program, scan)
        return check.run(cluster, choice, *selected, deep=deep)


def _report(
    settings: Settings, nodes: Sequence[Node], result: Preflight, *, as_json: bool, deep: bool = False
) -> int:
    """Write what was found; gives the exit code."""
    if as_json:
        write_document(_to_json(nodes, result))
    else:
        _print_result(nodes, result, deep=deep, verbose=settings.verbose)
    return result.exit_code


def _to_json(nodes: Sequence[Node], result: Preflight) -> CheckDocument:
    from clusterctl.console.findings import check_to_json
    from clusterctl.console.run.hang import deep_to_json, mesh_to_json

    answer = check_to_json(nodes, result.facts, result.findings)
    document: CheckDocument = {
        "schema": 1,
        "nodes": answer["nodes"],
        "findings": answer["findings"],
        "wire": mesh_to_json(result.mesh),
        "age": result.age,
    }
    if result.deep is not None:
        document["deep"] = deep_to_json(result.deep)
    return document


def _print_result(nodes: Sequence[Node], result: Preflight, *, deep: bool, verbose: bool) -> None:
    from clusterctl.console.findings import render_check, render_nics
    from clusterctl.console.progress import describe_age
    from clusterctl.console.run.hang import render_deep, render_mesh
    from clusterctl.console.terminal import stdout

    console = stdout()

    def print_network() -> None:
        render_nics(console, nodes, result.facts, verbose=verbose)
        render_mesh(console, result.mesh)
        if result.age is not None:
            console.print(describe_age(result.age))
        if deep:
            render_deep(console, result.deep)

    render_check(console, nodes, result.facts, result.findings, print_network, verbose=verbose)


def _load(settings: Settings, job_file: str | None, overrides: Sequence[str]) -> tuple[Job | None, Inventory]:
    """Read the job, or make one for a script; None where none is named and none is here, and nothing overrides it."""
    if is_script(job_file):
        from clusterctl.cli.actions.init.script import ScriptRun, load_script

        inventory, job = load_script(settings, ScriptRun(str(job_file), overrides, ()))
        return job, inventory
    named = job_file is not None or LOCAL_JOB.is_file()
    if overrides and not named:
        raise click.UsageError(
            tr("--set overrides a key of a job: give JOB.yaml too"), click.get_current_context()
        )
    return load_job(job_file, overrides, ()) if named else None, load_inventory(settings, on_slurm=True)
