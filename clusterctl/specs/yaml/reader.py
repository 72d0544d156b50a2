"""YAML text to values with line and column."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from clusterctl.errors import Issue, Location, SpecError
from clusterctl.specs.yaml.tree import (
    YamlList,
    YamlMapping,
    YamlScalar,
    YamlTree,
    describe,
    location_after,
    quoted,
)

# What the parser reports, and the case of CC-SPEC-001 for it; named groups are facts of the case.
_SYNTAX_CASES = (
    (r"found character '\\t'", "tab"),
    (r"found character (?P<character>.*) that cannot start any token", "first-character"),
    ("mapping values are not allowed here", "colon"),
    ("sequence entries are not allowed here", "dash"),
    ("found unexpected end of stream", "open-quote"),
    ("found unexpected document separator", "open-quote"),
    ("could not find expected ':'", "no-colon"),
    (r"expected ',' or '.', but got '[{]'", "brace"),
    (r"expected ',' or '(?P<closing>.)', but got", "no-comma"),
    ("found unknown escape character (?P<character>.*)", "escape"),
    (r"expected <block end>, but found '[?]'", "key-level"),
    ("expected <block end>, but found '(-|<block seq)", "dash-level"),
    (r"expected <block end>, but found '<scalar>'", "after-value"),
    ("expected <block end>", "level"),
    ("expected the node content, but found (?P<found>.*)", "no-value"),
    (r"expected '<document start>'", "after-end"),
    ("expected alphabetic or numeric", "marker"),
    ("expected a comment or a line break", "after-block"),
    ("scanning a directive|incompatible YAML|tag handle", "directive"),
    ("a tag|expected URI|expected '[!>]'", "tag"),
)
# A thousand nodes, each with every key, take 190 kB; reading YAML costs some 5 s of CPU per MiB.
MAX_BYTES = 256 << 10
MAX_VALUES = 50_000  # aliases expanded
MAX_LEVELS = 32
MAX_ISSUES = 200
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_NOT_A_YAML_CHARACTER = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# YAML 1.2 has them there for the sake of JSON; ruamel does not
_ONLY_IN_QUOTES = re.compile(r"[\x7f-\x84\x86-\x9f]")
_SUBSTITUTE_OFFSET = 0xF0000  # a plane of private use: U+007F goes to ruamel as U+F007F
_SUBSTITUTE = re.compile(r"[\U000f007f-\U000f0084\U000f0086-\U000f009f]")
_UNSENDABLE = re.compile(r"[\x00\ud800-\udfff]")


def classify_syntax_error(problem: str, context: str) -> tuple[str, dict[str, str]]:
    """Turn the parser's report into a case of CC-SPEC-001 and its facts."""
    for pattern, case in _SYNTAX_CASES:
        match = re.search(pattern, problem) or re.search(pattern, context)
        if match:
            return case, match.groupdict()
    return "other", {"problem": problem or "?"}


def decode_source(data: bytes, file: str, *, max_bytes: int = MAX_BYTES) -> str:
    """Turn the bytes of a file into text; raises SpecError for what is not UTF-8 or far too large."""
    start = Location(file, 1, 1)
    if len(data) > max_bytes:
        raise SpecError([_too_large_issue(start, max_bytes)])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        location = location_after(start, data[: error.start].decode("utf-8"))
        raise SpecError([Issue.of("CC-SPEC-002", "byte", location, byte=data[error.start])]) from error


def read_document(text: str, file: str) -> tuple[YamlMapping, tuple[Issue, ...]]:
    """Read the keys and values of a file, with the issues that leave the rest worth examining.

    Raises SpecError when nothing is left to examine.
    """
    start = Location(file, 1, 1)
    tree, issues = read_tree(text, start)
    if isinstance(tree, YamlMapping):
        return tree, issues
    if tree is None or (isinstance(tree, YamlScalar) and tree.text is None):
        issue = Issue.of("CC-SPEC-005", "empty", start)
    else:
        issue = Issue.of("CC-SPEC-005", "no-mapping", tree.location, found=describe(tree))
    raise SpecError(sort_issues((*issues, issue)))


