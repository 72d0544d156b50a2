"""YAML text to values that know line and column."""

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

from clusterctl.errors import Issue, Place, SpecError
from clusterctl.specs import codes
from clusterctl.specs.text import counted
from clusterctl.specs.yaml.tree import Listing, Scalar, Table, Tree, describe, place_after, quoted

_QUOTE = "put the value in quotes: 'like this'"
_QUOTE_BRACES = "put a text that holds { or } in quotes: '${run_id}'"
_SPACES = "indent with spaces only"
_COLON = "quote the text if the ':' belongs to it; else check the indentation of this line and the one above"
_INDENT = "check the indentation of this line and the ones above"

_PLAIN_WORDS = (
    (r"found character '\\t'", "a tab where YAML wants spaces", _SPACES),
    (r"found character (.*) that cannot start any token", r"a value cannot begin with \1", _QUOTE),
    ("mapping values are not allowed here", "a ':' that cannot stand here", _COLON),
    ("sequence entries are not allowed here", "a '- ' that cannot stand here", _INDENT),
    ("found unexpected end of stream", "a quotation mark that is never closed", "close the quotation"),
    ("found unexpected document separator", "a quotation mark that is never closed", "close the quotation"),
    ("could not find expected ':'", "a key without its ':'", "write KEY: VALUE"),
    (r"expected ',' or '(.)', but got '<stream end>'", r"an opening bracket without its '\1'", "close it"),
    (r"expected ',' or '.', but got '[{]'", "a '{' inside brackets begins a mapping", _QUOTE_BRACES),
    (r"expected ',' or '(.)', but got", r"expected ',' or '\1'", "add the comma, or close the bracket"),
    ("found unknown escape character (.*)", r"double quotes know no escape \1", "use single quotes"),
    (r"expected <block end>, but found '[?]'", "a key that fits no level of this file", _INDENT),
    ("expected <block end>, but found '(-|<block seq)", "a '- ' that fits no list of this file", _INDENT),
    (r"expected <block end>, but found '<scalar>'", "text after the end of a value", _QUOTE),
    ("expected <block end>", "this does not fit what stands above it", _INDENT),
    ("expected the node content, but found (.*)", r"expected a value, found \1", _QUOTE),
    (r"expected '<document start>'", "something follows the end of the file's content", _INDENT),
    ("expected alphabetic or numeric", "a '*', '&' or '%' with a special meaning in YAML", _QUOTE),
    ("expected a comment or a line break", "text behind a '|' or '>'", "begin the text on a new line"),
    ("scanning a directive|incompatible YAML|tag handle", "a '%' line that is not understood", "drop it"),
    ("a tag|expected URI|expected '[!>]'", "a '!' with a special meaning in YAML", _QUOTE),
)
_PLACED_AT_OPENING = ("while scanning a quoted scalar",)


def explain_syntax(problem: str, context: str) -> tuple[str, str]:
    """Turn the parser's words into a message and the way out."""
    for pattern, message, fix in _PLAIN_WORDS:
        found = re.search(pattern, problem) or re.search(pattern, context)
        if found:
            return found.expand(message), fix
    return f"this is not YAML: {problem or 'the parser gave up'}", ""


def is_placed_at_opening(context: str) -> bool:
    """Whether the beginning of the broken value says more than the point where the parser gave up."""
    return context in _PLACED_AT_OPENING


# A thousand nodes, each with every key, take 190 kB; reading YAML costs some 5 s of CPU per MiB.
MOST_BYTES = 256 << 10
MOST_VALUES = 50_000  # aliases expanded
DEEPEST = 32
MOST_ISSUES = 200

