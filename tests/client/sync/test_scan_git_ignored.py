"""Git itself decides what the `.gitignore` files of a tree ignore; nothing else of a repository counts."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from clusterctl.client.sync.scan import list_git_ignored, scan_source

TREES = 60
PLAIN_NAMES = (
    r"a b ab foo bar foobar a.py b.py x.txt é é.txt [x] * !a #c b\c ] - ^ A 1 _ a-b 中文 aab abab A.PY Foo"
)
PLAIN_ATOMS = r"""
    a b foo bar * ** ? / / **/ /** /**/ *.py [ab] [!a] [^a-c] []-] [a\]b] [[:alpha:]] [[:digit:]_] [[:foo:]]
    [ \ \* é [é] ! # [a- [z-a] *** x.txt [[:] [:] [a-\b] [!]] - ] [[:alpha:]-z] [[:punct:]] \/ 中 ??
    []a] [!]a] [[:upper:]] [[:lower:]]* [![:alpha:]] [[:space:]] *a *b [A-z] F* /**\/ [[:alnum:][:punct:]] *[
"""
NAMES = [*PLAIN_NAMES.split(), "a b", "b ", " .x", "bar ", "new\nline", "\udcff"]
ATOMS = [*PLAIN_ATOMS.split(), "\\ ", " ", "\t"]


pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


def _pattern(rng: random.Random) -> str:
    text = "".join(rng.choice(ATOMS) for _ in range(rng.randint(1, 4)))
    start = rng.choice(["", "", "", "/", "!", "!/"])
    end = rng.choice(["", "", "", "", "/", " ", "  ", "\r"])
    return start + text + end


def _grow(rng: random.Random, folder: Path, depth: int) -> None:
    folder.mkdir()
    for name in rng.sample(NAMES, rng.randint(1, 6)):
        path = folder / name
        if depth < 3 and rng.random() < 0.5:
            _grow(rng, path, depth + 1)
        elif rng.random() < 0.1:
            path.symlink_to(rng.choice([".", "a", "nowhere"]))
        else:
            path.touch()
    if rng.random() < (0.9 if depth == 0 else 0.35):
        lines = "\n".join(_pattern(rng) for _ in range(rng.randint(1, 4)))
        text = rng.choice(["", "", "", "\ufeff"]) + lines + rng.choice(["\n", ""])
        (folder / ".gitignore").write_bytes(text.encode())


def _git(top: Path, *words: str) -> bytes:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(top)}
    command = ["git", "-c", "core.excludesFile=/dev/null", *words]
    return subprocess.run(command, cwd=top, env=env, check=True, capture_output=True).stdout


def sent(root: Path, *exclude: str) -> set[str]:
    """List the files that would be sent, and the empty directories."""
    return {entry.path for entry in scan_source(root, exclude=exclude).manifest.entries}


@pytest.mark.parametrize("seed", [1, 2])
def test_random_trees_are_read_as_git_reads_them(tmp_path: Path, seed: int) -> None:
    """Hundreds of random trees and patterns, nested files included: the same files as git's in a repository."""
    rng = random.Random(seed)
    _git(tmp_path, "init", "-q")
    for index in range(TREES):
        _grow(rng, tmp_path / f"t{seed}{index}", 0)
    out = _git(tmp_path, "ls-files", "-co", "--exclude-standard", "-z")
    expected = {os.fsdecode(name) for name in out.split(b"\0") if name}
    ignored = list_git_ignored(tmp_path, tmp_path, ()) or frozenset()
    found = set()
    for folder, folders, files in os.walk(tmp_path):
        below = "" if folder == str(tmp_path) else f"{Path(folder).relative_to(tmp_path)}/"
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = [name for name in folders if f"{below}{name}/" not in ignored and name != ".git"]
        folders[:] = [name for name in folders if name not in links]
        found |= {f"{below}{name}" for name in [*files, *links]} - ignored
    assert found == expected
    assert len(expected) > TREES, "the trees are not nearly empty"


def plant(root: Path, **texts: str) -> Path:
    """Write files; `__` in a name is a slash, `_` a dot."""
    for name, text in texts.items():
        file = root / name.replace("__", "/").replace("_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_a_directory_in_which_all_is_ignored_is_sent_empty(tmp_path: Path) -> None:
    """A script expects its folder for logs; a folder that is ignored itself is not sent."""
    plant(tmp_path, a_py="", logs__x_log="", logs__deep__y_log="", out__z="", _gitignore="*.log\nout/\n")
    assert sent(tmp_path) == {".gitignore", "a.py", "logs/deep"}


def test_the_list_of_the_job_comes_first(tmp_path: Path) -> None:
    """It excludes what git would take, and includes what a `.gitignore` ignores, also in a folder of a checkout."""
    top = plant(
        tmp_path, _gitignore="*.bin\n", play__a_bin="", play__b_bin="", play__data__x="", play__play__y=""
    )
    (top / ".git").mkdir()
    assert sent(top / "play", "!a.bin", "data/") == {"a.bin", "play/y"}
    assert sent(top / "play", "play") == {"data/x"}


def test_a_folder_that_its_checkout_ignores_is_sent(tmp_path: Path) -> None:
    """Its own files count; many keep their experiments out of git."""
    plant(tmp_path, _gitignore="exp/\n", exp__a_py="", exp__b_log="", exp___gitignore="*.log\n")
    (tmp_path / ".git").mkdir()
    assert sent(tmp_path / "exp") == {".gitignore", "a.py"}


def test_a_repository_in_the_source_has_its_own_rules(tmp_path: Path) -> None:
    """A submodule, or a clone that git does not know of."""
    plant(
        tmp_path, a_py="", vendor__b_py="", vendor__b_o="", vendor___gitignore="*.o\n", vendor___git__HEAD=""
    )
    _git(tmp_path / "vendor", "init", "-q")
    assert sent(tmp_path) == {"a.py", "vendor/.gitignore", "vendor/b.py"}


def test_nothing_of_a_repository_counts_but_its_rule_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its index, `info/exclude`, settings or owner, and no program that they name is run."""
    plant(tmp_path, a_py="", b_log="", c_txt="", _gitignore="*.log\n")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "-f", "b.log")
    (tmp_path / ".git/info/exclude").write_text("*.txt\n")
    _git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path}/ran; false")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / ".git"))
    assert sent(tmp_path) == {".gitignore", "a.py", "c.txt"}
    assert not (tmp_path / "ran").exists()


def test_without_git_the_rule_files_are_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual patterns mean the same, also above the source and below it."""
    top = plant(tmp_path, _gitignore="*.log\n/play/out/\n", play__a_py="", play__a_log="", play__out__x="")
    plant(top, play__sub___gitignore="!keep.log\n", play__sub__keep_log="", play__sub__b_log="")
    (top / ".git").mkdir()
    with_git = sent(top / "play")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert sent(top / "play") == with_git == {"a.py", "sub/.gitignore", "sub/keep.log"}


def test_no_pattern_of_a_tree_blows_up(tmp_path: Path) -> None:
    """Another person may have written it: git ends long before its limit where trying all ways would take years."""
    patterns = "*a" * 30 + "b\n/" + "**/*a*a/" * 12 + "b\n"
    plant(tmp_path, **{"a" * 250: "", "_gitignore": patterns})
    assert list_git_ignored(tmp_path, tmp_path, ()) == frozenset()
