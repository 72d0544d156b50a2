"""The machines of `init`: where they are named, the facts that are read from them, and the inventory that follows."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import click

from clusterctl.cli.actions.init.write_files import refuse_existing, write_new_file
from clusterctl.cli.context.load import expand, lab_dir, read_spec
from clusterctl.cli.context.nodes import (
    hint_next,
    interpreter,
    notice,
    open_cluster,
    reading_exit_code,
    report_failures,
)
from clusterctl.cli.options import prompt
from clusterctl.client.rpc import tasks
from clusterctl.client.rpc.cluster import Cluster
from clusterctl.client.ssh.host_keys import HostKeys
from clusterctl.console.terminal import info
from clusterctl.console.text import sanitize
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.discover import (
    ACTIVE,
    NOT_REACHED,
    FoundPythons,
    PythonChoice,
    choose_pythons,
    plan_discovery,
)
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.importers.hostfile import parse_hostfile
from clusterctl.specs.importers.imported import Imported
from clusterctl.specs.inventory.model import DEFAULT_CLUSTER, Node
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.render import describe_groups, render_discovered, render_inventory, split_hosts
from clusterctl.specs.text import command_line
from clusterctl.specs.values import accepts, parse_node_name
from clusterctl.translation import to_translate, tr, trn

Value = TypeVar("Value")
STANDARD_INPUT = "-"


def read_imported(path: str, form: str = "auto", group: str | None = None) -> Imported:
    """Read another tool's file, or standard input for `-`; Ansible lists the hosts of its own."""
    from clusterctl.client.local.programs import list_ansible_inventory
    from clusterctl.specs.importers.detect import detect_format, needs_ansible, parse_imported

    source = tr("standard input") if path == STANDARD_INPUT else path
    text = _read_text(path, source)
    form = detect_format(text, source) if form == "auto" else form
    if needs_ansible(text, source, form):
        with TemporaryDirectory(prefix="clusterctl-") as folder:
            file = Path(folder, "hosts") if path == STANDARD_INPUT else expand(path)
            if path == STANDARD_INPUT:
                file.write_text(text, encoding="utf-8")
            text = list_ansible_inventory(file)
    return _with_config(parse_imported(text, source, form, group), path)


def _read_text(path: str, source: str) -> str:
    """Read a file or standard input as far as what Ansible lists can be long."""
    from clusterctl.specs.importers.ansible import MAX_LISTING
    from clusterctl.specs.yaml.reader import decode_source

    if path != STANDARD_INPUT:
        return read_spec(expand(path), MAX_LISTING)
    return decode_source(sys.stdin.buffer.read(MAX_LISTING + 1), source, max_bytes=MAX_LISTING)


def _with_config(imported: Imported, path: str) -> Imported:
    """Have the nodes of an SSH configuration connect by that file, unless ssh reads it anyway."""
    from clusterctl.specs.importers.formats import FORMAT_DESCRIPTIONS

    usual = Path("~/.ssh/config").expanduser()
    if (
        imported.format_description != tr(FORMAT_DESCRIPTIONS["ssh"])
        or path == STANDARD_INPUT
        or expand(path).resolve() == usual.resolve()
    ):
        return imported
    config = str(expand(path).absolute())
    return replace(imported, hosts=tuple(replace(host, config=config) for host in imported.hosts))


COMMAND_LINE = to_translate("the command line")


@dataclass(frozen=True)
class ConnectOptions:
    """How to log in, for hosts that do not specify it themselves."""

    user: str | None = None
    port: int | None = None
    key: str | None = None
    jump: str | None = None
    config: str | None = None
    host_keys: str | None = None
    python: str | None = None


MAX_SHOWN = 20  # hosts in a line


@dataclass(frozen=True)
class HostSource:
    """Where the command line names the machines: at most one of `hosts`, `file` and `ssh_config_pattern`."""

    hosts: Sequence[str]
    file: str | None
    ssh_config_pattern: str | None
    group: str | None = None  # of an Ansible inventory

    def read(self, connect_options: ConnectOptions, *, interactive: bool) -> Imported:
        """Read the machines; on a terminal ask for them where none are named."""
        if sum([bool(self.hosts), self.file is not None, self.ssh_config_pattern is not None]) > 1:
            raise UsageError("CC-USE-071")
        if self.file is not None:
            return _read_file(self.file, connect_options, self.group)
        if self.ssh_config_pattern is not None:
            return read_hosts(_match_hosts(self.ssh_config_pattern, connect_options), connect_options)
        if self.hosts:
            return read_hosts(self.hosts, connect_options)
        if not interactive:
            raise UsageError("CC-USE-073")
        return _prompt_for_hosts(connect_options)