def read_tree(text: str, start: Location) -> tuple[YamlTree | None, tuple[Issue, ...]]:
    """Read one YAML value that begins at a place; None if there is no value."""
    if len(text) > MAX_BYTES:
        raise SpecError([_too_large_issue(start, MAX_BYTES)])
    text = text.removeprefix("\ufeff")
    has_substitutes = not _SUBSTITUTE.search(text) and bool(_ONLY_IN_QUOTES.search(text))
    if has_substitutes:
        text = _ONLY_IN_QUOTES.sub(lambda match: chr(ord(match.group()) + _SUBSTITUTE_OFFSET), text)
    if forbidden := _NOT_A_YAML_CHARACTER.search(text):
        raise SpecError(
            [_invalid_character_issue(forbidden.group(), location_after(start, text[: forbidden.start()]))]
        )
    reader = _TreeReader(text, start, has_substitutes)
    reader.read()
    return reader.root, sort_issues(reader.issues)


def _invalid_character_issue(character: str, location: Location) -> Issue:
    return Issue.of("CC-SPEC-002", "not-yaml", location, number=ord(character))


def _restore_substituted(text: str) -> str:
    """Restore the characters that were replaced for ruamel."""
    return _SUBSTITUTE.sub(lambda match: chr(ord(match.group()) - _SUBSTITUTE_OFFSET), text)


