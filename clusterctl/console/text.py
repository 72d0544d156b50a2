"""Texts that are safe to print, and JSON.

Make what a node or a training script wrote harmless on a terminal.

Escape sequences can move the cursor, rewrite lines above, set the title, or fill the clipboard (OSC 52); the
bidirectional overrides can reverse the order of what is read. Files keep the raw bytes.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from clusterctl.plans.facts.untrusted import UNSEEN

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.measure import Measurement
    from rich.text import Text

UNBROKEN = 10_000  # columns where no terminal breaks lines
NARROWEST_CELL = 16  # columns that a cell of prose needs
_ESCAPE_SEQUENCE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"  # OSC, DCS, SOS, PM, APC with their strings
    r"|\x1b[ -/]*[0-~]?"  # all other escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"  # CSI in its one-byte form
    r"|[\x90\x98\x9d-\x9f][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
)
_CONTROL = re.compile(f"[\n{UNSEEN}]")
_PRINTABLE = re.compile(r"[ -~\t]*\Z")


def sanitize(line: str) -> str:
    """Drop escape sequences and what a terminal acts on or an eye misses (all but tab) from one line."""
    if _PRINTABLE.match(line):
        return line
    return _CONTROL.sub("", _ESCAPE_SEQUENCE.sub("", last_overwrite(line)))


def drop_controls(text: str) -> str:
    """Drop what a terminal acts on from a text that may be cut anywhere, character by character; lines stay lines."""
    return (
        text
        if _PRINTABLE.match(text)
        else _CONTROL.sub(lambda match: match.group() * (match.group() == "\n"), text)
    )


def make_visible(text: str) -> str:
    """Show what `drop_controls` drops as escapes, for text that is looked through and not obeyed."""
    return _CONTROL.sub(lambda match: _escape_control(match.group()), text)


def _escape_control(control: str) -> str:
    return control if control == "\n" else control.encode("unicode_escape").decode("ascii")


def last_overwrite(line: str) -> str:
    """Keep what a progress bar shows last: the text after the last carriage return that is followed by any."""
    parts = line.rstrip("\r\n").rsplit("\r", 1)
    return parts[-1]


# In JSON they stand in strings only, where `\\u....` is the same to every parser; below U+0020 it escapes them itself.
_INVISIBLE = re.compile(f"[{UNSEEN}]")


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Render JSON as UTF-8 where stdout is that, else in ASCII alone: no other encoding is JSON (RFC 8259, 8.1)."""
    text = json.dumps(document, ensure_ascii=not _is_utf8(sys.stdout.encoding), indent=indent)
    return _INVISIBLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index]:02x}{units[index + 1]:02x}" for index in range(0, len(units), 2))


def _is_utf8(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    except LookupError:
        return False


def display_width(name: str) -> int:
    """Count the columns a name takes on a terminal; a Chinese character takes two."""
    if name.isascii():
        return len(name)
    from rich.cells import cell_len

    return cell_len(name)


def cut_text(text: str, width: int) -> str:
    """Cut a text to so many columns, the last three of them dots."""
    if display_width(text) <= width:
        return text
    kept = ""
    for character in text:
        if display_width(kept + character) > width - 3:
            break
        kept += character
    return f"{kept}..."


KEPT_SPACE = "\ue000"  # stands for a space that no line is broken at
_BEFORE_UNIT = re.compile(r"(?<![\w.])(\d[\d.,]{0,20}) (?=[^\W\d_]|%)")
# What may be broken between any two characters: Chinese and the full-width forms; some stay with what is before them.
_WIDE = "\u2e80-\u303f\u3400-\u9fff\uff00-\uffef"
_TOKEN = (  # compiled for the first text that is too wide: 3 ms
    "[\u201c\u2018\u300a\uff08\u3010]*"
    f"(?:[^\\s{_WIDE}]*{KEPT_SPACE}[{_WIDE}]|[^\\s{_WIDE}]+|[{_WIDE}])"
    "[\u3001\u3002\u300b\u2019\u201d\uff01\uff09\uff0c\uff1a\uff1b\uff1f\u3011]*|[^\\S\n]+"
)


def wrap_text(text: str, width: int, first_indent: str = "", indent: str = "") -> list[str]:
    """Break a text at spaces and between Chinese characters, not before a unit; a longer word stays whole."""
    lines: list[str] = []
    line = first_indent
    for token in re.findall(_TOKEN, _BEFORE_UNIT.sub(rf"\1{KEPT_SPACE}", text)):
        is_empty = line in (first_indent if not lines else indent, "")
        if token.isspace():
            line += token if not is_empty else ""
        elif is_empty or display_width(line) + display_width(token) <= width:
            line += token
        else:
            lines.append(line.rstrip())
            line = indent + token
    lines += [line.rstrip()] if line.strip() else []
    return [line.replace(KEPT_SPACE, " ") for line in lines]


class WrappedCell:
    """A cell of a table that breaks its lines as `wrap_text` does."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Name the fewest columns and those for one line."""
        from rich.measure import Measurement

        width = display_width(self._text)
        return Measurement(min(width, NARROWEST_CELL), width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Return the lines for the width that the table leaves."""
        from rich.text import Text

        lines = [piece for line in self._text.split("\n") for piece in wrap_text(line, options.max_width)]
        yield Text("\n".join(lines), overflow="fold")


def fill_lines(items: Sequence[str], width: int) -> list[str]:
    """Put items into lines of at most so many columns; none is broken."""
    lines: list[str] = []
    for item in items:
        if lines and display_width(lines[-1]) + 2 + display_width(item) <= width:
            lines[-1] += f"  {item}"
        else:
            lines.append(item)
    return lines


class ItemsCell:
    """A cell of a table with items, none of which is broken."""

    def __init__(self, items: Sequence[str]) -> None:
        self._items = items

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Name the columns of the widest item, and those for one line."""
        from rich.measure import Measurement

        widest = max(map(display_width, self._items), default=0)
        return Measurement(widest, display_width("  ".join(self._items)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Return the lines for the width that the table leaves."""
        from rich.text import Text

        yield Text("\n".join(fill_lines(self._items, options.max_width)), overflow="fold")


# How a line begins that is there to be pasted; such a line stays whole.
COMMAND = re.compile(r"(clusterctl|python3?|pip|ssh(-\w+)?|sudo|chmod|chown|mv|rm|cp|export)\s")


def wrap_command(text: str, width: int) -> list[str]:
    """Keep a command on one line, to be pasted; a comment behind it goes below where both are too wide."""
    command, mark, comment = text.partition("  # ")
    return [command, f"# {comment}"] if mark and display_width(text) > width else [text]


_IN_BACKQUOTES = re.compile(r"`[^`]*`")


def wrap_prose(text: str, width: int, indent: str = "") -> list[str]:
    """Break a text as `wrap_text` does; a command in backquotes stays whole where it fits a line."""
    kept = _IN_BACKQUOTES.sub(
        lambda found: found[0].replace(" ", KEPT_SPACE) if display_width(found[0]) <= width else found[0],
        text,
    )
    return wrap_text(kept, width, indent=indent)