def _read_file(path: str, connect_options: ConnectOptions, group: str | None = None) -> Imported:
    imported = read_imported(path, group=group)
    if imported.groups:
        notice(describe_groups(imported))
    return with_connect_options(imported, connect_options)


def _match_hosts(pattern: str, connect_options: ConnectOptions) -> list[str]:
    known = _known_hosts(connect_options)
    hosts = [host for host in known if fnmatchcase(host, pattern)]
    if not hosts:
        raise UsageError("CC-USE-072", pattern=pattern, known=", ".join(known[:MAX_SHOWN]) or tr("none"))
    return hosts


def _known_hosts(connect_options: ConnectOptions) -> list[str]:
    from clusterctl.client.ssh.config import list_hosts, passwd_home

    return list_hosts(Path(connect_options.config or passwd_home() / ".ssh" / "config").expanduser())


def _prompt_for_hosts(connect_options: ConnectOptions) -> Imported:
    known = _known_hosts(connect_options)
    if known:
        hosts, more = ", ".join(known[:MAX_SHOWN]), len(known) - MAX_SHOWN
        line = (
            trn(
                "hosts in your SSH configuration: {hosts} and {n} more",
                "hosts in your SSH configuration: {hosts} and {n} more",
                more,
                hosts=hosts,
            )
            if more > 0
            else tr("hosts in your SSH configuration: {hosts}", hosts=hosts)
        )
        click.echo(sanitize(line), err=True)
    text = prompt(tr("Machines (names, user@host:port, gpu[01-04], or a file that lists them)"))
    if Path(text).expanduser().is_file():
        return _read_file(text, connect_options)
    return read_hosts([text], connect_options)


