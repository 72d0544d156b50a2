"""What an inventory says, every default merged in."""

from __future__ import annotations

from textwrap import dedent

import pytest

from clusterctl.specs.inventory.model import Inventory, Node, Ssh
from clusterctl.specs.inventory.parse import parse_inventory


def parse(text: str) -> Inventory:
    """Read an inventory that is written indented."""
    return parse_inventory(dedent(text), "lab.yaml")


def parse_node(text: str, top: str = "") -> Node:
    """Read an inventory of one node, given as flow mapping."""
    return parse_inventory(f"cluster: a\n{top}\nnodes: [{text}]\n", "lab.yaml").nodes[0]


def test_the_least_inventory_has_every_default() -> None:
    """A host is enough."""
    inventory = parse("""
        cluster: pair
        nodes:
          - host: gpu01
        """)

    assert inventory == Inventory(
        cluster="pair",
        file="lab.yaml",
        nodes=(
            Node(
                name="gpu01",
                index=0,
                host="gpu01",
                ip=None,
                nic=(),
                network=None,
                gpus=None,
                ports=None,
                python="python3",
                activate=None,
                workdir="~/.clusterctl",
                ssh=Ssh(
                    user=None,
                    port=None,
                    key=None,
                    jump=None,
                    proxy_command=None,
                    config=None,
                    known_hosts=None,
                ),
            ),
        ),
    )


def test_a_node_beats_the_top_level_key_by_key() -> None:
    """A node's ssh replaces single keys; its other values replace whole ones."""
    first, second = parse("""
        cluster: lab
        ssh: {user: root, key: ~/.ssh/id_ed25519, port: 2200, host_keys: accept-new}
        python: /opt/conda/bin/python
        activate: source /etc/profile
        ports: 20000-20100
        gpus: 4
        nodes:
          - {host: a, ssh: {port: 22, user: alice}, gpus: 0, ports: 30000-30000, python: python3.11}
          - {host: b}
        """).nodes

    assert first.ssh == Ssh(user="alice", port=22, key="~/.ssh/id_ed25519", host_keys="accept-new")
    assert (first.gpus, first.ports, first.python) == (0, (30000, 30000), "python3.11")
    assert second.ssh == Ssh(user="root", port=2200, key="~/.ssh/id_ed25519", host_keys="accept-new")
    assert (second.gpus, second.ports, second.python) == (4, (20000, 20100), "/opt/conda/bin/python")
    assert (first.index, second.index) == (0, 1)
    assert first.activate == second.activate == "source /etc/profile"


def test_null_takes_a_shared_value_away() -> None:
    """A node can be without what the others have."""
    top = "ssh: {key: k, user: u, proxy_command: p, known_hosts: h}\nactivate: x\nnic: eth0\ngpus: 1\nports: 2000-2001"
    node = parse_node(
        "{host: a, activate: null, nic: null, gpus: ~, ports: null,"
        " ssh: {key: null, user: null, proxy_command: null, known_hosts: null}}",
        top,
    )

    assert node == Node(name="a", index=0, host="a")


