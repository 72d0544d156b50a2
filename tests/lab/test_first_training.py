"""From two plain machines to the first training in one command: what a stranger types, and how often."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from driving import COMMAND, running_processes
from plain_machines import CONDA, PASSWORD, PlainMachine, environment, set_up, write_ssh_config
from terminal import converse
from waiting import HANG

from clusterctl.lab.labs import Lab
from clusterctl.specs.inventory.model import Inventory
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


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="sshd can check passwords for root only")


@dataclass(frozen=True)
class Stranger:
    """A user with an empty home and a project folder, and the machines that `init` is given."""

    lab: Lab
    machines: list[PlainMachine]
    home: Path
    project: Path
    config: Path

    def command(self, *options: str) -> list[str]:
        """Return the words of `init` for the machines."""
        hosts = [f"trainer@{machine.address}:{machine.port}" for machine in self.machines]
        folders = ["--ssh-config", str(self.config), "--dir", str(self.project)]
        return [*COMMAND, "init", *hosts, *folders, *options]

    def converse(self, *options: str, answers: Sequence[tuple[str, str]]) -> tuple[int, str]:
        """Run `init` on a terminal."""
        return converse(self.command(*options), environment(self.home), answers)

    def read_inventory(self) -> Inventory:
        """Read what was written."""
        return parse_inventory((self.project / "inventory.yaml").read_text(), "inventory.yaml")


@pytest.fixture
def stranger(make_lab: Callable[..., Lab], tmp_path: Path) -> Stranger:
    """Two machines with ports of their own, conda on the first, no torch in the usual Python of either."""
    lab = make_lab(n=2)
    first, second = (node.plan.host for node in lab.nodes)
    machines = [PlainMachine(first, 22022, conda=True), PlainMachine(second, 2222, conda=False)]
    if reason := set_up(lab, machines, tmp_path):
        pytest.skip(reason)
    home, project = tmp_path / "me", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    return Stranger(lab, machines, home, project, write_ssh_config(lab, machines, tmp_path))


def test_one_command_four_keys_and_a_password(stranger: Stranger) -> None:
    """No key, unknown host keys, another port, conda on one machine and no torch on the other: SUCCEEDED.

    The machines are named by their own names, the Python of each is found, and the job makes the environment that one
    of them lacks; results go to the output folder. Nothing runs on afterwards.
    """
    lab = stranger.lab
    (stranger.project / "train.py").write_text(TRAIN)

    code, seen = stranger.converse(
        *("--script", "train.py"),
        answers=[
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
    nodes = stranger.read_inventory().nodes
    assert [(node.name, node.ssh.port) for node in nodes] == [
        (lab.nodes[0].name, 22022),
        (lab.nodes[1].name, 2222),
    ]
    assert nodes[0].python == f"~/{CONDA}/bin/python"
    job = parse_job((stranger.project / "job.yaml").read_text(), "job.yaml")
    assert job.setup is not None and job.setup.lock == "requirements.txt"
    assert job.args == ("--output", "${output_dir}")
    for node in lab.nodes:
        results = node.run(["sh", "-c", "cat /tmp/site/home/.clusterctl/outputs/*/total-*"]).stdout
        assert results == "2"
    assert PASSWORD not in seen
    assert running_processes(lab) == {}


def test_a_refused_question_keeps_the_machine_and_nothing_is_half_written(stranger: Stranger) -> None:
    """Ctrl-C at a question writes nothing; a machine that answered stays in the inventory without a login.

    `-y` with the password in a variable then installs the key without a terminal, and reads the machines.
    """
    for answers in ([("Are these the keys", "\x03")], [("Are these the keys", "y"), ("there now?", "\x03")]):
        code, seen = stranger.converse(answers=answers)
        assert code == 130, seen
        assert list(stranger.project.iterdir()) == []
        assert not (stranger.home / ".ssh" / "id_ed25519").exists()

    refused, said = stranger.converse(answers=[("there now? [Y/n]", "n")])
    hosts = [node.host for node in stranger.read_inventory().nodes]
    done = subprocess.run(
        stranger.command("-y", "--force", "--password-from", "SECRET"),
        env={**environment(stranger.home), "SECRET": PASSWORD},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )

    assert refused == 4, said
    assert "clusterctl init --keys" in said
    assert hosts == [machine.address for machine in stranger.machines]
    assert done.returncode == 0, done.stderr
    assert "clusterctl check" in done.stderr  # there is no script yet, so nothing is launched
    nics = [node.nic for node in stranger.read_inventory().nodes]
    assert nics == [(node.plan.training_nic,) for node in stranger.lab.nodes]
    assert PASSWORD not in done.stdout + done.stderr
