"""The inventory on the screen, every default filled in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from clusterctl.console.terminal import make_table, print_fitted_table, print_table, table_width
from clusterctl.console.text import WrappedCell
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.translation import to_translate, tr, trn

if TYPE_CHECKING:
    from clusterctl.console.documents.nodes import InventoryDocument, InventoryNode

HEADINGS = (
    *("node_rank", to_translate("node"), "ssh", to_translate("training address"), to_translate("NIC")),
    *("gpus", "python", "workdir"),
)


def print_inventory(console: Console, inventory: Inventory) -> None:
    """Print one row a node, in the order of node_rank."""
    title = trn(
        "cluster {name}: {n} node", "cluster {name}: {n} nodes", len(inventory.nodes), name=inventory.cluster
    )
    console.print(Text(title))
    rows = [_row(node) for node in inventory.nodes]
    table = _make_table(range(len(HEADINGS)), rows)
    if not console.is_terminal or table_width(console, table) <= console.width:
        print_table(console, table)
        return
    shared = [index for index, cells in enumerate(zip(*rows, strict=True)) if len(set(cells)) == 1]
    for index in shared:
        line = tr("{subject}: {text}", subject=tr(HEADINGS[index]), text=rows[0][index])
        console.print(Text(line), soft_wrap=True)
    own = [index for index in range(len(HEADINGS)) if index not in shared]
    table = _make_table(own, rows)
    if table_width(console, table) <= console.width:
        print_fitted_table(console, table)
        return
    for cells in rows:
        _print_record(console, own, cells)


def _print_record(console: Console, columns: Sequence[int], cells: tuple[str, ...]) -> None:
    """Print a node with each value on a line of its own, where the terminal is too narrow for a table."""
    console.print(Text(f"{cells[0]}  {cells[1]}", style="bold"))
    for index in columns[2:]:
        line = tr("{subject}: {text}", subject=tr(HEADINGS[index]), text=cells[index])
        console.print(Text(f"   {line}"), soft_wrap=True)


def _make_table(columns: Iterable[int], rows: Sequence[tuple[str, ...]]) -> Table:
    """Draw some of the columns."""
    table = make_table(*(tr(HEADINGS[index]) for index in columns))
    for cells in rows:
        table.add_row(*(WrappedCell(cells[index]) for index in columns))
    return table


def _row(node: Node) -> tuple[str, ...]:
    return (
        str(node.index),
        tr("{node} (spare)", node=node.name) if node.spare else node.name,
        render_ssh_target(node),
        node.ip or tr("({text})", text=node.host),
        ",".join(node.nic) or _describe_choice(node),
        tr("(found by check)") if node.gpus is None else str(node.gpus),
        node.python,
        node.workdir,
    )


def _describe_choice(node: Node) -> str:
    """Return which NIC will be used where the inventory names none."""
    return tr("in {network}", network=node.network) if node.network else tr("(with the address)")


def render_ssh_target(node: Node) -> str:
    """Write where SSH goes: user@host:port, and through what."""
    user = f"{node.ssh.user}@" if node.ssh.user else ""
    port = f":{node.ssh.port}" if node.ssh.port not in {None, 22} else ""
    target = f"{user}{node.host}{port}"
    hop = "proxy_command" if node.ssh.proxy_command else node.ssh.jump
    return tr("{target} via {hop}", target=target, hop=hop) if hop not in {None, "none"} else target


def inventory_to_json(inventory: Inventory) -> InventoryDocument:
    """Return the document of `inventory show --json`."""
    return {
        "schema": 1,
        "cluster": inventory.cluster,
        "nodes": [_node_to_json(node) for node in inventory.nodes],
    }


def _node_to_json(node: Node) -> InventoryNode:
    return {
        "name": node.name,
        "node_rank": node.index,
        "host": node.host,
        "port": node.ssh.port,
        "user": node.ssh.user,
        "key": node.ssh.key,
        "jump": node.ssh.jump,
        "proxy_command": node.ssh.proxy_command,
        "config": node.ssh.config,
        "known_hosts": node.ssh.known_hosts,
        "host_keys": node.ssh.host_keys,
        "ip": node.ip,
        "nic": list(node.nic),
        "network": node.network,
        "gpus": node.gpus,
        "ports": list(node.ports) if node.ports else None,
        "python": node.python,
        "activate": node.activate,
        "workdir": node.workdir,
        "spare": node.spare,
    }
