"""The verb `init`: an inventory and a job, to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from clusterctl.cli.options import Settings, shared_options, with_connect_options


@click.command()
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option(
    "--from", "source", metavar="FILE", help="Take the machines from a hostfile or an Ansible inventory."
)
@click.option(
    "--from-ssh-config", metavar="PAT", help="Take those hosts of your SSH configuration: '*', 'gpu*'."
)
@click.option("--script", metavar="FILE", help="The training script, beside the new job.")
@click.option("--dir", "folder", metavar="DIR", default=".", show_default=True, help="Where to write.")
@click.option(
    "--name", metavar="NAME", default="", help="How job and cluster are called; default: the folder's name."
)
@click.option("--force", is_flag=True, help="Replace inventory.yaml and job.yaml if they are there.")
@click.option("--accept-new", is_flag=True, help="Believe host keys that are not known yet, and record them.")
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
    """Write inventory.yaml and job.yaml for machines that you can reach by SSH.

    HOST is a name, an address, user@host:port or a range such as gpu[01-04]; the order becomes the node_rank. The
    machines are asked for their NICs and GPUs; nothing is written on them. On a terminal you are asked for what is
    missing. Exit code 0: all answered; 5: some did, the others stand in comments; 4: none, and nothing was written.
    """
    from clusterctl.cli.actions.init import InitCommand, InitOptions
    from clusterctl.cli.actions.inventory import ConnectOptions, with_lab

    connect_options = ConnectOptions(**connection, host_keys="accept-new" if accept_new else None)
    options = InitOptions(hosts, source, from_ssh_config, script, name, force)
    return InitCommand(Path(folder), options, with_lab(connect_options, settings.lab)).run()
