"""Numbers with their nouns: 1 node, 2 nodes."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Write a number before its noun, with an s unless it is one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