_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_NO_YAML_CHARACTER = re.compile(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ONLY_IN_QUOTES = re.compile(
    r"[\x7f-\x84\x86-\x9f]"
)  # YAML 1.2 has them there for the sake of JSON; ruamel does not
_STAND_IN = 0xF0000  # a plane of private use: U+007F goes to ruamel as U+F007F
_STOOD_IN = re.compile(r"[\U000f007f-\U000f0084\U000f0086-\U000f009f]")
_UNSENDABLE = re.compile(r"[\x00\ud800-\udfff]")
_MERGE = "merge keys (<<) are not part of YAML 1.2"
_MERGE_FIX = "repeat the values; what all nodes share goes to the top level of the inventory"


def decode_source(data: bytes, file: str, *, most: int = MOST_BYTES) -> str:
    """Turn the bytes of a file into text; raises SpecError for what is not UTF-8 or far too large."""
    start = Place(file, 1, 1)
    if len(data) > most:
        raise SpecError([_too_large(start, most)])
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        place = place_after(start, data[: error.start].decode("utf-8"))
        message = f"the byte 0x{data[error.start]:02x} is not UTF-8 text"
        raise SpecError([Issue(codes.NOT_TEXT, message, place, "save the file as UTF-8")]) from error


def read_document(text: str, file: str, *, most: int = MOST_BYTES) -> tuple[Table, tuple[Issue, ...]]:
    """Read the keys and values of a file, with the issues that leave the rest worth examining.

    Raises SpecError when nothing is left to examine.
    """
    start = Place(file, 1, 1)
    tree, issues = read_tree(text, start, most=most)
    if isinstance(tree, Table):
        return tree, issues
    place, found = start, "the file is empty"
    if tree and not (isinstance(tree, Scalar) and tree.text is None):
        place, found = tree.place, f"expected keys and values, got {describe(tree)}"
    issue = Issue(codes.DOCUMENT, found, place, "the file begins with a line such as KEY: VALUE")
    raise SpecError(in_order((*issues, issue)))


def read_tree(text: str, start: Place, *, most: int = MOST_BYTES) -> tuple[Tree | None, tuple[Issue, ...]]:
    """Read one YAML value that begins at a place; None stands for no value at all."""
    if len(text) > most:
        raise SpecError([_too_large(start, most)])
    text = text.removeprefix("\ufeff")
    stood_in = not _STOOD_IN.search(text) and bool(_ONLY_IN_QUOTES.search(text))
    if stood_in:
        text = _ONLY_IN_QUOTES.sub(lambda found: chr(ord(found.group()) + _STAND_IN), text)
    if strange := _NO_YAML_CHARACTER.search(text):
        raise SpecError([_strange(strange.group(), place_after(start, text[: strange.start()]))])
    reading = _Reading(text, start, stood_in)
    reading.read()
    return reading.root, in_order(reading.issues)


def _strange(character: str, place: Place) -> Issue:
    message = f"the character U+{ord(character):04X} must not stand in YAML"
    return Issue(codes.NOT_TEXT, message, place, "remove it")


def _put_back(text: str) -> str:
    """Put the characters in their places for which others stood while ruamel read."""
    return _STOOD_IN.sub(lambda found: chr(ord(found.group()) - _STAND_IN), text)


def in_order(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """Sort issues by place, drop what is said twice (a value may have several aliases), and end somewhere."""
    unique = sorted(dict.fromkeys(issues), key=lambda issue: (issue.place or Place("", 0, 0), issue.code))
    shown, rest = unique[:MOST_ISSUES], unique[MOST_ISSUES:]
    more = (
        [Issue(codes.TOO_LARGE, f"and {counted(len(rest), 'more problem')}", rest[0].place)] if rest else []
    )
    return (*shown, *more)


def _too_large(start: Place, most: int) -> Issue:
    fix = "inventories and jobs are far smaller: is this the right file?"
    return Issue(codes.TOO_LARGE, f"more than {most >> 10} KiB of text", start, fix)


def refuse_unsendable(text: str, place: Place) -> Issue | None:
    """Point out what can stand in no argument, variable or path."""
    bad = _UNSENDABLE.search(text)
    if not bad:
        return None
    message = f"the character U+{ord(bad.group()):04X} cannot be passed on"
    return Issue(codes.NOT_TEXT, message, place, "remove it")


def _join_surrogates(text: str) -> str:
    """Make one character of a pair of escapes, as JSON writes it."""
    if not _UNSENDABLE.search(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@dataclass(eq=False)
class _Open:
    """A list or mapping whose end has not been read yet."""

    event: CollectionStartEvent
    place: Place
    children: list[Tree] = field(default_factory=list)


@dataclass(eq=False)
class _Reading:
    """The state of reading one text, event by event: no recursion, and an end to everything."""

    text: str
    start: Place
    stood_in: bool = False  # characters that ruamel does not take are told by others
    root: Tree | None = None
    issues: list[Issue] = field(default_factory=list)
    anchors: dict[str, Tree] = field(default_factory=dict)
    stack: list[_Open] = field(default_factory=list)
    values: int = 0
    documents: int = 0

    def read(self) -> None:
        for event in self._events():
            if isinstance(event, DocumentStartEvent):
                self._begin_document(event)
            elif isinstance(event, (SequenceStartEvent, MappingStartEvent)):
                self._open(event)
            elif isinstance(event, (SequenceEndEvent, MappingEndEvent)):
                self._close()
            elif isinstance(event, ScalarEvent):
                self._name(event, self._scalar(event))
            elif isinstance(event, AliasEvent):
                self._alias(event)

    def _events(self) -> Iterator[Event]:
        last = self.start
        try:
            for event in YAML(typ="safe", pure=True).parse(self.text):
                last = self._place(event.end_mark)
                yield event
        except MarkedYAMLError as error:
            self._refuse_syntax(error, last)
        except Exception:  # whatever the parser does on hostile text, the text is at fault
            fix = "look for escapes such as \\U in double quotes behind this point"
            self._fail(codes.SYNTAX, "something that YAML cannot express", last, fix)

    def _refuse_syntax(self, error: MarkedYAMLError, last: Place) -> None:
        context = str(error.context or "")
        mark = error.context_mark if is_placed_at_opening(context) else error.problem_mark
        message, fix = explain_syntax(str(error.problem or ""), context)
        self._fail(codes.SYNTAX, message, self._place(mark) if mark else last, fix)

    def _begin_document(self, event: Event) -> None:
        self.documents += 1
        if self.documents > 1:
            place = self._place(event.start_mark)
            self._fail(codes.DOCUMENT, "a second document begins here", place, "one file holds one document")

    def _open(self, event: CollectionStartEvent) -> None:
        place = self._place(event.start_mark)
        if len(self.stack) >= DEEPEST:
            self._fail(codes.TOO_LARGE, f"nested more than {DEEPEST} levels deep", place)
        self.stack.append(_Open(event, place))

    def _close(self) -> None:
        top = self.stack.pop()
        size = 1 + sum(child.size for child in top.children)
        tree: Tree
        if isinstance(top.event, MappingStartEvent):
            tree = Table(self._entries(top.children), top.place, size)
        else:
            tree = Listing(tuple(top.children), top.place, size)
        self._name(top.event, tree)

    def _entries(self, children: list[Tree]) -> dict[str, tuple[Scalar, Tree]]:
        entries: dict[str, tuple[Scalar, Tree]] = {}
        for key, value in zip(children[::2], children[1::2], strict=True):
            if not isinstance(key, Scalar) or key.text is None:
                self._note(codes.UNSUPPORTED, f"expected a key, got {describe(key)}", key.place)
            elif key.source == "<<":
                self._note(codes.UNSUPPORTED, _MERGE, key.place, _MERGE_FIX)
            elif key.text in entries:
                first = entries[key.text][0].place
                message = f"the key {quoted(key.text)} stands here twice"
                fix = f"keep one; the other is at {first}"
                self._note(codes.DUPLICATE_KEY, message, key.place, fix)
            else:
                entries[key.text] = (key, value)
        return entries

    def _scalar(self, event: ScalarEvent) -> Scalar:
        place = self._place(event.start_mark)
        source = self.text[event.start_mark.index : event.end_mark.index]
        text: str | None = _join_surrogates(event.value)
        if text and self.stood_in and (found := _STOOD_IN.search(source)):
            if event.style not in ("'", '"'):
                before = self.text[: event.start_mark.index + found.start()]
                strange = _strange(_put_back(found.group()), place_after(self.start, before))
                raise SpecError(in_order((*self.issues, strange)))
            text, source = _put_back(text), _put_back(source)
        if text and (issue := refuse_unsendable(text, place)):
            self.issues.append(issue)
            text = _UNSENDABLE.sub("", text)
        if text in _NULLS and event.style is None:
            text = None
        return Scalar(text, source, place)

    def _alias(self, event: AliasEvent) -> None:
        tree = self.anchors.get(event.anchor)
        place = self._place(event.start_mark)
        if tree is None:
            inside = any(frame.event.anchor == event.anchor for frame in self.stack)
            why = "stands inside what it repeats" if inside else "repeats nothing: no & has its name"
            fix = "quote the text if the * belongs to it"
            self._fail(codes.SYNTAX, f"the alias {quoted('*' + event.anchor)} {why}", place, fix)
        if isinstance(tree, Scalar):
            tree = Scalar(tree.text, f"*{event.anchor}", place)
        self._add(tree, tree.size)

    def _name(self, event: ScalarEvent | CollectionStartEvent, tree: Tree) -> None:
        if event.tag is not None:
            message = f"the YAML tag {quoted(str(event.tag))} is not used here"
            fix = "quote the text if the ! belongs to it, else drop the tag"
            self._note(codes.UNSUPPORTED, message, tree.place, fix)
        if event.anchor is not None:
            self.anchors[event.anchor] = tree
        self._add(tree, 1)

    def _add(self, tree: Tree, size: int) -> None:
        self.values += size
        if self.values > MOST_VALUES:
            message = f"more than {MOST_VALUES} values, counting what aliases repeat"
            self._fail(codes.TOO_LARGE, message, tree.place)
        if self.stack:
            self.stack[-1].children.append(tree)
        else:
            self.root = tree

    def _place(self, mark: Any) -> Place:
        column = mark.column + (self.start.column if mark.line == 0 else 1)
        return Place(self.start.file, self.start.line + mark.line, column)

    def _note(self, code: str, message: str, place: Place, fix: str = "") -> None:
        self.issues.append(Issue(code, message, place, fix))

    def _fail(self, code: str, message: str, place: Place, fix: str = "") -> NoReturn:
        self._note(code, message, place, fix)
        raise SpecError(in_order(self.issues))
