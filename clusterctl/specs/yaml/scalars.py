"""Texts as they stand in a YAML file that is written, so that they are read as the same texts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_PLAIN = re.compile(r"[A-Za-z0-9_/~][A-Za-z0-9._/~@+-]*|--?[A-Za-z][A-Za-z0-9_-]*")
_NULLS = frozenset(("~", "null", "Null", "NULL"))


def render_scalar(value: object) -> str:
    """Write a text so that it is read as that text: plain where that is safe, else in double quotes."""
    text = str(value)
    plain = _PLAIN.fullmatch(text) and text not in _NULLS
    return text if plain else json.dumps(text).replace("\x7f", "\\x7f")  # JSON lets it stand, YAML does not


def render_args(args: Sequence[str]) -> str:
    """Write the arguments of a job as the line of its file."""
    return f"args: {render_list(args)}"


def render_list(texts: Sequence[str]) -> str:
    """Write texts as a list in one line."""
    return f"[{', '.join(map(render_scalar, texts))}]"
