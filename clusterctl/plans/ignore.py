"""Which files of a source tree stay at home: `.gitignore` and `sync.exclude`, read as git reads them.

Names are matched as bytes, because git does: `?` is one byte, not one character. A directory that is
ignored is pruned, so nothing below it can be re-included. `.git`, `__pycache__` and `*.pyc` never travel,
whatever the rules say. Only the rule files count: git's index (a file that was added by force although it
is ignored), `.git/info/exclude` and `core.excludesFile` are not consulted, so that the same tree gives the
same result on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

_SPECIAL = frozenset(b"*?[\\")
_SLASH, _STAR, _BACKSLASH, _CARET, _BANG, _DASH, _OPEN, _CLOSE, _COLON = b"/*\\^!-[]:"
_CLASSES = {
    b"alnum": rb"[0-9A-Za-z]",
    b"alpha": rb"[A-Za-z]",
    b"blank": rb"[ \t]",
    b"cntrl": rb"[\x00-\x1f\x7f]",
    b"digit": rb"[0-9]",
    b"graph": rb"[\x21-\x7e]",
    b"lower": rb"[a-z]",
    b"print": rb"[\x20-\x7e]",
    b"punct": rb"[!-/:-@\[-`{-~]",
    b"space": rb"[ \t-\r]",
    b"upper": rb"[A-Z]",
    b"xdigit": rb"[0-9A-Fa-f]",
}


class _NeverMatchesError(ValueError):
    """The pattern is malformed; git lets such a pattern match nothing."""


@dataclass(frozen=True)
class Rule:
    """One pattern: what it matches, and whether a match ignores or re-includes."""

    regex: re.Pattern[bytes]
    ignore: bool
    only_directories: bool
    by_name: bool  # no slash inside: matches the last component at any depth


@dataclass(frozen=True)
class Level:
    """The rules of one file; `start` is the length of the folder it lies in, with its slash."""

    start: int
    rules: tuple[Rule, ...]

    @cached_property
    def _latest_first(self) -> tuple[Rule, ...]:
        return self.rules[::-1]

    def verdict(self, path: bytes, name: bytes, is_dir: bool) -> bool | None:
        """Say whether the last matching rule ignores; None if none matches."""
        below = path[self.start :]
        for rule in self._latest_first:
            if rule.only_directories and not is_dir:
                continue
            if rule.regex.fullmatch(name if rule.by_name else below):
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
        rules = tuple(parse_rules(text))
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
    rules = tuple(rule for line in exclude if (rule := _rule(_trimmed(_raw(line)))))
    ignore = Ignore(Level(len(lead), rules), (), lead)
    for folder, text in above:
        ignore = ignore._with_level(_raw(folder) + b"/" if folder else b"", text)
    return ignore


def parse_rules(text: bytes) -> Iterator[Rule]:
    """Read a `.gitignore`; malformed patterns match nothing, as in git."""
    for line in text.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if line.startswith(b"#"):
            continue
        rule = _rule(_trimmed(line.removesuffix(b"\r")))
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


def _rule(line: bytes) -> Rule | None:
    ignore = not line.startswith(b"!")
    pattern = line if ignore else line[1:]
    only_directories = pattern.endswith(b"/")
    pattern = pattern[:-1] if only_directories else pattern
    by_name = b"/" not in pattern
    pattern = pattern.removeprefix(b"/")
    if not pattern:
        return None
    try:
        regex = re.compile(_regex(pattern), re.DOTALL)
    except _NeverMatchesError:
        return None
    return Rule(regex, ignore, only_directories, by_name)


def _regex(pattern: bytes) -> bytes:
    """Translate a wildmatch pattern.

    git compares the part before the first special character literally and hands only the rest to wildmatch:
    a `**` that starts this rest counts as a path component of its own.
    """
    start = next((i for i, byte in enumerate(pattern) if byte in _SPECIAL), len(pattern))
    parts = [re.escape(pattern[:start])]
    at = start
    while at < len(pattern):
        byte = pattern[at]
        if byte == _STAR:
            part, at = _stars(pattern, start, at)
        elif byte == _OPEN:
            part, at = _bracket(pattern, at + 1)
        elif byte == _BACKSLASH:
            if at + 1 == len(pattern):
                raise _NeverMatchesError
            part, at = re.escape(pattern[at + 1 : at + 2]), at + 2
        else:
            part, at = (b"[^/]" if byte == ord("?") else re.escape(pattern[at : at + 1])), at + 1
        parts.append(part)
    return b"".join(parts)


def _stars(pattern: bytes, start: int, at: int) -> tuple[bytes, int]:
    end = at
    while end < len(pattern) and pattern[end] == _STAR:
        end += 1
    rest = pattern[end:]
    alone = (at == start or pattern[at - 1] == _SLASH) and (not rest or rest.startswith((b"/", b"\\/")))
    if end - at < 2 or not alone:
        return rb"[^/]*", end
    if rest.startswith(b"/"):
        return rb"(?:|.*/)", end + 1
    return rb".*", end


def _bracket(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Translate a set; `at` is just behind the opening bracket.  Returns the set and where it ends."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members, at = _members(pattern, at)
    chosen = (set(range(256)) - members if negated else members) - {_SLASH, 0}
    if not chosen:
        raise _NeverMatchesError
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(chosen)) + b"]", at


def _members(pattern: bytes, at: int) -> tuple[set[int], int]:
    members: set[int] = set()
    previous = 0
    first = True
    while first or _byte(pattern, at) != _CLOSE:
        first = False
        byte = _byte(pattern, at)
        upper = pattern[at + 1 : at + 2]
        if byte == _DASH and previous and upper and upper != b"]":
            last, at = _literal(pattern, at + 1)
            members.update(range(previous, last + 1))
            previous = 0
            continue
        if byte == _OPEN and upper == b":" and (named := _named_class(pattern, at + 2)):
            found, at = named
            members |= found
            previous = 0
            continue
        previous, at = (byte, at + 1) if byte != _BACKSLASH else _literal(pattern, at)
        members.add(previous)
    return members, at + 1


def _byte(pattern: bytes, at: int) -> int:
    if at >= len(pattern):
        raise _NeverMatchesError
    return pattern[at]


def _literal(pattern: bytes, at: int) -> tuple[int, int]:
    """Read one byte of a set, after a backslash if there is one."""
    at += _byte(pattern, at) == _BACKSLASH
    return _byte(pattern, at), at + 1


def _named_class(pattern: bytes, at: int) -> tuple[set[int], int] | None:
    """Read `name:]`; None if this is no class but ordinary members of the set."""
    end = pattern.find(b"]", at)
    if end < 0:
        raise _NeverMatchesError
    if end == at or pattern[end - 1] != _COLON:
        return None
    members = _CLASSES.get(pattern[at : end - 1])
    if members is None:
        raise _NeverMatchesError
    return {byte for byte in range(256) if re.match(members, bytes([byte]))}, end + 1
