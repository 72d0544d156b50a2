"""Which files of a source tree stay at home: `.gitignore` and `sync.exclude`, read as git reads them.

Names are matched as bytes, because git does: `?` is one byte, not one character. A directory that is
ignored is pruned, so nothing below it can be re-included. `.git`, `__pycache__` and `*.pyc` never travel,
whatever the rules say. Only the rule files count: git's index (a file that was added by force although it
is ignored), `.git/info/exclude` and `core.excludesFile` are not consulted, so that the same tree gives the
same result on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from clusterctl.errors import UsageError
from clusterctl.plans.wildmatch import NeverMatchesError, Pattern, compile_pattern

MOST_RULES = 10_000  # in force at one place
LONGEST_RULE = 4096  # bytes, as long as a path can be
LARGEST = 1 << 20  # bytes of one `.gitignore`


@dataclass(frozen=True)
class Rule:
    """One pattern: what it matches, and whether a match ignores or re-includes."""

    pattern: Pattern
    ignore: bool
    only_directories: bool
    by_name: bool  # no slash inside: matches the last component at any depth


@dataclass(frozen=True)
class Level:
    """The rules of one file; `start` is the length of the folder it lies in, with its slash."""

    start: int
    rules: tuple[Rule, ...]

    @cached_property
    def _for_directories(self) -> tuple[Rule, ...]:
        return self.rules[::-1]

    @cached_property
    def _for_files(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self._for_directories if not rule.only_directories)

    def verdict(self, path: bytes, name: bytes, is_dir: bool) -> bool | None:
        """Say whether the last matching rule ignores; None if none matches."""
        below = path[self.start :]
        for rule in self._for_directories if is_dir else self._for_files:
            if rule.pattern.matches(name if rule.by_name else below):
                return rule.ignore
        return None


@dataclass(frozen=True)
class Ignore:
    """The rules in force inside one directory; grows while walking down.

    `prefix` is the source root as seen from the top of its git checkout, with a slash at the end, or empty.
    """

    excludes: Level
    levels: tuple[Level, ...] = ()
    prefix: bytes = b""

    def entering(self, folder: str, gitignore: bytes) -> Ignore:
        """Add the `.gitignore` of `folder`, a path below the source root ("" is the root itself)."""
        base = self.prefix + (_raw(folder) + b"/" if folder else b"")
        return self._with_level(base, gitignore)

    def _with_level(self, base: bytes, text: bytes) -> Ignore:
        place = base.decode("utf-8", "surrogateescape") + ".gitignore"
        if len(text) > LARGEST:
            raise _refused(f"{place} is larger than {LARGEST >> 20} MiB")
        rules = tuple(parse_rules(text, place))
        count = len(self.excludes.rules) + sum(len(level.rules) for level in self.levels) + len(rules)
        if count > MOST_RULES:
            raise _refused(f"{count} ignore rules hold at {place}, more than {MOST_RULES}")
        return replace(self, levels=(*self.levels, Level(len(base), rules))) if rules else self

    def ignores(self, path: str, is_dir: bool) -> bool:
        """Say whether `path`, below a directory that is itself not ignored, stays at home."""
        full = self.prefix + _raw(path)
        name = full.rpartition(b"/")[2]
        if name in {b".git", b"__pycache__"} or name.endswith(b".pyc"):
            return True
        for level in (self.excludes, *reversed(self.levels)):
            verdict = level.verdict(full, name, is_dir)
            if verdict is not None:
                return verdict
        return False


def rules_of(exclude: Iterable[str], *, prefix: str = "", above: Iterable[tuple[str, bytes]] = ()) -> Ignore:
    """Start at the source root with the job's `exclude` and the `.gitignore` files above the root.

    `above` holds (folder seen from the top of the checkout, text), topmost first; `prefix` is the source root
    seen from there.
    """
    lead = _raw(prefix) + b"/" if prefix else b""
    lines = (_rule(_trimmed(_raw(line)), f"sync.exclude[{index}]") for index, line in enumerate(exclude))
    rules = tuple(rule for rule in lines if rule)
    ignore = Ignore(Level(len(lead), rules), (), lead)
    for folder, text in above:
        ignore = ignore._with_level(_raw(folder) + b"/" if folder else b"", text)
    return ignore


def parse_rules(text: bytes, place: str) -> Iterator[Rule]:
    """Read a `.gitignore`; malformed patterns match nothing, as in git."""
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.startswith(b"#"):
            continue
        rule = _rule(_trimmed(line.removesuffix(b"\r")), f"{place}:{number}")
        if rule is not None:
            yield rule


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _trimmed(line: bytes) -> bytes:
    """Cut trailing spaces, except one that a backslash protects; a NUL ends the line for git."""
    line = line.split(b"\0", 1)[0]
    bare = line.rstrip(b" ")
    escaped = (len(bare) - len(bare.rstrip(b"\\"))) % 2 == 1
    return line[: len(bare) + 1] if escaped else bare


def _refused(message: str) -> UsageError:
    fix = "cut it down: ignore a directory by one rule instead of its files by many"
    return UsageError(message, code="CC-SYNC-013", fix=fix)


def _rule(line: bytes, place: str) -> Rule | None:
    if len(line) > LONGEST_RULE:
        raise _refused(f"the ignore rule at {place} is longer than {LONGEST_RULE} bytes")
    ignore = not line.startswith(b"!")
    pattern = line if ignore else line[1:]
    only_directories = pattern.endswith(b"/")
    pattern = pattern[:-1] if only_directories else pattern
    by_name = b"/" not in pattern
    pattern = pattern.removeprefix(b"/")
    if not pattern:
        return None
    try:
        return Rule(compile_pattern(pattern, by_name=by_name), ignore, only_directories, by_name)
    except NeverMatchesError:
        return None
