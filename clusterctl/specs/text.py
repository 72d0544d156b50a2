"""Plurals, the nearest word, durations, sizes, commands to paste, paths of a run's code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from functools import lru_cache

from clusterctl.protocol.exit_status import largest_units
from clusterctl.translation import to_translate, tr, trn

MAX_GUESS = 64  # characters
MIN_BEGINNING = 3  # of a name of several words
_DURATIONS = {
    "dh": to_translate("{n}d{rest:02}h"),
    "hm": to_translate("{n}h{rest:02}m"),
    "ms": to_translate("{n}m{rest:02}s"),
    "d": to_translate("{n}d"),
    "h": to_translate("{n}h"),
    "m": to_translate("{n}m"),
    "s": to_translate("{n} s"),
}
_CODE_FOLDER = re.compile(
    r"/runs/[\w.-]{1,200}/\d{1,5}-[^/\s\"']{1,200}/code/(?=[^/\s])"
)  # of a run, on its node
_BEFORE_PATHS = "\t \"'(=:[{<>,;|"

UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")


def plural(number: int, noun: str) -> str:
    """Write a number before its noun, with an s unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def find_nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, or None."""
    return _find_nearest_cached(word, tuple(candidates)) if len(word) <= MAX_GUESS else None


@lru_cache(maxsize=1024)
def _find_nearest_cached(word: str, candidates: tuple[str, ...]) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415  only an error needs it

    by_normalized = {name.casefold().replace("-", "_"): name for name in candidates}
    meant = word.casefold().replace("-", "_")
    matches = get_close_matches(meant, by_normalized, n=1)
    if not matches and len(meant) >= MIN_BEGINNING:
        matches = [name for name in by_normalized if name.startswith(f"{meant}_")]
    return by_normalized[matches[0]] if len(matches) == 1 else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Render the guess as the end of a message: `, did you mean 'host'?`, or nothing."""
    suggestion = find_nearest(word, candidates)
    return did_you_mean_exactly(suggestion) if suggestion else ""


def did_you_mean_exactly(suggestion: str) -> str:
    """Render a guess that was made elsewhere as the end of a message."""
    return tr(", did you mean {word!r}?", word=suggestion)


def render_duration(seconds: float) -> str:
    """Write a span in whole seconds, in the language of the user: `42 s`, `7m05s`, `2h05m`, `3d04h`."""
    units = largest_units(seconds)
    (_, count), (_, rest) = units[0], units[-1]
    return tr(_DURATIONS["".join(unit for unit, _ in units)], n=count, rest=rest)


def duration_forms() -> dict[str, str]:
    """Return how `render_duration` writes a span, by its units, with {n} and {rest} in their places."""
    return {units: tr(form) for units, form in _DURATIONS.items()}


def render_size(size: int) -> str:
    """Write a number of bytes for people."""
    thousands = min((len(str(size)) - 1) // 3, len(UNITS))
    if not thousands:
        return trn("{n} byte", "{n} bytes", size)
    return f"{size / 1000**thousands:,.1f} {UNITS[thousands - 1]}"


def render_seconds(seconds: float) -> str:
    """Write a time that was measured: `3.6 s`, from a minute on in whole seconds."""
    return tr("{seconds:.1f} s", seconds=seconds) if seconds < 59.95 else render_duration(seconds)


def command_line(*words: str, command: str = "") -> str:
    """Join words to a command, each of them quoted; a leading `~/` is left to the shell that will expand it.

    `command` is how it begins, ready to paste, such as `clusterctl -i FILE`.
    """
    return " ".join([*filter(None, [command]), *map(_quote_path, words)])


def begin_commands(text: str, command: str) -> str:
    """Write how this command began, such as `clusterctl -i FILE`, in front of the commands that a text advises."""
    return text.replace("`clusterctl ", f"`{command} ")


def quote_word(word: str) -> str:
    """Quote a word so that it reaches the program as it is."""
    quoted = shlex.quote(word)
    return f"'{word}'" if quoted == word and word.startswith("=") else quoted  # zsh expands a bare =word


def _quote_path(word: str) -> str:
    return f"~/{quote_word(word[2:])}" if word.startswith("~/") and len(word) > 2 else quote_word(word)


def as_in_project(text: str) -> str:
    """Write paths of a run's copy of the code as in the project: `train.py` for `/home/.../1-gpu02/code/train.py`.

    A path begins with a slash at the start of the text or behind one of a few signs; what looks otherwise stays.
    """
    if "/code/" not in text:
        return text
    pieces, end = [], 0
    for found in _CODE_FOLDER.finditer(text):
        before = text[end : found.start()]
        start = max(map(before.rfind, _BEFORE_PATHS)) + 1
        path = before[start:] or "/"
        is_path = path.startswith("/") and not path.startswith("//")
        pieces.append(before[:start] if is_path else text[end : found.end()])
        end = found.end()
    return "".join([*pieces, text[end:]])
