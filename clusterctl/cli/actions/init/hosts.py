"""Which machines `init` is about: typed as words, listed in a file, hosts of the SSH configuration, or asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import click

from clusterctl.cli.actions.init.machines import (
    ConnectOptions,
    read_hosts,
    read_imported,
    with_connect_options,
)
from clusterctl.cli.context.nodes import notice
from clusterctl.cli.options import prompt
from clusterctl.console.text import sanitize
from clusterctl.errors import UsageError
from clusterctl.specs.importers.imported import Imported
from clusterctl.specs.render import describe_groups
from clusterctl.translation import tr, trn

MOST_SHOWN = 20  # hosts in a line


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
        raise UsageError("CC-USE-072", pattern=pattern, known=", ".join(known[:MOST_SHOWN]) or tr("none"))
    return hosts


def _known_hosts(connect_options: ConnectOptions) -> list[str]:
    from clusterctl.client.ssh.config import list_hosts, passwd_home

    return list_hosts(Path(connect_options.config or passwd_home() / ".ssh" / "config").expanduser())


def _prompt_for_hosts(connect_options: ConnectOptions) -> Imported:
    known = _known_hosts(connect_options)
    if known:
        hosts, more = ", ".join(known[:MOST_SHOWN]), len(known) - MOST_SHOWN
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
