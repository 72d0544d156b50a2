"""Which names of a source tree are not sent: `sync.exclude` decides first, then `.gitignore` files.

The patterns are matched by pathspec, byte by byte as git does it: `?` is one byte. A directory that is ignored is not
entered, so nothing below it can be included again. `.git`, `__pycache__` and `*.pyc` are never sent. git itself reads
the `.gitignore` files (`client/sync/scan.py`); they are read here only where it is not installed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pathspec import GitIgnoreSpec

from clusterctl.errors import UsageError

MAX_RULES = 10_000  # in force at one place
MAX_RULE = 4096  # bytes, as long as a path can be
MAX_GITIGNORE = 1 << 20  # bytes of one `.gitignore`


@dataclass(frozen=True)
class Level:
    """The rules of one file; `start` is the length of its folder's path, with the slash."""

    start: int
    rules: GitIgnoreSpec

    def is_ignored(self, path: str) -> bool | None:
        """Return whether the last matching rule ignores; None if none matches."""
        return self.rules.check_file(path[self.start :]).include


@dataclass(frozen=True)
class IgnoreRules:
    """The rules in force inside one directory; `with_gitignore` adds those of a file in it.

    `prefix` is the source root as seen from the top of its git checkout, with a slash at the end, or empty.
    """

    excludes: Level
    levels: tuple[Level, ...] = ()
    prefix: str = ""

    def with_gitignore(self, folder: str, gitignore: bytes) -> IgnoreRules:
        """Add the `.gitignore` of `folder`, a path below the source root ("" is the root itself)."""
        base = self.prefix + (_as_bytes(folder) + "/" if folder else "")
        return self._with_level(base, gitignore)

    def _with_level(self, base: str, text: bytes) -> IgnoreRules:
        source = base.encode("latin-1").decode("utf-8", "surrogateescape") + ".gitignore"
        if len(text) > MAX_GITIGNORE:
            raise UsageError("CC-SYNC-013", "file", file=source, mib=MAX_GITIGNORE >> 20)
        lines = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").decode("latin-1").split("\n")
        rules = _parse_rules((f"{source}:{number}", line) for number, line in enumerate(lines, 1))
        count = sum(len(level.rules.patterns) for level in (self.excludes, *self.levels)) + len(
            rules.patterns
        )
        if count > MAX_RULES:
            raise UsageError("CC-SYNC-013", "rules", count=count, file=source, most=MAX_RULES)
        return replace(self, levels=(*self.levels, Level(len(base), rules)))

    def ignores(self, path: str, is_dir: bool, git_ignored: bool = False) -> bool:
        """Return whether `path`, in a directory that is not ignored, is not sent; `git_ignored` is what git decided."""
        name = path.rpartition("/")[2]
        if name in (".git", "__pycache__") or name.endswith(".pyc"):
            return True
        full = self.prefix + _as_bytes(path) + ("/" if is_dir else "")
        for level in (self.excludes, *reversed(self.levels)):
            ignored = level.is_ignored(full)
            if ignored is not None:
                return ignored
        return git_ignored


def make_ignore_rules(
    exclude: Iterable[str], *, prefix: str = "", above: Iterable[tuple[str, bytes]] = ()
) -> IgnoreRules:
    """Start at the source root with the job's `exclude` and the `.gitignore` files above the root.

    `above` holds (folder seen from the top of the checkout, text), topmost first; `prefix` is the source root
    seen from there.
    """
    root_prefix = _as_bytes(prefix) + "/" if prefix else ""
    lines = ((f"sync.exclude[{index}]", _exclude_line(line)) for index, line in enumerate(exclude))
    ignore_rules = IgnoreRules(Level(len(root_prefix), _parse_rules(lines)), (), root_prefix)
    for folder, text in above:
        ignore_rules = ignore_rules._with_level(_as_bytes(folder) + "/" if folder else "", text)
    return ignore_rules


def anchored(line: str, prefix: str) -> str:
    """Return a line of `sync.exclude` as a pattern for git at the top of a checkout, for a source at `prefix` in it."""
    if not prefix:
        return line
    mark, pattern = ("!", line[1:]) if line.startswith("!") else ("", line)
    within = "/" if "/" in pattern.rstrip(" ")[:-1] else "/**/"
    return mark + "/" + re.sub(r"[\\*?\[]", r"\\\g<0>", prefix) + within + pattern.removeprefix("/")


def _exclude_line(line: str) -> str:
    """Return a line in which `#` begins no comment, as a pattern on git's command line."""
    return _as_bytes("\\" + line if line.startswith("#") else line)


def _parse_rules(lines: Iterable[tuple[str, str]]) -> GitIgnoreSpec:
    """Parse lines with their locations; malformed patterns match nothing, as in git."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of `re`, about an odd set
        return GitIgnoreSpec.from_lines([line for location, line in lines if _is_rule(location, line)])


def _is_rule(location: str, line: str) -> bool:
    if len(line) > MAX_RULE:
        raise UsageError("CC-SYNC-013", "rule", location=location, most=MAX_RULE)
    try:
        (pattern,) = GitIgnoreSpec.from_lines([line]).patterns
    except (ValueError, re.error):
        return False
    return pattern.include is not None


def _as_bytes(text: str) -> str:
    """Return a text with one character for each of its bytes."""
    return text.encode("utf-8", "surrogateescape").decode("latin-1")
