"""Inventories of other tools, in those tools' documented forms, become inventories of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from listings import INI, YAML, listing

from clusterctl.errors import SpecError
from clusterctl.specs.importers.detect import parse_imported
from clusterctl.specs.inventory.model import Inventory, Node
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.render import render_inventory


def take(
    text: str, file: str = "hosts", form: str = "auto", group: str | None = None
) -> tuple[str, Inventory]:
    """Import a text; gives the written file and what clusterctl reads in it."""
    written = render_inventory(parse_imported(text, file, form, group), group or "")
    return written, parse_inventory(written, "written")


def taken(text: str, file: str = "hosts", form: str = "auto", group: str | None = None) -> tuple[Node, ...]:
    """Import a text; gives the nodes."""
    return take(text, file, form, group)[1].nodes


REAL = Path(__file__).parent / "cases"


def taken_file(name: str, group: str | None = None) -> tuple[str, Inventory]:
    """Import a file as people have it."""
    return take((REAL / name).read_text(encoding="utf-8"), name, "auto", group)


def test_an_ssh_configuration() -> None:
    """Each host that is named outright is a node, reached as ssh reaches it; bastions and git servers are none."""
    written, inventory = taken_file("ssh_config")

    assert "an SSH configuration." in written
    assert [(n.name, n.host) for n in inventory.nodes] == [("gpu01", "gpu01"), ("gpu02", "gpu02")]
    assert {(n.ssh.user, n.ssh.jump, n.ssh.proxy_command) for n in inventory.nodes} == {(None, None, None)}
    assert remarks(written)[2:] == [
        "line 8: 'github.com' is left out: it is a git server",
        "line 13: 'jump' is left out: others are reached through it, so it is a bastion",
        "line 17: 'gpu01' is also called 'g1'",
        "line 27: 'gpu02-again' is left out: it has the HostName of 'gpu02'",
    ]


@pytest.mark.parametrize("text", ["Host *\n  User root\n", "Host git\n User git\n", "Match all\n User a\n"])
def test_an_ssh_configuration_without_machines(text: str) -> None:
    """It reports what the file is, and what to do."""
    with pytest.raises(SpecError) as caught:
        take(text)
    (issue,) = caught.value.issues
    assert issue.code == "CC-SPEC-022"
    assert issue.message.startswith("this SSH configuration contains no usable host")
    assert "clusterctl init HOST" in issue.fix


def test_a_list_of_hosts_is_no_ssh_configuration() -> None:
    """One machine may be called `host`, and a user `match`."""
    assert [node.host for node in taken("host\nport\nuser@a\n")] == ["host", "port", "a"]


def test_groups_are_named_where_all_hosts_were_taken() -> None:
    """Login and storage nodes train nothing; a group that holds every host is no choice."""
    written, inventory = taken_file("slurm-and-kubernetes.json")
    parts = parse_imported((REAL / "slurm-and-kubernetes.json").read_text(), "x").groups
    chosen, few = taken_file("slurm-and-kubernetes.json", "slurm-node")

    assert len(inventory.nodes) == 4
    assert (
        "one group with --group: etcd (1), nfs-server (1), kube-master (1), kube-node (2), slurm-master (1)"
        in written
    )
    assert dict(parts)["slurm-node"] == 2
    assert "nfs-clients" not in dict(parts)
    assert [node.name for node in few.nodes] == ["gpu01", "gpu02"]
    assert "--group" not in chosen
    assert "--group" not in take(listing({"a": {}, "b": {}}))[0]


def test_a_token_is_a_variable_like_others() -> None:
    """Only a password for SSH is replaced by a key; no value is repeated."""
    written, inventory = taken_file("k3s.json")

    assert {node.ssh.user for node in inventory.nodes} == {"debian"}
    assert "the variable 'token' was not imported" in remarks(written)
    assert "changeme" not in written
    assert "by key" not in written
    assert "'ansible_ssh_pass' was not imported: clusterctl logs in with a key" in remarks(
        take(listing({"h": {"ansible_ssh_pass": "x", "ansible_user": "u"}}))[0]
    )


def test_only_local_hosts() -> None:
    """A host is named, but SSH does not lead to it."""
    with pytest.raises(SpecError) as caught:
        taken_file("only-local.json")
    (issue,) = caught.value.issues
    assert issue.code == "CC-SPEC-022"
    assert "no host can be used over SSH: 'localhost' is left out" in issue.message


def test_a_user_before_the_host() -> None:
    """As ssh takes it; a variable that reports the user wins."""
    _, inventory = taken_file("users-in-names.json")

    assert [(n.host, n.ssh.user, n.ssh.port) for n in inventory.nodes] == [
        ("203.0.113.10", "ubuntu", None),
        ("203.0.113.11", "root", 2222),
        ("203.0.113.12", "trainer", None),
    ]


@pytest.mark.parametrize("form", ["auto", "mpi"])
def test_more_slots_than_any_machine_has_gpus(form: str) -> None:
    """They are processes: gpus is left out, and a comment reports it."""
    written, inventory = take((REAL / "cores-as-slots").read_text(), "cores-as-slots", form)

    assert [node.gpus for node in inventory.nodes] == [None, None]
    assert "line 1: slots=128 counts processes, not GPUs: `gpus` is not set" in written
    assert [node.gpus for node in taken("a slots=16\nb slots=17\n")] == [16, None]


def remarks(written: str) -> list[str]:
    """Give the comments on what was not imported."""
    return [line.removeprefix("# - ") for line in written.splitlines() if line.startswith("# - ")]


def test_deepspeed() -> None:
    """The order is the node_rank, slots are GPUs, comments and empty lines do not count."""
    written, inventory = take(
        "# rack 1\nworker-2 slots=8\n\nworker-1 slots=4   # older\r\n", "my/hostfile.txt"
    )

    assert [(n.name, n.index, n.gpus) for n in inventory.nodes] == [
        ("worker-2", 0, 8),
        ("worker-1", 1, 4),
    ]
    assert inventory.cluster == "hostfile"
    assert "a DeepSpeed hostfile" in written
    assert remarks(written) == []


def test_open_mpi() -> None:
    """Lines of one host add up, an upper limit has no key here, a user is one."""
    written, inventory = take("a slots=2 max_slots=8\nme@b slots = 4\n// c\na slots=2\nd\n", form="mpi")

    assert [(n.host, n.gpus, n.ssh.user) for n in inventory.nodes] == [
        ("a", 4, None),
        ("b", 4, "me"),
        ("d", None, None),
    ]
    assert remarks(written) == [
        "line 1: 'max_slots' was not imported",
        "line 1: slots are used as the number of GPUs; if that is wrong, delete gpus",
    ]


def test_open_mpi_is_distinguished_from_deepspeed_by_its_other_words() -> None:
    """`max_slots` is none of DeepSpeed's; a host that comes again without slots has one more."""
    assert "an MPI hostfile" in take("a slots=2\nb max_slots=4\n")[0]
    assert [n.gpus for n in taken("a\na\nb\na\n", form="mpi")] == [3, None]


