"""What `inventory show` shows, and its JSON."""

from __future__ import annotations

import io

from rich.console import Console

from clusterctl.console.inventory import inventory_to_json, print_inventory
from clusterctl.specs.inventory.model import Inventory, Node, Ssh


def shown(*nodes: Node) -> str:
    """Render an inventory as plain text."""
    console = Console(file=io.StringIO(), width=160, no_color=True, highlight=False)
    print_inventory(console, Inventory(cluster="lab-a", file="inventory.yaml", nodes=nodes))
    return console.file.getvalue()  # type: ignore[attr-defined]  # the file is the StringIO above


def test_what_the_inventory_does_not_say_is_not_claimed() -> None:
    """Without `gpus` nothing is known of GPUs before a check."""
    first, second = (Node(name=f"gpu{n}", index=n, host=f"10.0.0.{n}") for n in (0, 1))
    assert "(found by check)" in shown(first)
    assert shown(first).startswith("cluster lab-a: 1 node\n")
    assert shown(first, second).startswith("cluster lab-a: 2 nodes\n")


def test_json_shows_all_of_a_node() -> None:
    """Also how SSH reaches it, and which ports the rendezvous may use."""
    ssh = Ssh(
        user="me", port=2222, key="~/k", proxy_command="nc %h %p", known_hosts="~/h", host_keys="accept-new"
    )
    node = Node(name="gpu1", index=0, host="10.0.0.1", ssh=ssh, ports=(20000, 20100), nic=("eth0",))
    document = inventory_to_json(Inventory(cluster="c", file="f", nodes=(node,)))["nodes"][0]

    assert (document["key"], document["proxy_command"], document["known_hosts"]) == ("~/k", "nc %h %p", "~/h")
    assert (document["host_keys"], document["ports"], document["nic"]) == (
        "accept-new",
        [20000, 20100],
        ["eth0"],
    )
    assert (document["port"], document["user"], document["gpus"]) == (2222, "me", None)


def test_a_narrow_terminal_breaks_no_words() -> None:
    """A name or an address stays whole, to be copied; what follows a table is as narrow as before."""
    node = Node(name="a-long-name-01", index=0, host="192.168.100.235", nic=("enp65s0f0np0",))
    screen = io.StringIO()
    console = Console(file=screen, width=40)
    print_inventory(console, Inventory(cluster="lab-a", file="inventory.yaml", nodes=(node,)))

    assert all(word in screen.getvalue() for word in ("a-long-name-01", "192.168.100.235", "enp65s0f0np0"))
    assert console.width == 40
