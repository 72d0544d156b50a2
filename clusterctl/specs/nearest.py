"""The known word nearest to an unknown one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

LONGEST_GUESS = 64


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Name the known word that was probably meant, or None."""
    return _nearest(word, tuple(known)) if len(word) <= LONGEST_GUESS else None


@lru_cache(maxsize=1024)
def _nearest(word: str, known: tuple[str, ...]) -> str | None:
    from difflib import get_close_matches  # noqa: PLC0415  only an error needs it

    folded = {name.casefold().replace("-", "_"): name for name in known}
    found = get_close_matches(word.casefold().replace("-", "_"), folded, n=1)
    return folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Render the guess as the end of a message: `, did you mean 'host'?`, or nothing."""
    guess = nearest(word, known)
    return f", did you mean {guess!r}?" if guess else ""
