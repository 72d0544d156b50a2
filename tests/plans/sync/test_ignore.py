"""What `sync.exclude` means, and `.gitignore` files where there is no git."""

from __future__ import annotations

import pytest

from clusterctl.errors import UsageError
from clusterctl.plans.sync.ignore import (
    MAX_GITIGNORE,
    MAX_RULE,
    MAX_RULES,
    anchored,
    make_ignore_rules,
)


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


def test_rules_without_end_are_refused() -> None:
    """Too many rules, a rule too long and a file too large each end in an error that reports where."""
    deep = make_ignore_rules(("*.a",)).with_gitignore("", b"*.x\n" * (MAX_RULES - 1))
    cases = [
        (lambda: deep.with_gitignore("sub", b"*.y\n"), "sub/.gitignore"),
        (
            lambda: make_ignore_rules(()).with_gitignore("", b"a\n" + b"b" * (MAX_RULE + 1)),
            ".gitignore:2",
        ),
        (lambda: make_ignore_rules(()).with_gitignore("", b"#" * (MAX_GITIGNORE + 1)), ".gitignore"),
        (lambda: make_ignore_rules(("a", "b" * (MAX_RULE + 1))), "sync.exclude[1]"),
    ]
    for grow, place in cases:
        with pytest.raises(UsageError) as refusal:
            grow()
        assert refusal.value.code == "CC-SYNC-013"
        assert place in refusal.value.message


def test_malformed_patterns_match_nothing() -> None:
    """Git takes them without a word, and so does the job's list; a `#` in it begins no comment."""
    assert not ignored("a", "!", "[z-a]", "\\", "", "  ", "/")
    assert ignored("#a", exclude=("#a",))


def test_git_is_given_the_exclude_of_a_folder_in_a_checkout() -> None:
    """A name matches at every depth below the source and never above; signs of the folder's own name are no pattern."""
    lines = {"data/": "/a[[]b/**/data/", "/x/*.bin": "/a[[]b/x/*.bin", "!keep": "!/a[[]b/**/keep"}
    assert {line: anchored(line, "a[b") for line in lines} == {
        line: text.replace("[[]", "\\[") for line, text in lines.items()
    }
    assert anchored("data/", "") == "data/"
