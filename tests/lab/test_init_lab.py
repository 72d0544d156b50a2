"""`init` against real nodes: from a list of machines to a launch, asked and unasked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from driving import COMMAND, cctl, environment
from terminal import converse

from clusterctl.lab.labs import Lab
from clusterctl.specs.inventory.parse import parse_inventory
from clusterctl.specs.job.parse import parse_job


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    """Two nodes with NICs that no one has written down."""
    return make_lab(n=2)


def test_two_files_that_check_and_launch_take_as_they_are(lab: Lab, tmp_path: Path) -> None:
    """Without a terminal: NICs found, one worker a node where there are no GPUs; nothing is overwritten."""
    (tmp_path / "train.py").write_text("print('trained')\n")
    words = [
        "init",
        "gpu[01-02]",
        "--ssh-config",
        lab.ssh_config,
        "--name",
        "first",
        "--python",
        lab.plan.python,
    ]

    made = cctl(None, *words, cwd=tmp_path)

    assert made.code == 0, made.err
    inventory = parse_inventory((tmp_path / "inventory.yaml").read_text(), "inventory.yaml")
    assert [node.nic for node in inventory.nodes] == [(node.plan.training_nic,) for node in lab.nodes]
    job = parse_job((tmp_path / "job.yaml").read_text(), "job.yaml")
    assert (job.name, job.script, job.nproc_per_node, job.backend) == ("first", "train.py", 1, "gloo")
    assert "next: clusterctl check\nnext: clusterctl launch\n" in made.err
    launched = cctl(None, "launch", "--json", cwd=tmp_path)
    assert launched.code == 0, launched.err
    verdict = json.loads(launched.out.splitlines()[-1])
    assert verdict["verdict"]["state"] == "SUCCEEDED"

    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = cctl(None, *words, cwd=tmp_path)

    assert again.code == 2
    assert "CC-USE-040" in again.err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_running_lab_has_its_own_ssh_settings(lab: Lab, tmp_path: Path) -> None:
    """`--lab` is enough to reach its nodes, and the inventory has that `init` made it."""
    state = str(lab.directory.parents[2])

    made = cctl(None, "--lab", lab.name, "init", "gpu[01-02]", cwd=tmp_path, XDG_STATE_HOME=state)
    other = cctl(None, "--lab", "nope", "init", "gpu01", "--force", cwd=tmp_path, XDG_STATE_HOME=state)

    assert made.code == 0, made.err
    assert "next: clusterctl check\nnext: clusterctl launch\n" in made.err
    text = (tmp_path / "inventory.yaml").read_text()
    assert text.startswith("# Made by `clusterctl init`.\n")
    nodes = parse_inventory(text, "inventory.yaml").nodes
    assert {(node.ssh.config, node.python) for node in nodes} == {(str(lab.ssh_config), lab.plan.python)}
    assert (other.code, "CC-LAB-005: no lab with the name nope is running" in other.err) == (2, True)


def test_the_file_of_this_directory_goes_before_a_running_lab(lab: Lab, tmp_path: Path) -> None:
    """No run starts on the wrong cluster; a lab that starts here is then named in the commands that it prints."""
    state = str(lab.directory.parents[2])

    alone = cctl(None, "inventory", "show", cwd=tmp_path, XDG_STATE_HOME=state)
    (tmp_path / "inventory.yaml").write_text("cluster: c\nnodes: [{host: 192.0.2.1}]\n")
    here = cctl(None, "inventory", "show", cwd=tmp_path, XDG_STATE_HOME=state)
    chosen = cctl(None, "--lab", lab.name, "inventory", "show", cwd=tmp_path, XDG_STATE_HOME=state)

    assert "(the running lab), 2 nodes" in alone.err
    assert ("cluster c: 1 node" in here.out, here.err) == (True, "")
    assert "(given by --lab), 2 nodes" in chosen.err


def test_on_a_terminal_it_asks_what_it_cannot_know(lab: Lab, tmp_path: Path) -> None:
    """Machines, out of those that the SSH configuration names, and the script if there are several."""
    (tmp_path / "fit.py").write_text("print('fit')\n")
    (tmp_path / "other.py").write_text("")
    words = [
        *COMMAND,
        "init",
        "--ssh-config",
        str(lab.ssh_config),
        "--dir",
        str(tmp_path),
        "--python",
        "/bin/false",
    ]

    code, seen = converse(words, environment(None, TERM="xterm"), [("Machines", "gpu01")])
    assert code == 4, seen
    assert "hosts in your SSH configuration: gpu01, gpu02" in seen
    assert "nothing was written" in seen
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.py", "other.py"]

    words[-1] = lab.plan.python
    answers = [("Machines", "gpu02"), ("script [fit.py]", ""), ("Check now? [Y/n]", "n")]
    code, seen = converse(words, environment(None, TERM="xterm"), answers)
    assert code == 0, seen
    assert parse_job((tmp_path / "job.yaml").read_text(), "job.yaml").script == "fit.py"
    inventory = parse_inventory((tmp_path / "inventory.yaml").read_text(), "inventory.yaml")
    assert [(node.name, node.python) for node in inventory.nodes] == [("gpu02", lab.plan.python)]
    assert f"next: cd {tmp_path}; clusterctl check" in seen


def test_new_host_keys_are_believed_once(lab: Lab, tmp_path: Path) -> None:
    """Who agrees to the keys that are shown has not agreed to any other that may come later."""
    strange, known = tmp_path / "config", tmp_path / "known_hosts"
    lines = lab.ssh_config.read_text().splitlines()
    told = [line for line in lines if "UserKnownHostsFile" in line]
    strange.write_text("\n".join(lines).replace(told[0].strip(), f"UserKnownHostsFile {known}") + "\n")
    words = [*COMMAND, "init", "gpu01", "--ssh-config", str(strange), "--dir", str(tmp_path)]
    answers = [("the keys of the nodes", "y"), ("script [train.py]", "")]

    code, seen = converse([*words, "--python", lab.plan.python], environment(None, TERM="xterm"), answers)

    assert code == 0, seen
    (node,) = parse_inventory((tmp_path / "inventory.yaml").read_text(), "inventory.yaml").nodes
    assert node.ssh.host_keys is None
    assert len(known.read_text().splitlines()) == 1
    again = cctl(None, "exec", "--", "true", cwd=tmp_path)
    assert again.code == 0, again.err


def test_machines_that_do_not_let_us_in_are_written_for_keys_push(lab: Lab, tmp_path: Path) -> None:
    """No key fits: the inventory names them, exit code 4, and the next command is reported."""
    from clusterctl.client.ssh.config import list_hosts

    strange = tmp_path / "config"
    text = lab.ssh_config.read_text()
    strange.write_text(text.replace("IdentityFile ", "IdentityFile /dev/null#"))
    assert list_hosts(strange) == list_hosts(lab.ssh_config) == [node.name for node in lab.nodes]

    made = cctl(None, "init", "--from-ssh-config", "gpu*", "--ssh-config", strange, "--dir", tmp_path)

    assert made.code == 4, made.err
    assert "clusterctl init --keys" in made.err
    inventory = parse_inventory((tmp_path / "inventory.yaml").read_text(), "inventory.yaml")
    assert [node.host for node in inventory.nodes] == ["gpu01", "gpu02"]
    assert (tmp_path / "inventory.yaml").read_text().startswith("# Made by `clusterctl init` from")
    assert not (tmp_path / "job.yaml").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], "CC-USE-073"),
        (["gpu01", "--from", "hosts"], "CC-USE-071"),
        (["--from-ssh-config", "nothing*", "--ssh-config", "/dev/null"], "CC-USE-072"),
        (["gpu01", "--dir", "nowhere"], "CC-USE-070"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_asked(
    tmp_path: Path, words: list[str], code: str
) -> None:
    """No machine is named, or twice, or none fits; no folder."""
    refused = cctl(None, "init", *words, cwd=tmp_path)

    assert refused.code == 2
    assert code in refused.err
    assert list(tmp_path.iterdir()) == []
