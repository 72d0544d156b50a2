"""What `.gitignore` and `sync.exclude` mean, judged by git itself."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import FrameType

import pytest

from clusterctl.errors import UsageError
from clusterctl.plans.sync.ignore import (
    LARGEST_GITIGNORE,
    LONGEST_RULE,
    MAX_RULES,
    IgnoreRules,
    compile_pattern,
    make_ignore_rules,
)

TREES = 120
LETTERS = 200
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


def ignored(path: str, *lines: str, exclude: tuple[str, ...] = (), is_dir: bool = False) -> bool:
    """Ask about one path below a root whose `.gitignore` has these lines."""
    return make_ignore_rules(exclude).with_gitignore("", "\n".join(lines).encode()).ignores(path, is_dir)


@pytest.mark.parametrize(
    ("path", "lines", "expected"),
    [
        ("a.log", ["*.log"], True),
        ("deep/a.log", ["*.log"], True),
        ("deep/a.log", ["/*.log"], False),
        ("a.log", ["*.log", "!a.log"], False),
        ("a.log", ["!a.log", "*.log"], True),
        ("doc/a.txt", ["doc/*.txt"], True),
        ("doc/b/a.txt", ["doc/*.txt"], False),
        ("doc/b/a.txt", ["doc/**/*.txt"], True),
        ("x/doc/a.txt", ["doc/*.txt"], False),
        ("x/doc/a.txt", ["**/doc/*.txt"], True),
        ("#a", ["#a"], False),
        ("#a", ["\\#a"], True),
        ("!a", ["\\!a"], True),
        ("a", ["a   "], True),
        ("a ", ["a\\ "], True),
        ("a\t", ["a\t"], True),
        ("a", ["a\r"], True),
        ("a[", ["a["], False),
        ("b", ["[!a]"], True),
        ("é", ["?"], False),
        ("é", ["??"], True),
        ("axbxa", ["*a*a"], True),
        ("aba", ["a*ba*a"], False),
        ("]", ["[]a]"], True),
        ("A", ["[[:lower:]]"], False),
        ("A.PY", ["*.py"], False),
        ("x/a/y/a/b", ["x/**/a/b"], True),
        ("a/b/c/b/d", ["a/**/b/d/**"], False),
        ("a/b/c/b/d", ["a/**/b/**"], True),
        ("a/c/b/x/c/d", ["a/**/c/**/c/*"], True),
        ("a", ["**/**/a"], True),
        ("a/b", ["/*b"], False),
    ],
)
def test_patterns(path: str, lines: list[str], expected: bool) -> None:
    """Each of git's rules of thumb holds."""
    assert ignored(path, *lines) is expected


def test_a_slash_at_the_end_means_a_directory() -> None:
    """`out/` leaves a file, or a link, of that name alone."""
    assert ignored("out", "out/", is_dir=True)
    assert not ignored("out", "out/")


def test_a_deeper_file_wins_below_its_folder_only() -> None:
    """The nearest `.gitignore` decides; its anchored patterns begin at its own folder."""
    outer = make_ignore_rules(()).with_gitignore("", b"*.bin\n/top")
    inner = outer.with_gitignore("keep", b"!w.bin\n/top")
    assert not inner.ignores("keep/w.bin", False)
    assert inner.ignores("keep/top", False)
    assert not inner.ignores("keep/deep/top", False)
    assert outer.ignores("w.bin", False)


def test_exclude_beats_a_re_inclusion() -> None:
    """The job's own list has the last word and is anchored at the source root."""
    assert ignored("data/x", "!data/x", exclude=("/data/*",))
    assert not ignored("sub/data/x", exclude=("/data/*",))
    assert not ignored("a.log", "*.log", exclude=("!a.log",))


@pytest.mark.parametrize("name", [".git", "__pycache__", "m.pyc"])
def test_some_names_never_travel(name: str) -> None:
    """No rule can bring git's own folder or compiled Python back."""
    assert ignored(name, "!*", exclude=("!*",), is_dir=name != "m.pyc")
    assert ignored(f"deep/{name}", "!*", exclude=("!*",), is_dir=name != "m.pyc")


def test_rules_above_the_source_root_hold() -> None:
    """A source that is part of a checkout obeys the `.gitignore` files above it, each from its own place."""
    above = [("", b"*.ckpt\n/play/a/out\n/out"), ("play", b"/a/tmp\n/tmp")]
    rules = make_ignore_rules(("/mine",), prefix="play/a", above=above)
    assert [rules.ignores(path, False) for path in ("x.ckpt", "out", "tmp", "mine")] == [True] * 4
    assert not rules.ignores("deep/out", False)
    assert not rules.ignores("deep/mine", False)


