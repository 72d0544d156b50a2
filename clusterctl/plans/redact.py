"""Keep the values of secrets out of everything that is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

SHORTEST = 4  # characters; shorter values occur in any text, and replacing them would tell more than it hides
HIDDEN = "[secret]"


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret value in a text, and each line of it; longer ones first, one may contain another."""
    values = {part for secret in secrets for part in (secret, *secret.splitlines())}
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= SHORTEST:
            text = text.replace(value, HIDDEN)
    return text


def redact_tree(value: Any, secrets: Collection[str]) -> Any:
    """Replace every secret value in every text of a value that is to become JSON."""
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, dict):
        return {key: redact_tree(below, secrets) for key, below in value.items()}
    return [redact_tree(below, secrets) for below in value] if isinstance(value, (list, tuple)) else value
