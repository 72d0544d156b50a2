"""A job on the oldest Python that this machine has, as a node would have it; refused below 3.8."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Server
from waiting import HANG

from clusterctl.client.ssh.config import passwd_home
from inventories import inventory

OLDEST = (3, 8)


def find_interpreters() -> dict[tuple[int, int], str]:
    """Find one interpreter of each version, on PATH and where pyenv puts them."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    places = [*folders, *sorted(passwd_home().glob(".pyenv/versions/*/bin"))]
    found = {sys.version_info[:2]: sys.executable}
    for folder in places:
        for path in folder.glob("python3.*") if folder.is_dir() else ():
            version = re.fullmatch(r"python3\.(\d+)", path.name)
            if version and "shims" not in path.parts:
                found.setdefault((3, int(version[1])), str(path))
    return found


FOUND = find_interpreters()
ABLE = sorted(version for version in FOUND if version >= OLDEST)
TOO_OLD = sorted(version for version in FOUND if version < OLDEST)[-1:]


def launch(folder: Path, server: Server, python: str) -> subprocess.CompletedProcess[str]:
    """Launch a job that needs no torch, over a real sshd."""
    (folder / "train.py").write_text("import sys; print('hello from', sys.version_info[:2])")
    (folder / "job.yaml").write_text(
        "name: j\nscript: train.py\nlauncher: python\nbackend: gloo\nnproc_per_node: 1\n"
    )
    text = inventory(server, "paramiko").replace(sys.executable, python)
    (folder / "inventory.yaml").write_text(re.sub(r"config: [^,]*", "config: none", text))
    words = [sys.executable, "-m", "clusterctl", "launch", "--ignore-checks", "job.yaml"]
    env = {**os.environ, "XDG_STATE_HOME": str(server.folder / "state")}
    return subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=HANG, check=False
    )


@pytest.mark.parametrize("version", ABLE[:1], ids=lambda version: f"{version[0]}.{version[1]}")
def test_a_job_runs(tmp_path: Path, server: Server, version: tuple[int, int]) -> None:
    """Agent, guardian and workers do with what the node has."""
    done = launch(tmp_path, server, FOUND[version])

    assert done.returncode == 0, done.stderr
    assert f"hello from {version}" in done.stdout


@pytest.mark.parametrize("version", TOO_OLD)
def test_an_older_one_is_refused(tmp_path: Path, server: Server, version: tuple[int, int]) -> None:
    """By name, before anything starts."""
    done = launch(tmp_path, server, FOUND[version])

    assert done.returncode == 3
    assert "CC-PY-002" in done.stdout + done.stderr
