"""The verb `check`: are these nodes fit for training, or for this job?"""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory, load_job
from clusterctl.cli.options import Settings, shared_options, takes_nodes
from clusterctl.console.text import json_text


@click.command()
@click.argument("job_file", metavar="[JOB.yaml]", required=False)
@takes_nodes
@click.option(
    "--deep", is_flag=True, help="Then run a real collective, and name the node or link that spoils it."
)
@click.option(
    "--only", multiple=True, metavar="CODES", help="Judge only these: codes, families such as NET, globs."
)
@click.option("--skip", multiple=True, metavar="CODES", help="Judge all but these.")
@click.option("--json", "as_json", is_flag=True, help="Write facts and findings as JSON.")
@shared_options
def check(
    settings: Settings,
    job_file: str | None,
    pattern: str | None,
    exclude: str | None,
    deep: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    as_json: bool,
) -> int:
    """Prove that the nodes are fit, before anything starts.

    Asks every node once, writes nothing there. With --deep, nodes that are fit then do a real all_reduce through
    torchrun, which takes some 10 s and leaves nothing behind. Exit code 0: fit; 3: a finding forbids a launch;
    4: a node could not be reached.
    """
    from clusterctl.cli.context.code import read_provision
    from clusterctl.cli.context.nodes import open_cluster
    from clusterctl.plans.launch.placement import choose_nodes, plan_placement

    inventory = load_inventory(settings)
    job = load_job(job_file, (), ()) if job_file else None
    if job is None:
        nodes = choose_nodes(inventory, pattern, exclude)
    else:
        nodes = tuple(
            member.node for member in plan_placement(inventory, job, pattern=pattern, exclude=exclude)
        )
    provision = read_provision(job) if job else None
    with open_cluster() as cluster:
        cluster.open_early(nodes)
        # these load while the connections are made
        from clusterctl.cli.actions.preflight import PHASE, choose, prove
        from clusterctl.console.diagnose import deep_to_json, render_deep, render_wire, wire_to_json
        from clusterctl.console.findings import render_check, render_nics, to_json
        from clusterctl.console.progress import Phases
        from clusterctl.console.terminal import out

        choice, phases = choose(inventory, job, only, skip), Phases([node.name for node in nodes])
        with phases.shown(PHASE, cluster.steps):
            proof = prove(cluster, nodes, job, choice, phases, provision.plan if provision else None)
        if deep and proof.exit_code == 0:
            from clusterctl.cli.actions.deep_check import deepen

            proof = deepen(cluster, nodes, job, proof)
    if as_json:
        told = {**to_json(nodes, proof.facts, proof.findings), "wire": wire_to_json(proof.wire)}
        click.echo(json_text({**told, **deep_to_json(proof.deep)}, indent=2))
    else:

        def tell_network() -> None:
            render_nics(out(), nodes, proof.facts, verbose=settings.verbose)
            render_wire(out(), proof.wire)
            if deep:
                render_deep(out(), proof.deep)

        render_check(out(), nodes, proof.facts, proof.findings, tell_network)
    return proof.exit_code
