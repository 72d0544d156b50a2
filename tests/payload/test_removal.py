"""What is removed is gone, whatever modes a job has left, and nothing that a link leads to."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534

# An ordinary user, for whom modes count; the interpreter may lie where he cannot go, so all is imported before.
BEGIN = f"""
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from clusterctl.payload.removal import remove_tree
if os.geteuid() == 0:
    os.setgid({NOBODY})
    os.setuid({NOBODY})
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that anybody may use."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def run(folder: Path, program: str) -> list[str]:
    """Run a program as an ordinary user; gives the lines that it prints."""
    words = [sys.executable, "-I", "-B", "-c", BEGIN + program]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("mode", [0o555, 0o400, 0o000, 0o700])
def test_no_mode_keeps_a_tree(folder: Path, mode: int) -> None:
    """Read-only directories go, closed ones too; what a link leads to stays; every entry is a step."""
    program = f"""
os.makedirs("trash/run/code/deep/deeper")
open("trash/run/code/deep/file", "w").close()
os.mkdir("outside")
open("outside/kept", "w").close()
os.symlink(os.path.abspath("outside"), "trash/run/code/link")
for folder in ("trash/run/code/deep/deeper", "trash/run/code/deep", "trash/run/code", "trash/run"):
    os.chmod(folder, {mode})
steps, failed = [], []
remove_tree("trash/run", lambda: steps.append(1), lambda path, error: failed.append((path, error.strerror)))
print(os.listdir("trash"), os.listdir("outside"), len(steps) > 5, failed)
"""
    assert run(folder, program) == ["[] ['kept'] True []"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what an account may not remove")
def test_what_is_another_accounts_is_told(folder: Path) -> None:
    """The rest goes all the same."""
    (folder / "run" / "theirs").mkdir(parents=True)
    (folder / "run" / "theirs" / "file").touch()
    os.chown(folder / "run", NOBODY, NOBODY)
    program = """
open("run/mine", "w").close()
remove_tree("run", lambda: None, lambda path, error: print(path, error.strerror))
print(os.listdir("run"))
"""
    assert run(folder, program) == [
        "run/theirs/file Permission denied",
        "run/theirs Directory not empty",
        "run Directory not empty",
        "['theirs']",
    ]
