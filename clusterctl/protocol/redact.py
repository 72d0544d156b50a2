"""Secrets left out of a text by their value, wherever they appear."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

# characters; shorter values occur in any text, and replacing them would show more than it hides
MIN_SECRET = 4  # characters
REDACTED = "[secret]"


def secret_values(secrets: Iterable[str]) -> list[str]:
    """List the texts to replace: each secret and each of its lines, longer ones first."""
    values = {part for secret in secrets for part in (secret, *secret.splitlines())}
    return sorted((value for value in values if len(value) >= MIN_SECRET), key=len, reverse=True)


def redact_values(text: str, values: Iterable[str]) -> str:
    """Replace values, which `secret_values` has put in order, in a text."""
    for value in values:
        text = text.replace(value, REDACTED)
    return text


def redact(text: str, secrets: Iterable[str]) -> str:
    """Replace every secret value in a text, and each line of it."""
    return redact_values(text, secret_values(secrets))


def redact_tree(value: Any, secrets: Collection[str]) -> Any:
    """Replace every secret value in every text of a value that is to become JSON."""
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, dict):
        return {key: redact_tree(item, secrets) for key, item in value.items()}
    return [redact_tree(item, secrets) for item in value] if isinstance(value, (list, tuple)) else value
