"""The steps of `check`: which nodes, what is asked of them, and what is shown of the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from clusterctl.cli.context.code import read_code, read_job_code, read_job_setup
from clusterctl.cli.context.load import LOCAL_JOB, checks_dir, is_script, load_inventory, load_job
from clusterctl.cli.context.nodes import hint_next, notice, open_cluster
from clusterctl.cli.context.settings import Settings
from clusterctl.console.documents.output import write_document
from clusterctl.errors import UsageError
from clusterctl.plans.launch.placement import choose_nodes, explain_rank_pattern, plan_placement
from clusterctl.specs.text import command_line
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.cli.actions.preflight import Preflight
    from clusterctl.console.documents.runs import CheckDocument
    from clusterctl.plans.launch.script import JobCode
    from clusterctl.specs.inventory.model import Inventory, Node
    from clusterctl.specs.job.model import Job


@dataclass(frozen=True)
class CheckOptions:
    """The options of `check`; `only` and `skip` are codes of checks."""

    job_file: str | None
    pattern: str | None
    exclude: str | None
    deep: bool
    only: tuple[str, ...]
    skip: tuple[str, ...]
    recheck: bool
    overrides: tuple[str, ...]
    as_json: bool


def run_check(settings: Settings, options: CheckOptions) -> int:
    """Check the nodes of an inventory, or of a job, and show what was found; gives the exit code."""
    job, inventory = _load(settings, options)
    if inventory.slurm is not None:
        return _report(settings, options, *_check_on_slurm(inventory, job, options, settings.command))
    nodes, code = _choose_nodes(inventory, job, options)
    if explanation := explain_rank_pattern(options.pattern, nodes):
        notice(explanation)
    setup = read_job_setup(job) if job else None
    with open_cluster() as cluster:
        cluster.open_early(nodes)
        # these load while the connections are made
        from clusterctl.cli.actions.preflight import PHASE, Questions, run_preflight
        from clusterctl.cli.context.checks import select_checks
        from clusterctl.console.progress import Phases

        selection = select_checks(inventory, job, options.only, options.skip)
        phases, plan = Phases([node.name for node in nodes]), setup.plan if setup else None
        with phases.display_phase(PHASE, cluster.steps):
            questions = Questions(nodes, job, selection, plan, settings.command, options.recheck, code=code)
            result = run_preflight(cluster, questions, phases, checks_dir())
        if options.deep and result.exit_code == 0:
            from clusterctl.cli.actions.deep_check import run_deep_check

            result = run_deep_check(cluster, nodes, job, result, settings.command)
    _report(settings, options, nodes, result)
    if result.exit_code == 0 and not options.as_json:
        _hint_launch(settings, options, job)
    return result.exit_code


def _load(settings: Settings, options: CheckOptions) -> tuple[Job | None, Inventory]:
    """Read the job, or make one for a script; None where none is named and none is here, and nothing overrides it."""
    job_file, overrides = options.job_file, options.overrides
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


def _choose_nodes(
    inventory: Inventory, job: Job | None, options: CheckOptions
) -> tuple[tuple[Node, ...], JobCode | None]:
    """Choose the nodes, and read the code that the job would send to them."""
    if job is None:
        return tuple(choose_nodes(inventory, options.pattern, options.exclude)), None
    members = plan_placement(inventory, job, pattern=options.pattern, exclude=options.exclude)
    scan = read_code(job, big=True)  # `launch` limits how much may be sent
    code = read_job_code(job, sum(not member.spare for member in members), scan)
    return tuple(member.node for member in members), code


def _check_on_slurm(
    inventory: Inventory, job: Job | None, options: CheckOptions, command: str
) -> tuple[Sequence[Node], Preflight]:
    """Check nodes that Slurm gives for a short job."""
    from clusterctl.cli.slurm.check import SlurmCheck

    assert inventory.slurm is not None
    scan = read_code(job, big=True) if job is not None else None
    setup = read_job_setup(job) if job is not None else None
    if options.deep and setup is not None:
        raise UsageError("CC-SLURM-001", "deep-setup")
    choice = (options.pattern, options.exclude)
    with open_cluster() as cluster:
        check = SlurmCheck(inventory, inventory.slurm, job, setup.plan if setup else None, command, scan)
        return check.run(cluster, choice, options.only, options.skip, deep=options.deep)


def _report(settings: Settings, options: CheckOptions, nodes: Sequence[Node], result: Preflight) -> int:
    """Write what was found; gives the exit code."""
    from clusterctl.console.findings import check_to_json, render_check, render_nics
    from clusterctl.console.progress import describe_age
    from clusterctl.console.run.hang import deep_to_json, mesh_to_json, render_deep, render_mesh
    from clusterctl.console.terminal import stdout

    if options.as_json:
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
        write_document(document)
        return result.exit_code
    console = stdout()

    def print_network() -> None:
        render_nics(console, nodes, result.facts, verbose=settings.verbose)
        render_mesh(console, result.mesh)
        if result.age is not None:
            console.print(describe_age(result.age))
        if options.deep:
            render_deep(console, result.deep)

    render_check(console, nodes, result.facts, result.findings, print_network, verbose=settings.verbose)
    return result.exit_code


def _hint_launch(settings: Settings, options: CheckOptions, job: Job | None) -> None:
    """Name the launch of what was checked."""
    chosen = [("--nodes", options.pattern), ("--exclude", options.exclude)]
    given = [*chosen, *(("--set", text) for text in options.overrides)]
    words = [word for name, value in given if value is not None for word in (name, value)]
    job_words = [options.job_file or "JOB.yaml"] if options.job_file or job is None else []
    hint_next(command_line("launch", *job_words, *words, command=settings.command))
