"""What git ignores in a source tree, by git itself: `.gitignore` files alone, and nothing of a repository.

    git ls-files -o -i --exclude-per-directory=.gitignore     with an empty repository in a temporary directory

So an index, hooks, a file system monitor, owners and settings of the user or of the tree change nothing: the same tree
gives the same result on every machine, and a tree of another person runs no program.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from clusterctl.client.local.programs import ProgramLimits, run_program
from clusterctl.plans.sync.ignore import anchored

LIMITS = ProgramLimits(30.0, 64 << 20)
NO_SETTINGS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
IGNORED = 0  # exit code of `git check-ignore`


def list_git_ignored(folder: Path, top: Path, exclude: Sequence[str]) -> frozenset[str] | None:
    """Return the ignored files and, with a slash at the end, directories below a folder; None without git.

    `top` is the top of the checkout, whose rules count too; where they ignore the folder itself, only its own do.
    `exclude` keeps git out of directories that are not sent anyway.
    """
    try:
        with TemporaryDirectory(prefix="clusterctl-git-") as repository:
            _make_repository(Path(repository))
            if (
                folder != top
                and _run(repository, top, top, "check-ignore", "-q", "--", str(folder))[0] == IGNORED
            ):
                top = folder
            prefix = "" if folder == top else str(folder.relative_to(top))
            rules = [f"--exclude={anchored(line, prefix)}" for line in exclude if line.strip("!/ ")]
            rules.append("--exclude-per-directory=.gitignore")
            status, output = _run(
                repository, top, folder, "ls-files", "-o", "-i", "--directory", "-z", *rules
            )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return _without_full_directories(output) if status == 0 else None


def _make_repository(folder: Path) -> None:
    """Make the least that git takes for a repository: no settings, no hooks, no index."""
    for name in ("objects", "refs"):
        (folder / name).mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n", encoding="ascii")


def _run(repository: str, top: Path, folder: Path, *arguments: str) -> tuple[int, bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_DIR": repository, "GIT_WORK_TREE": str(top), **NO_SETTINGS}
    command = ["git", "-c", f"core.excludesFile={os.devnull}", "-C", str(folder), *arguments]
    status, stdout, _ = run_program(command, LIMITS, environment)
    return status, stdout


def _without_full_directories(output: bytes) -> frozenset[str]:
    """Leave out the directories that git lists only because all that is in them is ignored: they are sent empty."""
    names = {name.decode("utf-8", "surrogateescape") for name in output.split(b"\0") if name}
    return frozenset(names - {name.rstrip("/").rpartition("/")[0] + "/" for name in names} - {"./"})