def sort_issues(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """Sort issues by place, drop duplicates (a value may have several aliases), and cut a long list."""
    unique = sorted(
        dict.fromkeys(issues), key=lambda issue: (issue.location or Location("", 0, 0), issue.code)
    )
    shown, omitted = unique[:MAX_ISSUES], unique[MAX_ISSUES:]
    if not omitted:
        return tuple(shown)
    return (*shown, Issue.of("CC-SPEC-003", "issues", omitted[0].location, count=len(omitted)))


def _too_large_issue(start: Location, max_bytes: int) -> Issue:
    return Issue.of("CC-SPEC-003", "text", start, kib=max_bytes >> 10)


def find_unsendable(text: str, location: Location) -> Issue | None:
    """Report a character that no argument, variable or path can hold."""
    match = _UNSENDABLE.search(text)
    if not match:
        return None
    return Issue.of("CC-SPEC-002", "unsendable", location, number=ord(match.group()))


def _join_surrogates(text: str) -> str:
    """Make one character of a pair of escapes, as JSON writes it."""
    if not _UNSENDABLE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@dataclass(eq=False)
class _OpenCollection:
    """A list or mapping whose end has not been read yet."""

    event: CollectionStartEvent
    location: Location
    children: list[YamlTree] = field(default_factory=list)


@dataclass(eq=False)
class _TreeReader:
    """The state of reading one text, event by event: no recursion, and an end to everything."""

    text: str
    start: Location
    has_substitutes: bool = False  # characters that ruamel rejects are replaced by others
    root: YamlTree | None = None
    issues: list[Issue] = field(default_factory=list)
    anchors: dict[str, YamlTree] = field(default_factory=dict)
    stack: list[_OpenCollection] = field(default_factory=list)
    value_count: int = 0
    document_count: int = 0

    def read(self) -> None:
        for event in self._events():
            if isinstance(event, DocumentStartEvent):
                self._begin_document(event)
            elif isinstance(event, (SequenceStartEvent, MappingStartEvent)):
                self._open_collection(event)
            elif isinstance(event, (SequenceEndEvent, MappingEndEvent)):
                self._close_collection()
            elif isinstance(event, ScalarEvent):
                self._register(event, self._read_scalar(event))
            elif isinstance(event, AliasEvent):
                self._resolve_alias(event)

    def _events(self) -> Iterator[Event]:
        last_location = self.start
        try:
            for event in YAML(typ="safe", pure=True).parse(self.text):
                last_location = self._location_of(event.end_mark)
                yield event
        except MarkedYAMLError as error:
            self._fail_syntax(error, last_location)
        except Exception:  # whatever the parser does on hostile text, the text is at fault
            self._fail(Issue.of("CC-SPEC-001", "inexpressible", last_location))

    def _fail_syntax(self, error: MarkedYAMLError, last_location: Location) -> None:
        context = str(error.context or "")
        opened = self._find_unclosed()
        if opened and "<stream end>" in str(error.problem):
            self._fail_unclosed(opened)
        is_quoted = context == "while scanning a quoted scalar"  # its beginning is the better place
        mark = error.context_mark if is_quoted else error.problem_mark
        case, facts = classify_syntax_error(str(error.problem or ""), context)
        if opened and case == "no-comma":
            case, facts = "no-comma-opened", {**facts, "line": str(opened.location.line)}
        location = self._location_of(mark) if mark else last_location
        self._fail(Issue.of("CC-SPEC-001", case, location, **facts))

    def _find_unclosed(self) -> _OpenCollection | None:
        """Find the innermost bracket or brace that is open; a block ends with the file."""
        return next((opened for opened in reversed(self.stack) if opened.event.flow_style), None)

    def _fail_unclosed(self, opened: _OpenCollection) -> NoReturn:
        opening, closing = ("{", "}") if isinstance(opened.event, MappingStartEvent) else ("[", "]")
        self._fail(Issue.of("CC-SPEC-001", "unclosed", opened.location, opening=opening, closing=closing))

    def _begin_document(self, event: Event) -> None:
        self.document_count += 1
        if self.document_count > 1:
            location = self._location_of(event.start_mark)
            self._fail(Issue.of("CC-SPEC-005", "second", location))

    def _open_collection(self, event: CollectionStartEvent) -> None:
        location = self._location_of(event.start_mark)
        if len(self.stack) >= MAX_LEVELS:
            self._fail(Issue.of("CC-SPEC-003", "depth", location, most=MAX_LEVELS))
        self.stack.append(_OpenCollection(event, location))

    def _close_collection(self) -> None:
        collection = self.stack.pop()
        size = 1 + sum(child.size for child in collection.children)
        tree: YamlTree
        if isinstance(collection.event, MappingStartEvent):
            tree = YamlMapping(self._read_entries(collection.children), collection.location, size)
        else:
            tree = YamlList(tuple(collection.children), collection.location, size)
        self._register(collection.event, tree)

    def _read_entries(self, children: list[YamlTree]) -> dict[str, tuple[YamlScalar, YamlTree]]:
        entries: dict[str, tuple[YamlScalar, YamlTree]] = {}
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, YamlScalar) or key.text is None:
                issue = Issue.of("CC-SPEC-006", "key", key.location, found=describe(key))
                self.issues.append(issue)
            elif key.source == "<<":
                self.issues.append(Issue.of("CC-SPEC-006", "merge", key.location))
            elif key.text in entries:
                other, name = entries[key.text][0].location, quoted(key.text)
                self.issues.append(Issue.of("CC-SPEC-004", "", key.location, key=name, other=other))
            else:
                entries[key.text] = (key, value)
        return entries

    def _read_scalar(self, event: ScalarEvent) -> YamlScalar:
        location = self._location_of(event.start_mark)
        source = self.text[event.start_mark.index : event.end_mark.index]
        text: str | None = _join_surrogates(event.value)
        if text and self.has_substitutes and (match := _SUBSTITUTE.search(source)):
            if event.style not in ("'", '"'):
                preceding = self.text[: event.start_mark.index + match.start()]
                invalid = _invalid_character_issue(
                    _restore_substituted(match.group()), location_after(self.start, preceding)
                )
                raise SpecError(sort_issues((*self.issues, invalid)))
            text, source = _restore_substituted(text), _restore_substituted(source)
        if text and (issue := find_unsendable(text, location)):
            self.issues.append(issue)
            text = _UNSENDABLE.sub("", text)
        if text in _NULLS and event.style is None:
            text = None
        return YamlScalar(text, source, location)

    def _resolve_alias(self, event: AliasEvent) -> None:
        tree = self.anchors.get(event.anchor)
        location = self._location_of(event.start_mark)
        if tree is None:
            inside = any(frame.event.anchor == event.anchor for frame in self.stack)
            case, alias = "alias-inside" if inside else "alias-unknown", quoted("*" + event.anchor)
            self._fail(Issue.of("CC-SPEC-001", case, location, alias=alias))
        if isinstance(tree, YamlScalar):
            tree = YamlScalar(tree.text, f"*{event.anchor}", location)
        self._append(tree, tree.size)

    def _register(self, event: ScalarEvent | CollectionStartEvent, tree: YamlTree) -> None:
        if event.tag is not None:
            tag = quoted(str(event.tag))
            self.issues.append(Issue.of("CC-SPEC-006", "tag", tree.location, tag=tag))
        if event.anchor is not None:
            self.anchors[event.anchor] = tree
        self._append(tree, 1)

    def _append(self, tree: YamlTree, size: int) -> None:
        self.value_count += size
        if self.value_count > MAX_VALUES:
            self._fail(Issue.of("CC-SPEC-003", "values", tree.location, most=MAX_VALUES))
        if self.stack:
            self.stack[-1].children.append(tree)
        else:
            self.root = tree

    def _location_of(self, mark: Any) -> Location:
        column = mark.column + (self.start.column if mark.line == 0 else 1)
        return Location(self.start.file, self.start.line + mark.line, column)

    def _fail(self, issue: Issue) -> NoReturn:
        raise SpecError(sort_issues((*self.issues, issue)))
