"""Secrets are hidden by value, wherever they appear."""

from __future__ import annotations

from clusterctl.specs.text import redact


def test_values_are_hidden_longest_first() -> None:
    """A secret that contains another leaves no rest of itself behind."""
    assert redact("key=abcdef-123 and abcdef", ["abcdef", "abcdef-123"]) == "key=[secret] and [secret]"


def test_a_secret_of_several_lines_is_hidden_line_by_line() -> None:
    """Output is shown line by line; no line of a key may appear."""
    assert redact("| MIIEpAIBAAKC", ["-----BEGIN-----\nMIIEpAIBAAKC\n"]) == "| [secret]"


def test_short_and_empty_values_are_left_alone() -> None:
    """Replacing `1` everywhere would ruin the text and tell the secret."""
    assert redact("epoch 1 of 10", ["1", ""]) == "epoch 1 of 10"
