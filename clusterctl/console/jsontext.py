"""JSON for programs that read what we print."""

from __future__ import annotations

import codecs
import json
import re
import sys
from typing import Any

# What JSON lets through and a terminal acts on or an eye misses: C1, bidirectional and zero-width characters, tags;
# and surrogates, which are no UTF-8. They stand in strings only, where `\\u....` is the same to every parser.
_UNSEEN = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Render JSON as UTF-8 where stdout is that, else in ASCII alone: no other encoding is JSON (RFC 8259, 8.1)."""
    text = json.dumps(document, ensure_ascii=not _is_utf8(sys.stdout.encoding), indent=indent)
    return _UNSEEN.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found.group().encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _is_utf8(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    except LookupError:
        return False
