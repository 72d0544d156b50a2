"""JSON for programs that read what we print."""

from __future__ import annotations

import codecs
import json
import sys
from typing import Any


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Render JSON as UTF-8 where stdout is that, else in ASCII alone: no other encoding is JSON (RFC 8259, 8.1)."""
    return json.dumps(document, ensure_ascii=not _is_utf8(sys.stdout.encoding), indent=indent)


def _is_utf8(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "ascii").name == "utf-8"
    except LookupError:
        return False
