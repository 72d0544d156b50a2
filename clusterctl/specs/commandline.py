"""Commands that a user is meant to paste: every word of them is quoted for the shell."""

from __future__ import annotations

import shlex


def command_line(*words: str, command: str = "") -> str:
    """Join words to a command, each of them quoted; a leading `~/` is left to the shell that will expand it.

    `command` is how it begins, ready to paste, such as `clusterctl -i FILE`.
    """
    return " ".join([*filter(None, [command]), *map(_quote_path, words)])


def quote_word(word: str) -> str:
    """Quote a word so that it reaches the program as it is."""
    quoted = shlex.quote(word)
    return f"'{word}'" if quoted == word and word.startswith("=") else quoted  # zsh expands a bare =word


def _quote_path(word: str) -> str:
    return f"~/{quote_word(word[2:])}" if word.startswith("~/") and len(word) > 2 else quote_word(word)