@pytest.mark.parametrize(
    ("top", "node", "nic", "network"),
    [
        ("nic: eth0", "{host: a}", ("eth0",), None),
        ("nic: eth0", "{host: a, nic: [eth1, eth2]}", ("eth1", "eth2"), None),
        ("network: 10.0.0.0/8", "{host: a, nic: eth1}", ("eth1",), "10.0.0.0/8"),
        ("nic: eth0", "{host: a, network: 10.0.0.0/8}", (), "10.0.0.0/8"),
        ("nic: eth0", "{host: a, network: 10.0.0.0/8, nic: eth1}", ("eth1",), "10.0.0.0/8"),
        ("nic: eth0\nnetwork: 10.0.0.0/8", "{host: a, network: null}", ("eth0",), None),
        ("nic: eth0\nnetwork: 10.0.0.0/8", "{host: a, nic: null}", (), "10.0.0.0/8"),
    ],
)
def test_what_a_node_says_about_its_nics_beats_the_top_level(
    top: str, node: str, nic: tuple[str, ...], network: str | None
) -> None:
    """A network of one's own beats NICs that were meant for the other nodes."""
    found = parse_node(node, top)

    assert (found.nic, found.network) == (nic, network)


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [
        ("nic: bond0.100", "nic", ("bond0.100",)),
        ("nic: [enp65s0f0np0]", "nic", ("enp65s0f0np0",)),
        ("nic: abcdefghijklmno", "nic", ("abcdefghijklmno",)),
        ("name: gpu_01.a-b", "name", "gpu_01.a-b"),
        ("name: 3com", "name", "3com"),
        ("gpus: 0", "gpus", 0),
        ("gpus: '8'", "gpus", 8),
        ("ports: '1024-65535'", "ports", (1024, 65535)),
        ("ip: 10.77.0.1", "ip", "10.77.0.1"),
        ("network: 10.0.0.1/32", "network", "10.0.0.1/32"),
        ("python: ~/venv/bin/python", "python", "~/venv/bin/python"),
        ("python: '/opt/my python/bin/python3'", "python", "/opt/my python/bin/python3"),
        ("workdir: /scratch/me/clusterctl/", "workdir", "/scratch/me/clusterctl/"),
        ("workdir: ~/runs", "workdir", "~/runs"),
        ("activate: 'module load cuda; export A=\"b c\"'", "activate", 'module load cuda; export A="b c"'),
    ],
)
def test_values_of_a_node(written: str, key: str, value: object) -> None:
    """What is right is taken as it stands."""
    assert getattr(parse_node(f"{{host: a, {written}}}"), key) == value


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [
        ("user: root", "user", "root"),
        ("user: alice@example.org", "user", "alice@example.org"),
        ("user: 1000", "user", "1000"),
        ("port: 65535", "port", 65535),
        ("key: ~/my keys/id", "key", "~/my keys/id"),
        ("proxy_command: 'nc -X 5 %h %p %r 100%%'", "proxy_command", "nc -X 5 %h %p %r 100%%"),
        ("known_hosts: /etc/hosts.known", "known_hosts", "/etc/hosts.known"),
    ],
)
def test_values_of_ssh(written: str, key: str, value: object) -> None:
    """What is right is taken as it stands."""
    assert getattr(parse_node(f"{{host: a, ssh: {{{written}}}}}").ssh, key) == value


def test_an_ipv6_host_is_fine_with_an_ipv4_address_for_the_training() -> None:
    """SSH may go over IPv6."""
    node = parse_node("{host: '2001:db8::1', name: six, ip: 10.0.0.6}")

    assert (node.host, node.ip, node.name) == ("2001:db8::1", "10.0.0.6", "six")


def test_anchors_save_typing() -> None:
    """An alias stands for what it repeats."""
    inventory = parse("""
        cluster: a
        nodes:
          - {host: a, nic: &nics [x0, x1]}
          - {host: b, nic: *nics}
        """)

    assert [node.nic for node in inventory.nodes] == [("x0", "x1")] * 2


def test_an_inventory_may_be_json() -> None:
    """YAML 1.2 holds JSON, pairs of surrogate escapes included."""
    inventory = parse_inventory(
        '{"cluster": "a", "activate": "echo \\ud83d\\ude00", "nodes": [{"host": "b", "gpus": 2}]}', "lab.json"
    )

    assert inventory.nodes[0].gpus == 2
    assert inventory.nodes[0].activate == "echo \N{GRINNING FACE}"


@pytest.mark.parametrize(
    "text", ["\ufeffcluster: a\nnodes: [{host: b}]\n", "cluster: a\r\nnodes:\r\n- host: b\r\n"]
)
def test_files_of_other_systems(text: str) -> None:
    """A byte order mark and CRLF do no harm."""
    assert [node.host for node in parse_inventory(text, "lab.yaml").nodes] == ["b"]
