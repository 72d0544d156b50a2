"""The verb `keys`, which is kept for scripts: `init --keys` does the same."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.context.settings import Settings
from clusterctl.cli.help import VerbCommand, VerbGroup
from clusterctl.cli.options import shared_options, with_node_options


@click.group(cls=VerbGroup, hidden=True)
@shared_options
def keys(settings: Settings) -> None:
    """Set up login with your SSH key instead of a password."""


@keys.command(
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
    from clusterctl.cli.actions.init.push_keys import PushKeysOptions, push_keys
    from clusterctl.plans.launch.placement import choose_nodes

    nodes = choose_nodes(load_inventory(settings), pattern, exclude)
    return push_keys(nodes, PushKeysOptions(key, password_from, accept_new, yes), settings.command)
