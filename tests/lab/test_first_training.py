"""From two plain machines to the first training in one command: what a stranger types, and how often."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import COMMAND, running_processes
from plain_machines import CONDA, PASSWORD, PlainMachine, environment, set_up, write_ssh_config
from terminal import converse

from clusterctl.lab.labs import Lab
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job

TRAIN = """import argparse, torch, torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--output")
output = parser.parse_args().output
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
open(f"{output}/total-{dist.get_rank()}", "w").write(f"{total.item():g}")
print("sum", total.item())
dist.destroy_process_group()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="sshd can check passwords for root only")
def test_one_command_four_keys_and_a_password(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    """No key, unknown host keys, another port, conda on one machine and no torch on the other: SUCCEEDED.

    The machines are named by their own names, the Python of each is found, and the job makes the environment that one
    of them lacks; results go to the output folder. Nothing runs on afterwards.
    """
    lab = make_lab(n=2)
    addresses = [node.plan.host for node in lab.nodes]
    machines = [PlainMachine(addresses[0], 22022, conda=True), PlainMachine(addresses[1], 2222, conda=False)]
    if reason := set_up(lab, machines, tmp_path):
        pytest.skip(reason)
    config = write_ssh_config(lab, machines, tmp_path)
    home, project = tmp_path / "me", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    words = [f"trainer@{machine.address}:{machine.port}" for machine in machines]
    command = [
        *COMMAND,
        "init",
        *words,
        "--ssh-config",
        str(config),
        "--script",
        "train.py",
        "--dir",
        str(project),
    ]

    code, seen = converse(
        command,
        environment(home),
        [
            ("Are these the keys of the nodes", "y"),
            ("id_ed25519 and install it there now? [Y/n]", ""),
            ("Password for all 2 nodes", PASSWORD),
            ("Check now? [Y/n]", ""),
            ("Launch now? [Y/n]", ""),
        ],
    )

    assert code == 0, seen
    assert "SUCCEEDED" in seen
    assert seen.count("sum 2.0") == 2
    inventory = parse_inventory((project / "inventory.yaml").read_text(), "inventory.yaml")
    assert [(node.name, node.ssh.port) for node in inventory.nodes] == [
        (lab.nodes[0].name, 22022),
        (lab.nodes[1].name, 2222),
    ]
    assert inventory.nodes[0].python == f"~/{CONDA}/bin/python"
    job = parse_job((project / "job.yaml").read_text(), "job.yaml")
    assert job.setup is not None and job.setup.lock == "requirements.txt"
    assert job.args == ("--output", "${output_dir}")
    for node in lab.nodes:
        results = node.run(["sh", "-c", "cat /tmp/site/home/.clusterctl/outputs/*/total-*"]).stdout
        assert results == "2"
    assert PASSWORD not in seen
    assert running_processes(lab) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="sshd can check passwords for root only")
def test_who_says_no_keeps_the_machine_and_nothing_is_half_written(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    """Ctrl-C at a question writes nothing; a machine that answered but let nobody in stays in the inventory."""
    lab = make_lab(n=2)
    addresses = [node.plan.host for node in lab.nodes]
    machines = [PlainMachine(address, 2222, conda=False) for address in addresses]
    if reason := set_up(lab, machines, tmp_path):
        pytest.skip(reason)
    config = write_ssh_config(lab, machines, tmp_path)
    home, project = tmp_path / "me", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    words = [f"trainer@{machine.address}:{machine.port}" for machine in machines]
    command = [*COMMAND, "init", *words, "--ssh-config", str(config), "--dir", str(project)]

    for answers in ([("Are these the keys", "\x03")], [("Are these the keys", "y"), ("there now?", "\x03")]):
        code, seen = converse(command, environment(home), answers)
        assert code == 130, seen
        assert list(project.iterdir()) == [] and not (home / ".ssh" / "id_ed25519").exists()

    refused, said = converse(command, environment(home), [("there now? [Y/n]", "n")])

    assert refused == 4, said
    assert "clusterctl keys push" in said
    text = (project / "inventory.yaml").read_text()
    assert [node.host for node in parse_inventory(text, "inventory.yaml").nodes] == addresses