def test_mpich_and_intel_mpi() -> None:
    """A small number behind a colon is a number of slots; process binding has no key here."""
    written, inventory = take("a:4\nb:2 binding=user:0,1\nb:2\n10.0.0.7:4\n")

    assert [(n.host, n.gpus) for n in inventory.nodes] == [("a", 4), ("b", 4), ("10.0.0.7", 4)]
    assert "\ngpus: 4\n" in written
    assert "line 2: 'binding' was not imported" in remarks(written)


def test_a_list_of_hosts() -> None:
    """Names and addresses, with users and ports; one that stands twice is taken once."""
    written, inventory = take("192.168.10.235\nroot@gpu02:2222\n192.168.10.235\n")

    assert [(n.host, n.ssh.user, n.ssh.port) for n in inventory.nodes][1] == ("gpu02", "root", 2222)
    assert [n.gpus for n in inventory.nodes] == [None, None]
    assert remarks(written) == ["line 3: this host is listed again; for MPI (--format mpi) that means slots"]


def test_ranges_of_slurm_and_pdsh() -> None:
    """A line may stand for many hosts."""
    nodes = taken("me@gpu[09-11,14]:2222\nrack[1-2]-n[1-2]\n")

    assert [n.host for n in nodes[:4]] == ["gpu09", "gpu10", "gpu11", "gpu14"]
    assert {(n.ssh.user, n.ssh.port) for n in nodes[:4]} == {("me", 2222)}
    assert [n.host for n in nodes[4:]] == ["rack1-n1", "rack1-n2", "rack2-n1", "rack2-n2"]


def test_nodes_get_names_that_they_may_have() -> None:
    """A name that reads as a rank, and one host behind several ports."""
    written, inventory = take("all\nlab.example.org:2201\nlab.example.org:2202\n")

    assert [n.name for n in inventory.nodes] == ["node0", "lab.example.org", "lab.example.org-2202"]
    assert [n.host for n in inventory.nodes] == ["all", "lab.example.org", "lab.example.org"]
    assert remarks(written)[0] == "line 1: 'all' is called node0 here"


def test_ansible_ini() -> None:
    """What Ansible lists of hosts.ini: groups below groups; the order is that of the groups."""
    written, inventory = take(INI, "inv/hosts.ini")

    ssh = {n.name: n.ssh for n in inventory.nodes}
    assert list(ssh) == ["lone.example.org", "gpu01", "gpu03", "gpu07", "node-a", "node-b", "node-c"]
    assert [n.host for n in inventory.nodes][3] == "192.168.10.77"
    assert {name: one.user for name, one in ssh.items()} == {
        **dict.fromkeys(ssh, "trainer"),
        "lone.example.org": "nobody",
        "gpu07": "ohara",
    }
    assert [one.port for one in ssh.values()][:4] == [2200, 2222, 2222, None]
    assert {one.jump for one in ssh.values()} == {"me@bastion.example.org:2201"}
    assert ssh["gpu01"].key == "~/.ssh/lab key"
    assert [n.python for n in inventory.nodes][:2] == ["python3", "/opt/conda/bin/python"]
    assert "swordfish" not in written


