"""The verb `init`: an inventory and a job, to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand
from clusterctl.cli.options import shared_options, with_connect_options


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl init gpu[01-04] --script train.py", "four machines and a script"),
        ("clusterctl init --from hostfile --user alice", "the machines of a hostfile"),
        ("clusterctl init --from-ssh-config 'gpu*'", "hosts of ~/.ssh/config"),
    ],
)
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option(
    "--from", "source", metavar="FILE", help="Read the machines from a hostfile or an Ansible inventory."
)
@click.option(
    "--from-ssh-config", metavar="PAT", help="Read these hosts from your SSH configuration: '*', 'gpu*'."
)
@click.option("--script", metavar="FILE", help="The training script, in the folder of the job file.")
@click.option(
    "--dir", "folder", metavar="DIR", default=".", show_default=True, help="The folder to write to."
)
@click.option(
    "--name", metavar="NAME", default="", help="Name of job and cluster; default: the folder's name."
)
@click.option("--force", is_flag=True, help="Replace existing inventory.yaml and job.yaml.")
@click.option("--accept-new", is_flag=True, help="Trust new host keys and record them.")
@with_connect_options
@shared_options
def init(
    settings: Settings,
    hosts: tuple[str, ...],
    source: str | None,
    from_ssh_config: str | None,
    script: str | None,
    folder: str,
    name: str,
    force: bool,
    accept_new: bool,
    **connection: Any,
) -> int:
    """Write inventory.yaml and job.yaml for machines that you reach by SSH.

    HOST is a name, an address, user@host:port or a range such as gpu[01-04]; the order gives the node_rank. Reads the
    NICs and GPUs of the machines and writes nothing there. On a terminal it asks for what is missing. Exit code 0: all
    machines answered; 5: some did, the others are written as comments; 4: none did, nothing was written.
    """
    from clusterctl.cli.actions.init import InitCommand, InitOptions
    from clusterctl.cli.actions.inventory import ConnectOptions, with_lab

    connect_options = ConnectOptions(**connection, host_keys="accept-new" if accept_new else None)
    options = InitOptions(hosts, source, from_ssh_config, script, name, force)
    return InitCommand(Path(folder), options, with_lab(connect_options, settings.lab)).run()
