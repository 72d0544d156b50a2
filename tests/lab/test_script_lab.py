"""A script is launched on hosts of the command line, without any file: from a node of the lab, as from a laptop."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from driving import COMMAND, running_processes

from clusterctl.lab.labs import Lab

PROGRAM = """
import os, sys
import clusterctl

def where(more):
    print("here")
    return [int(os.environ["RANK"]), more, sys.prefix]

if __name__ == "__main__":
    hosts = sys.argv[1].split(",")
    print(clusterctl.run(where, 4, hosts=hosts), clusterctl.attach("where", hosts=hosts).cause)
"""
SCRIPT = "import os, sys; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], sys.prefix)\n"
ROOT = Path(__file__).parents[2]


def test_a_script_on_hosts_without_any_file(make_lab: Callable[..., Lab]) -> None:
    """The files that it used are shown and none is written, a venv in the home is found, the run is found again.

    A function of a program is called there too.
    """
    lab = make_lab(n=2)
    first, home = lab.nodes[0], lab.plan.account.home
    hosts = ",".join(node.plan.host for node in lab.nodes)
    for node in lab.nodes:
        node.run(["ln", "-s", sys.prefix, f"{home}/venv"])
    first.run(["mkdir", "-p", f"{home}/.ssh", f"{home}/project"])
    files = {
        ".ssh/id_ed25519": (lab.directory / "id_ed25519").read_text(),
        ".ssh/known_hosts": (lab.directory / "known_hosts").read_text(),
        "project/train.py": SCRIPT,
        "call.py": PROGRAM,
    }
    for name, text in files.items():
        first.run(["sh", "-c", f"umask 077; cat > {home}/{name}"], input=text)
    words = ["env", "-C", f"{home}/project", f"PYTHONPATH={ROOT}", *COMMAND, "--hosts", hosts]

    launched = first.run([*words, "launch", "train.py"], timeout=120, check=False)
    status = first.run([*words, "status"], timeout=60, check=False)
    program = ["env", "-C", home, f"PYTHONPATH={ROOT}", sys.executable, "call.py", hosts]
    called = first.run(program, timeout=120, check=False)

    assert launched.returncode == 0, launched.stderr
    assert sorted(line.split(" | ")[1] for line in launched.stdout.splitlines()) == [
        f"rank {rank} of 2 {home}/venv" for rank in (0, 1)
    ]
    assert "inventory.yaml:\n  cluster: project\n  python: ~/venv/bin/python\n  nodes:\n" in launched.stderr
    assert f"  nic: [{lab.nodes[1].plan.training_nic}]" in launched.stderr
    assert "job.yaml:\n  name: train\n  script: train.py\n" in launched.stderr
    assert "  nproc_per_node: 1\n  backend: gloo\n" in launched.stderr
    host_words = " ".join(node.plan.host for node in lab.nodes)
    assert f"to write both files: clusterctl init {host_words} --script train.py" in launched.stderr
    assert first.run(["ls", f"{home}/project"]).stdout.split() == ["train.py"]
    assert (status.returncode, "SUCCEEDED" in status.stdout) == (0, True)
    results = [[rank, 4, f"{home}/venv"] for rank in (0, 1)]
    assert (called.stdout, called.stderr) == (f"{results} None\n", "")
    assert running_processes(lab) == {}
