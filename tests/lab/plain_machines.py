"""Machines as a stranger has them: an own sshd, a plain user with a password and no key, other ports, conda or nothing.

They are nodes of a lab in which a second sshd runs. All of it lies in the nodes' own /tmp and ends with the lab.
"""

from __future__ import annotations

import base64
import io
import json
import os
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from wheels import make_wheel

from clusterctl.lab.labs import Lab

PASSWORD = "right horse"
HASH = "$6$clusterctl$DkWEabRoX4k7JY/WW8MM6UwUrxqFgWAstZxnZpz3zoXs3wRPKzKF0vQeEuEW8JbyhM93jKfuv.5AdpvuFtaFU/"
UID = 61234
CONDA = "miniconda3/envs/train"

# Run as the root of a node. Prints what the plain user cannot read, if anything is missing for the test.
SET_UP = r"""
import base64, io, json, os, shutil, subprocess, sys, tarfile
from pathlib import Path
given = json.loads(sys.argv[1])
top, uid = Path("/tmp/site"), given["uid"]
home = top / "home"
home.mkdir(parents=True)
top.chmod(0o755)

def can_use(path):
    child = os.fork()
    if child == 0:
        os.setgid(uid)
        os.setuid(uid)
        os._exit(0 if os.access(path, os.R_OK) else 1)
    return os.waitpid(child, 0)[1] == 0

python = next((path for path in given["pythons"] if os.path.exists(path) and can_use(path)), None)
if python is None or not can_use(given["packages"] + "/torch/version.py"):
    print("closed")
    sys.exit()
with tarfile.open(fileobj=io.BytesIO(base64.b64decode(sys.stdin.read()))) as archive:
    archive.extractall(top / "wheels")
(top / "bin").mkdir()
(top / "bin" / "python3").symlink_to(python)
if given["conda"]:
    prefix = home / given["conda"]
    subprocess.run([python, "-m", "venv", "--without-pip", prefix], check=True)
    packages = next(prefix.glob("lib/python3*")) / "site-packages"
    for path in Path(given["packages"]).iterdir():
        if not (packages / path.name).exists():
            (packages / path.name).symlink_to(path)
for path in [home, *home.rglob("*")]:
    os.chown(path, uid, uid, follow_symlinks=False)
account = f"trainer:x:{uid}:{uid}::{home}:/bin/sh\n"
(top / "passwd").write_text(Path("/etc/passwd").read_text() + account)
(top / "shadow").write_text(Path("/etc/shadow").read_text() + f"trainer:{given['hash']}:19000:0:99999:7:::\n")
for name in ("passwd", "shadow"):
    subprocess.run(["mount", "--bind", top / name, f"/etc/{name}"], check=True)
subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", top / "host"], check=True)
pip = f"PIP_NO_INDEX=1 PIP_FIND_LINKS={top}/wheels PIP_CONFIG_FILE=/dev/null"
(top / "config").write_text(
    f"PasswordAuthentication yes\nUsePAM no\nHostKey {top}/host\nPidFile {top}/pid\nPort {given['port']}\n"
    f"SetEnv PATH={top}/bin:/usr/bin:/bin {pip}\n"
)
os.makedirs("/run/sshd", exist_ok=True)
subprocess.run([shutil.which("sshd", path="/usr/sbin:/usr/local/sbin"), "-f", top / "config"], check=True)
print("ready")
"""

# The torch that pip installs is the real one of this environment; the wheel only leads to it.
TO_TORCH = """import sys
own = [path for path in sys.path if path.endswith("site-packages") and path != {packages!r}]
sys.path[:] = [path for path in sys.path if path not in own] + [{packages!r}]
del sys.modules["torch"]
import torch
sys.path[-1:-1] = own
"""


@dataclass(frozen=True)
class PlainMachine:
    """A node of the lab as a machine of its own."""

    address: str
    port: int
    conda: bool


def set_up(lab: Lab, machines: list[PlainMachine], folder: Path) -> str:
    """Start the machines' own sshd; returns why the test cannot run here, empty if it can."""
    packages = str(next(Path(path) for path in sys.path if (Path(path) / "torch" / "version.py").is_file()))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    wheels = base64.b64encode(pack_wheels(folder, packages)).decode()
    for node, machine in zip(lab.nodes, machines, strict=True):
        given = {
            "uid": UID,
            "hash": HASH,
            "port": machine.port,
            "conda": CONDA if machine.conda else "",
            "packages": packages,
            "pythons": [f"{sys.base_prefix}/bin/python3", f"/usr/bin/python{version}"],
        }
        done = node.run([lab.plan.python, "-c", SET_UP, json.dumps(given)], input=wheels, timeout=120)
        if done.stdout.strip() != "ready":
            return "a plain user can read neither this Python nor its torch"
    return ""


def pack_wheels(folder: Path, packages: str) -> bytes:
    """Make the wheels that the machines install from, as a tar."""
    tree = folder / "tree" / "torch"
    tree.mkdir(parents=True)
    text = (Path(packages) / "torch" / "version.py").read_text()
    version = next(line for line in text.splitlines() if line.startswith("__version__")).split("'")[1]
    (tree / "__init__.py").write_text(TO_TORCH.format(packages=packages))
    (tree / "version.py").write_text(text)
    files = [make_wheel(folder / "wheels", "torch", version.partition("+")[0], tree=folder / "tree")]
    files += [
        make_wheel(folder / "wheels", "numpy", "2.0", tree=folder / "none")
    ]  # the real one comes with torch
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file in files:
            archive.add(file, file.name)
    return packed.getvalue()


def write_ssh_config(lab: Lab, machines: list[PlainMachine], folder: Path) -> Path:
    """Write how ssh gets into the lab, and nothing else that a stranger's machine would not know."""
    proxy = next(line for line in lab.ssh_config.read_text().splitlines() if "ProxyCommand" in line)
    path = folder / "ssh_config"
    # Beside the known host keys: a way into the lab's network for our own login, as ssh has one by the proxy command.
    (folder / "control").symlink_to(lab.directory / "control")
    known = f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile none\n  IdentityAgent none\n"
    path.write_text(f"Host {' '.join(machine.address for machine in machines)}\n{known}{proxy}\n")
    return path


def environment(home: Path) -> dict[str, str]:
    """Return what a command sees that runs for a user with an empty home."""
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "PYTHONPATH", "LANG")}
    return {**kept, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "TERM": "xterm"}
