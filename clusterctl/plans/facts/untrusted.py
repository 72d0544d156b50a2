"""Texts of a node that may be printed: cleaned of what a terminal acts on, and records of such texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from clusterctl.protocol.messages.facts import MAX_PID
from clusterctl.protocol.messages.record import Reading, read, read_many
from clusterctl.protocol.untrusted import Untrusted

if TYPE_CHECKING:
    from clusterctl.protocol.messages.record import AnyRecord

MAX_TEXT = 1000
# What a terminal acts on or an eye misses, but for tab and newline, as the inside of a class of characters: control
# characters, soft hyphens, bidirectional and zero-width ones, annotations and tags; and surrogates, which are no UTF-8.
# It is the only such table: what is printed, JSON and the pages are made from it.
UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f"
)
INVISIBLE = re.compile(f"[\t\n{UNSEEN}]")


def clean_text(text: str) -> str:
    """Shorten a text and show what a terminal would act on, or an eye would miss, as `\\x..` or `\\u....`."""
    if text.isascii() and text.isprintable() and len(text) <= MAX_TEXT:
        return text
    return INVISIBLE.sub(show_escaped, text[:MAX_TEXT])


def clean_lines(text: str, limit: int) -> str:
    """Clean a text of several lines as `clean_text` does one; of a long one keep the end, where the reason stands."""
    kept = text[-limit:].rstrip()
    lines = "\n".join(
        INVISIBLE.sub(show_escaped, line.removesuffix("\r").expandtabs(4)) for line in kept.split("\n")
    )
    return (
        lines if len(text) <= limit else f"[the first {len(text) - limit} characters are left out]\n{lines}"
    )


def show_escaped(match: re.Match[str]) -> str:
    """Write a character as Python writes it: `\\x1b`, `\\u202e`, `\\U000e0041`."""
    number = ord(match.group())
    if number < 256:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


def read_clean(kind: type[AnyRecord], raw: object) -> AnyRecord | None:
    """Read a record whose texts may be printed; None for anything that is no object."""
    return read(kind, raw, Reading(clean_text))


def read_clean_many(kind: type[AnyRecord], raw: object) -> tuple[AnyRecord, ...]:
    """Read a list of records whose texts may be printed."""
    return read_many(kind, raw, Reading(clean_text))


MAX_PROCESSES = 1000
MAX_PROCESS_NAME = 100  # characters; the kernel keeps 15


def render_processes(raw: Untrusted, key: str) -> tuple[str, ...]:
    """Name the processes of a list: `python (pid 4711)`."""
    return tuple(render_process(entry) for entry in raw.records(key, MAX_PROCESSES))


def render_process(raw: Untrusted) -> str:
    """Name one process."""
    pid = raw.integer("pid", 1, MAX_PID)
    return f"{raw.text('name', MAX_PROCESS_NAME) or '?'} (pid {'?' if pid is None else pid})"
