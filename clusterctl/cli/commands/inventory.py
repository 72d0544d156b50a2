"""`init`, which writes an inventory and a job, and `inventory`: what clusterctl understands of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand, VerbGroup
from clusterctl.cli.options import json_option, shared_options, with_connect_options, with_node_options
from clusterctl.console.documents.output import write_document
from clusterctl.specs.importers.formats import FORMAT_DESCRIPTIONS
from clusterctl.specs.text import command_line
from clusterctl.translation import tr, trn


@click.group(cls=VerbGroup)
@shared_options
def inventory(settings: Settings) -> None:
    """Show an inventory."""


@inventory.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl inventory show", ""),
        ("clusterctl -i lab.yaml inventory show --json", "as JSON"),
    ],
)
@json_option("Write the nodes as JSON.")
@shared_options
def show(settings: Settings, as_json: bool) -> None:
    """Show every node with all defaults filled in; needs no network."""
    from clusterctl.console.inventory import inventory_to_json, print_inventory
    from clusterctl.console.terminal import stdout

    chosen = load_inventory(settings, on_slurm=True)
    if as_json:
        write_document(inventory_to_json(chosen))
    else:
        print_inventory(stdout(), chosen)


@inventory.command(  # `init --from` does it for the user; this reads no machine
    "import",
    cls=VerbCommand,
    hidden=True,
    examples=[
        ("clusterctl inventory import hostfile", "print the inventory"),
        (
            "clusterctl inventory import hosts.ini --group gpu -o inventory.yaml",
            "one group of an Ansible inventory",
        ),
        ("clusterctl inventory import ~/.ssh/config", "the hosts of your SSH configuration"),
    ],
)
@click.argument("file", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", *FORMAT_DESCRIPTIONS]),
    default="auto",
    show_default=True,
    help="The format; `hosts` is a plain list, `ssh` an SSH configuration.",
)
@click.option("--group", metavar="NAME", help="Only the hosts of this group of an Ansible inventory.")
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option("--force", is_flag=True, help="Replace an existing FILE of -o.")
@shared_options
def import_(
    settings: Settings,  # noqa: ARG001 - shared by all verbs
    file: str,
    form: str,
    group: str | None,
    output: str | None,
    force: bool,
) -> None:
    """Write an inventory from another tool's file.

    FILE is a hostfile of DeepSpeed or MPI, a list of hosts, an Ansible inventory, which `ansible-inventory` reads, or
    an SSH configuration such as ~/.ssh/config; - is standard input. The order of the hosts gives the node_rank, slots
    become gpus. What has no counterpart is written as comments. No node is contacted.
    """
    from clusterctl.cli.actions.init.machines import read_imported
    from clusterctl.cli.actions.init.write_files import write_new_file
    from clusterctl.cli.context.nodes import hint_next, notice
    from clusterctl.console.terminal import info
    from clusterctl.specs.render import describe_groups, render_inventory

    foreign = read_imported(file, form, group)
    text = render_inventory(foreign, group or "")
    if output is None:
        click.echo(text, nl=False)
    else:
        write_new_file(text, output, force=force)
    nodes = len(foreign.hosts)
    info(trn("read as {form}: {n} node", "read as {form}: {n} nodes", nodes, form=foreign.format_description))
    if foreign.groups:
        notice(describe_groups(foreign))
    if output is not None:
        info(tr("wrote {path}", path=output))
        hint_next(command_line("clusterctl", "-i", output, "check"))


@inventory.command(  # as `init`, without a job; kept for scripts
    cls=VerbCommand,
    hidden=True,
    examples=[
        ("clusterctl inventory discover gpu[01-04] -o inventory.yaml", "four machines"),
        ("clusterctl inventory discover 10.0.0.5 10.0.0.6 --user alice", "by address"),
        ("clusterctl inventory discover gpu01 --jump login", "through a jump host"),
    ],
)
@click.argument("hosts", metavar="HOST...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="FILE", help="Write to FILE instead of standard output.")
@click.option("--force", is_flag=True, help="Replace an existing FILE of -o.")
@click.option("--cluster", metavar="NAME", default="", help="Name of the cluster; default: cluster.")
@with_connect_options
@shared_options
def discover(
    settings: Settings,
    hosts: tuple[str, ...],
    output: str | None,
    force: bool,
    cluster: str,
    **connection: Any,
) -> int:
    """Read the NICs and GPUs of machines and write an inventory.

    HOST is a name, an address, user@host:port or a range such as gpu[01-04]; the order gives the node_rank. Selects the
    fastest network that all machines share; other NICs are written as comments. Writes nothing on the machines. Exit
    code 0: all answered; 5: some did, the others are written as comments; 4: none did.
    """
    from clusterctl.cli.actions.init import machines

    connect_options = machines.with_lab(machines.ConnectOptions(**connection), settings.lab)
    return machines.discover(hosts, connect_options, cluster, output, force=force)


@click.command(
    cls=VerbCommand,
    examples=[
        ("clusterctl init gpu[01-04] --script train.py", "files, check, launch"),
        ("clusterctl init --from hostfile --user alice", "the machines of a hostfile"),
        ("clusterctl init --from-ssh-config 'gpu*'", "hosts of ~/.ssh/config"),
        ("clusterctl init --keys", "only install your key on the nodes of the inventory"),
    ],
)
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@click.option(
    "--from", "source", metavar="FILE", help="Read the machines from a hostfile or an Ansible inventory."
)
@click.option("--group", metavar="NAME", help="Of an Ansible inventory only this group.")
@click.option(
    "--from-ssh-config", metavar="PAT", help="Read these hosts from your SSH configuration: '*', 'gpu*'."
)
@click.option("--keys", is_flag=True, help="Only install your public key on the nodes of the inventory.")
@click.option("--script", metavar="FILE", help="The training script, in the folder of the job file.")
@click.option(
    "--dir", "folder", metavar="DIR", default=".", show_default=True, help="The folder to write to."
)
@click.option(
    "--name", metavar="NAME", default="", help="Name of job and cluster; default: the folder's name."
)
@click.option("--force", is_flag=True, help="Replace existing inventory.yaml and job.yaml.")
@click.option("--accept-new", is_flag=True, help="Trust new host keys and record them.")
@click.option(
    "--password-from",
    metavar="VARIABLE",
    help="Read the password of all machines from this environment variable, to install your key.",
)
@click.option("-y", "--yes", is_flag=True, help="Answer every question but that for new host keys with yes.")
@json_option("Write which files were written as JSON; then nothing is checked or launched.")
@with_connect_options
@shared_options
def init(
    settings: Settings,
    hosts: tuple[str, ...],
    source: str | None,
    group: str | None,
    from_ssh_config: str | None,
    keys: bool,
    script: str | None,
    folder: str,
    name: str,
    force: bool,
    accept_new: bool,
    password_from: str | None,
    yes: bool,
    as_json: bool,
    **connection: Any,
) -> int:
    """Write inventory.yaml and job.yaml for machines that you reach by SSH, then check and launch.

    HOST is a name, an address, user@host:port or a range such as gpu[01-04]; the order gives the node_rank. Reads the
    NICs, the GPUs and the Pythons of the machines. On a terminal it asks before it trusts host keys, installs your key
    where none is accepted, checks, and launches; without one it prints these commands. With --keys it installs your key
    on the nodes that do not accept it, and ends. Exit code: of the launch or the check, else 0: all machines were
    read; 5: some were; 4: none.
    """
    from clusterctl.cli.actions.init.command import InitCommand, InitOptions
    from clusterctl.cli.actions.init.login import PushKeysOptions, push_keys
    from clusterctl.cli.actions.init.machines import ConnectOptions, HostSource, with_lab

    connect_options = ConnectOptions(**connection, host_keys="accept-new" if accept_new else None)
    if keys:
        if (
            hosts
            or source
            or from_ssh_config
            or replace(connect_options, key=None, host_keys=None) != ConnectOptions()
        ):
            raise click.UsageError(
                tr(
                    "--keys takes the nodes and the logins of the inventory; for others: --hosts USER@HOST:PORT"
                ),
                click.get_current_context(),
            )
        install = PushKeysOptions(connect_options.key, password_from, accept_new, yes)
        return push_keys(load_inventory(settings).nodes, install, settings.command)
    machines = HostSource(hosts, source, from_ssh_config, group)
    options = InitOptions(machines, script, name, force, yes, password_from, as_json)
    return InitCommand(Path(folder), options, with_lab(connect_options, settings.lab), settings).run()


@click.group("keys", cls=VerbGroup, hidden=True)  # kept for scripts: `init --keys` does the same
@shared_options
def keys_(settings: Settings) -> None:
    """Set up login with your SSH key instead of a password."""


@keys_.command(
    cls=VerbCommand,
    short_help="Install your public key on every node.",
    examples=[
        ("clusterctl keys push", "all nodes of the inventory"),
        ("clusterctl keys push --nodes gpu05", "a new node"),
    ],
)
@with_node_options
@click.option(
    "--key", metavar="FILE", help="The private key whose public key is installed; default: the inventory's."
)
@click.option("--same-password", is_flag=True, hidden=True)  # what is done anyway, for older scripts
@click.option(
    "--password-from",
    metavar="VARIABLE",
    help="Read the password of all nodes from this environment variable.",
)
@click.option("--accept-new", is_flag=True, help="Trust new host keys; passwords are sent to these hosts.")
@click.option("-y", "--yes", is_flag=True, help="Create a missing key without asking.")
@shared_options
def push(
    settings: Settings,
    pattern: str | None,
    exclude: str | None,
    key: str | None,
    same_password: bool,  # noqa: ARG001 - see the option
    password_from: str | None,
    accept_new: bool,
    yes: bool,
) -> int:
    """Install your public key on every node, like ssh-keygen and ssh-copy-id.

    Creates a key if there is none. Shows new host keys before anything is sent. Asks for one password for all nodes,
    then again for nodes that refuse it, and stores none; nodes that accept the key already are left unchanged. At the
    end every node is tested with the key. Safe to repeat.
    """
    from clusterctl.cli.actions.init.login import PushKeysOptions, push_keys
    from clusterctl.plans.launch.placement import choose_nodes

    nodes = choose_nodes(load_inventory(settings), pattern, exclude)
    return push_keys(nodes, PushKeysOptions(key, password_from, accept_new, yes), settings.command)
