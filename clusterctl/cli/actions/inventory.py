"""Import, discover."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from clusterctl.cli.context.load import expand, lab_dir, read_spec
from clusterctl.cli.context.nodes import (
    hint_next,
    interpreter,
    open_cluster,
    reading_exit_code,
    report_failures,
)
from clusterctl.client.rpc import tasks
from clusterctl.client.ssh.host_keys import HostKeys
from clusterctl.console.terminal import info
from clusterctl.errors import ClusterctlError, UsageError
from clusterctl.plans.discover import plan_discovery
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.facts.untrusted import clean_text
from clusterctl.specs.importers.hostfile import parse_hostfile
from clusterctl.specs.importers.imported import Imported
from clusterctl.specs.inventory.model import Inventory
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.inventory.render import render_discovered, render_inventory
from clusterctl.specs.text import command_line
from clusterctl.translation import to_translate, tr, trn

STANDARD_INPUT = "-"


def read_imported_file(path: str) -> str:
    """Read the file, or standard input for `-`, as far as an inventory can be long."""
    from clusterctl.specs.importers.imported import MOST_CHARACTERS

    if path != STANDARD_INPUT:
        return read_spec(expand(path), MOST_CHARACTERS)
    from clusterctl.specs.yaml.reader import decode_source

    return decode_source(
        sys.stdin.buffer.read(MOST_CHARACTERS + 1), tr("standard input"), max_bytes=MOST_CHARACTERS
    )


def find_unread(path: str) -> list[str]:
    """Name the directories beside an Ansible inventory in which variables may stand."""
    folder = expand(path).parent
    return [
        name for name in ("group_vars", "host_vars") if path != STANDARD_INPUT and (folder / name).is_dir()
    ]


def with_config(imported: Imported, path: str) -> Imported:
    """Have the nodes of an SSH configuration connect by that file, unless ssh reads it anyway."""
    from clusterctl.specs.importers.ssh_config import DESCRIPTION

    usual = Path("~/.ssh/config").expanduser()
    if (
        imported.format_description != DESCRIPTION
        or path == STANDARD_INPUT
        or expand(path).resolve() == usual.resolve()
    ):
        return imported
    config = str(expand(path).absolute())
    return replace(imported, hosts=tuple(replace(host, config=config) for host in imported.hosts))


def refuse_existing(path: str) -> None:
    """Say at once that a file is there, before anything else is done for it."""
    if expand(path).exists():
        raise UsageError("CC-USE-040", path=path)


def write_new_file(text: str, path: str, *, force: bool) -> None:
    """Write what a verb has made; an existing file is replaced only with `force`, and then atomically."""
    target = expand(path)
    if target.is_dir():
        raise UsageError("CC-USE-040", "directory", path=path)
    if not force:
        try:
            _write_new(target, text)
        except FileExistsError as error:
            raise UsageError("CC-USE-040", path=path) from error
        return
    temporary = target.with_name(f".{target.name}.new")
    temporary.unlink(missing_ok=True)
    _write_new(temporary, text)
    Path.replace(temporary, target)


def _write_new(file: Path, text: str) -> None:
    """Write a file that is not there yet; nothing is left of it if the disk refuses."""
    try:
        with file.open("x", encoding="utf-8") as sink:
            sink.write(text)
    except OSError as error:
        if error.filename is None:  # it was opened, and then refused
            file.unlink()
            error.filename = str(file)
        raise


COMMAND_LINE = to_translate("the command line")
DEFAULT_NAME = "cluster"


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


@dataclass(frozen=True)
class DiscoveryAnswers:
    """What was found: the text of the inventory, and the facts or the error of each node."""

    text: str
    facts: Mapping[str, Facts]
    failures: Mapping[str, ClusterctlError]

    @property
    def exit_code(self) -> int:
        """0: all answered, 5: some, 4: none."""
        return reading_exit_code(len(self.facts), len(self.facts) + len(self.failures))


def discover(
    hosts: Sequence[str], connect_options: ConnectOptions, cluster: str, output: str | None, *, force: bool
) -> int:
    """Read all hosts at once and write the inventory; 0 all answered, 5 some, 4 none."""
    if output is not None and not force:
        refuse_existing(output)
    answers = probe_hosts(read_hosts(hosts, connect_options), cluster)
    report_failures(answers.failures.values())
    if not answers.facts:
        info(tr("nothing was written: no machine could be read"))
    elif output is None:
        click.echo(answers.text, nl=False)
    else:
        write_new_file(answers.text, output, force=force)
        check = command_line("clusterctl", "-i", output, "check")
        info(trn("wrote {path} ({n} node)", "wrote {path} ({n} nodes)", len(answers.facts), path=output))
        hint_next(check)
    return answers.exit_code


def with_lab(connect_options: ConnectOptions, lab_name: str | None) -> ConnectOptions:
    """Use the connection options of a running lab, where the command line has none."""
    if lab_name is None:
        return connect_options
    from clusterctl.lab.labs import load

    lab = load(lab_dir(), lab_name)
    config = connect_options.config or str(lab.ssh_config)
    return replace(connect_options, config=config, python=connect_options.python or lab.plan.python)


def probe_hosts(
    imported: Imported,
    cluster: str,
    hostkeys: HostKeys | None = None,
    *,
    made_by: str = "inventory discover",
) -> DiscoveryAnswers:
    """Ask machines of which only the ways to them are known; `hostkeys` judges in place of the usual ones."""
    bare = parse_inventory(render_inventory(imported, cluster or DEFAULT_NAME), tr(COMMAND_LINE))
    facts, failures = _probe_nodes(bare, hostkeys)
    reasons = {name: clean_text(f"{error.code} {error.message}") for name, error in failures.items()}
    discovery = plan_discovery(bare.nodes, facts, reasons)
    text = render_discovered(
        imported, cluster or DEFAULT_NAME, discovery.nodes, discovery.advice, made_by=made_by
    )
    return DiscoveryAnswers(text, facts, failures)


def read_hosts(hosts: Sequence[str], connect_options: ConnectOptions) -> Imported:
    """Read hosts as they are typed: names, addresses, user@host:port, ranges."""
    return with_connect_options(parse_hostfile("\n".join(hosts), tr(COMMAND_LINE), "hosts"), connect_options)


def with_connect_options(imported: Imported, connect_options: ConnectOptions) -> Imported:
    """Add the connection options to hosts that do not specify them themselves."""
    given = {key: value for key, value in vars(connect_options).items() if value is not None}
    completed = (
        replace(host, **{key: value for key, value in given.items() if getattr(host, key) is None})
        for host in imported.hosts
    )
    return replace(imported, hosts=tuple(completed))


def _probe_nodes(
    bare: Inventory, hostkeys: HostKeys | None
) -> tuple[dict[str, Facts], dict[str, ClusterctlError]]:
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
