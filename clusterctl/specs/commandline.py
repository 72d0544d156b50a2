"""Commands that a user is meant to paste: every word of them is quoted for the shell."""

from __future__ import annotations

import shlex


def command_line(*words: str, command: str = "") -> str:
    """Join words to a command; `command` is how it begins, ready to paste, such as `clusterctl -i FILE`."""
    return " ".join([*filter(None, [command]), *map(quote_word, words)])


def quote_word(word: str) -> str:
    """Quote a word for a shell."""
    quoted = shlex.quote(word)
    return f"'{word}'" if quoted == word and word.startswith("=") else quoted  # zsh expands a bare =word