@dataclass(frozen=True)
class Machines:
    """Machines of which only the ways to them were known, and the facts, the Pythons or the error of each, by name."""

    imported: Imported
    nodes: tuple[Node, ...] = ()
    facts: Mapping[str, Facts] = field(default_factory=dict)
    failures: Mapping[str, ClusterctlError] = field(default_factory=dict)
    found: Mapping[str, FoundPythons] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0: all were read, 5: some, 4: none."""
        return reading_exit_code(len(self.facts), len(self.facts) + len(self.failures))

    @property
    def has_gpus(self) -> bool:
        """Whether a machine has a GPU: `check` then names those without, instead of a training on processors."""
        return has_gpus(self.facts)

    @property
    def unreached(self) -> list[Node]:
        """The machines on which no SSH server answered."""
        return self.failed_with(*NOT_REACHED)

    def failed_with(self, *codes: str) -> list[Node]:
        """List the machines whose error has one of these codes."""
        return [
            node
            for node in self.nodes
            if node.name in self.failures and self.failures[node.name].code in codes
        ]

    def choose_pythons(self) -> PythonChoice:
        """Choose the Python of each machine that was read."""
        return choose_pythons(self.facts, self.found)


def discover(
    hosts: Sequence[str], connect_options: ConnectOptions, cluster: str, output: str | None, *, force: bool
) -> int:
    """Read all hosts at once and write the inventory; 0 all answered, 5 some, 4 none."""
    if output is not None and not force:
        refuse_existing(output)
    machines = read_machines(read_hosts(hosts, connect_options), cluster)
    report_failures(machines.failures.values())
    text = render_machines(machines, cluster, made_by="inventory discover")
    if not machines.facts:
        info(tr("nothing was written: no machine could be read"))
    elif output is None:
        click.echo(text, nl=False)
    else:
        write_new_file(text, output, force=force)
        check = command_line("clusterctl", "-i", output, "check")
        info(trn("wrote {path} ({n} node)", "wrote {path} ({n} nodes)", len(machines.facts), path=output))
        hint_next(check)
    return machines.exit_code


def with_lab(connect_options: ConnectOptions, lab_name: str | None) -> ConnectOptions:
    """Use the connection options of a running lab, where the command line has none."""
    if lab_name is None:
        return connect_options
    from clusterctl.lab.labs import load

    lab = load(lab_dir(), lab_name)
    config = connect_options.config or str(lab.ssh_config)
    return replace(connect_options, config=config, python=connect_options.python or lab.plan.python)


def read_machines(
    imported: Imported, cluster: str, hostkeys: HostKeys | None = None, code: Path | None = None
) -> Machines:
    """Read the facts of machines; `hostkeys` judges in place of the usual ones.

    With the folder of the `code`, also their Pythons where the usual one does not have the same torch on all.
    """
    nodes = parse_inventory(render_inventory(imported, cluster or DEFAULT_CLUSTER), tr(COMMAND_LINE)).nodes
    with open_cluster(hostkeys) as connections:
        facts, failures = probe_nodes(connections, nodes)
        versions = {one.torch.version for one in facts.values()}
        searched = [node for node in nodes if node.name in facts]
        if code is None or (len(versions) == 1 and None not in versions):
            return Machines(imported, nodes, facts, failures)
        folder = str(code.absolute())
        found = {
            outcome.node.name: outcome.value
            for outcome in connections.each(
                searched, lambda c, node: tasks.find_pythons(c, node, interpreter(node), folder)
            )
            if outcome.value is not None
        }
    return Machines(imported, nodes, facts, failures, found)


def probe_nodes(
    connections: Cluster, nodes: Sequence[Node]
) -> tuple[dict[str, Facts], dict[str, ClusterctlError]]:
    """Read the facts of nodes, or the error of each, by name."""
    facts: dict[str, Facts] = {}
    failures: dict[str, ClusterctlError] = {}
    for outcome in connections.each(nodes, lambda c, node: tasks.probe(c, node, interpreter(node), nodes)):
        if outcome.value is not None:
            facts[outcome.node.name] = outcome.value
        elif outcome.error is not None:
            failures[outcome.node.name] = outcome.error
    return facts, failures


def has_gpus(facts: Mapping[str, Facts]) -> bool:
    """Return whether one of these machines has a GPU."""
    return any(one.gpus.devices for one in facts.values())


def render_machines(
    machines: Machines, cluster: str, *, made_by: str, pythons: PythonChoice | None = None
) -> str:
    """Write the inventory of machines that were read, with the Python of each where one was chosen."""
    chosen = pythons.pythons if pythons is not None else {}
    paths = {name: python.path for name, python in chosen.items() if python.path != ACTIVE}
    hosts = zip(machines.imported.hosts, machines.nodes, strict=True)
    imported = replace(
        machines.imported,
        hosts=tuple(replace(host, python=host.python or paths.get(node.name)) for host, node in hosts),
    )
    discovery = plan_discovery(machines.nodes, machines.facts, machines.failures, chosen)
    return render_discovered(
        imported, cluster or DEFAULT_CLUSTER, discovery.nodes, discovery.advice, made_by=made_by
    )


def name_by_hostname(machines: Machines) -> Machines:
    """Name machines that were given by address as they call themselves, where these names differ."""
    own_names = {
        name: (facts.machine.hostname or "").partition(".")[0] for name, facts in machines.facts.items()
    }
    counts = Counter([*own_names.values(), *(node.name for node in machines.nodes)])
    names = {
        name: own
        for name, own in own_names.items()
        if _is_address(name)
        and counts[own] == 1
        and accepts(parse_node_name, own)
        and not own.startswith("localhost")
    }

    def renamed(values: Mapping[str, Value]) -> dict[str, Value]:
        return {names.get(name, name): value for name, value in values.items()}

    pairs = zip(machines.imported.hosts, machines.nodes, strict=True)
    hosts = tuple(replace(host, name=names.get(node.name, host.name)) for host, node in pairs)
    return Machines(
        replace(machines.imported, hosts=hosts),
        tuple(replace(node, name=names.get(node.name, node.name)) for node in machines.nodes),
        renamed(machines.facts),
        renamed(machines.failures),
        renamed(machines.found),
    )


def _is_address(text: str) -> bool:
    try:
        ip_address(text.partition("-")[0])  # also `10.0.0.1-2222`, of two ports of one address
    except ValueError:
        return False
    return True


def read_hosts(hosts: Sequence[str], connect_options: ConnectOptions) -> Imported:
    """Read hosts as they are typed: names, addresses, user@host:port, ranges; a text may hold several."""
    lines = "\n".join(split_hosts(" ".join(hosts)))
    return with_connect_options(parse_hostfile(lines, tr(COMMAND_LINE), "hosts"), connect_options)


def with_connect_options(imported: Imported, connect_options: ConnectOptions) -> Imported:
    """Add the connection options to hosts that do not specify them themselves."""
    given = {key: value for key, value in vars(connect_options).items() if value is not None}
    completed = (
        replace(host, **{key: value for key, value in given.items() if getattr(host, key) is None})
        for host in imported.hosts
    )
    return replace(imported, hosts=tuple(completed))
