"""A YAML parser's complaint in plain words."""

from __future__ import annotations

import re

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
