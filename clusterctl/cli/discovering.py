"""Ask machines that no inventory knows yet, and write one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import click

from clusterctl.cli.connecting import open_cluster
from clusterctl.cli.importing import refuse_existing, write_inventory
from clusterctl.cli.reaching import interpreter, reading_exit_code, tell_failures
from clusterctl.console.choice import say
from clusterctl.errors import ClusterctlError
from clusterctl.plans.discover import plan_discovery
from clusterctl.plans.facts import Facts
from clusterctl.plans.facts_reading import clean_text
from clusterctl.runs import tasks
from clusterctl.runs.hostkeys import HostKeys
from clusterctl.specs.commandline import command_line
from clusterctl.specs.counted import counted
from clusterctl.specs.discovered_text import render_discovered
from clusterctl.specs.foreign import Foreign
from clusterctl.specs.hostfile import parse_hostfile
from clusterctl.specs.inventory import Inventory
from clusterctl.specs.inventory_parsing import parse_inventory
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
    host_keys: str | None = None
    python: str | None = None


@dataclass(frozen=True)
class Answers:
    """What was found: the inventory's text, and by node what it said or why it said nothing."""

    text: str
    facts: Mapping[str, Facts]
    failures: Mapping[str, ClusterctlError]

    @property
    def exit_code(self) -> int:
        """0: all answered, 5: some, 4: none."""
        return reading_exit_code(len(self.facts), len(self.facts) + len(self.failures))


def discover(hosts: Sequence[str], way: Way, cluster: str, output: str | None, *, force: bool) -> int:
    """Ask all hosts at once and write what they said; 0 all answered, 5 some, 4 none."""
    if output is not None and not force:
        refuse_existing(output)
    answers = ask_hosts(read_hosts(hosts, way), cluster)
    tell_failures(answers.failures.values())
    if not answers.facts:
        say("nothing was written: no host answered")
    elif output is None:
        click.echo(answers.text, nl=False)
    else:
        write_inventory(answers.text, output, force=force)
        check = command_line("clusterctl", "-i", output, "check")
        say(f"written to {output}: {counted(len(answers.facts), 'node')}; next: {check}")
    return answers.exit_code


def ask_hosts(foreign: Foreign, cluster: str, hostkeys: HostKeys | None = None) -> Answers:
    """Ask machines of which only the ways to them are known; `hostkeys` judges in place of the usual ones."""
    bare = parse_inventory(render_inventory(foreign, cluster or DEFAULT_NAME), COMMAND_LINE)
    facts, failures = _ask(bare, hostkeys)
    why = {name: clean_text(f"{error.code} {error.message}") for name, error in failures.items()}
    found = plan_discovery(bare.nodes, facts, why)
    text = render_discovered(foreign, cluster or DEFAULT_NAME, found.nodes, found.advice)
    return Answers(text, facts, failures)


def read_hosts(hosts: Sequence[str], way: Way) -> Foreign:
    """Read hosts as they are typed: names, addresses, user@host:port, ranges."""
    return by_way(parse_hostfile("\n".join(hosts), COMMAND_LINE, "hosts"), way)


def by_way(foreign: Foreign, way: Way) -> Foreign:
    """Complete how to get in, where a host does not say so itself."""
    ways = {key: value for key, value in vars(way).items() if value is not None}
    completed = (
        replace(host, **{key: value for key, value in ways.items() if getattr(host, key) is None})
        for host in foreign.hosts
    )
    return replace(foreign, hosts=tuple(completed))


def _ask(bare: Inventory, hostkeys: HostKeys | None) -> tuple[dict[str, Facts], dict[str, ClusterctlError]]:
    facts: dict[str, Facts] = {}
    failures: dict[str, ClusterctlError] = {}
    nodes = bare.nodes
    with open_cluster(hostkeys) as cluster:
        for outcome in cluster.each(nodes, lambda c, node: tasks.probe(c, node, interpreter(node), nodes)):
            if outcome.value is not None:
                facts[outcome.node.name] = outcome.value
            elif outcome.error is not None:
                failures[outcome.node.name] = outcome.error
    return facts, failures
