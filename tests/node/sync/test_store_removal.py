"""What is removed is gone, whatever modes a job has left, and nothing that a link leads to."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NOBODY = 65534

# An ordinary user, for whom modes count; the interpreter may lie where he cannot go, so all is imported before.
BEGIN = f"""
import os, shutil, sys
sys.path.insert(0, {str(ROOT)!r})
from clusterctl.node.sync.removal import remove_tree
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
def test_what_is_another_accounts_is_reported(folder: Path) -> None:
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


def test_what_another_removes_at_the_same_time_is_no_error(folder: Path) -> None:
    """Nodes that share a home empty the same trash: its tree vanishes before, while and after it is read."""
    program = """
failed, gone = [], []
def tell(path, error):
    failed.append((path, error.strerror))
remove_tree("never", lambda: None, tell)
for moment in range(1, 12):
    os.makedirs("trash/run/code/deep")
    for name in ("a", "code/b", "code/deep/c"):
        open("trash/run/" + name, "w").close()
    steps = []
    def step():
        steps.append(1)
        if len(steps) == moment:
            shutil.rmtree("trash/run")
    remove_tree("trash/run", step, tell)
    gone.append(not os.path.exists("trash/run"))
    shutil.rmtree("trash")
print(all(gone), failed)
"""
    assert run(folder, program) == ["True []"]


def test_two_may_remove_one_tree(folder: Path) -> None:
    """Two processes begin together with a tree of some size: neither fails, and nothing of it is left."""
    program = """
for number in range(40):
    os.makedirs(f"trash/run/{number}/deep")
    for name in range(10):
        open(f"trash/run/{number}/deep/{name}", "w").close()
ours, theirs = os.pipe(), os.pipe()
child = os.fork()
mine = theirs if child else ours
os.write((ours if child else theirs)[1], b"x")
os.read(mine[0], 1)
failed = []
remove_tree("trash/run", lambda: None, lambda path, error: failed.append(path))
if not child:
    os._exit(1 if failed else 0)
print(os.waitpid(child, 0)[1], failed, os.listdir("trash"))
"""
    assert run(folder, program) == ["0 [] []"]