def test_what_ansible_has_beyond_ssh_becomes_a_comment() -> None:
    """By name, once, never a secret's value; what has nothing to do with SSH comes last."""
    assert remarks(take(INI)[0]) == [
        "host keys are always verified here; host_keys: accept-new records unknown ones",
        "the ssh option '-C' was not imported",
        "python is the one that Ansible uses; does it have torch?",
        "'cpu1' is left out: Ansible connects to it with 'local', not with SSH",
        "the variable 'ansible_become_password' was not imported",
        "the variable 'rack' was not imported",
        "the variable 'if' was not imported",
    ]


def test_a_group_of_ansible() -> None:
    """With the groups below it; the inventory has its name."""
    _, inventory = take(INI, group="train")

    assert inventory.cluster == "train"
    assert [n.name for n in inventory.nodes] == ["gpu01", "gpu03", "gpu07", "node-a", "node-b", "node-c"]


def test_ansible_yaml() -> None:
    """What Ansible lists of hosts.yml; what a vault holds is left out."""
    written, inventory = take(YAML, "hosts.yml")

    assert [(n.name, n.host, n.ssh.user, n.ssh.port) for n in inventory.nodes] == [
        ("lone", "10.0.0.9", "root", None),
        ("gpu01", "gpu01", "trainer", 2222),
        ("gpu02", "gpu02", "trainer", 2222),
        ("gpu03", "gpu03", "trainer", None),
    ]
    assert {n.ssh.jump for n in inventory.nodes} == {"hop1,hop2"}
    assert "62313365" not in written


def test_values_that_are_no_texts() -> None:
    """Numbers are read as they are written; a list or a vault in place of a text is named."""
    vault: dict[str, object] = {"__ansible_vault": "$ANSIBLE_VAULT;1.1"}
    written, inventory = take(
        listing({"a": {"ansible_port": 2200, "ansible_user": vault, "ansible_host": None}})
    )

    assert [(n.host, n.ssh.port, n.ssh.user) for n in inventory.nodes] == [("a", 2200, None)]
    assert remarks(written) == ["the variable 'ansible_user' was not imported"]


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ("-o ProxyCommand='ssh -W %h:%p -q me@hop'", "proxy_command", "ssh -W %h:%p -q me@hop"),
        ('-oProxyCommand="nc %h %p"', "proxy_command", "nc %h %p"),
        ("-Jhop", "jump", "hop"),
        ("-o 'ProxyJump hop'", "jump", "hop"),
        ("-p 2200 -p 2201", "port", 2200),
        ("-i ~/.ssh/id -l me", "user", "me"),
        ("-o UserKnownHostsFile=~/known", "known_hosts", "~/known"),
        ("-o StrictHostKeyChecking=accept-new", "host_keys", "accept-new"),
    ],
)
def test_options_of_ssh(arguments: str, key: str, value: object) -> None:
    """Those that have a key here are taken over."""
    (node,) = taken(listing({"a": {"ansible_ssh_extra_args": arguments}}))

    assert getattr(node.ssh, key) == value


@pytest.mark.parametrize("jump", ["-oProxyCommand=id", "$(id)@hop", "hop;id", "hop:x"])
def test_a_jump_host_that_is_none_stays_a_comment(jump: str) -> None:
    """Nothing of it becomes part of a command."""
    written, inventory = take(listing({"a": {"ansible_ssh_common_args": f"-o ProxyJump={jump}"}}))

    assert (inventory.nodes[0].ssh.jump, inventory.nodes[0].ssh.proxy_command) == (None, None)
    assert remarks(written)


def test_values_are_quoted_where_yaml_wants_it() -> None:
    """Texts that YAML would read as something else arrive as they are."""
    (node,) = taken(listing({"null": {"ansible_ssh_private_key_file": "a: b # 'c' \"d\" 名"}}))

    assert (node.host, node.ssh.key) == ("null", "a: b # 'c' \"d\" 名")


@pytest.mark.parametrize(
    "option",
    [
        "ProxyCommand ssh -o A=b -W %h:%p gate",
        "ProxyCommand=ssh -o A=b -W %h:%p gate",
        "ProxyCommand = ssh -o A=b -W %h:%p gate",
    ],
)
def test_a_proxy_command_keeps_its_own_signs(option: str) -> None:
    """ssh takes a space or `=` between an option's name and its value; a later `=` belongs to the value."""
    (host,) = parse_imported(listing({"a": {"ansible_ssh_common_args": f"-o '{option}'"}}), "hosts").hosts
    assert host.proxy_command == "ssh -o A=b -W %h:%p gate"
