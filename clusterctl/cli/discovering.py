"""Ask machines that no inventory knows yet, and write one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from clusterctl.cli.connecting import open_cluster
from clusterctl.cli.importing import refuse_existing, write_inventory
from clusterctl.cli.reaching import interpreter, reading_exit_code, tell_failures
from clusterctl.console.choice import say
from clusterctl.errors import ClusterctlError
from clusterctl.plans.discover import plan_discovery
from clusterctl.plans.facts import Facts
from clusterctl.runs import tasks
from clusterctl.specs.counted import counted
from clusterctl.specs.discovered_text import render_discovered
from clusterctl.specs.foreign import Foreign
from clusterctl.specs.hostfile import parse_hostfile
from clusterctl.specs.inventory import Inventory, parse_inventory
from clusterctl.specs.inventory_text import render_inventory

COMMAND_LINE = "the command line"
DEFAULT_NAME = "cluster"


@dataclass(frozen=True)
class Way:
    """How to get in, where a host does not say so itself."""

    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None
    config: str | None = None
    python: str | None = None


def discover(hosts: Sequence[str], way: Way, cluster: str, output: str | None, *, force: bool) -> int:
    """Ask all hosts at once and write what they said; 0 all answered, 5 some, 4 none."""
    if output is not None and not force:
        refuse_existing(output)
    foreign = read_hosts(hosts, way)
    bare = parse_inventory(render_inventory(foreign, cluster or DEFAULT_NAME), COMMAND_LINE)
    facts, failures = _ask(bare)
    tell_failures(failures.values())
    if not facts:
        say("nothing was written: no host answered")
        return reading_exit_code(0, len(bare.nodes))
    why = {name: f"{error.code} {error.message}".splitlines()[0] for name, error in failures.items()}
    found = plan_discovery(bare.nodes, facts, why)
    text = render_discovered(foreign, cluster or DEFAULT_NAME, found.nodes, found.advice)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_inventory(text, output, force=force)
        say(f"written to {output}: {counted(len(facts), 'node')}; next: clusterctl -i {output} check")
    return reading_exit_code(len(facts), len(bare.nodes))


def read_hosts(hosts: Sequence[str], way: Way) -> Foreign:
    """Read hosts as they are typed: names, addresses, user@host:port, ranges."""
    foreign = parse_hostfile("\n".join(hosts), COMMAND_LINE, "hosts")
    ways = {key: value for key, value in vars(way).items() if value is not None}
    completed = (
        replace(host, **{key: value for key, value in ways.items() if getattr(host, key) is None})
        for host in foreign.hosts
    )
    return replace(foreign, hosts=tuple(completed))


def _ask(bare: Inventory) -> tuple[dict[str, Facts], dict[str, ClusterctlError]]:
    facts: dict[str, Facts] = {}
    failures: dict[str, ClusterctlError] = {}
    nodes = bare.nodes
    with open_cluster() as cluster:
        for outcome in cluster.each(nodes, lambda c, node: tasks.probe(c, node, interpreter(node), nodes)):
            if outcome.value is not None:
                facts[outcome.node.name] = outcome.value
            elif outcome.error is not None:
                failures[outcome.node.name] = outcome.error
    return facts, failures