@pytest.mark.parametrize(
    ("shape", "name"),
    [
        (lambda size: b"*a" * size + b"b", lambda size: "a" * (LETTERS * size)),
        (lambda size: b"*[ab]" * size + b"c", lambda size: "a" * (LETTERS * size)),
        (lambda size: b"a/" + b"**/a/" * size + b"b", lambda size: "a/" * (LETTERS * size) + "c"),
        (lambda size: b"/" + b"**/*a*a/" * size + b"b", lambda size: "aaaaa/" * (LETTERS * size) + "c"),
        (lambda size: b"**/" * size + b"*/" * size + b"b", lambda size: "a/" * (LETTERS * size) + "c"),
    ],
    ids=["stars", "sets", "components", "both", "many gaps"],
)
def test_no_pattern_blows_up(shape: Callable[[int], bytes], name: Callable[[int], str]) -> None:
    """The steps grow at most with the square of the sizes: twice the stars and letters, no more than four times.

    What is counted are calls, of Python and of C; each call in C is one literal search, or a regular expression
    that repeats nothing.
    """
    before, after = (_steps(shape(size), name(size)) for size in (13, 26))
    assert after <= 4 * before + 10
    assert before < 100_000


def _steps(pattern: bytes, name: str) -> int:
    rules = make_ignore_rules(()).with_gitignore("", pattern)
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    assert not rules.ignores(name, False)
    sys.setprofile(count)
    try:
        rules.ignores(name, False)
    finally:
        sys.setprofile(None)
    return calls


def test_regular_expressions_repeat_nothing() -> None:
    """Only sets and literal bytes stand in a regular expression, each exactly once."""
    for text in (b"*[a-c]?x*.[!0-9]*\\*", b"a[*]/**/?+[[:digit:]]{2}*/b?"):
        found = list(_expressions(compile_pattern(text, by_name=b"/" not in text)))
        assert found
        for expression in found:
            opened = expression.replace(b"[^", b"[").split(b"]")
            assert all(re.fullmatch(rb"\[(\\x[0-9a-f]{2})+", part) for part in opened[:-1]), expression
            assert not opened[-1]


def _expressions(value: object) -> Iterator[bytes]:
    if isinstance(value, re.Pattern):
        yield value.pattern
    elif is_dataclass(value):
        yield from _expressions(list(vars(value).values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _expressions(item)


def test_rules_without_end_are_refused() -> None:
    """Too many rules, a rule too long and a file too large each end in an error that reports where."""
    deep = make_ignore_rules(("*.a",)).with_gitignore("", b"*.x\n" * (MAX_RULES - 1))
    cases = [
        (lambda: deep.with_gitignore("sub", b"*.y\n"), "sub/.gitignore"),
        (
            lambda: make_ignore_rules(()).with_gitignore("", b"a\n" + b"b" * (LONGEST_RULE + 1)),
            ".gitignore:2",
        ),
        (lambda: make_ignore_rules(()).with_gitignore("", b"#" * (LARGEST_GITIGNORE + 1)), ".gitignore"),
        (lambda: make_ignore_rules(("a", "b" * (LONGEST_RULE + 1))), "sync.exclude[1]"),
    ]
    for grow, place in cases:
        with pytest.raises(UsageError) as refusal:
            grow()
        assert refusal.value.code == "CC-SYNC-013"
        assert place in refusal.value.message


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


def _walk(folder: Path, ignore: IgnoreRules, below: str = "") -> Iterator[str]:
    rules = folder / ".gitignore"
    if rules.is_file():
        ignore = ignore.with_gitignore(below, rules.read_bytes())
    for entry in folder.iterdir():
        path = f"{below}/{entry.name}" if below else entry.name
        is_dir = entry.is_dir() and not entry.is_symlink()
        if ignore.ignores(path, is_dir):
            continue
        if is_dir:
            yield from _walk(entry, ignore, path)
        else:
            yield path


def _git(top: Path, *words: str) -> bytes:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(top)}
    command = ["git", "-c", "core.excludesFile=/dev/null", *words]
    return subprocess.run(command, cwd=top, env=env, check=True, capture_output=True).stdout


@pytest.mark.process
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", [1, 2])
def test_random_trees_are_read_as_git_reads_them(tmp_path: Path, seed: int) -> None:
    """Hundreds of random trees and patterns, nested files and `exclude` included: the same files as git's."""
    rng = random.Random(seed)
    _git(tmp_path, "init", "-q")
    exclude = [f"/t{seed}*/{line}" for line in ("[b-d]*", "foo/**/*.py", "!x.txt")]
    for index in range(TREES):
        _grow(rng, tmp_path / f"t{seed}{index}", 0)
    words = [f"--exclude={line}" for line in exclude]
    out = _git(tmp_path, "ls-files", "-co", "--exclude-standard", "-z", *words)
    expected = {os.fsdecode(name) for name in out.split(b"\0") if name}
    odd = sorted(expected.symmetric_difference(_walk(tmp_path, make_ignore_rules(exclude))))
    tree = tmp_path / (odd[0] if odd else "").split("/")[0]
    rules = {path: path.read_bytes() for path in tree.rglob(".gitignore")} if odd else {}
    assert not odd, f"{odd[:5]} by {rules}"
    assert len(expected) > TREES, "the trees are not nearly empty"
