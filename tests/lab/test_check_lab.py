"""`check` on nodes with real faults: each is found, on its node, and costs no other node its answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from driving import cctl

from clusterctl.lab.labs import Lab
from clusterctl.lab.labs import LabNode as Node

FOLDER = "/tmp/faulty"
# A file system whose server never answers: whoever looks at it waits, as for an NFS server that is gone.
DEAD_MOUNT = """
import ctypes, os, time
server = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={server},rootmode=40000,user_id=0,group_id=0"
libc = ctypes.CDLL(None, use_errno=True)
done = libc.mount(b"gone", b"/tmp/faulty/dead", b"fuse", 0, options.encode())
open("/tmp/faulty/mounted", "w").write("yes" if done == 0 else os.strerror(ctypes.get_errno()))
time.sleep(3600)
"""
# The program that the probe calls; sitecustomize puts the clock ahead in every Python of the node.
HANGING_SMI = "#!/bin/sh\nsleep 60\n"
LATE = "import time\n_now = time.time\ntime.time = lambda: _now() + 90\n"


def put(node: Node, path: str, text: str) -> None:
    """Write a program on a node."""
    script = f'mkdir -p $(dirname {path}) && printf %s "$1" > {path} && chmod 755 {path}'
    node.run(["sh", "-c", script, "sh", text])


def wrap_python(node: Node, settings: str, options: str = "") -> str:
    """Make a Python of the node's own that starts with some variables; gives its path."""
    path = f"{FOLDER}/python"
    put(node, path, f'#!/bin/sh\n{settings} exec {sys.executable} {options} "$@"\n')
    return path


def changed(lab: Lab, folder: Path, changes: dict[str, str]) -> Path:
    """Write the lab's inventory with more keys for some nodes."""
    text = lab.inventory.read_text(encoding="utf-8")
    for name, keys in changes.items():
        assert f"{{name: {name}," in text
        text = text.replace(f"{{name: {name},", f"{{name: {name}, {keys},")
    path = folder / f"inventory-{len(list(folder.iterdir()))}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def noisy(node: Node) -> Iterator[None]:
    """Let the node's login shell greet."""
    bashrc = f"{node.lab.plan.account.home}/.bashrc"
    node.run(
        ["sh", "-c", f"mv {bashrc} {bashrc}.kept 2>/dev/null; echo 'echo Welcome to the node' > {bashrc}"]
    )
    try:
        yield
    finally:
        node.run(["sh", "-c", f"rm -f {bashrc}; mv {bashrc}.kept {bashrc} 2>/dev/null"], check=False)


@contextmanager
def dead_mount(node: Node) -> Iterator[None]:
    """Mount what never answers; closing its descriptor ends all waiting."""
    put(node, f"{FOLDER}/server.py", DEAD_MOUNT)
    node.run(["mkdir", "-p", f"{FOLDER}/dead"])
    wait = f"while ! test -s {FOLDER}/mounted; do sleep 0.05; done"
    script = f"{sys.executable} {FOLDER}/server.py >/dev/null 2>&1 & echo $!; {wait}"
    pid = node.run(["sh", "-c", script]).stdout.strip()
    try:
        said = node.run(["cat", f"{FOLDER}/mounted"]).stdout
        if said != "yes":
            pytest.skip(f"no FUSE in a lab node: {said}")
        yield
    finally:
        node.run(["kill", "-9", pid], check=False)
        node.run(["umount", "-l", f"{FOLDER}/dead"], check=False)


def findings(told: dict[str, Any]) -> dict[str, tuple[list[str], str]]:
    """Give the nodes and the evidence of every finding by its code."""
    return {one["code"]: (one["nodes"], one["evidence"]) for one in told["findings"]}


def test_a_screen_full_of_faults(cluster: Lab, tmp_path: Path) -> None:
    """A noisy shell, an nvidia-smi that hangs beside another torch, and a dead mount under a wrong clock, at once."""
    if not Path("/dev/fuse").exists():
        pytest.skip("no /dev/fuse")
    loud, odd, dead = cluster.nodes[:3]
    put(odd, f"{FOLDER}/bin/nvidia-smi", HANGING_SMI)
    put(
        odd,
        f"{FOLDER}/lib/torch/version.py",
        "__version__ = '2.4.0'\ncuda = None\nhip = None\ngit_version = 'x'\n",
    )
    put(odd, f"{FOLDER}/lib/torch/__init__.py", "")
    put(dead, f"{FOLDER}/lib/sitecustomize.py", LATE)
    strange = wrap_python(odd, f"PATH={FOLDER}/bin:$PATH PYTHONPATH={FOLDER}/lib")
    late = wrap_python(dead, f"PYTHONPATH={FOLDER}/lib")
    changes = {odd.name: f"python: {strange}", dead.name: f"python: {late}, workdir: {FOLDER}/dead/work"}
    with ExitStack() as stack:
        stack.callback(
            lambda: [
                node.run(["rm", "-rf", "--one-file-system", FOLDER], check=False) for node in (odd, dead)
            ]
        )
        stack.enter_context(noisy(loud))
        stack.enter_context(dead_mount(dead))
        result = cctl(None, "-i", changed(cluster, tmp_path, changes), "check", "--json", "--skip", "NET")

    seen = findings(json.loads(result.out))
    assert result.code == 3, result.err
    assert seen["CC-SSH-023"] == ([loud.name], f"{loud.name}: it prints: Welcome to the node")
    assert seen["CC-GPU-009"][0] == [odd.name] and "no answer within" in seen["CC-GPU-009"][1]
    assert seen["CC-TORCH-002"][0] == [odd.name] and "2.4.0" in seen["CC-TORCH-002"][1]
    assert seen["CC-TIME-001"][0] == [dead.name] and "90." in seen["CC-TIME-001"][1]
    assert seen["CC-DISK-009"][0] == [dead.name] and f"{FOLDER}/dead/work" in seen["CC-DISK-009"][1]
    assert all(node["answered"] for node in json.loads(result.out)["nodes"])


def test_nodes_that_are_not_let_in_or_lack_torch(cluster: Lab, tmp_path: Path) -> None:
    """A closed port, no torch, and an unknown host key: three nodes, three codes, three remedies; exit code 4."""
    closed, bare, unknown = cluster.nodes[:3]
    python = wrap_python(bare, "", "-S")
    strange = tmp_path / "known_hosts"
    strange.write_text("")
    changes = {
        closed.name: "ssh: {proxy_command: 'false'}",
        bare.name: f"python: {python}",
        unknown.name: f"ssh: {{known_hosts: {strange}}}",
    }
    try:
        result = cctl(None, "-i", changed(cluster, tmp_path, changes), "check", "--json", "--skip", "NET")
    finally:
        bare.run(["rm", "-rf", FOLDER], check=False)

    seen = findings(json.loads(result.out))
    assert result.code == 4, result.err
    assert seen["CC-SSH-013"][0] == [closed.name]
    assert seen["CC-TORCH-001"][0] == [bare.name]
    assert seen["CC-SSH-009"][0] == [unknown.name]
    fixes = {one["code"]: one["fix"] for one in json.loads(result.out)["findings"]}
    assert "-m pip install torch" in fixes["CC-TORCH-001"]
