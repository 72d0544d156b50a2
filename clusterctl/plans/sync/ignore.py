""".gitignore matching, the same as git's.

One pattern of a `.gitignore`, matched as git's wildmatch does, in time that no pattern can blow up.

A pattern is cut at its slashes into segments, and a segment at its stars into pieces. A piece always matches
the same number of bytes, so the leftmost place where it fits is as good as any other: each piece is searched once,
from left to right, and nothing is tried again. `**` does the same with whole components.

    docs/**/v*.[0-9]    prefix   docs/       compared literally
                        group    after a gap of any number of components:
                        segment  v*.[0-9]    pieces `v` and `.[0-9]`

A piece is searched literally, or where it holds `?` or a set by a regular expression without repetition.

Which files of a source tree stay at home: `.gitignore` and `sync.exclude`, read as git reads them.

Names are matched as bytes, because git does: `?` is one byte, not one character. A directory that is
ignored is pruned, so nothing below it can be re-included. `.git`, `__pycache__` and `*.pyc` never travel,
whatever the rules say. Only the rule files count: git's index (a file that was added by force although it
is ignored), `.git/info/exclude` and `core.excludesFile` are not consulted, so that the same tree gives the
same result on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from clusterctl.errors import UsageError

_SPECIAL = re.compile(rb"[*?[\\]")
_SLASH, _STAR, _QUESTION, _BACKSLASH, _DASH, _OPEN, _CLOSE, _COLON = b"/*?\\-[]:"
_ANY = frozenset(range(1, 256)) - {_SLASH}
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


class NeverMatchesError(ValueError):
    """The pattern is malformed; git lets such a pattern match nothing."""


class Pattern(Protocol):
    """What a name, or a path below the folder of a `.gitignore`, is compared with."""

    def matches(self, text: bytes) -> bool:
        """Return whether the whole text matches."""


def compile_pattern(pattern: bytes, *, by_name: bool) -> Pattern:
    """Read a pattern that has lost its `!` and the slashes at its ends; raises NeverMatchesError.

    `by_name`: it is compared with the last component of a path, not with the whole path.
    """
    special = _SPECIAL.search(pattern)
    if special is None:
        return _Exact(pattern)
    if by_name:
        return (
            _by_name(_PatternReader(pattern, 0).read()[0].segments[0])
            if pattern.strip(b"*")
            else _Suffix(b"")
        )
    # git compares the part before the first special character literally and hands only the rest to wildmatch:
    # a `**` that starts this rest counts as a component of its own.
    return _Path(pattern[: special.start()], _PatternReader(pattern, special.start()).read())


def _by_name(segment: _Segment) -> Pattern:
    """Give the most frequent pattern of all, `*.log`, a test of its own."""
    end = segment.starred[0].literal if len(segment.starred) == 1 and not segment.head.length else None
    return segment if end is None else _Suffix(end)


@dataclass(frozen=True)
class _Exact:
    text: bytes

    def matches(self, text: bytes) -> bool:
        return text == self.text


@dataclass(frozen=True)
class _Suffix:
    end: bytes

    def matches(self, text: bytes) -> bool:
        return text.endswith(self.end)


@dataclass(frozen=True)
class _Piece:
    """A part of a segment without a star; `literal` is None where only the regular expression decides."""

    length: int
    literal: bytes | None
    regex: re.Pattern[bytes] | None

    def fits(self, text: bytes, at: int) -> bool:
        if self.regex is None:
            return text.startswith(self.literal or b"", at)
        return self.regex.match(text, at) is not None

    def find(self, text: bytes, at: int, end: int) -> int:
        """Give the leftmost place from `at` on where the piece fits and ends by `end`; -1 if there is none."""
        if self.regex is None:
            return text.find(self.literal or b"", at, end)
        match = self.regex.search(text, at, end)
        return match.start() if match else -1


@dataclass(frozen=True)
class _Segment:
    """One component: a piece at its start and one behind each star, of which the last ends it."""

    head: _Piece
    starred: tuple[_Piece, ...]
    least: (
        int  # bytes that all pieces take: what is shorter is not looked at, so a long pattern costs nothing
    )

    def matches(self, text: bytes) -> bool:
        head = self.head
        if len(text) < self.least or not head.fits(text, 0):
            return False
        if not self.starred:
            return len(text) == head.length
        tail = self.starred[-1]
        at, end = head.length, len(text) - tail.length
        if not tail.fits(text, end):
            return False
        for piece in self.starred[:-1]:
            at = piece.find(text, at, end)
            if at < 0:
                return False
            at += piece.length
        return True


@dataclass(frozen=True)
class _Group:
    """Components that stand side by side, at least `gap` others behind those of the group before."""

    gap: int
    segments: tuple[_Segment, ...]

    def fits(self, names: Sequence[bytes], at: int) -> bool:
        return all(segment.matches(names[at + index]) for index, segment in enumerate(self.segments))

    def find(self, names: Sequence[bytes], at: int, end: int) -> int:
        """Give the leftmost place from `at` on where the group fits and ends by `end`; -1 if there is none."""
        positions = range(at, end - len(self.segments) + 1)
        return next((position for position in positions if self.fits(names, position)), -1)


@dataclass(frozen=True)
class _Path:
    """A literal prefix and groups of components between `**`; the first begins the rest, the last ends it."""

    prefix: bytes
    groups: tuple[_Group, ...]

    def matches(self, text: bytes) -> bool:
        if not text.startswith(self.prefix):
            return False
        names = text[len(self.prefix) :].split(b"/")
        first, last = self.groups[0], self.groups[-1]
        at, end = len(first.segments), len(names) - len(last.segments)
        if first is last:
            return end == 0 and first.fits(names, 0)
        if at + last.gap > end or not first.fits(names, 0) or not last.fits(names, end):
            return False
        for group in self.groups[1:-1]:
            at = group.find(names, at + group.gap, end)
            if at < 0:
                return False
            at += len(group.segments)
        return at + last.gap <= end


class _PatternReader:
    """Reads what begins with the first special character of a pattern."""

    def __init__(self, pattern: bytes, start: int) -> None:
        self._pattern = pattern
        self._start = start
        self._groups: list[_Group] = []
        self._gap = 0
        self._segments: list[_Segment] = []
        self._pieces: list[_Piece] = []
        self._atoms: list[frozenset[int]] = []

    def read(self) -> tuple[_Group, ...]:
        """Read it to its end; raises NeverMatchesError."""
        at, end = self._start, len(self._pattern)
        while at < end:
            byte = self._pattern[at]
            if byte == _STAR:
                at = self._read_stars(at)
                continue
            if byte == _OPEN:
                atom, at = _read_bracket(self._pattern, at + 1)
            elif byte == _QUESTION:
                atom, at = _ANY, at + 1
            else:
                literal, at = _read_byte(self._pattern, at)
                atom = frozenset((literal,))
            if atom == {_SLASH}:
                self._finish_segment()
            else:
                self._atoms.append(atom)
        if at == end:
            self._finish_segment()
        self._finish_group(0)
        return tuple(self._groups)

    def _read_stars(self, at: int) -> int:
        """Read a row of stars; gives where to go on, behind the end if a `**` is the last component."""
        end = at
        while self._pattern[end : end + 1] == b"*":
            end += 1
        rest = self._pattern[end:]
        starts_component = at == self._start or self._pattern[at - 1] == _SLASH
        if end - at < 2 or not starts_component or not (not rest or rest.startswith((b"/", b"\\/"))):
            self._finish_piece()
            return end
        if rest.startswith(b"/"):
            self._finish_group(0)
            return end + 1
        # the slash behind it is matched as well, or all that is left, which is never nothing
        self._finish_group(1)
        return end + 2 if rest else end + 1

    def _finish_piece(self) -> None:
        self._pieces.append(_make_piece(self._atoms))
        self._atoms = []

    def _finish_segment(self) -> None:
        self._finish_piece()
        length = sum(piece.length for piece in self._pieces)
        self._segments.append(_Segment(self._pieces[0], tuple(self._pieces[1:]), length))
        self._pieces = []

    def _finish_group(self, gap: int) -> None:
        self._groups.append(_Group(self._gap, tuple(self._segments)))
        self._gap, self._segments = gap, []


def _make_piece(atoms: Sequence[frozenset[int]]) -> _Piece:
    if all(len(atom) == 1 for atom in atoms):
        return _Piece(len(atoms), bytes(byte for atom in atoms for byte in atom), None)
    return _Piece(len(atoms), None, re.compile(b"".join(map(_render_set, atoms))))


def _render_set(atom: frozenset[int]) -> bytes:
    """Write a set as a regular expression, by the shorter of its two sides: that is the quicker to compile."""
    negated = len(atom) > 128
    members = frozenset(range(256)) - atom if negated else atom
    return b"[" + b"^" * negated + b"".join(b"\\x%02x" % byte for byte in sorted(members)) + b"]"


def _read_bracket(pattern: bytes, at: int) -> tuple[frozenset[int], int]:
    """Read a set; `at` is just behind the opening bracket.  Returns the set and where it ends."""
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members, at = _read_members(pattern, at)
    allowed = _ANY - members if negated else _ANY & members
    if not allowed:
        raise NeverMatchesError
    return allowed, at


def _read_members(pattern: bytes, at: int) -> tuple[set[int], int]:
    members: set[int] = set()
    previous = 0
    first = True
    while first or _byte_at(pattern, at) != _CLOSE:
        first = False
        byte = _byte_at(pattern, at)
        upper = pattern[at + 1 : at + 2]
        if byte == _DASH and previous and upper and upper != b"]":
            last, at = _read_byte(pattern, at + 1)
            members.update(range(previous, last + 1))
            previous = 0
            continue
        if byte == _OPEN and upper == b":" and (class_and_end := _read_class(pattern, at + 2)):
            class_members, at = class_and_end
            members |= class_members
            previous = 0
            continue
        previous, at = _read_byte(pattern, at)
        members.add(previous)
    return members, at + 1


def _byte_at(pattern: bytes, at: int) -> int:
    if at >= len(pattern):
        raise NeverMatchesError
    return pattern[at]


def _read_byte(pattern: bytes, at: int) -> tuple[int, int]:
    """Read one byte, after a backslash if there is one."""
    at += _byte_at(pattern, at) == _BACKSLASH
    return _byte_at(pattern, at), at + 1


def _read_class(pattern: bytes, at: int) -> tuple[set[int], int] | None:
    """Read `name:]`; None if this is no class but ordinary members of the set."""
    end = pattern.find(b"]", at)
    if end < 0:
        raise NeverMatchesError
    if end == at or pattern[end - 1] != _COLON:
        return None
    members = _CLASSES.get(pattern[at : end - 1])
    if members is None:
        raise NeverMatchesError
    return {byte for byte in range(256) if re.match(members, bytes([byte]))}, end + 1


MAX_RULES = 10_000  # in force at one place
LONGEST_RULE = 4096  # bytes, as long as a path can be
LARGEST_GITIGNORE = 1 << 20  # bytes of one `.gitignore`


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

    def is_ignored(self, path: bytes, name: bytes, is_dir: bool) -> bool | None:
        """Say whether the last matching rule ignores; None if none matches."""
        below = path[self.start :]
        for rule in self._for_directories if is_dir else self._for_files:
            if rule.pattern.matches(name if rule.by_name else below):
                return rule.ignore
        return None


@dataclass(frozen=True)
class IgnoreRules:
    """The rules in force inside one directory; grows while walking down.

    `prefix` is the source root as seen from the top of its git checkout, with a slash at the end, or empty.
    """

    excludes: Level
    levels: tuple[Level, ...] = ()
    prefix: bytes = b""

    def with_gitignore(self, folder: str, gitignore: bytes) -> IgnoreRules:
        """Add the `.gitignore` of `folder`, a path below the source root ("" is the root itself)."""
        base = self.prefix + (_encode(folder) + b"/" if folder else b"")
        return self._with_level(base, gitignore)

    def _with_level(self, base: bytes, text: bytes) -> IgnoreRules:
        source = base.decode("utf-8", "surrogateescape") + ".gitignore"
        if len(text) > LARGEST_GITIGNORE:
            raise UsageError("CC-SYNC-013", "file", file=source, mib=LARGEST_GITIGNORE >> 20)
        rules = tuple(parse_rules(text, source))
        count = len(self.excludes.rules) + sum(len(level.rules) for level in self.levels) + len(rules)
        if count > MAX_RULES:
            raise UsageError("CC-SYNC-013", "rules", count=count, file=source, most=MAX_RULES)
        return replace(self, levels=(*self.levels, Level(len(base), rules))) if rules else self

    def ignores(self, path: str, is_dir: bool) -> bool:
        """Say whether `path`, below a directory that is itself not ignored, stays at home."""
        full = self.prefix + _encode(path)
        name = full.rpartition(b"/")[2]
        if name in {b".git", b"__pycache__"} or name.endswith(b".pyc"):
            return True
        for level in (self.excludes, *reversed(self.levels)):
            ignored = level.is_ignored(full, name, is_dir)
            if ignored is not None:
                return ignored
        return False


def make_ignore_rules(
    exclude: Iterable[str], *, prefix: str = "", above: Iterable[tuple[str, bytes]] = ()
) -> IgnoreRules:
    """Start at the source root with the job's `exclude` and the `.gitignore` files above the root.

    `above` holds (folder seen from the top of the checkout, text), topmost first; `prefix` is the source root
    seen from there.
    """
    root_prefix = _encode(prefix) + b"/" if prefix else b""
    lines = (
        _parse_rule(_trim(_encode(line)), f"sync.exclude[{index}]") for index, line in enumerate(exclude)
    )
    rules = tuple(rule for rule in lines if rule)
    ignore_rules = IgnoreRules(Level(len(root_prefix), rules), (), root_prefix)
    for folder, text in above:
        ignore_rules = ignore_rules._with_level(_encode(folder) + b"/" if folder else b"", text)
    return ignore_rules


def parse_rules(text: bytes, source: str) -> Iterator[Rule]:
    """Read a `.gitignore`; malformed patterns match nothing, as in git."""
    for number, line in enumerate(text.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.startswith(b"#"):
            continue
        rule = _parse_rule(_trim(line.removesuffix(b"\r")), f"{source}:{number}")
        if rule is not None:
            yield rule


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _trim(line: bytes) -> bytes:
    """Cut trailing spaces, except one that a backslash protects; a NUL ends the line for git."""
    line = line.split(b"\0", 1)[0]
    bare = line.rstrip(b" ")
    escaped = (len(bare) - len(bare.rstrip(b"\\"))) % 2 == 1
    return line[: len(bare) + 1] if escaped else bare


def _parse_rule(line: bytes, location: str) -> Rule | None:
    if len(line) > LONGEST_RULE:
        raise UsageError("CC-SYNC-013", "rule", location=location, most=LONGEST_RULE)
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
