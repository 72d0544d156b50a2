"""The verb `inventory`: what clusterctl understands of the inventory."""

from __future__ import annotations

import json

import click

from clusterctl.cli.loading import load_inventory
from clusterctl.cli.options import Settings, shared_options


@click.group()
@shared_options
def inventory(settings: Settings) -> None:
    """Work with the inventory file."""


@inventory.command()
@click.option("--json", "as_json", is_flag=True, help="Write the nodes as JSON.")
@shared_options
def show(settings: Settings, as_json: bool) -> None:
    """Show every node with all defaults filled in; needs no network."""
    from clusterctl.console.choice import out
    from clusterctl.console.inventory import inventory_to_json, render_inventory

    chosen = load_inventory(settings)
    if as_json:
        click.echo(json.dumps(inventory_to_json(chosen), ensure_ascii=False, indent=2))
    else:
        render_inventory(out(), chosen)
