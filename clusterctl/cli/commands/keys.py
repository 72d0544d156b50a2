"""The verb `keys`: ways into the nodes without a password."""

from __future__ import annotations

import click

from clusterctl.cli.context.load import load_inventory
from clusterctl.cli.options import Settings, VerbGroup, shared_options, with_node_options


@click.group(cls=VerbGroup)
@shared_options
def keys(settings: Settings) -> None:
    """Get into all nodes without a password."""


@keys.command()
@with_node_options
@click.option(
    "--key", metavar="FILE", help="The private key whose public half is installed; else the inventory's."
)
@click.option(
    "--same-password", is_flag=True, help="Ask once, for all nodes; those that refuse it are asked for."
)
@click.option(
    "--password-from", metavar="VARIABLE", help="Take the password of all nodes from this variable."
)
@click.option(
    "--accept-new", is_flag=True, help="Believe host keys that are not known yet; passwords go there."
)
@click.option("-y", "--yes", is_flag=True, help="Make a missing key without asking.")
@shared_options
def push(
    settings: Settings,
    pattern: str | None,
    exclude: str | None,
    key: str | None,
    same_password: bool,
    password_from: str | None,
    accept_new: bool,
    yes: bool,
) -> int:
    """Install your public key on every node, as ssh-keygen and ssh-copy-id do one by one.

    A key is made if there is none. New host keys are shown before anything is sent. Each password is asked for
    once and stored nowhere; nodes that the key opens already are left as they are. At the end every node has
    been entered with the key. Safe to repeat.
    """
    from clusterctl.cli.actions.push_keys import KeyPush, PushKeysOptions
    from clusterctl.plans.launch.placement import choose_nodes

    nodes = choose_nodes(load_inventory(settings), pattern, exclude)
    return KeyPush(nodes, PushKeysOptions(key, same_password, password_from, accept_new, yes)).run()
